"""Official Canal keeps the names of types as statements spell them; rows end as the upstream has them."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import RefusedRowsError
from tests.generated.verifying import verify_events
from tests.support.clients import run_file
from tests.support.pipelines import run_all, sql
from tests.support.wire import decoded_lot, official

SERVERS = ("target", "old_target", "mysql_target", "old_mysql_target")
COLUMNS: list[tuple[str, str, str, Any]] = [
    *((name, name, "0.1", 0.1) for name in ("FLOAT8", "FLOAT(53)", "FLOAT(25)", "DOUBLE PRECISION", "REAL")),
    ("DOUBLE PRECISION(10,2) UNSIGNED", "DOUBLE PRECISION(10,2) unsigned", "1.5", 1.5),
    *((name, name, "-0.5", -0.5) for name in ("FLOAT4", "FLOAT(24)")),
    *((name, name, "-128", -128) for name in ("INT1", "TINYINT(1)", "BOOL", "BOOLEAN")),
    ("INT2 UNSIGNED", "INT2 unsigned", "65535", 65535),
    ("MIDDLEINT", "MIDDLEINT", "-8388608", -8388608),
    ("INT3 ZEROFILL", "INT3 unsigned zerofill", "16777215", 16777215),
    ("INT4", "INT4", "-2147483648", -2147483648),
    ("INT8 UNSIGNED", "INT8 unsigned", "18446744073709551615", 18446744073709551615),
    ("INTEGER(10) UNSIGNED", "INTEGER(10) unsigned", "4294967295", 4294967295),
    *((f"{name}(10,2)", f"{name}(10,2)", "1.50", Decimal("1.50")) for name in ("DEC", "FIXED", "NUMERIC")),
    *(
        (f"{name}(20)", f"{name}(20)", "ä'\\", "ä'\\")
        for name in (
            *("NCHAR", "NVARCHAR", "NATIONAL CHAR", "NATIONAL VARCHAR", "CHARACTER", "CHARACTER VARYING"),
            *("VARCHARACTER", "NATIONAL CHAR VARYING", "NATIONAL CHARACTER VARYING", "CHAR VARYING"),
        )
    ),
    ("LONG", "LONG", "Ã¤", "ä"),
    ("LONG VARCHAR", "mediumtext", "ä", "ä"),
    ("TEXT(100)", "TEXT(100)", "Ã¤'", "ä'"),
    ("TEXT(100) CHARACTER SET latin1", "TEXT(100)", "ä", "ä"),
    ("BLOB(100)", "BLOB(100)", "ÿ\0", b"\xff\0"),
    ("LONG VARBINARY", "LONG VARBINARY", "ÿ\0", b"\xff\0"),
    ("CHAR(4) CHARACTER SET binary", "CHAR(4)", "ä\0", b"\xc3\xa4\0\0"),
    ("VARCHAR(20) CHARACTER SET binary", "VARCHAR(20)", "ä\0 ", b"\xc3\xa4\0 "),
    ("TEXT CHARACTER SET binary", "TEXT", "ä\0", b"\xc3\xa4\0"),
    ("VARCHAR(20) CHARACTER SET latin1", "VARCHAR(20)", "a'", "a'"),
    ("CHAR(20) CHARACTER SET gbk", "CHAR(20)", "a'", "a'"),
    ("VARCHAR(20) CHARACTER SET utf16", "VARCHAR(20)", "\0a\0'", "a'"),
    ("CHAR(20) CHARACTER SET ucs2", "CHAR(20)", "\0a\0b", "ab"),
    ("TEXT CHARACTER SET utf32", "TEXT", "\0\0\0a", "a"),
    ("BINARY(4)", "BINARY(4)", "ÿ", b"\xff\0\0\0"),
    ("YEAR", "YEAR", "0000", 0),
    ("TIMESTAMP(3) NULL", "TIMESTAMP(3)", "2024-01-01 00:00:00.500", datetime(2024, 1, 1, 0, 0, 0, 500_000)),
]
"""A type in the upstream's statement, and as Canal names it; a value as Canal writes it, and as a server shows it."""


def message(kind: str, number: int, *, is_null: bool = False, old: Any = None) -> bytes:
    columns = {f"c{i}": (named, None if is_null else value) for i, (_, named, value, _) in enumerate(COLUMNS)}
    as_bytes = {name: 2004 for name, (named, _) in columns.items() if re.search("TEXT|LONG|BINARY|BLOB", named)}
    return official(kind, {"id": ("SERIAL", str(number)), **columns}, old=old, sqlType=as_bytes)


@pytest.mark.parametrize("url", SERVERS, indirect=True)
def test_every_name_of_a_type(url: str, tmp_path: Path) -> None:
    """Written, read back, verified, and written by a fix of verify; a SERIAL beyond 2^63 comes as a negative number."""
    lines = ", ".join(["id SERIAL PRIMARY KEY", *(f"c{i} {spelled}" for i, (spelled, *_) in enumerate(COLUMNS))])
    sql(url, "CREATE DATABASE m CHARACTER SET utf8mb4", f"CREATE TABLE m.t ({lines})")
    values = [
        *(message("INSERT", number) for number in (1, 2, 3, -2)),
        message("UPDATE", 2, is_null=True, old=[{f"c{i}": value for i, (_, _, value, _) in enumerate(COLUMNS)}]),
        message("DELETE", 3),
    ]
    events = decoded_lot("canal-json", values)
    run_all(url, events)
    query = f"SELECT id, {', '.join(f'c{i}' for i in range(len(COLUMNS)))} FROM m.t ORDER BY id"
    whole = [shown for *_, shown in COLUMNS]
    right = [(1, *whole), (2, *[None] * len(whole)), (2**64 - 2, *whole)]
    assert sql(url, query) == right
    assert verify_events(url, events).is_equal
    sql(url, "UPDATE m.t SET " + ", ".join(f"c{i} = NULL" for i in range(len(COLUMNS))))
    assert not verify_events(url, events, fixes=tmp_path / "fix.sql").is_equal
    run_file(url, tmp_path / "fix.sql")
    assert sql(url, query) == right


@pytest.mark.parametrize("url", SERVERS, indirect=True)
@pytest.mark.parametrize(
    ("charset", "one", "other", "shown"),
    [("latin1", "a", "b", "a"), ("utf16", "\0a", "\0b", "a"), ("binary", "ä", "é", b"\xc3\xa4")],
)
def test_keys_in_other_character_sets(url: str, charset: str, one: str, other: str, shown: Any) -> None:
    """Rows go and change by keys whose bytes Canal has read as UTF-8."""
    sql(url, "CREATE DATABASE m", f"CREATE TABLE m.t (k VARCHAR(20) CHARACTER SET {charset} PRIMARY KEY, v INT)")

    def of(kind: str, key: str, value: int, old: Any = None) -> bytes:
        columns = {"k": ("VARCHAR(20)", key), "v": ("INT", str(value))}
        return official(kind, columns, old=old, pkNames=["k"], sqlType={"k": 12, "v": 4})

    steps = (
        [of("INSERT", one, 1), of("INSERT", other, 2)],
        [of("UPDATE", one, 3, [{"v": "1"}])],
        [of("DELETE", other, 2), of("UPDATE", one, 4, [{"v": "3"}])],
    )
    for number in range(1, len(steps) + 1):  # each in a transaction of its own
        run_all(url, decoded_lot("canal-json", list(chain.from_iterable(steps[:number]))))
    assert sql(url, "SELECT k, v FROM m.t") == [(shown, 4)]


def test_a_binary_without_a_length(target: str) -> None:
    """It has one byte; a zero byte comes as nothing, and is the key of the row that goes."""
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.t (k BINARY PRIMARY KEY, v INT)")
    told: dict[str, Any] = {"pkNames": ["k"], "sqlType": {"k": 2004}}
    values = [official("INSERT", {"k": ("BINARY", "")}, data=[{"k": ""}, {"k": "a"}], **told)]
    values.append(official("DELETE", {"k": ("BINARY", "")}, **told))
    events = decoded_lot("canal-json", values)
    for count in (2, 3):  # each message in a transaction of its own
        run_all(target, events.slice(0, count).combine_chunks())
    assert sql(target, "SELECT k FROM m.t") == [(b"a",)]


@pytest.mark.parametrize("url", SERVERS, indirect=True)
@pytest.mark.parametrize("charset", ["latin1", "gbk"])
def test_texts_that_may_be_of_another_character_set_are_refused(url: str, charset: str) -> None:
    """A real Canal left out the ALTER DATABASE that had made the upstream's column utf8mb4: the bytes of its text would
    be other letters in the target's.  Nothing of their transaction is written."""
    sql(url, "CREATE DATABASE m", f"CREATE TABLE m.t (id INT PRIMARY KEY, v VARCHAR(10) CHARACTER SET {charset})")
    columns = [{"id": ("INT", str(number)), "v": ("VARCHAR(10)", text)} for number, text in enumerate(("a", "ä"))]
    events = decoded_lot("canal-json", [official("INSERT", row, sqlType={"id": 4, "v": 12}) for row in columns])
    with pytest.raises(RefusedRowsError, match=f"may be no text of {charset}"):
        run_all(url, events)
    assert sql(url, "SELECT * FROM m.t") == []
