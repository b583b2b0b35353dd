"""Finds the keys of a window that the target compares as equal although they are spelled differently.

Keys that have to be compared pass through the driver's memory: texts that differ only in case and blanks, and all keys
of a table some of whose keys are not ASCII.  Keys with _bin collations need no comparison, unless rows that are gone
upstream may stay.  As long as messages hold old rows, at most one of several spellings of a key is written, after the
others were deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.errors import BridgeError
from bridge.events import SEP, Kind
from bridge.model import Table, TableName
from bridge.rows.arrow_images import TEXT
from bridge.rows.keys.key_spellings import KnownSpellings, is_exact, is_nearly_exact, signatures, spellings
from bridge.rows.order_and_slices import by_table
from bridge.rows.sql.statement import Rendering
from bridge.rows.types.type_check import CheckedTypes
from bridge.spark.event_transfer import export_events, opened
from bridge.spark.kept_rows.chunks import Chunk
from bridge.spark.kept_rows.places import Parts
from bridge.spark.kept_rows.row_keys import KeyedRows, divided, keyed, shards_of

_SCHEMA: Final = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("schema", "table", "key_names")),
        *(pa.field(name, TEXT) for name in ("row_key", "signature")),
        pa.field("goes", pa.bool_()),
    ]
)
"""Keys, each once.  signature: see `key_spellings.signatures`; goes: whether its row goes away, or may have gone."""


class _Flags(NamedTuple):
    """Of the keys of a table: whether any goes, and whether any may equal any other."""

    goes: bool
    is_odd: bool


@dataclass(frozen=True)
class _KeySearch:
    """What tasks do.  catalog: the tables whose keys have to be compared."""

    catalog: Mapping[TableName, Table]
    checked: CheckedTypes
    shards: int
    folder: str | None

    def keys(self, chunks: Iterator[Chunk]) -> Iterator[tuple[int, bytes]]:
        """Gives the keys of chunks, divided by signatures.  A chunk that cannot be read is left to those who render
        it, who say why."""
        for chunk in chunks:
            try:
                found = [rows for rows in self._keyed(chunk) if rows.key]
            except BridgeError:
                continue
            for rows in found:
                keys = _distinct([_keys_of(rows)])
                numbers = shards_of(rows.table, keys["signature"].combine_chunks(), self.shards)
                for number, some in divided(keys, numbers):
                    yield number, export_events(some, self.folder)

    def _keyed(self, chunk: Chunk) -> Iterator[KeyedRows]:
        for name, changes in by_table(chunk.rows()).items():
            if name in self.catalog:
                yield from keyed(self.catalog, changes, KnownSpellings({}), self.checked)


def _keys_of(rows: KeyedRows) -> pa.Table:
    kinds, before = rows.changes["kind"].to_numpy(), rows.changes["before"]
    lacks_old = (kinds == int(Kind.UPDATE)) & before.is_null().to_numpy()
    goes = (kinds == int(Kind.DELETE)) | lacks_old | rows.table.keeps_gone
    names = [pa.repeat(name, len(goes)) for name in (*rows.table.name, SEP.join(rows.key))]
    found = [rows.keys, signatures(rows.table, rows.key, rows.keys)]
    return pa.Table.from_arrays([*names, *found, pa.array(goes)], schema=_SCHEMA)


def _distinct(some: Iterable[pa.Table]) -> pa.Table:
    keys = pa.concat_tables([_SCHEMA.empty_table(), *some])
    named = [name for name in _SCHEMA.names if name != "goes"]
    return keys.group_by(named).aggregate([("goes", "any")]).rename_columns(_SCHEMA.names)


def _merged(shard: Iterable[tuple[int, bytes]]) -> Iterator[pa.Table]:
    values = [value for _, value in shard]
    if values:
        yield _distinct(pa.ipc.open_stream(opened(value)).read_all() for value in values)


def _flags(keys: pa.Table) -> dict[TableName, _Flags]:
    return {
        name: _Flags(bool(pc.any(mine["goes"]).as_py()), bool(pc.any(pc.equal(mine["signature"], "")).as_py()))
        for name, mine in by_table(keys).items()
    }


def _suspects(keys: pa.Table, flags: Mapping[TableName, _Flags]) -> list[tuple[TableName, str, list[str], list[bool]]]:
    """Gives the keys of each table that the target has to compare."""
    found = []
    for name, mine in by_table(keys).items():
        if not flags[name].goes:
            continue
        if not flags[name].is_odd:
            codes = mine["signature"].combine_chunks().dictionary_encode().indices.to_numpy()
            goes = np.bincount(codes, weights=mine["goes"].to_numpy())
            mine = mine.filter(pa.array(((np.bincount(codes) > 1) & (goes > 0))[codes]))
        if mine.num_rows:
            key_names = mine["key_names"][0].as_py()
            found.append((name, key_names, mine["row_key"].to_pylist(), mine["goes"].to_pylist()))
    return found


def equal_keys(
    parts: Parts, catalog: Mapping[TableName, Table], rendering: Rendering, shards: int, folder: str | None
) -> KnownSpellings:
    """Asks the target which keys it compares as equal, in tables where a row may be deleted under another spelling."""
    inexact = {
        name: table
        for name, table in catalog.items()
        if not all((is_exact if table.keeps_gone else is_nearly_exact)(table, key) for key in table.keys)
    }
    if not inexact:
        return KnownSpellings({})
    search = _KeySearch(inexact, rendering.checked_types, shards, folder)
    keys = parts.spread(search.keys).partitionBy(shards, int).mapPartitions(_merged)
    flags: dict[TableName, _Flags] = {}
    for name, one in (item for found in keys.map(_flags).collect() for item in found.items()):
        known = flags.get(name, _Flags(goes=False, is_odd=False))
        flags[name] = _Flags(known.goes or one.goes, known.is_odd or one.is_odd)
    literals: dict[TableName, tuple[str, list[str], list[bool]]] = {}
    for name, key_names, some, goes in keys.flatMap(lambda one: _suspects(one, flags)).collect():
        _, all_literals, all_goes = literals.setdefault(name, (key_names, [], []))
        all_literals += some
        all_goes += goes
    return KnownSpellings(
        {
            name: spellings(
                inexact[name],
                tuple(key_names.split(SEP)),
                pa.array(some, TEXT),
                np.array(goes, np.bool_),
                rendering.same_keys,
            )
            for name, (key_names, some, goes) in literals.items()
        }
    )
