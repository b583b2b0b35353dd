"""Decoding as Arrow batches: the same function on executors (mapInArrow) and in the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from bridge.events import EVENT_FIELDS, EVENT_SCHEMA
from bridge.protocols import Decoder, RowEvents, decode_all
from bridge.protocols.decoder import FAILURES
from bridge.protocols.fast.byte_buffer import Numbers

_MANY: Final = 256
"""Messages from which on it pays to decode rows together."""
_FIRST: Final = 512
"""So many of those that cannot be decoded together are decoded one by one, and then it is tried again if that taught
something; if it did not suffice, again after four times as many, and so on."""
_LARGE: Final = 32 << 10
"""Bytes of a message, on the average, that make messages large."""
_TOGETHER_BYTES: Final = 32 << 20
"""Of keys and values that are decoded together, which takes some times as much memory."""


class Messages(NamedTuple):
    """Messages as columns; the fields are the columns that a source's DataFrame has: string, int, long, binary,
    binary."""

    topic: list[str]
    partition: list[int]
    offset: list[int]
    key: list[bytes | None]
    value: list[bytes | None]

    def part(self, which: slice) -> Messages:
        """Some of them."""
        return Messages(*(column[which] for column in self))  # type: ignore[arg-type]  # each of its type


def do_nothing() -> None:
    """For whom nothing is to be done."""


EventDecoder = Callable[[Iterable[Messages]], Iterator[pa.Table]]
"""Messages in, their events (EVENT_SCHEMA, in any order) out."""


def packed(events: pa.Table) -> bytes:
    """Events as an Arrow IPC stream: Spark moves one value instead of 14 columns of every event."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, EVENT_SCHEMA) as stream:
        stream.write_table(events)
    value: bytes = sink.getvalue().to_pybytes()
    return value


def unpacked(batches: Iterable[bytes]) -> pa.Table:
    """The events of packed batches, in one table (EVENT_SCHEMA)."""
    return pa.Table.from_batches([events for batch in batches for events in pa.ipc.open_stream(batch)], EVENT_SCHEMA)


def messages_of(batch: pa.RecordBatch) -> Messages:
    """A batch of a source's DataFrame."""
    return Messages(*(batch.column(name).to_pylist() for name in Messages._fields))


def decode_messages(decoder: Decoder, messages: Messages, when_large: Callable[[], None] = do_nothing) -> pa.Table:
    """The events of messages (EVENT_SCHEMA), in any order: together what can be decoded together, then the rest, one by
    one.

    when_large: called after messages that are large on the average were decoded.
    """
    size = sum(map(len, filter(None, messages.key))) + sum(map(len, filter(None, messages.value)))
    if size > _TOGETHER_BYTES and len(messages.value) > 1:
        half = len(messages.value) // 2
        halves = (messages.part(slice(half)), messages.part(slice(half, None)))
        events = pa.concat_tables([decode_messages(decoder, some, when_large) for some in halves])
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
    return pa.Table.from_batches(batches, EVENT_SCHEMA)


def _of(column: list[Any], kind: pa.DataType, numbers: Numbers) -> pa.Array:
    """What a column has of the messages of these numbers; mostly they are all of one partition."""
    if column.count(column[0]) == len(column):
        return pa.repeat(pa.scalar(column[0], kind), len(numbers))
    return pa.array(column, kind).take(pa.array(numbers))


def _decoded(decoder: Decoder, messages: Messages) -> Iterator[RowEvents]:
    """Events (EVENT_FIELDS), and of each the number of its message."""
    left, lots = _together(decoder, messages, np.arange(len(messages.value)))
    yield from lots
    count = _FIRST
    while len(left):
        learnt = decoder.learnt
        yield _one_by_one(decoder, messages, left[:count])
        left, count = left[count:], 4 * count
        if decoder.learnt > learnt:
            left, lots = _together(decoder, messages, left)
            yield from lots
        else:
            count = len(messages.value)


def _together(decoder: Decoder, messages: Messages, numbers: Numbers) -> tuple[Numbers, list[RowEvents]]:
    """Of the messages of these numbers those that cannot be decoded together, and the rows of the others."""
    lots: list[RowEvents] = []
    if len(numbers) < _MANY:
        return numbers, lots
    with suppress(*FAILURES, pa.ArrowException):
        found = decoder.usual_rows(*_some_of(messages, numbers))
        lots.extend(RowEvents(numbers[rows.numbers], rows.events) for rows in found)
    is_left = np.ones(len(messages.value), np.bool_)
    for rows in lots:
        is_left[rows.numbers] = False
    return numbers[is_left[numbers]], lots


def _one_by_one(decoder: Decoder, messages: Messages, numbers: Numbers) -> RowEvents:
    events, places = decode_all(decoder, *_some_of(messages, numbers))
    columns = list(zip(*events, strict=True)) if events else [()] * len(EVENT_FIELDS)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, EVENT_FIELDS, strict=True)]
    return RowEvents(numbers[places], pa.RecordBatch.from_arrays(arrays, schema=EVENT_FIELDS))


def _some_of(messages: Messages, numbers: Numbers) -> tuple[list[bytes | None], list[bytes | None]]:
    """Keys and values."""
    if len(numbers) == len(messages.value):
        return messages.key, messages.value
    which = numbers.tolist()
    return [messages.key[number] for number in which], [messages.value[number] for number in which]
