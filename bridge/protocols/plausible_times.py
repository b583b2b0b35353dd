"""Finds messages of a time that has not come yet: what such a message says of time cannot be true.

A boundary of the year 2200 would count as done what is still to come, and every later change would be dropped as late.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from bridge.events import Code, Event, Kind
from bridge.protocols.decoder import DecodeError, RowEvents
from bridge.tso import ms_tso, tso_ms, tso_time

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from bridge.protocols.fast.texts import Numbers

_MOST_MS: Final = (1 << 45) - 1
_UNITS: Final = ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1_000, "seconds"))


def highest_ts(latest_ms: Iterable[int], ms_ahead: int) -> int:
    """Returns the highest TSO that messages can tell: of the latest moment that one of them can be of, and so much
    ahead."""
    return ms_tso(min(max(latest_ms) + ms_ahead, _MOST_MS) + 1) - 1


def check_times(events: Iterable[Event], highest: int) -> None:
    """Raises DecodeError for an event above the highest TSO.

    Event times do not count: a session of MySQL may set its own (`SET timestamp`), and nothing is dropped by them.
    """
    for event in events:
        if event.commit_ts > highest and not event.by_time:
            raise DecodeError(_reason(event, highest), Code.AHEAD_OF_CLOCK)


def numbers_above(lots: Iterable[RowEvents], highest: int) -> Numbers:
    """Returns the numbers of the messages with events above the highest TSO, ascending."""
    import numpy as np

    numbers = [np.empty(0, np.int64), *(_above(lot, highest) for lot in lots)]
    return np.unique(np.concatenate(numbers))


def _above(lot: RowEvents, highest: int) -> Numbers:
    are_above: npt.NDArray[np.bool_] = lot.events.column("commit_ts").to_numpy() > highest
    if are_above.any():
        are_above &= ~lot.events.column("by_time").to_numpy(zero_copy_only=False)
    above: Numbers = lot.numbers[are_above]
    return above


def _reason(event: Event, highest: int) -> str:
    what = "boundary" if event.kind is Kind.BOUNDARY else "commit ts"
    return (
        f"its {what} {event.commit_ts} is {tso_time(event.commit_ts)}, {_how_long(event.commit_ts, highest)} later than"
        f" can be ({tso_time(highest)}, by this machine's clock, Kafka's timestamp and source.ahead_seconds): the"
        " sender is wrong, or this machine's clock is behind, or the upstream's is ahead (then raise"
        " source.ahead_seconds)"
    )


def _how_long(ts: int, highest: int) -> str:
    ms = tso_ms(ts) - tso_ms(highest)
    size, unit = next((unit_size for unit_size in _UNITS if ms >= 2 * unit_size[0]), (1, "ms"))
    return f"{ms // size:,} {unit}"
