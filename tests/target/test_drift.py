"""What rows need and the target's table does not have is told before anything of their transaction is written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bridge.errors import ApplyError
from bridge.target.session import Session
from tests.stream.pipelines import admin, run_all
from tests.stream.upstreams import boundary, in_one_partition, row_change

KEPT = row_change(10, "u", ["id"], ["id"], after=[1])


@pytest.fixture
def session(target: str) -> Iterator[Session]:
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.u (id INT PRIMARY KEY)")
        yield session


def refusal(url: str, columns: list[str], values: list[object]) -> str:
    """How a bridge ends that comes to this row, in a transaction with another table's."""
    events = [KEPT, row_change(10, "t", columns, ["id"], after=values), boundary(11)]
    with pytest.raises(ApplyError) as raised:
        run_all(url, in_one_partition(events))
    return str(raised.value)


def test_a_missing_table(target: str, session: Session) -> None:
    """Named with the commit ts; nothing of the transaction is written."""
    said = refusal(target, ["id"], [1])
    assert "no table m.t" in said
    assert "commit ts 10 " in said
    assert session.rows("SELECT * FROM m.u") == []


def test_a_missing_column(target: str, session: Session) -> None:
    """Named with table and commit ts; nothing of the transaction is written."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY)")
    said = refusal(target, ["id", "c"], [1, 2])
    assert "m.t lacks the column c" in said
    assert "commit ts 10 " in said
    assert session.rows("SELECT * FROM m.u") == []


SAID_BY_THE_SERVER = [
    ("TINYINT", 300),
    ("INT UNSIGNED", -1),
    ("VARCHAR(3)", "abcd"),
    ("VARCHAR(3)", "abc "),
    ("DECIMAL(5,2)", "1.005"),
    ("DATE", "2024-01-01 10:00:00"),
    ("YEAR", 2200),
    ("VARCHAR(9) CHARACTER SET latin1", "中"),
]

CUT_IN_SILENCE = [
    ("DATETIME", "2024-01-01 00:00:00.25"),
    ("DATETIME(3)", "2024-01-01 00:00:00.123456"),
    ("TIMESTAMP", "2024-01-01 00:00:00.5"),
    ("TIME(1)", "10:00:00.55"),
]
"""Looked for in the first rows of a transaction only: a source column of such a type has the digits in every row."""


@pytest.mark.parametrize(
    ("column_type", "value", "position"),
    [*((*case, 0) for case in SAID_BY_THE_SERVER + CUT_IN_SILENCE), *((*case, 20) for case in SAID_BY_THE_SERVER)],
)
def test_a_narrower_type(target: str, session: Session, column_type: str, value: object, position: int) -> None:
    """A column that cannot hold a value, or would cut it, is named with its table and a commit ts - exactly, or as the
    transaction's range - and nothing of the transaction is written.  `position`: rows before that one."""
    session.execute(f"CREATE TABLE m.t (id INT PRIMARY KEY, narrow {column_type})")
    rows = [row_change(10, "t", ["id", "narrow"], ["id"], after=[i, None]) for i in range(position)]
    row = row_change(10, "t", ["id", "narrow"], ["id"], after=[99, value])
    with pytest.raises(ApplyError) as raised:
        run_all(target, in_one_partition([KEPT, *rows, row, boundary(11)]))
    said = str(raised.value)
    assert "m.t" in said
    assert "narrow" in said
    assert "commit ts" in said
    assert session.rows("SELECT * FROM m.u") == []
    assert session.rows("SELECT * FROM m.t") == []


WIDE_ENOUGH = [
    ("DATETIME", "2024-01-01 00:00:00.000"),
    ("DECIMAL(5,2)", "1.500"),
    ("VARCHAR(4)", "abcd"),
    ("FLOAT", 0.1),
    ("BIGINT", 2**62),
    ("DATE", "2024-01-01"),
]


@pytest.mark.parametrize(("column_type", "value"), WIDE_ENOUGH)
def test_wide_enough(target: str, session: Session, column_type: str, value: object) -> None:
    """A type that differs but holds the value is no error."""
    session.execute(f"CREATE TABLE m.t (id INT PRIMARY KEY, c {column_type})")
    run_all(target, in_one_partition([row_change(10, "t", ["id", "c"], ["id"], after=[1, value]), boundary(11)]))
    assert session.rows("SELECT COUNT(*) FROM m.t") == [(1,)]
