"""What is retried, for how long, and what is said of an end that is away."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from bridge.ends import Abandoned, End, Ends
from bridge.errors import TargetError


class Clock:
    """A clock that moves when it is asked to wait."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class NoPause(threading.Event):
    """Time passes, and nobody waits."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.now += timeout or 0
        return self.is_set()


def an_end(name: str = "target", retry_seconds: float = 60) -> tuple[End, Clock]:
    clock = Clock()
    return End(name, "db:3306", retry_seconds=retry_seconds, stop=NoPause(clock), clock=clock), clock


def try_until(end: End, succeeds_at: float, work: Callable[[], object] = lambda: None) -> int:
    """Works with an end that is away until that moment; the number of attempts."""
    attempts = 0

    def give_up(error: BaseException) -> TargetError:
        return TargetError(f"given up: {error}")

    def attempt() -> int:
        nonlocal attempts
        attempts += 1
        if end._clock() < succeeds_at:
            raise OSError("away")
        work()
        return attempts

    return end.retried(attempt, "applying", (OSError,), lambda _: "is read-only", give_up)


def test_an_end_is_retried_ever_more_slowly_until_it_works() -> None:
    """At most every five seconds once it has been away for long; then nothing is said of it any more."""
    end, clock = an_end()
    assert try_until(end, clock.now + 50) >= 10
    assert end.retries >= 9
    assert (end.waiting_for, end.away_seconds) == ("", 0)


def test_an_end_is_given_up() -> None:
    """After the time of its setting, counted from the first failure, whoever met it."""
    end, clock = an_end()
    with pytest.raises(TargetError, match="given up: away"):
        try_until(end, clock.now + 500)
    assert 60 < end.away_seconds < 70
    assert end.waiting_for.startswith("target db:3306 is read-only for 6")


def test_zero_is_for_ever() -> None:
    """However long it takes."""
    end, clock = an_end(retry_seconds=0)
    assert try_until(end, clock.now + 20_000) > 2_000


def test_a_stop_ends_the_waiting() -> None:
    """Before the next attempt."""
    end, clock = an_end(retry_seconds=0)
    end.stop.set()
    with pytest.raises(Abandoned):
        try_until(end, clock.now + 500)


def test_what_is_not_transient_ends_the_attempts() -> None:
    """At once, as it is."""
    end, clock = an_end()
    with pytest.raises(ZeroDivisionError):
        try_until(end, clock.now, lambda: 1 / 0)
    assert end.retries == 0


def test_the_oldest_trouble_is_told_and_the_target_s_first() -> None:
    """Each part of the bridge tells of its own work, and only it says that it works again."""
    clock = Clock()
    target = End("target", "db:3306", retry_seconds=1, clock=clock)
    source = End("source", "kafka:9092", retry_seconds=1, clock=clock)
    ends = Ends(target, source)
    assert ends.waiting_for == ""
    source.failed("watching", "does not answer", 10)
    clock.now += 2
    assert ends.waiting_for == "source kafka:9092 does not answer for 12 s"
    target.failed("heartbeat", "does not answer")
    target.failed("applying", "is read-only")
    clock.now += 40
    assert ends.waiting_for == "target db:3306 does not answer for 40 s"
    target.failed("heartbeat", "is read-only")
    clock.now += 2
    assert ends.waiting_for == "target db:3306 is read-only for 42 s"
    target.answered("heartbeat")
    assert target.away_seconds == 42
    target.answered("applying")
    assert ends.waiting_for == "source kafka:9092 does not answer for 54 s"
