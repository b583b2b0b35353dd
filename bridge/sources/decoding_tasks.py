"""Reads and decodes micro-batches in Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

from pyspark import RDD, SparkContext
from pyspark.sql import SparkSession

from bridge.protocols.batch_decode import EventDecoder
from bridge.sources.source import Export, MicroBatch, Read

_T = TypeVar("_T")
Task = Callable[[], Iterable[_T]]
"""Reads, decodes and exports; it is pickled."""


def decoding_tasks(batch: MicroBatch, count: int, decode: EventDecoder, export: Export[_T]) -> list[Task[_T]]:
    """Divides a micro-batch into about `count` tasks, which give what `export` makes of the events of each."""
    return [partial(_decoded, decode, export, read) for read in batch.reads(count)]


def in_tasks(context: SparkContext, tasks: Sequence[Task[_T]]) -> RDD[_T]:
    """Has Spark run tasks."""

    def work(numbers: Iterable[int]) -> Iterator[_T]:
        return chain.from_iterable(tasks[number]() for number in numbers)

    return context.parallelize(range(len(tasks)), max(1, len(tasks))).mapPartitions(work)


def decoded(spark: SparkSession, batch: MicroBatch, decode: EventDecoder, export: Export[_T]) -> RDD[_T]:
    """Reads and decodes a micro-batch in tasks, and leaves there what `export` makes of the events of each."""
    context = spark.sparkContext
    return in_tasks(context, decoding_tasks(batch, context.defaultParallelism, decode, export))


def _decoded(decode: EventDecoder, export: Export[_T], read: Read) -> Iterator[_T]:
    return export(decode(read()))
