"""Divides row changes by the keys of their rows, so that all changes of a key come together."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import EVENT_SCHEMA, Kind
from bridge.model import Table, TableName
from bridge.rows.grouping import Longs, distinct
from bridge.rows.keys.key_steps import RowShape
from bridge.rows.keys.key_sums import key_sums
from bridge.rows.literal_offsets import Cells, to_numpy, whole
from bridge.rows.net_changes import choose_key
from bridge.rows.order_and_slices import by_table
from bridge.rows.types.resolve_types import typed
from bridge.rows.types.type_check import CheckedTypes


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
    for name, mine in by_table(changes).items():
        yield from _keyed(catalog[name], typed(catalog[name], mine, checked))


def _keyed(table: Table, changes: pa.Table) -> Iterator[KeyedRows]:
    shapes, shape_of = distinct(changes, ("columns", "key"))
    for number, (columns, handle) in enumerate(shapes):
        mine = changes if len(shapes) == 1 else changes.filter(pa.array(shape_of == number))
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


def shards_of(table: Table, texts: pa.Array, count: int) -> Longs:
    """Gives for each text a number below `count`, which is the same in every process."""
    of_table = zlib.crc32("\0".join(table.name).encode())
    return key_sums(texts, of_table) % count


def divided(rows: pa.Table, shard_of: Longs) -> Iterator[tuple[int, pa.Table]]:
    """Divides rows by the numbers of their shards; those of a shard stay in order."""
    if not rows.num_rows:
        return
    order = np.argsort(shard_of, kind="stable")
    grouped, numbers = rows.take(pa.array(order)), shard_of[order]
    starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
        yield int(numbers[start]), grouped.slice(start, end - start)
