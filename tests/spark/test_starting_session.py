"""Spark starts while the rest is put together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from bridge.ends.end import Abandoned
from bridge.errors import SourceError, UsageError
from bridge.spark import starting_session
from bridge.spark.starting_session import StartingSession


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Set when Spark may have started."""
    may_answer = threading.Event()

    def start(settings: Any, **_: str) -> Any:
        may_answer.wait(60)
        if settings:
            raise UsageError("no such property")
        return "the session"

    monkeypatch.setattr(starting_session, "start_session", start)
    yield may_answer
    may_answer.set()


def test_it_is_waited_for(answers: threading.Event) -> None:
    """By whoever needs it first."""
    starting = StartingSession({}, "off")
    threading.Timer(0.1, answers.set).start()
    assert starting.get() == "the session"


def test_a_stop_does_not_wait_for_it(answers: threading.Event) -> None:
    """The JVM ends with the process."""
    assert not answers.is_set()
    with pytest.raises(Abandoned):
        StartingSession({}, "off").get(lambda: True)


def test_what_keeps_spark_from_starting_is_raised_where_it_is_needed(answers: threading.Event) -> None:
    """Not in a thread whose errors nobody reads."""
    starting = StartingSession({"spark.none": "1"}, "off")
    answers.set()
    with pytest.raises(UsageError, match="no such property"):
        starting.get()


def test_a_start_that_never_ends_is_given_up(answers: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark waits for ever for a JVM that has failed and stays.  The log has said before that Spark is late."""
    assert not answers.is_set()
    monkeypatch.setattr(starting_session, "_LATE_SECONDS", 0.1)
    monkeypatch.setattr(starting_session, "_MOST_SECONDS", 0.5)
    starting = StartingSession({}, "off")
    with capture_logs() as said, pytest.raises(SourceError, match="Spark has not started within"):
        starting.get()
    assert {line["event"] for line in said} == {"spark_is_late"}
    assert len(said) >= 2
