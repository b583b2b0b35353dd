"""The columns of EVENT_SCHEMA, as chunks and stored files have them, and the records that they are read back to."""

from __future__ import annotations

import pytest

from bridge.events import (
    CLASH,
    EVENT_SCHEMA,
    Boundary,
    Code,
    DdlStatement,
    Event,
    Kind,
    LeftOut,
    Position,
    RowChange,
    TransactionPart,
    Undecodable,
)
from bridge.protocols.batch_decode import EVENT_FIELDS, events_of, events_table, placed_events, record_batch

ROW = RowChange(Kind.UPDATE, 5, 2, "s", "t", "a\0b", "a", "1\0NULL", "1\0'x'", Code.CLAIM_CHECK, True, "p")
LAID: list[tuple[Event, dict[str, object]]] = [
    (ROW, {**ROW._asdict(), "text": "claim-check"}),
    (
        DdlStatement(5, 2, "s", "t", "DROP TABLE t", True, "p"),
        {
            "commit_ts": 5,
            "index": 2,
            "schema": "s",
            "table": "t",
            "text": "DROP TABLE t",
            "by_time": True,
            "place": "p",
        },
    ),
    (Boundary(5, 2), {"commit_ts": 5, "index": 2}),
    (
        Undecodable(Code.MALFORMED, "broken", "AA==", "AQ==", "{}"),
        {"columns": "malformed", "text": "broken", "before": "AA==", "after": "AQ==", "key": "{}"},
    ),
    (LeftOut("s", "t", None, 2), {"schema": "s", "table": "t", "index": 2}),
    (LeftOut("s", "t", "why", mark=CLASH), {"schema": "s", "table": "t", "text": "why", "columns": CLASH}),
    (TransactionPart(5, "[]"), {"commit_ts": 5, "text": "[]", "by_time": True}),
    (TransactionPart(0, None, "p"), {"place": "p", "by_time": True}),
]
EMPTY = dict.fromkeys(EVENT_FIELDS.names) | {"commit_ts": 0, "index": 0, "schema": "", "table": "", "by_time": False}


@pytest.mark.parametrize(("event", "columns"), LAID, ids=[type(event).__name__ for event, _ in LAID])
def test_each_record_has_its_columns(event: Event, columns: dict[str, object]) -> None:
    """What a record has no field for is empty; read back, it is the record again."""
    laid = record_batch([event])
    columns = {name: columns.get(name, EMPTY[name]) for name in EVENT_FIELDS.names}
    assert laid.to_pylist() == [columns | {"kind": event.kind}]
    [read] = events_of(laid)
    assert (type(read), read, read.kind) == (type(event), event, event.kind)
    assert isinstance(read.kind, Kind)


def test_positions_stay_with_their_events() -> None:
    """Of all records, and of none."""
    placed = [(Position("q", 1, offset), event) for offset, (event, _) in enumerate(LAID)]
    assert list(placed_events(events_table(placed))) == placed
    assert events_table([]).schema == EVENT_SCHEMA
    assert list(placed_events(events_table([]))) == []
