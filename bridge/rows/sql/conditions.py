"""Writes conditions by keys and by whole rows, and chooses the columns that are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa

from bridge.errors import ApplyError
from bridge.events import SEP
from bridge.model import Column, Table
from bridge.quoting import quote_name
from bridge.rows.keys.key_spellings import spelled_texts
from bridge.rows.literal_offsets import joined, parts_of, runs, wrapped
from bridge.rows.net_changes import Image
from bridge.rows.sql import members
from bridge.rows.sql.statement import STATEMENT_BYTES, cut_to_statements

KEYS_PER_DELETE = 2000


class WrittenColumns(NamedTuple):
    """The columns of a column list that are written: names on the target, and positions in the image."""

    names: tuple[str, ...]
    positions: tuple[int, ...] | None
    """None when the whole image is written."""

    @classmethod
    def of(cls, table: Table, columns: str) -> WrittenColumns:
        """Chooses the columns of a message's column list that are written.  Raises ApplyError when the target lacks one
        of them."""
        message_names = columns.split(SEP)
        missing = [name for name in message_names if name.lower() not in table.columns]
        if missing:
            raise ApplyError(
                f"the target's table lacks the column {missing[0]}",
                where=str(table.name),
                fix="a schema change is missing on the target; add the column as it is upstream, or begin later"
                " (--from)",
            )
        columns_sent = [table.columns[name.lower()] for name in message_names]
        positions = [i for i, column in enumerate(columns_sent) if not column.generated]
        names = tuple(columns_sent[i].name for i in positions)
        return cls(names, None if len(positions) == len(columns_sent) else tuple(positions))

    def with_zeros(self, table: Table, images: pa.Array) -> pa.Array:
        """Gives images of the columns that are written with the literals by which ENUM's error values are written."""
        return members.with_zeros(images, [table.columns[name.lower()].type for name in self.names])

    def literals_of(self, image: Image) -> list[str]:
        """Gives the literals of an image that are written."""
        literals = image.literals.split(SEP)
        return literals if self.positions is None else [literals[i] for i in self.positions]


def keys_of(columns: str, images: pa.Array, key: tuple[str, ...]) -> pa.Array:
    """Gives the keys of images of one column list."""
    names = columns.lower().split(SEP)
    return joined(parts_of(images, [names.index(part) for part in key]))


def key_conditions(table: Table, key: tuple[str, ...], keys: pa.Array) -> Iterator[str]:
    """Gives conditions that find the rows of these keys, each as long as a statement may be."""
    names = [quote_name(table.columns[part].name) for part in key]
    if len(names) == 1:
        for body in cut_to_statements(keys, ",", KEYS_PER_DELETE):
            yield f"{names[0]} IN ({body})"
        return
    template = [f"({names[0]}=", *(f" AND {name}=" for name in names[1:]), ")"]
    yield from cut_to_statements(wrapped(template, parts_of(keys, range(len(names)))), " OR ", KEYS_PER_DELETE)


def spelled_conditions(table: Table, key: tuple[str, ...], keys: pa.Array) -> Iterator[str]:
    """Gives conditions that find the rows of these keys whose texts have the same bytes as the keys."""
    texts = spelled_texts(table, key)
    columns = [(quote_name(table.columns[part].name), part in texts) for part in key]
    is_one_text = len(key) == 1 and bool(texts)
    for batch in runs(keys, STATEMENT_BYTES // 2, KEYS_PER_DELETE):
        parts = parts_of(batch, range(len(key)))
        if is_one_text and len(batch) > 1:
            body = ",".join(batch.to_pylist())
            yield f"{columns[0][0]} IN ({body}) AND {_bytes_of(columns[0][0])} IN ({body})"
        else:
            is_equal, is_same_bytes = (
                " OR ".join(_wrapped([compare(*column) for column in columns], parts))
                for compare in (_equal, _same_bytes)
            )
            yield f"({is_equal}) AND ({is_same_bytes})"


def _bytes_of(column: str) -> str:
    """Gives the bytes of a text as utf8mb4, in which literals are."""
    return f"CAST(CONVERT({column} USING utf8mb4) AS BINARY)"


_Pieces = list[tuple[str, str]]
"""A condition on one column: what stands before and behind its literal, each time that it holds it."""


def _equal(name: str, is_text: bool) -> _Pieces:
    """Compares as the collation does.  TiDB would take a text that equals a literal for the literal, bytes included:
    it does not see that two bounds are one."""
    return [(f"{name}>=", " AND "), (f"{name}<=", "")] if is_text else [(f"{name}=", "")]


def _same_bytes(name: str, is_text: bool) -> _Pieces:
    """Compares the bytes of a text."""
    return [(f"{_bytes_of(name)}=CAST(", " AS BINARY)")] if is_text else _equal(name, is_text)


def _wrapped(columns: Sequence[_Pieces], parts: Sequence[pa.Array]) -> list[str]:
    """Writes the condition of each key: those of its columns."""
    template, literals = ["("], []
    for number, (pieces, part) in enumerate(zip(columns, parts, strict=True)):
        for before, behind in pieces:
            template[-1] += before if number == 0 or before != pieces[0][0] else f" AND {before}"
            template.append(behind)
            literals.append(part)
    conditions: list[str] = wrapped([*template[:-1], template[-1] + ")"], literals).to_pylist()
    return conditions


def prefix_conditions(table: Table, unique: tuple[str, ...], keys: pa.Array) -> Iterator[str]:
    """Does what `key_conditions` does, by the beginnings of values that a unique key holds.  No index supports that."""
    sides: list[list[str]] = []
    for part, length in zip(unique, table.prefixes[unique], strict=True):
        name = quote_name(table.columns[part].name)
        sides.append([f"LEFT({name},{length})=LEFT(", f",{length})"] if length else [f"{name}=", ""])
    ends = [f"{end} AND {begin}" for (_, end), (begin, _) in pairwise(sides)]
    template = [f"({sides[0][0]}", *ends, f"{sides[-1][1]})"]
    yield from cut_to_statements(wrapped(template, parts_of(keys, range(len(unique)))), " OR ", KEYS_PER_DELETE)


def binary_match(table: Table, image: Image) -> str:
    """Gives the condition that finds rows with exactly the image's values.

    Raises ApplyError when the target lacks a column of the image.
    """
    written = WrittenColumns.of(table, image.columns)
    columns = (table.columns[name.lower()] for name in written.names)
    return " AND ".join(map(_match, columns, written.literals_of(image)))


def set_by_themselves(table: Table) -> Iterator[str]:
    """Gives the columns that an UPDATE may change without naming them (ON UPDATE CURRENT_TIMESTAMP)."""
    for column in table.columns.values():
        if not column.generated and column.type.startswith(("timestamp", "datetime")):
            yield column.name


def _match(column: Column, literal: str) -> str:
    name, literal = quote_name(column.name), members.compared(column, literal)
    if column.type == "json" and literal != "NULL":  # JSON of MySQL and TiDB; MariaDB's is text
        document = f"CAST({literal} AS JSON)"
        return f"{name}<=>{document} AND CAST({name} AS BINARY)<=>CAST({document} AS BINARY)"  # 1 = 1.0
    plain = f"{name}<=>{literal}"
    if column.charset is None or literal[0] not in "'x":  # NULL, or the number of an ENUM or SET value
        return plain
    # Equal under the column's collation (which an index supports), and equal byte for byte in its character set.
    return f"{plain} AND CAST({name} AS BINARY)<=>CAST(CONVERT({literal} USING {column.charset}) AS BINARY)"
