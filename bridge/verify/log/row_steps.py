"""Turns row changes into steps of their rows; Spark's executors do this for verify.  Pure, over Arrow.

A row change is one or two steps: a key gets an image, or its row goes away.  The last step of a key is the key's
state.  Rows of tables without a key are counted instead: each image comes or goes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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
from bridge.verify.log.lineage import Span
from bridge.verify.log.row_groups import LogPlan, ReplicatedTable, RowGroup, in_target, partitions_of, row_groups

_NEVER: Final = (1 << 63) - 1
_IMAGES: Final = ("before", "after")
BINARY: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
"""How the types of columns begin that hold bytes."""
_TIMES: Final = ("date", "time")
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
DROPPED: Final = " "
"""Stands for the present name of a column that was dropped; no column has that name."""


class LoggedShape(NamedTuple):
    """The columns of row changes.  Names are joined by SEP.

    schema, table: the table that holds the rows now.
    columns: the names of the columns there, in message order.
    handle: the names of the handle key's columns; `DROPPED` for those that are gone.
    retyped: columns whose type was changed since.
    numbered: those of them of which some value is a bare number (`numbered_columns`).
    converted: whether the texts of all columns got another character set or collation since.
    overwrites: whether some change of an existing row does not tell the row before, which may have been the row of
    another spelling of its key.  Only known where a type or a key was changed since, or texts were converted.
    first: the lowest commit_ts of any change.
    in_place: the highest commit_ts among changes that go by event time and change an existing row, so that the columns
    which they lack kept their values; -1 when there is none.
    altered, converted_ever: as of the span.
    hides_updates: whether inserts may be updates that do not tell the row before: the format has no other sign of an
    update, and no message of the group has the row before.
    undefaulted: as of the span.
    updates: whether some change is an update; only_deletes: whether all of them are deletes.
    worded: columns that were changed since, and of which some value is a text (`worded_columns`).
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
    altered: int = 0
    converted_ever: int = 0
    hides_updates: bool = False
    undefaulted: str = ""
    updates: bool = False
    worded: str = ""
    only_deletes: bool = False


def shapes(plan: LogPlan, events: pa.Table) -> set[LoggedShape]:
    """Gives the shapes of the row changes that the target should hold.  Events need their images only if
    `plan.has_retyped`."""
    changes = in_target(plan, events)
    groups, group_of = row_groups(plan, changes)
    times = changes["commit_ts"].to_numpy()
    is_in_place = pc.and_(changes["by_time"], pc.not_equal(changes["kind"], int(Kind.INSERT)))
    firsts, in_place = np.full(len(groups), _NEVER), np.full(len(groups), -1)
    np.minimum.at(firsts, group_of, times)
    np.maximum.at(in_place, group_of, np.where(is_in_place.to_numpy(), times, -1))
    is_update = pc.equal(changes["kind"], int(Kind.UPDATE)).to_numpy()
    updates = np.bincount(group_of[is_update], minlength=len(groups))
    others = np.bincount(group_of[pc.not_equal(changes["kind"], int(Kind.DELETE)).to_numpy()], minlength=len(groups))
    found: set[LoggedShape] = set()
    for number, (group, first, last) in enumerate(zip(groups, firsts.tolist(), in_place.tolist(), strict=True)):
        span = group.span
        if span.table is None:
            continue
        names = [span.now(name) for name in split_forms(group.columns)[0].split(SEP)]
        handle = [span.now(name) or DROPPED for name in group.key.split(SEP) if name]
        by_value = (
            changes.filter(pa.array(group_of == number)) if span.retyped or span.converted or span.altered else None
        )
        told = () if by_value is None else numbered_columns(span, by_value, names)
        some_names = names, handle, sorted(span.retyped), sorted(told)
        columns, key, retyped, by_number = (SEP.join(name for name in some if name) for some in some_names)
        since = bool(span.converted), by_value is not None and _overwrites(by_value)
        hides_updates = plan.hides_updates and by_value is not None and not _tells_rows_before(by_value)
        of_names, changed = (columns, key, retyped, by_number), (span.altered, span.converted_ever)
        undefaulted = SEP.join(sorted(span.undefaulted))
        worded = "" if by_value is None else SEP.join(sorted(worded_columns(span, by_value, names)))
        more = undefaulted, bool(updates[number]), worded, not others[number]
        found.add(LoggedShape(*span.table, *of_names, *since, first, last, *changed, hides_updates, *more))
    return found


def _overwrites(changes: pa.Table) -> bool:
    is_update = pc.equal(changes["kind"], int(Kind.UPDATE))
    return bool(pc.any(pc.and_(is_update, pc.is_null(changes["before"]))).as_py())


def _tells_rows_before(changes: pa.Table) -> bool:
    return bool(pc.any(pc.and_(pc.is_valid(changes["before"]), pc.is_valid(changes["after"]))).as_py())


def rekeyed(replicated: ReplicatedTable, span: Span) -> int:
    """Tells how often the type or the collation of the key may have been changed since a span.  Keys that differ in one
    form may be one key in the next."""
    retyped = sum(span.retyped.get(part, 0) for part in replicated.key)
    has_text = bool(retyped) or any(replicated.table.columns[part].charset for part in replicated.key)
    return retyped + (span.converted if has_text else 0)


def numbered_columns(span: Span, changes: pa.Table, names: Sequence[str | None]) -> set[str]:
    """Finds the columns whose type was changed since, and of which some value is a bare number: it may stand for a name
    of an ENUM or a SET as it was then.  changes: all with these columns."""
    return _with_values(changes, names, span.retyped, "^[0-9]")


def worded_columns(span: Span, changes: pa.Table, names: Sequence[str | None]) -> set[str]:
    """Finds the columns that were changed since, by their type or with the character set of all texts, and of which
    some value is a text: its bytes are those of the character set that the column had then.  changes: as above."""
    return _with_values(changes, names, {*filter(None, names)} if span.converted else span.retyped, "^'")


def _with_values(changes: pa.Table, names: Sequence[str | None], among: Collection[str], pattern: str) -> set[str]:
    """Finds the columns among some of which any value is like a pattern."""
    positions = [i for i, name in enumerate(names) if name in among]
    if not positions:
        return set()
    images = [parts_of(whole(changes[image]), positions) for image in _IMAGES]
    are_like = [
        any(pc.any(pc.match_substring_regex(values, pattern)).as_py() for values in both)
        for both in zip(*images, strict=True)
    ]
    return {names[i] or "" for i, is_like in zip(positions, are_like, strict=True) if is_like}


def known_names(
    replicated: ReplicatedTable,
    retyped: Collection[str],
    by_number: Collection[str],
    by_text: Collection[str],
    names: Sequence[str | None],
) -> list[int]:
    """Gives the positions of the columns whose values the target should hold: columns that it has and does not
    generate, and whose type was not changed since, unless they are in the key.  Of generated columns it should hold
    those of the key, which tell its rows apart, while no type was changed of which they may be computed.  by_number:
    columns as of `numbered_columns`, whose numbers mean nothing to a column of texts, bytes, ENUM or SET.  by_text:
    columns as of `worded_columns`, whose texts do not tell the bytes that a binary column has made of them, nor whether
    a time is a local one now, which was a moment."""
    columns = replicated.table.columns
    may_differ = not columns.keys().isdisjoint(retyped)

    def may_be_local_times(name: str) -> bool:
        return name in retyped and not replicated.is_utc and columns[name].type.startswith(_TIMES)

    def has_value(name: str) -> bool:
        if columns[name].generated:
            return name in replicated.key and not may_differ
        is_binary = columns[name].type.startswith(BINARY)
        if name in by_text and (is_binary or may_be_local_times(name)):
            return False
        if name not in retyped:
            return True
        return name in replicated.key and not (name in by_number and (is_binary or columns[name].charset))

    return [i for i, name in enumerate(names) if name is not None and name in columns and has_value(name)]


def unread(replicated: ReplicatedTable, untold: Iterable[str], known: Collection[str]) -> bool:
    """Tells whether rows have values that the messages do not tell.

    untold: columns whose type, or the bytes of whose texts, were changed since, or that rows got since with a value
    which a new row does not get;
    known: those with values that the target should hold.
    """
    columns = replicated.table.columns
    return any(name in columns and not columns[name].generated and name not in known for name in untold)


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
    return shapes_typed(tables, group_of, changes, CheckedTypes())


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
