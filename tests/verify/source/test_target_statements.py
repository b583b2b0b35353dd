"""Statements that give a target the columns of the source."""

from __future__ import annotations

import pytest

from bridge.model import TableName
from bridge.mysql.table_definition import ColumnInfo, Definition
from bridge.verify.source.target_statements import column_statements
from tests.support.verify_servers import Pair, execute, said

COLUMNS = [
    ("varchar(9)", "NOT NULL", "varchar(9) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL"),
    ("enum('a','it''s')", "DEFAULT 'a'", "enum('a','it''s') CHARACTER SET latin1 COLLATE latin1_bin DEFAULT 'a'"),
    ("text", "", "text CHARACTER SET latin1 COLLATE latin1_bin"),
    ("text", "COLLATE latin1_bin COMMENT 'x'", "text COLLATE latin1_bin COMMENT 'x'"),
    ("char(3)", "CHARACTER SET latin1 COLLATE latin1_bin", "char(3) CHARACTER SET latin1 COLLATE latin1_bin"),
]


@pytest.mark.parametrize(("kind", "rest", "wanted"), COLUMNS)
def test_the_collation_of_the_table_is_written_out(kind: str, rest: str, wanted: str) -> None:
    """SHOW CREATE TABLE leaves it out of a column that has it, and the target's table may have another one."""
    column = ColumnInfo("c", kind.split("(")[0], kind, "latin1", "latin1_bin", True, False, False)
    create = f"CREATE TABLE `t` (\n  `c` {kind} {rest}".rstrip() + "\n)"
    [statement] = column_statements(Definition(TableName("m", "t"), {"c": column}, {}), create, [], ["c"])
    assert statement == f"ALTER TABLE `m`.`t` MODIFY COLUMN `c` {wanted}"


def test_columns_get_the_collation_of_the_source(pair: Pair) -> None:
    """Those that are changed and those that are added, where the target's table has another one by default."""
    pair.both(
        "CREATE DATABASE app; CREATE TABLE app.t (id INT PRIMARY KEY, v VARCHAR(9), w ENUM('a','b') DEFAULT 'a')"
        " COLLATE utf8mb4_bin; INSERT INTO app.t VALUES (1, 'x', 'b')"
    )
    pair.damage("ALTER TABLE app.t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, DROP COLUMN w")
    assert not pair.verify().is_equal
    pair.run_fix()
    assert said(pair.verify()) == {"t 1 different w"}
    pair.run_fix()
    assert pair.verify().is_equal
    assert execute(pair.target, "SELECT * FROM app.t") == [(1, "x", "b")]
