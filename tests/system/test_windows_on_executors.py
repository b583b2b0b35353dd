"""Windows whose row changes stay on Spark's executors, applied to a real target."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from bridge.mysql.connection.session import Session
from bridge.rows.order_and_slices import RowChanges
from tests.support.kept import executors_of, kept
from tests.support.pipelines import Pipeline, opened, session_after
from tests.support.upstreams import boundary, in_one_partition, row_change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TS = (470611868434825218 >> 6 << 6) + 40
"""As a double it would be 24 more."""


session = session_after("CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY, v LONGTEXT)")


def keep_on_executors(spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes."""
    executors = executors_of(spark)

    def moved(some: Iterable[RowChanges], low: int, high: int) -> RowChanges:
        return executors.rows_of([kept(spark, one) for one in some], low, high)

    monkeypatch.setattr(pipeline.applier.order, "_rows_of", moved)


def applied_ts(session: Session) -> int:
    """How far the target is."""
    return int(session.value("SELECT applied_ts FROM _bridge.progress"))


def test_progress_stays_below_what_is_resolved(
    target: str, session: Session, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However a window is cut: a TSO has 59 bits, more than a double holds, and with a cut above the resolved ts the
    rows between are forgotten as if they were in the target."""
    changes = [row_change(TS + n, "t", ["id"], ["id"], after=[n]) for n in range(12)]
    reached = list[int]()
    with opened(
        target, [("cdc", 0)], rows_per_transaction=2, trace=lambda _: reached.append(applied_ts(session))
    ) as pipeline:
        keep_on_executors(spark, pipeline, monkeypatch)
        pipeline.take(in_one_partition([*changes, boundary(TS + 4)]))
        assert max(reached) <= TS + 4
        pipeline.take(in_one_partition([boundary(TS + 12)], 13))
    assert session.rows("SELECT COUNT(*) FROM m.t") == [(12,)]


def test_a_window_may_hold_any_number_of_schema_changes(spark: SparkSession) -> None:
    """Each parts it; the first row behind each is found without a plan that grows with them."""
    changes = [row_change(TS + n, "t", ["id"], ["id"], after=[n]) for n in range(0, 3000, 3)]
    rows = executors_of(spark).rows_of([kept(spark, RowChanges.of([in_one_partition(changes)]))], TS, TS + 3000)
    assert rows.marks([TS + n for n in range(3000)]) == [TS + n for n in range(0, 3000, 3)]
