"""What the messages of Debezium's connector tell of transactions (`provide.transaction.metadata`); source: its page,
"Transaction metadata", and genuine messages of 3.0.8.

A row, or a schema change, tells its place: in whose binlog, at which file and position, which row of the event, which
transaction, its number among the transaction's rows, and its table as an END names it; joined by newlines.  What is of
no transaction (schema changes, rows of a snapshot) has the transaction "".  The topic of transactions has a BEGIN and
an END of each, with how many rows the connector has sent, in all and by table.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from bridge.events import Event, Kind
from bridge.protocols.decoder import DecodeError, shown
from bridge.protocols.values.event_time import SNAPSHOT_SERVER, event_ts, file_and_position

PLACE_PARTS: Final = 6
_MOST_ROWS: Final = (1 << 40) - 1
_OFF: Final = (
    "the row names no transaction: provide.transaction.metadata was off in the connector when it was sent; without the"
    " topic of transactions such rows can be applied"
)


class TransactionMark(NamedTuple):
    """A BEGIN or an END.

    is_end: which of the two.  count: how many rows were sent; 0 for a BEGIN.  tables: the same by table, as
    "database.table".
    """

    id: str
    is_end: bool
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    tables: dict[str, int]

    @classmethod
    def read(cls, text: str) -> TransactionMark:
        """Reads the text of an event."""
        return cls(*orjson.loads(text))


def mark_of(payload: dict[str, Any]) -> Event:
    """Gives the event of a BEGIN or an END; raises DecodeError, or any of FAILURES."""
    status, id_, count = payload["status"], payload["id"], payload["event_count"] or 0
    if status not in ("BEGIN", "END") or type(id_) is not str or "\n" in id_ or not 0 <= count <= _MOST_ROWS:
        raise DecodeError(f"the mark of a transaction has status {shown(status)}, id {shown(id_)}, {shown(count)} rows")
    tables = {one["data_collection"]: one["event_count"] for one in payload.get("data_collections") or ()}
    if status == "END" and sum(tables.values()) != count:
        raise DecodeError(f"the END of the transaction {shown(id_)} counts {count} rows, and others by table")
    ms = payload.get("ts_ms")
    mark = TransactionMark(id_, status == "END", count, {name: rows for name, rows in tables.items() if rows})
    ts = 0 if ms is None else event_ts(ms, "ts_ms")
    return Event(Kind.TRANSACTION, ts, text=orjson.dumps([*mark]).decode(), by_time=True)


def place_of_row(payload: dict[str, Any], source: dict[str, Any], *, is_of_snapshot: bool) -> str:
    """Gives the place of a row; raises DecodeError, or any of FAILURES."""
    told = payload.get("transaction")
    if told is None:
        if not is_of_snapshot:
            raise DecodeError(_OFF)
        return _place(source, 0, "", "")
    id_, order = told["id"], told["total_order"]
    if type(id_) is not str or not id_ or "\n" in id_ or type(order) is not int or not 0 < order <= _MOST_ROWS:
        raise DecodeError(f"the row's transaction is {shown(id_)}, its number in it {shown(order)}")
    return _place(source, order, id_, f"{source['db']}.{source['table']}")


def place_of_change(source: dict[str, Any], *, is_of_snapshot: bool) -> str:
    """Gives the place of a schema change; raises DecodeError, or any of FAILURES."""
    return _place({**source, "server_id": SNAPSHOT_SERVER} if is_of_snapshot else source, 0, "", "")


def _place(source: dict[str, Any], order: int, id_: str, table: str) -> str:
    base, number = file_and_position(source["file"], source["pos"])
    server = f"{source['name']}/{base}/{source['server_id']}"
    row = source.get("row") or 0
    if "\n" in server or type(row) is not int or not 0 <= row <= _MOST_ROWS:
        raise DecodeError(f"the row is number {shown(row)} of an event of {shown(server)}")
    return f"{server}\n{number}\n{row}\n{order}\n{id_}\n{table}"
