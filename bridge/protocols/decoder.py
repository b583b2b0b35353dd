"""What every protocol shares: its options, its interface, and the one boundary where failures become `DecodeError`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bridge.events import Code, Event, Kind
from bridge.filters.reserved_schemas import ReservedSchemas
from bridge.protocols.debezium.connector_options import DebeziumModes

MAX_COMMIT_TS: Final = (1 << 63) - 1
MAX_NAME: Final = 64
"""Characters of a schema's, table's or column's name in MySQL, MariaDB and TiDB.  Events repeat names row by row."""
MAX_CACHED: Final = 4096
"""Caches are emptied at this size, so that a flood of table names cannot fill the memory."""

_SHOWN: Final = 60
_LEFT_OUT: Final = Kind.LEFT_OUT
"""Looking it up takes as long as the comparison, for every message that is decoded by itself."""
_CUT: Final = (
    "the message does not hold the whole row: it was too large for the topic, and large-message-handle has cut it to"
    " its key or put it elsewhere; give the upstream with --source, so that the row can be read back"
)


class RowEvents(NamedTuple):
    """Rows of many messages, decoded together.

    numbers: of their messages, ascending.
    events: one for each number (EVENT_FIELDS).
    """

    numbers: npt.NDArray[np.int64]
    events: pa.RecordBatch

    def only(self, which: npt.NDArray[np.bool_]) -> RowEvents:
        """Some of them."""
        return self if which.all() else RowEvents(self.numbers[which], self.events.filter(pa.array(which)))


class DecodeError(Exception):
    """A message that cannot be decoded; its text is the reason, for people, its code the same in short.

    at: the byte of the value at which decoding failed, where that is known.
    column: the name of the column that caused it, where it is one.
    """

    def __init__(
        self, reason: str, code: Code = Code.MALFORMED, *, at: int | None = None, column: str | None = None
    ) -> None:
        super().__init__(reason)
        self.code, self.at, self.column = code, at, column


@dataclass(frozen=True)
class DecodeOptions:
    """What a decoder must be told, since the messages do not say it.

    timezone: zone of TIMESTAMP values, an IANA name, "UTC" or an offset like "+08:00".  None: a TIMESTAMP that is
        neither NULL nor zero is a `DecodeError`.
    accepts: (schema, table) -> wanted.  Rows of unwanted tables are dropped before their values are decoded; schema
        changes and boundaries are not asked about.  Asked once per table and decoder; must be picklable.
    tells_unwanted: the first row of each table that is not wanted becomes a LEFT_OUT, so that it is known.
    reserved: databases whose rows all become LEFT_OUT, whatever is wanted.
    cut_rows: rows that TiCDC has cut to their key are wanted as they are, marked by `Event.text`; otherwise a message
        that holds one is a `DecodeError`.  Deletes need no more than the key and are never marked.
    ckafka_binary: how ckafka writes binary values, which its messages do not say.  None: a binary value is an error.
    debezium: how a native Debezium connector was told to write values; TiCDC's needs no telling.
    """

    timezone: str | None
    accepts: Callable[[str, str], bool] | None = None
    cut_rows: bool = False
    ckafka_binary: Literal["base64", "latin1"] | None = None
    debezium: DebeziumModes = field(default_factory=DebeziumModes)
    tells_unwanted: bool = False
    reserved: ReservedSchemas = field(default_factory=ReservedSchemas)


class Decoder(Protocol):
    """A protocol's decoder: it keeps what it learns of each table, so that one serves many batches."""

    @property
    def protocols(self) -> tuple[str, ...]:
        """Those that it reads, its own first."""

    @property
    def learnt(self) -> int:
        """How often it has learnt to decode more of what it sees together (`usual_rows`)."""

    def decode(self, key: bytes | None, value: bytes | None) -> list[Event]:
        """The events of one message, all or none; raises nothing but `DecodeError`."""

    def look_over(self, values: Iterable[bytes | None]) -> None:
        """To be told the values of the messages that `usual_events` is asked for next."""

    def usual_events(self, key: bytes | None, value: bytes | None) -> Sequence[Event] | None:
        """What `decode` gives for a message like many before; None or a failure for others."""

    def usual_rows(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Iterable[RowEvents]:
        """What `decode` gives for those of many messages that hold rows like many before: for a message all or nothing.
        What it has not given when it fails, with any of FAILURES or ArrowException, `decode` gives."""


class GuardedDecoder:
    """A decoder whose `_events` may fail as it likes: every failure leaves `decode` as a `DecodeError`."""

    protocols: ClassVar[tuple[str, ...]] = ()

    def __init__(self, options: DecodeOptions) -> None:
        self._accepts, self._takes_cut_rows = options.accepts, options.cut_rows
        self._reserved, self._tells_unwanted = options.reserved, options.tells_unwanted
        self._unsaid: set[tuple[str, str]] = set()

    @property
    def learnt(self) -> int:
        """How many templates have been learnt."""
        return 0

    def decode(self, key: bytes | None, value: bytes | None) -> list[Event]:
        """The events of one message, all or none; raises nothing but `DecodeError`."""
        try:
            events = self._events(key, value)
        except FAILURES as failure:
            raise DecodeError(f"malformed message: {explain(failure)}") from failure
        for event in events:
            if event[0] is _LEFT_OUT and event.text is None:
                self._unsaid.add((event.schema, event.table))
        return events

    def look_over(self, values: Iterable[bytes | None]) -> None:
        """To be told the values of the messages that `usual_events` is asked for next."""

    def usual_events(self, key: bytes | None, value: bytes | None) -> Sequence[Event] | None:
        """The events of a message like many before, decoded the shortest way (see `fast.learner`); None, or any of
        FAILURES or DecodeError, for every other message: `decode` tells what it is."""
        del key, value
        return None

    def usual_rows(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Iterable[RowEvents]:  # noqa: ARG002
        """The rows of those messages that can be decoded together, which costs least (see `fast.learner`)."""
        return ()

    def _events(self, key: bytes | None, value: bytes | None) -> list[Event]:
        raise NotImplementedError

    def _check_cut(self, cut: Code | None) -> None:
        """Refuses a row that is cut to its key, unless those are wanted."""
        if cut and not self._takes_cut_rows:
            raise DecodeError(_CUT, cut)

    def _wanted(self, schema: str, table: str) -> bool:
        """Whether rows of a table are wanted; checks the names, which no later step does again."""
        check_name(schema, "schema")
        check_name(table, "table")
        return self._is_accepted(schema, table) and not self._reserved.why(schema)

    def _is_accepted(self, schema: str, table: str) -> bool:
        return self._accepts is None or self._accepts(schema, table)

    def _left_out(self, schema: str, table: str) -> list[Event]:
        """What stands for a row of a table that is not wanted: an event each time where rows must never be written,
        else until `decode` has given one, if any is asked for."""
        if (schema, table) in self._unsaid:
            return []
        why = self._reserved.why(schema)
        if not (why and self._is_accepted(schema, table)):
            why = ""
            if len(self._unsaid) >= MAX_CACHED:
                self._unsaid.clear()
            if not self._tells_unwanted:
                self._unsaid.add((schema, table))
                return []
        return [Event(Kind.LEFT_OUT, 0, 0, schema, table, text=why or None)]


@contextmanager
def reading_schema_change() -> Iterator[None]:
    """Around everything that reads a message known to be a schema change: its failures carry `Code.SCHEMA_CHANGE`."""
    try:
        yield
    except (*FAILURES, DecodeError) as failure:
        raise DecodeError(f"a schema change cannot be read: {explain(failure)}", Code.SCHEMA_CHANGE) from failure


def explain(failure: Exception) -> str:
    """A failure's reason in words that a person understands."""
    match failure:
        case DecodeError():
            return str(failure)
        case RecursionError():
            return "nested too deeply"
        case MemoryError():
            return "too large for the memory"
        case KeyError():
            return f"{shown(failure.args[0] if failure.args else '')} is missing"
        case AttributeError() | TypeError():
            return f"a part of it has the wrong JSON type ({failure})"
        case _:
            return str(failure) or type(failure).__name__


def shown(found: object) -> str:
    """A value from the wire, fit for a reason: escaped and short."""
    if isinstance(found, str | bytes):
        found = found[: _SHOWN + 1]
    elif isinstance(found, list | dict):
        return f"a JSON {'array' if isinstance(found, list) else 'object'}"
    text = ascii(found)
    return text if len(text) <= _SHOWN + 10 else f"{text[:_SHOWN]}..."


def check_name(name: object, what: str) -> str:
    """A schema's, table's or column's name; NUL would break an image apart and stands in no MySQL identifier."""
    if not isinstance(name, str):
        raise DecodeError(f"the {what} name is {shown(name)}, not a string")
    if "\0" in name:
        raise DecodeError(f"the {what} name {shown(name)} holds a NUL")
    if len(name) > MAX_NAME:
        raise DecodeError(f"the {what} name {shown(name)} is longer than {MAX_NAME} characters")
    return name


def check_commit_ts(ts: object, what: str) -> int:
    """A TSO that Arrow's int64 can hold."""
    if type(ts) is int and 0 < ts <= MAX_COMMIT_TS:
        return ts
    raise DecodeError(f"{what} is {shown(ts)}, not a TSO")


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
"""What code that trusts its input can raise on bytes that do not deserve it."""
