"""Turns row changes of the log into steps of keys: a key gets an image, or its row goes away.  Pure, over Arrow.

Only row changes count that the target should hold, of tables that it has.  Steps are folded to the last state of every
key with the writer's own fold (`rows.net_changes`).  The writer folds window by window; here all steps of some keys are
folded at once, so that the result depends on no window.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import EVENT_SCHEMA, SEP, Kind
from bridge.model import PartitionId, PartitionStart, TableName
from bridge.protocols.values.row_image import split_forms, with_forms
from bridge.rows.gathering import (
    Bools,
    Longs,
    combined,
    distinct,
    divided,
    first_and_last,
    masked,
    numbered,
    partitions_of,
    take_rows,
    whole_texts,
)
from bridge.rows.key_steps import RowShape, ShapedRows, Steps, key_sums
from bridge.rows.literal_offsets import TEXT, Cells, whole
from bridge.rows.moments import are_of_another_server
from bridge.rows.net_changes import last_of_keys
from bridge.rows.resolve_types import shapes_typed
from bridge.rows.type_check import CheckedTypes
from bridge.tso import ms_tso
from bridge.verify.log.coverage import WAITS_MS, Cut, NameKey, TableCoverage
from bridge.verify.log.log_tables import LoggedTable, RowGroup

_IMAGES: Final = ("before", "after")
_WHEN: Final = ("commit_ts", "by_time", "topic", "partition", "offset", "place")
"""The columns that tell whether a row change is behind a schema change."""
_POSITION: Final = ("commit_ts", "by_time", "topic", "partition", "offset", "index")
STEP_SCHEMA: Final = pa.schema(
    [
        pa.field("table_number", pa.int32()),
        pa.field("key", TEXT),
        *(EVENT_SCHEMA.field(name) for name in _POSITION),
        pa.field("image", TEXT),
    ]
)
"""table_number: the index of the table in `LogPlan.tables`; key, image: literals joined by SEP, the image null when the
row of a key goes."""


@dataclass(frozen=True)
class LogPlan:
    """What executors must know to make steps.

    coverage: what the log tells of each name in messages.
    limit: the commit_ts (TSO) from which on nothing is in the target yet.
    read: how far it is in each partition, in the order of partitions; None in the order of commit_ts.
    begins: by topic, the commit_ts (TSO) below which everything is in the target although the limit may be lower.
    """

    tables: tuple[LoggedTable, ...]
    coverage: Mapping[NameKey, TableCoverage]
    limit: int
    read: Mapping[PartitionId, PartitionStart] | None = None
    begins: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def numbers(self) -> Mapping[NameKey, int]:
        """The numbers of the tables; those that the target does not have have none."""
        return {table.table.name.folded: i for i, table in enumerate(self.tables)}


def in_target(plan: LogPlan, events: pa.Table) -> pa.Table:
    """Gives the row changes that the target should hold."""
    is_row = events["kind"].to_numpy() <= int(Kind.DELETE)
    return masked(events, is_row & _are_reached(events, plan))


def _are_reached(events: pa.Table, plan: LogPlan) -> Bools:
    """Tells which events the target has come to."""
    times, read = events["commit_ts"].to_numpy(), plan.read
    if read is None:
        limits = _per_partition(events, lambda where: max(plan.limit, plan.begins.get(where[0], 0)))
        return np.asarray(times < limits)
    offsets = _per_partition(events, lambda where: read[where].offset if where in read else 0)
    floors = _per_partition(events, lambda where: (read[where].floor or 0) if where in read else 0)
    is_read = events["offset"].to_numpy() < offsets
    is_below = ~events["by_time"].to_numpy(zero_copy_only=False) & (times < floors)
    return np.asarray(is_read | is_below)


def _per_partition(events: pa.Table, number: Callable[[PartitionId], int]) -> Longs:
    """Gives a number for each event by its topic and partition."""
    partitions, numbers = partitions_of(events)
    return np.array([number(where) for where in partitions], dtype=np.int64)[numbers]


def row_groups(plan: LogPlan, events: pa.Table) -> set[RowGroup]:
    """Gives the groups of the row changes that the target should hold.  Events need no images."""
    return set(_grouped(plan, in_target(plan, events))[0])


def _grouped(plan: LogPlan, changes: pa.Table) -> tuple[list[RowGroup], Longs]:
    """Gives the groups of row changes, and for each row change the number of its group.

    All tables are handled together: to filter the rows of each of 1,000 tables took 20 times as long as all other work.
    """
    kinds, kind_of = distinct(changes, ("schema", "table", "columns", "key"))
    are_covered, are_unclear = _are_covered(plan, changes)
    numbers = numbered(kind_of * 4 + are_covered * 2 + are_unclear)
    first = first_and_last(numbers)[0]
    is_image = changes["kind"].to_numpy() != int(Kind.DELETE)
    have_images = np.bincount(numbers[is_image], minlength=len(first)).astype(np.bool_)
    groups = []
    of_groups = kind_of[first].tolist(), are_covered[first].tolist(), have_images.tolist(), are_unclear[first].tolist()
    for kind, is_covered, has_images, is_unclear in zip(*of_groups, strict=True):
        schema, table, columns, key = kinds[kind]
        groups.append(RowGroup(TableName(schema, table), is_covered, columns, key or "", has_images, is_unclear))
    return groups, numbers


def _are_covered(plan: LogPlan, changes: pa.Table) -> tuple[Bools, Bools]:
    """Tells which row changes are surely behind the cut of their table, and of which nothing tells that."""
    names, name_of = distinct(changes, ("schema", "table"))
    coverages = [plan.coverage.get(TableName(*name).folded) for name in names]
    cuts = [coverage.cut if coverage else None for coverage in coverages]
    are_covered, are_unclear = np.ones(changes.num_rows, np.bool_), np.zeros(changes.num_rows, np.bool_)
    if not any(cuts):
        return are_covered, are_unclear
    order = np.argsort(name_of, kind="stable")
    sorted_changes = changes.select(_WHEN).take(pa.array(order))
    starts = np.cumsum([0, *np.bincount(name_of)]).tolist()
    for cut, start, end in zip(cuts, starts, starts[1:], strict=False):
        if cut:
            part = sorted_changes.slice(start, end - start)
            are_covered[order[start:end]], are_unclear[order[start:end]] = _are_behind(cut, part)
    return are_covered, are_unclear


def _are_behind(cut: Cut, changes: pa.Table) -> tuple[Bools, Bools]:
    later, are_unclear = np.asarray(cut.moment.is_before(changes), np.bool_), np.zeros(changes.num_rows, np.bool_)
    for place in cut.moment.places:
        are_unclear |= are_of_another_server(changes, cut.moment.ts, place)
    if not cut.offsets:
        return later & ~are_unclear, are_unclear
    offsets = _per_partition(changes, lambda where: cut.offsets.get(where, -1))
    by_offset = (changes["offset"].to_numpy() > offsets) & ~cut.moment.is_clearly_after(changes)
    has_offset = (offsets >= 0) & changes["by_time"].to_numpy(zero_copy_only=False)
    behind = np.asarray(np.where(has_offset, by_offset, later), np.bool_)
    times = changes["commit_ts"].to_numpy()
    may_have_waited = times <= cut.moment.ts + ms_tso(WAITS_MS)
    if cut.is_dated_by_start:
        are_unclear |= ~has_offset & (times >= cut.moment.ts) & may_have_waited
    elif cut.moment.places and not cut.moment.is_by_sending:  # a copy; or the binlog began anew
        are_unclear |= behind & ~later & may_have_waited
    return behind & ~are_unclear, are_unclear


class _GroupShape(NamedTuple):
    """What the row changes of a group have in common.

    number: of the table in the plan.  width: how many literals their images have.
    positions: of those that count, in the order of the table's columns; names: these columns.
    columns: the same with the forms of their values (`row_image`).
    """

    number: int
    table: LoggedTable
    width: int
    positions: list[int]
    names: list[str]
    columns: str


def steps(plan: LogPlan, events: pa.Table, table_numbers: Collection[int] | None = None) -> pa.Table:
    """Makes the steps of the row changes.  Rows whose key the messages do not hold are left out.

    table_numbers: those of the tables whose rows count; None for all.
    """
    changes = in_target(plan, events)
    groups, group_of = _grouped(plan, changes)
    all_shapes = [_group_shape(plan, group, table_numbers) for group in groups]
    is_compared = np.array([shape is not None for shape in all_shapes], np.bool_)
    shapes = [shape for shape in all_shapes if shape is not None]
    if not shapes:
        return STEP_SCHEMA.empty_table()
    shape_of = (np.cumsum(is_compared) - 1)[group_of[is_compared[group_of]]]
    return _key_steps(shapes, shape_of, _typed(shapes, shape_of, masked(changes, is_compared[group_of])))


def _group_shape(plan: LogPlan, group: RowGroup, table_numbers: Collection[int] | None) -> _GroupShape | None:
    """Gives what a group has in common; None when its rows are not compared: they are before the cut, the
    table is not wanted, the target does not have it, or the messages not its key."""
    number = plan.numbers.get(group.table.folded) if group.is_covered else None
    if number is None or (table_numbers is not None and number not in table_numbers):
        return None
    table = plan.tables[number]
    names, forms = group.names(table.table), split_forms(group.columns)[1]
    names_compared = [name for name in table.columns if name in names]
    if not set(table.key) <= set(names_compared):
        return None
    positions = [names.index(name) for name in names_compared]
    columns = with_forms(SEP.join(names_compared), [forms[i] for i in positions])
    return _GroupShape(number, table, len(names), positions, names_compared, columns)


def _typed(shapes: Sequence[_GroupShape], shape_of: Longs, changes: pa.Table) -> pa.Table:
    """Gives row changes only the columns that count, in the table's order, with ready literals."""
    widths, positions = [shape.width for shape in shapes], [shape.positions for shape in shapes]
    if any(shape.positions != list(range(shape.width)) for shape in shapes):
        for image in _IMAGES:
            texts = Cells(whole(changes[image]), shape_of, widths).joined(positions)
            changes = changes.set_column(changes.schema.get_field_index(image), image, texts.cast(pa.string()))
    tables = [(shape.table.table, shape.columns) for shape in shapes]
    return shapes_typed(tables, shape_of, changes, CheckedTypes())


def _key_steps(group_shapes: Sequence[_GroupShape], shape_of: Longs, changes: pa.Table) -> pa.Table:
    """Makes the steps of row changes; a row that moves to another key makes two."""
    shapes = [
        RowShape(group.table.table, SEP.join(group.names), tuple(group.names), group.table.key, lacks=False)
        for group in group_shapes
    ]
    key_steps = Steps.of(ShapedRows.of(shapes, shape_of, changes))
    of_steps = take_rows(changes.select([*_POSITION, "after"]), key_steps.row)
    numbers = np.array([group.number for group in group_shapes], np.int32)[shape_of[key_steps.row]]
    image = pc.if_else(pa.array(key_steps.is_image), whole(of_steps["after"]), pa.scalar(None, TEXT))
    arrays = [numbers, key_steps.key, *(of_steps[name] for name in _POSITION), image]
    return pa.table(dict(zip(STEP_SCHEMA.names, arrays, strict=True)), STEP_SCHEMA)


def last_of_some(tables: Sequence[LoggedTable], steps: pa.Table) -> pa.Table:
    """Gives the last step of each key in each partition, also of its own results; images may be hashes (`hashed`)."""
    numbers = partitions_of(steps)[1]
    parts = [steps.filter(pa.array(numbers == number)) for number in np.unique(numbers)]
    return pa.concat_tables([steps.slice(0, 0), *(take_rows(part, _last(tables, part)) for part in parts)])


def last_steps(tables: Sequence[LoggedTable], steps: pa.Table) -> pa.Table:
    """Gives the last step of each key, of all of whose steps these are, and whether it `is_unsure`.

    That is so where several partitions have steps of the key by event time: it tells when a statement began, mostly in
    whole seconds, and not which one came last.
    """
    last = _last(tables, steps) if steps.num_rows else np.array([], np.int64)
    numbers, partitions = steps["table_number"].to_numpy().astype(np.int64), partitions_of(steps)[1]
    keys = combined(numbers, steps["key"].combine_chunks().dictionary_encode())
    partition_of = np.zeros(keys.max(initial=-1) + 1, np.int64)
    partition_of[keys[last]] = partitions[last]
    is_beside = steps["by_time"].to_numpy() & (partitions != partition_of[keys])
    is_unsure = np.isin(keys[last], keys[is_beside])
    return take_rows(steps, last).append_column("is_unsure", pa.array(is_unsure))


def _last(tables: Sequence[LoggedTable], steps: pa.Table) -> Longs:
    """Folds the keys alone: to the writer's fold, a step is a row change whose image is its key."""
    order = _order(steps)
    shapes = [RowShape(table.table, SEP.join(table.key), table.key, table.key, lacks=False) for table in tables]
    shape_of = steps["table_number"].to_numpy()[order].astype(np.int64)
    widths, keys = [len(table.key) for table in tables], whole(steps["key"])
    goes = pc.is_null(steps["image"]).to_numpy()[order]
    times = {name: steps[name].to_numpy()[order] for name in ("commit_ts", "by_time")}
    changes = pa.table({"kind": np.where(goes, int(Kind.DELETE), int(Kind.INSERT)), **times})
    before, after = (Cells(keys.take(pa.array(order, mask=~mask)), shape_of, widths) for mask in (goes, ~goes))
    return np.sort(order[last_of_keys(ShapedRows(shapes, shape_of, changes, before, after))])


def _order(steps: pa.Table) -> Longs:
    """Gives the order in which the writer folds row changes: that of commit ts; by event time that of the partition."""
    times = np.where(steps["by_time"].to_numpy(), 0, steps["commit_ts"].to_numpy())
    ranks = steps["index"].to_numpy(), steps["offset"].to_numpy(), partitions_of(steps)[1], times
    telling = [rank for rank in ranks if (rank != rank[0]).any()]
    return np.lexsort(telling) if telling else np.arange(steps.num_rows)


def buckets(steps: pa.Table, count: int) -> Iterator[tuple[int, pa.Table]]:
    """Divides steps, which may be hashed, into buckets.  All steps of a key are in one bucket."""
    return divided(steps, (key_sums(whole_texts(steps["key"])) % count).astype(np.min_scalar_type(count)))
