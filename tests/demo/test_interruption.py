"""A signal ends the demo, wherever it comes."""

from __future__ import annotations

import os
import signal

import pytest
from confluent_kafka import KafkaException

from bridge.demo import run
from bridge.exits import INTERRUPTED


class _SignalledWhenFinalised:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_while_an_object_is_finalised_is_not_lost() -> None:
    """Python throws away what a finaliser raises: the next wait raises it again."""
    with run.interruptible() as interruption:
        _SignalledWhenFinalised()
        with pytest.raises(run.DemoInterrupted):
            interruption.check()


def test_an_error_that_a_signal_became_is_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """librdkafka raises an error of its own where a signal interrupts one of its callbacks."""

    def replaced(*_: object, **__: object) -> int:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except run.DemoInterrupted:
            raise KafkaException("a callback failed") from None
        return 0

    monkeypatch.setattr(run, "_run", replaced)
    assert run.run_demo() == INTERRUPTED
    assert capsys.readouterr().err.endswith("interrupted; everything is stopped\n")


def test_a_second_signal_does_not_interrupt_the_clean_up() -> None:
    """Only the first signal raises."""
    with run.interruptible() as interruption:
        with pytest.raises(run.DemoInterrupted):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert interruption.has_come
