"""Canal-JSON: one case per type row and per rule of the seed "TiCDC Canal-JSON", and official Canal's ways."""

from __future__ import annotations

import base64
import tarfile
from pathlib import Path
from typing import Any

import lz4.frame
import orjson
import pytest
from cramjam import snappy

from bridge.events import NO_PRIMARY_KEY, Boundary, DdlStatement, Event, Kind, RowChange
from bridge.protocols import DecodeOptions, decode_message, make_decoder
from bridge.protocols.values.event_time import place_in_gtid_set, place_of_sending
from bridge.tso import ms_tso
from tests.support.wire import (
    TSO,
    canal,
    canal_event,
    compact,
    decode,
    names_of,
    reason,
    row_change,
    row_of,
    split,
    untyped,
)
from tests.support.wire import (
    official as official_row,
)

ID = {"id": ("int", "1")}

TYPES = [
    # Integer types: every row of the table at both ends
    ("tinyint", "-128", "-128"), ("tinyint", "127", "127"),
    ("tinyint unsigned", "0", "0"), ("tinyint unsigned", "255", "255"),
    ("smallint", "-32768", "-32768"), ("smallint unsigned", "65535", "65535"),
    ("mediumint", "-8388608", "-8388608"), ("mediumint unsigned", "16777215", "16777215"),
    ("int", "-2147483648", "-2147483648"), ("int unsigned", "4294967295", "4294967295"),
    ("bigint", "-9223372036854775808", "-9223372036854775808"),
    ("bigint", "9007199254740993", "9007199254740993"),
    ("bigint unsigned", "18446744073709551615", "18446744073709551615"),
    ("int unsigned zerofill", "42", "42"), ("int(10) unsigned zerofill", "0000000042", "42"), ("int(11)", "1", "1"),
    # SQL Type field: every row of the table
    ("boolean", "1", "1"),
    ("float", "0.1", "0.10000000149011612e0"),
    ("float unsigned", "340282350000000000000000000000000000000", "3.4028234663852886e+38"),
    ("double", "0.1", "0.1e0"), ("double(10,3)", "12.5", "12.5e0"),
    ("double", "17976931348623157" + "0" * 292, "1.7976931348623157e+308"),
    ("decimal", "1.50", "1.50"), ("decimal(10, 4)", "123.4560", "123.4560"),
    ("decimal unsigned zerofill", "12.500", "12.500"),
    ("char", "it's", r"'it\'s'"), ("char(16)", "abc", "'abc'"), ("varchar", "a\0b", r"'a\0b'"),
    ("tinytext", "", "''"), ("text", "<html>&", "'<html>&'"), ("mediumtext", "\\", r"'\\'"), ("longtext", "😀", "'😀'"),
    ("binary", "ab\0", "x'616200'"), ("binary(3)", "ÿ", "x'ff0000'"),
    ("binary(2)", "", "x'0000'"), ("binary(2)", "\0a", "x'0061'"), ("binary(256)", "a", "x'61'"),
    ("varbinary", "", "''"),
    ("tinyblob", "ÿ\0ÿ", "x'ff00ff'"), ("blob", "â\x80\x82", "x'e28082'"), ("mediumblob", "a", "x'61'"),
    ("longblob", "'", "x'27'"),
    ("date", "2024-02-29", "'2024-02-29'"), ("date", "0000-00-00", "'0000-00-00'"),
    ("datetime", "2024-01-00 00:00:00", "'2024-01-00 00:00:00'"),
    ("datetime(6)", "2024-01-01 00:00:00.500000", "'2024-01-01 00:00:00.500000'"),
    ("timestamp", "2024-01-01 00:00:00", "'2024-01-01 00:00:00'"),
    ("timestamp(3)", "0000-00-00 00:00:00.000", "'0000-00-00 00:00:00.000'"),
    ("time", "-838:59:59", "'-838:59:59'"), ("year", "2024", "2024"), ("year(4)", "0", "0"), ("year", "0000", "0"),
    ("enum", "1", "1"), ("enum('a','b')", "2", "2"), ("set", "9223372036854775809", "9223372036854775809"),
    ("set('a','b')", "0", "0"), ("bit", "65", "65"), ("bit(64)", "18446744073709551615", "18446744073709551615"),
    # official Canal: Java's long for BIT and SET, its double for FLOAT; some senders write names for ENUM and SET
    ("bit(64)", "-1", "18446744073709551615"), ("set('a','b')", "-9223372036854775808", "9223372036854775808"),
    ("tinyint unsigned", "-1", "255"), ("smallint(5) unsigned", "-32768", "32768"),
    ("mediumint unsigned", "-1", "16777215"), ("int(10) unsigned", "-2", "4294967294"),
    ("bigint(20) unsigned zerofill", "-9223372036854775808", "9223372036854775808"),
    ("float", "3.4028235E38", "3.4028234663852886e+38"), ("double", "1.0E-10", "1e-10"), ("double", "-0.0", "-0.0e0"),
    ("enum('a','it''s')", "it's", r"'it\'s'"), ("enum('1','0')", "1", "1"), ("set('a','b,c')", "a,a", "'a,a'"),
    ("DECIMAL(10, 4)", "1.0000", "1.0000"), ("real", "1.5", "1.5e0"), ("dec(4,1)", "1.5", "1.5"),
    ("json", '{"a": 1}', """'{"a": 1}'"""), ("json", "null", "'null'"),
    ("vector", "[1,2,3.5]", "'[1,2,3.5]'"), ("vector(3)", "[]", "'[]'"),
]  # fmt: skip


@pytest.mark.parametrize(("mysql_type", "value", "literal"), TYPES)
def test_type(mysql_type: str, value: str, literal: str) -> None:
    """Each MySQL type string, with and without parameters, becomes its literal; NULL is NULL in all of them."""
    event = canal_event(canal("INSERT", ID | {"v": (mysql_type, value), "n": (mysql_type, None)}))
    assert row_of(event, event.after) == {"id": "1", "v": literal, "n": "NULL"}


WAYS = {
    "tinyint": ("-128", "-128"), "smallint": ("-32768", "-32768"), "mediumint": ("-8388608", "-8388608"),
    "int": ("-2", "-2"), "bigint": ("-9223372036854775808", "-9223372036854775808"),
    "tinyint unsigned": ("-1", "255"), "smallint unsigned": ("-1", "65535"), "mediumint unsigned": ("-1", "16777215"),
    "int unsigned": ("-1", "4294967295"), "bigint unsigned": ("-1", "18446744073709551615"),
    "float": ("0.1", "0.10000000149011612e0"), "double": ("0.1", "0.1e0"), "decimal": ("1.50", "1.50"),
    "char": ("ä", "'ä'"), "varchar": ("ä", "'ä'"), "text": ("ä", "'ä'"),
    "mediumtext": ("Ã¤", "x'c3a4'"), "mediumblob": ("ÿ\0", "x'ff00'"), "text bytes": ("Ã¤", "x'c3a4'"),
    "blob": ("ÿ", "x'ff'"), "point": ("æ\x10\0\0", "x'e6100000'"), "json": ("", "'null'"),
}  # fmt: skip
"""A value of each type as official Canal writes it, and its literal."""
BYTES = ("mediumtext", "mediumblob", "text bytes", "blob", "point")
SPELLINGS = {
    "tinyint": ["INT1", "BOOL", "BOOLEAN", "TINYINT(1)", "`tinyint`"],
    "smallint": ["INT2", "smallint(6)"], "mediumint": ["INT3", "MIDDLEINT"],
    "int": ["INT4", "INT", "INTEGER(11)", "int4(11)"], "bigint": ["INT8", "INT8(20)"],
    "tinyint unsigned": ["INT1 unsigned", "TINYINT unsigned zerofill"], "smallint unsigned": ["INT2(5) unsigned"],
    "mediumint unsigned": ["INT3 unsigned", "MIDDLEINT unsigned"],
    "int unsigned": ["INT4 unsigned zerofill", "INTEGER(10) unsigned", "INT(8) zerofill", "INT(11)  UNSIGNED"],
    "bigint unsigned": ["SERIAL", "serial", "INT8 unsigned", "BIGINT(20) unsigned zerofill"],
    "float": ["FLOAT4", "FLOAT4 unsigned", "FLOAT(24)", "FLOAT(30,3)", "float(7,3) unsigned zerofill"],
    "double": ["FLOAT8", "FLOAT8(10,2)", "float(25)", "FLOAT(53) unsigned", "double(53)", "DOUBLE PRECISION",
               "DOUBLE PRECISION unsigned", "double  precision(10,2) unsigned", "REAL", "REAL(10,2)", "REAL unsigned"],
    "decimal": ["DEC", "DEC(10,2)", "FIXED", "FIXED(10,2) unsigned", "NUMERIC(10)", "DECIMAL(10,2) unsigned zerofill"],
    "char": ["NCHAR", "NCHAR(20)", "NATIONAL CHAR(20)", "NATIONAL CHARACTER(20)", "CHARACTER", "CHARACTER(20)",
             "CHAR", "CHAR BYTE"],
    "varchar": ["NVARCHAR(20)", "NATIONAL VARCHAR(20)", "NATIONAL  CHAR VARYING(20)", "NATIONAL CHARACTER VARYING(20)",
                "CHARACTER VARYING(20)", "character  varying (20)", "CHAR VARYING(20)", "VARCHARACTER(20)",
                "NCHAR VARCHAR(20)", "NCHAR VARYING(20)", "VARCHAR(20)", "`varchar`(20)"],
    "text": ["TEXT", "tinytext", "MEDIUMTEXT", "longtext"],
    "mediumtext": ["LONG", "LONG VARCHAR", "long char varying", "LONG CHARACTER VARYING"],
    "mediumblob": ["LONG VARBINARY", "LONG BYTE"],
    "text bytes": ["TEXT(100)", "text(1000)"], "blob": ["BLOB(100)"],
    "point": ["GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON",
              "GEOMETRYCOLLECTION", "GEOMCOLLECTION"],
    "json": ["JSON", "json"],
}  # fmt: skip
"""Every name of a type that MySQL accepts, as Canal's parsers keep it (druid 1.2.21 and polardbx-parser 5.4.19)."""


@pytest.mark.parametrize(("kind", "spelled"), [(kind, one) for kind, names in SPELLINGS.items() for one in names])
def test_spelling_of_official_canal(kind: str, spelled: str) -> None:
    """Official Canal keeps a type's name as the statement spells it; values are those of the type that it stands for,
    and what Canal does not take for text comes as bytes."""
    value, literal = WAYS[kind]
    told = {"v": 2004 if kind in BYTES else None}
    event = canal_event(official_row("INSERT", {"v": (spelled, value), "n": (spelled, None)}, sqlType=told))
    assert row_of(event, event.after) == {"v": literal, "n": "NULL"}


SQL_TYPES = {
    (-6,): ["TINYINT", "tinyint(1)", "BOOLEAN", "INT1"], (-6, 5): ["TINYINT unsigned"], (5,): ["SMALLINT"],
    (5, 4): ["SMALLINT(5) unsigned"], (4,): ["INT", "int(11)", "MEDIUMINT", "MEDIUMINT unsigned", "enum('a','b')"],
    (4, -5): ["INT unsigned", "INT(8) unsigned zerofill"], (-5,): ["BIGINT"], (-5, 3): ["bigint(20) unsigned"],
    (7,): ["FLOAT", "float(7,3)"], (8,): ["DOUBLE", "FLOAT8", "double(53)"], (3,): ["DECIMAL(10,2)", "NUMERIC(10)"],
    (1,): ["CHAR(20)", "NCHAR(20)"], (12,): ["VARCHAR(20)", "NVARCHAR(20)", "YEAR"], (91,): ["DATE"],
    (93,): ["DATETIME", "DATETIME(3)", "TIMESTAMP(6)"], (92,): ["TIME", "time(3)"], (-7,): ["BIT(8)"],
    (-7, -2, 2004): ["SET('a','b')"], (12, 1111, -4, 2004): ["JSON"], (2005, -3, -4): ["TINYTEXT", "TEXT", "longtext"],
    (2004, -4): ["TEXT(100)", "LONG", "BLOB", "longblob"], (2004, -2, -3): ["BINARY(4)", "VARBINARY(9)", "POINT"],
}  # fmt: skip
"""The codes of official Canal's sqlType (1.1.0 to 1.1.8, LogEventConvert and RowsLogBuffer), and the types that come
with them: unsigned values beyond the signed type, and null, have others."""
ALSO = {"YEAR": {91}, "enum('a','b')": {1}, "SET('a','b')": {1}}
"""Those of MySQL's own driver, which other senders may write."""


@pytest.mark.parametrize(("codes", "kind"), [(codes, one) for codes, kinds in SQL_TYPES.items() for one in kinds])
def test_columns_of_another_moment(codes: tuple[int, ...], kind: str) -> None:
    """Official Canal's sqlType comes from the binary log, mysqlType and the names from the table's definition as Canal
    has it: a row for which they differ is refused, as its values may be of other columns."""

    def row(code: object) -> Any:
        types, told = {"id": "INT", "v": kind}, {"id": 4, "v": code}
        [event] = official(data=[{"id": "1", "v": None}], type="INSERT", old=None, mysqlType=types, sqlType=told)
        return event

    assert {row(code).kind for code in (*codes, None)} == {Kind.INSERT}
    for code in {12, 1, 4, 3, 93, 91} - {*codes, *ALSO.get(kind, ())}:
        assert "Canal took the table's columns of another moment" in reason(row(code))


def test_a_genuine_row_of_another_moment() -> None:
    """Canal 1.1.7 sent it on MySQL 5.7 after it was killed behind schema changes: each value has another column's name,
    as the BIT of `c66` and the DATETIME(6) of `c67` show."""
    types = {"c96": "JSON", "c76": "TEXT", "c68": "BIT(9)", "id": "BIGINT unsigned", "c65": "JSON",
             "c66": "VARCHAR(200)", "c67": "BIT(9)"}  # fmt: skip
    row = {"c96": "1", "c76": None, "c68": "183", "id": None, "c65": "grüße", "c66": "1",
           "c67": "1000-01-01 00:00:00.000000"}  # fmt: skip
    told = {"c96": 12, "c76": -7, "c68": -5, "id": 1111, "c65": 12, "c66": -7, "c67": 93}
    [event] = official(data=[row], type="INSERT", old=None, mysqlType=types, sqlType=told)
    assert "column 'c76' is 'TEXT' in mysqlType" in reason(event)


@pytest.mark.parametrize(
    ("document", "literal"),
    [
        ('{"a": "1\n2\t\0", "b\n": 3}', r"""'{"a": "1\\u000a2\\u0009\\u0000", "b\\u000a": 3}'"""),
        (r'{"a": "\\ \" \n: \": 1"}', r"""'{"a": "\\\\ \\" \\n: \\": 1"}'"""),
        (r'{"a": "b", "C:\temp": 1}', None),
        (r'["\": ", {"a\\b": "c"}]', None),
    ],
)
def test_json_of_official_canal(document: str, literal: str | None) -> None:
    """Control characters that it leaves in texts and names are escaped; a name with a backslash, in which it escapes
    nothing, cannot be read."""
    row = {"data": [{"j": document}], "type": "INSERT", "old": None, "pkNames": None, "mysqlType": {"j": "JSON"}}
    [event] = official(**row, sqlType={"j": 12})
    assert (event.kind is Kind.BAD) if literal is None else event.after == literal


def test_json_of_mariadb() -> None:
    """It is a LONGTEXT in MariaDB's log, which Canal writes as bytes, since its type is called JSON."""
    row = {"data": [{"j": '{"a": "Ã¤"}'}], "type": "INSERT", "old": None, "pkNames": None, "mysqlType": {"j": "JSON"}}
    [event] = official(**row, sqlType={"j": 2004})
    assert event.after == """'{"a": "ä"}'"""


def test_backquotes_in_names() -> None:
    """Official Canal keeps them doubled in the names of columns, as statements have them; TiCDC does not."""
    row = {"e``f": ("INT", "1"), "g": ("INT", "2")}
    event = canal_event(official_row("UPDATE", row, pkNames=["e``f"], old=[{"e``f": "3"}]))
    assert (names_of(event), event.key, event.before, event.after) == ("e`f\0g", "e`f", "3\0002", "1\0002")
    assert names_of(canal_event(canal("INSERT", row))) == "e``f\0g"


# The seed's own examples; the comments in them are the seed's, not JSON's
DDL = b"""{"id": 0, "database": "test", "table": "", "pkNames": null, "isDdl": true, "type": "QUERY",
"es": 1639633094670, "ts": 1639633095489, "sql": "drop database if exists test", "sqlType": null, "mysqlType": null,
"data": null, "old": null, "_tidb": {"commitTs": 163963309467037594}}"""
INSERT = b"""{"id": 0, "database": "test", "table": "tp_int", "pkNames": ["id"], "isDdl": false, "type": "INSERT",
"es": 1639633141221, "ts": 1639633142960, "sql": "", "sqlType": {"c_bigint": -5, "c_int": 4, "c_mediumint": 4,
"c_smallint": 5, "c_tinyint": -6, "id": 4}, "mysqlType": {"c_bigint": "bigint", "c_int": "int",
"c_mediumint": "mediumint", "c_smallint": "smallint", "c_tinyint": "tinyint", "id": "int"},
"data": [{"c_bigint": "9223372036854775807", "c_int": "2147483647", "c_mediumint": "8388607", "c_smallint": "32767",
"c_tinyint": "127", "id": "2"}], "old": null, "_tidb": {"commitTs": 163963314122145239}}"""
WATERMARK = b"""{"id": 0, "database": "", "table": "", "pkNames": null, "isDdl": false, "type": "TIDB_WATERMARK",
"es": 1640007049196, "ts": 1640007050284, "sql": "", "sqlType": null, "mysqlType": null, "data": null, "old": null,
"_tidb": {"watermarkTs": 429918007904436226}}"""

NAMES = "c_bigint\0c_int\0c_mediumint\0c_smallint\0c_tinyint\0id"
OLD = "9223372036854775807\x002147483647\x008388607\x0032767\x00127\x002"
NEW = "9223372036854775807\x000\x008388607\x0032767\x000\x002"


def update(old: Any) -> bytes:
    message = orjson.loads(INSERT)
    row = message["data"][0] | {"c_int": "0", "c_tinyint": "0"}
    return compact(message | {"type": "UPDATE", "data": [row], "old": old})


def delete(old: Any) -> bytes:
    return compact(orjson.loads(INSERT) | {"type": "DELETE", "old": old})


SEED_ROW = orjson.loads(INSERT)["data"]
SAMPLES: list[tuple[bytes, Event]] = [
    (DDL, DdlStatement(163963309467037594, 0, "test", "", "drop database if exists test")),
    (WATERMARK, Boundary(429918007904436226)),
    (INSERT, RowChange(Kind.INSERT, 163963314122145239, 0, "test", "tp_int", NAMES, "id", None, OLD)),
    # Event of Update Type: TiCDC, official Canal
    (update(SEED_ROW), RowChange(Kind.UPDATE, 163963314122145239, 0, "test", "tp_int", NAMES, "id", OLD, NEW)),
    (
        update([{"c_int": "2147483647", "c_tinyint": "127"}]),
        RowChange(Kind.UPDATE, 163963314122145239, 0, "test", "tp_int", NAMES, "id", OLD, NEW),
    ),
    # Changes in the Old field of the Delete events: from v5.4.0, before
    (delete(None), RowChange(Kind.DELETE, 163963314122145239, 0, "test", "tp_int", NAMES, "id", OLD, None)),
    (delete(SEED_ROW), RowChange(Kind.DELETE, 163963314122145239, 0, "test", "tp_int", NAMES, "id", OLD, None)),
]


@pytest.mark.parametrize(("value", "event"), SAMPLES, ids=[row[-1].kind.name for row in SAMPLES])
def test_samples_of_the_description(value: bytes, event: Event) -> None:
    """The description's own messages."""
    assert untyped(decode("canal-json", None, value)) == [event]


@pytest.mark.parametrize(("value", "event"), SAMPLES, ids=[row[-1].kind.name for row in SAMPLES])
def test_compressed(value: bytes, event: Event) -> None:
    """The whole value may be one lz4 frame or one snappy block."""
    assert untyped(decode("canal-json", b"", lz4.frame.compress(value))) == [event]
    assert untyped(decode("canal-json", b"", bytes(snappy.compress_raw(value)))) == [event]


@pytest.mark.parametrize(("value", "event"), [row for row in SAMPLES if not isinstance(row[1], Boundary)])
def test_without_the_extension(value: bytes, event: RowChange | DdlStatement) -> None:
    """Without `_tidb` the event time, in milliseconds, stands for the commit_ts, and the event says so."""
    message = orjson.loads(value)
    del message["_tidb"]
    assert untyped(decode("canal-json", b"", compact(message))) == [
        event._replace(commit_ts=ms_tso(message["es"]), by_time=True)
    ]


@pytest.mark.parametrize(
    ("es", "ms"),
    [(0, 0), (1655812326, 1655812326000), (1656300979748, 1656300979748), (35_184_372_088, 35184372088000)],
)
def test_event_time(es: int, ms: int) -> None:
    """`es` is milliseconds, or whole seconds, which count as their first millisecond."""
    assert canal_event(canal("INSERT", ID, es=es, _tidb=None)).commit_ts == ms_tso(ms)


def test_upgrade_in_mid_stream() -> None:
    """The extension may come and go from message to message, as may compression and parameters in mysqlType."""
    decoder = make_decoder("canal-json", DecodeOptions("UTC"))
    plain, extended = canal("INSERT", ID, es=7, _tidb=None), canal("INSERT", {"id": ("int(11)", "1")}, es=7)
    for value in (plain, extended, lz4.frame.compress(plain), plain):
        [event] = decode_message(decoder, b"", value)
        row = row_change(event)
        assert (row.commit_ts, row.by_time) == ((TSO, False) if value is extended else (ms_tso(7000), True))
        assert row.after == "1"


# As alibaba/canal's MQMessageUtils makes them: keys in another order, gtid, batch ids, null for what is empty
OFFICIAL: dict[str, Any] = {
    "data": [{"id": "1", "b": "1", "c": "x", "d": None}, {"id": "2", "b": "0", "c": "null", "d": "1.0E10"}],
    "database": "shop", "es": 1700000000000, "gtid": "", "id": 41, "isDdl": False,
    "mysqlType": {"id": "bigint(20) unsigned", "b": "bit(1)", "c": "varchar(20)", "d": "double"},
    "old": [{"c": "w"}, {"c": None, "d": None}], "pkNames": ["id"], "sql": "",
    "sqlType": {"id": -5, "b": -7, "c": 12, "d": 8}, "table": "goods", "ts": 1700000000123, "type": "UPDATE",
}  # fmt: skip


def official(**fields: Any) -> list[Any]:
    return decode("canal-json", None, compact(OFFICIAL | fields))


def test_official_update() -> None:
    """Several rows, each with the modified columns alone in `old`; "null" is text, null is NULL."""
    first, second = official()
    assert (first.kind, first.commit_ts, first.by_time) == (Kind.UPDATE, ms_tso(1700000000000), True)
    assert (first.schema, first.table, first.key) == ("shop", "goods", "id")
    assert (first.before, first.after) == ("1\x001\0'w'\0NULL", "1\x001\0'x'\0NULL")
    assert (second.before, second.after) == ("2\x000\0NULL\0NULL", "2\x000\0'null'\x0010000000000.0e0")
    assert (first.index, second.index) == (0, 1)


@pytest.mark.parametrize("kind", ["INSERT", "DELETE"])
def test_official_insert_and_delete(kind: str) -> None:
    """The rows of INSERT and DELETE are in `data`."""
    events = official(type=kind, old=None)
    images = ["1\x001\0'x'\0NULL", "2\x000\0'null'\x0010000000000.0e0"]
    assert [e.after if kind == "INSERT" else e.before for e in events] == images
    assert [e.before if kind == "INSERT" else e.after for e in events] == [None, None]


def test_official_partial_rows() -> None:
    """binlog_row_image=NOBLOB leaves columns out, from row to row others; the key is always there."""
    rows = [{"id": "1", "c": "x"}, {"id": "2", "b": "1"}, {"id": "3", "b": "1", "c": "z"}]
    events = official(type="INSERT", data=rows, old=None)
    assert [row_of(e, e.after) for e in events] == [
        {"id": "1", "c": "'x'"}, {"id": "2", "b": "1"}, {"id": "3", "b": "1", "c": "'z'"},
    ]  # fmt: skip


@pytest.mark.parametrize("gtid", ["", None, "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5", "0-1-5", 7])
def test_official_gtids_are_places(gtid: object) -> None:
    """Of rows and of schema changes; without them the place is when the message was sent."""
    place = place_in_gtid_set(gtid) if gtid and isinstance(gtid, str) else place_of_sending(1700000000123, 41)
    empty = dict.fromkeys(("data", "old", "mysqlType", "sqlType", "pkNames"))
    [change] = official(type="TRUNCATE", isDdl=True, sql="TRUNCATE t", gtid=gtid, **empty)
    assert {event.place for event in (*official(gtid=gtid), change)} == {place}


@pytest.mark.parametrize(
    ("kind", "sql"),
    [("CREATE", "CREATE TABLE t (a INT)"), ("ERASE", "DROP TABLE t"), ("ALTER", "ALTER TABLE t ADD b INT"),
     ("TRUNCATE", "TRUNCATE t"), ("RENAME", "RENAME TABLE t TO u"), ("CINDEX", "CREATE INDEX i ON t (a)"),
     ("DINDEX", "DROP INDEX i ON t"), ("QUERY", "CREATE DATABASE d")],
)  # fmt: skip
def test_official_schema_change(kind: str, sql: str) -> None:
    """isDdl decides, whatever the type is called."""
    empty = dict.fromkeys(("data", "old", "mysqlType", "sqlType", "pkNames"))
    [event] = official(type=kind, isDdl=True, sql=sql, **empty)
    place = place_of_sending(1700000000123, 41)
    assert event == DdlStatement(ms_tso(1700000000000), 0, "shop", "goods", sql, by_time=True, place=place)


@pytest.mark.parametrize(("kind", "sql"), [("QUERY", "# INSERT INTO t VALUES (1)"), ("XACOMMIT", "XA COMMIT 'x'")])
def test_official_annotations(kind: str, sql: str) -> None:
    """The text of a statement whose rows follow, and the commit of an XA transaction, change nothing."""
    assert official(type=kind, sql=sql, data=None, old=None, database="", table="") == []


def test_several_rows() -> None:
    """Several rows in `data` are several events, told apart by index; each has its own old row."""
    rows = [{"id": "1", "v": "a"}, {"id": "2", "v": "b"}]
    value = canal("UPDATE", ID | {"v": ("text", "")}, data=rows, old=[{"v": "x"}, {}])
    events = decode("canal-json", b"", value)
    assert [(e.index, e.before, e.after) for e in events] == [(0, "1\0'x'", "1\0'a'"), (1, "2\0'b'", "2\0'b'")]


def test_update_without_old_row() -> None:
    """An UPDATE whose old row is not sent has no image before."""
    event = canal_event(canal("UPDATE", ID, old=None))
    assert (event.kind, event.before, event.after) == (Kind.UPDATE, None, "1")


def test_old_row_in_another_order() -> None:
    """The image before has the order of the image after."""
    columns = {"a": ("int", "1"), "b": ("text", "x"), "c": ("int", None)}
    event = canal_event(canal("UPDATE", columns, old=[{"c": "3", "b": None, "a": "1"}]))
    assert split(event.before) == ["1", "NULL", "3"]


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        *(({"pkNames": ["b", "a"]}, "b\0a"), ({"pkNames": []}, NO_PRIMARY_KEY), ({"pkNames": None}, NO_PRIMARY_KEY)),
        ({}, ""),
    ],
)
def test_key(fields: dict[str, object], key: str) -> None:
    """pkNames is the primary key: [] in TiCDC, also where the key is a unique index, and null in official Canal say
    that there is none; a message without it says nothing."""
    columns = {"a": ("int", "1"), "b": ("int", "2")}
    message = orjson.loads(canal("INSERT", columns))
    del message["pkNames"]
    assert canal_event(compact(message | fields)).key == key


def test_repeated_names() -> None:
    """Of a name that a JSON object holds twice the last value counts, as it does to the parsers of Go and Java."""
    value = canal("INSERT", {"id": ("int", "1"), "v": ("int", "2")}).replace(b'"v":"2"', b'"v":"2","v":"3","id":"4"')
    event = canal_event(value)
    assert row_of(event, event.after) == {"id": "4", "v": "3"}


BAD: list[tuple[bytes | None, str]] = [
    *((None, "no value"), (b"", "no value"), (b"x", "not JSON"), (b"{", "not JSON"), (b"[]", "array")),
    *((b"null", "None"), (b'"\xff"', "not JSON"), (b'{"type":"\\ud800"}', "not JSON")),
    (b"{}", "'database' is missing"),
    (canal("CREATE", ID), "unknown event type 'CREATE'"),
    (canal("INSERT", ID, type=None), "unknown event type None"),
    (canal("INSERT", ID, type=[]), "JSON type"),
    (canal("INSERT", ID, _tidb={}), "'commitTs' is missing"),
    (canal("INSERT", ID, _tidb=[]), "JSON type"),
    (canal("TIDB_WATERMARK", {}, _tidb={"commitTs": 5}), "watermarkTs"),
    (canal("TIDB_WATERMARK", {}, _tidb=None), "JSON type"),
    *[
        (canal("INSERT", ID, es=es, isDdl=is_ddl, sql="x", _tidb=None), "not a time")
        for es in (-1, 1 << 45, 35_184_372_089, 99_999_999_999, 1.5, "5", None, True, [])
        for is_ddl in (False, True)
    ],
    (canal("INSERT", ID, data=None, sql="INSERT INTO t VALUES (1)"), "binlog_format is not ROW"),
    (canal("XAROLLBACK", {}, data=None, sql="XA ROLLBACK 'x'"), "rolled back"),
    (canal("QUERY", ID), "unknown event type 'QUERY'"),
    (canal("UPDATE", {"v": ("int", "1")}, pkNames=["id"]), "lacks its key column 'id': binlog_row_image"),
    (canal("INSERT", ID, isDdl=True, sql=""), "statement"),
    (canal("INSERT", ID, isDdl=True, sql=5), "statement"),
    *[
        (canal("INSERT", ID, _tidb={"commitTs": ts}), "not a TSO")
        for ts in (0, -1, 1 << 63, 1 << 64, 1.5, "5", None, True, [])
    ],
    (canal("INSERT", ID, _tidb={"commitTs": TSO, "onlyHandleKey": True}), "whole row"),
    (canal("INSERT", ID, _tidb={"commitTs": TSO, "claimCheckLocation": "s3://x/y.json"}), "whole row"),
    (canal("DELETE", ID, data=[{}]), "cannot be applied"),
    (canal("INSERT", ID, data=None), "array of rows"),
    (canal("INSERT", ID, data=[]), "array of rows"),
    (canal("INSERT", ID, data=[5]), "row"),
    (canal("INSERT", ID, data=["id"]), "not an object"),
    (canal("INSERT", ID, data={"id": "1"}), "array of rows"),
    (canal("UPDATE", ID, old=[]), "number of rows"),
    (canal("UPDATE", ID, old=[{}, {}]), "number of rows"),
    (canal("UPDATE", ID, old=["id"]), "JSON type"),
    (canal("UPDATE", ID, old=[{"other": "1"}]), "'other'"),
    (canal("UPDATE", ID, old=[{"id": "x"}]), "column 'id' (int): 'x' is not an integer"),
    (canal("INSERT", ID, mysqlType=None), "mysqlType"),
    (canal("INSERT", ID, mysqlType={}), "column 'id' has no type"),
    (canal("INSERT", ID, mysqlType={"id": 4}), "column 'id' has no type"),
    (canal("INSERT", {"v": ("int", "1"), "V": ("int", "2")}), "differ in case only"),
    (canal("INSERT", {"g": ("uuid", "x")}), "column 'g' is of the unknown type 'uuid'"),
    (canal("INSERT", {"g": ("", "x")}), "unknown type"),
    (canal("INSERT", {"g": ("(11)", "x")}), "unknown type"),
    (canal("INSERT", ID, pkNames="id"), "pkNames"),
    (canal("INSERT", ID, pkNames=[5]), "key column name"),
    (canal("INSERT", ID, pkNames=["a\0b"]), "NUL"),
    (canal("INSERT", {"a\0b": ("int", "1")}), "NUL"),
    (canal("INSERT", {"": ("int", "1")}), "a column without a name"),
    (canal("INSERT", {"x" * 65: ("int", "1")}), "longer than 64 characters"),
    (canal("INSERT", ID, table="x" * 65), "longer than 64 characters"),
    (canal("INSERT", ID, pkNames=["id", "id"]), "more key columns than columns"),
    (canal("INSERT", ID, table="a\0b"), "NUL"),
    (canal("INSERT", ID, database="a\0b"), "NUL"),
    (canal("INSERT", ID, database=5), "schema name"),
    (canal("INSERT", ID, table=None), "table name"),
    (canal("INSERT", ID, isDdl=True, sql="x", table="a\0b"), "NUL"),
    (canal("INSERT", ID | {"v": ("int", "1 OR 1=1")}), "column 'v' (int): '1 OR 1=1' is not an integer"),
    (canal("INSERT", ID | {"v": ("binary", "Ā")}), "ISO-8859-1"),
    (canal("INSERT", ID | {"v": ("enum('a')", "b")}), "not an integer"),
    (canal("INSERT", ID | {"v": ("enum", "a")}), "not an integer"),
    (canal("INSERT", ID | {"v": ("set('a','b')", "a,c")}), "not an integer"),
    (canal("INSERT", ID | {"v": ("set('a','b')", "a,")}), "not an integer"),
    (canal("INSERT", ID | {"v": ("tinyint unsigned", "-129")}), "below what 8 bits can hold"),
    (canal("INSERT", ID | {"v": ("bit(64)", "-9223372036854775809")}), "beyond 64 bits"),
    *[
        (canal("INSERT", ID | {"v": (mysql_type, value)}), "column 'v'")
        for mysql_type in ("int", "decimal", "double", "text", "blob", "date", "time", "datetime", "timestamp", "year")
        for value in (5, 1.5, True, [], {}, ["'"], {"'": 1})
    ],
]


def test_bad() -> None:
    """What is not understood whole is BAD, and the reason says what and where."""
    for value, why in BAD:
        [event] = decode("canal-json", b"", value)
        assert why in reason(event), value


def test_genuine_sendings_are_in_the_order_of_the_binlog() -> None:
    """Canal 1.1.7 into one partition: neither the batch nor the time of making goes back, and one batch has several."""
    with tarfile.open(Path(__file__).parent.parent / "golden" / "real-senders.tar.xz") as archive:
        file = archive.extractfile("canal-1.1.7/server.jsonl")
        assert file is not None
        values = [base64.b64decode(orjson.loads(line)["value"]) for line in file]
    sent = [(message["id"], message["ts"]) for message in map(orjson.loads, values)]
    assert (sent, len({batch for batch, _ in sent})) == (sorted(sent), 27)
    assert [ts for _, ts in sent] == sorted(ts for _, ts in sent)
    places = [event.place for value in values for event in decode("canal-json", None, value)]
    assert places == sorted(place for place in places if place)
