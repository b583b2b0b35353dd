"""Windows that are folded and rendered on Spark's executors, against a real server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from bridge.events import Kind, RowChange
from bridge.mysql.connection.session import Session
from bridge.rows.gathering import Amount
from bridge.rows.order_and_slices import RowChanges
from bridge.spark import shards as kept_executors
from tests.support.kept import executors_of, kept
from tests.support.pipelines import opened, session_after
from tests.support.upstreams import boundary, in_one_partition, row_change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


session = session_after("CREATE DATABASE m DEFAULT CHARSET utf8mb4")


def apply(spark: SparkSession, target: str, events: list[RowChange], folder: str | None = None) -> None:
    """All of them as one window, on executors."""

    executors = executors_of(spark, folder)

    def rows_of(some: Iterable[RowChanges], low: int, high: int) -> RowChanges:
        return executors.rows_of([kept(spark, one, folder) for one in some], low, high)

    with opened(target, [("cdc", 0)], rows_of=rows_of) as pipeline:
        pipeline.take(in_one_partition([*events, boundary(1000)]))


def test_pieces_keep_values_of_target_only_columns_apart(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, target: str, session: Session
) -> None:
    """Unique values that change places among rows of many Spark partitions: all statements run in one session, and
    each row keeps what only the target has."""
    monkeypatch.setattr(kept_executors, "_SHARD", Amount(1, 1 << 30))
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, u INT UNIQUE, extra INT)")
    count = 12
    session.execute("INSERT INTO m.t VALUES " + ",".join(f"({i},{i},{100 + i})" for i in range(count)))
    moved = [row_change(10, "t", ["id", "u"], ["id"], before=[i, i], after=[i, (i + 1) % count]) for i in range(count)]
    apply(spark, target, moved)
    found = session.rows("SELECT id, u, extra FROM m.t ORDER BY id")
    assert found == [(i, (i + 1) % count, 100 + i) for i in range(count)]


def test_a_row_comes_under_a_spelling_by_which_another_goes(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, target: str, session: Session
) -> None:
    """Blanks at the end make no other key, and one spelling goes by one shard, the other one by another: whatever the
    order of the shards, no row goes after it came."""
    monkeypatch.setattr(kept_executors, "_SHARD", Amount(1, 1 << 30))
    session.execute("CREATE TABLE m.t (k VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY, v INT)")
    session.execute("INSERT INTO m.t VALUES " + ",".join(f"('{n}',0)" for n in range(8)))
    goes = [row_change(10, "t", ["k", "v"], ["k"], before=[f"{n}", 0]) for n in range(8)]
    comes = [row_change(11, "t", ["k", "v"], ["k"], after=[f"{n} ", 1]) for n in range(8)]
    apply(spark, target, [*goes, *comes])
    assert session.rows("SELECT k, v FROM m.t ORDER BY k") == [(f"{n} ", 1) for n in range(8)]


def test_spellings_of_one_key_are_one_key(spark: SparkSession, target: str, session: Session) -> None:
    """Updates that do not hold the old row may have respelled the key: what comes last is what the target holds; keys
    that only look alike stay apart."""
    session.execute("CREATE TABLE m.t (k VARCHAR(20) COLLATE utf8mb4_general_ci, c INT, v INT, PRIMARY KEY (k, c));")
    session.execute("INSERT INTO m.t VALUES ('alice', 1, 0)")
    names = ["k", "c", "v"]
    updates = [
        row_change(10 + i, "t", names, names[:2], after=row)._replace(kind=Kind.UPDATE)
        for i, row in enumerate([["Ålice", 1, 1], ["alice", 1, 2], ["ALICE", 1, 3], ["alice ", 1, 4], ["ALICE", 2, 9]])
    ]
    updates.append(row_change(20, "t", names, names[:2], before=["bøb", 1, 1]))
    apply(spark, target, updates)
    assert session.rows("SELECT k, c, v FROM m.t ORDER BY c") == [("alice ", 1, 4), ("ALICE", 2, 9)]
