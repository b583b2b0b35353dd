"""Holds what all protocols share: the interface, the options, and why a message cannot be decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeVar

from bridge.events import Code, Event
from bridge.filters.routes import RowRules
from bridge.filters.table_filter import ReservedSchemas
from bridge.protocols.debezium.recognition import DebeziumModes

if TYPE_CHECKING:  # settings need this module too, and these take 0.15 s to load
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

MAX_COMMIT_TS: Final = (1 << 63) - 1
MS_AHEAD: Final = 3_650 * 86_400_000
"""A TSO may lie ten years ahead of the clock.  What is no TSO, or has another unit, lies centuries ahead; a cluster
whose clock was once wrong stays ahead for good, and its rows are of the same time as its boundaries."""
MAX_NAME: Final = 64
"""In characters.  No name of a schema, table or column is longer in MySQL, MariaDB and TiDB; events repeat names in
every row."""
MAX_CACHED: Final = 4096
"""In entries.  A cache is emptied at this size, so that a flood of table names cannot fill the memory."""

_EXCERPT_CHARACTERS: Final = 60
Contents = Sequence[bytes | None]
"""The keys, or the values, of messages."""
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Remembered(dict[_Key, _Value]):
    """Makes the value of a key when it is first asked for; forgets all of them where they are MAX_CACHED."""

    def __init__(self, make: Callable[[_Key], _Value]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: _Key) -> _Value:
        value = self._make(key)
        if len(self) >= MAX_CACHED:
            self.clear()
        self[key] = value
        return value


class RowEvents(NamedTuple):
    """Events of many messages.

    numbers: for each event, the number of its message, ascending.
    events: one for each number (EVENT_FIELDS).
    """

    numbers: npt.NDArray[np.int64]
    events: pa.RecordBatch

    def only(self, mask: npt.NDArray[np.bool_]) -> RowEvents:
        """Keeps the events that a mask marks."""
        return self if mask.all() else RowEvents(self.numbers[mask], self.events.filter(mask))


class BatchResult(NamedTuple):
    """What the fast path makes of many messages.

    events: the events of the messages that it could read, in no order; for each message all or none.
    leftover: the numbers of the other messages, ascending, which the plain path must parse.
    """

    events: list[RowEvents]
    leftover: npt.NDArray[np.int64]


class DecodeError(Exception):
    """A message that cannot be decoded.  Its text is the reason in words, its code names the kind of reason."""

    def __init__(self, reason: str, code: Code = Code.MALFORMED) -> None:
        super().__init__(reason)
        self.code = code


class SchemaId(NamedTuple):
    """What a registry calls a schema.

    kind: Apicurio's own API tells two kinds of ids apart; Confluent's does not.
    """

    kind: Literal["contentIds", "globalIds"]
    number: int

    @property
    def name(self) -> str:
        """Both as one text."""
        return f"{self.kind}/{self.number}"


class SchemaLookup(Protocol):
    """Gives the schemas of messages in Avro.  It must be picklable."""

    def text(self, schema_id: SchemaId) -> str:
        """Gives a schema's text.  Raises DecodeError where there is none, SourceError where none can be had."""


@dataclass(frozen=True)
class DecodeOptions:
    """What a decoder must know and the messages do not tell.

    timezone: the zone of TIMESTAMP values: an IANA name, "UTC" or an offset like "+08:00".  With None, a TIMESTAMP that
    is neither NULL nor zero is a `DecodeError`.
    accepts: (schema, table) -> whether the table is wanted.  Rows of unwanted tables are dropped before their values
    are decoded; schema changes and boundaries are always decoded.  It is called once per table and decoder, and must be
    picklable.
    tells_unwanted: the first row of each table that is not wanted becomes a LEFT_OUT, so that the table is known.
    reserved: databases whose rows all become LEFT_OUT, even if their tables are wanted.
    cut_rows: whether rows that TiCDC has cut to their key are decoded, with `RowChange.cut`; otherwise a message that
    holds one is a `DecodeError`.  Deletes need only the key and are never marked.
    ckafka_binary: how ckafka writes binary values, which its messages do not tell.  None: they are errors.
    debezium: how a native Debezium connector is configured to write values; TiCDC's way is known.
    row_rules: what is done with rows that were decoded together (`batch_decode`); `decode` gives them as they came.
    ms_ahead: how far a TSO may lie ahead of the moment at which its message was read (milliseconds).
    transactions: whether rows and schema changes tell their place among transactions, and every row is told, also those
        that are not replicated (`protocols.debezium.transactions`).
    schemas: gives the schemas of messages in Avro; without it they cannot be decoded.
    """

    timezone: str | None
    accepts: Callable[[str, str], bool] | None = None
    cut_rows: bool = False
    ckafka_binary: Literal["base64", "latin1"] | None = None
    debezium: DebeziumModes = field(default_factory=DebeziumModes)
    tells_unwanted: bool = False
    reserved: ReservedSchemas = field(default_factory=ReservedSchemas)
    row_rules: RowRules = field(default_factory=RowRules)
    ms_ahead: int = MS_AHEAD
    transactions: bool = False
    schemas: SchemaLookup | None = None


class Decoder(Protocol):
    """Decodes the messages of a protocol.  It keeps what it learns of tables, so one decoder serves many batches."""

    @property
    def protocols(self) -> tuple[str, ...]:
        """The protocols that it reads, its own first."""

    @property
    def row_rules(self) -> RowRules:
        """What is done with the rows after they are decoded."""

    @property
    def ms_ahead(self) -> int:
        """How far a TSO may lie ahead of the moment at which its message was read."""

    def schemas_of(self, key: bytes | None, value: bytes | None) -> str | None:
        """Gives the schemas of a message in Avro as JSON: their texts by `SchemaId.name`; None where it has none."""

    def decode(self, key: bytes | None, value: bytes | None) -> list[Event]:
        """Gives the events of one message, all or none; raises nothing but `DecodeError`."""

    def decode_batch(self, keys: Contents, values: Contents) -> BatchResult:
        """Decodes the messages that it can read together, and leaves the others to `decode`; raises nothing."""


@contextmanager
def reading_schema_change() -> Iterator[None]:
    """Gives `Code.SCHEMA_CHANGE` to every failure in the block, which reads a message known to be a schema change."""
    try:
        yield
    except (*FAILURES, DecodeError) as failure:
        raise DecodeError(f"a schema change cannot be read: {explain(failure)}", Code.SCHEMA_CHANGE) from failure


def explain(failure: Exception) -> str:
    """Tells in plain words why something failed."""
    match failure:
        case DecodeError():
            return str(failure)
        case RecursionError():
            return "nested too deeply"
        case MemoryError():
            return "too large for the memory"
        case KeyError():
            return f"{excerpt(failure.args[0] if failure.args else '')} is missing"
        case AttributeError() | TypeError():
            return f"a part of it has the wrong JSON type ({failure})"
        case _:
            return str(failure) or type(failure).__name__


def excerpt(value: object) -> str:
    """Writes a value from the wire for an error message: escaped and short."""
    if isinstance(value, str | bytes):
        value = value[: _EXCERPT_CHARACTERS + 1]
    elif isinstance(value, list | dict):
        return f"a JSON {'array' if isinstance(value, list) else 'object'}"
    text = ascii(value)
    return text if len(text) <= _EXCERPT_CHARACTERS + 10 else f"{text[:_EXCERPT_CHARACTERS]}..."


def check_name(name: object, kind: str) -> str:
    """Checks and gives the name of a schema, table or column.  Raises DecodeError for a value that cannot be a name.

    A NUL would split an image, and no identifier of MySQL holds one.
    """
    if not isinstance(name, str):
        raise DecodeError(f"the {kind} name is {excerpt(name)}, not a string")
    if "\0" in name:
        raise DecodeError(f"the {kind} name {excerpt(name)} holds a NUL")
    if len(name) > MAX_NAME:
        raise DecodeError(f"the {kind} name {excerpt(name)} is longer than {MAX_NAME} characters")
    return name


def check_commit_ts(ts: object, field: str) -> int:
    """Checks and gives a commit_ts (TSO).  Raises DecodeError for a value that is not a TSO within Arrow's int64."""
    if type(ts) is int and 0 < ts <= MAX_COMMIT_TS:
        return ts
    raise DecodeError(f"{field} is {excerpt(ts)}, not a TSO")


FAILURES: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    SystemError,
    TypeError,
    ValueError,
)
"""The exceptions that code which trusts its input may raise on hostile bytes."""
