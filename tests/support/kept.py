"""Row changes that the driver does not hold, made of events that are here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from bridge.rows.gathering import Amount
from bridge.rows.order_and_slices import RowChanges
from bridge.spark.decoded_batch import DecodedBatch, collected, staying_chunks
from bridge.spark.event_transfer import Chunk
from bridge.spark.kept_rows import move_out
from bridge.spark.shards import Executors, Home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def kept_batch(spark: SparkSession, events: pa.Table, folder: str | None = None) -> DecodedBatch:
    """The events as a micro-batch whose row changes the driver does not hold: two tasks have decoded every second one
    each.  folder: for their files."""
    numbers = pa.array(range(events.num_rows), pa.int64())
    chunks = [one for half in (0, 1) for one in staying_chunks([events.take(numbers[half::2])], folder)]
    columns = [pa.array(values, pa.binary()) for values in zip(*chunks, strict=True)]
    return collected(spark.createDataFrame(pa.table(dict(zip(Chunk._fields, columns, strict=True)))), stay=True)


def executors_of(spark: SparkSession, folder: str | None = None) -> Executors:
    """Executors that fold whatever the driver's memory does not hold."""
    executors = Executors(Amount(0, 0))
    executors.home = Home(spark.sparkContext, folder)
    return executors


def kept(spark: SparkSession, rows: RowChanges, folder: str | None = None) -> RowChanges:
    """The same row changes, which the driver's memory does not hold."""
    parts = [one for part in rows.parts for one in move_out(part, spark.sparkContext, folder)]
    return replace(rows, parts=tuple(parts))
