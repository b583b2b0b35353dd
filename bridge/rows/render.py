"""Net changes to SQL.  Pure: the same statements on an executor and on the driver.

Order within a target transaction (internals, decision 4): values of target-only columns that a delete would lose are
kept aside, deleted keys and keys whose other unique values change are deleted, then rows are written, then the kept
values are put back.  With every unique value in play freed first, a write can conflict on its own key only.

Of a row that the messages hold a part of, that part goes to a scratch table with the columns' own types.  A row that
stays is updated from there; one that is deleted and written anew is made whole in a second one before it goes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Generator, Iterator
from dataclasses import dataclass, replace
from enum import Enum, IntEnum, auto
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bridge.errors import ApplyError
from bridge.events import SEP
from bridge.model import Column, Table, TableName
from bridge.quoting import quote_name
from bridge.rows.arrow_images import TEXT, groups, joined, parts_of, runs, wrapped
from bridge.rows.key_spellings import SameKeys, asks_nobody, is_exact, is_nearly_exact
from bridge.rows.load_format import MIN_BYTES, Load, load_of, load_statement, may_load, readable
from bridge.rows.net_changes import (
    Image,
    KeyedChanges,
    KeylessChanges,
    NetChanges,
    PatchedRows,
    WrittenRows,
    other_uniques,
)

STATEMENT_BYTES = 512 * 1024
"""Statements are cut at about this many characters: beyond it MariaDB gains nothing (measured)."""
KEYS_PER_DELETE = 2000


class Stage(IntEnum):
    """When a statement runs within its transaction."""

    KEEP = 0
    DELETE = 1
    WRITE = 2
    RESTORE = 3


class Sharing(Enum):
    """How a statement may be run beside others of its transaction, by several connections."""

    ANY = auto()
    """By any connection, before or after the others: it touches keys that no other touches."""
    TABLE = auto()
    """By one connection with the others of its table, in their order."""
    ONCE = auto()
    """Only in the transaction that moves progress: run again, it would do something else."""


class Statement(NamedTuple):
    """One statement; `expect` is the number of rows it must match, None when any number is right; `is_part`: they are
    rows of which the messages hold a part; `load`: the rows of a LOAD DATA."""

    stage: Stage
    table: TableName
    sql: str
    expect: int | None = None
    sharing: Sharing = Sharing.ONCE
    load: Load | None = None
    is_part: bool = False

    @property
    def size(self) -> int:
        """About how many bytes are sent."""
        return len(self.sql) + (self.load.body.size if self.load else 0)


@dataclass(frozen=True)
class Rendering:
    """How to render: `scratch_schema` holds temporary tables, `safe_mode` deletes rows that hold any unique value
    about to be written first (for a target that is ahead of the log); where LOAD DATA does the same as INSERT, rows
    are sent by it, about `load_bytes` at a time (0: never).

    piece: of several that are rendered apart and run by one session; `same_keys` asks the server."""

    scratch_schema: str
    safe_mode: bool = False
    load_bytes: int = 0
    piece: int = 0
    same_keys: SameKeys = asks_nobody


def render(net: NetChanges, rendering: Rendering) -> Iterator[Statement]:
    """The statements of one table's net changes, in order of stage, made when they are asked for.

    Raises ApplyError when the target lacks a column of the messages.
    """
    if isinstance(net, KeylessChanges):
        return _render_keyless(net)
    if rendering.safe_mode and net.patched:
        net = replace(net, patched=tuple(rows._replace(moves=True) for rows in net.patched))
    sharing = _sharing(net, rendering)
    return (statement._replace(sharing=sharing) for statement in _render_keyed(net, rendering))


def _sharing(net: KeyedChanges, rendering: Rendering) -> Sharing:
    """What a row held before it is deleted and written anew can be read once only, and a row of which a change holds a
    part must be there when the change is made again, perhaps in a smaller step; keys that are equal to the server in
    more ways than can be told must not meet on two connections."""
    if net.loses or any(rows.moves for rows in net.patched):
        return Sharing.ONCE
    goes_and_comes = len(net.absent) and (net.written or net.patched)
    meets = goes_and_comes and not is_nearly_exact(net.table, net.key)
    is_table = other_uniques(net.table, net.key) or rendering.safe_mode or net.patched or net.renews or meets
    return Sharing.TABLE if is_table else Sharing.ANY


class _Shape(NamedTuple):
    """How images of one column list are written: target names and positions of what is written."""

    names: tuple[str, ...]
    positions: tuple[int, ...] | None
    """None: all of the image."""


def _shape(table: Table, columns: str) -> _Shape:
    message_names = columns.split(SEP)
    missing = [name for name in message_names if name.lower() not in table.columns]
    if missing:
        raise ApplyError(
            f"the target's table lacks the column {missing[0]}",
            where=str(table.name),
            fix="a schema change is missing on the target; add the column as it is upstream, or begin later (--from)",
        )
    found = [table.columns[name.lower()] for name in message_names]
    kept = [i for i, column in enumerate(found) if not column.generated]
    names = tuple(found[i].name for i in kept)
    return _Shape(names, None if len(kept) == len(found) else tuple(kept))


def _render_keyed(net: KeyedChanges, rendering: Rendering) -> Iterator[Statement]:
    table = net.table
    written = [_all_freed(rows) for rows in net.written] if rendering.safe_mode else net.written
    keepings = [keeping for rows in written if (keeping := _Keeping.of(net, rendering, rows))]
    patches = [_Patch(net, rendering, rows) for rows in net.patched]
    for keeping in keepings:
        yield from keeping.keep()
    for patch in patches:
        yield from patch.keep()
    if rendering.safe_mode:
        yield from _free_unique_values(net)
    gone = [net.absent, *(_keys_of(rows.columns, rows.freed, net.key) for rows in written if len(rows.freed))]
    gone += [rows.origins for rows in net.patched if rows.moves]
    for condition in _key_conditions(table, net.key, pa.concat_arrays(gone)):
        yield Statement(Stage.DELETE, table.name, f"DELETE FROM {quote_name(*table.name)} WHERE {condition}")
    with_key = bool(other_uniques(table, net.key)) or not is_exact(table, net.key)
    for rows in written:
        shape = _shape(table, rows.columns)
        yield from _multi_row(table, shape, rows.freed, "")
        images = rows.images
        if rendering.load_bytes and images.nbytes >= MIN_BYTES and may_load(table, net.key, shape.names):
            images = yield from _loaded(table, shape, images, rendering.load_bytes)
        yield from _multi_row(table, shape, images, _on_duplicate_key(shape, net.key, with_key=with_key))
    for patch in patches:
        yield from patch.write()
    for keeping in keepings:
        yield from keeping.restore()


def _all_freed(rows: WrittenRows) -> WrittenRows:
    return WrittenRows(rows.columns, rows.images.slice(0, 0), pa.concat_arrays([rows.images, rows.freed]))


def _keys_of(columns: str, images: pa.Array, key: tuple[str, ...]) -> pa.Array:
    names = columns.lower().split(SEP)
    return joined(parts_of(images, [names.index(part) for part in key]))


def _on_duplicate_key(shape: _Shape, key: tuple[str, ...], *, with_key: bool) -> str:
    changed = [name for name in shape.names if with_key or name.lower() not in key] or list(shape.names[:1])
    return " ON DUPLICATE KEY UPDATE " + ",".join(f"{q}=VALUES({q})" for q in map(quote_name, changed))


def _multi_row(table: Table, shape: _Shape, images: pa.Array, suffix: str) -> Iterator[Statement]:
    if len(images) == 0:
        return
    names = ",".join(quote_name(name) for name in shape.names)
    head = f"INSERT INTO {quote_name(*table.name)} ({names}) VALUES ("
    images = images if shape.positions is None else joined(parts_of(images, shape.positions))
    for body in groups(images, "),(", STATEMENT_BYTES):
        yield Statement(Stage.WRITE, table.name, f"{head}{body.replace(SEP, ',')}){suffix}")


def _loaded(table: Table, shape: _Shape, images: pa.Array, load_bytes: int) -> Generator[Statement, None, pa.Array]:
    """Loads of the images; gives those that LOAD DATA does not read as INSERT does."""
    columns = [table.columns[name.lower()] for name in shape.names]
    sql = load_statement(table, shape.names)
    left = []
    for rows in runs(images, load_bytes):
        found = pa.array(readable(rows, columns))
        if found.false_count:
            left.append(rows.filter(pc.invert(found)))
            rows = rows.filter(found)
        if len(rows):
            yield Statement(Stage.WRITE, table.name, sql, load=load_of(table, rows))
    return pa.concat_arrays(left) if left else images.slice(0, 0)


def _key_conditions(table: Table, key: tuple[str, ...], keys: pa.Array) -> Iterator[str]:
    names = [quote_name(table.columns[part].name) for part in key]
    if len(names) == 1:
        for body in groups(keys, ",", STATEMENT_BYTES, KEYS_PER_DELETE):
            yield f"{names[0]} IN ({body})"
        return
    template = [f"({names[0]}=", *(f" AND {name}=" for name in names[1:]), ")"]
    yield from groups(wrapped(template, parts_of(keys, range(len(names)))), " OR ", STATEMENT_BYTES, KEYS_PER_DELETE)


def _prefix_conditions(table: Table, unique: tuple[str, ...], keys: pa.Array) -> Iterator[str]:
    """As `_key_conditions`, by the beginnings of values that a unique key holds.  No index serves that."""
    sides: list[list[str]] = []
    for part, length in zip(unique, table.prefixes[unique], strict=True):
        name = quote_name(table.columns[part].name)
        sides.append([f"LEFT({name},{length})=LEFT(", f",{length})"] if length else [f"{name}=", ""])
    ends = [f"{end} AND {begin}" for (_, end), (begin, _) in pairwise(sides)]
    template = [f"({sides[0][0]}", *ends, f"{sides[-1][1]})"]
    yield from groups(wrapped(template, parts_of(keys, range(len(unique)))), " OR ", STATEMENT_BYTES, KEYS_PER_DELETE)


def _free_unique_values(net: KeyedChanges) -> Iterator[Statement]:
    """Deletes whatever row holds a unique value that is about to be written."""
    table = net.table
    others = other_uniques(table, net.key)
    coming = [(rows.columns, pa.concat_arrays([rows.images, rows.freed]), others) for rows in net.written]
    coming += [(rows.columns, rows.images, [*others, net.key]) for rows in net.patched]
    for columns, images, uniques in coming:
        names = columns.lower().split(SEP)
        for unique in uniques:
            if not set(unique) <= set(names):
                continue
            parts = parts_of(images, [names.index(part) for part in unique])
            in_play = reduce(pc.and_, (pc.not_equal(part, "NULL") for part in parts))
            conditions = _prefix_conditions if unique in table.prefixes else _key_conditions
            for condition in conditions(table, unique, joined(parts).filter(in_play)):
                yield Statement(Stage.DELETE, table.name, f"DELETE FROM {quote_name(*table.name)} WHERE {condition}")


class _Scratch(NamedTuple):
    """A temporary table with columns of a table's types, whatever it may be called by.

    The name is its own: of each table, however long its name is, of each column list, and of each piece.
    """

    table: Table
    name: str

    @classmethod
    def of(cls, table: Table, rendering: Rendering, *purpose: object) -> _Scratch:
        what = "\0".join(map(str, (*table.name, rendering.piece, *purpose)))
        digest = hashlib.sha1(what.encode(), usedforsecurity=False).hexdigest()
        return cls(table, quote_name(rendering.scratch_schema, f"keep {digest}"))

    def made(self, columns: str) -> Iterator[str]:
        """`columns`: as a SELECT of the table has them."""
        yield f"DROP TEMPORARY TABLE IF EXISTS {self.name}"
        # Servers with sql_require_primary_key want one of every table; those of the rows may be prefixes.
        number = "(`kept number` BIGINT AUTO_INCREMENT PRIMARY KEY)"
        yield (
            f"CREATE TEMPORARY TABLE {self.name} {number} AS"
            f" SELECT {columns} FROM {quote_name(*self.table.name)} WHERE 1 = 0"
        )

    def dropped(self) -> str:
        """The statement that takes it away."""
        return f"DROP TEMPORARY TABLE {self.name}"


class _Patch:
    """Rows of one column list of which the messages hold a part."""

    def __init__(self, net: KeyedChanges, rendering: Rendering, rows: PatchedRows) -> None:
        self._net, self._rows, self._table = net, rows, net.table
        self._shape = _shape(net.table, rows.columns)
        self._parts = _Scratch.of(net.table, rendering, "parts", *rows)
        self._whole = _Scratch.of(net.table, rendering, "whole", *rows)
        self._names = list(map(quote_name, self._shape.names))
        self._origins = [quote_name(f"kept key {i}") for i in range(len(net.key))]

    def keep(self) -> Iterator[Statement]:
        """The parts; of rows that are written anew all of them, as they will be."""
        key = [quote_name(self._table.columns[part].name) for part in self._net.key]
        aliased = ",".join([*(f"{k} AS {o}" for k, o in zip(key, self._origins, strict=True)), *self._names])
        for sql in self._parts.made(aliased):
            yield self._statement(Stage.KEEP, sql)
        head = f"INSERT INTO {self._parts.name} ({','.join([*self._origins, *self._names])}) VALUES ("
        images = self._rows.images
        if self._shape.positions is not None:
            images = joined(parts_of(images, self._shape.positions))
        for body in groups(joined([self._rows.origins, images]), "),(", STATEMENT_BYTES):
            yield self._statement(Stage.KEEP, f"{head}{body.replace(SEP, ',')})")
        if self._rows.moves:
            yield from self._keep_whole()

    def _keep_whole(self) -> Iterator[Statement]:
        columns = [quote_name(column.name) for column in self._table.columns.values() if not column.generated]
        for sql in self._whole.made(",".join(columns)):
            yield self._statement(Stage.KEEP, sql)
        values = ",".join(f"{'parts' if name in self._names else 't'}.{name}" for name in columns)
        sql = f"INSERT INTO {self._whole.name} ({','.join(columns)}) SELECT {values} FROM {self._old_rows()}"
        yield self._statement(Stage.KEEP, sql, expect=len(self._rows.images))
        yield self._statement(Stage.KEEP, self._parts.dropped())

    def write(self) -> Iterator[Statement]:
        """The rows, in place or anew."""
        target = quote_name(*self._table.name)
        if self._rows.moves:
            columns = [quote_name(column.name) for column in self._table.columns.values() if not column.generated]
            names = ",".join(columns)
            yield self._statement(Stage.WRITE, f"INSERT INTO {target} ({names}) SELECT {names} FROM {self._whole.name}")
            yield self._statement(Stage.WRITE, self._whole.dropped())
            return
        values = [f"t.{name}=parts.{name}" for name in self._names]
        values += _unchanged(self._table, {name.lower() for name in self._shape.names})
        sql = f"UPDATE {self._old_rows()} SET {','.join(values)}"
        yield self._statement(Stage.WRITE, sql, expect=len(self._rows.images))
        yield self._statement(Stage.WRITE, self._parts.dropped())

    def _old_rows(self) -> str:
        """The parts with the rows that were there; their few rows are read first."""
        key = [quote_name(self._table.columns[part].name) for part in self._net.key]
        on = " AND ".join(f"t.{k}=parts.{o}" for k, o in zip(key, self._origins, strict=True))
        return f"{self._parts.name} parts STRAIGHT_JOIN {quote_name(*self._table.name)} t ON {on}"

    def _statement(self, stage: Stage, sql: str, *, expect: int | None = None) -> Statement:
        return Statement(stage, self._table.name, sql, expect, is_part=True)


def _unchanged(table: Table, written: Collection[str]) -> Iterator[str]:
    """Assignments that keep what would else set itself.  written: names in lower case."""
    for name in map(quote_name, (n for n in _set_by_themselves(table) if n.lower() not in written)):
        yield f"t.{name}=t.{name}"


class _Keeping:
    """Keeps the values of target-only columns of rows of one column list that are deleted and inserted again."""

    def __init__(self, net: KeyedChanges, scratch: _Scratch, extra: list[str], keys: pa.Array) -> None:
        self._net, self._scratch, self._extra, self._keys = net, scratch, extra, keys
        self._table = net.table

    @classmethod
    def of(cls, net: KeyedChanges, rendering: Rendering, rows: WrittenRows) -> _Keeping | None:
        """None when there is nothing to keep."""
        known = rows.columns.lower().split(SEP)
        extra = [c.name for name, c in net.table.columns.items() if name not in known and not c.generated]
        if not extra or not len(rows.freed):
            return None
        scratch = _Scratch.of(net.table, rendering, rows.columns)
        return cls(net, scratch, extra, _keys_of(rows.columns, rows.freed, net.key))

    def keep(self) -> Iterator[Statement]:
        columns = [self._table.columns[part].name for part in self._net.key] + self._extra
        names = ",".join(map(quote_name, columns))
        for sql in self._scratch.made(names):
            yield self._statement(Stage.KEEP, sql)
        select = f"SELECT {names} FROM {quote_name(*self._table.name)} WHERE "
        for condition in _key_conditions(self._table, self._net.key, self._keys):
            yield self._statement(Stage.KEEP, f"INSERT INTO {self._scratch.name} ({names}) {select}{condition}")

    def restore(self) -> Iterator[Statement]:
        key = [quote_name(self._table.columns[part].name) for part in self._net.key]
        on = " AND ".join(f"t.{name}=kept.{name}" for name in key)
        extra = {name.lower() for name in self._extra}
        values = ",".join(
            [*(f"t.{name}=kept.{name}" for name in map(quote_name, self._extra)), *_unchanged(self._table, extra)]
        )
        target = quote_name(*self._table.name)
        yield self._statement(Stage.RESTORE, f"UPDATE {target} t JOIN {self._scratch.name} kept ON {on} SET {values}")
        yield self._statement(Stage.RESTORE, self._scratch.dropped())

    def _statement(self, stage: Stage, sql: str) -> Statement:
        return Statement(stage, self._table.name, sql)


def _render_keyless(net: KeylessChanges) -> Iterator[Statement]:
    table = net.table
    coming: dict[str, list[str]] = {}
    for image, copies in net.copies.items():
        if copies < 0:
            sql = f"DELETE FROM {quote_name(*table.name)} WHERE {binary_match(table, image)} LIMIT {-copies}"
            yield Statement(Stage.DELETE, table.name, sql, expect=-copies)
        coming.setdefault(image.columns, []).extend([image.literals] * copies)
    for columns, images in coming.items():
        yield from _multi_row(table, _shape(table, columns), pa.array(images, TEXT), "")


def binary_match(table: Table, image: Image) -> str:
    """The condition that finds rows which hold exactly the image's values.

    Raises ApplyError when the target lacks a column of the image.
    """
    shape = _shape(table, image.columns)
    literals = image.literals.split(SEP)
    if shape.positions is not None:
        literals = [literals[i] for i in shape.positions]
    return " AND ".join(map(_match, (table.columns[n.lower()] for n in shape.names), literals))


def update_of_row(table: Table, after: Image, condition: str) -> Statement:
    """The one row that `condition` finds becomes what `after` says; columns that it lacks stay as they are.

    Raises ApplyError when the target lacks a column of the image.
    """
    shape = _shape(table, after.columns)
    literals = after.literals.split(SEP)
    if shape.positions is not None:
        literals = [literals[i] for i in shape.positions]
    written = {name: f"{quote_name(name)}={value}" for name, value in zip(shape.names, literals, strict=True)}
    stay = [f"{quote_name(name)}={quote_name(name)}" for name in _set_by_themselves(table) if name not in written]
    sql = f"UPDATE {quote_name(*table.name)} SET {','.join([*written.values(), *stay])} WHERE {condition}"
    return Statement(Stage.WRITE, table.name, sql, expect=1)


def _set_by_themselves(table: Table) -> Iterator[str]:
    """ON UPDATE CURRENT_TIMESTAMP changes any column that an UPDATE does not set."""
    for column in table.columns.values():
        if not column.generated and column.type.startswith(("timestamp", "datetime")):
            yield column.name


def _match(column: Column, literal: str) -> str:
    name = quote_name(column.name)
    if column.type == "json" and literal != "NULL":  # not MariaDB's, which is text
        document = f"CAST({literal} AS JSON)"
        return f"{name}<=>{document} AND CAST({name} AS BINARY)<=>CAST({document} AS BINARY)"  # 1 equals 1.0
    plain = f"{name}<=>{literal}"
    if column.charset is None or literal[0] not in "'x":  # NULL, or the number of an ENUM or SET value
        return plain
    # Equal under the column's collation (an index can serve that), and equal byte for byte in its character set.
    return f"{plain} AND CAST({name} AS BINARY)<=>CAST(CONVERT({literal} USING {column.charset}) AS BINARY)"
