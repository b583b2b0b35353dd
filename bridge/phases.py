"""Where the time of a pipeline goes: the seconds of the thread that applies, by phase.

That thread is always in one phase, so the seconds of all phases together are the time that has passed: the largest one
is what limits the rate.  Work that others do meanwhile, such as decoding what comes next, costs nothing here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple


class Phase(StrEnum):
    """What the thread that applies is doing.

    WAITING: no message is there: the pipeline has caught up, or Kafka takes its time.
    DECODING: it waits for messages that are being read and decoded.
    FOLDING: it puts row changes in order, and makes net changes of them.
    RENDERING: it writes net changes as SQL.
    SERVER: the target takes statements, or is waited for.
    COMMIT: the target commits.
    SCHEMA_CHANGE: the target runs a schema change, or it is held.
    HELD_BACK: the operator, or a server that is too busy, holds it back (`bridge ctl`).
    """

    WAITING = "waiting"
    DECODING = "decoding"
    FOLDING = "folding"
    RENDERING = "rendering"
    SERVER = "server"
    COMMIT = "commit"
    SCHEMA_CHANGE = "schema_change"
    HELD_BACK = "held_back"


WORDS: Final[Mapping[str, str]] = {
    Phase.WAITING: "waiting for Kafka",
    Phase.DECODING: "decoding",
    Phase.FOLDING: "folding",
    Phase.RENDERING: "rendering",
    Phase.SERVER: "the server",
    Phase.COMMIT: "commit",
    Phase.SCHEMA_CHANGE: "schema changes",
    Phase.HELD_BACK: "held back",
}
"""How a phase is called where people read it."""


class _Since(NamedTuple):
    """The present phase, when it began, and what was spent before.  decoding: how long was decoded until then."""

    phase: Phase | None
    began: float
    spent: Mapping[str, float]
    decoding: float


class PhaseClock:
    """Measures the phases.  One thread enters phases, another tells when messages are decoded, any may read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = _Since(None, clock(), {}, 0.0)
        self._decoding: tuple[float, float | None] = (0.0, None)

    def enter(self, phase: Phase | None) -> None:
        """Ends the present phase and begins another; None: nothing is measured."""
        now = self._clock()
        self._since = _Since(phase, now, self._spent(self._since, now), self._decoded_until(now))

    def decoding(self, *, begins: bool) -> None:
        """Notes that messages begin to be decoded, or that this has ended."""
        now = self._clock()
        self._decoding = self._decoded_until(now), now if begins else None

    def seconds(self) -> dict[str, float]:
        """Gives the seconds of each phase so far."""
        since = self._since
        spent = self._spent(since, max(since.began, self._clock()))
        return {str(phase): seconds for phase, seconds in spent.items()}  # plain texts, for JSON

    def _spent(self, since: _Since, now: float) -> Mapping[str, float]:
        if since.phase is None:
            return since.spent
        passed = now - since.began
        decoding = 0.0
        if since.phase is Phase.WAITING:
            decoding = min(passed, max(0.0, self._decoded_until(now) - since.decoding))
        spent = {**since.spent, since.phase: since.spent.get(since.phase, 0.0) + passed - decoding}
        return {**spent, Phase.DECODING: spent.get(Phase.DECODING, 0.0) + decoding} if decoding else spent

    def _decoded_until(self, now: float) -> float:
        total, since = self._decoding
        return total + (0.0 if since is None else max(0.0, now - since))


def shares(seconds: Mapping[str, float]) -> str:
    """Tells in words which part of the time went to each phase, the largest first; "" when nothing was measured."""
    total = sum(seconds.values())
    if total <= 0:
        return ""
    parts = sorted(((spent / total, phase) for phase, spent in seconds.items()), reverse=True)
    return ", ".join(f"{WORDS.get(phase, phase)} {share:.0%}" for share, phase in parts if share >= 0.005)
