"""Brings batches of events from the processes that decode to the driver.

On one machine the events are in files, which the driver maps into memory, and only the files' names pass through Spark.
On a cluster, and where there is no room for files, the batches themselves pass through Spark.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa

from bridge.events import EVENT_SCHEMA
from bridge.protocols.batch_decode import packed
from bridge.rows.amount import Amount

RESERVE_BYTES: Final = 16 << 20
"""How much stays free in the folder's file system.  Spark writes its own log there, and a container's temporary folder
may be small.  Files that the driver has mapped count until they are applied."""
_NAME_BEGINS: Final = b"/"
_GIVEN_UP: Final = b"!"
"""Bytes with which no Arrow stream begins."""


class TooLargeError(Exception):
    """A part of a micro-batch, once decoded, is more than the driver has room for.  It must be read again in smaller
    parts."""

    def __init__(self, found: Amount) -> None:
        super().__init__(f"{found.rows} row changes have {found.bytes} bytes already")
        self.found = found


def within(tables: Iterable[pa.Table], most_bytes: float) -> Iterator[pa.Table]:
    """The tables, as long as they have at most so many bytes together; then raises TooLargeError."""
    found = Amount(0, 0)
    for events in tables:
        found = Amount.total([found, Amount.of(events)])
        if found.bytes > most_bytes:
            raise TooLargeError(found)
        yield events


def packed_for_driver(tables: Iterable[pa.Table], folder: str | None, most_bytes: float) -> Iterator[bytes]:
    """Hands over each of the tables, up to so many bytes together; beyond them only the word that there was more."""
    try:
        for events in within(tables, most_bytes):
            yield handed_over(events, folder)
    except TooLargeError as error:
        yield _GIVEN_UP + b" ".join(b"%d" % count for count in error.found)


def handed_over(events: pa.Table, folder: str | None) -> bytes:
    """The name of a new file in `folder` that holds the events (EVENT_SCHEMA); without a folder, or where there is no
    room in it, the events as an Arrow IPC stream."""
    if folder is None or _free_bytes(folder) < events.nbytes + RESERVE_BYTES:
        return packed(events)
    file = Path(folder, f"{uuid4().hex}.events")
    try:
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, EVENT_SCHEMA) as stream:
            stream.write_table(events)
    except OSError:
        file.unlink(missing_ok=True)
        return packed(events)
    return str(file).encode()


def _free_bytes(folder: str) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def taken(values: Iterable[bytes]) -> pa.Table:
    """The events that were handed over (EVENT_SCHEMA); files are gone then, and live on as long as the table does.

    Raises TooLargeError when there was more than was to be handed over.
    """
    batches, given_up = [], []
    for value in values:
        if value.startswith(_GIVEN_UP):
            given_up.append(Amount(*map(int, value.removeprefix(_GIVEN_UP).split())))
        else:
            batches += _batches(value)
    if given_up:
        raise TooLargeError(Amount.total(given_up))
    return pa.Table.from_batches(batches, EVENT_SCHEMA)


def _batches(value: bytes) -> list[pa.RecordBatch]:
    if not value.startswith(_NAME_BEGINS):
        return list(pa.ipc.open_stream(value))
    file = Path(value.decode())
    with pa.memory_map(str(file)) as source:
        batches = list(pa.ipc.open_stream(source))
    file.unlink()
    return batches
