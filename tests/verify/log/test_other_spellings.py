"""Keys that are one to the target's collation, and two to an upstream that compares bytes."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.ddl.policy import ddl_rules
from bridge.verify.report import TableResult
from tests.generated.verifying import verify_events
from tests.support.pipelines import run_all, sql
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change

SERVERS = ["target", "mysql_target"]


def verified(url: str, second: str, source: str) -> TableResult:
    """What verify finds where rows 'a' and `second` came, written as if the source were this one."""
    sql(url, "CREATE DATABASE m")
    log = [
        schema_change(5, "CREATE TABLE t (k VARCHAR(20) PRIMARY KEY, v INT) COLLATE utf8mb4_general_ci"),
        row_change(10, "t", ["k", "v"], ["k"], after=["a", 1]),
        row_change(11, "t", ["k", "v"], ["k"], after=[second, 2]),
        boundary(900),
    ]
    run_all(url, in_one_partition(log), ddl=ddl_rules(source=source))
    [table] = verify_events(url, in_one_partition(log)).tables
    return table


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("second", ["A", "a "])
def test_a_row_that_was_overwritten_is_not_covered(request: Any, server: str, second: str) -> None:
    """The target has one row for the two, and the order in which it loads them tells nothing."""
    table = verified(request.getfixturevalue(server), second, "mysql-8")
    assert (table.rows, table.not_covered, "spell" in table.notes[0]) == (0, 1, True)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("second", ["A", "a "])
def test_rows_that_are_two_on_the_target_are_equal(request: Any, server: str, second: str) -> None:
    """With collations that compare bytes."""
    assert verified(request.getfixturevalue(server), second, "tidb-old-collations").is_equal
