"""The oracle: an upstream that is a dictionary of rows per table, changed statement by statement.

A statement that the upstream's server would refuse, or that finds no row, does nothing: so any part of a run is a run.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from tests.generated.kinds import Value
from tests.generated.tables import Column, Equality, Row, Table, Unique


class Insert(NamedTuple):
    """INSERT of a row into the table of that number."""

    table: int
    row: Row


class Update(NamedTuple):
    """UPDATE of the row with these values of the key; of a table without one, of any row with all these values.

    is_one: the log tells it as one row change, which is made in the row's place: although its key changes, what only
        the target knows stays.
    """

    table: int
    where: Row
    sets: Row
    is_one: bool = False


class Delete(NamedTuple):
    """DELETE of a row, found in the same way."""

    table: int
    where: Row


class Alter(NamedTuple):
    """A schema change, by its kind and what it is about, alone in its transaction.  made: the table in the place
    of the old one."""

    table: int
    kind: str
    column: Column | None = None
    unique: Unique | None = None
    name: str = ""
    made: Table | None = None


STATEMENTS_APART: Final = "\n"
"""Stands between statements of one schema change, which come as messages of their own with one commit ts."""
Statement = Insert | Update | Delete | Alter


@dataclass(frozen=True)
class Transaction:
    """Statements of one commit_ts.  after: how much later than the one before it is, in the upstream's unit of time;
    labels: the kinds of operations that it consists of."""

    after: int
    statements: tuple[Statement, ...]
    labels: tuple[str, ...] = ()


class Change(NamedTuple):
    """A row change as the upstream's log has it."""

    table: Table
    before: Row | None
    after: Row | None


State = dict[str, list[Row]]
"""Rows by table name."""


class Step(NamedTuple):
    """What one transaction did.

    changes: in the order of the log; ddl: the table as it was, and is, and the statement.
    before, after: the upstream's states.
    """

    ts: int
    changes: list[Change]
    ddl: tuple[Table, Table, str] | None
    before: State
    after: State
    labels: tuple[str, ...]


@dataclass
class Content:
    """A table and its rows by number.  extras: what the target-only column of each may hold."""

    table: Table
    rows: dict[int, Row] = field(default_factory=dict)
    extras: dict[int, frozenset[Value]] = field(default_factory=dict)
    gone: dict[Hashable, frozenset[Value]] = field(default_factory=dict)
    """What target-only columns of rows may have held whose key is gone."""


class Upstream:
    """Tables and their rows.

    nets: a transaction's changes are told as net changes, by its end, and only its end must be valid (TiDB with
        statements that pass through other values); otherwise statement by statement (MySQL's log).
    is_whole: a transaction is never cut: a row whose key gets another spelling keeps what only the target knows.
    """

    def __init__(self, tables: Sequence[Table], equality: Equality, *, nets: bool, is_whole: bool = False) -> None:
        self.contents = [Content(table) for table in tables]
        self.equality, self.nets, self._is_whole = equality, nets, is_whole
        self._number = 0
        self._come: list[tuple[Content, int]] = []
        """Rows whose key was another row's, or nobody's, before the transaction."""

    def state(self) -> State:
        """Rows of every table."""
        return {content.table.name: list(content.rows.values()) for content in self.contents}

    def extras(self) -> dict[str, list[frozenset[Value]]]:
        """What the target-only column of each row may hold, in the order of `state`."""
        return {c.table.name: [c.extras[number] for number in c.rows] for c in self.contents if c.table.extra}

    def run(self, transaction: Transaction, ts: int) -> Step | None:
        """Runs a transaction; None when nothing of it had an effect."""
        before = self.state()
        first = transaction.statements[0] if transaction.statements else None
        if isinstance(first, Alter):
            ddl = self._alter(first)
            return Step(ts, [], ddl, before, self.state(), transaction.labels) if ddl else None
        self._come.clear()
        changes = self._net(transaction.statements) if self.nets else self._one_by_one(transaction.statements)
        self._inherit()
        return Step(ts, changes, None, before, self.state(), transaction.labels) if changes else None

    def find(self, statement: Update | Delete) -> int | None:
        """The number of the row that a statement is about."""
        return self._find(self.contents[statement.table].rows, statement)

    # --- statements

    def _one_by_one(self, statements: Sequence[Statement]) -> list[Change]:
        """All of them or none."""
        kept = [(dict(c.rows), dict(c.extras), dict(c.gone)) for c in self.contents]
        changes = []
        for statement in statements:
            assert not isinstance(statement, Alter)
            content = self.contents[statement.table]
            change = self._apply(content, statement, content.rows)
            if change is None or not self.is_valid(content):
                self._restore(kept)
                return []
            if change.before != change.after:
                changes.append(change)
        return changes

    def _net(self, statements: Sequence[Statement]) -> list[Change]:
        kept = [(dict(c.rows), dict(c.extras), dict(c.gone)) for c in self.contents]
        for statement in statements:
            assert not isinstance(statement, Alter)
            content = self.contents[statement.table]
            if self._apply(content, statement, kept[statement.table][0]) is None:
                self._restore(kept)
                return []
        if not all(map(self.is_valid, self.contents)):
            self._restore(kept)
            return []
        pairs = zip(self.contents, kept, strict=True)
        return [change for content, (rows, _, _) in pairs for change in self._net_of(content, rows)]

    def _restore(
        self, kept: Sequence[tuple[dict[int, Row], dict[int, frozenset[Value]], dict[Hashable, frozenset[Value]]]]
    ) -> None:
        for content, (rows, extras, gone) in zip(self.contents, kept, strict=True):
            content.rows, content.extras, content.gone = rows, extras, gone

    def _net_of(self, content: Content, was: dict[int, Row]) -> list[Change]:
        """As the storage has it: a clustered table by its keys, byte for byte as texts may be spelled otherwise."""
        table, now = content.table, content.rows
        if table.clustered and table.handle:
            old = {tuple(row[name] for name in table.handle): row for row in was.values()}
            new = {tuple(row[name] for name in table.handle): row for row in now.values()}
            pairs = [(old.get(key), new.get(key)) for key in {**old, **new}]
        else:
            pairs = [(was.get(number), now.get(number)) for number in {**was, **now}]
        return [Change(table, before, after) for before, after in pairs if before != after]

    def _apply(self, content: Content, statement: Insert | Update | Delete, where: dict[int, Row]) -> Change | None:
        """where: rows among which an UPDATE or DELETE looks first."""
        table = content.table
        if isinstance(statement, Insert):
            row = table.complete({c.name: statement.row.get(c.name, c.default) for c in table.columns})
            self._number += 1
            content.rows[self._number] = row
            content.extras[self._number] = frozenset({None})
            self._come.append((content, self._number))
            return Change(table, None, row)
        number = self._find(where, statement)
        if number not in content.rows:
            number = self._find(content.rows, statement)
        if number is None:
            return None
        before = content.rows[number]
        if isinstance(statement, Delete):
            self._bury(content, number)
            del content.rows[number]
            return Change(table, before, None)
        sets = {name: value for name, value in statement.sets.items() if name in table.names}
        after = table.complete({**before, **sets})
        if any(before[name] != after[name] for name in table.handle):
            is_same = self._key(content, before) == self._key(content, after)
            self._bury(content, number)
            if not statement.is_one and not (is_same and self._is_whole):
                content.extras[number] |= frozenset({None})
            self._come.append((content, number))
        content.rows[number] = after
        return Change(table, before, after)

    def _find(self, rows: dict[int, Row], statement: Update | Delete) -> int | None:
        table = self.contents[statement.table].table
        return next((n for n, row in rows.items() if self._matches(table, row, statement.where)), None)

    def _matches(self, table: Table, row: Row, where: Row) -> bool:
        if table.handle and set(table.handle) <= where.keys():
            unique = table.uniques[0]
            return self.equality.key(table, unique, row) == self.equality.key(table, unique, {**row, **where})
        return all(name in row and row[name] == value for name, value in where.items())

    def _key(self, content: Content, row: Row) -> Hashable:
        return self.equality.key(content.table, content.table.uniques[0], row) if content.table.handle else None

    def _bury(self, content: Content, number: int) -> None:
        key = self._key(content, content.rows[number])
        content.gone[key] = content.gone.get(key, frozenset()) | content.extras[number]

    def _inherit(self) -> None:
        """What comes to a key may find the target-only value of the row that had it: the target's row stays."""
        for content, number in self._come:
            if number in content.rows:
                content.extras[number] |= content.gone.get(self._key(content, content.rows[number]), frozenset())

    def is_valid(self, content: Content) -> bool:
        """No unique key is violated, no NULL where none may be."""
        table, rows = content.table, content.rows.values()
        if any(row[c.name] is None for c in table.columns if not c.nullable for row in rows):
            return False
        for unique in table.uniques:
            keys = [key for row in rows if (key := self.equality.key(table, unique, row)) is not None]
            if len(keys) != len(set(keys)):
                return False
        return True

    # --- schema changes

    def _alter(self, alter: Alter) -> tuple[Table, Table, str] | None:
        content = self.contents[alter.table]
        old, kept = content.table, dict(content.rows)
        if alter.kind == "swap names":
            return self._swap_names(content)
        found = self._altered(content, alter)
        if found is None:
            return None
        content.table, text = found
        if alter.kind == "rename column":
            kept = {number: renamed(row, alter.name) for number, row in kept.items()}
        content.rows = {
            number: content.table.complete(with_defaults(content.table, row)) for number, row in kept.items()
        }
        if alter.kind in {"truncate", "recreate"}:
            for number in list(content.rows):
                self._bury(content, number)
            content.rows = {}
        if not self.is_valid(content):
            content.table, content.rows = old, kept
            return None
        return old, content.table, text

    def _swap_names(self, content: Content) -> tuple[Table, Table, str] | None:
        """Two tables exchange their names; TiDB tells it table by table."""
        if len(self.contents) < 2:
            return None
        other = next(one for one in self.contents if one is not content)
        old, name = content.table, other.table.name
        content.table, other.table = replace(old, name=name), replace(other.table, name=old.name)
        steps = (
            f"`m`.`{old.name}` TO `m`.`aside`",
            f"`m`.`{name}` TO `m`.`{old.name}`",
            f"`m`.`aside` TO `m`.`{name}`",
        )
        told = STATEMENTS_APART.join(f"RENAME TABLE {one}" for one in steps) if self.nets else None
        return old, content.table, told or f"RENAME TABLE {', '.join(steps)}"

    def _altered(self, content: Content, alter: Alter) -> tuple[Table, str] | None:
        table, column, unique = content.table, alter.column, alter.unique
        head = f"ALTER TABLE `{table.name}` "
        if alter.kind == "add column" and column and column.name not in table.names:
            return replace(table, columns=(*table.columns, column)), f"{head}ADD COLUMN {column.sql}"
        if alter.kind == "drop column" and alter.name in table.names and alter.name not in table.unique_columns:
            kept = tuple(c for c in table.columns if c.name != alter.name)
            return replace(table, columns=kept), f"{head}DROP COLUMN `{alter.name}`"
        if alter.kind == "modify column" and column and column.name in table.names:
            columns = tuple(column if c.name == column.name else c for c in table.columns)
            return replace(table, columns=columns), f"{head}MODIFY COLUMN {column.sql}"
        if alter.kind == "add unique" and unique and set(unique.columns) <= set(table.names):
            if unique.name in {one.name for one in table.uniques}:
                return None
            text = f"{head}ADD UNIQUE INDEX `{unique.name}` ({table.key_sql(unique)})"
            return replace(table, uniques=(*table.uniques, unique)), text
        if alter.kind == "drop unique":
            left = tuple(one for one in table.uniques[:1]) + tuple(o for o in table.uniques[1:] if o.name != alter.name)
            if len(left) == len(table.uniques):
                return None
            return replace(table, uniques=left), f"{head}DROP INDEX `{alter.name}`"
        if alter.kind == "truncate":
            return table, f"TRUNCATE TABLE `{table.name}`"
        if alter.kind == "recreate" and alter.made:
            made = replace(alter.made, name=table.name)
            return made, f"DROP TABLE `{table.name}`{STATEMENTS_APART}{made.create(on_target=False)}"
        if alter.kind == "rename column" and alter.name in table.names and f"{alter.name}2" not in table.names:
            return table.with_names(alter.name), f"{head}RENAME COLUMN `{alter.name}` TO `{alter.name}2`"
        if alter.kind == "rename" and alter.name not in {c.table.name for c in self.contents}:
            return replace(table, name=alter.name), f"RENAME TABLE `m`.`{table.name}` TO `m`.`{alter.name}`"
        return None


def renamed(row: Row, name: str) -> Row:
    """A row whose column of this name has another one."""
    return {f"{name}2" if one == name else one: value for one, value in row.items()}


def with_defaults(table: Table, row: Row) -> Row:
    """A row with what columns have that it lacks."""
    return {column.name: row.get(column.name, column.default) for column in table.columns}


def written(statement: Statement, tables: Sequence[Table]) -> str:
    """A statement for people."""
    name = tables[statement.table].name
    if isinstance(statement, Alter):
        about = statement.column.sql if statement.column else statement.unique or statement.made or statement.name
        return f"{statement.kind} of {name}: {about}"
    if isinstance(statement, Insert):
        return f"INSERT INTO {name} {_shown(statement.row)}"
    if isinstance(statement, Update):
        return f"UPDATE {name} SET {_shown(statement.sets)} WHERE {_shown(statement.where)}"
    return f"DELETE FROM {name} WHERE {_shown(statement.where)}"


def _shown(row: Row) -> str:
    return "{" + ", ".join(_parts(row)) + "}"


def _parts(row: Row) -> Iterator[str]:
    for name, value in row.items():
        text = str(value) if value is None or isinstance(value, int) else repr(str(value))
        yield f"{name}: {text if len(text) < 60 else f'{text[:20]}... ({len(text)} characters)'}"
