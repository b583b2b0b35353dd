"""Compares the tables of the target with those of the upstream at the end of the demo, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pymysql.err import MySQLError

from bridge.demo.model import BankTable
from bridge.model import quote_name
from bridge.mysql.connection.session import Session
from bridge.mysql.server_errors import error_code, server_words

SHOWN_ROWS: Final = 3
NO_SUCH_TABLE: Final = 1146


@dataclass(frozen=True)
class ComparedTable:
    """The result for one table.

    rows: how many rows the upstream has.
    difference: "" when the target has the same columns and rows.
    """

    table: str
    rows: int
    difference: str


def compare(session: Session, schema: str, tables: Mapping[str, BankTable]) -> list[ComparedTable]:
    """Compares every table of the upstream, and names every table that only the target has."""
    found = session.rows("SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (schema,))
    extra = sorted({name for (name,) in found} - tables.keys())
    compared = [
        ComparedTable(name, len(tables[name].rows), _difference(session, tables[name])) for name in sorted(tables)
    ]
    return [*compared, *(ComparedTable(name, 0, "the upstream has no such table") for name in extra)]


def _difference(session: Session, table: BankTable) -> str:
    where = quote_name(table.shape.schema, table.shape.name)
    columns = [column.name for column in table.shape.columns]
    try:
        found = [row[0] for row in session.rows(f"SHOW COLUMNS FROM {where}")]
        if found != columns:
            return f"its columns are {', '.join(found)} instead of {', '.join(columns)}"
        rows = session.rows(f"SELECT * FROM {where}")
    except MySQLError as error:
        if error_code(error) != NO_SUCH_TABLE:
            raise
        return server_words(error)
    return _row_difference(rows, set(table.rows.values()))


def _row_difference(found: list[tuple[Any, ...]], expected: set[tuple[Any, ...]]) -> str:
    missing, extra, doubled = expected - set(found), set(found) - expected, len(found) - len(set(found))
    if not (missing or extra or doubled):
        return ""
    return (
        f"{len(missing)} rows are missing {_some(missing)}, {len(extra)} are extra {_some(extra)},"
        f" {doubled} are there twice"
    )


def _some(rows: set[tuple[Any, ...]]) -> str:
    return str(sorted(map(repr, rows))[:SHOWN_ROWS])
