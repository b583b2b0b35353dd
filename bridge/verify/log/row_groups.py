"""Tells which row changes of the log the target should hold, and divides them into groups that are handled alike.

Pure, over Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bridge.events import Kind
from bridge.model import PartitionId, PartitionStart, Table, TableName
from bridge.rows.gathering import masked
from bridge.rows.grouping import Bools, Longs, distinct, ends, numbered
from bridge.verify.log.changes.lineage import Cut, NameHistory, NameIdentity, Span

_WHEN: Final = ("commit_ts", "by_time", "topic", "partition", "offset", "place")
"""The columns that tell whether a row change is behind a schema change."""


@dataclass(frozen=True)
class ReplicatedTable:
    """A table of the target.

    key: lower-case names, () without a key.
    columns: the columns that rows may have; empty unless some messages have fewer.
    common: the columns that every message has.
    earlier_keys: the keys that the table had before, the latest first, () where it had none (`key_eras`).
    key_numbers: by `Span.altered`, the number of the key that identified the rows: 0 is `key`, 1 the latest of
    `earlier_keys`.  What is not listed is 0.
    is_utc: whether schema changes have taken moments and local times for the same.
    """

    table: Table
    key: tuple[str, ...]
    columns: frozenset[str] = frozenset()
    common: frozenset[str] = frozenset()
    earlier_keys: tuple[tuple[str, ...], ...] = ()
    key_numbers: Mapping[int, int] = field(default_factory=dict)
    is_utc: bool = True

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """The keys by their numbers."""
        return self.key, *self.earlier_keys

    @property
    def was_keyless(self) -> bool:
        """Whether the table has, or had, no key."""
        return () in self.keys

    def key_number(self, span: Span) -> int:
        """Gives the number of the key that identified the rows of a span."""
        return self.key_numbers.get(span.altered, 0)


@dataclass(frozen=True)
class LogPlan:
    """What executors must know to make steps.

    limit: the commit_ts (TSO) from which on nothing is in the target yet.
    read: how far the target is in each partition, in the order of partitions; None in the order of commit_ts.
    boundaries: by partition, offsets and the highest boundary (TSO) at or before each, ascending.  A change behind such
    an offset and below its boundary has been sent before.
    units: by table number and key, a name for all keys between which rows move whose messages hold only a part of them.
    begins: by topic, the commit_ts (TSO) below which everything is in the target although limit may be lower.
    identity: which names mean one table.
    hides_updates: whether an insert may be an update, as the format has no other sign of one than the row before.
    """

    tables: tuple[ReplicatedTable, ...]
    histories: Mapping[tuple[str, str], NameHistory]
    limit: int
    read: Mapping[PartitionId, PartitionStart] | None
    boundaries: Mapping[PartitionId, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = field(default_factory=dict)
    units: Mapping[tuple[int, str], str] = field(default_factory=dict)
    begins: Mapping[str, int] = field(default_factory=dict)
    identity: NameIdentity = field(default_factory=NameIdentity)
    hides_updates: bool = False

    @property
    def has_retyped(self) -> bool:
        """Whether the type of some column was changed, or a key, so that shapes depend on values."""
        return any(
            span.retyped or span.converted or span.altered
            for history in self.histories.values()
            for span in history.spans
        )

    def history(self, name: TableName) -> NameHistory:
        """Gives the history of a name in messages."""
        return self.histories.get(self.identity.key_of(name)) or NameHistory([], [Span(name)])

    def number_of(self, name: TableName) -> int | None:
        """Gives the number of a table, None when the target does not have it."""
        return self._numbers.get(self.identity.key_of(name))

    @cached_property
    def _numbers(self) -> Mapping[tuple[str, str], int]:
        """The number of each table by its key."""
        return {self.identity.key_of(replicated.table.name): i for i, replicated in enumerate(self.tables)}


def in_target(plan: LogPlan, events: pa.Table) -> pa.Table:
    """Gives the row changes that the target should hold."""
    is_row = events["kind"].to_numpy() <= int(Kind.DELETE)
    return masked(events, is_row & are_reached(events, plan.limit, plan.read, plan.begins))


def are_reached(
    events: pa.Table, limit: int, read: Mapping[PartitionId, PartitionStart] | None, begins: Mapping[str, int]
) -> Bools:
    """Tells which events a target had come to.  limit, read, begins: as of `LogPlan`."""
    times = events["commit_ts"].to_numpy()
    if read is None:
        limits: int | Longs = limit
        if any(begin > limit for begin in begins.values()):
            limits = per_partition(events, lambda where: max(limit, begins.get(where[0], 0)))
        return np.asarray(times < limits)
    offsets = per_partition(events, lambda where: read[where].offset if where in read else 0)
    floors = per_partition(events, lambda where: (read[where].floor or 0) if where in read else 0)
    is_read = events["offset"].to_numpy() < offsets
    is_below = ~events["by_time"].to_numpy(zero_copy_only=False) & (times < floors)
    return np.asarray(is_read | is_below)


def per_partition(events: pa.Table, number: Callable[[PartitionId], int]) -> npt.NDArray[np.int64]:
    """Gives a number for each event by its topic and partition."""
    partitions, numbers = partitions_of(events)
    return np.array([number(where) for where in partitions], dtype=np.int64)[numbers]


def partitions_of(events: pa.Table) -> tuple[list[PartitionId], npt.NDArray[np.int64]]:
    """Gives the topics and partitions of events, and for each event the number of its own."""
    topics, of_topic = distinct(events, ["topic"])
    partitions = events["partition"].to_numpy().astype(np.int64)
    width = partitions.max(initial=0) + 1
    found, numbers = np.unique(of_topic * width + partitions, return_inverse=True)
    return [(topics[one // width][0], one % width) for one in found.tolist()], numbers


class RowGroup(NamedTuple):
    """Row changes of one span with the same columns and the same handle key, both as the messages have them."""

    span: Span
    columns: str
    key: str


def row_groups(plan: LogPlan, changes: pa.Table) -> tuple[list[RowGroup], Longs]:
    """Gives the groups of row changes, and for each row change the number of its group.

    All tables are handled together: to filter the rows of each of 1,000 tables took 20 times as long as all other work.
    """
    kinds, kind_of = distinct(changes, ("schema", "table", "columns", "key"))
    epochs = _epochs(plan, changes)
    numbers = numbered(kind_of * (epochs.max(initial=0) + 1) + epochs)
    groups = []
    for first in ends(numbers)[0].tolist():
        schema, table, columns, key = kinds[kind_of[first]]
        groups.append(RowGroup(plan.history(TableName(schema, table)).spans[epochs[first]], columns, key or ""))
    return groups, numbers


def _epochs(plan: LogPlan, changes: pa.Table) -> Longs:
    """Gives for each row change the number of its span in the history of its table's name."""
    names, name_of = distinct(changes, ("schema", "table"))
    cuts = [plan.history(TableName(*name)).cuts for name in names]
    epochs = np.zeros(changes.num_rows, np.int64)
    if not any(cuts):
        return epochs
    order = np.argsort(name_of, kind="stable")
    sorted_changes = changes.select(_WHEN).take(pa.array(order))
    bounds = [0, *np.cumsum(np.bincount(name_of)).tolist()]
    for (start, end), mine in zip(pairwise(bounds), cuts, strict=True):
        of_name = sorted_changes.slice(start, end - start)
        for cut in mine:
            epochs[order[start:end]] += _is_behind(cut, of_name)
    return epochs


def _is_behind(cut: Cut, changes: pa.Table) -> npt.NDArray[np.int64]:
    later = cut.moment.is_before(changes).astype(np.int64)
    if not cut.offsets:
        return later
    offsets = per_partition(changes, lambda where: cut.offsets.get(where, -1))
    is_sent_again = (cut.own or cut.moment).is_clearly_after(changes)
    by_offset = ((changes["offset"].to_numpy() > offsets) & ~is_sent_again).astype(np.int64)
    is_known = (offsets >= 0) & changes["by_time"].to_numpy(zero_copy_only=False)
    return np.where(is_known, by_offset, later)
