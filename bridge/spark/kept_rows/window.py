"""Windows of row changes that the driver does not hold: cut, counted, folded and rendered by the same pure functions of
`rows` as those that it holds."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, reduce
from operator import methodcaller
from tempfile import mkdtemp
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark import RDD, StorageLevel

from bridge.errors import BridgeError
from bridge.model import Table, TableName
from bridge.rows.amount import Amount
from bridge.rows.keys.key_spellings import KnownSpellings, is_alone
from bridge.rows.order_and_slices import DriverRows, RowStore, TableRows, TableStore, WindowRows
from bridge.rows.sql.statement import NotWritten, NotWrittenError, Rendering, Stage, Statement, WritePart
from bridge.rows.transactions import cut_transactions
from bridge.sources.prefetch import prefetched
from bridge.spark.errors import SPARK_FAILED, is_executor_lost, source_error
from bridge.spark.event_transfer import is_file
from bridge.spark.kept_rows.chunks import TS_END, Chunk, Spans
from bridge.spark.kept_rows.equal_keys import equal_keys
from bridge.spark.kept_rows.places import Home, Parts
from bridge.spark.kept_rows.shards import Shards
from bridge.spark.kept_rows.statements import Rendered, read_statements
from bridge.spark.kept_rows.store import ChunkStore

_SHARD: Final = Amount(50_000, 64 << 20)
"""About how many row changes one task folds and renders."""
_TASK_FIX: Final = (
    "nothing is lost: one connection writes these rows; if it comes again, see in Spark's logs why tasks end, mostly"
    " for lack of memory (spark.executor.memory, spark.executor.memoryOverhead)"
)
Outcome = Rendered | BridgeError


class Executors:
    """Makes windows of row changes: in the driver's memory if they are there, otherwise on the executors.

    room: how much is brought to the driver for one transaction.
    transaction: executors write what exceeds it, where they write.
    home: where row changes are kept; None while no query reads.
    """

    def __init__(self, room: Amount, transaction: Amount = _SHARD) -> None:
        self._room, self._transaction = room, transaction
        self.home: Home | None = None

    def write(self, rows: WindowRows) -> bool:
        """Tells whether executors write these rows: they have them already, or there are more than one transaction
        should hold."""
        return isinstance(rows, ExecutorRows) or (self.home is not None and rows.amount.exceeds(self._transaction))

    def given(self, rows: WindowRows) -> ExecutorRows:
        """Gives row changes to the executors, unless they have them."""
        if isinstance(rows, ExecutorRows):
            return rows
        assert isinstance(rows, DriverRows)
        assert self.home is not None
        chunks = self.home.context.defaultParallelism
        given = ChunkStore.of(self.home, rows.table, max(1, rows.table.nbytes // chunks))
        return ExecutorRows([given], self._room, transaction=self._transaction)

    def rows_of(self, stores: list[RowStore], low: int, high: int) -> WindowRows:
        """Returns the row changes with low <= commit_ts < high, from stores of both kinds."""
        tables = [store.due(low, high) for store in stores if isinstance(store, TableStore)]
        kept = [store for store in stores if isinstance(store, ChunkStore) and store.overlaps(low, high)]
        if not kept:
            return DriverRows.merged(tables)
        held = [ChunkStore.of(kept[0].home, pa.concat_tables(tables))] if tables else []
        return ExecutorRows([*held, *kept], self._room, low, high, transaction=self._transaction)


class ExecutorRows:
    """A window of row changes in chunks: those of the stores with low <= commit_ts < high.

    stores: at least one.
    room: a piece that fits there is brought to the driver.
    transaction: about how much a task writes in one (`written_apart`).
    """

    def __init__(
        self,
        stores: Sequence[ChunkStore],
        room: Amount,
        low: int = 0,
        high: int = TS_END,
        *,
        transaction: Amount = _SHARD,
    ) -> None:
        self._home = stores[0].home
        self._stores = [store for store in stores if store.overlaps(low, high)] or list(stores[:1])
        self._room, self._transaction, self._low, self._high = room, transaction, low, high

    @cached_property
    def _parts(self) -> Parts:
        return Parts(self._home, (one for store in self._stores for one in store.kept), self._low, self._high)

    @cached_property
    def _spans(self) -> Spans:
        """The blocks of the window."""
        return Spans.joined(self._parts.each(Chunk.spans))

    @cached_property
    def amount(self) -> Amount:
        """How much there is; an estimate for a part of a window."""
        return self._spans.amount

    @property
    def count(self) -> int:
        """The number of row changes."""
        return self.amount.rows

    def marks(self, bounds: Sequence[int]) -> Sequence[int]:
        """Returns commit_ts of row changes, ascending: at least one for each interval between `bounds` that holds
        any."""
        found = self._parts.each(methodcaller("marks", bounds))
        marks: list[int] = np.unique(np.concatenate([np.empty(0, np.int64), *found])).tolist()
        return marks

    def between(self, low: int, high: int) -> ExecutorRows:
        """Returns the part of the window with low <= commit_ts < high."""
        return self._of(self._stores, max(low, self._low), min(high, self._high))

    def _of(self, stores: Sequence[ChunkStore], low: int, high: int) -> ExecutorRows:
        return ExecutorRows(stores, self._room, low, high, transaction=self._transaction)

    def pieces(self, most: Amount) -> Iterator[tuple[int | None, WindowRows]]:
        """Yields the window in pieces of about `most`, each with the commit_ts where the next one begins (None: the
        last).

        The window is cut between blocks; a piece that is still too large is cut between commit_ts.  A piece that fits
        into `room` is brought to the driver.
        """
        for piece, end in self._cut(self._spans, most) if self.count else ():
            if piece.amount.exceeds(_with_tolerance(most)):
                for smaller, inner_end in piece._cut(Spans.joined(piece._parts.each(Chunk.moments)), most):
                    yield end if inner_end is None else inner_end, smaller._brought()
            else:
                yield end, piece._brought()

    def _cut(self, spans: Spans, most: Amount) -> Iterator[tuple[ExecutorRows, int | None]]:
        """Cuts the window between runs of row changes, with the commit_ts where the next piece begins.

        A piece counts the runs that begin in it: their ends may belong to the next ones.
        """
        weights = np.maximum(spans.rows, spans.bytes * (most.rows / most.bytes))
        starts, low = spans.first.tolist(), self._low
        for start, end in cut_transactions(starts, most.rows, weights):
            following = starts[end] if end < len(starts) else None
            piece = self.between(low, self._high if following is None else following)
            piece.amount = spans.of(np.arange(start, end)).amount
            yield piece, following
            low = piece._high

    def _brought(self) -> WindowRows:
        return self if self.amount.exceeds(self._room) else self.on_driver()

    def on_driver(self) -> DriverRows:
        """Brings the row changes into the driver's memory."""
        return DriverRows.merged(self._parts.tables(Chunk.rows))

    def tables(self) -> dict[TableName, TableRows]:
        """Returns the changed tables."""
        return self._tables

    @cached_property
    def _tables(self) -> dict[TableName, TableRows]:
        tables: dict[TableName, TableRows] = {}
        found = self._parts.each(Chunk.tables)
        for name, one in (item for some in found for item in some.items()):
            known = tables.get(name)
            tables[name] = one if known is None else TableRows(
                min(known.first_ts, one.first_ts), *(a + b for a, b in zip(known[1:], one[1:], strict=True))
            )  # fmt: skip
        return tables

    def statements(self, catalog: Mapping[TableName, Table], rendering: Rendering) -> Iterable[Statement]:
        """Folds and renders on the executors; yields the statements, stage by stage where the order of stages matters.

        Raises RefusedRowsError for a row that cannot be written.
        """
        with self._folder() as folder:
            count = self.amount.pieces(_SHARD) or 1
            same = equal_keys(self._parts, catalog, rendering, count, folder)
            rendered = Shards.of(catalog, rendering, same, count, folder).rendered(self._parts)
            rendered.persist(StorageLevel.DISK_ONLY)
            try:
                at_once = self._at_once(count, catalog, rendering)
                groups = (range(start, min(start + at_once, count)) for start in range(0, count, at_once))
                for made in prefetched((_outlines(rendered, group) for group in groups), "rendering"):
                    for one in _in_stages(made):
                        yield from read_statements(one if one.value else _fetched(rendered, one), catalog)
            finally:
                rendered.unpersist()

    def written_apart(
        self, catalog: Mapping[TableName, Table], rendering: Rendering, write: WritePart, connections: int
    ) -> None:
        """Has executors fold, render and write the rows over so many connections.

        Raises NotWrittenError when some are not written.
        """
        with self._folder() as folder:
            count = connections * -(-self.amount.pieces(self._transaction) // connections)
            shards = Shards.of(catalog, rendering, KnownSpellings({}), count, folder, is_apart=True)
            try:
                failed = shards.written(self._parts, write, connections)
            except SPARK_FAILED as error:
                if is_executor_lost(error):
                    raise
                raise NotWrittenError(_task_failure(error)) from error
        if failed:
            raise NotWrittenError(min(failed, key=lambda one: one.waits))

    def of_tables(self, names: Collection[TableName]) -> WindowRows:
        """Returns the row changes of some tables."""
        if not names:
            return DriverRows.of([])
        others = self._tables.keys() - set(names)
        if not others:
            return self
        stores = [reduce(ChunkStore.without, others, store) for store in self._stores]
        found = self._of(stores, self._low, self._high)
        share = sum(sum(self._tables[name][1:]) for name in names) / sum(sum(one[1:]) for one in self._tables.values())
        found.amount = Amount(*(round(share * part) for part in self.amount))
        return found

    def _at_once(self, count: int, catalog: Mapping[TableName, Table], rendering: Rendering) -> int:
        """Tells how many shards are rendered before the first statement is sent.

        All of them, where a row that is written in one shard may need a value that a row of another shard has until it
        is deleted.  Otherwise a few: the next ones are rendered while these are sent.
        """
        few = self._home.context.defaultParallelism
        return few if all(map(is_alone, catalog.values())) and not rendering.safe_mode else count

    @contextmanager
    def _folder(self) -> Iterator[str | None]:
        """Makes a folder for what tasks leave for one another and for the driver."""
        if self._home.folder is None:
            yield None
            return
        folder = mkdtemp(dir=self._home.folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def changes(self, name: TableName) -> pa.Table:
        """Brings the row changes of one table to the driver."""
        return DriverRows.merged(self._parts.tables(methodcaller("of_table", name))).changes(name)

    def with_changes(self, name: TableName, changes: pa.Table) -> ExecutorRows:
        """Returns the window with the row changes of one table replaced."""
        given = ChunkStore.of(self._home, changes)
        return self._of([given, *(s.without(name) for s in self._stores)], self._low, self._high)


def _task_failure(error: Exception) -> NotWritten:
    """What a task that writes reads are row changes that Spark keeps: Kafka has no part in it."""
    found = source_error(error)
    return NotWritten(found.what if isinstance(found, BridgeError) else str(found), _TASK_FIX)


def _with_tolerance(most: Amount) -> Amount:
    return Amount(most.rows + most.rows // 2, most.bytes + most.bytes // 2)


def _outlines(rendered: RDD[Outcome], shards: Sequence[int]) -> list[Rendered]:
    """Renders shards, and gives what was made, without the statements themselves where they are not files.

    Raises the first error of a shard.
    """
    found = list[Rendered]()
    for one in rendered.context.runJob(rendered.map(_outline), list, list(shards)):
        if isinstance(one, BridgeError):
            raise one
        found.append(one)
    return found


def _outline(made: Outcome) -> Outcome:
    return made if isinstance(made, BridgeError) or is_file(made.value) else made._replace(value=b"")


def _fetched(rendered: RDD[Outcome], one: Rendered) -> Rendered:
    def is_it(made: Outcome) -> bool:
        return isinstance(made, Rendered) and made.stage is one.stage

    [found] = rendered.context.runJob(rendered.filter(is_it), list, [one.shard])
    return one._replace(value=found.value)  # type: ignore[union-attr]  # `is_it`


def _in_stages(made: Iterable[Rendered]) -> list[Rendered]:
    return sorted(made, key=lambda one: (list(Stage).index(one.stage), one.shard))
