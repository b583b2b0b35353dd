"""Shards that are merged, on Spark's executors.  What
pipelines make of them is in tests/pipeline/test_shards.py, and what verify does in the generated runs."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bridge.config import Settings
from bridge.errors import ApplyError
from bridge.protocols.batch_decode import ruled
from tests.support.kept import executors_of, kept_batch
from tests.support.pipelines import opened, sql
from tests.support.upstreams import boundary, in_one_partition, row_change
from tests.support.verify_servers import execute

pytestmark = pytest.mark.usefixtures("spark")


def test_on_executors(target: str, spark: SparkSession) -> None:
    """Rows name their shard there as well: the error is the same wherever they are folded."""
    execute(target, "CREATE DATABASE s; CREATE TABLE s.t (id INT PRIMARY KEY)")
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
