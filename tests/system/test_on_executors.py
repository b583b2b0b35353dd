"""Windows whose rows stay on Spark's executors, and are folded and rendered there, against a real server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from bridge.config import Settings
from bridge.errors import ApplyError
from bridge.events import Kind, RowChange
from bridge.mysql.connection.session import Session
from bridge.protocols.batch_decode import ruled
from bridge.rows.gathering import Amount
from bridge.rows.order_and_slices import RowChanges
from bridge.spark import shards as kept_executors
from tests.support.kept import executors_of, kept, kept_batch
from tests.support.pipelines import Pipeline, opened, session_after, sql
from tests.support.upstreams import boundary, in_one_partition, row_change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TS = (470611868434825218 >> 6 << 6) + 40
"""As a double it would be 24 more."""

session = session_after("CREATE DATABASE m DEFAULT CHARSET utf8mb4")


def on_executors(spark: SparkSession, pipeline: Pipeline) -> None:
    """Keeps whatever comes to a pipeline there."""
    executors = executors_of(spark)

    def moved(some: Iterable[RowChanges], low: int, high: int) -> RowChanges:
        return executors.rows_of([kept(spark, one) for one in some], low, high)

    pipeline.applier.order._rows_of = moved  # type: ignore[attr-defined]


def apply(spark: SparkSession, target: str, events: list[RowChange]) -> None:
    """All of them as one window."""
    with opened(target, [("cdc", 0)]) as pipeline:
        on_executors(spark, pipeline)
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


def applied_ts(session: Session) -> int:
    """How far the target is."""
    return int(session.value("SELECT applied_ts FROM _bridge.progress"))


def test_progress_stays_below_what_is_resolved(target: str, session: Session, spark: SparkSession) -> None:
    """However a window is cut: a TSO has 59 bits, more than a double holds, and with a cut above the resolved ts the
    rows between are forgotten as if they were in the target."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY)")
    changes = [row_change(TS + n, "t", ["id"], ["id"], after=[n]) for n in range(12)]
    reached = list[int]()
    with opened(
        target, [("cdc", 0)], rows_per_transaction=2, trace=lambda _: reached.append(applied_ts(session))
    ) as pipeline:
        on_executors(spark, pipeline)
        pipeline.take(in_one_partition([*changes, boundary(TS + 4)]))
        assert max(reached) <= TS + 4
        pipeline.take(in_one_partition([boundary(TS + 12)], 13))
    assert session.rows("SELECT COUNT(*) FROM m.t") == [(12,)]


def test_a_window_may_hold_any_number_of_schema_changes(spark: SparkSession) -> None:
    """Each parts it; the first row behind each is found without a plan that grows with them."""
    changes = [row_change(TS + n, "t", ["id"], ["id"], after=[n]) for n in range(0, 3000, 3)]
    rows = executors_of(spark).rows_of([kept(spark, RowChanges.of([in_one_partition(changes)]))], TS, TS + 3000)
    assert rows.marks([TS + n for n in range(3000)]) == [TS + n for n in range(0, 3000, 3)]


def test_shards_that_are_merged(target: str, session: Session, spark: SparkSession) -> None:
    """Rows name their shard there as well: the error is the same wherever they are folded."""
    session.execute("CREATE DATABASE s")
    session.execute("CREATE TABLE s.t (id INT PRIMARY KEY)")
    settings = Settings(route=("s?.t => s.t",))
    rows = [row_change(10 + i % 2, "t", ["id"], ["id"], after=[i], schema=f"s{1 + i % 2}") for i in range(40)]
    met = row_change(12, "t", ["id"], ["id"], after=[6], schema="s2")

    def apply(events: pa.Table) -> None:
        rows_of = executors_of(spark).rows_of
        with opened(target, [("cdc", 0)], rows_of=rows_of, ddl=settings.ddl_rules()) as pipeline:
            pipeline.applier.take(kept_batch(spark, ruled(events, settings.row_rules)))
            pipeline.applier.finish()

    with pytest.raises(
        ApplyError, match=r"two shards of s.t have a row with the same key \(id = 6\): s1.t .* and s2.t"
    ):
        apply(in_one_partition([*rows, met, boundary(20)]))
    apply(in_one_partition([*rows, boundary(20)]))
    assert sql(target, "SELECT COUNT(*) FROM s.t") == [(40,)]
