"""A reading that ends while the applier is at work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.config import StreamSection
from bridge.ends import End
from bridge.errors import SourceError, UnansweredError
from bridge.phases import PhaseClock
from bridge.pipeline import query
from bridge.pipeline.query import Reading
from bridge.protocols import DecodeOptions
from bridge.rows.gathering import Amount
from bridge.spark.decoded_batch import event_decoder
from bridge.spark.errors import ExecutorLost
from bridge.spark.shards import Executors


class Busy:
    """An applier whose transaction takes until it is told to end."""

    def __init__(self) -> None:
        self.phases, self.order = PhaseClock(), SimpleNamespace(positions={}, by_partition=False)
        self.begun, self.ends, self.has_ended = (threading.Event() for _ in range(3))

    def finish_pending(self, _: object) -> None:
        self.begun.set()
        assert self.ends.wait(60)
        self.has_ended.set()

    def interrupt(self) -> None:
        """It ends behind its transaction."""

    def tick(self) -> None:
        """Nothing becomes due."""


class Silent:
    """A source that fails as soon as the applier is at work."""

    is_kafka = True

    def __init__(self, applier: Busy, error: Exception) -> None:
        self._applier, self._error = applier, error

    def planner(self, *_: object) -> None:
        assert self._applier.begun.wait(60)
        raise self._error


@pytest.fixture
def applier(monkeypatch: pytest.MonkeyPatch) -> Iterator[Busy]:
    """At work for longer than an end waits for it."""
    monkeypatch.setattr(query, "STOP_SECONDS", 0.2)
    busy = Busy()
    yield busy
    busy.ends.set()


def _reading(applier: Busy, error: Exception, stop: threading.Event) -> tuple[threading.Thread, list[Exception]]:
    """A thread that reads until the source fails, and what it raises then."""
    raised: list[Exception] = []
    source = cast("Any", Silent(applier, error))
    end = End("source", "kafka:9092", retry_seconds=60)
    reading = Reading(
        source,
        end,
        partial(event_decoder, "canal-json", DecodeOptions("UTC")),
        StreamSection(),
        {},
        Executors(Amount(0, 0), Amount(0, 0)),
        0,
        stop,
        watch=lambda: None,
    )
    session = cast("Any", SimpleNamespace(get=lambda _: None, wait=lambda _: None))

    def run() -> None:
        try:
            reading.run(session, cast("Any", applier), (), once=False)
        except (SourceError, ExecutorLost) as failure:
            raised.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, raised


AGAIN: list[Callable[[str], Exception]] = [UnansweredError, ExecutorLost]


@pytest.mark.parametrize("error", AGAIN)
def test_who_reads_again_waits_for_the_applier(applier: Busy, error: Callable[[str], Exception]) -> None:
    """However long its transaction takes: a second one on the same session would commit the half of it."""
    thread, raised = _reading(applier, error("lost"), threading.Event())
    thread.join(1)
    assert thread.is_alive()
    applier.ends.set()
    thread.join(60)
    assert applier.has_ended.is_set()
    assert str(raised[0]).startswith("lost")


@pytest.mark.parametrize("error", AGAIN)
def test_a_stop_does_not_wait_for_long(applier: Busy, error: Callable[[str], Exception]) -> None:
    """The process ends, and the target rolls back."""
    stop = threading.Event()
    thread, _ = _reading(applier, error("lost"), stop)
    assert applier.begun.wait(60)
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert not applier.has_ended.is_set()


def test_an_end_does_not_wait_for_long(applier: Busy) -> None:
    """Of what no reading again cures: a schema change may take hours."""
    thread, raised = _reading(applier, SourceError("the topic was deleted"), threading.Event())
    thread.join(60)
    assert raised
    assert not applier.has_ended.is_set()
