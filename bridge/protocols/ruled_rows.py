"""Applies the rules for row changes to decoded events, table by table."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bridge.events import Event, Kind
from bridge.filters.row_rules import RowRules
from bridge.model import TableName


def ruled(events: pa.Table, rules: RowRules) -> pa.Table:
    """Applies the rules to events (EVENT_SCHEMA, in any order)."""
    names, numbers = _tables(events)
    ignored = [rules.ignored_kinds(*name) for name in names]
    if any(ignored):
        kinds = events["kind"].to_numpy()
        kept = np.ones(len(kinds), np.bool_)
        for number, some in enumerate(ignored):
            kept &= ~((numbers == number) & np.isin(kinds, [int(kind) for kind in some]))
        events = events.filter(pa.array(kept))
    return events


def ruled_event(event: Event, rules: RowRules) -> Event | None:
    """Applies the rules to one event; None when it is left out."""
    return None if event.kind in rules.ignored_kinds(event.schema, event.table) else event


def _tables(events: pa.Table) -> tuple[list[TableName], npt.NDArray[np.int64]]:
    """Gives the tables that events name, and for each event the number of its table.  Events that are no row changes
    are of no table, number -1."""
    schemas, tables = (events[name].combine_chunks().dictionary_encode() for name in ("schema", "table"))
    width = max(1, len(tables.dictionary))
    codes = schemas.indices.to_numpy().astype(np.int64) * width + tables.indices.to_numpy()
    codes[events["kind"].to_numpy() > int(Kind.DELETE)] = -1
    found, numbers = np.unique(codes, return_inverse=True)
    other = int(len(found) > 0 and found[0] < 0)
    names = [
        TableName(schemas.dictionary[code // width].as_py(), tables.dictionary[code % width].as_py())
        for code in found[other:].tolist()
    ]
    return names, numbers.astype(np.int64) - other
