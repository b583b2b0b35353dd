"""Decoding as Arrow batches: the same function on executors (mapInArrow) and in the driver."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple
from zipimport import zipimporter

import pyarrow as pa

from bridge.events import EVENT_SCHEMA
from bridge.protocols import DecodeOptions, Decoder, decode_message, make_decoder


class Messages(NamedTuple):
    """Messages as columns; the fields are the columns that a source's DataFrame has: string, int, long, binary,
    binary."""

    topic: list[str]
    partition: list[int]
    offset: list[int]
    key: list[bytes | None]
    value: list[bytes | None]


PACKED_SCHEMA: Final = pa.schema([pa.field("events", pa.binary(), nullable=False)])
"""One row per Arrow batch of messages: its events as an Arrow IPC stream.  Spark moves a few large values instead of
13 columns of every event through rows and back."""


MessageDecoder = Callable[[Iterable[Messages]], Iterator[pa.RecordBatch]]
"""Messages in, packed batches of events (PACKED_SCHEMA) out."""


def message_decoder(protocol: str, options: DecodeOptions) -> MessageDecoder:
    """A decoder to be sent to Spark's Python workers."""

    def decode(messages: Iterable[Messages]) -> Iterator[pa.RecordBatch]:
        gc.disable()  # a worker that only decodes makes no cycles
        _keep_zip_directories()
        decoder = make_decoder(protocol, options)
        for some in messages:
            yield _packed(decode_messages(decoder, some))

    return decode


def _keep_zip_directories() -> None:
    """PySpark drops all import caches at every task, and a zip on the path (pyspark.zip) is then read anew, entry by
    entry in Python: half of a decoding worker's time (py-spy).  The zips do not change while a worker lives."""
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):
            finder.invalidate_caches = _nothing_to_drop  # type: ignore[method-assign]


def _nothing_to_drop() -> None:
    pass


def _packed(events: pa.RecordBatch) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, EVENT_SCHEMA) as stream:
        stream.write_batch(events)
    return pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], schema=PACKED_SCHEMA)


def unpacked(packed: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Packed batches to batches of events (EVENT_SCHEMA); also a function for mapInArrow."""
    for batch in packed:
        for value in batch.column(0):
            yield from pa.ipc.open_stream(value.as_buffer())


def messages_of(batch: pa.RecordBatch) -> Messages:
    """A batch of a source's DataFrame."""
    return Messages(*(batch.column(name).to_pylist() for name in Messages._fields))


def decode_messages(decoder: Decoder, messages: Messages) -> pa.RecordBatch:
    """The events of messages (EVENT_SCHEMA), in their order."""
    sources: list[int] = []
    events = []
    for i, (key, value) in enumerate(zip(messages.key, messages.value, strict=True)):
        decoded = decode_message(decoder, key, value)
        events.extend(decoded)
        sources.extend([i] * len(decoded))
    columns = list(zip(*events, strict=True)) if events else [()] * (len(EVENT_SCHEMA) - 3)
    positions = [[column[i] for i in sources] for column in messages[:3]]
    arrays = [
        pa.array(column, type=field.type) for column, field in zip([*positions, *columns], EVENT_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=EVENT_SCHEMA)
