r"""When rows may be sent by LOAD DATA LOCAL INFILE ... REPLACE, and what its answer must say.

It costs the server about a quarter less than INSERT ... ON DUPLICATE KEY UPDATE, as nothing is parsed as SQL.  It reads
the very literals of row images: fields end at SEP, which no literal holds, rows at a line feed, which texts hold within
their quotation marks only, and of escapes both know ``\\``, ``\'`` and ``\0``, all that `protocols.literals` writes.

It is used only where it does what INSERT does, or says that it did not.  Rules are by column, by row, by table and by
server; whatever they do not allow goes by INSERT, and so does a transaction, all of it, of which a load did not say
that it took every row without a warning (LOCAL makes warnings of errors): INSERT then takes the rows, or says why not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pymysql.err import MySQLError

from bridge.model import Column, Table, TableName
from bridge.mysql.connection import LoadAnswer, Session, is_transient, server_words
from bridge.quoting import quote_name
from bridge.rows.arrow_images import TEXT
from bridge.rows.grouping import Bools

log = structlog.get_logger()

MIN_BYTES: Final = 128 * 1024
"""Fewer go by INSERT, which takes one round trip, not two, and then costs no more (measured)."""
LOAD_BYTES: Final = 2 * 1024 * 1024
"""Rows are cut to loads of about so many bytes: smaller ones cost more, larger ones gain nothing (measured)."""

_NUMBER: Final = re.compile(
    r"(?:(?:tiny|small|medium|big)?int|decimal|float|double)(?:\(\d+(?:,\d+)?\))?(?: unsigned)?(?: zerofill)?"
)
_MOMENT: Final = re.compile(r"date|(?:datetime|timestamp|time)(?:\(\d\))?")
_TEXT: Final = re.compile(r"(?:var)?char\(\d+\)|(?:tiny|medium|long)?text")
_EXACT_NUMBER: Final = re.compile(r"(?:(?:tiny|small|medium|big)?int|decimal)\b.*")
_KNOWN_SERVER: Final = re.compile(
    r"(?:\d+\.){2}\d+(?:-MariaDB\b.*|(?:[-.~+]\d[\w.~+]*|-(?:log|debug|commercial|cloud))*)", re.IGNORECASE
)
_VARIABLES: Final = (
    *("version", "local_infile", "wsrep_on", "sql_notes"),
    "show_gipk_in_create_table_and_information_schema",
)
_NUMBERS: Final = re.compile(rb"\d+")
_NUMERAL, _QUOTED, _NULL = 1, 2, 4
_KINDS: Final = np.zeros(256, np.uint8)
"""Of literals, by their first character; 0 for bytes (x'..') and whatever else there may be."""
_KINDS[np.frombuffer(b"-0123456789", np.uint8)] = _NUMERAL
_KINDS[ord("'")], _KINDS[ord("N")] = _QUOTED, _NULL


class LoadRefusedError(Exception):
    """A load did not take its rows as INSERT would, or nobody can tell; the transaction must be rolled back."""


class Load(NamedTuple):
    """What a LOAD DATA statement reads: so many rows of a table."""

    table: Table
    rows: int
    body: pa.Buffer


def objection(variables: Mapping[str, str]) -> str:
    """Why rows are not loaded into a server with these variables (lower-case names), "" when they are.

    Other servers that speak MySQL's protocol may commit loads by themselves, as Galera may (wsrep_load_data_splitting);
    a hidden primary key would change; without notes nobody is told of digits that a DECIMAL loses.
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
    """The same of a session's server, asked once."""
    if session.load_objection is None:
        names = ",".join(f"'{name}'" for name in _VARIABLES)
        try:
            found = session.rows(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({names})")
        except MySQLError as error:  # as after an upgrade of MySQL 5.7 that was left half-way
            if is_transient(error):
                raise
            session.load_objection = server_words(error)
        else:
            session.load_objection = objection({str(name).lower(): str(value).upper() for name, value in found})
    return session.load_objection


def transactional(session: Session, names: Collection[TableName]) -> set[TableName]:
    """Those of the named tables that are plain tables of InnoDB: no views, and without system versions, of which
    REPLACE would make others than UPDATE."""
    if not names:
        return set()
    rows = session.rows(
        "SELECT table_schema, table_name FROM information_schema.tables"
        " WHERE engine = 'InnoDB' AND table_type = 'BASE TABLE'"
        f" AND (table_schema, table_name) IN ({','.join(['(%s,%s)'] * len(names))})",
        [part for name in names for part in name],
    )
    return {TableName(schema, table) for schema, table in rows}


def may_load(table: Table, key: tuple[str, ...], names: Sequence[str]) -> bool:
    """Whether rows of these columns may be loaded, if rows of the table may at all.

    REPLACE writes whole rows, and any unique key makes it delete some: so all columns are there, and `key` is the only
    unique one.
    """
    columns = table.columns
    return (
        table.takes_loads
        and not table.refused_loads
        and len(table.uniques) == 1
        and _is_exact([columns[part] for part in key])
        and len(names) == len(columns)
        and all(map(_is_read_alike, columns.values()))
    )


def _is_exact(key: Sequence[Column]) -> bool:
    """Equal keys are equal values: two spellings may be one text, of which ON DUPLICATE KEY UPDATE keeps the first.
    Two moments may be a period (WITHOUT OVERLAPS)."""
    moments = sum(_MOMENT.fullmatch(column.type) is not None for column in key)
    numbers = sum(_EXACT_NUMBER.fullmatch(column.type) is not None for column in key)
    return moments <= 1 and moments + numbers == len(key)


def _is_read_alike(column: Column) -> bool:
    """Not so: numbers of BIT, ENUM and SET, which LOAD reads as texts; YEAR, of which it reads 0 as 2000; bytes."""
    if column.generated:
        return False
    if column.charset is None:
        return bool(_NUMBER.fullmatch(column.type) or _MOMENT.fullmatch(column.type))
    return column.charset != "binary" and _TEXT.fullmatch(column.type) is not None


def _readable_kinds(column: Column) -> int:
    """What LOAD reads as SQL does.  A number in a column of texts would be the digits as they stand; NULL where it
    is not allowed would become 0, or the moment of writing."""
    plain = _NUMERAL if _NUMBER.fullmatch(column.type) else _QUOTED
    return plain | (_NULL if column.nullable else 0)


def readable(images: pa.Array, columns: Sequence[Column]) -> Bools:
    """Which images (none of them null, and such as `drift` lets pass) hold only literals that LOAD reads as SQL does,
    into columns for which `may_load` is true.

    SQL reads -0.00 as a DECIMAL, which has no such zero, LOAD as what the column is.
    """
    offsets = np.frombuffer(images.buffers()[1], np.int64)[images.offset : images.offset + len(images) + 1]
    characters = np.frombuffer(images.buffers()[2], np.uint8)[: offsets[-1]]
    separators = np.flatnonzero(characters[offsets[0] :] == 0).reshape(len(images), len(columns) - 1) + offsets[0]
    begins = np.column_stack([offsets[:-1], separators + 1])
    wanted = np.array([_readable_kinds(column) for column in columns], np.uint8)
    found: Bools = (_KINDS[characters[begins]] & wanted).all(axis=1)
    for i in (i for i, column in enumerate(columns) if column.type.startswith(("float", "double"))):
        sign, digit = (characters.take(begins[:, i] + at, mode="clip") for at in (0, 1))
        found &= (sign != ord("-")) | (digit != ord("0"))
    return found


def load_of(table: Table, images: pa.Array) -> Load:
    """Images as LOAD DATA reads them."""
    lines = pc.binary_join_element_wise(images, pa.scalar("", TEXT), pa.scalar("\n", TEXT))
    return Load(table, len(images), lines.buffers()[2])


def load_statement(table: Table, names: Sequence[str]) -> str:
    """The statement that reads a load; the name of the file says nothing, as the server asks for what it is given."""
    return (
        f"LOAD DATA LOCAL INFILE 'rows' REPLACE INTO TABLE {quote_name(*table.name)} CHARACTER SET utf8mb4"
        r" FIELDS TERMINATED BY '\0' OPTIONALLY ENCLOSED BY '\'' ESCAPED BY '\\' LINES TERMINATED BY '\n'"
        f" ({','.join(map(quote_name, names))})"
    )


def run(session: Session, sql: str, load: Load) -> None:
    """Loads rows.

    Raises LoadRefusedError when not all of them were taken as they are, after which rows of the table go by INSERT as
    long as it is what it is; MySQLError and OSError for what a retry may cure.
    """
    try:
        reason = server_objection(session) or shortfall(session.load(sql, memoryview(load.body)), load.rows)
    except MySQLError as error:
        if is_transient(error):
            raise
        reason = server_words(error)
    if reason:
        load.table.refused_loads.add(reason)
        log.info("rows go by INSERT", table=str(load.table.name), reason=reason)
        raise LoadRefusedError(f"LOAD DATA into {load.table.name}: {reason}")


def shortfall(answer: LoadAnswer, rows: int) -> str:
    """Why an answer does not say that so many rows were taken as they are, "" when it does.

    It reads `Records: 3  Deleted: 0  Skipped: 0  Warnings: 0`, in the language of the server's messages.
    """
    numbers = [int(number) for number in _NUMBERS.findall(answer.message)][-4:]  # before them may stand its length
    is_whole = len(numbers) == 4 and (numbers[0], numbers[2], numbers[3]) == (rows, 0, 0)
    if is_whole and answer.warnings == 0:
        return ""
    return f"{answer.warnings} warnings for {rows} rows: {answer.message.decode(errors='replace')}"
