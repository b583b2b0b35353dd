"""Events without messages: tables of `EVENT_SCHEMA` made by hand, for tests of what comes after decoding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from bridge.events import SEP, Boundary, DdlStatement, Event, Kind, Position, RowChange
from bridge.protocols import batch_decode

TOPIC = "cdc"
Change = RowChange | DdlStatement


class Literal(str):
    """A literal as it stands."""


def literal(value: object) -> str:
    """An integer, a text or None as the decoders write it."""
    if isinstance(value, Literal):
        return value
    return "NULL" if value is None else str(value) if isinstance(value, int) else "'" + str(value) + "'"


def image(row: Sequence[object]) -> str:
    """A row as an image."""
    return SEP.join(map(literal, row))


def row_change(
    ts: int,
    table: str,
    columns: Sequence[str],
    key: Sequence[str],
    *,
    before: Sequence[object] | None = None,
    after: Sequence[object] | None = None,
    schema: str = "m",
) -> RowChange:
    """A row change; which kind follows from the images."""
    kind = Kind.DELETE if after is None else Kind.INSERT if before is None else Kind.UPDATE
    return RowChange(
        kind,
        ts,
        index=0,
        schema=schema,
        table=table,
        columns=SEP.join(columns),
        key=SEP.join(key),
        before=None if before is None else image(before),
        after=None if after is None else image(after),
    )


def boundary(ts: int) -> Any:
    """A resolved event."""
    return Boundary(ts)


def schema_change(ts: int, text: str, *, schema: str = "m", table: str = "t") -> Any:
    """A DDL statement."""
    return DdlStatement(ts, 0, schema, table, text)


def events_table(placed: Iterable[tuple[int, int, Event]], topic: str = TOPIC) -> pa.Table:
    """(partition, offset, event) of one topic as one micro-batch."""
    return batch_decode.events_table((Position(topic, *where), event) for *where, event in placed)


def in_one_partition(events: Iterable[Event], start: int = 0) -> pa.Table:
    """Events at consecutive offsets of partition 0."""
    return events_table((0, offset, event) for offset, event in enumerate(events, start))
