"""Writes conditions by keys and by whole rows, and chooses the columns that are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from bridge.errors import ApplyError
from bridge.events import SEP
from bridge.model import Column, Table
from bridge.quoting import quote_name
from bridge.rows.keys.key_spellings import spelled_texts
from bridge.rows.literal_offsets import joined, parts_of, wrapped
from bridge.rows.sql import members
from bridge.rows.sql.statement import cut_to_statements

KEYS_PER_DELETE = 2000
_VALUES_PER_GUARD: Final = 200


class WrittenColumns(NamedTuple):
    """The columns of a column list that are written: those of the target, their names, and positions in the image."""

    columns: tuple[Column, ...]
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
        columns_written = tuple(columns_sent[i] for i in positions)
        names = tuple(column.name for column in columns_written)
        return cls(columns_written, names, None if len(positions) == len(columns_sent) else tuple(positions))

    def with_zeros(self, images: pa.Array) -> pa.Array:
        """Gives images of the columns that are written with the literals by which ENUM's error values are written."""
        return members.with_zeros(images, [column.type for column in self.columns])

    def literals_of(self, image: Sequence[str]) -> Sequence[str]:
        """Gives the literals of an image that are written."""
        return image if self.positions is None else [image[at] for at in self.positions]


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


def guards(table: Table, unique: tuple[str, ...], values: Sequence[Sequence[str]], but: str = "") -> Iterator[str]:
    """Gives queries of rows whose values of a unique key are one with these to the server, and whose texts have other
    bytes: such a row must not be overwritten.  but: a further condition.

    TiDB would take a text that equals a literal for the literal, bytes included: it does not see that two bounds are
    one.
    """
    texts, lengths = spelled_texts(table, unique), table.prefixes.get(unique, (None,) * len(unique))
    names = [quote_name(table.columns[part].name) for part in unique]

    def is_other(literals: Sequence[str]) -> str:
        equal, same_bytes = list[str](), list[str]()
        for part, name, literal, length in zip(unique, names, literals, lengths, strict=True):
            column, value = (f"LEFT({name},{length})", f"LEFT({literal},{length})") if length else (name, literal)
            if part in texts:
                own = column if literal.startswith("x'") else f"CONVERT({column} USING utf8mb4)"
                equal.append(f"{column}>={value} AND {column}<={value}")
                same_bytes.append(f"CAST({own} AS BINARY)=CAST({value} AS BINARY)")
            else:
                equal.append(f"{column}={value}")
        return f"({' AND '.join(equal)} AND NOT ({' AND '.join(same_bytes)}))"

    for start in range(0, len(values), _VALUES_PER_GUARD):
        batch = values[start : start + _VALUES_PER_GUARD]
        if len(unique) == 1 and len(batch) > 1 and not any(lengths) and all(one[0].startswith("'") for one in batch):
            body = ",".join(one[0] for one in batch)
            where = f"{names[0]} IN ({body}) AND CAST(CONVERT({names[0]} USING utf8mb4) AS BINARY) NOT IN ({body})"
        else:
            where = f"({' OR '.join(map(is_other, batch))})"
        yield f"SELECT {','.join(names)} FROM {quote_name(*table.name)} WHERE {where}{but} LIMIT 1"


def binary_match(written: WrittenColumns, image: Sequence[str]) -> str:
    """Gives the condition that finds rows with exactly the values of an image (its literals)."""
    return " AND ".join(map(_match, written.columns, written.literals_of(image)))


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
