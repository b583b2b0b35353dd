"""What the messages of Debezium's connector tell of transactions (`provide.transaction.metadata`); source: its page,
"Transaction metadata", and genuine messages of 3.0.8.

A row, or a schema change, tells its place: its table as an END names it, in whose binlog it is, at which file and
position, which row of the event it is, its number among the transaction's rows, and which transaction; joined by
newlines.  Numbers have NUMBER_DIGITS digits, as in all places (`protocols.values.event_time`), that at the end of a
transaction's id too.  What is of no transaction has NO_TRANSACTION there: rows of a snapshot, and schema changes
without a GTID.  The topic of transactions has a BEGIN and an END of each, with how many rows the connector has sent, in
all and by table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import starmap
from typing import Any, Final, NamedTuple

import orjson

from bridge.protocols.decoder import DecodeError, excerpt
from bridge.protocols.values.event_time import (
    LAST_POSITION,
    NUMBER_DIGITS,
    SNAPSHOT_SERVER,
    event_ts,
    file_and_position,
    text_before_number,
)

PLACE_PARTS: Final = 6
NO_TRANSACTION: Final = "0" * NUMBER_DIGITS
_MOST_ROWS: Final = (1 << 40) - 1
_MOST_NUMBER: Final = (1 << 63) - 1
_BY_FILE: Final = re.compile(r"file=(.+)\.([0-9]{1,10}),pos=(0|[1-9][0-9]{0,18})")
IN_FILE: Final = ",pos="
"""What stands between the file and the position of an id."""
_OFF: Final = (
    "the row names no transaction: it is of an XA transaction or a blocking snapshot, or provide.transaction.metadata"
    " was off; without the topic of transactions such rows can be applied, in a pipeline of another --name"
)


class TransactionMark(NamedTuple):
    """A BEGIN or an END.

    is_end: which of the two.  count: how many rows were sent; 0 for a BEGIN.  tables: the same by "database.table".
    """

    id: str
    is_end: bool
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    tables: dict[str, int]

    @classmethod
    def read(cls, texts: Iterable[str]) -> Iterator[TransactionMark]:
        """Reads the texts of events, together."""
        return starmap(cls, orjson.loads(f"[{','.join(texts)}]"))


def time_and_text(payload: dict[str, Any]) -> tuple[int, str]:
    """Gives commit_ts and text (`TransactionMark.read`) of a BEGIN's or END's event; raises DecodeError or FAILURES."""
    status, id_, count = payload["status"], payload["id"], payload["event_count"] or 0
    if status not in ("BEGIN", "END") or type(id_) is not str or "\n" in id_ or not 0 <= count <= _MOST_ROWS:
        raise DecodeError(
            f"the mark of a transaction has status {excerpt(status)}, id {excerpt(id_)}, {excerpt(count)} rows"
        )
    id_, ms = id_of(id_), payload.get("ts_ms")
    counts = {entry["data_collection"]: entry["event_count"] for entry in payload.get("data_collections") or ()}
    if status == "END" and sum(counts.values()) != count:
        raise DecodeError(f"the END of the transaction {excerpt(id_)} counts {count} rows, and others by table")
    tables = {name: rows for name, rows in counts.items() if rows}
    text = orjson.dumps([id_, status == "END", count, tables]).decode()
    return 0 if ms is None else event_ts(ms, "ts_ms"), text


def place_of_row(payload: dict[str, Any], source: dict[str, Any], *, is_of_snapshot: bool) -> str:
    """Gives the place of a row; raises DecodeError, or any of FAILURES."""
    transaction = payload.get("transaction")
    if transaction is None:
        if not is_of_snapshot:
            raise DecodeError(_OFF)
        return _place(source, 0, NO_TRANSACTION, f"{source['db']}.{source['table']}")
    id_, order = transaction["id"], transaction["total_order"]
    if type(id_) is not str or not id_ or "\n" in id_ or type(order) is not int or order < 0:
        raise DecodeError(f"the row's transaction is {excerpt(id_)}, its number in it {excerpt(order)}")
    return _place(source, min(order, LAST_POSITION), id_of(id_), f"{source['db']}.{source['table']}")


def place_of_change(source: dict[str, Any], *, is_of_snapshot: bool) -> str:
    """Gives the place of a schema change; raises DecodeError, or any of FAILURES."""
    if is_of_snapshot:
        return _place({**source, "server_id": SNAPSHOT_SERVER}, 0, NO_TRANSACTION, "")
    gtid = source.get("gtid")
    has_id = type(gtid) is str and text_before_number(gtid) is not None
    return _place(source, 0, id_of(gtid) if has_id else NO_TRANSACTION, "")


def head_of_place(table: str, source: Mapping[str, Any], base: str) -> str:
    """Gives what stands before the numbers of a place; base: of the file of the binlog.  Raises DecodeError."""
    server = f"{source['name']}/{base}/{source['server_id']}"
    if "\n" in server or "\n" in table:
        raise DecodeError(f"there is a newline in the name of a table or a server: {excerpt(table)}, {excerpt(server)}")
    return f"{table}\n{server}\n"


def _place(source: dict[str, Any], order: int, id_: str, table: str) -> str:
    base, number = file_and_position(source["file"], min(source["pos"], LAST_POSITION))
    row = source.get("row") or 0
    if type(row) is not int or row < 0:
        raise DecodeError(f"the row is number {excerpt(row)} of an event of {excerpt(base)}")
    head = head_of_place(table, source, base)
    return f"{head}{number:019}\n{min(row, LAST_POSITION):019}\n{order:019}\n{id_}"


@lru_cache(maxsize=1024)  # rows and marks of one transaction come together
def id_of(text: str) -> str:
    """Writes the id of a transaction, a GTID or a file and position, so that the number at its end has NUMBER_DIGITS
    digits; one of another form stays as it is."""
    if match := _BY_FILE.fullmatch(text):
        base, number = file_and_position(f"{match[1]}.{match[2]}", min(int(match[3]), LAST_POSITION))
        return f"file={base}{IN_FILE}{number:019}"
    head = text_before_number(text)
    number = 0 if head is None else int(text[len(head) :])
    return f"{head}{number:019}" if 0 < number <= _MOST_NUMBER else text


def text_before_file_number(id_: str) -> str | None:
    """Gives what stands before the number of the file in the id of a transaction; None for a GTID."""
    match = _BY_FILE.fullmatch(id_)
    return None if match is None else id_[: match.start(2)]


def plain_id(id_: str) -> str:
    """Gives the id as the connector tells it, for people."""
    head, digits = id_[:-NUMBER_DIGITS], id_[-NUMBER_DIGITS:]
    if not head or len(digits) != NUMBER_DIGITS or not digits.isdigit():
        return id_
    if not head.endswith(IN_FILE):
        return f"{head}{int(digits)}"
    file, position = divmod(int(digits), LAST_POSITION + 1)
    return f"{head.removesuffix(IN_FILE)}.{file:06}{IN_FILE}{position}"
