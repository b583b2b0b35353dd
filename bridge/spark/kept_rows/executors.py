"""What Spark's executors do with windows that the driver does not hold: they fold and render them by the same pure
functions of `rows`, and with `parallel` write them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from tempfile import mkdtemp
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
from pyspark import RDD, SparkContext, StorageLevel

from bridge.errors import BridgeError
from bridge.model import Table, TableName
from bridge.rows import grains
from bridge.rows.amount import Amount
from bridge.rows.keys.key_spellings import is_alone
from bridge.rows.net_changes import facts
from bridge.rows.order_and_slices import RowChanges, RowStatements
from bridge.rows.sql.statement import NotWritten, NotWrittenError, Rendering, Stage, Statement, WritePart
from bridge.sources.prefetch import prefetched
from bridge.spark.errors import SPARK_FAILED, is_executor_lost, source_error
from bridge.spark.event_transfer import is_file
from bridge.spark.kept_rows.places import FileChunk, Given, SparkChunks, kept_elsewhere
from bridge.spark.kept_rows.shards import Rendered, Shards, read_statements

_SHARD: Final = Amount(50_000, 64 << 20)
"""About how many row changes one task folds and renders."""
_TASKS_PER_CORE: Final = 3
"""Tasks of a job over files: a few for each core, so that none waits long for the last one."""
_TASK_FIX: Final = (
    "nothing is lost: one connection writes these rows; if it comes again, see in Spark's logs why tasks end, mostly"
    " for lack of memory (spark.executor.memory, spark.executor.memoryOverhead)"
)
Outcome = Rendered | BridgeError
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
    """Those who fold, render and write what is too large for the driver.

    room: how much is brought to the driver for one transaction.
    transaction: executors write what exceeds it, where they write; in transactions of about so much.
    home: None while no query reads.
    """

    def __init__(self, room: Amount, transaction: Amount = _SHARD) -> None:
        self.room, self._transaction = room, transaction
        self.home: Home | None = None

    def rows_of(self, windows: Iterable[RowChanges], low: int, high: int) -> RowChanges:
        """Gives the window with low <= commit_ts < high."""
        return replace(RowChanges.joined(windows, low, high), large=self)

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
            yield replace(rows, parts=tuple(chain.from_iterable(parts))), folder

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
        return every.mapPartitions(lambda chunks: function(chunk.rows() for chunk in chunks))

    # --- what the driver writes

    def statements(
        self, rows: RowChanges, catalog: Mapping[TableName, Table], rendering: Rendering
    ) -> Iterator[Statement]:
        """Folds and renders on the executors; yields the statements, stage by stage where the order of stages matters.
        Tables that go by transaction come last, through the driver.

        Raises RefusedRowsError for a row that cannot be written.
        """
        with self._given(rows) as (kept, folder):
            by_transaction = self._by_transaction(kept, catalog, rendering)
            rest = kept.of_tables(kept.tables().keys() - by_transaction.keys())
            if rest.parts:
                yield from self._rendered(rest, catalog, rendering, folder)
            for name, is_whole in by_transaction.items():
                for statement in _in_order(kept.of_tables([name]), catalog, rendering, is_whole=is_whole):
                    yield statement._replace(is_once=True)

    def _rendered(
        self, rows: RowChanges, catalog: Mapping[TableName, Table], rendering: Rendering, folder: str | None
    ) -> Iterator[Statement]:
        count = rows.amount.pieces(_SHARD) or 1
        rendered = Shards(dict(catalog), rendering, count, folder).rendered(partial(self._spread, rows))
        rendered.persist(StorageLevel.DISK_ONLY)
        try:
            at_once = self._at_once(count, catalog)
            groups = (range(start, min(start + at_once, count)) for start in range(0, count, at_once))
            for outlines in prefetched((_outlines(rendered, group) for group in groups), "rendering"):
                for one in sorted(outlines, key=lambda outline: (list(Stage).index(outline.stage), outline.shard)):
                    yield from read_statements(one if one.value else _fetched(rendered, one), catalog)
        finally:
            rendered.unpersist()

    def _at_once(self, count: int, catalog: Mapping[TableName, Table]) -> int:
        """Tells how many shards are rendered before the first statement is sent.

        All of them, where a row that is written in one shard may need a value that a row of another shard has until it
        is deleted.  Otherwise a few: the next ones are rendered while these are sent.
        """
        few = self._home.context.defaultParallelism
        return few if all(map(is_alone, catalog.values())) else count

    def _by_transaction(
        self, rows: RowChanges, catalog: Mapping[TableName, Table], rendering: Rendering
    ) -> dict[TableName, bool]:
        """Finds the tables that go by transaction, and tells of each whether its messages hold whole rows."""
        wishes, checked = grains.Wishes(rendering.safe_mode, rendering.in_order), rendering.checked_types
        tables = dict(catalog)

        def of_chunks(chunks: Iterator[pa.Table]) -> Iterator[Mapping[TableName, grains.Facts]]:
            for chunk in chunks:
                with suppress(BridgeError):  # which the task that folds these rows raises again
                    yield facts(tables, chunk, checked, wishes)

        if grains.FORCED:
            return dict.fromkeys(rows.tables(), False)
        facts_of: dict[TableName, grains.Facts] = {}
        for name, one in chain.from_iterable(of_chunk.items() for of_chunk in self._spread(rows, of_chunks).collect()):
            facts_of[name] = facts_of[name].and_also(one) if name in facts_of else one
        by_transaction = (
            item for item in facts_of.items() if grains.why_by_transaction(catalog[item[0]], item[1], wishes)
        )
        return {name: not one.lacks for name, one in by_transaction}

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
                raise NotWrittenError(_task_failure(error)) from error


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
            for number, table in enumerate(tables):
                statements = RowChanges.here(table).statements(catalog, replace(rendering, piece=number))
                yield from (one for one in statements if one.stage is stage)


def _task_failure(error: Exception) -> NotWritten:
    """What a task that writes reads are row changes that Spark keeps: Kafka has no part in it."""
    reason = source_error(error)
    return NotWritten(reason.what if isinstance(reason, BridgeError) else str(reason), _TASK_FIX)


def _outlines(rendered: RDD[Outcome], shards: Sequence[int]) -> list[Rendered]:
    """Renders shards, and gives what was made, without the statements themselves where they are not files.

    Raises the first error of a shard.
    """
    outlines = list[Rendered]()
    for outcome in rendered.context.runJob(rendered.map(_outline), list, list(shards)):
        if isinstance(outcome, BridgeError):
            raise outcome
        outlines.append(outcome)
    return outlines


def _outline(outcome: Outcome) -> Outcome:
    return outcome if isinstance(outcome, BridgeError) or is_file(outcome.value) else outcome._replace(value=b"")


def _fetched(rendered: RDD[Outcome], one: Rendered) -> Rendered:
    def is_it(outcome: Outcome) -> bool:
        return isinstance(outcome, Rendered) and outcome.stage is one.stage

    [whole] = rendered.context.runJob(rendered.filter(is_it), list, [one.shard])
    return one._replace(value=whole.value)  # type: ignore[union-attr]  # `is_it`
