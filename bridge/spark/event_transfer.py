"""Transfers decoded events from Spark's Python workers to the driver.

On one machine the workers write files, which the driver maps into memory, and only the names of the files pass through
Spark.  On a cluster, and when there is no room for files, the events themselves pass through Spark.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeGuard
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import SparkSession

from bridge.events import EVENT_SCHEMA
from bridge.rows.gathering import Amount

RESERVE_BYTES: Final = 16 << 20
"""How many bytes stay free in the file system of the folder.  Spark writes its own log there, and the temporary folder
of a container may be small.  A file that the driver has mapped takes its room until its events are applied."""
_FILE_NAME: Final = b"/"
_TOO_LARGE: Final = b"!"
"""First bytes of values that are not Arrow data, which never begins with them."""


class Chunk(NamedTuple):
    """A row of the stream.

    events: what the driver takes (`event_transfer.export_events`), or how much there was, if that was too large.
    rows: row changes in order that stay with Spark, in the same form.  outline: of row changes that stay (`_Outline`).
    """

    events: bytes
    rows: bytes | None = None
    outline: bytes | None = None


class TooLargeError(Exception):
    """The decoded events of a part of a micro-batch do not fit into the driver's memory.  The part must be read again
    in smaller parts.

    decoded: the rows and bytes that were decoded before the limit was exceeded.
    """

    def __init__(self, decoded: Amount) -> None:
        super().__init__(f"{decoded.rows} row changes have {decoded.bytes} bytes already")
        self.decoded = decoded


def coming_chunks(tables: Iterable[pa.Table], folder: str | None, most_bytes: float) -> Iterator[Chunk]:
    """Makes chunks of decoded events (EVENT_SCHEMA) that come to the driver, up to `most_bytes` together; the last one
    says how much there was if that was too large.

    folder: where tasks leave files; None where they may not.
    """
    decoded = Amount(0, 0)
    for events in tables:
        decoded = Amount.total([decoded, Amount.of(events)])
        if decoded.bytes > most_bytes:
            yield Chunk(_TOO_LARGE + b" ".join(b"%d" % count for count in decoded))
            return
        yield Chunk(export_events(events, folder))


def export_events(events: pa.Table, folder: str | None, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    """Writes events (EVENT_SCHEMA), or another table, as an Arrow IPC stream to a new file in `folder`, and returns its
    name.

    Without a folder, or when it has no room, returns the stream itself.
    """
    if has_room(folder, events.nbytes):
        file = Path(folder, f"{uuid4().hex}.events")
        try:
            with pa.OSFile(str(file), "wb") as sink:
                write_stream(events, sink, options)
        except OSError:
            file.unlink(missing_ok=True)
        else:
            return str(file).encode()
    buffer = pa.BufferOutputStream()
    write_stream(events, buffer, options)
    value: bytes = buffer.getvalue().to_pybytes()
    return value


def write_stream(table: pa.Table, sink: pa.NativeFile, options: pa.ipc.IpcWriteOptions | None = None) -> None:
    """Writes a table as an Arrow IPC stream."""
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)


def has_room(folder: str | None, size: float) -> TypeGuard[str]:
    """Tells whether there is a folder, and so many bytes are free in its file system besides the reserve."""
    try:
        return folder is not None and shutil.disk_usage(folder).free >= size + RESERVE_BYTES
    except OSError:
        return False


def is_file(value: bytes) -> bool:
    """Tells whether an exported value is the name of a file."""
    return value.startswith(_FILE_NAME)


def transfer_folder(spark: SparkSession, checkpoint: str) -> str | None:
    """Makes the folder through which executors on this machine transfer data to the driver, beside the query's
    checkpoint; None where they are elsewhere."""
    if not str(spark.sparkContext.master).startswith("local"):
        return None
    folder = Path(checkpoint, "events")
    folder.mkdir(exist_ok=True)
    return str(folder)


def import_events(values: Iterable[bytes]) -> pa.Table:
    """Returns the exported events (EVENT_SCHEMA).  Their files are unlinked; their content stays mapped as long as the
    table lives.

    Raises TooLargeError when they exceeded the limit of `coming_chunks`.
    """
    tables, too_large = [EVENT_SCHEMA.empty_table()], []
    for value in values:
        if value.startswith(_TOO_LARGE):
            too_large.append(Amount(*map(int, value.removeprefix(_TOO_LARGE).split())))
            continue
        tables.append(read_events(value))
        if is_file(value):
            Path(value.decode()).unlink()
    if too_large:
        raise TooLargeError(Amount.total(too_large))
    return pa.concat_tables(tables)


def read_events(value: bytes, options: pa.ipc.IpcReadOptions | None = None) -> pa.Table:
    """Reads what was exported.  A file stays; it is mapped into memory, and stays so as long as the table lives."""
    with pa.memory_map(value.decode()) if is_file(value) else pa.BufferReader(value) as source:
        return pa.ipc.open_stream(source, options=options).read_all()
