"""Events: what protocols decode messages to, and what the rest of the bridge works with.

A protocol decodes one message, ``(key, value)`` bytes, to `Event`s.  With the position of the message (topic,
partition, offset) they are passed on as Arrow record batches of `EVENT_SCHEMA`.

Row images are *exact SQL literals*: one string for each image, the literals of its columns joined by NUL.  Neither a
column name nor a literal contains NUL (`protocols.values.literals` escapes it), so an image can be split again, and
``image.replace(SEP, ",")`` is the body of a VALUES row.

Some formats do not give the types of their values.  Their images hold *raw* literals, which become exact with the
target's catalog at the time of the segment (internals, decision 9).  In this case `columns` has, after the names, RAW
and the forms of the values, and the types of the upstream if messages declare them.  `protocols.values.untyped` lists
the forms; `rows.types.resolve_types.typed` makes the literals exact before any other code uses them.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

SEP: Final = "\0"
"""Separates the column names, and the literals, of an image."""

NO_KEY: Final = SEP
"""Of `Event.key`: the message says that the upstream's table has neither a primary key nor a unique key of NOT NULL
columns.  No name is empty, so no names of columns are joined to this text."""
NO_PRIMARY_KEY: Final = SEP + SEP
"""Of `Event.key`: the message says that the upstream's table has no primary key."""

RAW: Final = SEP + SEP
"""Separates the names in `Event.columns` from the forms and types of values.  No name is empty, so it occurs only
once."""
CLASH: Final = "clash"
"""Marks a LEFT_OUT whose table shares its target with another one."""


class Kind(IntEnum):
    """What an event is."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3
    SCHEMA_CHANGE = 4
    BOUNDARY = 5
    """Says that every change of this partition with a commit_ts *below* this one has been sent (resolved ts,
    watermark)."""
    BAD = 6
    """A message that could not be decoded; `text` says why."""
    LEFT_OUT = 7
    """A row of a table that is not replicated.  With a text: a row that must never be written (`ReservedSchemas`), and
    why.  Without: the first row that a decoder sees of a table that the filter excludes (on request).  With CLASH as
    its columns: a row of a table that shares its target with another one, which the text names; it stops the bridge."""
    TRANSACTION = 8
    """The beginning or the end of a transaction, in `text`; without a text: a row of one that is not replicated.  Only
    on request (`DecodeOptions.transactions`)."""


class Code(StrEnum):
    """Short names of the reasons why a message could not be decoded, or a row could not be applied.  They must not
    change: people and programs sort the quarantine by them."""

    MALFORMED = "malformed"
    """The message does not follow its format."""
    UNKNOWN_TYPE = "unknown-type"
    """A column type, or a kind of event, that is not in the description of the format."""
    BAD_VALUE = "bad-value"
    """A value that its column's type cannot hold."""
    NO_TIMEZONE = "no-timezone"
    """A TIMESTAMP in a zone that neither the message nor --timezone tells."""
    LOST_VALUE = "lost-value"
    """The format itself has lost a value, such as a local time that means two moments."""
    HANDLE_KEY_ONLY = "handle-key-only"
    """The message holds only the handle key, since the row was too large for the topic (TiCDC,
    large-message-handle-option)."""
    CLAIM_CHECK = "claim-check"
    """The row is stored elsewhere, since it was too large for the topic (same option)."""
    NO_COMMIT_TS = "no-commit-ts"
    """A message without the commit ts that its topic's other messages have, or that its format needs."""
    AHEAD_OF_CLOCK = "ahead-of-clock"
    """The message tells of a time that has not come yet, by the clock of this machine and by Kafka's timestamp."""
    OTHER_PROTOCOL = "other-protocol"
    """The message is of another protocol than the one that is read."""
    SCHEMA_CHANGE = "schema-change"
    """A schema change that cannot be decoded.  It is never quarantined, since everything after it depends on it."""
    NOT_READ_BACK = "not-read-back"
    """The message holds only the handle key, and the upstream no longer shows the row."""
    TARGET_REFUSED = "target-refused"
    """A row that the target refused."""
    ROW_NOT_FOUND = "row-not-found"
    """The target lacks the row of a change that needs it: the table has no key, or the message holds a part of the
    row."""


class Event(NamedTuple):
    """One decoded event; fields that do not apply to its kind are ``None`` (``""`` for schema and table).

    commit_ts: TSO; the boundary's ts for BOUNDARY, 0 for BAD and LEFT_OUT.  Where the message carries no TSO it is
        `ms_tso` of the event time (whole seconds count as their first millisecond), and `by_time` is true.
    index: position inside the message, from 0; where the message is one row of an event of the binlog and tells which,
        a number that ascends within that event, from 1 (`protocols.values.event_time.row_index`).
    columns: names of the image's columns, joined by SEP, in message order; for raw values and declared types followed
        by RAW and the forms (with the types) joined by SEP, one for each column or one for all; of a BAD, its `Code`.
    key: names of the handle key's columns, joined by SEP; NO_KEY or NO_PRIMARY_KEY when the message says that there is
        none; ``""`` when it says nothing of keys; of a BAD, the schemas of a message in Avro (`Decoder.schemas_of`).
    before, after: images, literals joined by SEP, in the order of `columns`.  UPDATE has both when the message holds
        the old row (partial old rows are completed from the new one), INSERT only `after`, DELETE only `before`.
        A BAD holds the message's key and value here, in base64 (None where they are null).
    text: the statement of a SCHEMA_CHANGE, the reason of a BAD.  Of a row change it is None, but for two kinds: where
        the images hold only the columns of the key, the `Code` that says why (on request: `DecodeOptions.cut_rows`);
        where its table is one of several that are merged, the upstream's name of that table.
    by_time: whether commit_ts is only an event time.  Then the order is that of the partition, not that of commit_ts
        (internals, decision 13).
    place: its place among the transactions of the upstream, where the message tells it
        (`bridge.protocols.values.event_time`).
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
    place: str | None = None


if TYPE_CHECKING:
    EVENT_SCHEMA: pa.Schema
    """The position of the message, then the fields of `Event`."""
    EVENT_FIELDS: pa.Schema
    """The fields of `Event` alone."""


def __getattr__(name: str) -> Any:
    """Makes EVENT_SCHEMA and EVENT_FIELDS when they are first asked for: the settings need this module as well, and
    pyarrow takes 0.1 s to load."""
    if name not in {"EVENT_SCHEMA", "EVENT_FIELDS"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pyarrow as pa

    position = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
    types = {"kind": pa.int8(), "commit_ts": pa.int64(), "index": pa.int32(), "by_time": pa.bool_()}
    fields = [
        pa.field(name, types.get(name, pa.string()), nullable=Event._field_defaults.get(name, "") is None)
        for name in Event._fields
    ]
    places = [pa.field(name, kind, nullable=False) for name, kind in position.items()]
    globals().update(EVENT_SCHEMA=pa.schema([*places, *fields]), EVENT_FIELDS=pa.schema(fields))
    return globals()[name]


def key_names(key: str) -> list[str]:
    """Gives the names that an `Event.key` holds."""
    return [name for name in key.split(SEP) if name]


class Position(NamedTuple):
    """The position of a message."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"
