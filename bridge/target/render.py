"""Net changes to SQL.  Pure: the same statements on an executor and on the driver.

Order within a target transaction (design, decision 4): values of target-only columns that a delete would lose are
kept aside, deleted keys and keys whose other unique values change are deleted, then rows are written, then the kept
values are put back.  With every unique value in play freed first, a write can conflict on its own key only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import NamedTuple

from bridge.errors import ApplyError
from bridge.events import SEP
from bridge.target.catalog import Column, Table, TableName
from bridge.target.netchanges import Image, KeyedChanges, KeylessChanges, KeyState, NetChanges
from bridge.target.session import quote_name

STATEMENT_BYTES = 512 * 1024
"""Statements are cut at about this many characters: beyond it MariaDB gains nothing (measured)."""
KEYS_PER_DELETE = 2000


class Stage(IntEnum):
    """When a statement runs within its transaction."""

    KEEP = 0
    DELETE = 1
    WRITE = 2
    RESTORE = 3


class Statement(NamedTuple):
    """One statement; `expect` is the number of rows it must match, None when any number is right."""

    stage: Stage
    table: TableName
    sql: str
    expect: int | None = None


@dataclass(frozen=True)
class Rendering:
    """How to render: `scratch_schema` holds temporary tables, `safe_mode` deletes rows that hold any unique value
    about to be written first (for a target that is ahead of the log)."""

    scratch_schema: str
    safe_mode: bool = False


def render(net: NetChanges, rendering: Rendering) -> Iterator[Statement]:
    """The statements of one table's net changes; run them in order of stage.

    Raises ApplyError when the target lacks a column of the messages.
    """
    if isinstance(net, KeylessChanges):
        return _render_keyless(net)
    return _render_keyed(net, rendering)


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
            mend="a schema change is missing on the target; add the column as it is upstream, or begin later (--from)",
        )
    found = [table.columns[name.lower()] for name in message_names]
    kept = [i for i, column in enumerate(found) if not column.generated]
    names = tuple(found[i].name for i in kept)
    return _Shape(names, None if len(kept) == len(found) else tuple(kept))


def _values(shape: _Shape, literals: str) -> str:
    if shape.positions is None:
        return "(" + literals.replace(SEP, ",") + ")"
    parts = literals.split(SEP)
    return "(" + ",".join([parts[i] for i in shape.positions]) + ")"


def _render_keyed(net: KeyedChanges, rendering: Rendering) -> Iterator[Statement]:
    table = net.table
    others = [unique for unique in table.uniques if frozenset(unique) != frozenset(net.key)]
    freed = [key for key, state in net.states.items() if _is_freed(state, others)]
    rewritten = [key for key in freed if net.states[key].last is not None] if others else []
    written = [(key, state.last) for key, state in net.states.items() if state.last is not None]
    if rendering.safe_mode:
        rewritten, freed = [key for key, _ in written], list(net.states)
        yield from _free_unique_values(table, others, [image for _, image in written])
    keep = _Keeping.of(net, rendering, rewritten)
    if keep:
        yield from keep.keep()
    for condition in _key_conditions(table, net.key, freed):
        yield Statement(Stage.DELETE, table.name, f"DELETE FROM {quote_name(*table.name)} WHERE {condition}")
    fresh = set(rewritten)
    yield from _inserts(table, [image for key, image in written if key in fresh])
    yield from _upserts(table, net.key, bool(others), [image for key, image in written if key not in fresh])
    if keep:
        yield from keep.restore()


def _is_freed(state: KeyState, others: list[tuple[str, ...]]) -> bool:
    if state.last is None:
        return True
    if not others:
        return False
    return state.first is None or any(_part(state.first, u) != _part(state.last, u) for u in others)


def _part(image: Image, unique: tuple[str, ...]) -> object:
    """The literals of a unique key; an object equal to nothing when the image does not hold all its columns."""
    names = image.columns.lower().split(SEP)
    literals = image.literals.split(SEP)
    try:
        return [literals[names.index(column)] for column in unique]
    except ValueError:
        return object()


def _by_shape(images: Iterable[Image]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for image in images:
        grouped.setdefault(image.columns, []).append(image.literals)
    return grouped


def _inserts(table: Table, images: Iterable[Image]) -> Iterator[Statement]:
    for columns, rows in _by_shape(images).items():
        shape = _shape(table, columns)
        yield from _multi_row(table, shape, rows, "")


def _upserts(table: Table, key: tuple[str, ...], with_key: bool, images: Iterable[Image]) -> Iterator[Statement]:
    for columns, rows in _by_shape(images).items():
        shape = _shape(table, columns)
        changed = [name for name in shape.names if with_key or name.lower() not in key] or list(shape.names[:1])
        assignments = ",".join(f"{quote_name(name)}=VALUES({quote_name(name)})" for name in changed)
        yield from _multi_row(table, shape, rows, f" ON DUPLICATE KEY UPDATE {assignments}")


def _multi_row(table: Table, shape: _Shape, rows: list[str], suffix: str) -> Iterator[Statement]:
    names = ",".join(quote_name(name) for name in shape.names)
    head = f"INSERT INTO {quote_name(*table.name)} ({names}) VALUES "
    for body in _cut((_values(shape, row) for row in rows), STATEMENT_BYTES):
        yield Statement(Stage.WRITE, table.name, head + ",".join(body) + suffix)


def _cut(parts: Iterable[str], limit: int, most: int | None = None) -> Iterator[list[str]]:
    """Parts in order, in groups of about `limit` characters and at most `most` parts; a group is never empty."""
    group: list[str] = []
    size = 0
    for part in parts:
        if group and (size + len(part) > limit or (most and len(group) >= most)):
            yield group
            group, size = [], 0
        group.append(part)
        size += len(part)
    if group:
        yield group


def _key_conditions(table: Table, key: tuple[str, ...], keys: Iterable[str], alias: str = "") -> Iterator[str]:
    names = [alias + quote_name(table.columns[part].name) for part in key]
    if len(names) == 1:
        for group in _cut(keys, STATEMENT_BYTES, KEYS_PER_DELETE):
            yield f"{names[0]} IN ({','.join(group)})"
        return
    for group in _cut((_equal(names, literals.split(SEP)) for literals in keys), STATEMENT_BYTES, KEYS_PER_DELETE):
        yield " OR ".join(group)


def _equal(names: list[str], literals: list[str]) -> str:
    return "(" + " AND ".join(f"{name}={literal}" for name, literal in zip(names, literals, strict=True)) + ")"


def _free_unique_values(table: Table, others: list[tuple[str, ...]], images: list[Image]) -> Iterator[Statement]:
    for unique in others:
        found = (_part(image, unique) for image in images)
        values = [SEP.join(part) for part in found if isinstance(part, list) and "NULL" not in part]
        for condition in _key_conditions(table, unique, values) if values else ():
            yield Statement(Stage.DELETE, table.name, f"DELETE FROM {quote_name(*table.name)} WHERE {condition}")


class _Keeping:
    """Keeps the values of target-only columns of rows that are deleted and inserted again."""

    def __init__(self, net: KeyedChanges, scratch: str, extra: list[str], keys: list[str]) -> None:
        self._net, self._extra, self._keys = net, extra, keys
        self._table = net.table
        self._scratch = quote_name(scratch, f"keep {net.table.name}"[:64])

    @classmethod
    def of(cls, net: KeyedChanges, rendering: Rendering, keys: list[str]) -> _Keeping | None:
        """None when there is nothing to keep."""
        if not keys:
            return None
        seen = {last.columns for state in net.states.values() if (last := state.last)}
        known = {name for columns in seen for name in columns.lower().split(SEP)}
        extra = [c.name for name, c in net.table.columns.items() if name not in known and not c.generated]
        return cls(net, rendering.scratch_schema, extra, keys) if extra else None

    def keep(self) -> Iterator[Statement]:
        columns = [self._table.columns[part].name for part in self._net.key] + self._extra
        select = f"SELECT {','.join(map(quote_name, columns))} FROM {quote_name(*self._table.name)} WHERE "
        yield self._statement(Stage.KEEP, f"DROP TEMPORARY TABLE IF EXISTS {self._scratch}")
        yield self._statement(Stage.KEEP, f"CREATE TEMPORARY TABLE {self._scratch} AS {select}1 = 0")
        for condition in _key_conditions(self._table, self._net.key, self._keys):
            yield self._statement(Stage.KEEP, f"INSERT INTO {self._scratch} {select}{condition}")

    def restore(self) -> Iterator[Statement]:
        key = [quote_name(self._table.columns[part].name) for part in self._net.key]
        on = " AND ".join(f"t.{name}=kept.{name}" for name in key)
        values = ",".join(f"t.{name}=kept.{name}" for name in map(quote_name, self._extra))
        target = quote_name(*self._table.name)
        yield self._statement(Stage.RESTORE, f"UPDATE {target} t JOIN {self._scratch} kept ON {on} SET {values}")
        yield self._statement(Stage.RESTORE, f"DROP TEMPORARY TABLE {self._scratch}")

    def _statement(self, stage: Stage, sql: str) -> Statement:
        return Statement(stage, self._table.name, sql)


def _render_keyless(net: KeylessChanges) -> Iterator[Statement]:
    table = net.table
    for image, copies in net.copies.items():
        if copies < 0:
            condition = _binary_match(table, image)
            sql = f"DELETE FROM {quote_name(*table.name)} WHERE {condition} LIMIT {-copies}"
            yield Statement(Stage.DELETE, table.name, sql, expect=-copies)
    yield from _inserts(table, chain.from_iterable([image] * copies for image, copies in net.copies.items()))


def _binary_match(table: Table, image: Image) -> str:
    shape = _shape(table, image.columns)
    literals = image.literals.split(SEP)
    if shape.positions is not None:
        literals = [literals[i] for i in shape.positions]
    return " AND ".join(map(_match, (table.columns[n.lower()] for n in shape.names), literals))


def _match(column: Column, literal: str) -> str:
    name = quote_name(column.name)
    plain = f"{name}<=>{literal}"
    if column.charset is None or literal == "NULL":
        return plain
    # Equal under the column's collation (an index can serve that), and equal byte for byte in its character set.
    return f"{plain} AND CAST({name} AS BINARY)<=>CAST(CONVERT({literal} USING {column.charset}) AS BINARY)"
