"""Where chunks are, and how they are read: files by the driver itself or by tasks, what Spark holds by tasks alone."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
from pyspark import RDD, SparkContext

from bridge.protocols.batch_decode import packed, unpacked
from bridge.spark.kept_rows.chunks import Chunk, ChunkIndex, Wanted

_TASKS_PER_CORE: Final = 3
"""Tasks of a job over files: a few for each core, so that none waits long for the last one."""
T = TypeVar("T")


class Home(NamedTuple):
    """Where the chunks of a pipeline are kept.

    folder: for files of this machine; None where executors are elsewhere, or may not leave files.
    """

    context: SparkContext
    folder: str | None


class KeptFile:
    """The file of a chunk, which is removed when nobody needs it any longer.

    first_ts, last_ts: no row change has a commit_ts below or above.
    """

    def __init__(self, value: bytes, first_ts: int, last_ts: int) -> None:
        self.value, self.first_ts, self.last_ts = value, first_ts, last_ts
        weakref.finalize(self, Path(value.decode()).unlink, missing_ok=True)

    def chunk(self, wanted: Wanted) -> Chunk:
        """Gives the chunk."""
        return Chunk(self.value, self._index, wanted)

    @cached_property
    def _index(self) -> ChunkIndex:
        return ChunkIndex.of(self.value)


@dataclass(frozen=True)
class Kept:
    """Chunks, and what of them is meant."""

    files: tuple[KeptFile, ...] = ()
    with_spark: tuple[RDD[bytes], ...] = ()
    wanted: Wanted = field(default_factory=Wanted)


class _Part(NamedTuple):
    value: bytes
    wanted: Wanted

    def open(self) -> Chunk:
        """Opens the chunk."""
        return Chunk(self.value, ChunkIndex.of(self.value), self.wanted)


class Parts:
    """The chunks that may hold row changes with low <= commit_ts < high."""

    def __init__(self, home: Home, some: Iterable[Kept], low: int, high: int) -> None:
        self._context = home.context
        self._files: list[tuple[KeptFile, Wanted]] = []
        self._with_spark: list[RDD[_Part]] = []
        for kept in some:
            wanted = kept.wanted.between(low, high)
            self._files += [(f, wanted) for f in kept.files if f.first_ts < wanted.high and f.last_ts >= wanted.low]
            self._with_spark += [rdd.map(partial(_Part, wanted=wanted)) for rdd in kept.with_spark]

    def each(self, function: Callable[[Chunk], T]) -> list[T]:
        """Calls the function with each chunk: for files in this process, since reading a little of them takes less time
        than a Spark job."""
        here = [function(file.chunk(wanted)) for file, wanted in self._files]
        return here + [one for rdd in self._with_spark for one in rdd.map(lambda part: function(part.open())).collect()]

    def tables(self, function: Callable[[Chunk], pa.Table]) -> list[pa.Table]:
        """Does the same for functions that give events (EVENT_SCHEMA)."""
        here = [function(file.chunk(wanted)) for file, wanted in self._files]
        there = (rdd.map(lambda part: packed(function(part.open()))).collect() for rdd in self._with_spark)
        return [*here, *(unpacked([value]) for values in there for value in values)]

    def one_by_one(self, function: Callable[[Chunk], pa.Table]) -> Iterator[pa.Table]:
        """Does the same, and gives one after the other when it is asked for."""
        yield from (function(file.chunk(wanted)) for file, wanted in self._files)
        for rdd in self._with_spark:
            yield from (
                unpacked([value]) for value in rdd.map(lambda part: packed(function(part.open()))).toLocalIterator()
            )

    def spread(self, function: Callable[[Iterator[Chunk]], Iterable[T]]) -> RDD[T]:
        """Has tasks call the function with chunks, some for each task."""
        here = self._here
        tasks = max(1, min(len(here), _TASKS_PER_CORE * self._context.defaultParallelism))
        parts: RDD[_Part] = self._context.parallelize(here, tasks)
        every = self._context.union([parts, *self._with_spark]) if self._with_spark else parts
        return every.mapPartitions(lambda some: function(part.open() for part in some))

    @property
    def _here(self) -> list[_Part]:
        return [_Part(file.value, wanted) for file, wanted in self._files]
