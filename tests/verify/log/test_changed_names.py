"""Verify against the log, where Debezium has changed names of columns for Avro (field.name.adjustment.mode=avro)."""

from __future__ import annotations

from bridge.events import SEP
from bridge.protocols.values.untyped import with_forms
from tests.generated.verifying import verify_events
from tests.support.pipelines import admin, run_all, sql
from tests.support.upstreams import boundary, in_one_partition, row_change

SENT = ["_1st_id", "a_b"]


def test_rows_are_compared_under_the_names_of_the_table(target: str) -> None:
    """A column of the key, and one that is not: what was applied is equal, and damage is found."""
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (`1st-id` INT PRIMARY KEY, `a-b` INT)")
    rows = [row_change(10, "t", SENT, SENT[:1], after=[n, n]) for n in range(3)]
    rows += [row_change(11, "t", SENT, SENT[:1], before=[1, 1], after=[1, 5])]
    columns = with_forms(SEP.join(SENT), ["avro", "avro"])
    events = in_one_partition([*(one._replace(columns=columns) for one in rows), boundary(20)])
    run_all(target, events, protocol="debezium")
    assert sql(target, "SELECT * FROM m.t ORDER BY 1") == [(0, 0), (1, 5), (2, 2)]
    assert verify_events(target, events, "debezium").is_equal
    sql(target, "UPDATE m.t SET `a-b` = 7 WHERE `1st-id` = 2", "SELECT 1")
    assert [(one.rows, one.different) for one in verify_events(target, events, "debezium").tables] == [(3, 1)]
