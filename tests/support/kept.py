"""Row changes that the driver does not hold, made of events that are here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from bridge.pipeline.decoded_batch import SortedBatch, sorted_batch
from bridge.protocols.batch_decode import packed, unpacked
from bridge.rows.amount import Amount
from bridge.rows.order_and_slices import RowChanges
from bridge.spark.kept_rows.executors import Executors, Home
from bridge.spark.kept_rows.keeping import export_kept, keep
from bridge.spark.kept_rows.places import kept_elsewhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def kept_batch(spark: SparkSession, events: pa.Table, folder: str | None = None) -> SortedBatch:
    """The events as a micro-batch whose row changes the driver does not hold: two tasks have decoded every second one
    each.  folder: for their files."""
    numbers = pa.array(range(events.num_rows), pa.int64())
    halves = [packed(events.take(numbers[half::2])) for half in (0, 1)]
    tasks = spark.sparkContext.parallelize(halves, 2)
    exported = tasks.mapPartitions(lambda values: export_kept((unpacked([value]) for value in values), folder))
    return sorted_batch(keep(exported))


def executors_of(spark: SparkSession, folder: str | None = None) -> Executors:
    """Executors that fold whatever the driver's memory does not hold."""
    executors = Executors(Amount(0, 0))
    executors.home = Home(spark.sparkContext, folder)
    return executors


def kept(spark: SparkSession, rows: RowChanges, folder: str | None = None) -> RowChanges:
    """The same row changes, which the driver's memory does not hold."""
    parts = [one for part in rows.parts for one in kept_elsewhere(part, spark.sparkContext, folder)]
    return replace(rows, parts=tuple(parts))
