"""What a server says of its tables."""

from __future__ import annotations

import pytest

from bridge.model import TableName
from bridge.mysql.table_definition import ColumnInfo, Definition, list_tables, load_definitions
from tests.support.pipelines import admin
from tests.support.verify_servers import execute


def test_every_table_with_rows_is_listed(target: str) -> None:
    """A system-versioned one too, which MariaDB calls by a word of its own; views and sequences have no rows."""
    execute(
        target,
        "CREATE DATABASE app; CREATE TABLE app.plain (id INT PRIMARY KEY);"
        " CREATE TABLE app.versioned (id INT PRIMARY KEY) WITH SYSTEM VERSIONING;"
        " CREATE VIEW app.seen AS SELECT * FROM app.plain; CREATE SEQUENCE app.counted",
    )
    plain, versioned, seen = (TableName("app", name) for name in ("plain", "versioned", "seen"))
    with admin(target) as session:
        assert list_tables(session) == [plain, versioned]
        assert load_definitions(session, [plain, versioned, seen]).keys() == {plain, versioned}


@pytest.mark.parametrize("is_tidb", [False, True])
def test_bits_that_tidb_turns_around_are_written_anew(is_tidb: bool) -> None:
    """By verify's file of fixes too, whichever way a table was read: ON DUPLICATE KEY UPDATE would store other bits."""
    column = ColumnInfo("b", "bit", "bit(64)", "", "", nullable=True, generated=False, is_json=False)
    assert Definition(TableName("m", "t"), {"b": column}, is_tidb=is_tidb).table.writes_anew is is_tidb
