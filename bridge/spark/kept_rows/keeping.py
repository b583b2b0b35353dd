"""Keeps the row changes of a micro-batch where they were decoded: in files that tasks leave on this machine, or with
Spark's executors."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import RDD, StorageLevel

from bridge.events import Kind
from bridge.model import PartitionId
from bridge.protocols.batch_decode import packed, unpacked
from bridge.rows.amount import Amount
from bridge.rows.gathering import row_bytes
from bridge.rows.order_and_slices import ends_of
from bridge.spark.event_transfer import is_file
from bridge.spark.kept_rows.chunks import CHUNK_BYTES, TS_END, export_chunk
from bridge.spark.kept_rows.places import Home, Kept, KeptFile
from bridge.spark.kept_rows.store import ChunkStore


class _Outline(NamedTuple):
    """What the driver has to know of some events.

    others: those that are not row changes, packed.  read: the offset after the last one of each partition.
    by_time: whether any lacks a TSO.  amount, first_ts, last_ts: of the row changes.
    file: the name of their chunk's file; None where the chunk stays with Spark, or there are no row changes.
    """

    others: bytes
    read: dict[PartitionId, int]
    by_time: bool
    amount: Amount
    first_ts: int
    last_ts: int
    file: bytes | None


class OnExecutors(NamedTuple):
    """The events of a micro-batch whose row changes the driver does not hold.

    others: events that are not row changes (EVENT_SCHEMA), in the order of their positions.
    read: the offset after the last one of each partition.
    by_time: whether any event lacks a TSO.
    """

    store: ChunkStore
    others: pa.Table
    read: dict[PartitionId, int]
    by_time: bool


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
    is_row = pa.array(events["kind"].to_numpy() <= int(Kind.DELETE))
    rows, others = events.filter(is_row), events.filter(pc.invert(is_row))
    ts, chunk = rows["commit_ts"].to_numpy(), export_chunk(rows, folder) if rows.num_rows else None
    file = chunk if chunk is not None and is_file(chunk) else None
    outline = _Outline(
        packed(others),
        ends_of(events),
        bool(pc.any(events["by_time"]).as_py()),
        Amount(len(ts), int(row_bytes(rows).sum())),
        int(ts.min(initial=TS_END)),
        int(ts.max(initial=-1)),
        file,
    )
    return pickle.dumps((outline, None if file else chunk))


def _outline(exported: bytes) -> _Outline:
    found: _Outline = pickle.loads(exported)[0]  # of `_exported`
    return found


def _chunk_with_spark(exported: bytes) -> Iterator[bytes]:
    chunk = pickle.loads(exported)[1]  # of `_exported`
    return iter(() if chunk is None else (chunk,))


def keep(exported: RDD[bytes], folder: str | None) -> OnExecutors:
    """Has tasks make chunks (`export_kept`), and divides the events into row changes and others, which are collected.

    Raises what Spark raises when a task fails.
    """
    made = exported.persist(StorageLevel.DISK_ONLY)
    made.localCheckpoint()
    outlines = made.map(_outline).collect()
    files = tuple(KeptFile(one.file, one.first_ts, one.last_ts) for one in outlines if one.file is not None)
    with_spark = any(one.amount.rows and one.file is None for one in outlines)
    if not with_spark:
        made.unpersist()
    read: dict[PartitionId, int] = {}
    for where, end in (item for one in outlines for item in one.read.items()):
        read[where] = max(end, read.get(where, 0))
    others = unpacked(one.others for one in outlines)
    store = ChunkStore(
        Home(exported.context, folder),
        (Kept(files, (made.flatMap(_chunk_with_spark),) if with_spark else ()),),
        frozenset(map(itemgetter(0), read)),
        Amount.total(one.amount for one in outlines),
        min((one.first_ts for one in outlines), default=TS_END),
        max((one.last_ts for one in outlines), default=-1),
    )
    in_order = others.sort_by([(name, "ascending") for name in ("topic", "partition", "offset", "index")])
    return OnExecutors(store, in_order, read, any(one.by_time for one in outlines))
