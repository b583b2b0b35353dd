"""Genuine captures and the end states that belong to them."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pymysql
from sqlalchemy import make_url

from bridge.model import quote_name

PROTOCOLS = {
    "canal-ext": "canal-json",
    "canal-rowkey": "canal-json",
    "canal-compat": "canal-json",
    "canal-updated-only": "canal-json",
    "canal-delete-handle": "canal-json",
    "canal": "canal-json",
    "debezium": "debezium",
    "debezium-noschema": "debezium",
    "debezium-ext": "debezium",
    "debezium-noschema-ext": "debezium",
    "open": "open-protocol",
    "open-lz4": "open-protocol",
    "open-updated-only": "open-protocol",
    "open-delete-handle": "open-protocol",
}
CUT_ROWS = {"canal-handle-key-only": "canal-json", "open-handle-key-only": "open-protocol"}
"""Variants that hold the key only of large rows."""
ZONES = {"all_types_tz8": "Asia/Shanghai"}
OFFSETS = {"UTC": "+00:00", "Asia/Shanghai": "+08:00"}
FILTERS = {"all_types": ("!*.vecs",), "all_types_tz8": ("!*.vecs",)}
"""MariaDB 11.4 has no VECTOR."""

_NAME = r"`((?:[^`]|``)+)`"
_COLUMN = re.compile(rf"  {_NAME} (\w+(?:\((?:'(?:[^']|'')*'|[^')])*\))?(?: unsigned)?(?: zerofill)?)(.*)")
_PART = re.compile(rf"{_NAME}(?:\((\d+)\))?")
_KEY = re.compile(rf"  (PRIMARY|UNIQUE) KEY (?:{_NAME} )?\(((?:{_PART.pattern},?)+)\)")


def capture(golden: Path, variant: str, script: str) -> Path:
    """The capture file."""
    return golden / variant / f"{script}.jsonl"


def replay_arguments(golden: Path, variant: str, script: str, target: str, *more: str) -> list[str]:
    """What `bridge` is given to replay a capture."""
    return [
        *("replay", "--protocol", (PROTOCOLS | CUT_ROWS)[variant], "--input", str(capture(golden, variant, script))),
        *("--target", target, "--timezone", ZONES.get(script, "UTC")),
        *(part for rule in FILTERS.get(script, ()) for part in ("--filter", rule)),
        *more,
    ]


class Column(NamedTuple):
    """Name, type and nullability as SHOW CREATE prints them."""

    name: str
    type: str
    is_nullable: bool


@dataclass(frozen=True)
class Definition:
    """keys: columns of the primary key and of each unique key, with prefix lengths where there are any."""

    columns: tuple[Column, ...]
    primary: tuple[str, ...]
    unique: frozenset[tuple[str, ...]]


@dataclass(frozen=True)
class Expected:
    """One table of an end state: definition, the expression selected for each column, and the rows as text."""

    schema: str
    table: str
    definition: Definition
    expressions: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]


def expected_tables(golden: Path, script: str) -> list[Expected]:
    """The end state of a script, without what the filter leaves out."""
    return tables_of(golden / "expected" / f"{script}.json")


def tables_of(path: Path) -> list[Expected]:
    """The tables of an end state, without what the filter leaves out."""
    state = json.loads(path.read_text(encoding="utf-8"))
    tables = []
    for qualified, table in state["tables"].items():
        schema, _, name = qualified.partition(".")
        if name != "vecs":
            rows = tuple(tuple(row) for row in table["rows"])
            expressions = tuple(column["expr"] for column in table["columns"])
            tables.append(Expected(schema, name, definition_of(table["create"]), expressions, rows))
    return tables


def definition_of(create: str) -> Definition:
    """Reads SHOW CREATE TABLE as TiDB prints it."""
    columns, primary, unique = [], (), set()
    for line in create.splitlines():
        if column := _COLUMN.match(line):
            columns.append(Column(column[1].replace("``", "`"), column[2], "NOT NULL" not in column[3]))
        elif key := _KEY.match(line):
            parts = tuple(
                name.replace("``", "`") + (f"({length})" if length else "") for name, length in _PART.findall(key[3])
            )
            if key[1] == "PRIMARY":
                primary = parts
            else:
                unique.add(parts)
    return Definition(tuple(columns), primary, frozenset(unique))


class Reader:
    """Reads the target as text, in a time zone."""

    def __init__(self, url: str, zone: str = "UTC") -> None:
        parts = make_url(url)
        self._connection: Any = pymysql.connect(
            host=parts.host, port=parts.port or 3306, user=parts.username, password=parts.password or "",
            charset="utf8mb4", conv={}, autocommit=True,
        )  # fmt: skip
        self.query(f"SET time_zone = '{OFFSETS[zone]}'")
        self._is_tidb = "TiDB" in str(self.query("SELECT VERSION()")[0][0])

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        """The rows of a query, each value as the server's text."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return [tuple(map(_text, row)) for row in cursor.fetchall()]

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    def definition(self, table: Expected) -> Definition:
        """What the target has, in the words of TiDB where MariaDB has others."""
        if self._is_tidb:  # its information_schema tells nothing of ZEROFILL
            return definition_of(str(self.query(f"SHOW CREATE TABLE {quote_name(table.schema, table.table)}")[0][1]))
        where = f"table_schema = '{table.schema}' AND table_name = '{table.table}'"
        columns = self.query(
            "SELECT column_name, column_type, is_nullable FROM information_schema.columns"
            f" WHERE {where} ORDER BY ordinal_position"
        )
        keys: dict[str, list[str]] = {}
        for key, column, length in self.query(
            "SELECT index_name, column_name, sub_part FROM information_schema.statistics"
            f" WHERE {where} AND non_unique = 0 ORDER BY index_name, seq_in_index"
        ):
            keys.setdefault(str(key), []).append(f"{column}({length})" if length else str(column))
        primary = tuple(keys.pop("PRIMARY", ()))
        found = (Column(str(name), str(kind), nullable == "YES") for name, kind, nullable in columns)
        return Definition(tuple(found), primary, frozenset(map(tuple, keys.values())))

    def rows(self, table: Expected) -> list[tuple[object, ...]]:
        """All rows, comparable with `comparable`."""
        columns = zip(table.expressions, table.definition.columns, strict=True)
        selected = ", ".join(_expression(expression, column.type) for expression, column in columns)
        return comparable(table, self.query(f"SELECT {selected} FROM {quote_name(table.schema, table.table)}"))


def comparable(table: Expected, rows: Iterable[tuple[str | None, ...]]) -> list[tuple[object, ...]]:
    """Rows with floating-point numbers by their value, in an order of their own."""
    readers = [_reader(column.type) for column in table.definition.columns]
    read = (
        tuple(None if value is None else reader(value) for reader, value in zip(readers, row, strict=True))
        for row in rows
    )
    return sorted(read, key=repr)


def differences(url: str, golden: Path, script: str, variant: str = "") -> list[str]:
    """What of the end state, as far as the variant can carry it, the target does not have, and what it has instead."""
    tables = expected_tables(golden, script)
    carried = map(as_debezium_carries_it, tables) if variant.startswith("debezium") else tables
    return differences_from(carried, url, ZONES.get(script, "UTC"))


def differences_from(tables: Iterable[Expected], url: str, zone: str = "UTC") -> list[str]:
    """What of these tables the target does not have, and what it has instead."""
    reader = Reader(url, zone)
    try:
        return [line for table in tables for line in _differences(reader, table)]
    finally:
        reader.close()


def as_debezium_carries_it(table: Expected) -> Expected:
    """A DECIMAL is a float64, and a zero date is NULL, or the first day of 1970 (types-seen)."""
    columns = table.definition.columns
    rows = (tuple(map(_carried, columns, row)) for row in table.rows)
    return replace(table, rows=tuple(rows))


def _carried(column: Column, value: str | None) -> str | None:
    if value is None:
        return None
    if column.type.startswith(("date", "datetime")) and (value.startswith("0000") or "-00" in value):
        return None if column.is_nullable else "1970-01-01"
    is_largest = set(value.lstrip("-0.")) - {"."} == {"9"}  # which the column's range tells
    if column.type.startswith("decimal") and not is_largest:
        return f"{Decimal(repr(float(value))):.{len(value.partition('.')[2])}f}"
    return value


def _differences(reader: Reader, table: Expected) -> list[str]:
    name = f"{table.schema}.{table.table}"
    wanted, found = plain(table.definition), plain(reader.definition(table))
    if not found.columns:
        return [f"{name} is missing"]
    said = [f"{name}: {has} instead of {has_not}" for has, has_not in _unlike(found, wanted)]
    rows, expected = reader.rows(table), comparable(table, table.rows)
    if rows != expected:
        missing, extra = [r for r in expected if r not in rows], [r for r in rows if r not in expected]
        said.append(f"{name}: {len(rows)} rows for {len(expected)}; missing {missing[:5]}, too many {extra[:5]}")
    return said


def _unlike(found: Definition, wanted: Definition) -> Iterator[tuple[object, object]]:
    keys = (found.primary, wanted.primary), (found.unique, wanted.unique)
    return (pair for pair in (*zip_longest(found.columns, wanted.columns), *keys) if pair[0] != pair[1])


def plain(definition: Definition) -> Definition:
    """As all servers print it."""
    columns = (column._replace(type=plain_type(column.type)) for column in definition.columns)
    return Definition(tuple(columns), definition.primary, definition.unique)


def plain_type(kind: str) -> str:
    """JSON is LONGTEXT in MariaDB, MySQL 8.0 prints integers without a width, and information_schema shows no character
    outside of the BMP."""
    if kind == "json":
        return "longtext"
    if kind == "geomcollection":  # MySQL 8.0
        return "geometrycollection"
    without_width = kind if "zerofill" in kind else re.sub(r"^(\w*int|year)\(\d+\)", r"\1", kind)
    return re.sub("[\U00010000-\U0010ffff]", "?", without_width)


def _expression(expression: str, kind: str) -> str:
    """FLOAT prints with 6 digits only; YEAR and ZEROFILL are padded unless they are numbers."""
    if kind.startswith("float"):
        return f"{expression} + 0e0"
    return f"{expression} + 0" if kind.startswith("year") or kind.endswith("zerofill") else expression


def _reader(kind: str) -> Callable[[str], object]:
    if kind.startswith("float"):
        return lambda text: struct.unpack("f", struct.pack("f", float(text)))[0]
    return float if kind.startswith("double") else str


def _text(value: object) -> str | None:
    return value.decode() if isinstance(value, bytes) else None if value is None else str(value)
