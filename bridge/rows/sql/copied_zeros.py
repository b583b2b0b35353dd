"""Writes the error value of ENUM columns on TiDB, which takes it from a column alone.

It is copied from a temporary table: there NULL has become it, in a column that is NOT NULL, which INSERT IGNORE allows
with a warning of its own (tried on v8.5).  ON DUPLICATE KEY UPDATE would refuse it, so rows that have it are deleted
and written anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa

from bridge.events import SEP
from bridge.model import Table
from bridge.quoting import quote_name
from bridge.rows.arrow_images import TEXT
from bridge.rows.net_changes import Image, KeyedChanges, KeylessChanges, NetChanges, WrittenRows
from bridge.rows.sql.enum_zeros import with_zeros
from bridge.rows.sql.statement import Stage, Statement

_NAME: Final = "enum zero"


class CopiedZeros(NamedTuple):
    """Net changes that copy the error value, and the statements that make the table which it is copied from."""

    net: NetChanges
    made: tuple[Statement, ...]


def copied_zeros(net: NetChanges, scratch_schema: str) -> CopiedZeros | None:
    """Has net changes copy the error value; None where they do not hold it."""
    name = quote_name(scratch_schema, _NAME)
    literal = f"(SELECT zero FROM {name})"
    found = _keyless(net, literal) if isinstance(net, KeylessChanges) else _keyed(net, literal)
    if found is None:
        return None
    made = (
        f"DROP TEMPORARY TABLE IF EXISTS {name}",
        f"CREATE TEMPORARY TABLE {name} (n INT PRIMARY KEY, zero ENUM('x') NOT NULL)",
        f"INSERT IGNORE INTO {name} VALUES (1,NULL)",
    )
    return CopiedZeros(found, tuple(Statement(Stage.KEEP, net.table.name, sql.encode()) for sql in made))


def _keyed(net: KeyedChanges, literal: str) -> NetChanges | None:
    written = [_freed(net.table, rows, literal) for rows in net.written]
    patched = [_changed(net.table, rows.columns, rows.images, literal) for rows in net.patched]
    if not any(rows is not None for rows in (*written, *patched)):
        return None
    return replace(
        net,
        written=tuple(new or old for new, old in zip(written, net.written, strict=True)),
        patched=tuple(
            old if images is None else old._replace(images=images)
            for images, old in zip(patched, net.patched, strict=True)
        ),
    )


def _freed(table: Table, rows: WrittenRows, literal: str) -> WrittenRows | None:
    whole = pa.concat_arrays([rows.images, rows.freed])
    images = _changed(table, rows.columns, whole, literal)
    return None if images is None else WrittenRows(rows.columns, rows.images.slice(0, 0), images)


def _keyless(net: KeylessChanges, literal: str) -> NetChanges | None:
    def changed(image: Image) -> Image:
        images = _changed(net.table, image.columns, pa.array([image.literals], TEXT), literal)
        return image if images is None else image._replace(literals=images[0].as_py())

    copies = dict(_copies(net, changed))
    moves = tuple((was, changed(now), count) for was, now, count in net.moves)
    is_same = copies == net.copies and moves == net.moves
    return None if is_same else replace(net, copies=copies, moves=moves)


def _copies(net: KeylessChanges, changed: Callable[[Image], Image]) -> Iterator[tuple[Image, int]]:
    for image, count in net.copies.items():
        yield (image if count < 0 else changed(image)), count


def _changed(table: Table, columns: str, images: pa.Array, literal: str) -> pa.Array | None:
    """Gives images that copy the error value; None where none holds it."""
    types = [table.columns[name].type for name in columns.lower().split(SEP)]
    found = with_zeros(images, types, literal)
    return None if found is images else found
