"""What messages say of the types of their columns travels with the names of the columns."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.protocols.values.untyped import declared_types, split_forms, with_forms, with_types
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
    columns = with_types(with_forms("a\0b", ["", "json"]), ("int", "x\0y"))
    assert split_forms(columns) == ("a\0b", ["", "json"])
    assert declared_types(columns) == ("int", "")
    assert declared_types("a\0b") == ("", "")
    assert declared_types(with_types("a", ("",))) == ("",)
