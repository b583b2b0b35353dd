"""Makes an archive of Spark's classes, which the JVM maps into memory instead of reading and verifying each class.

`bridge setup` makes it, once for each user; the start of a bridge then takes 4 s less processor time (Java, Class Data
Sharing).  The JVM itself checks that the archive is of the same Java and the same jars; otherwise it starts without it.
"""

from __future__ import annotations

import pickle
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from bridge.cache import cached, remove_unused
from bridge.errors import UsageError
from bridge.spark.chunk_source import FOLDER, NAME, ChunkSource, Offsets, answering
from bridge.spark.process_memory import ARCHIVE, PREFIX, QUIET, archive_name
from bridge.spark.session import start_session

_MICRO_BATCHES: Final = 3
_SECONDS: Final = 300
_UNUSED_SECONDS: Final = 30 * 86_400
"""After this, an archive (some 150 MB) is of a Java or of jars that are no longer there."""


def make_archive() -> Path:
    """Makes the archive unless it exists, and returns its path: runs a small stream, and lets the JVM write the classes
    that it has loaded.  Those that nobody has used for 30 days are removed.

    The process must not have a Spark session.  Raises UsageError when Spark does not start, or Java writes no archive.
    """
    archive = cached(archive_name(), _write_archive) / ARCHIVE
    remove_unused(PREFIX, _UNUSED_SECONDS)
    return archive


def _write_archive(folder: Path) -> None:
    options = f"-XX:ArchiveClassesAtExit={folder / ARCHIVE} {QUIET}"
    spark = start_session({"spark.driver.extraJavaOptions": options})
    _run_a_stream(spark)
    gateway = SparkContext._gateway
    spark.stop()
    gateway.shutdown()  # type: ignore[union-attr]
    gateway.proc.stdin.close()  # type: ignore[union-attr]
    try:
        gateway.proc.wait(_SECONDS)  # type: ignore[union-attr]
    except subprocess.TimeoutExpired:
        gateway.proc.kill()  # type: ignore[union-attr]
    if not (folder / ARCHIVE).is_file():
        raise UsageError(
            "Java wrote no archive of its classes", fix="nothing has to be done: bridges start without it, but slower"
        )


class _Numbers:
    """A stream of empty micro-batches, for `plans`."""

    def __init__(self) -> None:
        self._next = 0

    def initial(self) -> Offsets:
        return {}

    def latest(self) -> Offsets:
        self._next += 1
        return {"t": {"0": self._next}}

    newest = initial

    def tasks(self) -> list[bytes]:
        return [pickle.dumps(tuple)] * 2


def _run_a_stream(spark: SparkSession) -> None:
    batches: list[int] = []

    def process(batch: DataFrame, number: int) -> None:
        batch.collect()
        spark.sparkContext.parallelize(range(2), 2).map(str).collect()
        batches.append(number)

    spark.dataSource.register(ChunkSource)
    with tempfile.TemporaryDirectory() as checkpoint, answering(_Numbers(), checkpoint):
        stream = spark.readStream.format(NAME).option(FOLDER, checkpoint).load()
        query = stream.writeStream.foreachBatch(process).option("checkpointLocation", checkpoint).start()
        end = time.monotonic() + _SECONDS
        while len(batches) < _MICRO_BATCHES and query.isActive and time.monotonic() < end:
            time.sleep(0.1)
        query.stop()


if __name__ == "__main__":
    print(make_archive())
