"""Turns row changes into SQL one upstream transaction after the other: the grain `transaction` (`rows.grains`).  Pure.

A *moment* is what has no order within itself: the changes of one commit ts, or one change by event time.  Moments come
in order, each as statements that give the same rows when they run again:

1. keys from which rows go, and those to which rows come, are deleted, so that a write conflicts with nothing;
2. rows are written.

Where messages lack columns, the row is updated in place, so that it keeps their values, and is inserted if it is not
there.  A change by event time that lacks columns holds a part of its row, which must be there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, Final, NamedTuple

from bridge.events import SEP, Kind
from bridge.model import Column, Table, TableName, free_name, quote_name
from bridge.rows.key_spellings import is_exact, is_guarded, spelled_texts
from bridge.rows.key_steps import RowShape, other_uniques
from bridge.rows.net_changes import Image, OrderedChanges
from bridge.rows.sql import members
from bridge.rows.sql.statement import (
    STATEMENT_BYTES,
    Rendering,
    Stage,
    Statement,
    WrittenColumns,
    binary_match,
    guards,
    set_by_themselves,
)

_ROWS_AT_ONCE: Final = 5_000
"""So many row changes are Python objects at once."""
_KEYS: Final = 200
"""So many keys one DELETE names."""
_ZERO_TABLE: Final = "enum zero"
Numbered = tuple[int, Statement]
"""A statement with the number of the row change that it writes."""


class _List:
    """A table with a column list of its messages, and what statements need of both."""

    def __init__(self, table: Table, columns: str, key: tuple[str, ...]) -> None:
        self.shape = RowShape.of(table, columns, key)
        self.written = WrittenColumns.of(table, columns)
        self.names = list(map(quote_name, self.written.names))
        self.target = quote_name(*table.name)
        self.insert = f"INSERT INTO {self.target} ({','.join(self.names)}) VALUES ("
        self.key_at = self.shape.at(key)
        left_alone = (name for name in set_by_themselves(table) if name not in self.written.names)
        self.stay = [f"{quote_name(name)}={quote_name(name)}" for name in left_alone]
        self.uniques = {
            unique: self.shape.at(unique) for unique in table.uniques if set(unique) <= set(self.shape.names)
        }


class _Row(NamedTuple):
    """An image."""

    of: _List
    literals: Sequence[str]

    @property
    def key(self) -> tuple[str, ...]:
        """The literals of the key."""
        return tuple([self.literals[at] for at in self.of.key_at])

    @property
    def exact_condition(self) -> str:
        """The condition that finds rows with exactly its values."""
        return binary_match(self.of.written, self.literals)

    @property
    def written(self) -> Sequence[str]:
        """The literals of the columns that are written."""
        return self.of.written.literals_of(self.literals)

    def values(self, zero: str) -> list[str]:
        """Gives the literals of the columns that are written, as INSERT takes them.  zero: as of `Moment`."""
        cells = zip(self.of.written.columns, self.written, strict=True)
        return [_written(column, literal, zero) for column, literal in cells]

    def update(self, condition: str, zero: str = "") -> str:
        """Writes the statement that sets the rows which a condition finds to it.  zero: as of `Moment`."""
        cells = zip(self.of.written.columns, self.of.names, self.written, strict=True)
        assignments = [
            f"{name}={_written(column, members.assigned_literal(column, value), zero)}" for column, name, value in cells
        ]
        return f"UPDATE {self.of.target} SET {','.join([*assignments, *self.of.stay])} WHERE {condition}"


def _written(column: Column, literal: str, zero: str) -> str:
    """Gives the literal by which a value is written, which is another one for the error value of an ENUM."""
    written_literal = members.written_literal(column.type, literal)
    return zero if zero and written_literal is not literal else written_literal


class Change(NamedTuple):
    """A row change.  number: among those of its table.  moment: equal for those that have no order."""

    number: int
    moment: tuple[int, int]
    kind: int
    old: _Row | None
    new: _Row | None
    by_time: bool

    @property
    def is_part(self) -> bool:
        """Whether it holds a part of its row."""
        return self.by_time and self.new is not None and self.kind == Kind.UPDATE and self.new.of.shape.lacks

    @property
    def moves(self) -> bool:
        """Whether the row has another key afterwards, as far as literals tell."""
        return self.old is not None and (self.new is None or self.old.key != self.new.key)

    @property
    def row_before(self) -> _Row:
        """The row before it, where there was one."""
        assert self.old is not None
        return self.old

    @property
    def row_after(self) -> _Row:
        """The row after it, where there is one."""
        assert self.new is not None
        return self.new


def ordered(net: OrderedChanges, rendering: Rendering) -> Iterator[Statement]:
    """Gives the statements of row changes of one table, in order; each is made when it is asked for.

    Raises ApplyError when the target lacks a column of the messages.
    """
    _note(net, rendering)
    if net.table.copies_zeros:
        yield from _zero_table(net.table.name, rendering.scratch_schema)
    for moment in moments(net, rendering):
        for _, statement in moment.statements(rendering):
            yield statement._replace(joins=moment.is_plain and statement.expect is None)


def update_of_row(table: Table, after: Image, condition: str) -> Statement:
    """Writes the statement that sets the one row which `condition` finds to `after`; other columns stay.

    Raises ApplyError when the target lacks a column of the image.
    """
    row = _Row(_List(table, after.columns, ()), after.literals.split(SEP))
    return Statement(Stage.WRITE, table.name, row.update(condition).encode(), expect=1)


def _note(net: OrderedChanges, rendering: Rendering) -> None:
    if rendering.by_transaction.get(str(net.table.name)) != net.why:
        from structlog import get_logger  # late: executors do without

        rendering.by_transaction[str(net.table.name)] = net.why
        get_logger().info("goes_by_transaction", table=str(net.table.name), why=net.why)


def moments(net: OrderedChanges, rendering: Rendering) -> Iterator[Moment]:
    """Gives the moments of row changes of one table, in order."""
    copied = f"(SELECT zero FROM {quote_name(rendering.scratch_schema, _ZERO_TABLE)})"  # the error value of an ENUM
    zero = copied if net.table.copies_zeros else ""
    for _, changes in groupby(_changes(net), key=lambda change: change.moment):
        yield Moment(net.table, net.key, tuple(changes), zero)


def _changes(net: OrderedChanges) -> Iterator[Change]:
    lists: dict[str, _List] = {}
    names = ("kind", "columns", "before", "after", "by_time", "commit_ts")
    for start in range(0, net.changes.num_rows, _ROWS_AT_ONCE):
        batch = net.changes.slice(start, _ROWS_AT_ONCE)
        rows = zip(*(batch[name].to_pylist() for name in names), strict=True)
        for number, (kind, columns, before, after, by_time, commit_ts) in enumerate(rows, start):
            columns_of_image = lists.get(columns)
            if columns_of_image is None:
                columns_of_image = lists[columns] = _List(net.table, columns, net.key)
            old, new = (
                None if image is None else _Row(columns_of_image, image.split(SEP)) for image in (before, after)
            )
            yield Change(number, (commit_ts, number if by_time else -1), kind, old, new, by_time)


@dataclass(frozen=True)
class Moment:
    """Changes that have no order among themselves.  zero: what an ENUM's error value is copied from, "" for none."""

    table: Table
    key: tuple[str, ...]
    changes: tuple[Change, ...]
    zero: str = ""

    def statements(self, rendering: Rendering, *, is_single: bool = False) -> Iterator[Numbered]:
        """Gives its statements.  is_single: whether each writes one row."""
        if not self.key:
            return self._keyless(is_single=is_single)
        return self._whole(rendering, is_single=is_single) if self.is_plain else self._in_place(rendering)

    @property
    def is_plain(self) -> bool:
        """Whether they are of whole rows that have a key."""
        return bool(self.key) and all(
            change.new is None or not change.row_after.of.shape.lacks for change in self.changes
        )

    def without(self, number: int, stage: Stage) -> tuple[Moment, Change]:
        """Takes out the change that the target refuses at a stage.  Gives the others, and the refused one.  Of a change
        whose old and new row are written by two statements, only the refused half is taken out."""
        change = next(row_change for row_change in self.changes if row_change.number == number)
        others = [row_change for row_change in self.changes if row_change.number != number]
        is_whole = change.new is not None and not change.row_after.of.shape.lacks
        if change.old is not None and is_whole and (change.moves or not self.key):
            deletion = change._replace(kind=int(Kind.DELETE), new=None)
            insertion = change._replace(kind=int(Kind.INSERT), old=None)
            change, half = (deletion, insertion) if stage is Stage.DELETE else (insertion, deletion)
            others = sorted([*others, half], key=lambda row_change: row_change.number)
        return replace(self, changes=tuple(others)), change

    @property
    def _target(self) -> str:
        return quote_name(*self.table.name)

    # Tables with a key.

    @cached_property
    def _images(self) -> Mapping[tuple[str, ...], Change]:
        """The change that wrote each key last."""
        return {change.row_after.key: change for change in self.changes if change.new is not None}

    @cached_property
    def _vacated(self) -> list[tuple[str, ...]]:
        """The keys from which rows go, each once."""
        return list(dict.fromkeys(change.row_before.key for change in self.changes if change.moves))

    def _whole(self, rendering: Rendering, *, is_single: bool) -> Iterator[Numbered]:
        """Writes whole rows."""
        images, first = self._images, self.changes[0].number
        vacated = set(self._vacated)
        for sql in self._deleting(self._vacated):
            yield first, self._statement(Stage.DELETE, sql)
        yield from self._guards()
        for sql in self._deleting([key for key in images if key not in vacated]):
            yield first, self._statement(Stage.DELETE, sql)
        if rendering.safe_mode:
            yield from self._freeing(stays=False)
        yield from self._inserting(list(images.values()), is_single=is_single)

    def _in_place(self, rendering: Rendering) -> Iterator[Numbered]:
        """Writes rows of which messages do not hold all columns."""
        images, first = self._images, self.changes[0].number
        is_part = any(change.is_part for change in images.values())
        vacated, exclusion = [key for key in self._vacated if key not in images], ""
        if not is_exact(self.table, self.key):  # a row may come under another spelling of its key
            exclusion = f" AND NOT ({' OR '.join(f'({self._is_one(key)})' for key in images)})"
        for sql in () if is_part else self._deleting(vacated, exclusion):
            yield first, self._statement(Stage.DELETE, sql)
        yield from self._guards()
        if len(images) > 1 and other_uniques(self.table, self.key):
            yield from self._by_kept_values(rendering)
            return
        yield from self._freeing(stays=True) if rendering.safe_mode else ()
        for key, change in images.items():
            if is_part:
                place = change.row_before.key if change.old is not None else key
                sql = change.row_after.update(self._has_key(place), self.zero)
                yield change.number, self._statement(Stage.WRITE, sql, expect=1, is_part=True)
                continue
            conditions = [self._has_key(key)]
            if self.key in self.table.prefixes:  # under which a row is not found in another spelling
                goes = " OR ".join(f"({self._has_key(vacated_key)})" for vacated_key in self._vacated) or "0"
                conditions.append(f"({self._is_one(key)})" + ("" if rendering.safe_mode else f" AND ({goes})"))
            sql, *fallbacks = (change.row_after.update(condition, self.zero) for condition in conditions)
            insert = f"{change.row_after.of.insert}{','.join(change.row_after.values(self.zero))})"
            otherwise = tuple(text.encode() for text in (*fallbacks, insert))
            yield change.number, self._statement(Stage.WRITE, sql, otherwise=otherwise)

    def _by_kept_values(self, rendering: Rendering) -> Iterator[Numbered]:
        """Writes such rows where they may trade unique values: they are deleted and inserted, and get back from
        temporary tables what the messages do not hold."""
        first, restoring = self.changes[0].number, list[str]()
        for number, of in enumerate({change.row_after.of for change in self._images.values()}):
            keys = [key for key, change in self._images.items() if change.row_after.of is of]
            extra = [c for name, c in self.table.columns.items() if name not in of.shape.names and not c.generated]
            kept_table = quote_name(rendering.scratch_schema, f"kept values {number}")
            for sql in self._keeping(kept_table, keys, extra) if extra else ():
                yield first, self._statement(Stage.DELETE, sql)
            restoring += self._restoring(kept_table, extra) if extra else ()
        for sql in self._deleting(list(self._images), by_one=True):
            yield first, self._statement(Stage.DELETE, sql)
        yield from self._freeing(stays=False) if rendering.safe_mode else ()
        yield from self._inserting(list(self._images.values()), is_single=True)
        for sql in restoring:
            yield first, self._statement(Stage.WRITE, sql)

    def _keeping(self, kept_table: str, keys: Sequence[tuple[str, ...]], extra: Sequence[Column]) -> Iterator[str]:
        """Copies the keys of rows, and what messages do not hold of them.  TiDB has no CREATE TABLE ... AS SELECT, and
        servers with sql_require_primary_key want a primary key, which the rows' own may not be (a prefix)."""
        columns = [*(self.table.columns[part] for part in self.key), *extra]
        names = ",".join(quote_name(column.name) for column in columns)
        number = quote_name(free_name("kept number", [column.name for column in columns]))
        lines = [f"{number} BIGINT AUTO_INCREMENT PRIMARY KEY", *map(_definition, columns)]
        yield f"DROP TEMPORARY TABLE IF EXISTS {kept_table}"
        yield f"CREATE TEMPORARY TABLE {kept_table} ({','.join(lines)})"
        copied = f"SELECT {','.join(map(_copied, columns))} FROM {self._target}"
        for where in self._conditions(keys, by_one=True):
            yield f"INSERT INTO {kept_table} ({names}) {copied} WHERE {where}"

    def _restoring(self, kept_table: str, extra: Sequence[Column]) -> Iterator[str]:
        """Writes what was copied back, and keeps columns as they are which the server would otherwise set."""
        on = " AND ".join(
            f"LEFT(t.{name},{length})=LEFT(kept.{name},{length})" if length else f"t.{name}=kept.{name}"
            for name, length in zip(self._names, self._lengths(self.key), strict=True)
        )
        values = [f"t.{quote_name(column.name)}={_copied(column, 'kept.')}" for column in extra]
        names = [quote_name(name) for name in set_by_themselves(self.table) if name not in {c.name for c in extra}]
        values += [f"t.{name}=t.{name}" for name in names]
        yield f"UPDATE {self._target} t JOIN {kept_table} kept ON {on} SET {','.join(values)}"
        yield f"DROP TEMPORARY TABLE {kept_table}"

    def _guards(self) -> Iterator[Numbered]:
        """Asks for rows that would be overwritten although their keys are spelled otherwise, but for those that go."""
        if not is_guarded(self.table, self.key):
            return
        exclusion = "".join(f" AND NOT ({self._has_key(key)})" for key in self._vacated)
        # Of an update without its old row nothing says which key that had.
        keys = [key for key, change in self._images.items() if change.old is not None or change.kind != Kind.UPDATE]
        for sql in guards(self.table, self.key, keys, exclusion):
            yield self.changes[0].number, self._statement(Stage.DELETE, sql, expect=0)

    def _freeing(self, *, stays: bool) -> Iterator[Numbered]:
        """Deletes rows with a unique value that is about to be written.  stays: whether the rows written are there."""
        for change in self._images.values():
            keys = [change.row_after.key, *([change.row_before.key] if change.old is not None else [])]
            exclusion = "".join(f" AND NOT ({self._is_one(key)})" for key in keys) if stays else ""
            for unique, positions in change.row_after.of.uniques.items():
                literals = [change.row_after.literals[at] for at in positions]
                if "NULL" in literals or (unique == self.key and unique not in self.table.prefixes):
                    continue
                if self.table.guards_spelling and spelled_texts(self.table, unique):
                    for sql in guards(self.table, unique, [literals], exclusion):
                        yield change.number, self._statement(Stage.DELETE, sql, expect=0)
                sql = f"DELETE FROM {self._target} WHERE {self._is_one(tuple(literals), unique)}{exclusion}"
                yield change.number, self._statement(Stage.DELETE, sql)

    def _deleting(self, keys: Sequence[tuple[str, ...]], exclusion: str = "", *, by_one: bool = False) -> Iterator[str]:
        """Deletes the rows of keys.  by_one: as of `_conditions`."""
        for where in self._conditions(keys, by_one=by_one):
            yield f"DELETE FROM {self._target} WHERE ({where}){exclusion}"

    def _conditions(self, keys: Sequence[tuple[str, ...]], *, by_one: bool) -> Iterator[str]:
        """Finds the rows of keys.  by_one: also those whose keys are one to the server, where it does not find them by
        their values."""
        for start in range(0, len(keys), _KEYS):
            batch = keys[start : start + _KEYS]
            if len(self.key) == 1 and not (by_one and self.key in self.table.prefixes):
                yield f"{self._names[0]} IN ({','.join([key[0] for key in batch])})"
            else:
                yield " OR ".join(f"({self._is_one(key) if by_one else self._has_key(key)})" for key in batch)

    def _inserting(self, changes: Sequence[Change], *, is_single: bool) -> Iterator[Numbered]:
        """Inserts rows, several by one statement where they have the same columns."""
        for _, run in groupby(changes, key=lambda change: id(change.row_after.of)):
            rows, size, first = list[str](), 0, None
            for change in run:
                if first is not None and (is_single or size > STATEMENT_BYTES):
                    yield first.number, self._statement(Stage.WRITE, f"{first.row_after.of.insert}{'),('.join(rows)})")
                    rows, size, first = [], 0, None
                rows.append(",".join(change.row_after.values(self.zero)))
                size += len(rows[-1])
                first = first or change
            if first is not None:
                yield first.number, self._statement(Stage.WRITE, f"{first.row_after.of.insert}{'),('.join(rows)})")

    @cached_property
    def _names(self) -> list[str]:
        return [quote_name(self.table.columns[part].name) for part in self.key]

    def _has_key(self, key: tuple[str, ...]) -> str:
        """Finds the row that has the key in this spelling, or in one that a condition finds."""
        return " AND ".join([f"{name}={literal}" for name, literal in zip(self._names, key, strict=True)])

    def _is_one(self, values: tuple[str, ...], unique: tuple[str, ...] = ()) -> str:
        """Finds the row whose value of a unique key (of the key itself) is one with this to the server."""
        unique = unique or self.key
        lengths, names = self._lengths(unique), [quote_name(self.table.columns[part].name) for part in unique]
        return " AND ".join(
            f"LEFT({name},{length})=LEFT({literal},{length})" if length else f"{name}={literal}"
            for name, literal, length in zip(names, values, lengths, strict=True)
        )

    def _lengths(self, unique: tuple[str, ...]) -> Sequence[int | None]:
        return self.table.prefixes.get(unique, (None,) * len(unique))

    # Tables without one.

    def _keyless(self, *, is_single: bool) -> Iterator[Numbered]:
        """All rows go before any comes; those that keep what messages lack stay where they are."""
        in_place = [
            change
            for change in self.changes
            if change.old is not None and change.new is not None and change.row_after.of.shape.lacks
        ]
        staying = {change.number for change in in_place}
        for change in self.changes:
            if change.old is not None and change.number not in staying:
                sql = f"DELETE FROM {self._target} WHERE {change.row_before.exact_condition} LIMIT 1"
                yield change.number, self._statement(Stage.DELETE, sql, expect=1)
        for change in _from_the_end(in_place):
            sql = f"{change.row_after.update(change.row_before.exact_condition, self.zero)} LIMIT 1"
            yield change.number, self._statement(Stage.WRITE, sql, expect=1)
        coming = [change for change in self.changes if change.new is not None and change.number not in staying]
        yield from self._inserting(coming, is_single=is_single)

    def _statement(self, stage: Stage, sql: str, **fields: Any) -> Statement:
        return Statement(stage, self.table.name, sql.encode(), **fields)


def _zero_table(table: TableName, scratch_schema: str) -> Iterator[Statement]:
    """Makes it, for TiDB, which takes the error value from a column alone: there NULL has become it, in a column that
    is NOT NULL, which INSERT IGNORE allows with a warning of its own (tried on v8.5)."""
    name = quote_name(scratch_schema, _ZERO_TABLE)
    for sql in (
        f"DROP TEMPORARY TABLE IF EXISTS {name}",
        f"CREATE TEMPORARY TABLE {name} (n INT PRIMARY KEY, zero ENUM('x') NOT NULL)",
        f"INSERT IGNORE INTO {name} VALUES (1,NULL)",
    ):
        yield Statement(Stage.DELETE, table, sql.encode())


def _definition(column: Column) -> str:
    """Gives the line of CREATE TABLE for a column of another table's type."""
    text = f" CHARACTER SET {column.charset} COLLATE {column.collation}" if column.charset else ""
    return f"{quote_name(column.name)} {column.type}{text} {'NULL' if column.nullable else 'NOT NULL'}"


def _copied(column: Column, alias: str = "") -> str:
    """Writes the value of a column that is copied to another one of its type.  alias: of the table, with its point."""
    name = f"{alias}{quote_name(column.name)}"
    return f"CAST({name} AS UNSIGNED)" if column.has_nameless_member else name


def _from_the_end(updates: Sequence[Change]) -> Iterator[Change]:
    """Gives updates of rows without a key so that one whose row becomes like another's comes behind that one: rows that
    are alike in what messages hold may differ in what only the target has."""
    remaining = list(updates)
    old_rows = Counter(change.row_before.exact_condition for change in remaining)
    while remaining:
        free = [change for change in remaining if not old_rows[change.row_after.exact_condition]] or remaining[:1]
        for change in free:
            old_rows[change.row_before.exact_condition] -= 1
            yield change
        remaining = [change for change in remaining if not any(change is update for update in free)]
