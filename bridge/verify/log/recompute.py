"""Recomputes the last state of every key from the messages, on Spark's executors.

Hashes rows by the literals of their values, on executors and on the target alike: the target writes each of its values
as the literal that decoders make of it.  What is equal there is equal: a literal means one value, and holds no SEP.
What is not may be equal all the same, since a value may have several literals (1.0 and 1.00).

Keys are integers in their only spelling.  When the log inserts a row by one spelling of another key and deletes it by
another one, only the target can tell that the row is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import md5
from itertools import pairwise
from operator import add
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import RDD, StorageLevel
from pyspark.sql import Row, SparkSession

from bridge.events import EVENT_SCHEMA, SEP, Kind, Position, Undecodable
from bridge.model import PartitionId, TableName
from bridge.mysql.table_definition import ColumnInfo, ValueClass
from bridge.pipeline.by_partitions.late_changes import is_same_place
from bridge.pipeline.order import without_left_out
from bridge.protocols.batch_decode import EventDecoder, placed_events
from bridge.rows.gathering import divided, together
from bridge.rows.literal_offsets import buffers_of, to_numpy, whole
from bridge.rows.moments import in_order
from bridge.sources.decoding_tasks import decoding_tasks
from bridge.sources.source import Export, MicroBatch
from bridge.spark.chunk_source import chunks_of
from bridge.spark.event_transfer import Chunk, export_events, read_events, transfer_folder
from bridge.tso import tso_ms
from bridge.verify.compare.checksums import LOSSLESS, UNICODE, Fingerprint, canonical
from bridge.verify.log.coverage import Cut, LoggedChange
from bridge.verify.log.log_tables import ACTUAL, LoggedTable, RowGroup, numbers_of
from bridge.verify.log.logged_rows import (
    STEP_SCHEMA,
    LogPlan,
    buckets,
    last_of_some,
    last_steps,
    row_groups,
    steps,
)

SEPARATOR: Final = f"x'{SEP.encode().hex()}'"
"""What separates the literals of an image, for `checksums.fingerprint_query`."""
_KEY: Final = r"^(0|-?[1-9][0-9]*)(\x00(0|-?[1-9][0-9]*))*$"
"""Integers as the target writes them, joined by SEP."""
_UNTOLD: Final = Fingerprint(1, 0, 0)
"""The fingerprint of a row that has no hash."""
_KEPT: Final = ("table_number", "key", "commit_ts", "by_time", "topic", "partition", "offset", "index")
"""What decides which step of a key is the last one."""
HASHED_SCHEMA: Final = pa.schema([*(STEP_SCHEMA.field(name) for name in _KEPT), pa.field("image", pa.uint64())])


def literal(column: ColumnInfo, alias: str) -> str | None:
    """Writes the SQL expression of a value as a literal; None for types of which a literal may stand for another value,
    or a value is seldom written as its message has it."""
    value = canonical(column, alias)
    match column.value_class:
        case ValueClass.INTEGER | ValueClass.DECIMAL | ValueClass.NUMBER:
            return f"IFNULL({value},'NULL')"
        case ValueClass.FLOAT | ValueClass.DOUBLE:
            return f"IFNULL(CONCAT({value},IF(INSTR({value},'.'),'e0','.0e0')),'NULL')"
        case ValueClass.TEMPORAL:
            return f"QUOTE({value})"
        case ValueClass.TEXT if column.charset in UNICODE | LOSSLESS:
            # Bytes, which are UTF-8 here: MariaDB quotes them in 0.3 us of 190, characters in 0.5 (measured).
            return f"QUOTE(CAST({value} AS BINARY))"
        case ValueClass.BINARY:
            return f"IF(LENGTH({value})=0,QUOTE(''),IFNULL(CONCAT('x''',LOWER(HEX({value})),''''),'NULL'))"
        case _:
            return None


def literals_of(table: LoggedTable) -> list[str]:
    """Writes the SQL of a row's values as the literals of its image, in their order; [] where hashes of literals do not
    tell whether rows are equal."""
    columns = table.definition.columns
    if {columns[name].value_class for name in table.key} != {ValueClass.INTEGER} or table.findings:
        return []
    literals = [literal(columns[name], ACTUAL) for name in table.columns]
    return [expression for expression in literals if expression is not None] if None not in literals else []


def fingerprints(rows: pa.Table, cuts: Mapping[int, Sequence[int]]) -> Iterator[tuple[int, list[Fingerprint]]]:
    """Gives the fingerprints of the parts of tables from their folded steps (HASHED_SCHEMA), by the tables' numbers; of
    tables without steps, none.  cuts: by number, values of the first key column up to which each part but the last
    reaches.  A key in another spelling makes every part of its table differ.
    """
    for number, of_table in divided(rows, rows["table_number"].to_numpy()):
        rows_there, parts = of_table.filter(pc.is_valid(of_table["image"])), len(cuts[number]) + 1
        numbers, is_anywhere = numbers_of(rows_there)
        is_plain = pc.all(pc.match_substring_regex(of_table["key"], _KEY)).as_py()
        if not is_plain or (parts > 1 and is_anywhere.any()):
            yield number, [_UNTOLD] * parts
            continue
        places = np.searchsorted(np.array(cuts[number], np.int64), numbers, "left")
        order = np.argsort(places, kind="stable")
        bounds = np.searchsorted(places[order], np.arange(parts + 1)).tolist()
        hashes = rows_there["image"].to_numpy()[order]
        yield number, [_fingerprint(hashes[start:end]) for start, end in pairwise(bounds)]


def _fingerprint(hashes: np.ndarray) -> Fingerprint:
    high, low = (hashes >> np.uint64(32)).sum(), (hashes & np.uint64(0xFFFFFFFF)).sum()
    return Fingerprint(len(hashes), len(hashes), (int(high) << 32) + int(low))


def hashed(steps: pa.Table) -> pa.Table:
    """Gives steps (STEP_SCHEMA) of rows with a key the hashes of their images (HASHED_SCHEMA), null when the row
    goes: to move and sort images takes longer than to hash them."""
    images = whole(steps["image"])
    hashes = pa.array(text_hashes(images), mask=~to_numpy(images.is_valid()))
    return pa.Table.from_arrays([*(steps[name] for name in _KEPT), hashes], schema=HASHED_SCHEMA)


def text_hashes(texts: pa.Array) -> npt.NDArray[np.uint64]:
    """Gives the first 64 bits of the MD5 of each text (large strings); of nulls nothing that means something."""
    offsets, data = buffers_of(texts)
    view = memoryview(data)
    digests = [md5(view[at:end], usedforsecurity=False).digest() for at, end in pairwise(offsets.tolist())]
    return np.frombuffer(b"".join(digests), ">u8")[::2].astype(np.uint64)


_SECOND_MS: Final = 1000
_BYTES_PER_BUCKET: Final = 64 << 20
"""A bucket has about so many bytes of events at most: a task takes all of it into memory, several times."""
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
"""Takes a quarter of the room, and 0.4 s of processor time for a million row changes of 370 bytes (measured)."""
_OF_TABLES: Final = ["schema", "table", "topic", "partition"]
_BYTES_TOGETHER: Final = 32 << 20
"""So many bytes of events are made steps together, since that takes some time for each table that is replicated."""
_BYTES_HELD: Final = 64 << 20
"""An executor divides its steps into buckets when it holds so many bytes of them."""
_MOST_OF_A_SHARE: Final = 2
"""A bucket with more than so many times its share of the bytes has keys that come again and again."""


@dataclass(frozen=True)
class Control:
    """What the messages hold besides rows, and the tables that the rows belong to.

    changes: schema changes in order, each once.
    bad: positions and reasons of messages that could not be decoded.
    left_out: tables whose rows are not replicated.
    names: the tables of the rows.
    firsts: by partition, the first commit_ts (TSO) that it holds.
    """

    changes: list[LoggedChange]
    bad: list[tuple[Position, str]]
    left_out: set[TableName]
    names: set[TableName]
    firsts: dict[PartitionId, int]


class Log:
    """All events of the messages, decoded once and kept with the executors.

    checkpoint: the folder in which executors on this machine leave events and steps as files, since the JVM takes a
    second of processor time to carry those of a million row changes; elsewhere they stay with Spark.
    """

    def __init__(self, spark: SparkSession, messages: MicroBatch, decode: EventDecoder, checkpoint: str) -> None:
        self._folder, self._buckets = transfer_folder(spark, checkpoint), 1
        chunks = decoded(spark, messages, decode, partial(_export_events, folder=self._folder), checkpoint)
        self._exported = chunks.map(_kept_events).persist(StorageLevel.MEMORY_AND_DISK)

    def control(self) -> Control:
        """Gives everything but the rows; comes before all else."""
        exports = self._exported.map(lambda events: (events.control, events.size)).collect()
        control = pa.concat_tables([EVENT_SCHEMA.empty_table(), *(read_events(value) for value, _ in exports)])
        control = control.sort_by([(name, "ascending") for name in ("commit_ts", "topic", "partition", "offset")])
        rows = control.filter(pc.less_equal(control["kind"], int(Kind.DELETE)))
        names = set(map(TableName, rows["schema"].to_pylist(), rows["table"].to_pylist()))
        control, left_out = without_left_out(control)
        self._buckets = max(1, -(-sum(size for _, size in exports) // _BYTES_PER_BUCKET))
        bad = [(position, event.reason) for position, event in placed_events(control) if isinstance(event, Undecodable)]
        return Control(
            logged_changes(control), bad, {TableName(*row[:2]) for row, *_ in left_out}, names, _firsts(control)
        )

    def row_groups(self, plan: LogPlan) -> set[RowGroup]:
        """Gives the groups of all row changes (`logged_rows.row_groups`)."""
        groups = self._exported.map(lambda events: row_groups(plan, read_events(events.all)))
        return set().union(*groups.collect())

    def fingerprints(self, plan: LogPlan, cuts: Mapping[int, tuple[int, ...]]) -> dict[int, list[Fingerprint]]:
        """Gives the fingerprints of the last states of tables.  cuts: as of `fingerprints`, of each table."""
        if not cuts:
            return {}
        key_steps = self._steps(plan, cuts.keys(), are_hashed=True)
        total = {number: [Fingerprint(0, 0, 0)] * (len(table_cuts) + 1) for number, table_cuts in cuts.items()}
        for number, sums in key_steps.mapPartitions(partial(_fingerprints, tables=plan.tables, cuts=cuts)).collect():
            total[number] = list(map(add, total[number], sums))
        return total

    def inserts(self, plan: LogPlan, loading: Mapping[int, LoggedTable]) -> Iterator[tuple[int, str]]:
        """Gives the statements that load the last states into temporary tables, each with the number of its table."""
        if not loading:
            return iter(())
        key_steps = self._steps(plan, loading.keys(), are_hashed=False)
        insert = partial(_inserts, plan=plan, loading=loading)
        return iter(key_steps.mapPartitions(insert).toLocalIterator(prefetchPartitions=True))

    def _steps(self, plan: LogPlan, numbers: Collection[int], *, are_hashed: bool) -> RDD[tuple[int, bytes]]:
        tables, count = frozenset(numbers), self._buckets
        step = partial(_make_steps, plan=plan, numbers=tables, count=count, folder=self._folder, are_hashed=are_hashed)
        return self._exported.mapPartitions(step).partitionBy(count, int)


def decoded(
    spark: SparkSession, messages: MicroBatch, decode: EventDecoder, export: Export[Chunk], checkpoint: str
) -> RDD[Row]:
    """Has Spark read and decode messages, and gives what `export` makes of the events."""
    return chunks_of(spark, decoding_tasks(messages, spark.sparkContext.defaultParallelism, decode, export), checkpoint)


class _KeptEvents(NamedTuple):
    """Events of some messages as exported values: all of them, and those that `_control_events` gives.

    size: the bytes of all of them.
    """

    all: bytes
    control: bytes
    size: int


def _export_events(tables: Iterable[pa.Table], folder: str | None) -> Iterator[Chunk]:
    for events in tables:
        control = export_events(_control_events(events), None, _COMPRESSED)
        yield Chunk(export_events(events, folder, _COMPRESSED), control, b"%d" % events.nbytes)


def _kept_events(chunk: Sequence[bytes]) -> _KeptEvents:
    return _KeptEvents(bytes(chunk[0]), bytes(chunk[1]), int(chunk[2]))


def _control_events(events: pa.Table) -> pa.Table:
    """Gives the events that are not rows, and the first row of each table and partition."""
    is_given = events["kind"].to_numpy() > int(Kind.DELETE)
    rows = events.select([*_OF_TABLES, "offset"]).append_column("row", pa.array(np.arange(events.num_rows)))
    rows = rows.filter(pa.array(~is_given)).sort_by("offset")
    # without threads, `first` is that in the order of the rows (Arrow, Grouped Aggregations)
    firsts = rows.group_by(_OF_TABLES, use_threads=False).aggregate([("row", "first")])
    is_given[firsts["row_first"].to_numpy()] = True
    return events.filter(pa.array(is_given))


def logged_changes(events: pa.Table) -> list[LoggedChange]:
    """Gives the schema changes of events (EVENT_SCHEMA, in order), each once.

    Without a commit ts, a change that one partition holds again may be a second change, as for the bridge that ran it
    (`by_partitions.late_changes`); it then counts as one TSO later.
    """
    rows = events.filter(pc.equal(events["kind"], int(Kind.SCHEMA_CHANGE)))
    offsets: dict[tuple[int, str, str], dict[PartitionId, int]] = {}
    changes: dict[tuple[int, str, str], LoggedChange] = {}
    places: dict[tuple[PartitionId, int, str, str], list[str]] = {}
    for row in rows.to_pylist():
        where, content = (row["topic"], row["partition"]), (row["commit_ts"], row["schema"], row["text"])
        places_of_runs, place = places.setdefault((where, *content), []), row["place"] or ""
        if not places_of_runs or (row["by_time"] and not _is_same(content[0], places_of_runs[-1], place)):
            places_of_runs.append(place)
        identity = (content[0] + len(places_of_runs) - 1, *content[1:])
        own_offsets = offsets.setdefault(identity, {})
        own_offsets.setdefault(where, row["offset"])
        change = LoggedChange(identity[0], row["by_time"], row["schema"], row["text"], own_offsets, row["place"])
        changes.setdefault(identity, change)
    distinct_changes = list(changes.values())
    ordered = [distinct_changes[number] for number in in_order([Cut.of(change).moment for change in distinct_changes])]
    for where in {where for change in ordered if change.by_time for where in change.offsets}:  # there it is certain
        slots = [slot for slot, change in enumerate(ordered) if change.by_time and where in change.offsets]
        of_partition = sorted((ordered[slot] for slot in slots), key=lambda change: change.offsets[where])
        for slot, change in zip(slots, of_partition, strict=True):
            ordered[slot] = change
    return ordered


def _is_same(ts: int, place: str, other_place: str) -> bool:
    """Tells whether two schema changes of one partition, time (TSO) and text are one that was sent again: by their
    places, else where their time is not in whole seconds, since no server runs a statement twice in a millisecond."""
    by_place = is_same_place(place, other_place)
    return bool(tso_ms(ts) % _SECOND_MS) if by_place is None else by_place


def _firsts(events: pa.Table) -> dict[PartitionId, int]:
    timed = events.filter(pc.not_equal(events["kind"], int(Kind.BAD))).sort_by([("offset", "descending")])
    where = zip(timed["topic"].to_pylist(), timed["partition"].to_pylist(), strict=True)
    return dict(zip(where, timed["commit_ts"].to_pylist(), strict=True))


def _make_steps(
    exported_events: Iterable[_KeptEvents],
    *,
    plan: LogPlan,
    numbers: frozenset[int],
    count: int,
    folder: str | None,
    are_hashed: bool,
) -> Iterator[tuple[int, bytes]]:
    """Turns events into steps of the tables with these numbers, by bucket.  count: of buckets.

    Steps are folded here only where that spares the network, or where a bucket has more than its share, as with one key
    that changes again and again.  The task that takes a whole bucket folds them anyway.
    """
    all_events = together((read_events(events.all) for events in exported_events), _BYTES_TOGETHER)
    all_steps = (steps(plan, events, numbers) for events in all_events)
    for batch in together(map(hashed, all_steps) if are_hashed else all_steps, _BYTES_HELD):
        for number, bucket in buckets(batch, count):
            is_folded = folder is None or bucket.nbytes * count > batch.nbytes * _MOST_OF_A_SHARE
            last = last_of_some(plan.tables, bucket) if is_folded else bucket
            yield number, export_events(last, folder, _COMPRESSED)


def _fingerprints(
    exported_steps: Iterable[tuple[int, bytes]],
    *,
    tables: Sequence[LoggedTable],
    cuts: Mapping[int, tuple[int, ...]],
) -> Iterator[tuple[int, list[Fingerprint]]]:
    """Turns all steps of some buckets into fingerprints of the tables."""
    hashed_steps = pa.concat_tables([HASHED_SCHEMA.empty_table(), *(read_events(value) for _, value in exported_steps)])
    last = last_steps(tables, hashed_steps)
    hashes = pc.if_else(last["is_unsure"], pa.scalar(0, pa.uint64()), last["image"])  # 0 is that of no row
    return fingerprints(last.set_column(last.schema.get_field_index("image"), "image", hashes), cuts)


def _inserts(
    exported_steps: Iterable[tuple[int, bytes]], *, plan: LogPlan, loading: Mapping[int, LoggedTable]
) -> Iterator[tuple[int, str]]:
    """Turns all steps of some buckets into the statements that load their last states."""
    key_steps = pa.concat_tables([STEP_SCHEMA.empty_table(), *(read_events(value) for _, value in exported_steps)])
    last = last_steps(plan.tables, key_steps)
    for number, rows in divided(last, last["table_number"].to_numpy()):
        yield from ((number, insert) for insert in loading[number].inserts(rows))
