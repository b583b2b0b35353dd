"""Has executors divide a window that the driver does not hold into shards by the keys of its rows: the driver folds and
renders one at a time, or with `parallel` they write each, by the same pure functions of `rows`.

An error of the bridge comes to the driver as it is, in the place of a shard: as the error of a Spark task it would
arrive without its table and code.
"""

from __future__ import annotations

import pickle
import shutil
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from tempfile import mkdtemp
from typing import Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import RDD, SparkContext

from bridge.errors import BridgeError
from bridge.events import EVENT_SCHEMA, Kind
from bridge.model import Table, TableName
from bridge.rows.gathering import Amount, Longs, divided, masked, with_column
from bridge.rows.key_spellings import is_alone
from bridge.rows.key_steps import ShapedRows, key_sums
from bridge.rows.net_changes import OrderedChanges, fold, odd_tables, shapes_of
from bridge.rows.order_and_slices import RowChanges, RowStatements, in_order
from bridge.rows.resolve_types import typed
from bridge.rows.sql.render import render
from bridge.rows.sql.statement import NotWritten, NotWrittenError, Rendering, Stage, Statement, WritePart
from bridge.spark.errors import SPARK_FAILED, is_executor_lost, source_error
from bridge.spark.event_transfer import export_events, read_events
from bridge.spark.kept_rows import ChunkReference, FileChunk, SparkChunks, move_out, referenced_rows

_ERROR: Final = b"E"
"""The first byte of a pickled error in the place of events."""
Shard = tuple[int, bytes]
"""The number of a shard, and some of its events, or an error."""


def _as_kind(changes: pa.Table, kind: Kind) -> pa.Table:
    """Makes deletes, or inserts, out of updates."""
    dropped = "after" if kind is Kind.DELETE else "before"
    changes = with_column(changes, dropped, pa.nulls(changes.num_rows, pa.string()))
    return with_column(changes, "kind", pa.array(np.full(changes.num_rows, int(kind), np.int8)))


def check_written(failed: Collection[NotWritten]) -> None:
    """Raises NotWrittenError with one of the reasons why shards were not written, if there are any."""
    if failed:
        raise NotWrittenError(min(failed, key=lambda failure: failure.waits))


@dataclass(frozen=True)
class Shards:
    """How a window is divided and rendered.

    folder: where tasks leave files; None where they may not.
    """

    catalog: Mapping[TableName, Table]
    rendering: Rendering
    count: int
    folder: str | None

    @classmethod
    def apart(
        cls, source: RowStatements, rendering: Rendering, most: Amount, connections: int, folder: str | None = None
    ) -> Shards:
        """Makes shards that are transactions of about so much each, equally many for each connection."""
        count = connections * -(-source.rows.amount.pieces(most) // connections)
        return cls(dict(source.catalog), rendering, count, folder)

    def divide(self, chunks: Iterable[pa.Table]) -> Iterator[Shard]:
        """Divides chunks of row changes in order.  An error comes with every shard, so that none is written."""
        for chunk in chunks:
            try:
                rows, numbers = self._numbered(chunk)
            except BridgeError as error:
                yield from ((number, _ERROR + pickle.dumps(error)) for number in range(self.count))
                return
            for number, events in divided(rows, numbers):
                yield number, export_events(events, self.folder)

    def _numbered(self, chunk: pa.Table) -> tuple[pa.Table, Longs]:
        """Gives row changes, and the number of each one's shard.  An update that moves its row to another key becomes
        two changes: a delete at the old key, and an insert at the new one."""
        if not chunk.num_rows:
            return chunk, np.empty(0, np.int64)
        changes = typed(self.catalog, chunk, self.rendering.checked_types)
        shapes, shape_of = shapes_of(self.catalog, changes)
        old, new, moves = ShapedRows.of(shapes, shape_of, changes).keys()
        stays, moved = np.flatnonzero(~moves), np.flatnonzero(moves)
        moving = changes.take(pa.array(moved))
        deletes, inserts = _as_kind(moving, Kind.DELETE), _as_kind(moving, Kind.INSERT)
        rows = pa.concat_tables([masked(changes, ~moves), deletes, inserts])
        stay = pc.coalesce(new, old).take(pa.array(stays))
        keys = pa.concat_arrays([stay, *(key.take(pa.array(moved)) for key in (old, new))])
        tables = [zlib.crc32("\0".join(shape.table.name).encode()) for shape in shapes]  # alike in every process
        of_table = np.array(tables, np.int64)[shape_of[np.concatenate([stays, moved, moved])]]
        return rows, ((key_sums(keys) ^ of_table) >> 16) % self.count  # the lower bits of short keys are much alike

    def statements(self, shard: Iterable[Shard], stages: Collection[Stage] = tuple(Stage)) -> Iterator[Statement]:
        """Folds and renders one shard; tables that go by transaction have all their statements in the last stage.
        Raises an error of `divide`."""
        values = [value for _, value in shard]
        for value in values:
            if value.startswith(_ERROR):
                raise pickle.loads(value[len(_ERROR) :])  # of `divide`
        changes = in_order(pa.concat_tables([EVENT_SCHEMA.empty_table(), *map(read_events, values)]))
        for net in fold(self.catalog, changes):
            at_once = isinstance(net, OrderedChanges)
            for statement in render(net, self.rendering):
                if (Stage.WRITE if at_once else statement.stage) in stages:
                    yield statement

    def write(self, write: WritePart, shards: Iterable[Shard]) -> Iterator[NotWritten]:
        """Writes shards, each in one transaction; gives why one is not written, and ends then."""
        for _, shard in groupby(sorted(shards, key=itemgetter(0)), key=itemgetter(0)):
            try:
                statements = list(self.statements(shard))
            except BridgeError as error:
                yield NotWritten(error.what, error.fix)
                return
            once = any(statement.is_once for statement in statements)
            failure = NotWritten("rows may be written only once") if once else write(statements)
            if failure is not None:
                yield failure
                return


_SHARD: Final = Amount(50_000, 64 << 20)
"""About how many row changes are folded and rendered at once."""
_TASKS_PER_CORE: Final = 3
"""Tasks of a job over files: a few for each core, so that none waits long for the last one."""
_TASK_FIX: Final = (
    "nothing is lost: one connection writes these rows; if it comes again, see in Spark's logs why tasks end, mostly"
    " for lack of memory (spark.executor.memory, spark.executor.memoryOverhead)"
)
T = TypeVar("T")


class Home(NamedTuple):
    """Where tasks leave files on this machine; the folder is None where executors are elsewhere, or may not leave
    any."""

    context: SparkContext
    folder: str | None

    @contextmanager
    def own_folder(self) -> Iterator[str | None]:
        """Makes a folder for what tasks leave for one another and for the driver."""
        if self.folder is None:
            yield None
            return
        folder = mkdtemp(dir=self.folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class Executors:
    """Those who divide and write what is too large for the driver.

    room: how much is brought to the driver for one transaction.
    transaction: executors write what exceeds it, where they write; in transactions of about so much.
    home: None while no query reads.
    """

    def __init__(self, room: Amount, transaction: Amount = _SHARD) -> None:
        self.room, self._transaction = room, transaction
        self.home: Home | None = None

    def rows_of(self, parts: Iterable[RowChanges], low: int, high: int) -> RowChanges:
        """Gives the window with low <= commit_ts < high."""
        return replace(RowChanges.joined(parts, low, high), large=self)

    def write(self, rows: RowChanges) -> bool:
        """Tells whether executors write these rows: the driver does not hold them, or there are more than one
        transaction should hold."""
        return rows.is_large or (self.home is not None and rows.amount.exceeds(self._transaction))

    @property
    def _home(self) -> Home:
        assert self.home is not None  # rows are read by a query
        return self.home

    @contextmanager
    def _outside(self, rows: RowChanges) -> Iterator[tuple[RowChanges, str | None]]:
        """Gives executors what of the row changes the driver's memory holds; and a folder for files, for so long."""
        home = self._home
        with home.own_folder() as folder:
            parts = ([p] if not p.chunk.is_here else move_out(p, home.context, folder) for p in rows.parts)
            yield replace(rows, parts=tuple(part for moved in parts for part in moved)), folder

    def _spread(self, rows: RowChanges, function: Callable[[Iterator[pa.Table]], Iterable[T]]) -> RDD[T]:
        """Has tasks call the function with chunks, some for each task."""
        context = self._home.context
        files, with_spark = list[ChunkReference](), list[RDD[ChunkReference]]()
        for chunk, selection in rows.parts:
            if isinstance(chunk, FileChunk):
                files.append((chunk.name, selection))
            elif isinstance(chunk, SparkChunks):
                with_spark.append(chunk.references(selection))
        tasks = max(1, min(len(files), _TASKS_PER_CORE * context.defaultParallelism))
        here: RDD[ChunkReference] = context.parallelize(files, tasks)
        every = context.union([here, *with_spark]) if with_spark else here
        return every.mapPartitions(lambda references: function(map(referenced_rows, references)))

    # --- what the driver writes

    def statements(
        self, rows: RowChanges, catalog: Mapping[TableName, Table], rendering: Rendering
    ) -> Iterator[Statement]:
        """Has tasks divide the row changes by their keys, and folds and renders one shard after the other.  Tables
        whose grain depends on their changes come last, slice by slice.

        Raises RefusedRowsError for a row that cannot be written.
        """
        with self._outside(rows) as (outside, folder):
            odd = odd_tables(catalog, outside.lists(), rendering)
            rest = [name for name in outside.tables() if name not in odd]
            if rest:
                rows = outside.of_tables(rest)
                tables = {name: catalog[name] for name in rest}
                yield from self._of_shards(rows, Shards(tables, rendering, rows.amount.pieces(_SHARD) or 1, folder))
            for name, is_whole in odd.items():
                yield from _in_order(outside.of_tables([name]), catalog, rendering, is_whole=is_whole)

    def _of_shards(self, rows: RowChanges, shards: Shards) -> Iterator[Statement]:
        """Gives the statements shard by shard; stage by stage, where a row that is written in one shard may need a
        value that a row of another shard has until it is deleted."""
        divided = self._spread(rows, shards.divide).partitionBy(shards.count, int)
        are_alone = all(map(is_alone, shards.catalog.values()))
        for stages in (tuple(Stage),) if are_alone else ((stage,) for stage in Stage):
            for _, shard in groupby(divided.toLocalIterator(prefetchPartitions=True), key=itemgetter(0)):
                yield from shards.statements(shard, stages)

    # --- what executors write

    def write_apart(self, source: RowStatements, rendering: Rendering, write: WritePart, connections: int) -> None:
        """Has tasks, as many as connections, divide, fold, render and write the rows of a source: one transaction for
        each shard.

        Raises NotWrittenError when some are not written.
        """
        with self._outside(source.rows) as (outside, folder):
            shards = Shards.apart(source, rendering, self._transaction, connections, folder)
            try:
                divided = self._spread(outside, shards.divide).partitionBy(min(connections, shards.count), int)
                check_written(divided.mapPartitions(partial(shards.write, write)).collect())
            except SPARK_FAILED as error:
                if is_executor_lost(error):
                    raise
                # What a task that writes reads are row changes that Spark keeps: Kafka has no part in it.
                cause = source_error(error)
                what = cause.what if isinstance(cause, BridgeError) else str(cause)
                raise NotWrittenError(NotWritten(what, _TASK_FIX)) from error


def _in_order(
    rows: RowChanges, catalog: Mapping[TableName, Table], rendering: Rendering, *, is_whole: bool
) -> Iterator[Statement]:
    """Brings the rows of one table to the driver, slice by slice.

    An upstream transaction that is too large for that is rendered stage by stage, if messages hold whole rows.  If they
    do not, changes of one key must come together, and it comes as a whole.
    """
    most = Amount(_SHARD.rows + _SHARD.rows // 2, _SHARD.bytes + _SHARD.bytes // 2)
    for window, _ in rows.cut(_SHARD):
        # in which small transactions may stand beside the large one
        pieces = window.cut(_SHARD, least=1) if window.amount.exceeds(most) else [(window, None)]
        for piece, _ in pieces:
            if not is_whole or not piece.amount.exceeds(most):
                yield from RowChanges.here(piece.table).statements(catalog, rendering)
                continue
            for stage in Stage:
                for table in (
                    table for part in piece.parts for table in part.chunk.tables(part.selection, at_once=False)
                ):
                    statements = RowChanges.here(table).statements(catalog, rendering)
                    yield from (statement for statement in statements if statement.stage is stage)
