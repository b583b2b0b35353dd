"""Computes net changes: of a key only the last image counts, since readers see a window only as a whole.

It is pure, over Arrow columns.  The input is row changes in commit order and the target's tables; the result is what
the rows must be afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.errors import AheadOfTargetError, ApplyError, RefusedRowsError
from bridge.events import SEP, Code, Kind
from bridge.model import Table, TableName
from bridge.protocols.values.row_image import split_forms
from bridge.rows.gathering import Longs, distinct, first_and_last, position_of, take_texts
from bridge.rows.grains import facts_of, is_odd, may_decide, why_by_transaction
from bridge.rows.key_spellings import expected_keys, folded_keys
from bridge.rows.key_steps import (
    RowShape,
    ShapedRows,
    Steps,
    freed,
    refuse_meeting_shards,
    refuse_parts_of_keyless,
    require_key,
)
from bridge.rows.literal_offsets import TEXT
from bridge.rows.sql.statement import PLAIN, Rendering
from bridge.rows.type_check import check_needs
from bridge.tso import tso_ms

_NO_KEYS: Final = pa.array([], TEXT)
_PART_FIX: Final = (
    "the target differs from the upstream, or messages came out of order; copy the row anew, or quarantine such rows"
    " with --on-bad-message quarantine"
)


@dataclass(frozen=True)
class WrittenRows:
    """Rows as they must be afterwards; all have the same columns.

    images, freed: literals joined by SEP.  A freed row is deleted before it is written, since it may hold unique values
    that other rows need now.
    """

    columns: str
    images: pa.Array
    freed: pa.Array


@dataclass(frozen=True)
class KeyedChanges:
    """Net changes of a table with a key.

    key: lower-case column names.  absent: keys that must have no row.
    expected: keys that a row of the target must have as they are spelled, if it is there (`key_spellings`).
    """

    table: Table
    key: tuple[str, ...]
    absent: pa.Array
    written: tuple[WrittenRows, ...]
    expected: pa.Array = field(default_factory=lambda: _NO_KEYS)


class Image(NamedTuple):
    """A row of a table without a key: names and literals joined by SEP."""

    columns: str
    literals: str


@dataclass(frozen=True)
class KeylessChanges:
    """Net changes of a table without a key: how many copies of each image come (> 0) or go (< 0)."""

    table: Table
    copies: dict[Image, int]


@dataclass(frozen=True)
class OrderedChanges:
    """Row changes of a table that go one upstream transaction after the other (`grains`).

    changes: EVENT_SCHEMA, with ready literals, in order.  why: the reason, in words.
    """

    table: Table
    key: tuple[str, ...]
    changes: pa.Table
    why: str


NetChanges = KeyedChanges | KeylessChanges | OrderedChanges


def choose_key(table: Table, columns: str, key: str) -> tuple[str, ...]:
    """Chooses the key that identifies rows of `table`: the message's handle key where the target has it, otherwise the
    target's primary key, otherwise its first unique key of NOT NULL columns; each only when the message holds all its
    columns.  Gives ``()`` when there is none."""
    present = set(columns.lower().split(SEP))
    message_key = frozenset(key.lower().split(SEP)) if key else frozenset()
    usable = [candidate for candidate in table.keys if present.issuperset(candidate)]
    for candidate in usable:
        if frozenset(candidate) == message_key:
            return candidate
    return usable[0] if usable else ()


def fold(catalog: Mapping[TableName, Table], changes: pa.Table, rendering: Rendering = PLAIN) -> list[NetChanges]:
    """Gives the net changes of each table's row changes (EVENT_SCHEMA), which are in the order (commit_ts, topic,
    partition, offset, index); or the changes themselves, where they go by transaction.

    Raises ApplyError for a change that does not identify its row, or that needs a column
    which the target's table lacks; RefusedRowsError for a change that holds only a part of a row which has no key.
    """
    shapes, shape_of = shapes_of(catalog, changes)
    if not shapes:
        return []
    rows = ShapedRows.of(shapes, shape_of, changes)
    check_needs([(shape.table, shape.names) for shape in shapes], rows.after, shape_of, changes)
    by_table = rows.by_table
    for numbers in by_table.values():
        if len({shapes[number].key for number in numbers}) > 1:
            first_ts = rows.of_shapes(numbers)["commit_ts"][0]
            raise ApplyError(
                "changes of one table name different keys between two schema changes",
                where=f"{shapes[numbers[0]].table.name}, commit ts {first_ts}",
                fix="the target's keys differ from the upstream's: make them equal",
            )
    why = {
        name: reason
        for name, table_facts in facts_of(rows, rendering).items()
        if (reason := why_by_transaction(catalog[name], table_facts, rendering))
    }
    apart = [n for name, numbers in by_table.items() if name in why or not shapes[numbers[0]].key for n in numbers]
    keyed = _Keyed.of(rows, apart)
    return [
        _ordered([shapes[n] for n in numbers], rows.of_shapes(numbers), why[name])
        if name in why
        else keyed.changes(numbers)
        if shapes[numbers[0]].key
        else KeylessChanges(
            shapes[numbers[0]].table,  # it only has new rows
            dict(Counter(map(Image, *(rows.of_shapes(numbers)[n].to_pylist() for n in ("columns", "after"))))),
        )
        for name, numbers in by_table.items()
    ]


def odd_tables(
    catalog: Mapping[TableName, Table], lists: Iterable[tuple[TableName, str, str]], rendering: Rendering
) -> dict[TableName, bool]:
    """Gives the tables whose grain is not known before their changes are, and of each whether messages hold whole rows.

    lists: the column lists of images, with their tables and the keys that messages name.
    """
    shapes = [
        RowShape.of(catalog[n], c, choose_key(catalog[n], c, key))
        for n, columns, key in lists
        for c in [split_forms(columns)[0]]
    ]
    odd = {shape.table.name for shape in shapes if is_odd(shape) or may_decide(rendering, shape.table.name)}
    return {name: not any(shape.lacks for shape in shapes if shape.table.name == name) for name in odd}


def last_of_keys(rows: ShapedRows) -> Longs:
    """Gives the numbers of the row changes that decide about the last state of each key, as `fold` takes them.

    rows: of each change only `kind`, `commit_ts` and `by_time` are read.  None moves a row to another key, and all
    shapes have one.
    """
    steps = Steps.of(rows)
    return steps.row[first_and_last(steps.number)[1]]


def shapes_of(catalog: Mapping[TableName, Table], changes: pa.Table) -> tuple[list[RowShape], Longs]:
    """Gives the shapes of row changes with ready literals, and for each row change the number of its shape.  Raises
    ApplyError as `require_key`."""
    kinds, kind_of = distinct(changes, ("schema", "table", "columns", "key"))
    shapes: list[RowShape] = []
    numbers: dict[tuple[str, str, str, tuple[str, ...]], int] = {}
    number_of = []
    first_of = first_and_last(kind_of)[0]
    for kind, (schema, name, columns, message_key) in enumerate(kinds):
        table = catalog[TableName(schema, name)]
        require_key(table, columns, message_key, changes, first_of[kind])
        key = choose_key(table, columns, message_key)
        number_of.append(numbers.setdefault((schema, name, columns, key), len(shapes)))
        if number_of[-1] == len(shapes):
            shapes.append(RowShape.of(table, columns, key))
    return shapes, np.array(number_of, np.int64)[kind_of]


_IMAGE, _FREED, _ABSENT = range(3)


@dataclass(frozen=True)
class _Keyed:
    """The last states of the keys of all tables.

    images: the images of rows that stay, shape by shape; then those of freed rows, in the same way.
    absent: keys without a row, shape by shape.  bounds: where the shapes begin in all three.
    Within a shape they are in the order of keys.  expected: by table.
    """

    shapes: Sequence[RowShape]
    images: pa.Array
    absent: pa.Array
    bounds: Sequence[int]
    expected: Mapping[TableName, pa.Array]

    @classmethod
    def of(cls, rows: ShapedRows, apart: Sequence[int]) -> _Keyed:
        """Finds the last states.  It leaves out row changes of the shapes in `apart`."""
        if apart:
            is_keyed = ~np.isin(rows.shape_of, apart)
            rows = ShapedRows.of(rows.shapes, rows.shape_of[is_keyed], rows.changes.filter(pa.array(is_keyed)))
        shapes, steps = rows.shapes, Steps.of(rows)
        refuse_meeting_shards(rows, steps)
        first, last = first_and_last(steps.number)
        shape = rows.shape_of[steps.row[last]]
        is_freed = freed(rows, steps.has_old_row[first], steps.row[first], steps.row[last])
        state = np.where(steps.is_image[last], np.where(is_freed, _FREED, _IMAGE), _ABSENT)
        place = (state * len(shapes) + shape).astype(np.min_scalar_type(3 * len(shapes)))  # short integers sort faster
        by_key = _sorted(steps.key.take(pa.array(last)))
        order = by_key[np.argsort(place[by_key], kind="stable")]
        bounds = np.searchsorted(place[order], np.arange(3 * len(shapes) + 1)).tolist()
        stays, goes = order[: bounds[2 * len(shapes)]], order[bounds[2 * len(shapes)] :]
        images = take_texts(rows.after.images, steps.row[last[stays]])
        expected = expected_keys(rows, steps)
        return cls(shapes, images, steps.key.take(pa.array(last[goes])), bounds, expected)

    def changes(self, numbers: Sequence[int]) -> KeyedChanges:
        """Gives the net changes of the table that has these shapes."""
        shape = self.shapes[numbers[0]]
        rows_of_shapes = [
            WrittenRows(self.shapes[number].columns, self._slice(_IMAGE, number), self._slice(_FREED, number))
            for number in numbers
        ]
        absent = [self._slice(_ABSENT, number) for number in numbers]
        rows_by_list = tuple(rows for rows in rows_of_shapes if len(rows.images) or len(rows.freed))
        return KeyedChanges(
            shape.table,
            shape.key,
            absent[0] if len(absent) == 1 else pa.concat_arrays(absent),
            rows_by_list,
            expected=self.expected.get(shape.table.name, _NO_KEYS),
        )

    def _slice(self, state: int, number: int) -> pa.Array:
        place = state * len(self.shapes) + number
        start, end = self.bounds[place], self.bounds[place + 1]
        if state == _ABSENT:
            return self.absent.slice(start - len(self.images), end - start)
        return self.images.slice(start, end - start)


def _sorted(keys: pa.Array) -> Longs:
    """Sorts keys (literals joined by SEP) roughly in the order in which a server keeps its rows, and gives their
    numbers.  A server writes neighbours with a sixth less work than scattered rows (measured on MariaDB 11.4,
    InnoDB)."""
    order: Longs
    try:
        order = np.argsort(keys.cast(pa.int64()).to_numpy())
    except pa.ArrowInvalid:  # texts, or several columns
        order = pc.sort_indices(keys).to_numpy().astype(np.int64)
    return order


def _ordered(shapes: Sequence[RowShape], changes: pa.Table, why: str) -> OrderedChanges:
    """Gives the changes of one table that go by transaction."""
    table, key = shapes[0].table, shapes[0].key
    if not key:
        refuse_parts_of_keyless(table.name, shapes, changes)
        _refuse_lost_rows(table, [shape.columns for shape in shapes if shape.lacks], changes)
    elif changes["text"].null_count < changes.num_rows:
        _refuse_meeting_shards(shapes, changes)
    return OrderedChanges(table, key, changes, why)


def _refuse_meeting_shards(shapes: Sequence[RowShape], changes: pa.Table) -> None:
    """Raises ApplyError where rows of two shards have keys that are one, as far as that is seen without the server."""
    shape_of = {shape.columns: number for number, shape in enumerate(shapes)}
    names, codes = distinct(changes, ("columns",))
    numbers = np.array([shape_of[columns] for (columns,) in names], np.int64)[codes]
    rows = ShapedRows.of(shapes, numbers, changes)
    steps = Steps.of(rows)
    folded = folded_keys(shapes[0].table, shapes[0].key, steps.key).dictionary_encode().indices.to_numpy()
    refuse_meeting_shards(rows, steps._replace(number=folded.astype(np.int64)))


def _refuse_lost_rows(table: Table, incomplete: Sequence[str], changes: pa.Table) -> None:
    """Raises the error of the first change that does not say which row it means.  incomplete: short column lists."""
    kinds = changes["kind"].to_numpy()
    lacks_old_row = changes["before"].is_null().to_numpy() & (kinds != Kind.INSERT)
    if lacks_old_row.any():
        raise ApplyError(
            "a change of a table without a key lacks the old row, so that its row cannot be found",
            where=f"{table.name}, commit ts {changes['commit_ts'][int(np.argmax(lacks_old_row))]}",
            fix="give the table a primary key upstream and on the target, or let its sender send old values",
        )
    is_part = changes["by_time"].to_numpy() & (kinds != Kind.INSERT)
    is_part &= pc.is_in(changes["columns"], pa.array(incomplete, pa.string())).to_numpy()
    if is_part.any():
        raise RefusedRowsError(
            f"a change of {table.name}, which has no key, holds a part of its row, so that its row cannot be found",
            table=table.name,
            code=Code.LOST_VALUE,
            where=f"{position_of(changes, int(np.argmax(is_part)))}, table {table.name}",
            fix=_PART_FIX,
            is_exact=True,
        )


def missing_table(name: TableName, commit_ts: int) -> AheadOfTargetError:
    """Makes the error for rows of a table that the target does not have."""
    return AheadOfTargetError(
        f"the target has no table {name}",
        where=f"commit ts {commit_ts} ({tso_ms(commit_ts)} ms)",
        fix="create it as it is upstream, leave it out with --filter, or begin where it was created (--from)",
        table=name,
    )
