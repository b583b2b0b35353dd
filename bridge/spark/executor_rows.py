"""Folds and renders row changes on Spark's executors, for backlogs and transactions larger than the driver's memory.

It calls the same pure functions of `rows` as the driver does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import Final

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
from bridge.rows.keys.key_spellings import KnownSpellings, is_exact, is_nearly_exact, respelled, signatures, spellings
from bridge.rows.literal_offsets import whole
from bridge.rows.net_changes import choose_key, fold
from bridge.rows.order_and_slices import (
    OPERATIONS,
    ROW_ORDER,
    DriverRows,
    RowStore,
    TableRows,
    TableStore,
    WindowRows,
    by_table,
)
from bridge.rows.sql.render import render
from bridge.rows.sql.statement import Rendering, Stage, Statement
from bridge.rows.types.resolve_types import typed
from bridge.rows.types.type_check import CheckedTypes
from bridge.spark.frame_store import ROW_BYTES, TS_END, Batches, FrameStore, checkpointed, measure_intervals

_RENDERED_TOGETHER: Final = Amount(50_000, 64 << 20)
"""About how many row changes one task renders.  Their statements pass through the JVM's memory in one piece."""
_BATCH_BYTES: Final = 8 << 20
"""The bytes of statements in one batch that a worker sends to the JVM."""
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
    """Makes windows of row changes: in the driver's memory if they are there, otherwise on the executors.

    room: how much the driver may hold for one transaction.
    """

    def __init__(self, spark: SparkSession, room: Amount) -> None:
        self._spark, self._room = spark, room

    def rows_of(self, stores: list[RowStore], low: int, high: int) -> WindowRows:
        """Returns the row changes with low <= commit_ts < high, from stores of both kinds."""
        tables = [store.due(low, high) for store in stores if isinstance(store, TableStore)]
        frames = [store for store in stores if isinstance(store, FrameStore) and store.overlaps(low, high)]
        if not frames:
            return DriverRows.merged(tables)
        held = pa.concat_tables([EVENT_SCHEMA.empty_table(), *tables])
        return ExecutorRows([*FrameStore.all_of(self._spark, held), *frames], self._room, low, high)


class ExecutorRows:
    """A window of row changes on the executors: those of the stores with low <= commit_ts < high.

    Stores without changes of the window are not read, so that reading a window in pieces costs no more than at once.
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
        """How much the window holds; one Spark job, run once."""
        [(rows, size)] = self._frame.agg(F.count("*"), F.expr(f"ifnull(sum({ROW_BYTES}), 0)")).collect()
        return Amount(rows, size)

    @property
    def count(self) -> int:
        """The number of row changes."""
        return self._amount.rows

    def marks(self, bounds: Sequence[int]) -> Sequence[int]:
        """Returns the lowest commit_ts of each interval between `bounds` that holds row changes."""
        return [first for first, _ in self._intervals(bounds)]

    def _intervals(self, bounds: Sequence[int]) -> list[tuple[int, Amount]]:
        """Returns lowest commit_ts and amount of each interval between `bounds` that holds row changes."""
        sizes = self._frame.select("commit_ts", F.expr(ROW_BYTES))
        parts = sizes.mapInArrow(measure_intervals(bounds), "interval int, first long, rows long, bytes long")
        found = parts.groupBy("interval").agg(F.min("first"), F.sum("rows"), F.sum("bytes")).collect()
        return sorted((first, Amount(rows, size)) for _, first, rows, size in found)

    def between(self, low: int, high: int) -> ExecutorRows:
        """Returns the part of the window with low <= commit_ts < high."""
        return ExecutorRows(self._stores, self._room, max(low, self._low), min(high, self._high))

    def pieces(self, most: Amount) -> Iterator[tuple[int | None, WindowRows]]:
        """Yields the window in pieces of about `most`, each with the commit_ts where it ends (None: with the window).

        The window is cut near the quantiles of commit_ts; a piece that is still too large is cut again.  A piece that
        fits into the driver's memory is brought there.
        """
        cuts = self._planned_pieces(most) if self.count else []
        ends = [*(start for start, _ in cuts[1:]), None]
        for (start, amount), end in zip(cuts, ends, strict=False):
            piece = self.between(start, end if end is not None else TS_END)
            piece._amount = amount
            if len(cuts) > 1 and amount.exceeds(_with_tolerance(most)):
                for smaller_end, smaller in piece.pieces(most):
                    yield end if smaller_end is None else smaller_end, smaller
            else:
                yield end, piece if amount.exceeds(self._room) else piece.on_driver()

    def _planned_pieces(self, most: Amount) -> list[tuple[int, Amount]]:
        """Returns first commit_ts and amount of pieces of about `most`; the first piece begins with the window."""
        if not self._amount.exceeds(_with_tolerance(most)):
            return [(self._low, self._amount)]
        wanted = self._amount.pieces(most)
        quantiles = [i / wanted for i in range(1, wanted)]
        # Exact quantiles would need all commit_ts in the JVM's memory; an error of a tenth of a piece does no harm.
        # The result is doubles, which cannot hold a TSO exactly: the window is cut at the next commit_ts that it holds.
        near = [int(cut) for cut in self._frame.approxQuantile("commit_ts", quantiles, 0.1 / wanted)]
        (_, first), *others = self._intervals(near)
        return [(self._low, first), *others]

    def on_driver(self) -> DriverRows:
        """Brings the row changes into the driver's memory."""
        return DriverRows.of([self._frame.toArrow()])

    def tables(self) -> dict[TableName, TableRows]:
        """Returns the changed tables."""
        counts = (F.count_if(F.col("kind") == int(kind)) for kind in OPERATIONS)
        found = self._frame.groupBy("schema", "table").agg(F.min("commit_ts"), *counts).collect()
        return {TableName(schema, table): TableRows(*counted) for schema, table, *counted in found}

    def statements(self, catalog: Mapping[TableName, Table], rendering: Rendering) -> Iterable[Statement]:
        """Folds and renders on the executors; yields the statements, stage by stage.

        Raises RefusedRowsError for a row that cannot be written.  An error of a Spark task arrives without its table
        and code, so in this case the rows are brought to the driver, which renders them again and raises the whole
        error.
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
        same = self._equal_keys(known, rendering)
        return checkpointed(
            self._frame.mapInArrow(
                _add_row_keys(known, same, rendering.checked_types), from_arrow_schema(_KEYED_SCHEMA)
            )
            .repartition(self._amount.pieces(_RENDERED_TOGETHER) or 1, "schema", "table", "row_key")
            .sortWithinPartitions(*ROW_ORDER)
            .mapInArrow(_render_partition(known, rendering, same), from_arrow_schema(_STATEMENT_SCHEMA))
        )

    def _equal_keys(self, catalog: Mapping[TableName, Table], rendering: Rendering) -> KnownSpellings:
        """Asks the target which keys it compares as equal, in tables where a row may be deleted under another spelling.

        Keys that have to be compared pass through the driver's memory: texts that differ only in case and blanks, and
        all keys of a table some of whose keys are not ASCII.  Keys with _bin collations need no comparison, unless
        rows that are gone upstream may stay.  As long as messages hold old rows, at most one of several spellings of a
        key is written, after the others were deleted.
        """
        inexact = [
            name
            for name, table in catalog.items()
            if not all((is_exact if table.keeps_gone else is_nearly_exact)(table, key) for key in table.keys)
        ]
        if not inexact:
            return KnownSpellings({})
        kind, before, is_inexact = F.col("kind"), F.col("before"), reduce(Column.__or__, map(_is_of, inexact))
        stays = reduce(Column.__or__, (_is_of(name) for name in inexact if catalog[name].keeps_gone), F.lit(False))
        goes = F.bool_or((kind == int(Kind.DELETE)) | ((kind == int(Kind.UPDATE)) & before.isNull())) | stays
        keys = (
            self._frame.where(is_inexact)
            .mapInArrow(
                _add_row_keys(catalog, KnownSpellings({}), rendering.checked_types), from_arrow_schema(_KEYED_SCHEMA)
            )
            .where("key_names != ''")
            .groupBy("schema", "table", "key_names", "row_key")
            .agg(goes.alias("goes"))
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
        """Brings the row changes of one table to the driver."""
        mine = self._frame.where((F.col("schema") == name.schema) & (F.col("table") == name.table))
        return mine.orderBy(*ROW_ORDER).toArrow()

    def with_changes(self, name: TableName, changes: pa.Table) -> ExecutorRows:
        """Returns the window with the row changes of one table replaced."""
        is_other = (F.col("schema") != name.schema) | (F.col("table") != name.table)
        given = FrameStore.of(self._frame.sparkSession, changes)
        others = [store.where(is_other) for store in self._stores]
        return ExecutorRows([*others, given], self._room, self._low, self._high)


def _with_tolerance(most: Amount) -> Amount:
    return Amount(most.rows + most.rows // 2, most.bytes + most.bytes // 2)


def _is_of(name: TableName) -> Column:
    return (F.col("schema") == name.schema) & (F.col("table") == name.table)


def _add_signatures(catalog: Mapping[TableName, Table]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Makes a function for mapInArrow that adds the signatures of keys (`key_spellings.signatures`)."""

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
    """Makes a function for mapInArrow that adds to each change its row's key: the columns' names and the literals.

    Of keys that the target compares as equal, one spelling stands for all.  Without a key, both are "".  An update that
    moves its row to another key becomes two changes: a delete at the old key, and an insert at the new one.
    """

    def add(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name, changes in by_table(pa.Table.from_batches([batch])).items():
                yield from _with_row_keys(catalog[name], typed(catalog[name], changes, checked), same)

    return add


def _with_row_keys(table: Table, changes: pa.Table, same: KnownSpellings) -> Iterator[pa.RecordBatch]:
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
        stays, moves = mine.filter(pc.invert(moved)), mine.filter(moved)
        old, new, kept = (respelled(keys, same.of(table)) for keys in (old, new, pc.coalesce(new, old)))
        yield from _with_key(stays, key, kept.filter(pc.invert(moved)))
        yield from _with_key(_as_kind(moves, Kind.DELETE), key, old.filter(moved))
        yield from _with_key(_as_kind(moves, Kind.INSERT), key, new.filter(moved))


def _text(changes: pa.Table, image: str) -> pa.Array:
    return whole(changes[image])


def _as_kind(changes: pa.Table, kind: Kind) -> pa.Table:
    """Makes deletes, or inserts, out of updates."""
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
    """Makes a function for mapInArrow that turns the changes of one Spark partition into statements.

    A partition holds all changes of its keys.  No statement is a LOAD DATA: at this size the executors are the limit,
    not the server.  One session runs the statements of all partitions, stage by stage, so each partition gives its
    scratch tables names of its own.
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
