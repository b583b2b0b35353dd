"""Compares rows again while the source moves, until they agree or have had time enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence

from bridge.verify.compare.key_sql import KeyValues
from bridge.verify.compare.row_diff import ComparedColumns, Difference

Left = Callable[[int], float]
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
    seconds_left: Left,
) -> list[Difference]:
    """Compares rows again until their time is over, and gives what still differs.

    look: reads the differences among some keys now.
    A row also agrees when the target has what the source had at an earlier look: a row that changes all the time may
    never be equal at one instant, although the target follows it correctly.
    """
    pause = _FIRST_PAUSE
    seen: dict[KeyValues, set[Hashable]] = {}
    remaining = list(differences)
    while remaining:
        is_last = seconds_left(len(remaining)) <= 0
        now = look([difference.key for difference in remaining])
        remaining = [d for d in now if _state(shape, d.actual) not in seen.get(d.key, ())]
        for difference in remaining:
            seen.setdefault(difference.key, set()).add(_state(shape, difference.expected))
        if is_last or not remaining:
            break
        time.sleep(_FEW_PAUSE if len(remaining) <= _FEW else pause)
        pause = min(_LONGEST_PAUSE, pause * 2)
    return remaining


def _state(shape: ComparedColumns, row: KeyValues | None) -> Hashable:
    return None if row is None else tuple(shape.comparable(i, value) for i, value in enumerate(row))


def persistent(
    differences: Sequence[Difference], look: Callable[[], list[Difference]], seconds_left: Left
) -> list[Difference]:
    """Gives what differed at every look, for a table without a key, whose rows cannot be looked up."""
    pause = _FIRST_PAUSE
    remaining = list(differences)
    while remaining and (seconds := seconds_left(len(remaining))) > 0:
        time.sleep(min(pause, seconds))
        pause = min(_LONGEST_PAUSE, pause * 2)
        now = {(difference.finding, difference.key) for difference in look()}
        remaining = [difference for difference in remaining if (difference.finding, difference.key) in now]
    return remaining
