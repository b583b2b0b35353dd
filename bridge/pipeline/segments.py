"""Cuts a window into segments at its schema changes, and a segment into target transactions.  Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.model import SchemaChange

TOGETHER: Final = 65_536
"""How many characters the schema changes at the end of one segment have at most: after each of them, all that are still
to run are written to progress again."""


@dataclass(frozen=True)
class Segment:
    """The row changes with low <= commit_ts < high, then the schema changes, in order."""

    low: int
    high: int
    changes: tuple[SchemaChange, ...] = ()

    def cut_at(self, ts: int) -> tuple[Segment, ...]:
        """Gives the parts below and from `ts` on; the segment itself where one of them would be empty."""
        if not self.low < ts < self.high:
            return (self,)
        return Segment(self.low, ts), Segment(ts, self.high, self.changes)


def fold_copies(changes: Iterable[SchemaChange]) -> list[SchemaChange]:
    """Removes copies of schema changes, and sorts them into the order in which they run.

    That is the order of commit_ts, then of the position of the first copy (topic, partition, offset), so that it does
    not depend on how they arrived.  Copies, broadcast or repeated, have the same commit_ts, schema and text.
    """
    seen: dict[tuple[int, str, str], SchemaChange] = {}
    for change in sorted(changes, key=_place):
        seen.setdefault((change.commit_ts, change.schema, change.text), change)
    return sorted(seen.values(), key=lambda change: change.commit_ts)


def _place(change: SchemaChange) -> tuple[str, int, int]:
    topic, partition, offset = change.position.rsplit("/", 2)
    return topic, int(partition), int(offset)


def cut_window(low: int, high: int, changes: Sequence[SchemaChange], row_ts: Sequence[int]) -> Iterator[Segment]:
    """Cuts the window [low, high) into segments.

    changes: the schema changes of the window, in the order of `fold_copies`.  Rows at the commit_ts of a change come
        before it.
    row_ts: commit_ts of the window's rows, ascending.
    Changes without rows between them end one segment together, up to `TOGETHER`; those of one commit_ts always do.
    """
    held: list[SchemaChange] = []
    for change in changes:
        is_next = bool(held) and held[-1].commit_ts < change.commit_ts
        is_much = sum(len(one.text) for one in held) > TOGETHER
        if is_next and (is_much or _has_rows(row_ts, held[-1].commit_ts + 1, change.commit_ts + 1)):
            yield Segment(low, held[-1].commit_ts + 1, tuple(held))
            low, held = held[-1].commit_ts + 1, []
        held.append(change)
    if held:
        yield Segment(low, held[-1].commit_ts + 1, tuple(held))
        low = held[-1].commit_ts + 1
    if low < high:
        yield Segment(low, high)


def _has_rows(row_ts: Sequence[int], low: int, high: int) -> bool:
    return bisect_left(row_ts, low) < bisect_left(row_ts, high)
