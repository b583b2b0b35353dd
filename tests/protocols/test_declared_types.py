"""What messages say of the types of their columns travels with the names of the columns."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.errors import UsageError
from bridge.protocols import DecodeError
from bridge.protocols.values.event_time import timestamp_converter
from bridge.protocols.values.row_image import declared_types, split_forms, with_declared_types
from tests.support.debezium_wire import ID, event_of, named, native
from tests.support.wire import canal, decode, open_event, open_row


@pytest.mark.parametrize("said", ["bigint unsigned", "varchar(10)", "enum('a','b''c')", "decimal(10,2)"])
def test_canal_json(said: str) -> None:
    """mysqlType as it is; of a very long one nothing."""
    row = {"id": ("int", "1"), "v": (said, None), "w": (f"enum('{'x' * 300}')", None)}
    [event] = decode("canal-json", b"", canal("INSERT", row))
    assert declared_types(event.columns or "") == ("int", said, "")


@pytest.mark.parametrize(
    ("spelled", "shown"),
    [
        ("FLOAT8", "double"),
        ("FLOAT(53) unsigned", "double unsigned"),
        ("FLOAT(24)", "FLOAT(24)"),
        ("INT3 unsigned zerofill", "mediumint unsigned"),
        *(("INT8(20)", "bigint(20)"), ("SERIAL", "bigint unsigned"), ("NATIONAL VARCHAR(20)", "varchar(20)")),
        *(("NCHAR", "char"), ("CHAR(4)", "CHAR(4)"), ("LONG VARBINARY", "mediumblob"), ("LONG", "mediumtext")),
        *(("TEXT(100)", ""), ("BLOB(100)", ""), ("GEOMCOLLECTION", "GEOMCOLLECTION")),
    ],
)
def test_official_canal(spelled: str, shown: str) -> None:
    """The type that a server makes of what the statement spells; of TEXT(n) the server chooses by its character set."""
    [event] = decode("canal-json", b"", canal("INSERT", {"v": (spelled, None)}))
    assert declared_types(event.columns or "") == (shown,)


@pytest.mark.parametrize(
    ("column", "declared"),
    [
        *(({"t": 8, "f": 0}, "bigint"), ({"t": 8, "f": 193}, "bigint unsigned"), ({"t": 8}, "")),
        *(({"t": 246, "f": 192}, "decimal unsigned"), ({"t": 15, "f": 64}, "varchar")),
        *(({"t": 15, "f": 65}, "varbinary"), ({"t": 254, "f": 65}, "binary"), ({"t": 252, "f": 64}, "text")),
        *(({"t": 252, "f": 65}, "blob"), ({"t": 252}, ""), ({"t": 247, "f": 64}, "enum")),
        ({"t": 7, "f": 65}, "timestamp"),
    ],
)
def test_open_protocol(column: dict[str, Any], declared: str) -> None:
    """Type code and flags; without flags neither sign nor character set is known."""
    event = open_event(*open_row({"u": {"v": column | {"v": None}}}))
    assert declared_types(event.columns or "") == (declared,)


@pytest.mark.parametrize(
    ("field", "declared"),
    [
        ({"type": "int64", "tidb_type": "bigint unsigned"}, "bigint unsigned"),
        (named("bytes", "data.Bits", tidb_type="bit", parameters={"length": "9"}), "bit(9)"),
        (named("string", "data.Enum", tidb_type="enum", parameters={"allowed": "a,b"}), "enum"),
        ({"type": "int32"}, ""),
        ({"type": "int32", "parameters": {"__debezium.source.column.type": "INT UNSIGNED"}}, "int unsigned"),
        (
            {
                "type": "string",
                "parameters": {
                    "__debezium.source.column.type": "DECIMAL UNSIGNED",
                    "__debezium.source.column.length": "10",
                    "__debezium.source.column.scale": "2",
                },
            },
            "decimal(10,2) unsigned",
        ),
        (
            {
                "type": "string",
                "parameters": {"__debezium.source.column.type": "ENUM", "__debezium.source.column.length": "1"},
            },
            "enum",
        ),
        ({"type": "string", "parameters": {"__debezium.source.column.type": 7}}, ""),
    ],
)
def test_debezium(field: dict[str, Any], declared: str) -> None:
    """tidb_type, or the native connector's where it sends it."""
    event = event_of(native("c", {"id": 1, "v": None}, [ID, field | {"field": "v"}]))
    assert declared_types(event.columns or "")[1] == declared


def test_names_forms_and_types() -> None:
    """All three are told apart, whatever the message calls a type; NUL has no place in it."""
    columns = with_declared_types("a\0b", ("", "json"), ("int", "x\0y"))
    assert split_forms(columns) == ("a\0b", ["", "json"])
    assert declared_types(columns) == ("int", "")
    assert declared_types("a\0b") == ("", "")
    assert declared_types(with_declared_types("a", ("",), ("",))) == ("",)


@pytest.mark.parametrize(
    ("zone", "local", "utc"),
    [
        ("UTC", "2024-02-29 12:34:56.789", "2024-02-29 12:34:56.789"),
        ("Etc/UTC", "2024-02-29 12:34:56", "2024-02-29 12:34:56"),
        ("+00:00", "2024-02-29 12:34:56", "2024-02-29 12:34:56"),
        ("+08:00", "2024-03-01 07:34:56.000001", "2024-02-29 23:34:56.000001"),
        ("-03:30", "2023-12-31 22:00:00.10", "2024-01-01 01:30:00.10"),
        ("+08:00", "0000-00-00 00:00:00.000", "0000-00-00 00:00:00.000"),
        ("Asia/Shanghai", "2024-02-29 12:34:56", "2024-02-29 04:34:56"),
        ("Asia/Shanghai", "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
        # Shanghai had summer time in 1986-1991
        ("Asia/Shanghai", "1986-07-01 12:00:00", "1986-07-01 03:00:00"),
        ("Asia/Shanghai", "1991-09-14 12:00:00.5", "1991-09-14 03:00:00.5"),
        ("Asia/Shanghai", "1991-12-01 12:00:00", "1991-12-01 04:00:00"),
        ("America/New_York", "2024-07-01 00:00:00", "2024-07-01 04:00:00"),
        ("America/New_York", "2024-03-10 03:00:00", "2024-03-10 07:00:00"),
        ("America/New_York", "2024-11-03 00:59:59.999999", "2024-11-03 04:59:59.999999"),
        ("America/New_York", "2024-11-03 02:00:00", "2024-11-03 07:00:00"),
        ("Africa/Monrovia", "1971-01-01 00:00:00", "1971-01-01 00:44:30"),
    ],
)
def test_conversion(zone: str, local: str, utc: str) -> None:
    """The zone's offset of that moment is taken off; fraction digits stay as they are; zero has no zone."""
    assert timestamp_converter(zone)(local) == f"'{utc}'"


@pytest.mark.parametrize(
    ("zone", "local", "why"),
    [
        ("America/New_York", "2024-11-03 01:30:00", "two moments"),
        ("America/New_York", "2024-03-10 02:30:00", "does not exist"),
        ("Asia/Shanghai", "1988-04-17 02:30:00", "does not exist"),
        ("Asia/Shanghai", "1988-09-11 01:30:00.5", "two moments"),
        ("Australia/Lord_Howe", "2024-04-07 01:45:00", "two moments"),
    ],
)
def test_lost_moments(zone: str, local: str, why: str) -> None:
    """A local time that clocks showed twice or never cannot be told; the fix is a changefeed in UTC."""
    with pytest.raises(DecodeError, match=rf"{why}.*in UTC"):
        timestamp_converter(zone)(local)


@pytest.mark.parametrize("zone", ["+08:00", "Asia/Shanghai"])
@pytest.mark.parametrize("local", ["2024-00-10 00:00:00", "2023-02-29 00:00:00", "0001-01-01 00:00:00"])
def test_no_moment(zone: str, local: str) -> None:
    """A date that no calendar has, or that falls off it in UTC, is refused."""
    with pytest.raises(DecodeError, match="is not a valid time"):
        timestamp_converter(zone)(local)


def test_unknown_zone() -> None:
    """Without a zone only the zero TIMESTAMP is known; the reason names the flag."""
    assert timestamp_converter(None)("0000-00-00 00:00:00.00") == "'0000-00-00 00:00:00.00'"
    with pytest.raises(DecodeError, match="--timezone"):
        timestamp_converter(None)("2024-01-01 00:00:00")


@pytest.mark.parametrize("zone", ["Asia/Shangai", "", "+25:00", "../../etc/passwd", "/etc/passwd", "America", "8"])
def test_wrong_zone(zone: str) -> None:
    """A zone that is none is a usage error."""
    with pytest.raises(UsageError):
        timestamp_converter(zone)


def test_wrong_zone_names_the_closest() -> None:
    """A misspelt zone's message names the one that was meant."""
    with pytest.raises(UsageError) as refusal:
        timestamp_converter("Asia/Shangai")
    assert "Asia/Shanghai" in str(refusal.value)
