"""Writes the SQL of checksums that both servers compute alike.  Pure.

A row's text is its values in column order, joined by commas.  A value whose type cannot hold a comma is written as it
is, any other value after its length in bytes; NULL is written as the letter N, with which no value begins.  So
different rows have different texts.  A row's hash is the first 64 bits of the MD5 of its text; sets of rows are
compared by their number and the sum of their hashes (in an XOR, rows that come in pairs would cancel).

The rule for FLOAT and DOUBLE: the shortest decimal text of the value as a double.  Of the smallest ones, it is the text
of the value times 2^1000, and p-1000.  The text of -0 is another one than that of 0, so that it is written as it was;
rows that differ only there are loaded, and are equal.

Writes the SQL of keys: their order, ranges between two keys, and literals; and finds keys with few gaps.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from math import ldexp
from typing import Final

from bridge.model import quote_name
from bridge.mysql.table_definition import ColumnInfo, Definition, ValueClass
from bridge.protocols.values import literals
from bridge.rows.sql.members import member_names

COMMA: Final = "','"
UNICODE: Final = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})
"""Character sets whose bytes are those of utf8mb4."""
LOSSLESS: Final = frozenset({"latin1", "ucs2", "utf16", "utf16le", "utf32"})
"""Character sets that UTF-8 holds without loss.  Bytes of others may stand for no character, and become `?`."""
UNREADABLE: Final = b"\xff"
"""Comes before the bytes of a text whose characters alone do not tell its bytes; no text in utf8mb4 begins with it."""
_HUGE: Final = frozenset({"mediumtext", "longtext", "mediumblob", "longblob", "json"})
_INLINE_BYTES: Final = 65_535
"""A row's text holds the SHA-256 of values that are longer than this, so that it stays below max_allowed_packet."""
_PLAIN: Final = frozenset(
    {
        *(ValueClass.INTEGER, ValueClass.DECIMAL, ValueClass.FLOAT, ValueClass.DOUBLE, ValueClass.NUMBER),
        ValueClass.TEMPORAL,
    }
)
_EMPTY_MEMBER: Final = re.compile(r"[(,]''[,)]")
"""Where a SET has a member without letters, the text of its value does not tell whether it has any member."""
_SCALE: Final = 1000
_UNHASHED: Final = 10**30
"""What a row without a hash adds to the sum: more than the hashes of all rows do."""


@dataclass(frozen=True)
class Fingerprint:
    """The checksum of a set of rows.

    hashed: how many rows have a hash; fewer than `rows` when a text was too long.  total: the sum of the hashes.
    """

    rows: int
    hashed: int
    total: int

    def is_surely(self, other: Fingerprint) -> bool:
        """Tells whether both are of the same rows: the checksums are equal, and every row is part of them."""
        return self == other and self.rows == self.hashed

    def __add__(self, other: Fingerprint) -> Fingerprint:
        """Gives the checksum of both sets of rows together."""
        return Fingerprint(self.rows + other.rows, self.hashed + other.hashed, self.total + other.total)


def canonical(column: ColumnInfo, alias: str = "") -> str:
    """Writes the SQL expression of a value as text or bytes that all flavours print alike; NULL stays NULL."""
    name = _quoted(column, alias)
    match column.value_class:
        case ValueClass.INTEGER | ValueClass.DECIMAL:
            return f"{name}+0" if "zerofill" in column.type else name
        case ValueClass.FLOAT | ValueClass.DOUBLE:
            return _real(f"({name}*1e0)")
        case ValueClass.NUMBER:
            return f"CAST({name} AS UNSIGNED)"
        case ValueClass.NAME if column.data_type == "set" and not _EMPTY_MEMBER.search(column.type):
            # TiDB cannot read a value with most of 64 members as a number (1690).
            return f"CONCAT(LENGTH({name})=0,':',CONVERT({name} USING utf8mb4))"
        case ValueClass.NAME if column.data_type == "set":
            # Nor does it here: of values without letters, one has no member, and the other the one without letters.
            is_none = f"IF(LENGTH({name})=0,CAST({name} AS UNSIGNED)=0,0)"
            return f"CONCAT({is_none},':',CONVERT({name} USING utf8mb4))"
        case ValueClass.NAME:
            return f"CONCAT(CAST({name} AS UNSIGNED)=0,':',CONVERT({name} USING utf8mb4))"
        case ValueClass.TEXT if column.charset in UNICODE:
            return name
        case ValueClass.TEXT | ValueClass.JSON if column.charset in LOSSLESS or column.data_type == "json":
            return f"CONVERT({name} USING utf8mb4)"
        case ValueClass.TEXT | ValueClass.JSON:
            text, content = f"CONVERT({name} USING utf8mb4)", f"CAST({name} AS BINARY)"
            is_whole = f"CAST(CONVERT({text} USING {column.charset}) AS BINARY)={content}"
            return f"IF({is_whole},CAST({text} AS BINARY),CONCAT(x'{UNREADABLE.hex()}',{content}))"
        case ValueClass.TEMPORAL | ValueClass.BINARY:
            return name
        case ValueClass.OTHER:
            return f"HEX({name})"


def _real(number: str) -> str:
    """Writes the SQL expression of a double as text that has all its digits.

    MySQL cuts a number's text at 22 characters, so that negative numbers and small ones would lose the last of 17
    digits.  The sign is therefore written apart, and what has more than 22 characters even so is multiplied by a
    power of 2, which changes no digit of its value.
    """
    size = f"ABS({number})"
    text = f"IF({size}=0 OR {size}>=1e-99,{size},CONCAT({size}*{2.0**_SCALE!r},'p-{_SCALE}'))"
    return f"CONCAT(IF({number}<0 OR ({number}=0 AND LEFT({number},1)='-'),'-',''),{text})"


def real_number(value: bytes) -> float:
    """Reads the canonical text of a FLOAT or DOUBLE."""
    digits, _, power = value.partition(b"p")
    return ldexp(float(digits), int(power or 0))


def token(column: ColumnInfo, alias: str = "") -> str:
    """Writes the SQL expression of a value as its row's text holds it."""
    value = canonical(column, alias)
    if column.value_class in _PLAIN:
        return f"IFNULL({value},'N')"
    content = value
    if column.data_type in _HUGE:
        # As bytes: MariaDB joins no text of ascii with one of the connection's character set (error 1267).
        content = f"IF(LENGTH({value})>{_INLINE_BYTES},CAST(SHA2({value},256) AS BINARY),{value})"
    return f"IFNULL(CONCAT(LENGTH({value}),':',{content}),'N')"


def readable(column: ColumnInfo, alias: str = "") -> str:
    """Writes the SQL expression of the canonical value in hex, so that no driver or character set can change it."""
    return f"HEX(CONCAT({canonical(column, alias)}))"


def row_hash(tokens: Sequence[str], separator: str = COMMA) -> str:
    """Writes the SQL expression of 64 bits of the MD5 of a row's text, as a number.  The separator makes all of it
    bytes: texts of two _bin collations cannot be joined as texts (error 1271)."""
    digest = f"MD5(CONCAT_WS(CAST({separator} AS BINARY),{','.join(tokens)}))"
    return f"CAST(CONV(LEFT({digest},16),16,10) AS UNSIGNED)"


def fingerprint_query(tokens: Sequence[str], *rows: str, separator: str = COMMA) -> str:
    """Writes the query of a fingerprint.  rows: its FROM and WHERE, for each table that takes part.  separator: of the
    tokens, as a literal.

    Each hash is used once, since the server would compute it again for each use; an inner query with the hashes would
    write them to a table, and costs a third more where that does not fit into memory.
    """
    total = f"COALESCE(SUM(IFNULL({row_hash(tokens, separator)},{_UNHASHED})),0)"
    first, *more = (f"SELECT COUNT(*) AS found,{total} AS total {source}" for source in rows)
    return f"SELECT SUM(found),SUM(total) FROM ({' UNION ALL '.join([first, *more])}) parts" if more else first


def fingerprint_of(row: Sequence[object]) -> Fingerprint:
    """Reads the answer to a fingerprint query."""
    rows, total = (int(str(value)) for value in row)
    unhashed, total = divmod(total, _UNHASHED)
    return Fingerprint(rows, rows - unhashed, total)


KeyValues = tuple[bytes | None, ...]
"""Canonical values (`checksums.canonical`) of a key or a row."""

_FLOAT32: Final = struct.Struct("f")


@dataclass(frozen=True)
class KeyPart:
    """One column of a key on one server.

    ordered: the SQL expression that ranges and ORDER BY use.
    collate: what is put behind a text literal to compare it with `ordered`.
    """

    column: ColumnInfo
    ordered: str
    collate: str
    alias: str

    @property
    def is_plain(self) -> bool:
        """Whether ranges are in the order of the column itself, which an index supports."""
        return self.ordered == _quoted(self.column, self.alias)

    def literal(self, value: bytes) -> str:
        """Writes a literal that can be compared with `ordered`."""
        if self.column.value_class is ValueClass.NAME:
            return f"_utf8mb4 x'{value[2:].hex()}' COLLATE utf8mb4_bin"
        if self.column.value_class not in {ValueClass.TEXT, ValueClass.JSON}:
            return literal_of(self.column, value)
        if value.startswith(UNREADABLE):
            return self.collate.format(literal_of(self.column, value))
        text = f"_utf8mb4 x'{value.hex()}'" if value else "_utf8mb4 ''"
        return f"{self.collate.format(text)}"


def key_parts(
    columns: Sequence[ColumnInfo], other_columns: Sequence[ColumnInfo], alias: str = ""
) -> tuple[KeyPart, ...]:
    """Gives the parts of a key on one of two servers.

    Where both columns have the same collation, its own order is used, which an index supports.  Otherwise text is
    ordered by utf8mb4_bin on both sides, so that a range holds the same keys on both.
    """
    return tuple(_part(column, other, alias) for column, other in zip(columns, other_columns, strict=True))


def _part(column: ColumnInfo, other: ColumnInfo, alias: str) -> KeyPart:
    name = _quoted(column, alias)
    if column.value_class is ValueClass.NAME:
        return KeyPart(column, f"CONVERT({name} USING utf8mb4) COLLATE utf8mb4_bin", "", alias)
    if column.value_class not in {ValueClass.TEXT, ValueClass.JSON}:
        return KeyPart(column, name, "", alias)
    if column.collation == other.collation:
        return KeyPart(column, name, f"CONVERT({{}} USING {column.charset}) COLLATE {column.collation}", alias)
    return KeyPart(column, f"CONVERT({name} USING utf8mb4) COLLATE utf8mb4_bin", "{} COLLATE utf8mb4_bin", alias)


def _quoted(column: ColumnInfo, alias: str) -> str:
    return quote_name(alias, column.name) if alias else quote_name(column.name)


def in_key_order(definition: Definition, parts: Sequence[KeyPart]) -> str:
    """Writes the hint behind a table in FROM that has ranges of these parts read where they lie, if they follow the
    primary key; "" elsewhere.

    MariaDB 11.4 else reads a whole table for a range of a third of it: 4.6 instead of 4.1 core-seconds for 2,000,000
    rows on both sides.
    """
    names = tuple(part.column.name.lower() for part in parts)
    primary = definition.indexes.get("PRIMARY")
    if not names or primary is None or primary.parts[: len(names)] != names:
        return ""
    return " FORCE INDEX (PRIMARY)" if all(part.is_plain for part in parts) else ""


def boundary_query(parts: Sequence[KeyPart], rows: str, offset: int, *more_rows: str) -> str:
    """Writes the query of the key that is `offset` rows behind the first, in canonical form.  rows, more_rows: its FROM
    and WHERE, for each table that takes part."""
    values = ",".join(readable(part.column, part.alias) for part in parts)
    order = ",".join(part.ordered for part in parts)
    if not more_rows:
        return f"SELECT {values} {rows} ORDER BY {order} LIMIT 1 OFFSET {offset}"
    named_values = ",".join(f"{readable(part.column, part.alias)} AS v{i}" for i, part in enumerate(parts))
    places = ",".join(f"{part.ordered} AS o{i}" for i, part in enumerate(parts))
    sources = (rows, *more_rows)
    queries = (f"(SELECT {named_values},{places} {source} ORDER BY {order} LIMIT {offset + 1})" for source in sources)
    numbers = range(len(parts))
    return (
        f"SELECT {','.join(f'v{i}' for i in numbers)} FROM ({' UNION ALL '.join(queries)}) found"
        f" ORDER BY {','.join(f'o{i}' for i in numbers)} LIMIT 1 OFFSET {offset}"
    )


def between(parts: Sequence[KeyPart], low: KeyValues | None, high: KeyValues | None) -> str:
    """Writes the condition for keys above `low` and not above `high`; None means no bound."""
    conditions = []
    if low is not None:
        conditions.append(_beyond(parts, low, ">", ">"))
    if high is not None:
        conditions.append(_beyond(parts, high, "<", "<="))
    return " AND ".join(conditions) or "1=1"


def _beside(part: KeyPart, sign: str, value: bytes | None) -> str:
    assert value is not None, "a key has no NULL"
    return f"{part.ordered}{sign}{part.literal(value)}"


def _beyond(parts: Sequence[KeyPart], bound: KeyValues, sign: str, last_sign: str) -> str:
    """Writes the condition for keys on one side of a bound.  Keys are compared column by column, since servers use no
    index for the form (a, b) > (1, 2)."""
    last = len(parts) - 1
    steps = [
        " AND ".join(
            _beside(parts[j], "=" if j < i else last_sign if i == last else sign, bound[j]) for j in range(i + 1)
        )
        for i in range(len(parts))
    ]
    if len(steps) == 1:
        return steps[0]
    return f"{_beside(parts[0], f'{sign}=', bound[0])} AND ({' OR '.join(f'({step})' for step in steps)})"


def any_of(parts: Sequence[KeyPart], keys: Sequence[KeyValues]) -> str:
    """Writes the condition for these keys."""
    conditions_of_keys = (map(_beside, parts, repeat("="), key) for key in keys)
    return " OR ".join(f"({' AND '.join(conditions)})" for conditions in conditions_of_keys)


def literal_of(column: ColumnInfo, value: bytes | None) -> str:
    """Writes a canonical value as a literal, in the form in which decoders give theirs."""
    if value is None:
        return literals.NULL
    match column.value_class:
        case ValueClass.INTEGER | ValueClass.DECIMAL | ValueClass.NUMBER:
            return value.decode()
        case ValueClass.FLOAT:
            return literals.double_number(_FLOAT32.unpack(_FLOAT32.pack(real_number(value)))[0])
        case ValueClass.DOUBLE:
            return literals.double_number(real_number(value))
        case ValueClass.NAME if column.data_type == "set":
            return _mask(column.type, value) or literals.text(value[2:].decode())
        case ValueClass.NAME:
            return "0" if value[:1] == b"1" and column.data_type == "enum" else literals.text(value[2:].decode())
        case ValueClass.TEXT if value.startswith(UNREADABLE):
            return f"_{column.charset} x'{value[1:].hex()}'"
        case ValueClass.TEMPORAL | ValueClass.TEXT | ValueClass.JSON:
            return literals.text(value.decode())
        case ValueClass.BINARY:
            return literals.binary(value)
        case ValueClass.OTHER:
            return f"x'{value.decode()}'"


def _mask(column_type: str, value: bytes) -> str:
    """Writes a SET by its number where one of its members has no letters, which a text does not tell; "" elsewhere."""
    members = member_names(column_type)
    names = [] if value[:1] == b"1" else value[2:].decode().split(",")
    if "" not in members or not set(names).issubset(members):
        return ""
    return str(sum(1 << members.index(name) for name in names))
