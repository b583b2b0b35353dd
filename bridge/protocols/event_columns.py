"""Lays events into the columns of EVENT_SCHEMA, and reads them back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from bridge.events import COLUMNS, EVENT_SCHEMA, Event, Kind, Position, RowChange

EVENT_FIELDS: Final = pa.schema(list(EVENT_SCHEMA)[len(Position._fields) :])
"""The columns of an event alone."""
_NAMES: Final = EVENT_FIELDS.names
_EMPTY: Final = (None, 0, 0, "", "", None, None, None, None, None, False, None)
_PLACES = {one: itemgetter(*((*its, *_NAMES).index(name) for name in _NAMES)) for one, its in COLUMNS.items()}
"""Where the columns of EVENT_FIELDS are in an event with _EMPTY behind it."""
_RECORDS: Final = {record._field_defaults.get("kind"): record for record in COLUMNS}


def laid(event: Event) -> tuple[Any, ...]:
    """Gives an event as the columns of EVENT_FIELDS."""
    columns: tuple[Any, ...] = _PLACES[type(event)](event + _EMPTY)
    return columns


def record_batch(events: Iterable[Event]) -> pa.RecordBatch:
    """Makes columns of events (EVENT_FIELDS); those of a row change are its fields."""
    rows = [event if type(event) is RowChange else laid(event) for event in events]
    return pa.RecordBatch.from_arrays(_arrays(rows, EVENT_FIELDS), schema=EVENT_FIELDS)


def events_table(placed: Iterable[tuple[Position, Event]]) -> pa.Table:
    """Makes a table of events with the positions of their messages (EVENT_SCHEMA)."""
    rows = [(*position, *laid(event)) for position, event in placed]
    return pa.Table.from_arrays(_arrays(rows, EVENT_SCHEMA), schema=EVENT_SCHEMA)


def _arrays(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> list[pa.Array]:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]


def events_of(columns: pa.Table | pa.RecordBatch) -> Iterator[Event]:
    """Reads events (EVENT_FIELDS, and maybe more)."""
    kinds, *others = (columns[name].to_pylist() for name in _NAMES)
    for kind, *fields in zip(map(Kind, kinds), *others, strict=True):
        record = _RECORDS.get(kind, RowChange)
        row = dict(zip(_NAMES, (kind, *fields), strict=True))
        yield record(*(row[name] for name in COLUMNS[record]))


def placed_events(events: pa.Table) -> Iterator[tuple[Position, Event]]:
    """Reads events with the positions of their messages (EVENT_SCHEMA)."""
    return zip(map(Position, *(events[name].to_pylist() for name in Position._fields)), events_of(events), strict=True)
