"""Decodes many messages to Arrow tables of events, by the same function on executors and on the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from bridge.errors import BridgeError
from bridge.events import EVENT_SCHEMA, Event
from bridge.protocols.decode import decode_message, highest_ts, numbers_above
from bridge.protocols.decoder import MAX_COMMIT_TS, Decoder, RowEvents
from bridge.protocols.event_columns import record_batch
from bridge.protocols.fast.texts import Numbers
from bridge.protocols.ruled_rows import ruled

_LARGE: Final = 32 << 10
"""In bytes.  Messages with a larger average size count as large."""
_TOGETHER_BYTES: Final = 32 << 20
"""How many bytes of keys and values are decoded together; that takes several times as much memory."""


class Messages(NamedTuple):
    """Messages as columns.

    latest_ms: for each message, the latest moment (milliseconds since 1970) that it can be of: when it was read, or a
        timestamp of Kafka if that is later.  Without, the times that messages tell are not checked.
    """

    topic: list[str]
    partition: list[int]
    offset: list[int]
    key: list[bytes | None]
    value: list[bytes | None]
    latest_ms: list[int] = []  # noqa: RUF012  # the default of a tuple's field, which nobody changes

    def part(self, which: slice) -> Messages:
        """Gives the messages of a slice."""
        return Messages(*(column[which] for column in self))  # type: ignore[arg-type]  # each of its type


def do_nothing() -> None:
    """Does nothing, for callers that have nothing to do."""


EventDecoder = Callable[[Iterable[Messages]], Iterator[pa.Table]]
"""Takes messages and gives tables of their events (EVENT_SCHEMA, in any order)."""


def packed(events: pa.Table) -> bytes:
    """Writes events as an Arrow IPC stream: Spark then moves one value instead of 14 columns of every event."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, EVENT_SCHEMA) as stream:
        stream.write_table(events)
    value: bytes = sink.getvalue().to_pybytes()
    return value


def unpacked(batches: Iterable[bytes]) -> pa.Table:
    """Reads packed events into one table (EVENT_SCHEMA)."""
    return pa.Table.from_batches([events for batch in batches for events in pa.ipc.open_stream(batch)], EVENT_SCHEMA)


def decode_messages(decoder: Decoder, messages: Messages, when_large: Callable[[], None] = do_nothing) -> pa.Table:
    """Decodes messages to events (EVENT_SCHEMA, in any order): by the fast path, and the rest by the plain one.

    when_large: is called after messages with a large average size were decoded.
    """
    size = sum(map(len, filter(None, messages.key))) + sum(map(len, filter(None, messages.value)))
    if size > _TOGETHER_BYTES and len(messages.value) > 1:
        half = len(messages.value) // 2
        halves = (messages.part(slice(half)), messages.part(slice(half, None)))
        events = pa.concat_tables([decode_messages(decoder, part, when_large) for part in halves])
    else:
        events = _decoded_together(decoder, messages)
    if size > _LARGE * len(messages.value):
        when_large()
    return events


def _decoded_together(decoder: Decoder, messages: Messages) -> pa.Table:
    batches = []
    for numbers, events in _decoded(decoder, messages):
        where = [_of(messages[field], EVENT_SCHEMA.field(field).type, numbers) for field in range(3)]
        batches.append(pa.RecordBatch.from_arrays([*where, *events.columns], schema=EVENT_SCHEMA))
    events = pa.Table.from_batches(batches, EVENT_SCHEMA)
    return ruled(events, decoder.row_rules) if decoder.row_rules else events


def _of(column: list[Any], kind: pa.DataType, numbers: Numbers) -> pa.Array:
    """Gives a column's values for the messages of these numbers.  Mostly all messages are from one partition."""
    if column.count(column[0]) == len(column):
        return pa.repeat(pa.scalar(column[0], kind), len(numbers))
    return pa.array(column, kind).take(pa.array(numbers))


def _decoded(decoder: Decoder, messages: Messages) -> Iterator[RowEvents]:
    """Gives events (EVENT_FIELDS), each with the number of its message."""
    highest = highest_ts(messages.latest_ms, decoder.ms_ahead) if messages.latest_ms else MAX_COMMIT_TS
    lots, leftover = decoder.decode_batch(messages.key, messages.value)
    if len(above := numbers_above(lots, highest)):
        lots = [lot.only(np.isin(lot.numbers, above, invert=True)) for lot in lots]
        leftover = np.union1d(leftover, above)
    yield from lots
    if len(leftover):
        yield _parsed(decoder, messages, leftover, highest)


def _parsed(decoder: Decoder, messages: Messages, numbers: Numbers, highest: int) -> RowEvents:
    """Decodes the messages of these numbers one by one."""
    keys, values = messages.key, messages.value
    events_of_messages = list[list[Event]]()
    for number in numbers.tolist():
        try:
            events_of_messages.append(decode_message(decoder, keys[number], values[number], highest))
        except BridgeError as error:  # what reading it needs cannot be had
            error.where = f"{messages.topic[number]}/{messages.partition[number]}/{messages.offset[number]}"
            raise
    places = np.repeat(numbers, [len(events_of_message) for events_of_message in events_of_messages])
    return RowEvents(places, record_batch(chain.from_iterable(events_of_messages)))
