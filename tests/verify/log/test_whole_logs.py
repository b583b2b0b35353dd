"""Whole logs, as events, against real targets: hashes first, then values."""

from __future__ import annotations

from tests.generated.verifying import verify_events
from tests.support.pipelines import run_all
from tests.support.upstreams import Literal, boundary, in_one_partition, row_change, schema_change
from tests.support.verify_servers import execute


def test_rows_count_once(target: str) -> None:
    """Also those that hashes call equal and that lie between others that have to be loaded."""
    spelled = ["1.00", "2.0", "3.00", "4.00", "5.00", "6.0", "7.0", "8.00", "9.0"]
    log = [schema_change(5, "CREATE TABLE t (id INT PRIMARY KEY, v DECIMAL(9,2))")]
    log += [row_change(10, "t", ["id", "v"], ["id"], after=[n, Literal(v)]) for n, v in enumerate(spelled)]
    events = in_one_partition([*log, boundary(11)])
    execute(target, "CREATE DATABASE m")
    run_all(target, events)
    [table] = verify_events(target, events).tables
    assert (table.is_equal, table.rows) == (True, len(spelled))
