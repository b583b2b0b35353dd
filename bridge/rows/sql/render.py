"""Turns net changes into SQL.  Pure: it makes the same statements on an executor and on the driver.

The order within a target transaction:

1. deleted keys, and keys whose other unique values change, are deleted: so a write can conflict only on its own key;
2. rows are written.

Changes that go by transaction are turned into SQL by `in_order`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP
from bridge.model import Table, quote_name
from bridge.rows.key_spellings import is_exact
from bridge.rows.key_steps import other_uniques
from bridge.rows.literal_offsets import TEXT, joined, parts_of, runs
from bridge.rows.net_changes import KeyedChanges, KeylessChanges, NetChanges, OrderedChanges, WrittenRows
from bridge.rows.sql.in_order import ordered
from bridge.rows.sql.statement import (
    MIN_BYTES,
    Rendering,
    Stage,
    Statement,
    WrittenColumns,
    binary_match,
    cut_to_rows,
    guards,
    key_conditions,
    keys_of,
    load_of,
    load_statement,
    may_load,
    readable,
)


def render(net: NetChanges, rendering: Rendering) -> Iterator[Statement]:
    """Gives the statements of one table's net changes in the order of stages.  Each is made when it is asked for.

    Raises ApplyError when the target lacks a column of the messages.
    """
    if isinstance(net, OrderedChanges):
        return ordered(net, rendering)
    if isinstance(net, KeylessChanges):
        return _render_keyless(net)
    return (statement._replace(is_once=False) for statement in _render_keyed(net, rendering))


def _render_keyed(net: KeyedChanges, rendering: Rendering) -> Iterator[Statement]:
    table = net.table
    freed_keys = (keys_of(rows.columns, rows.freed, net.key) for rows in net.written if len(rows.freed))
    target = quote_name(*table.name)
    for sql in guards(table, net.key, [key.split(SEP) for key in net.expected.to_pylist()]):
        yield Statement(Stage.DELETE, table.name, sql.encode(), expect=0)
    for condition in key_conditions(table, net.key, pa.concat_arrays([net.absent, *freed_keys])):
        yield Statement(Stage.DELETE, table.name, f"DELETE FROM {target} WHERE {condition}".encode())
    for rows in net.written:
        yield from _write(net, rendering, rows)


def _write(net: KeyedChanges, rendering: Rendering, rows: WrittenRows) -> Iterator[Statement]:
    """Writes rows of the same columns: first those whose keys are free, then the others, by a load where it may."""
    table, into, images = net.table, WrittenColumns.of(net.table, rows.columns), rows.images
    yield from _multi_row(table, into, rows.freed, "")
    takes_loads = rendering.load_bytes and table.name in rendering.loadable
    if takes_loads and images.nbytes >= MIN_BYTES and may_load(table, net.key, into.names):
        images = yield from _loaded(table, into, into.with_zeros(images), rendering.load_bytes)
    changed = into.names
    if not other_uniques(table, net.key) and is_exact(table, net.key):
        changed = tuple(name for name in into.names if name.lower() not in net.key) or into.names[:1]
    updates = ",".join(f"{quote_name(name)}=VALUES({quote_name(name)})" for name in changed)
    yield from _multi_row(table, into, images, f" ON DUPLICATE KEY UPDATE {updates}")


def _multi_row(table: Table, into: WrittenColumns, images: pa.Array, suffix: str) -> Iterator[Statement]:
    if len(images) == 0:
        return
    names = ",".join(quote_name(name) for name in into.names)
    head, tail = f"INSERT INTO {quote_name(*table.name)} ({names}) VALUES (".encode(), f"){suffix}".encode()
    images = into.with_zeros(images if into.positions is None else joined(parts_of(images, into.positions)))
    for body in cut_to_rows(images):
        yield Statement(Stage.WRITE, table.name, b"".join((head, body, tail)))


def _loaded(
    table: Table, into: WrittenColumns, images: pa.Array, load_bytes: int
) -> Generator[Statement, None, pa.Array]:
    """Gives loads of the images, and returns the images that LOAD DATA would not read as INSERT does."""
    sql = load_statement(table, into.names)
    refused = []
    for rows in runs(images, load_bytes):
        fits_load = pa.array(readable(rows, into.columns))
        if fits_load.false_count:
            refused.append(rows.filter(pc.invert(fits_load)))
            rows = rows.filter(fits_load)
        if len(rows):
            yield Statement(Stage.WRITE, table.name, sql, load=load_of(table, rows))
    return pa.concat_arrays(refused) if refused else images.slice(0, 0)


def _render_keyless(net: KeylessChanges) -> Iterator[Statement]:
    table = net.table
    coming: dict[str, list[str]] = {}
    for image, copies in net.copies.items():
        if copies < 0:
            where = binary_match(WrittenColumns.of(table, image.columns), image.literals.split(SEP))
            sql = f"DELETE FROM {quote_name(*table.name)} WHERE {where} LIMIT {-copies}"
            yield Statement(Stage.DELETE, table.name, sql.encode(), expect=-copies)
        coming.setdefault(image.columns, []).extend([image.literals] * copies)
    for columns, images in coming.items():
        yield from _multi_row(table, WrittenColumns.of(table, columns), pa.array(images, TEXT), "")
