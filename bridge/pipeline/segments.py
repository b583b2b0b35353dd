"""Cuts a window into segments at its schema changes, and a segment into target transactions.  Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.model import SchemaChange

TOGETHER: Final = 65_536
"""Characters of schema changes that end one segment: all still to run are written to progress anew after each."""


@dataclass(frozen=True)
class Segment:
    """Rows with low <= commit_ts < high, then `changes`, in order."""

    low: int
    high: int
    changes: tuple[SchemaChange, ...] = ()


def fold_copies(changes: Iterable[SchemaChange]) -> list[SchemaChange]:
    """Schema changes in the order they run: by commit_ts, then by the place of the first copy (topic, partition,
    offset), so that it is the same however they came; broadcast and repeated copies (same commit_ts, schema and text)
    are one."""
    seen: dict[tuple[int, str, str], SchemaChange] = {}
    for change in sorted(changes, key=_place):
        seen.setdefault((change.commit_ts, change.schema, change.text), change)
    return sorted(seen.values(), key=lambda change: change.commit_ts)


def _place(change: SchemaChange) -> tuple[str, int, int]:
    topic, partition, offset = change.position.rsplit("/", 2)
    return topic, int(partition), int(offset)


def cut_window(low: int, high: int, changes: Sequence[SchemaChange], row_ts: Sequence[int]) -> Iterator[Segment]:
    """Segments of the window [low, high).

    changes: the window's schema changes as `fold_copies` orders them; rows at a change's commit_ts come before it.
    row_ts: commit_ts of the window's rows, ascending.  Changes with no rows between them end one segment together,
    up to `TOGETHER`; those of one commit_ts always do.
    """
    held: list[SchemaChange] = []
    for change in changes:
        is_next = bool(held) and held[-1].commit_ts < change.commit_ts
        if is_next and (_is_much(held) or _has_rows(row_ts, held[-1].commit_ts + 1, change.commit_ts + 1)):
            yield Segment(low, held[-1].commit_ts + 1, tuple(held))
            low, held = held[-1].commit_ts + 1, []
        held.append(change)
    if held:
        yield Segment(low, held[-1].commit_ts + 1, tuple(held))
        low = held[-1].commit_ts + 1
    if low < high:
        yield Segment(low, high)


def _is_much(changes: Sequence[SchemaChange]) -> bool:
    return sum(len(change.text) for change in changes) > TOGETHER


def _has_rows(row_ts: Sequence[int], low: int, high: int) -> bool:
    return bisect_left(row_ts, low) < bisect_left(row_ts, high)
