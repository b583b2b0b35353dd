"""The types of columns of generated runs, and how each family of messages writes their values.

By the rules seen in genuine captures ("types seen"), and of the native connector's description.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from tests.support.wire import base64_text, go_quoted, plain_notation

Value = int | str | bytes | float | Decimal | date | datetime | timedelta | None
"""As the server's driver gives it; what is `date` alone comes before what is `datetime`."""

_MICROSECOND: Final = timedelta(microseconds=1)
_ENUM: Final = ("a", "B", "it's", "ü,v", "zz")
_SET: Final = ("x", "y", "z's")
_MEMBERS: Final = tuple(f"m{number}" for number in range(60))
"""More than a number of floating point has bits."""


@dataclass(frozen=True)
class Kind:
    """A type.

    sql: of the column.  word: TiCDC's name, which is the native connector's beginning of `sql`.
    sql_type: JDBC's; code, flags: of the Open Protocol.
    text: a value in Canal-JSON; named: in CKafka's, which has the names of ENUM and SET.  opened: in Open Protocol.
    official: a value in official Canal's messages, where it is another one than TiCDC's.
    schema, semantic, parameters: the type in Debezium's schemas; native: where the native connector has
        another one.
    told: a value of Debezium's.
    """

    sql: str
    word: str
    sql_type: int
    code: int
    flags: int = 1
    text: Callable[[Any], str] = str
    named: Callable[[Any], str] | None = None
    opened: Callable[[Any], Any] = str
    schema: str = "string"
    semantic: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    native: str = ""
    told: Callable[[Any], Any] = str
    official: Callable[[Any], str] | None = None

    @property
    def declared(self) -> str:
        """The type in messages of official Canal, whose parser keeps its name and forgets the character set."""
        sql = self.sql.removesuffix(" NULL").partition(" CHARACTER SET ")[0]
        word, bracket, rest = sql.partition("(")
        return f"{word.lower()}{bracket}{rest.replace('UNSIGNED', 'unsigned')}"

    @property
    def sql_type_of_canal(self) -> int:
        """What official Canal tells of a value, which sees no character set, and no text in a LONG."""
        return {"char(4)": 1, "long": 2004}.get(self.declared, self.sql_type)

    def by_official(self, value: Value) -> str:
        """A value in official Canal's messages."""
        return (self.official or self.text)(value)

    def by_name(self, value: Value) -> str:
        """A value in CKafka's messages."""
        return (self.named or self.text)(value)


def _same(value: Any) -> Any:
    return value


def _latin1(value: bytes) -> str:
    return value.decode("latin-1")


def _micros(value: timedelta) -> int:
    return value // _MICROSECOND


def _clock(value: timedelta) -> str:
    """HH:MM:SS.mmm, with hours beyond a day."""
    micros = abs(_micros(value))
    seconds, rest = divmod(micros, 1_000_000)
    sign = "-" if value < timedelta() else ""
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest // 1000:03}"


def _millis(value: datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03}"


def _all_digits(value: datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S.%f}"


def _zoned(value: datetime) -> str:
    """Without zeros behind the last digit of a fraction."""
    return (_millis(value).rstrip("0").rstrip(".") if value.microsecond else f"{value}").replace(" ", "T") + "Z"


def _epoch_millis(value: datetime) -> int:
    return round(value.replace(tzinfo=UTC).timestamp() * 1000)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _bit(value: bytes) -> int:
    return int.from_bytes(value, "big")


def _bits(value: bytes) -> str:
    return base64_text(value[::-1])


def _listed(names: tuple[str, ...]) -> str:
    return ",".join("'" + name.replace("'", "''") + "'" for name in names)


def _enum(names: tuple[str, ...]) -> Kind:
    """Told by the number of its name; '' is the error value, whose number is 0."""

    def number(value: str) -> int:
        return names.index(value) + 1 if value else 0

    return Kind(
        f"ENUM({_listed(names)})", "enum", 4, 247, flags=0, text=lambda v: str(number(v)), named=str, opened=number,
        semantic="io.debezium.data.Enum", parameters={"allowed": ",".join(name.replace(",", r"\,") for name in names)},
    )  # fmt: skip


def _set(names: tuple[str, ...]) -> Kind:
    """Told by one bit for each of its names."""

    def mask(value: str) -> int:
        return sum(1 << names.index(name) for name in value.split(",") if name)

    return Kind(
        f"SET({_listed(names)})", "set", -7, 248, flags=0, text=lambda v: str(mask(v)), named=str, opened=mask,
        semantic="io.debezium.data.EnumSet", parameters={"allowed": ",".join(names)},
    )  # fmt: skip


KINDS: Final[dict[str, Kind]] = {
    "int": Kind("INT(11)", "int", 4, 3, opened=_same, schema="int32", told=_same),
    "bigint": Kind("BIGINT(20)", "bigint", -5, 8, opened=_same, schema="int64", told=_same),
    "varchar": Kind("VARCHAR(40)", "varchar", 12, 15, flags=0),
    "decimal": Kind("DECIMAL(10,2)", "decimal", 3, 246, schema="double", told=float),
    "datetime": Kind(
        "DATETIME", "datetime", 93, 12, schema="int64", semantic="io.debezium.time.Timestamp", told=_epoch_millis
    ),
    "mediumtext": Kind("MEDIUMTEXT", "mediumtext", 2005, 250, flags=0, opened=lambda v: base64_text(v.encode())),
    "unsigned": Kind(
        "BIGINT(20) UNSIGNED", "bigint unsigned", -5, 8, flags=129, opened=_same, schema="int64", told=_signed
    ),
    "varbinary": Kind(
        "VARBINARY(20)", "varbinary", 2004, 15, text=_latin1, opened=go_quoted, native="bytes", told=base64_text
    ),
    "binary": Kind(
        "BINARY(4)", "binary", 2004, 254, text=_latin1, opened=go_quoted, native="bytes", told=base64_text
    ),
    "blob": Kind("BLOB", "blob", 2004, 252, text=_latin1, opened=base64_text, native="bytes", told=base64_text),
    "json": Kind("JSON", "json", 12, 245, semantic="io.debezium.data.Json"),
    "bit": Kind(
        "BIT(9)", "bit", -7, 16, flags=129, text=lambda v: str(_bit(v)), opened=_bit,
        schema="bytes", semantic="io.debezium.data.Bits", parameters={"length": "9"}, told=_bits,
    ),
    "enum": _enum(_ENUM),
    "set": _set(_SET),
    "many members": _set(_MEMBERS),
    "time": Kind(
        "TIME(3)", "time", 92, 11, text=_clock, opened=_clock, schema="int64", semantic="io.debezium.time.MicroTime",
        told=_micros,
    ),
    "date": Kind(
        "DATE", "date", 91, 10, schema="int32", semantic="io.debezium.time.Date",
        told=lambda v: (v - date(1970, 1, 1)).days,
    ),
    "timestamp": Kind(
        "TIMESTAMP(3) NULL", "timestamp", 93, 7, text=_millis, opened=_millis,
        semantic="io.debezium.time.ZonedTimestamp", told=_zoned,
    ),
    "year": Kind("YEAR", "year", 12, 13, flags=129, opened=_same, schema="int32", semantic="io.debezium.time.Year",
                 told=_same),
    "float": Kind("FLOAT", "float", 7, 4, text=plain_notation, opened=_same, schema="float", told=_same),
    "double": Kind("DOUBLE", "double", 8, 5, text=plain_notation, opened=_same, schema="double", told=_same),
    "latin1": Kind("VARCHAR(20)", "varchar", 12, 15, flags=0),
    "tinyint": Kind("TINYINT(4)", "tinyint", -6, 1, opened=_same, schema="int16", told=_same),
    "mediumint": Kind(
        "MEDIUMINT(8) UNSIGNED", "mediumint unsigned", 4, 9, flags=129, opened=_same, schema="int32", told=_same
    ),
    "all bits": Kind(
        "BIT(64)", "bit", -7, 16, flags=129, text=lambda v: str(_bit(v)), opened=_bit,
        schema="bytes", semantic="io.debezium.data.Bits", parameters={"length": "64"}, told=_bits,
    ),
    "char": Kind("CHAR(10)", "char", 1, 254, flags=0),
    "microseconds": Kind(
        "DATETIME(6)", "datetime", 93, 12, text=_all_digits, opened=_all_digits, schema="int64",
        semantic="io.debezium.time.MicroTimestamp", told=lambda v: (v - datetime(1970, 1, 1)) // _MICROSECOND,
    ),
    "enum with errors": _enum(_ENUM),
    "double by another name": Kind(
        "FLOAT8", "double", 8, 5, text=plain_notation, opened=_same, schema="double", told=_same
    ),
    "varchar by another name": Kind("NATIONAL VARCHAR(40)", "varchar", 12, 15, flags=0),
    "int by another name": Kind("MIDDLEINT UNSIGNED", "mediumint unsigned", 4, 9, flags=129, opened=_same,
                                schema="int32", told=_same),
    "text by another name": Kind(
        "LONG", "mediumtext", 2005, 250, flags=0, opened=lambda v: base64_text(v.encode()),
        official=lambda v: _latin1(v.encode()),
    ),
    "binary by another name": Kind(
        "CHAR(4) CHARACTER SET binary", "binary", 2004, 254, text=_latin1, opened=go_quoted, native="bytes",
        told=base64_text, official=bytes.decode,
    ),
}  # fmt: skip
"""By the name that a generated column has for its type."""
SPECIAL: Final = tuple(list(KINDS)[6:])
"""Types of a column that no operation needs."""
KINDS["enum turned"] = _enum(_ENUM[::-1])
KINDS["set and more"] = _set((*_SET, "more"))
MODIFIED: Final = {
    "enum": ("enum turned", ""),
    "set": ("set and more", ""),
    "latin1": ("varchar", "utf8mb4_bin"),
    "json": ("mediumtext", "utf8mb4_bin"),
    "year": ("int", ""),
    "tinyint": ("int", ""),
    "mediumint": ("bigint", ""),
    "char": ("varchar", "utf8mb4_bin"),
}
"""What a schema change makes of a type, so that values stay as they are, and the collation that it has then."""
VALUES: Final[dict[str, tuple[Value, ...]]] = {
    "int": (None, 0, 1, 7, -3, 2147483647),
    "bigint": (None, 0, 5, -(2**62)),
    "varchar": (None, "", " ", "it's", "\\", "é", "😀", "NULL", "a\nb", "%s {0}", "0"),
    "decimal": (None, Decimal("0.00"), Decimal("1.50"), Decimal("-12345678.90")),
    "datetime": (None, datetime(2024, 1, 1), datetime(1970, 1, 1, 0, 0, 1)),
    "mediumtext": (None, "", "precious", "it's \\ precious\n", "short"),
    "unsigned": (None, 0, 1, 2**63, 2**64 - 1, 2**53 + 1),
    "varbinary": (None, b"", b"\0", b"a\0", b"a", b"\xff\\'\n\x1a", b" ", "é".encode()),
    "binary": (None, b"\0\0\0\0", b"a\0\0\0", b"a\0b\0", b"\0abc", b"\xff\\'\n"),
    "blob": (None, b"", b"\0\xff", b"text", b"\\N", b"\t\n\\"),
    "json": (None, "{}", "null", '{"a": "it\'s \\"\\\\\\n", "b": [1, 2.5, null]}', '"é😀"', "0", "[]"),
    "bit": (None, b"\0\0", b"\0\1", b"\1\xff", b"\0'", b"\0\\"),
    "enum": (None, *_ENUM),
    "enum with errors": (None, "", "a", "zz"),
    "set": (None, "", "x", "x,y", "x,y,z's", "z's"),
    "many members": (None, "m0", "m54", "m0,m54", "m58", "m1,m58", ",".join(_MEMBERS)),
    "time": (None, timedelta(), timedelta(hours=12, milliseconds=789), timedelta(milliseconds=-1500),
             -timedelta(hours=838, minutes=59, seconds=58), timedelta(hours=100)),
    "date": (None, date(2024, 2, 29), date(1000, 1, 1), date(9999, 12, 31), date(1970, 1, 1)),
    "timestamp": (None, datetime(2024, 2, 29, 12, 34, 56, 789000), datetime(1970, 1, 1, 0, 0, 1),
                  datetime(2038, 1, 19, 3, 14, 7), datetime(2024, 3, 31, 2, 30)),
    "year": (None, 2024, 1901, 2155, 0),
    "float": (None, 0.0, 0.1, -1.5, 65536.0, 1e10, 3.5e-20, 3.40282e38),
    "double": (None, 0.0, 0.1, -1.5, 1e22, 1.7976931348623157e308, 1234567.891234567, -2.1231246334180478e-10, 5e-324),
    "latin1": (None, "", "a", "é", "A", "ÿ'\\"),
    "tinyint": (None, -128, 127, 0),
    "mediumint": (None, 0, 16777215, 8388608),
    "all bits": (None, b"\0" * 8, b"\xff" * 8, b"\x80" + b"\0" * 7, b"\0" * 7 + b"'"),
    "char": (None, "", "a", "a\tb", "é😀", "it's \\", "\0"),
    "microseconds": (None, datetime(1000, 1, 1, 0, 0, 0, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999),
                     datetime(2024, 2, 29, 12, 34, 56, 500_000), datetime(1970, 1, 1)),
    "double by another name": (None, 0.0, 0.1, 1234567.891, 5e-324),
    "varchar by another name": (None, "", "é", "it's \\"),
    "int by another name": (None, 0, 16777215),
    "text by another name": (None, "", "é😀", "it's \\ long\n"),
    "binary by another name": (None, b"\0\0\0\0", b"a\0\0\0", "é".encode() + b"\0'", b"\\abc"),
}  # fmt: skip
"""Of columns that are part of no key."""


def unscaled(value: Decimal) -> str:
    """A DECIMAL of two digits as the native connector writes it (decimal.handling.mode=precise)."""
    number = int(value.scaleb(2))
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


def stored(kind: str, value: Value) -> Value:
    """The value by which a strict server stores this one: '0' is the error value of an ENUM, which it gives as ''."""
    return "0" if value == "" and kind == "enum with errors" else value


def pool_of(kind: str) -> str:
    """The type whose values a type has."""
    return {"enum turned": "enum", "set and more": "set"}.get(kind, kind)
