"""CKafka's official format 1: every sample of its description, every field's row, and values by the target's column."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from bridge.errors import UsageError
from bridge.events import Code, DdlStatement, Kind, RowChange
from bridge.protocols import DecodeOptions, decode_message, make_decoder
from bridge.protocols.decoder import FAILURES, DecodeError
from bridge.protocols.values.column_types import column_type
from bridge.protocols.values.literals import text
from bridge.protocols.values.row_image import raw_converter, split_forms
from bridge.tso import ms_tso
from tests.support.wire import compact, reason, row_change, split

FORM = "ckafka:Asia/Shanghai,"


def decoded(value: bytes | None, timezone: str | None = "Asia/Shanghai") -> list[Any]:
    return decode_message(make_decoder("ckafka", DecodeOptions(timezone)), None, value)


# The description's own samples
CREATE_TABLE = (
    "CREATE TABLE `customers` (\n`id` int NOT NULL AUTO_INCREMENT,\n`first_name` varchar(255) NOT NULL,\n"
    "`last_name` varchar(255) NOT NULL,\n`email` varchar(255) NOT NULL,\nPRIMARY KEY (`id`),\n"
    "UNIQUE KEY `email` (`email`),\nKEY `ix_id` (`id`)\n) ENGINE=InnoDB AUTO_INCREMENT=1041 DEFAULT CHARSET=utf8"
)
DDL = [
    (
        "dip_test", "", "QUERY", 1655812326,
        "CREATE DATABASE `dip_test` CHARSET utf8mb4 COLLATE utf8mb4_0900_ai_ci", 1655812326000,
    ),
    ("dip_test", "", "QUERY", 1655812326, "DROP DATABASE IF EXISTS `dip_test`", 1655812326000),
    ("dip_test", "customers", "CREATE", 1655812326, CREATE_TABLE, 1655812326000),
    (
        "test", "user", "ALTER", 1655782153,
        "ALTER TABLE `user` ADD COLUMN `createtime` datetime NULL DEFAULT CURRENT_TIMESTAMP", 1655782153000,
    ),
    ("dip_test", "customers", "ERASE", 1655812326, "DROP TABLE IF EXISTS `dip_test`.`customers`", 1655812326000),
    ("testDB", "t_test", "RENAME", 1656300979748, "rename table test to t_test", 1656300979748),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "table", "kind", "es", "sql", "ms"), DDL)
def test_schema_changes_of_the_description(schema: str, table: str, kind: str, es: int, sql: str, ms: int) -> None:
    """Schema changes are Canal's, with `es` in whole seconds or in milliseconds; names may lack their schema, which is
    then `database`."""
    value = {
        "data": None, "database": schema, "es": es, "id": 0, "isDdl": True, "mysqlType": None, "old": None,
        "pkNames": None, "sql": sql, "sqlType": None, "table": table, "ts": es, "type": kind,
    }  # fmt: skip
    expected = DdlStatement(ms_tso(ms), 0, schema, table, sql, by_time=True)
    assert decoded(orjson.dumps(value, option=orjson.OPT_INDENT_2)) == [expected]
    assert decoded(compact(value), None) == [expected]


@pytest.mark.parametrize("told", [{"id": 7, "ts": 1655812326345}, {"gtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7"}])
def test_schema_changes_have_no_place(told: dict[str, Any]) -> None:
    """Rows have none, so that a place would seem to tell which came first."""
    value = {
        "database": "d", "es": 1655812326, "isDdl": True, "sql": "TRUNCATE t", "table": "t", "type": "TRUNCATE", **told,
    }  # fmt: skip
    assert [event.place for event in decoded(compact(value))] == [None]


OLD = {"last_name": "Kretchmar", "id": "1004", "first_name": "Anne", "email": "annek@noanswer.org"}
NEW = OLD | {"first_name": "Anne Marie"}
COLUMNS = "last_name\0id\0first_name\0email\0\0" + FORM
OLD_IMAGE = "'Kretchmar'\0'1004'\0'Anne'\0'annek@noanswer.org'"
NEW_IMAGE = "'Kretchmar'\0'1004'\0'Anne Marie'\0'annek@noanswer.org'"


def row(kind: str, new: Any, old: Any, **fields: Any) -> bytes:
    message = {
        "BINLOG_NAME": "mysql-bin.000003", "BINLOG_POS": 154, "DATABASE": "inventory", "EVENT_SERVER_ID": None,
        "GLOBAL_ID": None, "GROUP_ID": None, "NEW_VALUES": new, "OLD_VALUES": old, "TABLE": "customers",
        "TIME": "20160611015029", "TYPE": kind,
    }  # fmt: skip
    return compact(message | fields)


ROWS = [
    (row("I", OLD, None, TIME="19700101080000"), Kind.INSERT, 0, None, OLD_IMAGE),
    (row("U", NEW, OLD, BINLOG_POS=484), Kind.UPDATE, 1465581029000, OLD_IMAGE, NEW_IMAGE),
    (row("D", None, NEW, BINLOG_POS=805, TIME="20160611020502"), Kind.DELETE, 1465581902000, NEW_IMAGE, None),
]


@pytest.mark.parametrize(("value", "kind", "ms", "before", "after"), ROWS, ids=["insert", "update", "delete"])
def test_rows_of_the_description(value: bytes, kind: Kind, ms: int, before: str | None, after: str | None) -> None:
    """TIME is local, in UTC+8 in the samples; values are strings without types, and no message names a key."""
    expected = RowChange(kind, ms_tso(ms), 0, "inventory", "customers", COLUMNS, "", before, after, by_time=True)
    assert decoded(value) == [expected]


def test_further_fields_change_nothing() -> None:
    """The binlog's file, whatever its number, the position, GTID and the fields that are null currently."""
    fields = {
        "BINLOG_NAME": "mysql-bin.1000000", "BINLOG_POS": 1 << 40, "EVENT_SERVER_ID": "5", "GROUP_ID": "x",
        "GLOBAL_ID": "3e11fa47-71ca-11e1-9e33-c80aa9429562:23",
    }  # fmt: skip
    assert decoded(row("U", NEW, OLD, **fields)) == decoded(row("U", NEW, OLD))


def test_null_and_quotes() -> None:
    """null is NULL, "null" and quotes are text; columns may come in any order and change from message to message."""
    decoder = make_decoder("ckafka", DecodeOptions("UTC"))
    images = [
        row_change(decode_message(decoder, None, row("I", values, None))[0]).after
        for values in ({"a": None, "b": "null"}, {"b": "it's", "a": "\\"}, {"a": "x"}, {"a": None, "b": ""})
    ]
    assert [split(image) for image in images] == [["NULL", "'null'"], [r"'it\'s'", r"'\\'"], ["'x'"], ["NULL", "''"]]


@pytest.mark.parametrize(
    ("timezone", "text", "ms"),
    [
        ("UTC", "20160611015029", 1465609829000),
        ("+08:00", "20160611015029", 1465581029000),
        ("-03:30", "20160611015029", 1465622429000),
        ("Europe/Berlin", "20241027023000", 1729989000000),  # the first of two
        ("Europe/Berlin", "20240331023000", 1711848600000),  # the clocks skipped it
    ],
)
def test_time(timezone: str, text: str, ms: int) -> None:
    """TIME is written in the zone that --timezone names."""
    [event] = decoded(row("I", OLD, None, TIME=text), timezone)
    assert event.commit_ts == ms_tso(ms)


BAD = [
    (row("X", OLD, None), "TYPE is 'X'", Code.MALFORMED),
    (row("I", None, None), "rows of another", Code.MALFORMED),
    (row("I", OLD, OLD), "rows of another", Code.MALFORMED),
    (row("U", None, OLD), "rows of another", Code.MALFORMED),
    (row("D", None, None), "rows of another", Code.MALFORMED),
    (row("D", OLD, OLD), "rows of another", Code.MALFORMED),
    (row("I", {}, None), "without columns", Code.MALFORMED),
    (row("I", [], None), "not an object", Code.MALFORMED),
    (row("I", {"a": ["'"]}, None), "column 'a'", Code.BAD_VALUE),
    (row("I", {"a": {"'": 1}}, None), "column 'a'", Code.BAD_VALUE),
    (row("U", {"a": "1"}, {"b": "1"}), "has a column 'b' that the new one lacks", Code.MALFORMED),
    (row("I", {"a\0": "1"}, None), "NUL", Code.MALFORMED),
    (row("I", OLD, None, TABLE=None), "table name", Code.MALFORMED),
    (row("I", OLD, None, DATABASE="a\0b"), "NUL", Code.MALFORMED),
    *[
        (row("I", OLD, None, TIME=time), "TIME", Code.MALFORMED)
        for time in ("", "2016", "20160230000000", "99991231235959", "20160611 01502", "19691231000000")
    ],
    (row("I", OLD, None, TIME=5), "JSON type", Code.MALFORMED),
    (compact({"TYPE": "I"}), "is missing", Code.MALFORMED),
    (b"{", "not JSON", Code.MALFORMED),
    (None, "no value", Code.MALFORMED),
    (b'{\n"isDdl": true, ', "not JSON", Code.SCHEMA_CHANGE),
]


@pytest.mark.parametrize(("value", "why", "code"), BAD)
def test_bad(value: bytes | None, why: str, code: Code) -> None:
    """What is not understood whole is BAD, and the reason says what."""
    [event] = decoded(value)
    assert why in reason(event)
    assert event.code == code


def test_zone_is_needed() -> None:
    """Without --timezone nothing tells when a row was changed; a wrong one is told at once."""
    [event] = decoded(ROWS[0][0], None)
    assert (event.code, "--timezone" in reason(event)) == (Code.NO_TIMEZONE, True)
    with pytest.raises(UsageError):
        make_decoder("ckafka", DecodeOptions("Mars/Olympus"))


def ready(column: str, value: str | None, binary: str = "") -> str:
    """A value's literal in a column of the target."""
    convert = raw_converter(f"ckafka:Asia/Shanghai,{binary}", column_type(column, nullable=True), _never)
    raw = "NULL" if value is None else text(value)
    return raw if convert is None else convert(raw)


def _never(why: str) -> None:
    raise AssertionError(why)


VALUES = [
    ("tinyint(4)", "-128", "-128"), ("tinyint(1)", "true", "1"), ("tinyint(1)", "false", "0"), ("int(11)", "007", "7"),
    ("tinyint(3) unsigned", "-1", "255"), ("smallint(5) unsigned", "65535", "65535"),
    ("mediumint(8) unsigned", "-1", "16777215"), ("int(10) unsigned", "4294967295", "4294967295"),
    ("bigint(20)", "-9223372036854775808", "-9223372036854775808"), ("bigint(20) unsigned", "-1", str((1 << 64) - 1)),
    ("bigint(20) unsigned", "18446744073709551615", "18446744073709551615"),
    ("bit(1)", "true", "1"), ("bit(64)", "-1", "18446744073709551615"), ("bit(8)", "65", "65"),
    ("decimal(65,30)", "1.50", "1.50"), ("decimal(10,0) unsigned", "3", "3"),
    ("decimal(20,10)", "0E-10", "0.0000000000"),
    ("float", "0.1", "0.10000000149011612e0"), ("double(10,3)", "1e3", "1000.0e0"),
    ("char(10)", "it's", r"'it\'s'"), ("varchar(20)", "null", "'null'"), ("longtext", "a\0b", r"'a\0b'"),
    ("enum('a','b')", "a", "'a'"), ("enum('a','b')", "2", "2"), ("enum('2','1')", "2", "'2'"),
    ("set('a','b')", "3", "3"), ("set('a','b')", "a,b", "'a,b'"),
    ("json", '{"a":1}', """'{"a":1}'"""), ("vector(3)", "[1,2,3]", "'[1,2,3]'"),
    ("date", "2024-02-29", "'2024-02-29'"), ("date", "0000-00-00", "'0000-00-00'"),
    ("datetime(6)", "2024-01-01 00:00:00.5", "'2024-01-01 00:00:00.5'"), ("time", "-838:59:59", "'-838:59:59'"),
    ("timestamp", "2024-01-01 08:00:00", "'2024-01-01 00:00:00'"), ("year(4)", "2024", "2024"), ("year(4)", "0", "0"),
]  # fmt: skip


@pytest.mark.parametrize(("column", "value", "literal"), VALUES)
def test_value(column: str, value: str, literal: str) -> None:
    """The target's column makes the literal; NULL is NULL in all of them."""
    assert ready(column, value) == literal
    assert ready(column, None) == "NULL"


@pytest.mark.parametrize("word", ["binary(3)", "varbinary(9)", "tinyblob", "blob", "mediumblob", "longblob"])
def test_binary(word: str) -> None:
    """Nothing tells base64 from ISO-8859-1 text, so a setting does; without it a binary value is an error."""
    assert ready(word, "/wBB", "base64") == "x'ff0041'"
    assert ready(word, "\xff\0A", "latin1") == "x'ff0041'"
    assert ready(word, "", "base64") == ready(word, "", "latin1") == ("x'000000'" if word == "binary(3)" else "''")
    with pytest.raises(DecodeError, match=r"ckafka\.binary"):
        ready(word, "/wBB")


@pytest.mark.parametrize(
    ("column", "value"),
    [("int(11)", "1 OR 1=1"), ("decimal(9,2)", "1e66"), ("decimal(9,2)", "NaN"),
     ("double", "x"), ("date", "20240101"), ("year(4)", "1900"),
     ("datetime", "2024-01-01T00:00:00"), ("timestamp", "1704067200"), ("bit(1)", "t"),
     ("tinyint(1) unsigned", "-200")],
)  # fmt: skip
def test_wrong_value(column: str, value: str) -> None:
    """What the column cannot have had is refused, not converted."""
    with pytest.raises(DecodeError):
        ready(column, value)
    with pytest.raises((*FAILURES, DecodeError)):
        ready("blob", "not base64!", "base64")


def test_form_travels() -> None:
    """The form says the zone and the way of binary values, so that executors need no settings."""
    decoder = make_decoder("ckafka", DecodeOptions("UTC", ckafka_binary="latin1"))
    [event] = decode_message(decoder, None, ROWS[0][0])
    assert split_forms(row_change(event).columns)[1] == ["ckafka:UTC,latin1"] * 4


NUMBERS = (
    '{"id": 1004, "price": 0.1000, "large": 12345678901234567890.123456789, "on": true, "no": null,'
    ' "u": 18446744073709551615}'
)
AS_TEXTS = r"'1004' '0.1000' '12345678901234567890.123456789' '1' NULL '18446744073709551615'".replace(" ", "\0")


def _joined(new: str, **fields: Any) -> bytes:
    """A row message with this text as its row."""
    return row("I", "@", None, **fields).replace(b'"@"', new.encode())


@pytest.mark.parametrize(
    ("value", "before", "after"),
    [
        (row("I", orjson.dumps(OLD).decode(), None), None, OLD_IMAGE),
        (row("U", orjson.dumps(NEW).decode(), orjson.dumps(OLD).decode()), OLD_IMAGE, NEW_IMAGE),
        (row("D", "", orjson.dumps(OLD).decode()), OLD_IMAGE, None),
        *((row("D", "null", OLD), OLD_IMAGE, None), (row("U", NEW, None), None, NEW_IMAGE)),
        *((_joined(NUMBERS), None, AS_TEXTS), (row("I", NUMBERS, None), None, AS_TEXTS)),
    ],
)
def test_other_readings_of_a_row_in_json(value: bytes, before: str | None, after: str | None) -> None:
    """A row as the text of its object, numbers as JSON numbers with all their digits, an update without its old row."""
    [event] = decoded(value)
    assert (event.before, event.after) == (before, after)
    without_nulls = {name: found for name, found in orjson.loads(value).items() if found is not None}
    if b"12345678901234567890.1" not in value:
        [event] = decoded(compact(without_nulls))
        assert (event.before, event.after) == (before, after)


@pytest.mark.parametrize("values", ["{", "[1]", "5", '"x"', "{}"])
def test_texts_that_are_no_row(values: str) -> None:
    """They are refused."""
    [event] = decoded(row("I", values, None))
    assert event.kind is Kind.BAD
