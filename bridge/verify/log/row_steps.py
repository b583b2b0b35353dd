"""Turns row changes into steps of their rows; Spark's executors do this for verify.  Pure, over Arrow.

A row change is one or two steps: a key gets an image, or its row goes away.  The last step of a key is the key's
state.  Rows of tables without a key are counted instead: each image comes or goes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP, Kind
from bridge.model import PartitionId, PartitionStart, Table, TableName
from bridge.protocols.values.untyped import split_forms, with_forms
from bridge.rows.arrow_images import TEXT, joined, parts_of
from bridge.rows.grouping import distinct
from bridge.rows.literal_offsets import Cells, whole
from bridge.rows.order_and_slices import by_table
from bridge.rows.types.resolve_types import typed
from bridge.rows.types.type_check import CheckedTypes
from bridge.verify.log.lineage import Cut, NameHistory, NameIdentity, Span

STEP_SCHEMA: Final = pa.schema(
    [
        pa.field("table_number", pa.int32()),
        pa.field("key", TEXT),
        pa.field("names", pa.string()),
        pa.field("image", TEXT),
        pa.field("may_be_gone", pa.bool_()),
        pa.field("forms", pa.int32()),
        pa.field("commit_ts", pa.int64()),
        pa.field("by_time", pa.bool_()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("index", pa.int32()),
        pa.field("copies", pa.int64()),
        pa.field("resent", pa.int64()),
        pa.field("basis", TEXT),
        pa.field("unit", TEXT),
        pa.field("lacks", pa.bool_()),
    ]
)
"""table_number: the index of the table in `LogPlan.tables`; key, image: literals joined by SEP, the image null when the
row goes; names: of the image's columns on the target, joined by SEP.  forms: how often the type or the collation of the
key was changed since (`rekeyed`).  copies: 0 for tables with a key, else how many
copies of the image come (> 0) or go; resent: how many of them the producer sent again.

basis: for an image that holds only a part of its row, the key whose row had the rest just before; null when the image
is whole.  unit: a name for all keys between which such rows move, null for other keys; of a table without a key whose
messages have different columns, the values of those that all have.  lacks: whether the log does not
hold the rest of the row."""


@dataclass(frozen=True)
class ReplicatedTable:
    """A table of the target.

    key: lower-case names, () without a key.
    columns: the columns that any message has; empty unless some messages have more columns than others.
    common: the columns that every message has.
    """

    table: Table
    key: tuple[str, ...]
    columns: frozenset[str] = frozenset()
    common: frozenset[str] = frozenset()


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
    """

    tables: tuple[ReplicatedTable, ...]
    histories: Mapping[tuple[str, str], NameHistory]
    limit: int
    read: Mapping[PartitionId, PartitionStart] | None
    boundaries: Mapping[PartitionId, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = field(default_factory=dict)
    units: Mapping[tuple[int, str], str] = field(default_factory=dict)
    begins: Mapping[str, int] = field(default_factory=dict)
    identity: NameIdentity = field(default_factory=NameIdentity)

    @property
    def has_retyped(self) -> bool:
        """Whether the type of some column was changed, so that shapes depend on values."""
        return any(span.retyped or span.converted for history in self.histories.values() for span in history.spans)

    def number_of(self, name: TableName) -> int | None:
        """Gives the number of a table, None when the target does not have it."""
        return self._numbers.get(self.identity.key_of(name))

    @cached_property
    def _numbers(self) -> Mapping[tuple[str, str], int]:
        """The number of each table by its key."""
        return {self.identity.key_of(replicated.table.name): i for i, replicated in enumerate(self.tables)}


def in_target(plan: LogPlan, events: pa.Table) -> pa.Table:
    """Gives the row changes that the target should hold."""
    is_row = pc.less_equal(events["kind"], int(Kind.DELETE))
    if plan.read is None:
        limits = pa.scalar(plan.limit, pa.int64())
        if any(begin > plan.limit for begin in plan.begins.values()):
            limits = pa.array(per_partition(events, lambda where: max(plan.limit, plan.begins.get(where[0], 0))))
        return events.filter(pc.and_(is_row, pc.less(events["commit_ts"], limits)))
    starts = plan.read
    offsets = per_partition(events, lambda where: starts[where].offset if where in starts else 0)
    floors = per_partition(events, lambda where: (starts[where].floor or 0) if where in starts else 0)
    is_read = pc.less(events["offset"], pa.array(offsets))
    is_below = pc.and_(pc.invert(events["by_time"]), pc.less(events["commit_ts"], pa.array(floors)))
    return events.filter(pc.and_(is_row, pc.or_(is_read, is_below)))


def per_partition(events: pa.Table, number: Callable[[PartitionId], int]) -> npt.NDArray[np.int64]:
    """Gives a number for each event by its topic and partition."""
    partitions, numbers = _partitions(events)
    return np.array([number(where) for where in partitions], dtype=np.int64)[numbers]


def _partitions(events: pa.Table) -> tuple[list[PartitionId], npt.NDArray[np.int64]]:
    """Gives the topics and partitions of events, and for each event the number of its own."""
    topics, of_topic = distinct(events, ["topic"])
    partitions = events["partition"].to_numpy().astype(np.int64)
    width = partitions.max(initial=0) + 1
    found, numbers = np.unique(of_topic * width + partitions, return_inverse=True)
    return [(topics[one // width][0], one % width) for one in found.tolist()], numbers


def spans_of(plan: LogPlan, events: pa.Table) -> Iterator[tuple[Span, pa.Table]]:
    """Divides row changes by the span that they belong to."""
    for name, changes in by_table(events).items():
        history = plan.histories.get(plan.identity.key_of(name)) or NameHistory([], [Span(name)])
        if not history.cuts:
            yield history.spans[0], changes
            continue
        epochs = sum((_is_behind(cut, changes) for cut in history.cuts), np.zeros(changes.num_rows, np.int64))
        for i, span in enumerate(history.spans):
            mine = epochs == i
            if mine.any():
                yield span, changes.filter(pa.array(mine))


def _is_behind(cut: Cut, changes: pa.Table) -> npt.NDArray[np.int64]:
    later = cut.moment.is_before(changes).astype(np.int64)
    if not cut.offsets:
        return later
    offsets = per_partition(changes, lambda where: cut.offsets.get(where, -1))
    by_offset = (changes["offset"].to_numpy() > offsets).astype(np.int64)
    is_known = (offsets >= 0) & changes["by_time"].to_numpy(zero_copy_only=False)
    return np.where(is_known, by_offset, later)


class LoggedShape(NamedTuple):
    """The columns of row changes.  Names are joined by SEP.

    schema, table: the table that holds the rows now.
    columns: the names of the columns there, in message order.
    handle: the names of the handle key's columns.
    retyped: columns whose type was changed since.
    numbered: those of them of which some value is a bare number (`numbered`).
    converted: whether the texts of all columns got another character set or collation since.
    overwrites: whether some change of an existing row does not tell the row before, which may have been the row of
    another spelling of its key.  Only known where a type was changed since, or texts were converted.
    first: the lowest commit_ts of any change.
    in_place: the highest commit_ts among changes that go by event time and change an existing row, so that the columns
    which they lack kept their values; -1 when there is none.
    """

    schema: str
    table: str
    columns: str
    handle: str
    retyped: str
    numbered: str
    converted: bool
    overwrites: bool
    first: int
    in_place: int


def shapes(plan: LogPlan, events: pa.Table) -> set[LoggedShape]:
    """Gives the shapes of the row changes that the target should hold.  Events need their images only if
    `plan.has_retyped`."""
    found: set[LoggedShape] = set()
    for span, changes in spans_of(plan, in_target(plan, events)):
        if span.table is None:
            continue
        is_in_place = pc.and_(changes["by_time"], pc.not_equal(changes["kind"], int(Kind.INSERT)))
        in_place = pc.if_else(is_in_place, changes["commit_ts"], -1)
        told = changes.select(["columns", "key", "commit_ts"]).append_column("in_place", in_place)
        for shape in (
            told.group_by(["columns", "key"]).aggregate([("commit_ts", "min"), ("in_place", "max")]).to_pylist()
        ):
            names = [span.now(name) for name in split_forms(shape["columns"])[0].split(SEP)]
            handle = [span.now(name) for name in (shape["key"] or "").split(SEP)]
            mine = changes.filter(pc.equal(changes["columns"], shape["columns"])) if span.retyped else changes
            of_names = names, handle, sorted(span.retyped), sorted(numbered(span, mine, names))
            columns, key, retyped, by_number = (SEP.join(name for name in some if name) for some in of_names)
            since = bool(span.converted), bool(span.retyped or span.converted) and _overwrites(changes)
            times = shape["commit_ts_min"], shape["in_place_max"]
            found.add(LoggedShape(*span.table, columns, key, retyped, by_number, *since, *times))
    return found


def _overwrites(changes: pa.Table) -> bool:
    is_update = pc.equal(changes["kind"], int(Kind.UPDATE))
    return bool(pc.any(pc.and_(is_update, pc.is_null(changes["before"]))).as_py())


def rekeyed(replicated: ReplicatedTable, span: Span) -> int:
    """Tells how often the type or the collation of the key may have been changed since a span.  Keys that differ in one
    form may be one key in the next."""
    retyped = sum(span.retyped.get(part, 0) for part in replicated.key)
    has_text = bool(retyped) or any(replicated.table.columns[part].charset for part in replicated.key)
    return retyped + (span.converted if has_text else 0)


def numbered(span: Span, changes: pa.Table, names: Sequence[str | None]) -> set[str]:
    """Finds the columns whose type was changed since, and of which some value is a bare number: it may stand for a name
    of an ENUM or a SET as it was then.  changes: all with these columns."""
    positions = [i for i, name in enumerate(names) if name in span.retyped]
    if not positions:
        return set()
    images = [parts_of(whole(changes[image]), positions) for image in ("before", "after")]
    are_numbers = [
        any(pc.any(pc.match_substring_regex(values, "^[0-9]")).as_py() for values in both)
        for both in zip(*images, strict=True)
    ]
    return {names[i] or "" for i, is_number in zip(positions, are_numbers, strict=True) if is_number}


def known_names(
    replicated: ReplicatedTable, retyped: Collection[str], by_number: Collection[str], names: Sequence[str | None]
) -> list[int]:
    """Gives the positions of the columns whose values the target should hold: columns that it has and does not
    generate, and whose type was not changed since, unless they are in the key.  by_number: columns as of `numbered`,
    whose numbers mean nothing to a column of texts, ENUM or SET."""
    columns = replicated.table.columns

    def has_value(name: str) -> bool:
        if name not in retyped:
            return True
        return name in replicated.key and not (name in by_number and columns[name].charset)

    return [
        i
        for i, name in enumerate(names)
        if name is not None and name in columns and not columns[name].generated and has_value(name)
    ]


def steps(plan: LogPlan, events: pa.Table) -> pa.Table:
    """Makes the steps of the row changes.  Rows whose key the messages do not hold are left out."""
    return _with_units(plan, _steps(plan, events))


def links(plan: LogPlan, events: pa.Table) -> set[tuple[tuple[int, str], tuple[int, str]]]:
    """Gives the pairs of keys, each with its table number, between which a row moves whose message holds only a part of
    it."""
    if not any(replicated.columns for replicated in plan.tables):
        return set()
    parts = pc.and_(pc.equal(events["kind"], int(Kind.UPDATE)), events["by_time"])
    found = _steps(plan, events.filter(parts))
    found = found.filter(pc.fill_null(pc.not_equal(found["basis"], found["key"]), False))
    tables, olds, news = (found[name].to_pylist() for name in ("table_number", "basis", "key"))
    return {((table, old), (table, new)) for table, old, new in zip(tables, olds, news, strict=True)}


def _steps(plan: LogPlan, events: pa.Table) -> pa.Table:
    found, checked = [STEP_SCHEMA.empty_table()], CheckedTypes()
    for span, changes in spans_of(plan, in_target(plan, events)):
        number = None if span.table is None else plan.number_of(span.table)
        if number is None:
            continue
        shapes_found = pc.unique(changes["columns"]).to_pylist()
        for shape in shapes_found:
            mine = changes.filter(pc.equal(changes["columns"], shape)) if len(shapes_found) > 1 else changes
            found += _steps_of_shape(plan, number, span, mine, checked)
    return pa.concat_tables(found)


def _with_units(plan: LogPlan, found: pa.Table) -> pa.Table:
    if not plan.units:
        return found
    keys = zip(found["table_number"].to_pylist(), found["key"].to_pylist(), strict=True)
    units = pc.coalesce(pa.array([plan.units.get(key) for key in keys], TEXT), found["unit"])
    return found.set_column(found.schema.get_field_index("unit"), STEP_SCHEMA.field("unit"), units)


def _steps_of_shape(
    plan: LogPlan, number: int, span: Span, changes: pa.Table, checked: CheckedTypes
) -> Iterator[pa.Table]:
    replicated = plan.tables[number]
    texts, forms = split_forms(changes["columns"][0].as_py())
    names = [span.now(name) for name in texts.split(SEP)]
    kept = known_names(replicated, span.retyped, numbered(span, changes, names), names)
    if not replicated.key:  # rows are counted by their images, whatever the order of columns was
        kept.sort(key=lambda i: names[i] or "")
    kept_names = [names[i] or "" for i in kept]
    if not set(replicated.key) <= set(kept_names) or not kept:
        return
    columns = with_forms(SEP.join(kept_names), [forms[i] for i in kept])
    for at, values in (
        ("columns", pa.repeat(columns, changes.num_rows)),
        ("before", _kept(changes["before"], kept, len(names))),
        ("after", _kept(changes["after"], kept, len(names))),
    ):
        changes = changes.set_column(changes.schema.get_field_index(at), at, values.cast(pa.string()))
    changes = typed(replicated.table, changes, checked)
    make = _keyed_steps if replicated.key else _copy_steps
    yield from make(plan, number, span, changes, kept_names)


def _kept(images: pa.ChunkedArray, positions: list[int], count: int) -> pa.Array:
    texts = whole(images)
    return texts if positions == list(range(count)) else joined(parts_of(texts, positions))


def _keyed_steps(plan: LogPlan, number: int, span: Span, changes: pa.Table, names: list[str]) -> Iterator[pa.Table]:
    positions = [names.index(part) for part in plan.tables[number].key]
    before, after = (whole(changes[image]) for image in ("before", "after"))
    old, new = (_literals(images, positions, len(names)) for images in (before, after))
    zero = pa.repeat(pa.scalar(0, pa.int64()), changes.num_rows)
    joined_names, forms = SEP.join(names), rekeyed(plan.tables[number], span)
    basis = _basis(changes, pc.coalesce(old, new)) if set(names) < plan.tables[number].columns else None
    made = _step_table(
        number, span, changes, pc.coalesce(new, old), joined_names, after, zero, zero, basis, forms=forms
    )
    yield made.filter(pc.is_valid(made["key"])) if made["key"].null_count else made
    moves = pc.fill_null(pc.not_equal(old, new), False)
    if pc.any(moves).as_py():
        nothing = pa.nulls(changes.num_rows, TEXT)
        moved = _step_table(number, span, changes, old, joined_names, nothing, zero, zero, forms=forms)
        yield moved.filter(moves)


def _literals(images: pa.Array, positions: list[int], count: int) -> pa.Array:
    """Gives the literals at these positions, joined by SEP.  count: of the literals of an image."""
    return Cells(images, np.zeros(len(images), np.int64), [count]).joined([positions])


def _basis(changes: pa.Table, keys: pa.Array) -> pa.Array:
    """Gives the key under which the rest of a row is found, where the message holds only a part of it.

    Only updates without a commit_ts hold parts, as TiCDC sends whole rows.  What an insert lacks, its row never had.
    """
    is_part = pc.and_(pc.equal(changes["kind"], int(Kind.UPDATE)), changes["by_time"])
    is_part = pc.and_(is_part, pc.is_valid(changes["after"])).combine_chunks()
    return pc.if_else(is_part, keys, pa.scalar(None, TEXT))


def _copy_steps(plan: LogPlan, number: int, span: Span, changes: pa.Table, names: list[str]) -> Iterator[pa.Table]:
    floors = per_partition_offsets(plan, changes)
    resent = pa.array((changes["commit_ts"].to_numpy() < floors).astype(np.int64))
    joined_names = SEP.join(names)
    replicated = plan.tables[number]
    common = [i for i, name in enumerate(names) if name in replicated.common]
    for image, copies in (("before", -1), ("after", 1)):
        images = whole(changes[image])
        one = pa.repeat(pa.scalar(copies, pa.int64()), changes.num_rows)
        unit = joined(parts_of(images, common)) if common else pa.repeat(pa.scalar("", TEXT), changes.num_rows)
        made = _step_table(
            number,
            span,
            changes,
            images,
            joined_names,
            images,
            one,
            pc.multiply(resent, copies),
            unit=unit if replicated.columns else None,
        )
        yield made.filter(pc.is_valid(images))


def per_partition_offsets(plan: LogPlan, changes: pa.Table) -> npt.NDArray[np.int64]:
    """Gives for each change the highest boundary (TSO) that its partition had before it.  A change below that boundary
    has been sent before."""
    floors = np.full(changes.num_rows, -1, dtype=np.int64)
    offsets = changes["offset"].to_numpy()
    partitions, numbers = _partitions(changes)
    for number, one in enumerate(partitions):
        at, highest = plan.boundaries.get(one, (np.empty(0, np.int64), np.empty(0, np.int64)))
        if len(at) == 0:
            continue
        mine = numbers == number
        before = np.searchsorted(at, offsets[mine], "left") - 1
        floors[mine] = np.where(before >= 0, highest[np.maximum(before, 0)], -1)
    return floors


def _step_table(
    number: int,
    span: Span,
    changes: pa.Table,
    key: pa.Array,
    names: str,
    image: pa.Array,
    copies: pa.Array,
    resent: pa.Array,
    basis: pa.Array | None = None,
    unit: pa.Array | None = None,
    forms: int = 0,
) -> pa.Table:
    size = changes.num_rows
    position = [
        changes[name].combine_chunks() for name in ("commit_ts", "by_time", "topic", "partition", "offset", "index")
    ]
    arrays = [
        pa.repeat(pa.scalar(number, pa.int32()), size),
        key,
        pa.repeat(names, size),
        image,
        pa.repeat(span.may_be_gone, size),
        pa.repeat(pa.scalar(forms, pa.int32()), size),
        *position,
        copies,
        resent,
        pa.nulls(size, TEXT) if basis is None else basis,
        pa.nulls(size, TEXT) if unit is None else unit,
        pa.repeat(False, size),
    ]
    return pa.Table.from_arrays(
        [array.cast(f.type) for array, f in zip(arrays, STEP_SCHEMA, strict=True)], schema=STEP_SCHEMA
    )
