"""Transfers decoded events from Spark's Python workers to the driver.

On one machine the workers write files, which the driver maps into memory, and only the names of the files pass through
Spark.  On a cluster, and when there is no room for files, the events themselves pass through Spark.
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
"""How many bytes stay free in the file system of the folder.  Spark writes its own log there, and the temporary folder
of a container may be small.  A file that the driver has mapped takes its room until its events are applied."""
_FILE_NAME: Final = b"/"
_TOO_LARGE: Final = b"!"
"""First bytes of values that are not Arrow streams, which never begin with them."""


class TooLargeError(Exception):
    """The decoded events of a part of a micro-batch do not fit into the driver's memory.  The part must be read again
    in smaller parts.

    found: the rows and bytes that were decoded before the limit was exceeded.
    """

    def __init__(self, found: Amount) -> None:
        super().__init__(f"{found.rows} row changes have {found.bytes} bytes already")
        self.found = found


def limited(tables: Iterable[pa.Table], most_bytes: float) -> Iterator[pa.Table]:
    """Yields the tables while they have at most `most_bytes` together; then raises TooLargeError."""
    found = Amount(0, 0)
    for events in tables:
        found = Amount.total([found, Amount.of(events)])
        if found.bytes > most_bytes:
            raise TooLargeError(found)
        yield events


def export_tables(tables: Iterable[pa.Table], folder: str | None, most_bytes: float) -> Iterator[bytes]:
    """Yields a value for each table, up to `most_bytes` together; beyond that a value that says how much there was."""
    try:
        for events in limited(tables, most_bytes):
            yield export_events(events, folder)
    except TooLargeError as error:
        yield _TOO_LARGE + b" ".join(b"%d" % count for count in error.found)


def export_events(events: pa.Table, folder: str | None) -> bytes:
    """Writes events (EVENT_SCHEMA) to a new file in `folder`, and returns its name.

    Without a folder, or when it has no room, returns the events as an Arrow IPC stream.
    """
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


def import_events(values: Iterable[bytes]) -> pa.Table:
    """Returns the exported events (EVENT_SCHEMA).  Their files are unlinked; their content stays mapped as long as the
    table lives.

    Raises TooLargeError when the events exceeded the limit of `export_tables`.
    """
    batches, too_large = [], []
    for value in values:
        if value.startswith(_TOO_LARGE):
            too_large.append(Amount(*map(int, value.removeprefix(_TOO_LARGE).split())))
        else:
            batches += _batches(value)
    if too_large:
        raise TooLargeError(Amount.total(too_large))
    return pa.Table.from_batches(batches, EVENT_SCHEMA)


def _batches(value: bytes) -> list[pa.RecordBatch]:
    if not value.startswith(_FILE_NAME):
        return list(pa.ipc.open_stream(value))
    file = Path(value.decode())
    with pa.memory_map(str(file)) as source:
        batches = list(pa.ipc.open_stream(source))
    file.unlink()
    return batches
