"""Writes the error value of ENUM columns on TiDB, which takes it from a column alone.

It is copied from a temporary table: there NULL has become it, in a column that is NOT NULL, which INSERT IGNORE allows
with a warning of its own (tried on v8.5).  ON DUPLICATE KEY UPDATE would refuse it, so rows that have it are deleted
and written anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa

from bridge.events import SEP
from bridge.model import Table, TableName
from bridge.quoting import quote_name
from bridge.rows.literal_offsets import TEXT
from bridge.rows.net_changes import Image, KeyedChanges, KeylessChanges, WrittenRows
from bridge.rows.sql.members import with_zeros
from bridge.rows.sql.statement import Stage, Statement

_NAME: Final = "enum zero"


def zero_of_copy(scratch_schema: str) -> str:
    """Gives what the error value is copied from."""
    return f"(SELECT zero FROM {quote_name(scratch_schema, _NAME)})"


def zero_table(table: TableName, scratch_schema: str) -> Iterator[Statement]:
    """Gives the statements that make it; before those that write the table."""
    name = quote_name(scratch_schema, _NAME)
    for sql in (
        f"DROP TEMPORARY TABLE IF EXISTS {name}",
        f"CREATE TEMPORARY TABLE {name} (n INT PRIMARY KEY, zero ENUM('x') NOT NULL)",
        f"INSERT IGNORE INTO {name} VALUES (1,NULL)",
    ):
        yield Statement(Stage.DELETE, table, sql.encode())


class CopiedZeros(NamedTuple):
    """Net changes that copy the error value, and the statements that make the table which it is copied from."""

    net: KeyedChanges | KeylessChanges
    made: tuple[Statement, ...]


def copied_zeros(net: KeyedChanges | KeylessChanges, scratch_schema: str) -> CopiedZeros | None:
    """Has net changes copy the error value; None where they do not hold it."""
    literal = zero_of_copy(scratch_schema)
    copying = _keyless(net, literal) if isinstance(net, KeylessChanges) else _keyed(net, literal)
    return None if copying is None else CopiedZeros(copying, tuple(zero_table(net.table.name, scratch_schema)))


def _keyed(net: KeyedChanges, literal: str) -> KeyedChanges | None:
    written = [_freed(net.table, rows, literal) for rows in net.written]
    if not any(written):
        return None
    return replace(net, written=tuple(copying or rows for copying, rows in zip(written, net.written, strict=True)))


def _freed(table: Table, rows: WrittenRows, literal: str) -> WrittenRows | None:
    whole = pa.concat_arrays([rows.images, rows.freed])
    images = _changed(table, rows.columns, whole, literal)
    return None if images is None else WrittenRows(rows.columns, rows.images.slice(0, 0), images)


def _keyless(net: KeylessChanges, literal: str) -> KeylessChanges | None:
    def changed(image: Image) -> Image:
        images = _changed(net.table, image.columns, pa.array([image.literals], TEXT), literal)
        return image if images is None else image._replace(literals=images[0].as_py())

    copies = {image if count < 0 else changed(image): count for image, count in net.copies.items()}
    return None if copies == net.copies else replace(net, copies=copies)


def _changed(table: Table, columns: str, images: pa.Array, literal: str) -> pa.Array | None:
    """Gives images that copy the error value; None where none holds it."""
    types = [table.columns[name].type for name in columns.lower().split(SEP)]
    changed = with_zeros(images, types, literal)
    return None if changed is images else changed
