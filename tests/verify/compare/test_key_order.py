"""Ranges of a primary key are read where they lie."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from bridge.model import TableName
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.table_definition import Definition, load_definitions
from bridge.verify.compare.key_sql import between, in_key_order, key_parts
from tests.support.verify_servers import Pair, execute, said

T = TableName("app", "t")


def loaded(session: Session, columns: str, select: str = "") -> Definition:
    """A table `app.t`, and its definition."""
    session.execute("CREATE DATABASE IF NOT EXISTS app")
    session.execute("DROP TABLE IF EXISTS app.t")
    session.execute(f"CREATE TABLE app.t ({columns})")
    if select:
        session.execute(f"INSERT INTO app.t {select}")
    session.execute("ANALYZE TABLE app.t")
    return load_definitions(session, [T])[T]


def plan(session: Session, hint: str, where: str) -> str:
    """How the server reads a range."""
    row: Any = session.rows(f"EXPLAIN SELECT SUM(LENGTH(pad)) FROM app.t{hint} WHERE {where}")[0]
    return str(row[3])


def test_a_range_of_the_primary_key_is_read_where_it_lies(target: str) -> None:
    """MariaDB would read the whole table for half of it."""
    with closing(Target(target).connect()) as session:
        select = "SELECT seq, REPEAT('x', 100) FROM app.seq_1_to_30000"
        definition = loaded(session, "id INT PRIMARY KEY, pad VARCHAR(100)", select=select)
        key = [definition.columns["id"]]
        parts = key_parts(key, key)
        half = between(parts, (b"10000",), (b"25000",))
        assert plan(session, in_key_order(definition, parts), half) == "range"


@pytest.mark.parametrize(
    ("columns", "key", "hint"),
    [
        ("a INT, b INT, PRIMARY KEY (a, b)", "ab", " FORCE INDEX (PRIMARY)"),
        ("a INT, b INT, PRIMARY KEY (a, b)", "a", " FORCE INDEX (PRIMARY)"),
        ("a INT, b INT, PRIMARY KEY (a, b)", "b", ""),
        ("a INT NOT NULL UNIQUE, b INT PRIMARY KEY", "a", ""),
        ("a INT NOT NULL UNIQUE, b INT", "a", ""),
        ("a ENUM('x', 'y') PRIMARY KEY, b INT", "a", ""),
        ("a INT PRIMARY KEY, b INT", "", ""),
    ],
)
def test_only_the_order_of_the_primary_key_is_asked_for(target: str, columns: str, key: str, hint: str) -> None:
    """Another index, or another order than the column's own, would cost more than it spares."""
    with closing(Target(target).connect()) as session:
        definition = loaded(session, columns)
        mine = [definition.columns[name] for name in key]
        assert in_key_order(definition, key_parts(mine, mine)) == hint


def test_damage_at_the_ends_of_ranges(pair: Pair) -> None:
    """Rows below the first key and behind the last one of the source are extra; those at a range's end count once."""
    pair.both("CREATE DATABASE app; CREATE TABLE app.t (id INT PRIMARY KEY, v INT);"
              " INSERT INTO app.t SELECT seq * 3 DIV 2, seq FROM app.seq_1_to_30000; ANALYZE TABLE app.t")  # fmt: skip
    assert pair.verify("app.t").is_equal
    pair.damage("INSERT INTO app.t VALUES (-7, 1), (0, 1), (45001, 1); UPDATE app.t SET v = 0 WHERE id IN (10000, 1);"
                " DELETE FROM app.t WHERE id IN (9999, 45000)")  # fmt: skip
    report = pair.verify("app.t")
    assert said(report) == {
        "t -7 extra", "t 0 extra", "t 45001 extra", "t 10000 different v", "t 1 different v", "t 9999 missing",
        "t 45000 missing",
    }  # fmt: skip
    assert report.tables[0].chunks > 1
    pair.run_fix()
    assert pair.verify("app.t").is_equal
    assert execute(pair.target, "SELECT COUNT(*) FROM app.t") == [(30000,)]
