"""The ends of a pipeline, target and source: how long one that is away is waited for, and what is said of it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

import structlog
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from bridge.errors import BridgeError

MOST_SECONDS_BETWEEN: Final = 5.0
"""Attempts come at most so far apart."""
_LOOK_SECONDS: Final = 0.2
_Answer = TypeVar("_Answer")

log = structlog.get_logger()


class Abandoned(Exception):  # noqa: N818  # not an error: nobody waits for the end any more
    """The bridge was asked to end while it waited."""


class Trouble(NamedTuple):
    """What keeps one part of the bridge from working with an end.  since: by the end's clock."""

    words: str
    since: float


class End:
    """One end of a pipeline.  Several threads may tell what they find; each tells of its own work.

    name: `target` or `source`.  place: where it is, such as db:3306.
    retry_seconds: how long it may be away; 0 is for ever.
    stop: set when nobody waits any more.
    """

    def __init__(
        self,
        name: str,
        place: str,
        *,
        retry_seconds: float,
        stop: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.place, self.retry_seconds = name, place, retry_seconds
        self.stop = stop or threading.Event()
        self._clock = clock
        self._troubles: dict[str, Trouble] = {}
        self.retries_for: Counter[str] = Counter()
        """How often something was tried again, by what kept it from being done."""

    def failed(self, work: str, words: str, seconds: float = 0.0) -> None:
        """Notes what keeps `work` from being done, in words that follow the end's name, and has for so many seconds."""
        trouble = self._troubles.get(work)
        self._troubles[work] = Trouble(words, self._clock() - seconds if trouble is None else trouble.since)

    def answered(self, work: str) -> None:
        """Notes that `work` was done."""
        self._troubles.pop(work, None)

    @property
    def retries(self) -> int:
        """How often something was tried again."""
        return self.retries_for.total()

    @property
    def away_seconds(self) -> float:
        """Since when something cannot be done; 0 when all can."""
        trouble = self._oldest()
        return self._clock() - trouble.since if trouble else 0.0

    @property
    def waiting_for(self) -> str:
        """What keeps the bridge from working with this end, and since when; "" when nothing does."""
        trouble = self._oldest()
        return f"{self.name} {self.place} {trouble.words} for {self._clock() - trouble.since:.0f} s" if trouble else ""

    def is_given_up(self, work: str) -> bool:
        """Whether `work` could not be done for longer than the end may be away."""
        trouble = self._troubles.get(work)
        return trouble is not None and 0 < self.retry_seconds < self._clock() - trouble.since

    def retried(
        self,
        do: Callable[[], _Answer],
        work: str,
        transient: tuple[type[BaseException], ...],
        trouble: Callable[[BaseException], str],
        give_up: Callable[[BaseException], BridgeError],
        abandoned: Callable[[], bool] = lambda: False,
    ) -> _Answer:
        """Does what `work` names until it raises no transient error, ever longer apart; gives its answer.

        trouble: says what an error means, in words that follow the end's name; those before a comma are one of a few.
        give_up: the error that is raised when the end was away for too long.
        Raises Abandoned when `stop` is set before, or `abandoned` says so.
        """

        def is_abandoned() -> bool:
            return self.stop.is_set() or abandoned()

        def pause(seconds: float) -> None:
            until = self._clock() + seconds
            while not is_abandoned() and self._clock() < until:
                self.stop.wait(min(seconds, _LOOK_SECONDS))

        def note(state: RetryCallState) -> None:
            error = _error_of(state)
            words = trouble(error)
            self.retries_for[words.partition(",")[0]] += 1
            self.failed(work, words)
            log.warning(
                "retrying", on=self.name, attempt=state.attempt_number, waiting_for=self.waiting_for, error=str(error)
            )

        def end(state: RetryCallState) -> None:
            if is_abandoned():
                raise Abandoned from _error_of(state)
            error = _error_of(state)
            failure = give_up(error)
            if failure is error:
                raise error
            raise failure from error

        answer = Retrying(
            retry=retry_if_exception_type(transient),
            after=note,
            stop=lambda _: is_abandoned() or self.is_given_up(work),
            wait=wait_random_exponential(multiplier=0.1, max=MOST_SECONDS_BETWEEN),
            sleep=pause,
            retry_error_callback=end,
        )(do)
        self.answered(work)
        return answer

    def _oldest(self) -> Trouble | None:
        return min(list(self._troubles.values()), key=lambda trouble: trouble.since, default=None)


class Ends(NamedTuple):
    """Both ends of a pipeline."""

    target: End
    source: End

    @property
    def waiting_for(self) -> str:
        """Which of them is away, and since when: a target that is away is why nothing is taken from the source."""
        return self.target.waiting_for or self.source.waiting_for


def _error_of(state: RetryCallState) -> BaseException:
    error = state.outcome.exception() if state.outcome else None
    assert error is not None, "an attempt is retried for what it raised"
    return error
