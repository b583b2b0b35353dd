"""Loads rows by LOAD DATA LOCAL INFILE, and checks the server's answer.

A load is used only where it does what INSERT does (`rows.sql.statement`), or reports that it did not.  LOCAL turns
errors into warnings.  So a transaction is written again by INSERT, as a whole, if one of its loads did not report that
it took every row without a warning; INSERT then takes the rows, or reports why not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final

import structlog
from pymysql.err import MySQLError

from bridge.model import TableName
from bridge.mysql.connection.session import LoadAnswer, Session, nothing
from bridge.mysql.server_errors import TRANSIENT, server_words
from bridge.mysql.table_definition import among
from bridge.rows.sql.statement import Load

log = structlog.get_logger()

LOAD_BYTES: Final = 2 * 1024 * 1024
"""Rows are cut to loads of about this many bytes: smaller loads cost more, larger ones are no faster (measured)."""

_KNOWN_SERVER: Final = re.compile(
    r"(?:\d+\.){2}\d+(?:-MariaDB\b.*|(?:[-.~+]\d[\w.~+]*|-(?:log|debug|commercial|cloud))*)", re.IGNORECASE
)
_VARIABLES: Final = (
    *("version", "local_infile", "wsrep_on", "sql_notes"),
    "show_gipk_in_create_table_and_information_schema",
)
_NUMBERS: Final = re.compile(rb"\d+")


class LoadRefusedError(Exception):
    """Raised when a load did not take its rows as INSERT would, or may not have.  The transaction must be rolled back,
    and rows of `table` are written by INSERT until its definition changes."""

    def __init__(self, table: TableName, reason: str) -> None:
        super().__init__(f"LOAD DATA into {table}: {reason}")
        self.table = table


def objection(variables: Mapping[str, str]) -> str:
    """Tells why rows must not be loaded into a server with these variables (lower-case names); "" when they may.

    Other servers with MySQL's protocol may commit loads on their own, as Galera does (wsrep_load_data_splitting); a
    hidden primary key would change; and without notes the server does not report digits that a DECIMAL loses.
    """
    if not _KNOWN_SERVER.fullmatch(variables.get("version", "")):
        return f"the server, {variables.get('version')}, is neither MySQL nor MariaDB by its version"
    if variables.get("local_infile") != "ON":
        return "local_infile is OFF"
    if variables.get("wsrep_on", "OFF") != "OFF":
        return "wsrep_on is ON"
    if variables.get("sql_notes") != "ON":
        return "sql_notes is OFF"
    if variables.get(_VARIABLES[-1], "ON") != "ON":
        return f"{_VARIABLES[-1]} is OFF"
    return ""


def server_objection(session: Session) -> str:
    """Tells why rows must not be loaded into a session's server; "" when they may.  It asks the server once per
    session."""
    if session.load_objection is None:
        try:
            variables = session.variables("SESSION", _VARIABLES)
        except MySQLError as error:  # as after an incomplete upgrade from MySQL 5.7
            if isinstance(error, TRANSIENT):
                raise
            session.load_objection = server_words(error)
        else:
            session.load_objection = objection({name: value.upper() for name, value in variables.items()})
    return session.load_objection


def transactional(session: Session, names: Collection[TableName]) -> set[TableName]:
    """Gives those of the named tables that are plain InnoDB tables.  It leaves out views, and system-versioned tables,
    in which REPLACE would make other versions than UPDATE."""
    if not names:
        return set()
    condition, args = among(names)
    rows = session.rows(
        "SELECT table_schema, table_name FROM information_schema.tables"
        f" WHERE engine = 'InnoDB' AND table_type = 'BASE TABLE' AND {condition}",
        args,
    )
    return {TableName(schema, table) for schema, table in rows}


def run(session: Session, sql: bytes, load: Load, meanwhile: Callable[[], None] = nothing) -> None:
    """Loads rows.  meanwhile: as `Session.write`.

    Raises LoadRefusedError when not all of them were taken as they are, MySQLError and OSError for what a retry may
    cure.
    """
    try:
        reason = server_objection(session) or shortfall(session.load(sql, memoryview(load.body), meanwhile), load.rows)
    except MySQLError as error:
        if isinstance(error, TRANSIENT):
            raise
        reason = server_words(error)
    if reason:
        log.info("load_data_refused", table=str(load.table.name), why=reason)
        raise LoadRefusedError(load.table.name, reason)


def shortfall(answer: LoadAnswer, rows: int) -> str:
    """Tells why an answer does not say that this many rows were taken as they are; "" when it does.

    It reads `Records: 3  Deleted: 0  Skipped: 0  Warnings: 0`, in the language of the server's messages.
    """
    numbers = [int(number) for number in _NUMBERS.findall(answer.message)][-4:]  # its length may come first
    is_whole = len(numbers) == 4 and (numbers[0], numbers[2], numbers[3]) == (rows, 0, 0)
    if is_whole and answer.warnings == 0:
        return ""
    return f"{answer.warnings} warnings for {rows} rows: {answer.message.decode(errors='replace')}"
