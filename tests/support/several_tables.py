"""Schema changes of several tables at random, some names with their databases and some without; and the database that
each kind of sender writes into the message."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bridge.model import TableName

DATABASES = ("shop", "archive", "test")
TABLES = ("orders", "a", "b")


class Statement(NamedTuple):
    """A statement of a session.

    session: its database.  changes: the tables that it changes, in the order of the text.  others: those that it
    copies, reads or refers to.  makes_one: it makes one table or view.  made: those that are there by their present
    name behind it; of a rename, the new ones.
    """

    text: str
    session: str
    changes: tuple[TableName, ...]
    others: tuple[TableName, ...]
    made: tuple[TableName, ...]


class _Writer:
    """Draws names, and writes each with its database or, in the session's database, without."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.session = self._random.choice(DATABASES)
        self._written: list[tuple[str, TableName]] = []

    def name(self) -> tuple[str, TableName]:
        table = TableName(self._random.choice(DATABASES), self._random.choice(TABLES))
        if self._random.random() < 0.5:
            table = TableName(self.session, table.table)
        is_bare = table.schema == self.session and self._random.random() < 0.6
        quoted = self._random.choice((f"`{table.table}`", table.table))
        return (quoted if is_bare else f"{table.schema} . {quoted}"), table

    def statement(self) -> Statement:
        kinds: list[Callable[[], tuple[str, Sequence[TableName], Sequence[TableName], Sequence[TableName]]]]
        kinds = [self._rename, self._alter_rename, self._drop, self._exchange, self._like, self._view, self._refers]
        text, changes, others, made = self._random.choice(kinds)()
        return Statement(text, self.session, tuple(changes), tuple(others), tuple(made))

    def _rename(self) -> tuple[str, Sequence[TableName], Sequence[TableName], Sequence[TableName]]:
        pairs = [(self.name(), self.name()) for _ in range(self._random.randint(1, 3))]
        text = ", ".join(f"{old} TO {new}" for (old, _), (new, _) in pairs)
        changes = [table for pair in pairs for _, table in pair]
        return f"RENAME TABLE {text}", changes, (), changes[1::2]

    def _alter_rename(self) -> tuple[str, Sequence[TableName], Sequence[TableName], Sequence[TableName]]:
        (old, was), (new, now) = self.name(), self.name()
        return f"ALTER TABLE {old} ADD COLUMN x INT, RENAME TO {new}", (was, now), (), (now,)

    def _drop(self) -> tuple[str, Sequence[TableName], Sequence[TableName], Sequence[TableName]]:
        names = [self.name() for _ in range(self._random.randint(1, 3))]
        tables = [table for _, table in names]
        what = self._random.choice(("TABLE", "TABLE IF EXISTS", "VIEW"))
        return f"DROP {what} {','.join(text for text, _ in names)}", tables, (), tables

    def _exchange(self) -> tuple[str, Sequence[TableName], Sequence[TableName], Sequence[TableName]]:
        (divided, one), (whole, other) = self.name(), self.name()
        text = f"ALTER TABLE {divided} EXCHANGE PARTITION p WITH TABLE {whole}"
        return text, (one, other), (), (one, other)

    def _like(self) -> tuple[str, Sequence[TableName], Sequence[TableName], Sequence[TableName]]:
        (new, made), (old, copied) = self.name(), self.name()
        return f"CREATE TABLE {new} LIKE {old}", (made,), (copied,), (made,)

    def _view(self) -> tuple[str, Sequence[TableName], Sequence[TableName], Sequence[TableName]]:
        (view, made), (one, first), (two, second) = self.name(), self.name(), self.name()
        text = f"CREATE OR REPLACE VIEW {view} AS SELECT x.id FROM {one} x JOIN {two} AS y USING (id)"
        return text, (made,), (first, second), (made,)

    def _refers(self) -> tuple[str, Sequence[TableName], Sequence[TableName], Sequence[TableName]]:
        """A foreign key refers to a table of its own table's database, where it names none."""
        (table, made), (parent, referred) = self.name(), self.name()
        is_bare = "." not in parent
        other = TableName(made.schema, referred.table) if is_bare else referred
        text = f"CREATE TABLE {table} (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {parent} (id))"
        return text, (made,), (other,), (made,)


def statement(seed: int) -> Statement:
    """A statement at random."""
    return _Writer(seed).statement()


def _each_made(drawn: Statement) -> set[str]:
    return {name.schema for name in drawn.made}


def _first_made(drawn: Statement) -> set[str]:
    return {drawn.made[0].schema}


def _unread_view(drawn: Statement) -> set[str]:
    return {""} if " VIEW " in drawn.text else {drawn.made[-1].schema}


SENDERS: dict[str, Callable[[Statement], set[str]]] = {
    "canal": _unread_view,
    "canal, the first of several": _first_made,
    "debezium": _each_made,
    "ticdc": _each_made,
    "session": lambda drawn: {drawn.session},
}
"""The databases that a sender's message may name: Canal 1.1.7 and 1.1.8 (DruidDdlParser, LogEventConvert) the last
table's, and none for a view; Debezium 3.6 and TiCDC the one of each table that is changed, of a rename the new name's.
A sender may also know the session's own."""
