"""Event batches on their way from the processes that decode to the driver.

On one machine they lie in files in memory, which the driver maps, and only their names pass through Spark; that saves
the JVM, and both sides, 3 s of processor time for a million row changes.  Elsewhere, and where the memory is full, the
batches themselves pass through Spark.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa

from bridge.events import EVENT_SCHEMA
from bridge.pipeline.batch_decode import packed

RESERVE_BYTES: Final = 16 << 20
"""What is left free in the folder's file system: Spark writes its own log there, and a container's /dev/shm often has
64 MiB.  What the driver holds of files counts until it is applied."""
_NAME_BEGINS: Final = b"/"
"""With which no Arrow stream begins."""


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
    """The events that were handed over (EVENT_SCHEMA); files are gone then, and live on as long as the table does."""
    batches = [batch for value in values for batch in _batches(value)]
    return pa.Table.from_batches(batches, EVENT_SCHEMA)


def _batches(value: bytes) -> list[pa.RecordBatch]:
    if not value.startswith(_NAME_BEGINS):
        return list(pa.ipc.open_stream(value))
    file = Path(value.decode())
    with pa.memory_map(str(file)) as source:
        batches = list(pa.ipc.open_stream(source))
    file.unlink()
    return batches
