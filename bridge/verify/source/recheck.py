"""Compares rows again while the source moves, as their changes may be on their way through a pipeline that runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from bridge.errors import counted
from bridge.model import quote_name
from bridge.mysql.connection.session import Session
from bridge.mysql.state.progress import ProgressTable
from bridge.pipeline.status import reported_lags
from bridge.tso import tso_ms
from bridge.verify.compare.checksums import KeyValues
from bridge.verify.compare.row_diff import ComparedColumns, Difference

SecondsLeft = Callable[[int], float]
"""Gives for how many more seconds rows may differ, of so many that differ now."""

_FIRST_PAUSE: float = 0.1
_LONGEST_PAUSE: float = 2.0
_FEW: int = 50
_FEW_PAUSE: float = 0.01
"""The pause for a few rows.  The target shows only some states of a row that changes hundreds of times a second; to see
one of these on the source too, verify must read the row as often."""


def settle(
    shape: ComparedColumns,
    differences: Sequence[Difference],
    look: Callable[[Sequence[KeyValues]], list[Difference]],
    seconds_left: SecondsLeft,
) -> list[Difference]:
    """Compares rows again until their time is over, and gives what still differs.

    look: reads the differences among some keys now; without a key, the rows are the keys.
    A row also agrees when the target has what the source had at an earlier look: a row that changes all the time may
    never be equal at one instant, although the target follows it correctly.
    """
    pause = _FIRST_PAUSE
    source_states: dict[KeyValues, set[Hashable]] = {}
    remaining = list(differences)
    while remaining:
        is_last = seconds_left(len(remaining)) <= 0
        current = look([difference.key for difference in remaining])
        remaining = [d for d in current if _state(shape, d.actual) not in source_states.get(d.key, ())]
        for difference in remaining:
            source_states.setdefault(difference.key, set()).add(_state(shape, difference.expected))
        if is_last or not remaining:
            break
        time.sleep(_FEW_PAUSE if shape.key and len(remaining) <= _FEW else pause)
        pause = min(_LONGEST_PAUSE, pause * 2)
    return remaining


def _state(shape: ComparedColumns, row: KeyValues | None) -> Hashable:
    return None if row is None else tuple(shape.comparable(i, value) for i, value in enumerate(row))


_HEARTBEAT_SECONDS: Final = 30.0
"""A bridge without a heartbeat for longer than this is not running."""
_STILL_SECONDS: Final = 30.0
"""A target that is behind and to which nothing came for so long is not waited for: it is held, paused, or stopped by a
bad message."""
_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Motion:
    """How far a running pipeline is, by its progress and its last heartbeat.

    lag: for how many seconds, at `at` (the clock), the target was behind the source.
    mark: changes whenever the pipeline moves.
    waiting_for: what it said that it waits for; "" when it said nothing.
    """

    at: float
    lag: float
    mark: tuple[Any, ...]
    waiting_for: str


def read_motion(session: Session, table: ProgressTable, *, by_partition: bool) -> Motion | None:
    """Reads how far a pipeline is; None when no bridge runs it.

    With boundaries the applied ts tells how old the target is.  Without, it is the age of the newest change, which
    grows while nothing happens upstream: the bridge tells in its heartbeat whether it has read and applied everything.
    """
    owner, progress = (quote_name(table.schema, name) for name in ("owner", "progress"))
    rows = session.rows(
        "SELECT TIMESTAMPDIFF(MICROSECOND, o.heartbeat_at, NOW(6)) / 1000000, o.state, p.applied_ts"
        f" FROM {owner} o JOIN {progress} p ON p.name = o.name WHERE o.name = %s",
        (table.name,),
    )
    now = time.time()
    if not rows or rows[0][0] is None or float(rows[0][0]) > _HEARTBEAT_SECONDS:
        return None
    silent, applied = float(rows[0][0]), int(rows[0][2])
    state: Mapping[str, Any] = orjson.loads(rows[0][1] or b"{}")
    mark = (applied, state.get("messages"), state.get("rows"))
    waiting_for = str(state.get("waiting_for", ""))
    lags = reported_lags(state) if by_partition else None
    if lags is None:
        return Motion(now, max(0.0, now - tso_ms(applied) / 1000), mark, waiting_for)
    return Motion(now - max(0.0, silent), sum(lags), mark, waiting_for)


class InFlight:
    """Tells how much longer rows may differ that differed when this was made.

    The wait is over `grace` seconds after everything that the source held then has come to the target, or when the
    target, which is behind, does not move.

    look: reads how far the pipeline is.
    say: hears what is waited for, and how long at most.
    """

    def __init__(
        self,
        look: Callable[[], Motion | None],
        grace: float,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._look, self._grace, self._say, self._clock = look, grace, say, clock
        self._began = self._moved_at = clock()
        self._deadline, self._look_at = math.inf, -math.inf
        self._mark: tuple[Any, ...] | None = None
        self.stuck = ""
        """Why the wait ended though the target was behind; "" otherwise."""

    def seconds_left(self, rows: int) -> float:
        """Gives for how many more seconds rows may differ.  rows: how many differ now, to be said."""
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            self._note(now, rows, self._look())
        return self._deadline - now

    def _note(self, now: float, rows: int, motion: Motion | None) -> None:
        if motion is None:
            self._deadline = now
            return
        if motion.mark != self._mark:
            self._mark, self._moved_at = motion.mark, now
        is_behind = motion.lag > 0 and motion.at - motion.lag < self._began
        self._deadline = min(self._deadline, now + self._grace + (motion.lag if is_behind else 0.0))
        if is_behind and now - self._moved_at >= max(_STILL_SECONDS, self._grace):
            self._deadline = now
            self.stuck = (
                f"the pipeline is {motion.lag:,.0f} s behind and has not moved for {now - self._moved_at:.0f} s"
            )
            self.stuck += f" ({motion.waiting_for})" if motion.waiting_for else ""
            return
        seconds = max(0.0, self._deadline - now)
        why = f"the target is {motion.lag:,.0f} s behind" if is_behind else "their changes may be on their way"
        self._say(f"reading {counted(rows, 'row')} again for {seconds:,.0f} s at most: {why}")
