"""Events: what protocols decode messages to, and what the rest of the bridge works with.

A protocol decodes one message, ``(key, value)`` bytes, to `Event`s.  With the position of the message (topic,
partition, offset) they are passed on as Arrow record batches of `EVENT_SCHEMA` (`protocols.batch_decode`).

Row images are *exact SQL literals*: one string for each image, the literals of its columns joined by NUL.  Neither a
column name nor a literal contains NUL (`protocols.values.literals` escapes it), so an image can be split again, and
``image.replace(SEP, ",")`` is the body of a VALUES row.

Some formats do not give the types of their values.  Their images hold *raw* literals; `rows.resolve_types.typed` makes
them exact, by the target's catalog at the time of the segment, before any other code uses them.  In this case `columns`
has, after the names, RAW and the forms of the values (`protocols.values.row_image`), and declared types if there are.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    import pyarrow as pa

SEP: Final = "\0"
"""Separates the column names, and the literals, of an image."""

NO_KEY: Final = SEP
"""Of `RowChange.key`: the message says that the upstream's table has neither a primary key nor a unique key of NOT NULL
columns.  No name is empty, so no names of columns are joined to this text."""
NO_PRIMARY_KEY: Final = SEP + SEP
"""Of `RowChange.key`: the message says that the upstream's table has no primary key."""

RAW: Final = SEP + SEP
"""Separates names from forms and types in `RowChange.columns`; once, as no name is empty."""
CLASH: Final = "clash"
"""The mark of a `LeftOut` whose table shares its target with another one."""


class Kind(IntEnum):
    """What an event is.  The first three are row changes; of the others, each has a record that says what it is."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3
    SCHEMA_CHANGE = 4
    BOUNDARY = 5
    BAD = 6
    LEFT_OUT = 7
    TRANSACTION = 8


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
    """The target lacks the row that a change needs, of a table without a key or of which the message holds a part."""


class RowChange(NamedTuple):
    """A row that was inserted, updated or deleted, as its kind says.

    commit_ts: TSO.  Where the message carries none it is `ms_tso` of the event time (whole seconds count as their first
        millisecond), and `by_time` is true.
    index: position inside the message, from 0; where the message is one row of an event of the binlog and tells which,
        a number that ascends within that event, from 1 (`protocols.values.event_time.row_index`).
    schema, table: as the upstream names them; those of the target once they are routed (`protocols.batch_decode`).
    columns: names of the image's columns, joined by SEP, in message order; for raw values and declared types followed
        by RAW and the forms (with the types) joined by SEP, one for each column or one for all.
    key: names of the handle key's columns, joined by SEP; NO_KEY or NO_PRIMARY_KEY when the message says that there is
        none; ``""`` when it says nothing of keys.
    before, after: images, literals joined by SEP, in the order of `columns`.  UPDATE has both when the message holds
        the old row (partial old rows are completed from the new one), INSERT only `after`, DELETE only `before`.
    cut: where the images hold only the columns of the key, the `Code` that says why (on request:
        `DecodeOptions.cut_rows`).  Its column in Arrow, `text`, names the upstream's table where tables are merged.
    by_time: whether commit_ts is only an event time.  Then the order is that of the partition, not that of commit_ts.
    place: its place among the transactions of the upstream, where the message tells it
        (`bridge.protocols.values.event_time`).
    """

    kind: Kind
    commit_ts: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    schema: str
    table: str
    columns: str
    key: str
    before: str | None
    after: str | None
    cut: str | None = None
    by_time: bool = False
    place: str | None = None


class DdlStatement(NamedTuple):
    """A schema change, as one message tells it; schema and table are ``""`` where the message names none."""

    commit_ts: int
    index: int  # type: ignore[assignment]
    schema: str
    table: str
    statement: str
    by_time: bool = False
    place: str | None = None
    kind: Literal[Kind.SCHEMA_CHANGE] = Kind.SCHEMA_CHANGE


class Boundary(NamedTuple):
    """Every change of this partition with a commit_ts *below* this one has been sent (resolved ts, watermark)."""

    commit_ts: int
    index: int = 0  # type: ignore[assignment]
    kind: Literal[Kind.BOUNDARY] = Kind.BOUNDARY


class Undecodable(NamedTuple):
    """A message that could not be decoded.

    code, reason: why, as a `Code` and in words.
    message_key, message_value: in base64; None where they are null.  schemas: as `Decoder.schemas_of` gives them.
    """

    code: str
    reason: str
    message_key: str | None = None
    message_value: str | None = None
    schemas: str | None = None
    kind: Literal[Kind.BAD] = Kind.BAD


class LeftOut(NamedTuple):
    """A row of a table that is not replicated.

    reason: why it must never be written (`ReservedSchemas`), or with CLASH as its mark, with which other table its own
        shares a target, which stops the bridge.  None: it is the first row that a decoder sees of a table that the
        filter excludes (on request).
    """

    schema: str
    table: str
    reason: str | None
    index: int = 0  # type: ignore[assignment]
    mark: str | None = None
    kind: Literal[Kind.LEFT_OUT] = Kind.LEFT_OUT


class TransactionPart(NamedTuple):
    """The beginning or the end of a transaction, as JSON in `text`; without a text: a row of one that is not
    replicated.  Only on request (`DecodeOptions.transactions`).  commit_ts: 0 for a row, and where it is not told."""

    commit_ts: int
    text: str | None
    place: str | None = None
    by_time: bool = True
    kind: Literal[Kind.TRANSACTION] = Kind.TRANSACTION


Event = RowChange | DdlStatement | Boundary | Undecodable | LeftOut | TransactionPart
"""One decoded event.  What has the name of a field of `RowChange` means the same."""

_COLUMN_OF = {"cut": "text", "statement": "text", "code": "columns", "reason": "text", "mark": "columns"}
_COLUMN_OF |= {"message_key": "before", "message_value": "after", "schemas": "key"}
COLUMNS: Final[dict[type[Event], tuple[str, ...]]] = {
    record: tuple(_COLUMN_OF.get(field, field) for field in record._fields) for record in get_args(Event)
}
"""The columns in Arrow of the fields of a record, mostly of the same name; a row change has all there are."""

if TYPE_CHECKING:
    EVENT_SCHEMA: pa.Schema
    """The position of the message, then the columns of an event."""


def __getattr__(name: str) -> Any:
    """Makes EVENT_SCHEMA when it is first asked for: settings need this module too, and pyarrow loads for 0.1 s."""
    if name != "EVENT_SCHEMA":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pyarrow as pa

    types = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
    types |= {"kind": pa.int8(), "commit_ts": pa.int64(), "index": pa.int32(), "by_time": pa.bool_()}
    needed, names = {*types, "schema", "table"}, (*Position._fields, *COLUMNS[RowChange])
    fields = [pa.field(name, types.get(name, pa.string()), nullable=name not in needed) for name in names]
    globals()[name] = schema = pa.schema(fields)
    return schema


def key_names(key: str) -> list[str]:
    """Gives the names that a `RowChange.key` holds."""
    return [name for name in key.split(SEP) if name]


class Position(NamedTuple):
    """The position of a message."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"
