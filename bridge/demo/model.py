"""The parts of an upstream: tables, rows, transactions and schema changes; and the state that they lead to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

Value = int | str | Decimal | datetime | None
BankRow = tuple[Value, ...]


@dataclass(frozen=True)
class BankColumn:
    """A column.

    mysql_type: the name of the type, in lower case.
    size: the text in parentheses after it, "" for none.
    key: "primary", "unique" or "".
    """

    name: str
    mysql_type: str
    size: str = ""
    nullable: bool = False
    key: str = ""
    default: str | None = None

    def ddl(self) -> str:
        """Returns the definition of the column as TiDB prints it."""
        sql = f"`{self.name}` {self.mysql_type.upper()}" + (f"({self.size})" if self.size else "")
        if self.key == "primary":
            return f"{sql} PRIMARY KEY"
        sql += "" if self.nullable else " NOT NULL"
        sql += "" if self.default is None else f" DEFAULT _UTF8MB4'{self.default}'"
        return f"{sql} UNIQUE KEY" if self.key else sql


@dataclass(frozen=True)
class TableVersion:
    """The name and the columns of a table at some time."""

    schema: str
    name: str
    columns: tuple[BankColumn, ...]

    @cached_property
    def at(self) -> dict[str, int]:
        """The index of each column in a row, by name."""
        return {column.name: i for i, column in enumerate(self.columns)}

    @cached_property
    def handle(self) -> BankColumn:
        """The handle key: the primary key, otherwise the first unique column that is NOT NULL."""
        keys = [c for c in self.columns if c.key and not c.nullable]
        return next((c for c in keys if c.key == "primary"), keys[0])

    def key_of(self, row: BankRow) -> Value:
        """Returns the value of the handle key."""
        return row[self.at[self.handle.name]]


class Change(NamedTuple):
    """One row change: `before` is None for an insert, `after` for a delete."""

    shape: TableVersion
    before: BankRow | None
    after: BankRow | None


class BankTotals(NamedTuple):
    """What a reader of all tables can compute of one state of the bank.

    accounts: the number of accounts.
    total: the sum of their balances, which never changes.
    weighted: the sum of each balance times the CRC-32 of ``table:key``; it differs between states of the same total.
    entries: the number of rows of the ledger.
    """

    accounts: int
    total: int
    weighted: int
    entries: int


class Transaction(NamedTuple):
    """A transaction of the bank.

    entry: the id of the ledger entry that it wrote, one higher for each transaction.
    moment: the totals after the transaction.
    """

    commit_ts: int
    entry: int
    changes: tuple[Change, ...]
    moment: BankTotals


class DdlKind(StrEnum):
    """Classes of schema changes."""

    CREATE_DATABASE = "create database"
    DROP_DATABASE = "drop database"
    CREATE_TABLE = "create table"
    ADD_COLUMN = "add column"


class BankSchemaChange(NamedTuple):
    """A schema change of the bank.  shape: the table after it, None for a database."""

    commit_ts: int
    kind: DdlKind
    schema: str
    shape: TableVersion | None
    statement: str


BankStep = Transaction | BankSchemaChange


@dataclass
class BankTable:
    """A table's state: rows by the value of the handle column."""

    shape: TableVersion
    rows: dict[Value, BankRow] = field(default_factory=dict)

    def apply(self, change: Change) -> None:
        """Applies one row change."""
        if change.before is not None:
            del self.rows[self.shape.key_of(change.before)]
        if change.after is not None:
            self.rows[self.shape.key_of(change.after)] = change.after

    def add_columns(self, shape: TableVersion) -> None:
        """Changes the columns; existing rows get the defaults of the new ones."""
        added = tuple(column.default for column in shape.columns[len(self.shape.columns) :])
        self.rows = {key: row + added for key, row in self.rows.items()}
        self.shape = shape


def replay(steps: Iterable[BankStep], below: int | None = None) -> dict[str, BankTable]:
    """Returns the state that the steps lead to, or only those below a commit_ts (TSO), from the changes alone."""
    tables: dict[str, BankTable] = {}
    for step in steps:
        if below is not None and step.commit_ts >= below:
            break
        if isinstance(step, Transaction):
            for change in step.changes:
                tables[change.shape.name].apply(change)
        elif step.shape is not None:
            tables.setdefault(step.shape.name, BankTable(step.shape)).add_columns(step.shape)
    return tables
