"""A SET may have a member without letters, which servers lose when one column is copied to another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.generated.verifying import verify_events
from tests.support.clients import run_file
from tests.support.pipelines import run_all, sql
from tests.support.upstreams import Literal, boundary, in_one_partition, row_change, schema_change

VALUES = (2, 1, 3, 0, 7)


def row(number: int, value: int) -> list[object]:
    return [number, Literal(str(value))]


@pytest.mark.parametrize("server", ["target", "mysql_target"])
@pytest.mark.parametrize("writers", [0, 2])
def test_a_row_that_is_there_gets_it(target: str, mysql_target: str, tmp_path: Path, server: str, writers: int) -> None:
    """By messages, and by the statements of a fix file, which only has what texts tell: 3 is shown as 2 is."""
    url = mysql_target if server == "mysql_target" else target
    columns, numbers = ["id", "s"], range(len(VALUES))
    log = [schema_change(5, "CREATE TABLE t (id INT PRIMARY KEY, s SET('','a','b'))")]
    log += [row_change(10, "t", columns, ["id"], after=row(n, 4)) for n in numbers]
    log.append(boundary(15))
    log += [row_change(20, "t", columns, ["id"], before=row(n, 4), after=row(n, VALUES[n])) for n in numbers]
    events = in_one_partition([*log, boundary(25)])
    sql(url, "CREATE DATABASE m")
    run_all(url, events, batch=len(VALUES) + 2, writers=writers)
    query = "SELECT CAST(s AS UNSIGNED) FROM m.t ORDER BY id"
    right = [(value,) for value in VALUES]
    assert sql(url, query) == right
    assert verify_events(url, events).is_equal
    sql(url, "UPDATE m.t SET s = 4")
    assert verify_events(url, events, fixes=tmp_path / "fix.sql").tables[0].different == len(VALUES)
    run_file(url, tmp_path / "fix.sql")
    assert verify_events(url, events).is_equal
    assert sql(url, query)[:2] == right[:2]


@pytest.mark.parametrize("protocol", ["canal-json", "debezium"])
@pytest.mark.parametrize("server", ["target", "mysql_target"])
def test_a_row_keeps_it_where_messages_lack_it(target: str, mysql_target: str, server: str, protocol: str) -> None:
    """In a column that only the target has, while the row is deleted and written anew; and where messages by event time
    hold a part of a row, which stays or moves to another key."""
    url = mysql_target if server == "mysql_target" else target
    by_time, columns, numbers = protocol == "debezium", ["id", "v"], range(len(VALUES))
    made = [schema_change(5, "CREATE TABLE t (id INT PRIMARY KEY, v INT)")]
    made += [row_change(10, "t", columns, ["id"], after=[n, 0]) for n in numbers]
    sql(url, "CREATE DATABASE m")
    run_all(url, in_one_partition([*made, boundary(15)]))
    sql(url, "ALTER TABLE m.t ADD COLUMN s SET('','a','b')")
    for n in numbers:
        sql(url, f"UPDATE m.t SET s = {VALUES[n]} WHERE id = {n}")
    moved = 10 if by_time else 0
    changes = [
        row_change(20, "t", columns, ["id"], before=[n, 0], after=[n + moved * (n % 2), 1])._replace(by_time=by_time)
        for n in numbers
    ]
    run_all(url, in_one_partition([*made, boundary(15), *changes, boundary(25)]))
    found = sql(url, "SELECT CAST(s AS UNSIGNED) FROM m.t ORDER BY id % 10")
    assert found == [(value,) for value in VALUES]
