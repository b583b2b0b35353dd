"""Divides the row changes of a window into shards by the keys of their rows, and folds, renders and writes each.

An error of the bridge comes to the driver as it is, in the place of a shard: as the error of a Spark task it would
arrive without its table and code.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import RDD

from bridge.errors import BridgeError
from bridge.events import EVENT_SCHEMA, Kind
from bridge.model import Table, TableName
from bridge.rows.amount import Amount
from bridge.rows.grouping import Longs, distinct
from bridge.rows.keys.key_steps import RowShape, key_sums
from bridge.rows.literal_offsets import Cells, to_numpy, whole
from bridge.rows.net_changes import OrderedChanges, choose_key, fold
from bridge.rows.order_and_slices import RowStatements, in_order
from bridge.rows.sql.render import render
from bridge.rows.sql.statement import NotWritten, NotWrittenError, Rendering, Stage, Statement, WritePart
from bridge.rows.types.resolve_types import typed
from bridge.rows.types.type_check import CheckedTypes
from bridge.spark.event_transfer import export_events, read_events

_ERROR: Final = b"E"
"""The first byte of a pickled error in the place of events."""
Shard = tuple[int, bytes]
"""The number of a shard, and some of its events, or an error."""
Spread = Callable[[Callable[[Iterator[pa.Table]], Iterable[Shard]]], RDD[Shard]]
"""Has tasks call the function with chunks of row changes, in order each, some for each task."""


class KeyedRows(NamedTuple):
    """Row changes of one table with a key (EVENT_SCHEMA), and the key of each one's row, literals joined by SEP."""

    table: Table
    changes: pa.Table
    keys: pa.Array


def keyed(catalog: Mapping[TableName, Table], changes: pa.Table, checked: CheckedTypes) -> Iterator[KeyedRows]:
    """Finds the keys of row changes.

    An update that moves its row to another key becomes two changes: a delete at the old key, and an insert at the new
    one.
    """
    changes = typed(catalog, changes, checked)
    shapes, shape_of = distinct(changes, ("schema", "table", "columns", "key"))
    for number, mine in divided(changes, shape_of):
        schema, name, columns, handle = shapes[number]
        table = catalog[TableName(schema, name)]
        shape = RowShape.of(table, columns, choose_key(table, columns, handle))
        old, new = (_keys(mine, image, shape) for image in ("before", "after"))
        moves = to_numpy(pc.fill_null(pc.not_equal(old, new), False))
        if not moves.any():
            yield KeyedRows(table, mine, pc.coalesce(new, old))
            continue
        stays, moved = pa.array(~moves), pa.array(moves)
        gone, come = (_as_kind(mine.filter(moved), kind) for kind in (Kind.DELETE, Kind.INSERT))
        yield KeyedRows(table, mine.filter(stays), pc.coalesce(new, old).filter(stays))
        yield KeyedRows(table, gone, old.filter(moved))
        yield KeyedRows(table, come, new.filter(moved))


def _keys(changes: pa.Table, image: str, shape: RowShape) -> pa.Array:
    cells = Cells(whole(changes[image]), np.zeros(changes.num_rows, np.int64), [len(shape.names)])
    return cells.joined([shape.at(shape.key)])


def _as_kind(changes: pa.Table, kind: Kind) -> pa.Table:
    """Makes deletes, or inserts, out of updates."""
    dropped = "after" if kind is Kind.DELETE else "before"
    nothing = pa.nulls(changes.num_rows, pa.string())
    changes = changes.set_column(EVENT_SCHEMA.get_field_index(dropped), EVENT_SCHEMA.field(dropped), nothing)
    kinds = pa.array(np.full(changes.num_rows, int(kind), np.int8))
    return changes.set_column(EVENT_SCHEMA.get_field_index("kind"), EVENT_SCHEMA.field("kind"), kinds)


def divided(rows: pa.Table, shard_of: Longs) -> Iterator[tuple[int, pa.Table]]:
    """Divides rows by the numbers of their shards; those of a shard stay in order."""
    if (shard_of[1:] != shard_of[:-1]).any():
        order = np.argsort(shard_of, kind="stable")
        rows, shard_of = rows.take(pa.array(order)), shard_of[order]
    bounds = [0, *(np.flatnonzero(shard_of[1:] != shard_of[:-1]) + 1).tolist(), rows.num_rows]
    for start, end in pairwise(bounds if rows.num_rows else ()):
        yield int(shard_of[start]), rows.slice(start, end - start)


def check_written(failed: Collection[NotWritten]) -> None:
    """Raises NotWrittenError with one of the reasons why shards were not written, if there are any."""
    if failed:
        raise NotWrittenError(min(failed, key=lambda one: one.waits))


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
                found = list(keyed(self.catalog, chunk, self.rendering.checked_types))
            except BridgeError as error:
                yield from ((number, _ERROR + pickle.dumps(error)) for number in range(self.count))
                return
            rows = pa.concat_tables([EVENT_SCHEMA.empty_table(), *(some.changes for some in found)])
            tables = [zlib.crc32("\0".join(some.table.name).encode()) for some in found]  # alike in every process
            numbers = [key_sums(some.keys, one) % self.count for some, one in zip(found, tables, strict=True)]
            for number, some in divided(rows, np.concatenate([np.empty(0, np.int64), *numbers])):
                yield number, export_events(some, self.folder)

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

    def written(self, spread: Spread, write: WritePart, connections: int) -> None:
        """Has tasks, as many as connections, divide and write the row changes: one transaction for each shard.  Raises
        NotWrittenError when some are not written."""
        shards = spread(self.divide).partitionBy(min(connections, self.count), int)
        check_written(shards.mapPartitions(partial(self.write, write)).collect())

    def write(self, write: WritePart, shards: Iterable[Shard]) -> Iterator[NotWritten]:
        """Writes shards, each in one transaction; gives why one is not written, and ends then."""
        for _, some in groupby(sorted(shards, key=itemgetter(0)), key=itemgetter(0)):
            try:
                statements = list(self.statements(some))
            except BridgeError as error:
                yield NotWritten(error.what, error.fix)
                return
            once = any(one.is_once for one in statements)
            found = NotWritten("rows may be written only once") if once else write(statements)
            if found is not None:
                yield found
                return
