"""Writes the SQL of checksums that both servers compute alike.  Pure.

A row's text is its values in column order, joined by commas.  A value whose type cannot hold a comma is written as it
is, any other value after its length in bytes; NULL is written as the letter N, with which no value begins.  So
different rows have different texts.  A row's hash is the first 64 bits of the MD5 of its text; sets of rows are
compared by their number and the sum of their hashes (in an XOR, rows that come in pairs would cancel).

The rule for FLOAT and DOUBLE: the shortest decimal text of the value as a double.  Of the smallest ones, it is the text
of the value times 2^1000, and p-1000.  The text of -0 is another one than that of 0, so that it is written as it was;
rows that differ only there are loaded, and are equal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import ldexp
from typing import Final

from bridge.mysql.table_definition import ColumnInfo, ValueClass
from bridge.quoting import quote_name

COMMA: Final = "','"
UNICODE: Final = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})
"""Character sets whose bytes are those of utf8mb4."""
LOSSLESS: Final = frozenset({"latin1", "ucs2", "utf16", "utf16le", "utf32"})
"""Character sets that UTF-8 can hold without loss.  Others have bytes that stand for no character, which all become a
question mark."""
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

    @property
    def is_whole(self) -> bool:
        """Whether every row is part of the checksum."""
        return self.rows == self.hashed

    def __add__(self, other: Fingerprint) -> Fingerprint:
        """Gives the checksum of both sets of rows together."""
        return Fingerprint(self.rows + other.rows, self.hashed + other.hashed, self.total + other.total)


def canonical(column: ColumnInfo, alias: str = "") -> str:
    """Writes the SQL expression of a value as text or bytes that all flavours print alike; NULL stays NULL."""
    name = quote_name(alias, column.name) if alias else quote_name(column.name)
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
    shown = value
    if column.data_type in _HUGE:
        # As bytes: MariaDB joins no text of ascii with one of the connection's character set (error 1267).
        shown = f"IF(LENGTH({value})>{_INLINE_BYTES},CAST(SHA2({value},256) AS BINARY),{value})"
    return f"IFNULL(CONCAT(LENGTH({value}),':',{shown}),'N')"


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
    first, *more = (f"SELECT COUNT(*) AS found,{total} AS total {some}" for some in rows)
    return f"SELECT SUM(found),SUM(total) FROM ({' UNION ALL '.join([first, *more])}) parts" if more else first


def fingerprint_of(row: Sequence[object]) -> Fingerprint:
    """Reads the answer to a fingerprint query."""
    rows, total = (int(str(value)) for value in row)
    unhashed, total = divmod(total, _UNHASHED)
    return Fingerprint(rows, rows - unhashed, total)
