"""What Spark's executors do with windows that the driver does not hold: they divide them by the keys of rows, so that
the driver folds and renders a part at a time; with `parallel` they write the parts, by the same pure functions of
`rows`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from tempfile import mkdtemp
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
from pyspark import RDD, SparkContext

from bridge.errors import BridgeError
from bridge.model import Table, TableName
from bridge.rows.amount import Amount
from bridge.rows.grains import Wishes
from bridge.rows.keys.key_spellings import is_alone
from bridge.rows.net_changes import odd_tables
from bridge.rows.order_and_slices import RowChanges, RowStatements
from bridge.rows.sql.statement import NotWritten, NotWrittenError, Rendering, Stage, Statement, WritePart
from bridge.spark.errors import SPARK_FAILED, is_executor_lost, source_error
from bridge.spark.kept_rows.places import FileChunk, Given, SparkChunks, kept_elsewhere
from bridge.spark.kept_rows.shards import Shards

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

    def rows_of(self, some: Iterable[RowChanges], low: int, high: int) -> RowChanges:
        """Gives the window with low <= commit_ts < high."""
        return replace(RowChanges.joined(some, low, high), large=self)

    def write(self, rows: RowChanges) -> bool:
        """Tells whether executors write these rows: the driver does not hold them, or there are more than one
        transaction should hold."""
        return rows.is_large or (self.home is not None and rows.amount.exceeds(self._transaction))

    @property
    def _home(self) -> Home:
        assert self.home is not None  # rows are read by a query
        return self.home

    @contextmanager
    def _given(self, rows: RowChanges) -> Iterator[tuple[RowChanges, str | None]]:
        """Gives executors what of the row changes the driver's memory holds; and a folder for files, for so long."""
        home = self._home
        with home.own_folder() as folder:
            parts = ([p] if not p.chunk.is_here else kept_elsewhere(p, home.context, folder) for p in rows.parts)
            yield replace(rows, parts=tuple(one for some in parts for one in some)), folder

    def _spread(self, rows: RowChanges, function: Callable[[Iterator[pa.Table]], Iterable[T]]) -> RDD[T]:
        """Has tasks call the function with chunks, some for each task."""
        context = self._home.context
        files, with_spark = list[Given](), list[RDD[Given]]()
        for chunk, wanted in rows.parts:
            if isinstance(chunk, FileChunk):
                files.append(chunk.given(wanted))
            elif isinstance(chunk, SparkChunks):
                with_spark.append(chunk.given(wanted))
        tasks = max(1, min(len(files), _TASKS_PER_CORE * context.defaultParallelism))
        here: RDD[Given] = context.parallelize(files, tasks)
        every = context.union([here, *with_spark]) if with_spark else here
        return every.mapPartitions(lambda some: function(one.rows() for one in some))

    # --- what the driver writes

    def statements(
        self, rows: RowChanges, catalog: Mapping[TableName, Table], rendering: Rendering
    ) -> Iterator[Statement]:
        """Has tasks divide the row changes by their keys, and folds and renders one shard after the other.  Tables
        whose grain depends on their changes come last, slice by slice.

        Raises RefusedRowsError for a row that cannot be written.
        """
        wishes = Wishes(rendering.safe_mode, rendering.in_order)
        with self._given(rows) as (kept, folder):
            odd = odd_tables(catalog, kept.lists(), wishes)
            rest = [name for name in kept.tables() if name not in odd]
            if rest:
                rows = kept.of_tables(rest)
                tables = {name: catalog[name] for name in rest}
                yield from self._of_shards(rows, Shards(tables, rendering, rows.amount.pieces(_SHARD) or 1, folder))
            for name, is_whole in odd.items():
                yield from _in_order(kept.of_tables([name]), catalog, rendering, is_whole=is_whole)

    def _of_shards(self, rows: RowChanges, shards: Shards) -> Iterator[Statement]:
        """Gives the statements shard by shard; stage by stage, where a row that is written in one shard may need a
        value that a row of another shard has until it is deleted."""
        divided = self._spread(rows, shards.divide).partitionBy(shards.count, int)
        are_alone = all(map(is_alone, shards.catalog.values()))
        for stages in (tuple(Stage),) if are_alone else ((stage,) for stage in Stage):
            for _, some in groupby(divided.toLocalIterator(prefetchPartitions=True), key=itemgetter(0)):
                yield from shards.statements(some, stages)

    # --- what executors write

    def write_apart(self, source: RowStatements, rendering: Rendering, write: WritePart, connections: int) -> None:
        """Has executors fold, render and write the rows of a source over so many connections.

        Raises NotWrittenError when some are not written.
        """
        with self._given(source.rows) as (kept, folder):
            shards = Shards.apart(source, rendering, self._transaction, connections, folder)
            try:
                shards.written(partial(self._spread, kept), write, connections)
            except SPARK_FAILED as error:
                if is_executor_lost(error):
                    raise
                # What a task that writes reads are row changes that Spark keeps: Kafka has no part in it.
                found = source_error(error)
                what = found.what if isinstance(found, BridgeError) else str(found)
                raise NotWrittenError(NotWritten(what, _TASK_FIX)) from error


def _in_order(
    rows: RowChanges, catalog: Mapping[TableName, Table], rendering: Rendering, *, is_whole: bool
) -> Iterator[Statement]:
    """Brings the rows of one table to the driver, slice by slice.  Of an upstream transaction that is too large for
    that, all slices are rendered for one stage after the other, if messages hold whole rows: otherwise changes of one
    key must come together."""
    most = Amount(_SHARD.rows + _SHARD.rows // 2, _SHARD.bytes + _SHARD.bytes // 2)
    for piece, _ in rows.cut(_SHARD):
        if not is_whole or not piece.amount.exceeds(most):
            yield from RowChanges.here(piece.table).statements(catalog, rendering)
            continue
        for stage in Stage:
            tables = (table for part in piece.parts for table in part.chunk.tables(part.wanted, at_once=False))
            for table in tables:
                statements = RowChanges.here(table).statements(catalog, rendering)
                yield from (statement for statement in statements if statement.stage is stage)
