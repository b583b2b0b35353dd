"""Where chunks are that the driver's memory does not hold: in files of this machine, or with Spark's executors."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
from pyspark import RDD, SparkContext, StorageLevel

from bridge.protocols.batch_decode import packed, unpacked
from bridge.rows.gathering import Amount
from bridge.rows.order_and_slices import OneTable, Part, Selection, TableChunk
from bridge.spark.event_transfer import export_events, is_file, read_events, write_stream

CHUNK_BYTES: Final = 32 << 20
"""About the most bytes of a chunk: a task holds one at a time."""
T = TypeVar("T")


ChunkReference = tuple[bytes, Selection]
"""What a task gets of a chunk: what `export_events` returned, and what of it is meant."""


def referenced_rows(reference: ChunkReference) -> pa.Table:
    """Reads the row changes that are meant (EVENT_SCHEMA), in order."""
    return TableChunk(read_events(reference[0])).rows(reference[1])


class Span(NamedTuple):
    """How much row changes are, and the first and last commit_ts of them (TSO)."""

    amount: Amount
    first_ts: int
    last_ts: int

    @classmethod
    def of(cls, ordered: pa.Table) -> Span:
        """Measures row changes in order."""
        chunk = TableChunk(ordered)
        return cls(chunk.amount, chunk.first_ts, chunk.last_ts)

    @classmethod
    def total(cls, spans: Sequence[Span]) -> Span:
        """Adds them up; there is at least one."""
        amounts, first, last = zip(*spans, strict=True)
        return cls(Amount.total(amounts), min(first), max(last))


class FileChunk(OneTable):
    """A chunk in a file of this machine, which is removed when nobody needs it any longer.  It is mapped only while it
    is read: what is mapped counts as memory of the process.

    name: what `export_events` returned, of row changes in order.
    """

    is_here = False

    def __init__(self, name: bytes, span: Span) -> None:
        self.name = name
        self.amount, self.first_ts, self.last_ts = span
        weakref.finalize(self, Path(name.decode()).unlink, missing_ok=True)

    def rows(self, selection: Selection) -> pa.Table:
        return referenced_rows((self.name, selection))


def spilled(chunk: TableChunk) -> TableChunk:
    """Moves what is in memory to an unlinked file that is mapped, whose pages the kernel drops and reloads."""
    if not chunk.is_here:
        return chunk
    with NamedTemporaryFile() as file, pa.OSFile(file.name, "wb") as sink:
        write_stream(chunk.table, sink)
        sink.close()
        return TableChunk(read_events(file.name.encode()), is_here=False)


class SparkChunks:
    """Chunks as bytes that Spark keeps on its executors' disks.

    values: what `export_events` returned, of row changes in order each.
    """

    is_here = False

    def __init__(self, values: RDD[bytes], span: Span) -> None:
        self._values = values
        self.amount, self.first_ts, self.last_ts = span

    @classmethod
    def of(cls, context: SparkContext, values: list[bytes], span: Span) -> SparkChunks:
        """Gives chunks to Spark."""
        rdd = context.parallelize(values, len(values)).persist(StorageLevel.DISK_ONLY)
        rdd.localCheckpoint()
        rdd.count()
        return cls(rdd, span)

    def ask(self, selection: Selection, question: Callable[[pa.Table], T]) -> list[T]:
        """Calls the function in tasks, with each chunk."""
        return self.references(selection).map(lambda reference: question(referenced_rows(reference))).collect()

    def tables(self, selection: Selection, *, at_once: bool) -> Iterable[pa.Table]:
        """Gives a table of each chunk."""
        values = self.references(selection).map(lambda reference: packed(referenced_rows(reference)))
        return (unpacked([value]) for value in (values.collect() if at_once else values.toLocalIterator()))

    def references(self, selection: Selection) -> RDD[ChunkReference]:
        """Gives the chunks to tasks."""
        return self._values.map(lambda value: (value, selection))


def move_out(part: Part, context: SparkContext, folder: str | None) -> list[Part]:
    """Moves what the driver's memory holds to files of the folder, or to Spark where these may not be."""
    [rows] = part.chunk.tables(part.selection, at_once=True)
    most_bytes = min(CHUNK_BYTES, max(1, rows.nbytes // context.defaultParallelism))
    size = max(1, rows.num_rows * most_bytes // max(1, rows.nbytes))
    values = [export_events(rows.slice(start, size), folder) for start in range(0, rows.num_rows, size)]
    if all(map(is_file, values)):
        starts = range(0, rows.num_rows, size)
        return [Part(FileChunk(v, Span.of(rows.slice(s, size)))) for s, v in zip(starts, values, strict=True)]
    return [Part(SparkChunks.of(context, values, Span.of(rows)))]
