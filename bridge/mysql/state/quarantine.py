"""Reads and writes the quarantine: messages that could not be decoded and rows that the target refused, with reason and
position.

Entries are written in the target transaction that passes their position in the log, so each is there exactly once. They
are never deleted: they are `held` until somebody has `applied` or `dropped` them, so that nothing is dropped without
being counted, and a message that is read again after a restart is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import orjson

from bridge.events import SEP, Kind, Position, RowChange
from bridge.model import WHOLE_MESSAGE, Entry, quote_name
from bridge.mysql.connection.session import Session

CREATE_TABLE: Final = """CREATE TABLE IF NOT EXISTS {schema}.quarantine (
        id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY,
        name VARCHAR(128) COLLATE utf8mb4_bin NOT NULL,
        topic VARCHAR(255) COLLATE utf8mb4_bin NOT NULL,
        `partition` INT NOT NULL,
        `offset` BIGINT NOT NULL,
        event INT NOT NULL COMMENT 'index of the row change in its message, -1 for a whole message',
        state VARCHAR(16) NOT NULL COMMENT 'held, applied, dropped',
        code VARCHAR(32) NOT NULL,
        reason TEXT NOT NULL,
        commit_ts BIGINT UNSIGNED NOT NULL COMMENT 'of a row change; of a message, the boundary before it',
        protocol VARCHAR(32) NOT NULL,
        message_key LONGBLOB NULL,
        message_value LONGBLOB NULL,
        cut_bytes BIGINT UNSIGNED NOT NULL COMMENT 'what max_allowed_packet left no room for',
        row_change LONGTEXT NULL COMMENT 'a row change: columns, key, images as SQL literals; a message: schemas',
        outcome TEXT NOT NULL,
        put_at TIMESTAMP(3) NOT NULL,
        settled_at TIMESTAMP(3) NULL,
        UNIQUE KEY position (name, topic, `partition`, `offset`, event)
    ) DEFAULT CHARSET = utf8mb4"""

_HEAD: Final = (
    "id, topic, `partition`, `offset`, event, state, code, reason, commit_ts, protocol, cut_bytes, row_change, outcome,"
    " put_at, settled_at"
)
_PACKET_REST: Final = 64 * 1024
"""The bytes of a packet that are needed for everything but the message."""
_LISTS: Final = ("columns", "key", "before", "after")
_REASON_CHARACTERS: Final = 4000


class QuarantineState(StrEnum):
    """What became of an entry."""

    HELD = "held"
    APPLIED = "applied"
    DROPPED = "dropped"


def add_entries(session: Session, schema: str, name: str, entries: Iterable[Entry]) -> None:
    """Writes entries in the session's open transaction; an entry that exists already stays as it is."""
    packet = 0
    for entry in entries:
        packet = packet or int(session.value("SELECT @@max_allowed_packet"))
        key, value, change, cut = _fitted(entry, packet)
        session.execute(
            f"INSERT INTO {quote_name(schema, 'quarantine')} (name, topic, `partition`, `offset`, event, state, code,"
            " reason, commit_ts, protocol, message_key, message_value, cut_bytes, row_change, outcome, put_at)"
            f" VALUES (%s, %s, %s, %s, %s, '{QuarantineState.HELD}', %s, %s, %s, %s, FROM_BASE64(%s), FROM_BASE64(%s),"
            " %s, %s, '', NOW(3)) ON DUPLICATE KEY UPDATE id = id",
            (
                name,
                *entry.position,
                entry.index,
                entry.code,
                entry.reason[:_REASON_CHARACTERS],
                entry.commit_ts,
                entry.protocol,
                key,
                value,
                cut,
                change,
            ),
        )


def count_held(session: Session, schema: str, name: str) -> dict[str, int]:
    """Counts the entries of a pipeline that wait in the quarantine, by code."""
    rows = session.rows(
        f"SELECT code, COUNT(*) FROM {quote_name(schema, 'quarantine')} WHERE name = %s AND state = %s"
        " GROUP BY code ORDER BY code",
        (name, QuarantineState.HELD),
    )
    return {code: int(count) for code, count in rows}


def dump_change(change: RowChange) -> str:
    """Gives a row change as JSON, for `row_change`."""
    names = {"kind": change.kind.name.lower(), "schema": change.schema, "table": change.table}
    return orjson.dumps(names | {name: _parts(getattr(change, name)) for name in _LISTS}).decode()


def load_change(text: str | bytes, commit_ts: int, index: int) -> RowChange:
    """Reads a row change from the JSON of `dump_change`."""
    parts: dict[str, Any] = orjson.loads(text)
    columns, key, before, after = (None if parts[name] is None else SEP.join(parts[name]) for name in _LISTS)
    kind = Kind[parts["kind"].upper()]
    return RowChange(kind, commit_ts, index, parts["schema"], parts["table"], columns or "", key or "", before, after)


def _parts(joined: str | None) -> Sequence[str] | None:
    return joined.split(SEP) if joined else None if joined is None else []


def _fitted(entry: Entry, packet: int) -> tuple[str | None, str | None, str | None, int]:
    """Cuts key, value and row change to fit a packet; also gives how many bytes were cut off."""
    room = max(packet - _PACKET_REST, 0) // 2
    if entry.change is not None:
        change = dump_change(entry.change)
        size = len(change.encode())
        return (None, None, change, 0) if size < room else (None, None, None, size)
    key, value = (part and (part if len(part) <= room else part[: room // 4 * 4]) for part in (entry.key, entry.value))
    fits = sum(map(len, filter(None, (key, value, entry.schemas)))) < 2 * room
    cut = _decoded_size(entry.key, entry.value) - _decoded_size(key, value)
    return key, value, entry.schemas if fits else None, cut


def _decoded_size(*texts: str | None) -> int:
    return sum(len(text) // 4 * 3 - text.count("=") for text in texts if text)


@dataclass(frozen=True)
class StoredEntry:
    """An entry of the quarantine; the fields are the table's columns.

    schemas: the texts of the schemas of a message in Avro, by `SchemaId.name`.
    """

    id: int
    position: Position
    index: int
    state: QuarantineState
    code: str
    reason: str
    commit_ts: int
    protocol: str
    cut_bytes: int
    change: RowChange | None
    outcome: str
    put_at: datetime
    settled_at: datetime | None
    key: bytes | None
    value: bytes | None
    schemas: Mapping[str, str]

    @property
    def where(self) -> str:
        """Position, with the index of a row change behind a #."""
        return str(self.position) if self.index == WHOLE_MESSAGE else f"{self.position}#{self.index}"


def entry_ids(session: Session, schema: str, name: str, states: Iterable[QuarantineState]) -> list[int]:
    """Gives the ids of a pipeline's entries in these states, in the order in which they were quarantined."""
    return [int(id_) for (id_,) in _select(session, "id", schema, name, states)]


def list_entries(session: Session, schema: str, name: str, states: Iterable[QuarantineState]) -> list[StoredEntry]:
    """Gives the entries of a pipeline in these states, in the order in which they came, without the messages' bytes."""
    return [_stored(row) for row in _select(session, f"{_HEAD}, NULL, NULL", schema, name, states)]


def _select(
    session: Session, columns: str, schema: str, name: str, states: Iterable[QuarantineState]
) -> list[tuple[Any, ...]]:
    values = tuple(states)
    return session.rows(
        f"SELECT {columns} FROM {quote_name(schema, 'quarantine')} WHERE name = %s AND state IN"
        f" ({','.join(['%s'] * len(values))}) ORDER BY id",
        (name, *values),
    )


def read_entry(session: Session, schema: str, name: str, id_: int, *, lock: bool = False) -> StoredEntry | None:
    """Reads one entry of a pipeline; None when there is none of that id."""
    rows = session.rows(
        f"SELECT {_HEAD}, message_key, message_value FROM {quote_name(schema, 'quarantine')}"
        " WHERE name = %s AND id = %s" + (" FOR UPDATE" if lock else ""),
        (name, id_),
    )
    return _stored(rows[0]) if rows else None


def _stored(row: tuple[Any, ...]) -> StoredEntry:
    id_, topic, partition, offset, index, state, code, reason, commit_ts, protocol, cut, change, *rest = row
    is_message = index == WHOLE_MESSAGE
    event = load_change(change, commit_ts, index) if change and not is_message else None
    schemas = orjson.loads(change) if change and is_message else {}
    names = ("code", "reason", "commit_ts", "protocol", "cut_bytes", "outcome", "put_at", "settled_at", "key", "value")
    fields = dict(zip(names, (code, reason, commit_ts, protocol, cut, *rest), strict=True))
    position = Position(topic, partition, offset)
    return StoredEntry(int(id_), position, index, QuarantineState(state), change=event, schemas=schemas, **fields)


def settle(session: Session, schema: str, name: str, id_: int, state: QuarantineState, outcome: str) -> bool:
    """Marks a held entry as settled; gives False when it is not held (any more)."""
    matched = session.execute(
        f"UPDATE {quote_name(schema, 'quarantine')} SET state = %s, outcome = %s, settled_at = NOW(3)"
        " WHERE name = %s AND id = %s AND state = %s",
        (state, outcome, name, id_, QuarantineState.HELD),
    )
    return matched == 1
