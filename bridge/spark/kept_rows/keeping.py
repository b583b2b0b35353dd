"""Keeps the row changes of a micro-batch where they were decoded: in files that tasks leave on this machine, or with
Spark's executors."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import RDD, StorageLevel

from bridge.events import Kind
from bridge.model import PartitionId
from bridge.protocols.batch_decode import packed, unpacked
from bridge.rows.gathering import masked, taken
from bridge.rows.order_and_slices import Part, RowChanges, ends_of, in_order
from bridge.spark.event_transfer import export_events, is_file
from bridge.spark.kept_rows.places import CHUNK_BYTES, Extent, FileChunk, SparkChunks


class _Outline(NamedTuple):
    """What the driver has to know of some events.

    others: those that are not row changes, packed.  read: the offset after the last one of each partition.
    by_time: whether any lacks a TSO.  extent: of the row changes; None where there are none.
    file: the name of their chunk's file; None where the chunk stays with Spark.
    """

    others: bytes
    read: dict[PartitionId, int]
    by_time: bool
    extent: Extent | None
    file: bytes | None


class DividedEvents(NamedTuple):
    """Events, divided into row changes, wherever these are, and others.

    others: those that are not row changes (EVENT_SCHEMA), in the order of (partition, offset).
    read: the offset after the last event of each partition.
    by_time: whether any event lacks a TSO.
    """

    rows: RowChanges
    others: pa.Table
    read: dict[PartitionId, int]
    by_time: bool

    @classmethod
    def of(cls, events: pa.Table) -> DividedEvents:
        """Divides events that are here (EVENT_SCHEMA, in any order), and sorts them."""
        is_row = events["kind"].to_numpy() <= int(Kind.DELETE)
        rows = RowChanges.here(in_order(events, np.flatnonzero(is_row)))
        others, by_time = _in_offset_order(masked(events, ~is_row)), bool(pc.any(events["by_time"]).as_py())
        return cls(rows, others, ends_of(events), by_time)


def _in_offset_order(events: pa.Table) -> pa.Table:
    return taken(events, np.lexsort((events["offset"].to_numpy(), events["partition"].to_numpy())))


def export_kept(tables: Iterable[pa.Table], folder: str | None) -> Iterator[bytes]:
    """Makes chunks of the row changes among decoded events (EVENT_SCHEMA), in a task; `keep` takes what it yields."""
    held: list[pa.Table] = []
    for events in tables:
        held.append(events)
        if sum(one.nbytes for one in held) >= CHUNK_BYTES:
            yield _exported(pa.concat_tables(held), folder)
            held = []
    if held:
        yield _exported(pa.concat_tables(held), folder)


def _exported(events: pa.Table, folder: str | None) -> bytes:
    rows, others, read, by_time = DividedEvents.of(events)
    extent = Extent.of(rows.table) if rows.count else None
    chunk = export_events(rows.table, folder) if extent else None
    file = chunk if chunk is not None and is_file(chunk) else None
    return pickle.dumps((_Outline(packed(others), read, by_time, extent, file), None if file else chunk))


def _outline(exported: bytes) -> _Outline:
    found: _Outline = pickle.loads(exported)[0]  # of `_exported`
    return found


def _chunk_with_spark(exported: bytes) -> Iterator[bytes]:
    chunk = pickle.loads(exported)[1]  # of `_exported`
    return iter(() if chunk is None else (chunk,))


def keep(exported: RDD[bytes]) -> DividedEvents:
    """Has tasks make chunks (`export_kept`), and divides the events into row changes and others, which are collected.

    Raises what Spark raises when a task fails.
    """
    made = exported.persist(StorageLevel.DISK_ONLY)
    made.localCheckpoint()
    outlines = made.map(_outline).collect()
    parts = [Part(FileChunk(one.file, one.extent)) for one in outlines if one.file and one.extent]
    if with_spark := [one.extent for one in outlines if one.extent is not None and one.file is None]:
        parts.append(Part(SparkChunks(made.flatMap(_chunk_with_spark), Extent.total(with_spark))))
    else:
        made.unpersist()
    read: dict[PartitionId, int] = {}
    for where, end in (item for one in outlines for item in one.read.items()):
        read[where] = max(end, read.get(where, 0))
    others = _in_offset_order(unpacked(one.others for one in outlines))
    return DividedEvents(RowChanges(tuple(parts)), others, read, any(one.by_time for one in outlines))
