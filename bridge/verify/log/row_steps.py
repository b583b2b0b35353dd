"""Turns row changes into steps of their rows; Spark's executors do this for verify.  Pure, over Arrow.

A row change is one or two steps: a key gets an image, or its row goes away.  The last step of a key is the key's
state.  Rows of tables without a key are counted instead: each image comes or goes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP, Kind
from bridge.protocols.values.untyped import split_forms, with_forms
from bridge.rows.arrow_images import TEXT, joined, parts_of
from bridge.rows.grouping import Longs
from bridge.rows.literal_offsets import Cells, whole
from bridge.rows.types.resolve_types import shapes_typed
from bridge.rows.types.type_check import CheckedTypes
from bridge.verify.log.changes.lineage import Span
from bridge.verify.log.row_groups import LogPlan, ReplicatedTable, RowGroup, in_target, partitions_of, row_groups
from bridge.verify.log.told_columns import known_names, numbered_columns, unread, worded_columns

_IMAGES: Final = ("before", "after")
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
        pa.field("key_number", pa.int32()),
        pa.field("era", pa.int32()),
    ]
)
"""table_number: the index of the table in `LogPlan.tables`; key, image: literals joined by SEP, the image null when the
row goes; names: of the image's columns on the target, joined by SEP.  forms: how often the type or the collation of the
key was changed since (`rekeyed`).  copies: 0 for tables with a key, else how many
copies of the image come (> 0) or go; resent: how many of them the producer sent again.

basis: for an image that holds only a part of its row, the key whose row had the rest just before; null when the image
is whole.  unit: a name for all keys between which such rows move, null for other keys; of a table without a key whose
messages have different columns, the values of those that all have.  lacks: whether the row has values that the log does
not hold: the rest of a row, or what a change of a column's type has made of it.

key_number: which of `ReplicatedTable.keys` the key is of; era: which of them identified the row when it was changed
(`key_eras`)."""


def rekeyed(replicated: ReplicatedTable, span: Span) -> int:
    """Tells how often the type or the collation of the key may have been changed since a span.  Keys that differ in one
    form may be one key in the next."""
    retyped = sum(span.retyped.get(part, 0) for part in replicated.key)
    has_text = bool(retyped) or any(replicated.table.columns[part].charset for part in replicated.key)
    return retyped + (span.converted if has_text else 0)


def steps(plan: LogPlan, events: pa.Table, wanted: Collection[int] | None = None) -> pa.Table:
    """Makes the steps of the row changes.  Rows whose key the messages do not hold are left out.

    wanted: the numbers of the tables whose rows count; None for all.
    """
    return with_units(plan, _steps(plan, events, wanted))


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


class _Alike(NamedTuple):
    """What the row changes of a group have in common.

    number: of the table in the plan.
    key: the names of the columns of the key that identified the rows, () without one.
    unseen_key: the positions of its literals where the target does not have these columns as they were; [] where it
    does.
    width: how many literals their images have.
    kept: the positions of those that the target should hold; names: the columns of these.
    columns: their names with the forms of their values (`untyped`).
    lacks: as of `unread`.
    """

    number: int
    replicated: ReplicatedTable
    span: Span
    key: tuple[str, ...]
    unseen_key: list[int]
    width: int
    kept: list[int]
    names: list[str]
    columns: str
    lacks: bool


def _steps(plan: LogPlan, events: pa.Table, wanted: Collection[int] | None = None) -> pa.Table:
    changes = in_target(plan, events)
    groups, group_of = row_groups(plan, changes)

    def changes_of(number: int) -> pa.Table:
        return changes.filter(pa.array(group_of == number))

    alike = [_alike(plan, group, partial(changes_of, number), wanted) for number, group in enumerate(groups)]
    found = [STEP_SCHEMA.empty_table(), *_keyed_steps(alike, group_of, changes)]
    for number, one in enumerate(alike):
        if one is not None and not one.key:
            found += _copy_steps(plan, one, changes_of(number))
    return pa.concat_tables(found)


def _alike(
    plan: LogPlan, group: RowGroup, changes: Callable[[], pa.Table], wanted: Collection[int] | None
) -> _Alike | None:
    """Gives what a group has in common; None when its rows are not compared: the table is not wanted, the target does
    not have it, or the messages not its key.  changes: gives its row changes."""
    span = group.span
    number = None if span.table is None else plan.number_of(span.table)
    if number is None or (wanted is not None and number not in wanted):
        return None
    replicated = plan.tables[number]
    texts, forms = split_forms(group.columns)
    names = [span.now(name) for name in texts.split(SEP)]
    by_number = numbered_columns(span, changes(), names) if span.retyped else ()
    by_text = worded_columns(span, changes(), names) if span.retyped or span.converted else ()
    kept = known_names(replicated, span.retyped, by_number, by_text, names)
    if replicated.was_keyless:  # rows are counted by their images, whatever the order of columns was
        kept.sort(key=lambda i: names[i] or "")
    kept_names = [names[i] or "" for i in kept]
    key = replicated.keys[replicated.key_number(span)]
    of_era = key and set(key) <= set(kept_names)  # a delete may hold the key of its time alone
    if not (of_era or set(replicated.key) <= set(kept_names)) or not kept:
        return None
    columns = with_forms(SEP.join(kept_names), [forms[i] for i in kept])
    handle = [] if set(key) <= set(kept_names) else [texts.split(SEP).index(name) for name in group.key.split(SEP)]
    lacks = unread(replicated, {*span.retyped, *span.undefaulted, *by_text}, kept_names)
    return _Alike(number, replicated, span, key, handle, len(names), kept, kept_names, columns, lacks)


def with_units(plan: LogPlan, found: pa.Table) -> pa.Table:
    """Gives steps the units of their keys."""
    if not plan.units:
        return found
    keys = zip(found["table_number"].to_pylist(), found["key"].to_pylist(), strict=True)
    units = pc.coalesce(pa.array([plan.units.get(key) for key in keys], TEXT), found["unit"])
    return found.set_column(found.schema.get_field_index("unit"), STEP_SCHEMA.field("unit"), units)


def _typed(alike: Sequence[_Alike], group_of: Longs, changes: pa.Table) -> pa.Table:
    """Gives row changes only the columns that are kept, with ready literals."""
    widths, kept = [one.width for one in alike], [one.kept for one in alike]
    if any(one.kept != list(range(one.width)) for one in alike):
        for image in _IMAGES:
            texts = Cells(whole(changes[image]), group_of, widths).joined(kept)
            changes = changes.set_column(changes.schema.get_field_index(image), image, texts.cast(pa.string()))
    tables = [(one.replicated.table, one.columns) for one in alike]
    return shapes_typed(tables, group_of, changes, CheckedTypes(), [one.span.retyped for one in alike])


def _keyed_steps(alike: Sequence[_Alike | None], group_of: Longs, changes: pa.Table) -> Iterator[pa.Table]:
    """Makes the steps of row changes of tables with a key, of all groups together."""
    mine = [one for one in alike if one is not None and one.key]
    is_mine = np.array([one is not None and bool(one.key) for one in alike], np.bool_)
    if not mine:
        return
    if len(mine) < len(alike):
        changes = changes.filter(pa.array(is_mine[group_of]))
        group_of = (np.cumsum(is_mine) - 1)[group_of[is_mine[group_of]]]
    unseen = _unseen_keys(mine, group_of, changes)
    changes = _typed(mine, group_of, changes)
    positions = [[] if one.unseen_key else [one.names.index(part) for part in one.key] for one in mine]
    widths = [len(one.names) for one in mine]
    images = [whole(changes[image]) for image in _IMAGES]
    old, new = (Cells(image, group_of, widths).joined(positions) for image in images)
    if unseen:
        old, new = (pc.coalesce(one, other) for one, other in zip((old, new), unseen, strict=True))
    zero = pa.repeat(pa.scalar(0, pa.int64()), changes.num_rows)
    basis = _basis(mine, group_of, changes, pc.coalesce(old, new))
    made = _step_table(mine, group_of, changes, pc.coalesce(new, old), images[1], zero, zero, basis)
    yield made.filter(pc.is_valid(made["key"])) if made["key"].null_count else made
    moves = pc.fill_null(pc.not_equal(old, new), False)
    if pc.any(moves).as_py():
        which = moves.to_numpy(zero_copy_only=False)
        moved, zero = changes.filter(moves), zero.filter(moves)
        yield _step_table(mine, group_of[which], moved, old.filter(moves), pa.nulls(len(zero), TEXT), zero, zero)


def _unseen_keys(alike: Sequence[_Alike], group_of: Longs, changes: pa.Table) -> list[pa.Array]:
    """Gives the old and the new keys of the groups with an `unseen_key`; [] without any."""
    positions = [one.unseen_key for one in alike]
    if not any(positions):
        return []
    widths = [one.width for one in alike]
    return [Cells(whole(changes[image]), group_of, widths).joined(positions) for image in _IMAGES]


def _basis(alike: Sequence[_Alike], group_of: Longs, changes: pa.Table, keys: pa.Array) -> pa.Array | None:
    """Gives the key under which the rest of a row is found, where the message holds only a part of it; None when none
    does.

    Only updates without a commit_ts hold parts, as TiCDC sends whole rows.  What an insert lacks, its row never had.
    """
    lacks = np.array([set(one.names) < one.replicated.columns for one in alike])
    if not lacks.any():
        return None
    is_part = pc.and_(pc.equal(changes["kind"], int(Kind.UPDATE)), changes["by_time"])
    is_part = pc.and_(is_part, pc.is_valid(changes["after"])).combine_chunks()
    return pc.if_else(pc.and_(is_part, pa.array(lacks[group_of])), keys, pa.scalar(None, TEXT))


def _copy_steps(plan: LogPlan, one: _Alike, changes: pa.Table) -> Iterator[pa.Table]:
    """Makes the steps of row changes of one group of a table without a key."""
    group_of = np.zeros(changes.num_rows, np.int64)
    changes = _typed([one], group_of, changes)
    resent = pa.array((changes["commit_ts"].to_numpy() < per_partition_offsets(plan, changes)).astype(np.int64))
    common = [i for i, name in enumerate(one.names) if name in one.replicated.common]
    for image, copies in zip(_IMAGES, (-1, 1), strict=True):
        images = whole(changes[image])
        sign = pa.repeat(pa.scalar(copies, pa.int64()), changes.num_rows)
        unit = joined(parts_of(images, common)) if common else pa.repeat(pa.scalar("", TEXT), changes.num_rows)
        unit = unit if one.replicated.columns else None
        made = _step_table([one], group_of, changes, images, images, sign, pc.multiply(resent, copies), unit=unit)
        yield made.filter(pc.is_valid(images))


def per_partition_offsets(plan: LogPlan, changes: pa.Table) -> npt.NDArray[np.int64]:
    """Gives for each change the highest boundary (TSO) that its partition had before it.  A change below that boundary
    has been sent before."""
    floors = np.full(changes.num_rows, -1, dtype=np.int64)
    offsets = changes["offset"].to_numpy()
    partitions, numbers = partitions_of(changes)
    for number, one in enumerate(partitions):
        at, highest = plan.boundaries.get(one, (np.empty(0, np.int64), np.empty(0, np.int64)))
        if len(at) == 0:
            continue
        mine = numbers == number
        before = np.searchsorted(at, offsets[mine], "left") - 1
        floors[mine] = np.where(before >= 0, highest[np.maximum(before, 0)], -1)
    return floors


def _step_table(
    alike: Sequence[_Alike],
    group_of: Longs,
    changes: pa.Table,
    key: pa.Array,
    image: pa.Array,
    copies: pa.Array,
    resent: pa.Array,
    basis: pa.Array | None = None,
    unit: pa.Array | None = None,
) -> pa.Table:
    size, groups = changes.num_rows, pa.array(group_of)
    number, names, may_be_gone, forms, lacks, key_number = (
        pa.array(of_each, STEP_SCHEMA.field(name).type).take(groups)
        for name, of_each in (
            ("table_number", [one.number for one in alike]),
            ("names", [SEP.join(one.names) for one in alike]),
            ("may_be_gone", [one.span.may_be_gone for one in alike]),
            ("forms", [rekeyed(one.replicated, one.span) if one.replicated.key else 0 for one in alike]),
            ("lacks", [one.lacks for one in alike]),
            ("key_number", [one.replicated.key_number(one.span) for one in alike]),
        )
    )
    arrays = [
        number,
        key,
        names,
        image,
        may_be_gone,
        forms,
        *(changes[name].combine_chunks() for name in ("commit_ts", "by_time", "topic", "partition", "offset", "index")),
        copies,
        resent,
        pa.nulls(size, TEXT) if basis is None else basis,
        pa.nulls(size, TEXT) if unit is None else unit,
        lacks,
        key_number,
        key_number,
    ]
    return pa.Table.from_arrays(
        [array.cast(f.type) for array, f in zip(arrays, STEP_SCHEMA, strict=True)], schema=STEP_SCHEMA
    )
