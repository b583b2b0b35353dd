"""Row changes on Spark's executors: a backlog larger than the driver's memory, and transactions larger than it.

The rules are the same pure functions that the driver runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.errors import PythonException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from bridge.errors import RefusedRowsError
from bridge.events import EVENT_SCHEMA, SEP, Kind
from bridge.model import Table, TableName
from bridge.rows.amount import Amount
from bridge.rows.arrow_images import TEXT, joined, parts_of
from bridge.rows.keys.key_spellings import KnownSpellings, is_nearly_exact, respelled, signatures, spellings
from bridge.rows.literal_offsets import whole
from bridge.rows.net_changes import choose_key, fold
from bridge.rows.order_and_slices import (
    ROW_ORDER,
    DriverRows,
    RowStore,
    TableStore,
    WindowRows,
    by_table,
)
from bridge.rows.sql.render import render
from bridge.rows.sql.statement import Rendering, Stage, Statement
from bridge.rows.types.resolve_types import typed
from bridge.rows.types.type_check import CheckedTypes
from bridge.spark.frame_store import ROW_BYTES, TS_END, FrameStore, checkpointed

_TOGETHER: Final = Amount(50_000, 64 << 20)
"""About how many row changes are rendered together.  Their statements pass through the JVM's memory in one piece."""
_BATCH_BYTES: Final = 8 << 20
"""The bytes of statements in one batch on their way to the JVM."""
_KEYED_SCHEMA: Final = EVENT_SCHEMA.append(pa.field("key_names", pa.string(), nullable=False)).append(
    pa.field("row_key", pa.string(), nullable=False)
)
_SIGNED_SCHEMA: Final = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in ("schema", "table", "key_names", "row_key")),
        pa.field("goes", pa.bool_(), nullable=False),
        pa.field("signature", pa.string(), nullable=False),
    ]
)
_STATEMENT_SCHEMA: Final = pa.schema(
    [
        pa.field("stage", pa.int32(), nullable=False),
        pa.field("schema", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("sql", pa.string(), nullable=False),
        pa.field("expect", pa.int64()),
    ]
)


class Executors:
    """Gives windows of row changes: on the driver where they fit, otherwise on the executors.

    room: how much the driver may hold for one transaction.
    """

    def __init__(self, spark: SparkSession, room: Amount) -> None:
        self._spark, self._room = spark, room

    def rows_of(self, stores: list[RowStore], low: int, high: int) -> WindowRows:
        """The row changes of a window, from stores of both kinds."""
        tables = [store.due(low, high) for store in stores if isinstance(store, TableStore)]
        frames = [store for store in stores if isinstance(store, FrameStore) and store.overlaps(low, high)]
        if not frames:
            return DriverRows.merged(tables)
        held = pa.concat_tables([EVENT_SCHEMA.empty_table(), *tables])
        return ExecutorRows([*FrameStore.all_of(self._spark, held), *frames], self._room, low, high)


class ExecutorRows:
    """A window whose row changes are on the executors: those of the stores with low <= commit_ts < high.

    Only stores that may hold some are read, so that the pieces of a window cost no more than all of it.
    """

    def __init__(self, stores: Sequence[FrameStore], room: Amount, low: int = 0, high: int = TS_END) -> None:
        self._stores = [store for store in stores if store.overlaps(low, high)] or list(stores[:1])
        self._room, self._low, self._high = room, low, high

    @cached_property
    def _frame(self) -> DataFrame:
        ts = F.col("commit_ts")
        frames = [store.where((ts >= self._low) & (ts < self._high)).frame for store in self._stores]
        return reduce(DataFrame.unionByName, frames)

    @cached_property
    def _amount(self) -> Amount:
        """How much the window holds; Spark is asked once."""
        [(rows, size)] = self._frame.agg(F.count("*"), F.expr(f"ifnull(sum({ROW_BYTES}), 0)")).collect()
        return Amount(rows, size)

    @property
    def count(self) -> int:
        """How many row changes there are."""
        return self._amount.rows

    def marks(self, bounds: Sequence[int]) -> Sequence[int]:
        """The lowest commit_ts of each interval between `bounds` that holds any."""
        return [first for first, _ in self._intervals(bounds)]

    def _intervals(self, bounds: Sequence[int]) -> list[tuple[int, Amount]]:
        """The lowest commit_ts of each interval between `bounds` that holds any, and how much the interval holds."""
        sizes = self._frame.select("commit_ts", F.expr(ROW_BYTES))
        parts = sizes.mapInArrow(_parted(bounds), "interval int, first long, rows long, bytes long")
        found = parts.groupBy("interval").agg(F.min("first"), F.sum("rows"), F.sum("bytes")).collect()
        return sorted((first, Amount(rows, size)) for _, first, rows, size in found)

    def between(self, low: int, high: int) -> ExecutorRows:
        """The part of the window with low <= commit_ts < high."""
        return ExecutorRows(self._stores, self._room, max(low, self._low), min(high, self._high))

    def pieces(self, most: Amount) -> Iterator[tuple[int | None, WindowRows]]:
        """Cuts the window at about the quantiles of commit_ts, and again where a piece is too large.  A piece that the
        driver can hold is brought there."""
        cuts = self._cuts(most) if self.count else []
        ends = [*(start for start, _ in cuts[1:]), None]
        for (start, amount), end in zip(cuts, ends, strict=False):
            piece = self.between(start, end if end is not None else TS_END)
            piece._amount = amount
            if len(cuts) > 1 and amount.exceeds(_half_as_much_again(most)):
                for following, smaller in piece.pieces(most):
                    yield end if following is None else following, smaller
            else:
                yield end, piece if amount.exceeds(self._room) else piece.on_driver()

    def _cuts(self, most: Amount) -> list[tuple[int, Amount]]:
        """Where pieces of about that size begin, and how much they hold; the first piece begins with the window."""
        if not self._amount.exceeds(_half_as_much_again(most)):
            return [(self._low, self._amount)]
        wanted = self._amount.pieces(most)
        quantiles = [i / wanted for i in range(1, wanted)]
        # Exact ones would hold all commit_ts in the JVM: a tenth of a piece more or less does no harm.  What comes are
        # doubles, too short for a TSO: the window is cut at the next commit_ts that is there.
        near = [int(cut) for cut in self._frame.approxQuantile("commit_ts", quantiles, 0.1 / wanted)]
        (_, first), *others = self._intervals(near)
        return [(self._low, first), *others]

    def on_driver(self) -> DriverRows:
        """The same row changes in the driver's memory."""
        return DriverRows.of([self._frame.toArrow()])

    def tables(self) -> dict[TableName, int]:
        """The tables changed, each with its lowest commit_ts."""
        found = self._frame.groupBy("schema", "table").agg(F.min("commit_ts")).collect()
        return {TableName(schema, table): commit_ts for schema, table, commit_ts in found}

    def statements(self, catalog: Mapping[TableName, Table], rendering: Rendering) -> Iterable[Statement]:
        """Folds and renders on the executors; brings statements, not rows, stage by stage.

        Raises RefusedRowsError as the driver would.  What a task raises has lost its table and its code on the way;
        when a row is refused, the rows are therefore brought to the driver, which finds out which one it is.
        """
        try:
            rendered = self._rendered(catalog, rendering)
        except PythonException as error:
            if RefusedRowsError.__name__ not in str(error):
                raise
            yield from self.on_driver().statements(catalog, rendering)
            return
        for stage in Stage:
            for _, schema, table, sql, expect in rendered.where(F.col("stage") == int(stage)).toLocalIterator():
                yield Statement(stage, TableName(schema, table), sql, expect)

    def _rendered(self, catalog: Mapping[TableName, Table], rendering: Rendering) -> DataFrame:
        known = dict(catalog)
        same = self._same_keys(known, rendering)
        return checkpointed(
            self._frame.mapInArrow(
                _add_row_keys(known, same, rendering.checked_types), from_arrow_schema(_KEYED_SCHEMA)
            )
            .repartition(self._amount.pieces(_TOGETHER) or 1, "schema", "table", "row_key")
            .sortWithinPartitions(*ROW_ORDER)
            .mapInArrow(_render_partition(known, rendering, same), from_arrow_schema(_STATEMENT_SCHEMA))
        )

    def _same_keys(self, catalog: Mapping[TableName, Table], rendering: Rendering) -> KnownSpellings:
        """Which keys the server holds for one, asked where a row may have gone.

        The keys that the server is asked about pass through the driver's memory: texts that are equal but for case and
        blanks, and all keys of a table some of which hold more than ASCII.
        Nothing is asked about _bin collations.  While messages hold old rows, at most one of several spellings of a key
        is written, after the others are deleted.
        """
        inexact = [
            name for name, table in catalog.items() if not all(is_nearly_exact(table, key) for key in table.keys)
        ]
        if not inexact:
            return KnownSpellings({})
        kind, before, is_inexact = F.col("kind"), F.col("before"), reduce(Column.__or__, map(_is_of, inexact))
        keys = (
            self._frame.where(is_inexact)
            .mapInArrow(
                _add_row_keys(catalog, KnownSpellings({}), rendering.checked_types), from_arrow_schema(_KEYED_SCHEMA)
            )
            .where("key_names != ''")
            .groupBy("schema", "table", "key_names", "row_key")
            .agg(F.bool_or((kind == int(Kind.DELETE)) | ((kind == int(Kind.UPDATE)) & before.isNull())).alias("goes"))
            .mapInArrow(_add_signatures(catalog), from_arrow_schema(_SIGNED_SCHEMA))
            .localCheckpoint(eager=True)
        )
        of_table = keys.groupBy("schema", "table").agg(
            F.bool_or("goes").alias("goes"), F.bool_or(F.col("signature") == "").alias("odd")
        )
        groups = keys.groupBy("schema", "table", "signature").agg(
            (F.bool_or("goes") & (F.count("*") > 1)).alias("suspected")
        )
        suspects = (
            keys.join(of_table.where("goes").drop("goes"), ["schema", "table"])
            .join(groups, ["schema", "table", "signature"])
            .where("odd OR suspected")
            .select(*_SIGNED_SCHEMA.names)
            .toArrow()
        )
        return KnownSpellings(
            {
                name: spellings(
                    catalog[name], key, found["row_key"].combine_chunks().cast(TEXT), goes, rendering.same_keys
                )
                for name, found in by_table(suspects).items()
                for key in [tuple(found["key_names"][0].as_py().split(SEP))]
                for goes in [found["goes"].to_numpy()]
            }
        )

    def changes(self, name: TableName) -> pa.Table:
        """The row changes of one table, brought to the driver."""
        mine = self._frame.where((F.col("schema") == name.schema) & (F.col("table") == name.table))
        return mine.orderBy(*ROW_ORDER).toArrow()

    def with_changes(self, name: TableName, changes: pa.Table) -> ExecutorRows:
        """The same window with other row changes of one table."""
        is_other = (F.col("schema") != name.schema) | (F.col("table") != name.table)
        given = FrameStore.of(self._frame.sparkSession, changes)
        others = [store.where(is_other) for store in self._stores]
        return ExecutorRows([*others, given], self._room, self._low, self._high)


Batches = Iterable[pa.RecordBatch]


def _half_as_much_again(most: Amount) -> Amount:
    return Amount(most.rows + most.rows // 2, most.bytes + most.bytes // 2)


def _parted(bounds: Sequence[int]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """For mapInArrow, of commit_ts and bytes: of each batch, for each interval between bounds, its number, the lowest
    commit_ts, how many rows there are, and their bytes."""
    limits = np.array(sorted(bounds), np.int64)

    def parted(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in filter(len, batches):
            ts, sizes = (column.to_numpy() for column in batch.columns)
            order = np.argsort(ts)
            place = np.searchsorted(limits, ts[order], "right")
            interval, first, rows = np.unique(place, return_index=True, return_counts=True)
            found = (interval.astype(np.int32), ts[order[first]], rows, np.add.reduceat(sizes[order], first))
            yield pa.RecordBatch.from_arrays(list(map(pa.array, found)), names=["interval", "first", "rows", "bytes"])

    return parted


def _is_of(name: TableName) -> Column:
    return (F.col("schema") == name.schema) & (F.col("table") == name.table)


def _add_signatures(catalog: Mapping[TableName, Table]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """For mapInArrow: what can be told of keys without the server (`spellings.signatures`)."""

    def add(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name, keys in by_table(pa.Table.from_batches([batch])).items():
                key = tuple(keys["key_names"][0].as_py().split(SEP))
                literals = keys["row_key"].combine_chunks().cast(TEXT)
                found = signatures(catalog[name], key, literals).cast(pa.string())
                signed = pa.Table.from_arrays(
                    [*(column.combine_chunks() for column in keys.columns), found], schema=_SIGNED_SCHEMA
                )
                yield from signed.to_batches()

    return add


def _add_row_keys(
    catalog: Mapping[TableName, Table], same: KnownSpellings, checked: CheckedTypes
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """For mapInArrow: each change with the names of its row's key and the literals, in the spelling that stands for all
    that the server holds for one; "" for a table without a key.

    A change that moves its row to another key becomes two: the row goes at the old key, and comes at the new one.
    """

    def add(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name, changes in by_table(pa.Table.from_batches([batch])).items():
                yield from _keyed(catalog[name], typed(catalog[name], changes, checked), same)

    return add


def _keyed(table: Table, changes: pa.Table, same: KnownSpellings) -> Iterator[pa.RecordBatch]:
    shapes = changes.group_by(["columns", "key"]).aggregate([]).to_pylist()
    for columns, handle in ((shape["columns"], shape["key"]) for shape in shapes):
        mine = changes.filter(pc.and_(pc.equal(changes["columns"], columns), pc.equal(changes["key"], handle)))
        key = choose_key(table, columns, handle)
        if not key:
            yield from _with_key(mine, key, pa.repeat("", mine.num_rows))
            continue
        names = columns.lower().split(SEP)
        positions = [names.index(part) for part in key]
        old, new = (joined(parts_of(_text(mine, image), positions)) for image in ("before", "after"))
        moved = pc.fill_null(pc.not_equal(old, new), False)
        stays, parted = mine.filter(pc.invert(moved)), mine.filter(moved)
        old, new, kept = (respelled(keys, same.of(table)) for keys in (old, new, pc.coalesce(new, old)))
        yield from _with_key(stays, key, kept.filter(pc.invert(moved)))
        yield from _with_key(_only(parted, Kind.DELETE), key, old.filter(moved))
        yield from _with_key(_only(parted, Kind.INSERT), key, new.filter(moved))


def _text(changes: pa.Table, image: str) -> pa.Array:
    return whole(changes[image])


def _only(changes: pa.Table, kind: Kind) -> pa.Table:
    """Updates as the deletes, or the inserts, they consist of."""
    dropped = "after" if kind is Kind.DELETE else "before"
    nothing = pa.nulls(changes.num_rows, pa.string())
    changes = changes.set_column(EVENT_SCHEMA.get_field_index(dropped), dropped, nothing)
    kinds = pa.array([int(kind)] * changes.num_rows, pa.int8())
    return changes.set_column(EVENT_SCHEMA.get_field_index("kind"), "kind", kinds)


def _with_key(changes: pa.Table, key: Sequence[str], keys: pa.Array) -> Iterator[pa.RecordBatch]:
    arrays = [column.combine_chunks() for column in changes.columns]
    names = pa.repeat(SEP.join(key), changes.num_rows)
    keyed = pa.Table.from_arrays([*arrays, names, keys.cast(pa.string())], schema=_KEYED_SCHEMA)
    yield from keyed.to_batches()


def _render_partition(
    catalog: Mapping[TableName, Table], rendering: Rendering, same: KnownSpellings
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """For mapInArrow: turns all changes of one partition, which holds every change of its keys, into statements.

    All of them are texts, none is a LOAD DATA: at this size the executors are the limit, not the server.  One session
    runs the statements of all partitions, stage by stage, so that scratch tables have names of their own.
    """
    rendering = replace(rendering, load_bytes=0, same_keys=same)

    def rendered(batches: Batches) -> Iterator[pa.RecordBatch]:
        held = list(batches)
        if not held:
            return
        task = TaskContext.get()
        mine = replace(rendering, piece=task.partitionId() if task else 0)
        for net in fold(catalog, pa.Table.from_batches(held), same):
            for statements in _in_batches(render(net, mine)):
                rows = [(int(s.stage), *s.table, s.sql, s.expect) for s in statements]
                columns = zip(*rows, strict=True)
                arrays = [pa.array(c, f.type) for c, f in zip(columns, _STATEMENT_SCHEMA, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=_STATEMENT_SCHEMA)

    return rendered


def _in_batches(statements: Iterator[Statement]) -> Iterator[list[Statement]]:
    held: list[Statement] = []
    size = 0
    for statement in statements:
        held.append(statement)
        size += statement.size
        if size >= _BATCH_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held
