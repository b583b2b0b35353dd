"""The vocabulary: what protocols decode messages to, and what the stream and the target work with.

A protocol turns one message, ``(key, value)`` bytes, into `Event`s.  The stream adds the message's position
(topic, partition, offset) and carries events as Arrow record batches of `EVENT_SCHEMA`.

Row images travel as *ready SQL literals*: one string per image, the literals of its columns joined by NUL.  A real
NUL can stand in neither a column name nor a literal (`protocols.literals` escapes it), so an image can be split
again, and ``image.replace(SEP, ",")`` is the body of a VALUES row.

Some formats do not say the types of their values.  Their images hold *raw* literals, which the target's catalog of the
segment makes exact (internals, decision 9): behind the names, `columns` then has RAW and the forms of the values.
There stand the upstream's types, too, where messages declare them.  `protocols.values.untyped` tells what forms there
are, `rows.types.resolve_types.typed` looks at all that and takes it away before anything else.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

import pyarrow as pa

SEP: Final = "\0"
"""Joins column names and literals of an image."""

RAW: Final = SEP + SEP
"""In `Event.columns`, between names and the forms and types of values.  No name is empty, so it stands nowhere else."""


class Kind(IntEnum):
    """What an event is."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3
    SCHEMA_CHANGE = 4
    BOUNDARY = 5
    """Every change of this partition with a commit_ts *below* this one has been sent."""
    BAD = 6
    """A message that could not be decoded; `text` says why."""
    LEFT_OUT = 7
    """A row of a table that is not replicated: every one that must never be written (`reserved_schemas`), as `text`
    says; without a text, the first that a decoder meets of a table that the filter leaves out (on request)."""


class Code(StrEnum):
    """Short names of the reasons why a message could not be decoded, or a row not applied.  They stay as they are:
    people and programs sort the quarantine by them."""

    MALFORMED = "malformed"
    """Not what the format describes."""
    UNKNOWN_TYPE = "unknown-type"
    """A column type, or a kind of event, that the format's description does not have."""
    BAD_VALUE = "bad-value"
    """A value that its column's type cannot hold."""
    NO_TIMEZONE = "no-timezone"
    """A TIMESTAMP in a zone that neither the message nor --timezone tells."""
    LOST_VALUE = "lost-value"
    """The format itself has lost a value, such as a local time that stands for two moments."""
    HANDLE_KEY_ONLY = "handle-key-only"
    """A row cut to its key, as it was too large for the topic (TiCDC, large-message-handle-option)."""
    CLAIM_CHECK = "claim-check"
    """A row that was put elsewhere, as it was too large for the topic (same option)."""
    NO_COMMIT_TS = "no-commit-ts"
    """A message without the commit ts that its topic's other messages have, or that its format needs."""
    OTHER_PROTOCOL = "other-protocol"
    """A message of another protocol than the one that is read."""
    SCHEMA_CHANGE = "schema-change"
    """A schema change that cannot be read: never quarantined, since everything behind it depends on it."""
    NOT_READ_BACK = "not-read-back"
    """A row cut to its key that the upstream does not show any more."""
    TARGET_REFUSED = "target-refused"
    """A row that the target refused."""
    ROW_NOT_FOUND = "row-not-found"
    """A change of a row that is not on the target, but would have to be: the table has no key, or the message holds a
    part of the row."""


class Event(NamedTuple):
    """One decoded event; fields that do not apply to its kind are ``None`` (``""`` for schema and table).

    commit_ts: TSO; the boundary's ts for BOUNDARY, 0 for BAD and LEFT_OUT.  Where the message carries no TSO it is
        `ms_tso` of the event time (whole seconds count as their first millisecond), and `by_time` is true.
    index: position inside the message, from 0.
    columns: names of the image's columns, joined by SEP, in message order; for raw values and declared types followed
        by RAW and the forms (with the types) joined by SEP, one for each column or one for all; of a BAD, its `Code`.
    key: names of the handle key's columns, joined by SEP; ``""`` when the message names none.
    before, after: images, literals joined by SEP, in the order of `columns`.  UPDATE has both when the message holds
        the old row (partial old rows are completed from the new one), INSERT only `after`, DELETE only `before`.
        A BAD holds the message's key and value here, in base64 (None where they are null).
    text: the statement of a SCHEMA_CHANGE, the reason of a BAD.  Of a row change: None, or the `Code` that says why the
        images hold the key's columns only (given on request: `DecodeOptions.cut_rows`).
    by_time: a row or schema change whose commit_ts is only an event time: the order is the partition's, not that of
        commit_ts (internals, decision 13).
    """

    kind: Kind
    commit_ts: int
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    schema: str = ""
    table: str = ""
    columns: str | None = None
    key: str | None = None
    before: str | None = None
    after: str | None = None
    text: str | None = None
    by_time: bool = False


EVENT_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("commit_ts", pa.int64(), nullable=False),
        pa.field("index", pa.int32(), nullable=False),
        pa.field("schema", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("columns", pa.string()),
        pa.field("key", pa.string()),
        pa.field("before", pa.string()),
        pa.field("after", pa.string()),
        pa.field("text", pa.string()),
        pa.field("by_time", pa.bool_(), nullable=False),
    ]
)
"""Position, then the fields of `Event`."""

EVENT_FIELDS: Final = pa.schema(list(EVENT_SCHEMA)[3:])
"""The fields of `Event` alone."""


class Position(NamedTuple):
    """Where a message lies."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"
