"""Ranges of a key with few gaps are computed; those of a primary key are read where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from bridge.model import TableName
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.table_definition import Definition, load_definitions
from bridge.verify.compare.key_sql import DenseKey, between, dense_key, in_key_order, key_parts
from tests.support.verify_servers import Pair, execute, said

T = TableName("app", "t")


def ends(dense: DenseKey, rows: int) -> list[int]:
    """The ends of all ranges, each looked for behind the one before."""
    found: list[int] = []
    while (end := dense.end(found[-1] if found else None, rows)) is not None:
        found.append(end)
    return found


@pytest.mark.parametrize(
    ("dense", "rows", "expected"),
    [
        (DenseKey(1, 10), 4, [4, 8]),
        (DenseKey(1, 8), 4, [4]),
        (DenseKey(1, 4), 4, []),
        (DenseKey(-3, 3), 2, [-2, 0, 2]),
        (DenseKey(7, 7), 1, []),
        (DenseKey(2**64 - 4, 2**64 - 1), 2, [2**64 - 3]),
    ],
)
def test_ranges_hold_so_many_numbers_and_the_last_one_is_open(dense: DenseKey, rows: int, expected: list[int]) -> None:
    """The last range has no end, so that rows behind the last known key count too."""
    assert ends(dense, rows) == expected == list(dense.ends(rows))


def loaded(session: Session, columns: str, rows: Sequence[str] = (), select: str = "") -> Definition:
    """A table `app.t`, and its definition with the true number of rows."""
    session.execute("CREATE DATABASE IF NOT EXISTS app")
    session.execute("DROP TABLE IF EXISTS app.t")
    session.execute(f"CREATE TABLE app.t ({columns})")
    if rows or select:
        session.execute(f"INSERT INTO app.t {select or 'VALUES ' + ','.join(f'({row})' for row in rows)}")
    session.execute("ANALYZE TABLE app.t")
    return replace(load_definitions(session, [T])[T], rows=int(session.value("SELECT COUNT(*) FROM app.t")))


@pytest.mark.parametrize(
    ("columns", "rows", "expected"),
    [
        ("id INT PRIMARY KEY", ("3", "4", "6", "8"), DenseKey(3, 8)),
        ("id INT PRIMARY KEY", ("1", "2", "3", "8"), DenseKey(1, 8)),
        ("id INT PRIMARY KEY", ("1", "2", "3", "9"), None),
        ("id INT PRIMARY KEY", (), None),
        ("id BIGINT UNSIGNED PRIMARY KEY", ("18446744073709551614", "18446744073709551615"),
         DenseKey(2**64 - 2, 2**64 - 1)),
        ("id INT(6) ZEROFILL PRIMARY KEY", ("1", "2"), DenseKey(1, 2)),
        ("id INT, v INT, PRIMARY KEY (id, v)", ("1,1", "2,1"), None),
        ("id DECIMAL(9, 2) PRIMARY KEY", ("1", "2"), None),
        ("id VARCHAR(9) PRIMARY KEY", ("1", "2"), None),
    ],
)  # fmt: skip
def test_a_key_is_dense(target: str, columns: str, rows: Sequence[str], expected: DenseKey | None) -> None:
    """Where it is one integer with at most twice as many numbers as rows."""
    with closing(Target(target).connect()) as session:
        definition = loaded(session, columns, rows)
        assert dense_key(session.rows, definition, definition.keys[0]) == expected


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


def test_damage_at_the_ends_of_computed_ranges(pair: Pair) -> None:
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
