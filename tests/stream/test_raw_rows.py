"""Row changes with raw values meet the target's catalog."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
import structlog

from bridge.errors import ApplyError
from bridge.events import EVENT_SCHEMA, Event, Kind
from bridge.protocols.raw_values import with_forms
from bridge.stream import raw_rows
from bridge.stream.raw_rows import typed
from bridge.target.catalog import Column, Table, TableName

JSON = "json:double,adaptive_time_microseconds,base64"
NAME = TableName("d", "t")
TABLE = Table(
    NAME,
    {
        "id": Column("id", "bigint unsigned", None, generated=False, nullable=False),
        "d": Column("D", "decimal(20,4)", None, generated=False),
        "at": Column("at", "datetime(6)", None, generated=False, nullable=False),
    },
    (("id",),),
    (("id",),),
)


def changes(*events: Event) -> pa.Table:
    rows = [("t", 0, offset, *event) for offset, event in enumerate(events)]
    arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), EVENT_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=EVENT_SCHEMA)


def row(columns: str, before: str | None, after: str | None) -> Event:
    return Event(Kind.UPDATE, 5, schema="d", table="t", columns=columns, key="id", before=before, after=after)


@pytest.fixture(autouse=True)
def _nothing_said_yet() -> Iterator[None]:
    raw_rows._said.clear()
    yield
    raw_rows._said.clear()


def test_ready_rows_stay_the_same_object() -> None:
    """Formats with types pay nothing."""
    ready = changes(row("id\0d", "1\x001.0", "1\x002.0"))
    assert typed(TABLE, ready) is ready


def test_raw_rows_become_ready() -> None:
    """Literals are the columns', names are plain, ready rows of the same table stay, the schema too."""
    raw = with_forms("id\0D\0at", [JSON])
    mixed = with_forms("id\0d", ["", "float64"])
    found = typed(
        TABLE,
        changes(
            row(raw, "-1\x001.5e0\x001000000", "-1\0NULL\x002000000"),
            row("id\0d", None, "-1\x001.5e0"),
            row(mixed, "-1\x002", None),
            row(with_forms("id", [JSON]), None, "7"),
        ),
    )
    assert found.schema == EVENT_SCHEMA
    assert found["columns"].to_pylist() == ["id\0D\0at", "id\0d", "id\0d", "id"]
    assert found["before"].to_pylist() == [
        "18446744073709551615\x001.5000\0'1970-01-01 00:00:01'", None, "-1\x002.0000", None,
    ]  # fmt: skip
    assert found["after"].to_pylist() == [
        "18446744073709551615\0NULL\0'1970-01-01 00:00:02'", "-1\x001.5e0", None, "7",
    ]  # fmt: skip


def test_columns_that_the_target_lacks_are_left_to_rendering() -> None:
    """Typing says nothing of a missing column; rendering does."""
    found = typed(TABLE, changes(row(with_forms("id\0gone", [JSON]), None, "-1\x005")))
    assert found["after"].to_pylist() == ["18446744073709551615\x005"]


def test_an_impossible_value_names_its_place() -> None:
    """Table, column, position and commit ts."""
    rows = changes(
        row(with_forms("id\0at", [JSON]), None, "1\x001"), row(with_forms("id\0at", [JSON]), "1\0'x'", "1\x001")
    )
    with pytest.raises(ApplyError) as refusal:
        typed(TABLE, rows)
    for words in ("d.t", "column at", "t/0/1", "commit ts 5", "[debezium]"):
        assert words in str(refusal.value)


def test_losses_are_said_once_per_column() -> None:
    """An error line with the table, the column and the mend, not one per value."""
    lossy = row(with_forms("id\0d", [JSON]), None, "1\x001234567890123456.8e0")
    with structlog.testing.capture_logs() as logs:
        typed(TABLE, changes(lossy, lossy))
        typed(TABLE, changes(lossy))
    [said] = logs
    assert (said["log_level"], said["table"], said["column"]) == ("error", "d.t", "d")
    assert "Canal-JSON" in said["mend"]
