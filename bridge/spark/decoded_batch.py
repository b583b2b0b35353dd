"""A micro-batch, decoded: the chunks that tasks make of it, and what the driver takes of them.

Row changes come to the driver, or stay where they were decoded: in files that tasks leave on this machine, or with
Spark's executors.

Decodes in Spark's Python workers, which outlive their tasks.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self
from uuid import uuid4
from zipimport import zipimporter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame

from bridge.events import Kind
from bridge.model import NO_ENDS, PartitionId
from bridge.protocols import DecodeOptions, Decoder, make_decoder
from bridge.protocols.batch_decode import EventDecoder, Messages, decode_messages, do_nothing
from bridge.rows.gathering import Amount, masked, take_rows, together
from bridge.rows.order_and_slices import Part, RowChanges, in_order, next_offsets
from bridge.spark.event_transfer import Chunk, export_events, import_events, is_file
from bridge.spark.kept_rows import CHUNK_BYTES, FileChunk, Span, SparkChunks
from bridge.spark.process_memory import freeze_loaded_modules, return_freed_memory

MOST_IN_MEMORY: Final = Amount(500_000, 512 << 20)
"""About how many row changes, and bytes, wait in the driver's memory."""


class _Outline(NamedTuple):
    """What the driver has to know of row changes that stay.

    read: the offset after the last event of each partition.  by_time: whether any lacks a TSO.
    file: the name of their file; None where they stay with Spark.
    """

    span: Span
    read: dict[PartitionId, int]
    by_time: bool
    file: bytes | None


@dataclass(frozen=True)
class DecodedBatch:
    """A micro-batch.

    events: decoded events (EVENT_SCHEMA, in any order): all, or all but those of `parts`.
    read: per partition, the offset after the last message read.
    parts: row changes, each part in order, wherever they are.
    by_time: whether any event lacks a TSO.
    is_cut: the source may have held more messages when it was read.
    """

    events: pa.Table
    read: Mapping[PartitionId, int]
    parts: tuple[Part, ...] = ()
    by_time: bool = False
    is_cut: bool = False

    @classmethod
    def of(cls, events: pa.Table, ends: Mapping[PartitionId, int] = NO_ENDS, *, is_cut: bool = False) -> Self:
        """Takes events that are all here.  ends: as of `ending_at`."""
        by_time = bool(pc.any(events["by_time"]).as_py())
        return cls(events, next_offsets(events) | dict(ends), by_time=by_time, is_cut=is_cut)

    def ending_at(self, ends: Mapping[PartitionId, int], *, is_cut: bool = False) -> Self:
        """Gives it with the offsets after the last messages read, as far as these are known: they may have no
        events."""
        return replace(self, read={**self.read, **ends}, is_cut=is_cut)

    @property
    def rows(self) -> RowChanges:
        """The row changes of a divided one."""
        return RowChanges(self.parts)

    def divided(self) -> Self:
        """Gives it with all row changes in `parts`, and the other events in the order of (partition, offset)."""
        is_row = self.events["kind"].to_numpy() <= int(Kind.DELETE)
        control = masked(self.events, ~is_row)
        control = take_rows(control, np.lexsort((control["offset"].to_numpy(), control["partition"].to_numpy())))
        here = RowChanges.here(in_order(self.events, np.flatnonzero(is_row))).parts if is_row.any() else ()
        return replace(self, events=control, parts=(*here, *self.parts))


# --- in tasks


def staying_chunks(tables: Iterable[pa.Table], folder: str | None) -> Iterator[Chunk]:
    """Makes chunks of decoded events (EVENT_SCHEMA) whose row changes stay.  folder: as of `coming_chunks`."""
    return (_staying(events, folder) for events in together(tables, CHUNK_BYTES))


def _staying(events: pa.Table, folder: str | None) -> Chunk:
    batch = DecodedBatch.of(events).divided()
    control = export_events(batch.events, None)
    if not batch.parts:
        return Chunk(control)
    rows = batch.rows.table
    value = export_events(rows, folder)
    outline = _Outline(Span.of(rows), dict(batch.read), batch.by_time, value if is_file(value) else None)
    return Chunk(control, None if is_file(value) else value, pickle.dumps(outline))


# --- in the driver


def collected(chunks: DataFrame, *, stay: bool) -> DecodedBatch:
    """Has tasks make chunks (CHUNK_ROW), and collects them, or what the driver has to know of them.

    stay: whether row changes stay.
    Raises TooLargeError for events that are too large, and what Spark raises when a task fails.
    """
    if stay:
        chunks = chunks.localCheckpoint(eager=False, storageLevel=StorageLevel.DISK_ONLY)
    # `collect` takes twice as much of the JVM: it looks through a large class of Spark more
    columns = (chunks.select("events", "outline") if stay else chunks).toArrow()
    batch = DecodedBatch.of(import_events(columns["events"].to_pylist()))
    outlines: list[_Outline] = [pickle.loads(outline) for outline in columns["outline"].drop_null().to_pylist()]
    if not outlines:
        return batch
    parts = [Part(FileChunk(outline.file, outline.span)) for outline in outlines if outline.file is not None]
    if with_spark := [outline.span for outline in outlines if outline.file is None]:
        parts.append(Part(SparkChunks(chunks.select("rows").dropna().rdd.map(_value), Span.total(with_spark))))
    read = dict(batch.read)
    for where, end in (item for outline in outlines for item in outline.read.items()):
        read[where] = max(end, read.get(where, 0))
    by_time = batch.by_time or any(outline.by_time for outline in outlines)
    return replace(batch, read=read, parts=tuple(parts), by_time=by_time)


def _value(row: tuple[bytearray]) -> bytes:
    return bytes(row[0])


def event_decoder(protocol: str, options: DecodeOptions) -> EventDecoder:
    """Makes a decoder that can be sent to Spark's Python workers."""

    name = uuid4().hex

    def decode(messages: Iterable[Messages]) -> Iterator[pa.Table]:
        keep_zip_directories()
        decoder = decoder_named(name, protocol, options)
        for lot in messages:
            yield decode_messages(decoder, lot, return_freed_memory)

    return decode


_decoders: dict[str, Decoder] = {}


def decoder_named(name: str, protocol: str, options: DecodeOptions) -> Decoder:
    """Returns this process's decoder of that name, and makes it at the first call.

    Spark's Python workers outlive their tasks, so a decoder keeps what it has learned of the messages.  Only the
    decoder that was used last is kept.
    """
    if name not in _decoders:
        decoder = make_decoder(protocol, options)
        freeze_loaded_modules()
        _decoders.clear()
        _decoders[name] = decoder
    return _decoders[name]


def keep_zip_directories() -> None:
    """Keeps the directories of zip files that modules are imported from.

    PySpark drops all import caches at every task.  Python then reads the directory of a zip on the path (pyspark.zip)
    again, entry by entry: half of the time of a decoding worker (py-spy).  The zips do not change while a worker lives.
    """
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):
            finder.invalidate_caches = do_nothing  # type: ignore[method-assign]
