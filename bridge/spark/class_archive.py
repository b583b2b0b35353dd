"""Makes an archive of Spark's classes, which the JVM maps into memory instead of reading and verifying each class.

`bridge setup` makes it, once for each user, or the first `bridge run` does; the start of a bridge then takes 4 s less
processor time (Java, Class Data Sharing).  The JVM itself checks that the archive is of the same Java and the same
jars; otherwise it starts without it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import structlog
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from bridge.errors import UsageError
from bridge.local.cache import cached, remove_unused
from bridge.spark.java_options import ARCHIVE, PREFIX, QUIET, archive_name, java_options
from bridge.spark.kafka_source_api import jars_in
from bridge.spark.process_memory import machine_memory
from bridge.spark.session import is_submitted, start_session

_MICRO_BATCHES: Final = 3
_SECONDS: Final = 300
_UNUSED_SECONDS: Final = 30 * 86_400
"""After this, an archive (70 MB) is of a Java or of jars that are no longer there."""
_SETTLED_SECONDS: Final = 60.0
"""A bridge that has just started may have a backlog, and needs the machine itself."""
_LEAST_BYTES: Final = 4 << 30
"""A second JVM must not take the memory that the bridge needs."""
_BESIDE: Final = "--beside"
_MAKE: Final = ("nice", "-n", "19", sys.executable, "-m", "bridge.spark.class_archive", _BESIDE)
_TICK_SECONDS: Final = 1.0
_FETCH: Final = "from bridge.spark.session import start_session; start_session({}, with_kafka=True).stop()"
_NO_KAFKA: Final = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "kafka.default.api.timeout.ms": "500",
    "kafka.request.timeout.ms": "500",
    "fetchOffset.numRetries": "1",
    "fetchOffset.retryIntervalMs": "1",
    "subscribe": "none",
    "maxOffsetsPerTrigger": "1",
    "startingOffsets": '{"none": {"0": 0}}',
}
_CLASSES_OF_MESSAGES: Final = ("ApiKeys", "Errors")
"""These load the classes of all messages and errors, as a Kafka client does at the first answer of a broker."""

log = structlog.get_logger()


def make_archive() -> Path:
    """Makes the archive unless it exists, and returns its path: runs a small stream, and lets the JVM write the classes
    that it has loaded.  Those that nobody has used for 30 days are removed.

    The process must not have a Spark session.  Raises UsageError when Spark does not start.
    """
    if not jars_in() and subprocess.run([sys.executable, "-c", _FETCH], check=False).returncode:
        raise UsageError(
            "Spark's connector for Kafka was not fetched", fix="the lines above tell why; fix that and try again"
        )
    archive = cached(archive_name(), _write_archive) / ARCHIVE
    remove_unused(PREFIX, _UNUSED_SECONDS)
    return archive


def _write_archive(folder: Path) -> None:
    options = f"-XX:ArchiveClassesAtExit={folder / ARCHIVE} {QUIET}"
    spark = start_session({"spark.driver.extraJavaOptions": options}, with_kafka=True)
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


def _run_a_stream(spark: SparkSession) -> None:
    batches: list[int] = []

    def process(batch: DataFrame, number: int) -> None:
        spark.sparkContext.parallelize(batch.collect(), 2).map(str).collect()
        batches.append(number)

    without_kafka = spark.readStream.format("kafka").options(**_NO_KAFKA)
    with suppress(PySparkException), _streaming(without_kafka, process) as query:
        query.awaitTermination(_SECONDS)  # its classes are loaded by then
    for name in _CLASSES_OF_MESSAGES:
        spark.sparkContext._gateway.jvm.java.lang.Class.forName(f"org.apache.kafka.common.protocol.{name}")  # type: ignore[union-attr]
    with _streaming(spark.readStream.format("rate"), process) as query:
        end = time.monotonic() + _SECONDS
        while len(batches) < _MICRO_BATCHES and query.isActive and time.monotonic() < end:
            time.sleep(0.1)


@contextmanager
def _streaming(reader: DataStreamReader, process: Callable[[DataFrame, int], None]) -> Iterator[StreamingQuery]:
    with tempfile.TemporaryDirectory() as checkpoint:
        query = reader.load().writeStream.foreachBatch(process).option("checkpointLocation", checkpoint).start()
        try:
            yield query
        finally:
            query.stop()


@dataclass(frozen=True)
class Prepared:
    """What is there now.

    connector: the jars of Spark's connector for Kafka.
    archive: the archive of Spark's classes, "" without one; why: why there is none.
    """

    connector: tuple[str, ...]
    archive: str
    why: str = ""

    def document(self) -> dict[str, Any]:
        """Returns it as a JSON document."""
        return asdict(self)


def prepare() -> Prepared:
    """Fetches Spark's connector for Kafka, and makes the archive of Spark's classes, unless they are there.

    Raises UsageError when the connector cannot be fetched; a bridge starts without the archive, but slower.
    """
    archive, why = "", ""
    try:
        archive = str(make_archive())
    except UsageError as error:
        if not jars_in():
            raise
        why = error.what
    return Prepared(tuple(map(str, jars_in())), archive, why)


@contextmanager
def made_beside(seconds: float = _SETTLED_SECONDS) -> Iterator[None]:
    """Makes the archive while the block runs, unless it is there: after `seconds`, in a process of its own, which has
    the lowest priority and ends with the block.

    Not where memory is short, nor where spark-submit starts the JVM.  If it cannot be made, the log says so.
    """
    memory = machine_memory()
    if java_options() or is_submitted() or (memory is not None and memory < _LEAST_BYTES):
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_make_beside, args=(ended, seconds), name="class-archive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _make_beside(ended: threading.Event, seconds: float) -> None:
    if ended.wait(seconds):
        return
    with subprocess.Popen(
        _MAKE,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as making:
        while making.poll() is None and not ended.wait(_TICK_SECONDS):
            pass
        if making.poll() is None:
            os.killpg(making.pid, signal.SIGKILL)
            return
    log.info("class_archive", made=not making.returncode)


def _end_with_parent() -> None:
    """Ends this process and its JVM when the one that started it has ended, which closes its end of the pipe."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    if _BESIDE in sys.argv:
        _end_with_parent()
    print(make_archive())
