"""Keeps Spark's classes as an archive that the JVM maps into memory instead of reading and verifying each class.

`python -m bridge.spark.class_archive` makes it, once for each user; a bridge then starts with 4 s less of processor
time (Java, Class Data Sharing).
The JVM itself checks that an archive is of its own version and of the same jars; if not, it starts without it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from bridge.errors import UsageError
from bridge.local.cache import cached
from bridge.spark.java_options import ARCHIVE, QUIET, archive_name
from bridge.spark.kafka_source_api import jars_in
from bridge.spark.session import start_session

_MICRO_BATCHES: Final = 3
_SECONDS: Final = 120
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
_IN_USE: Final = ("ApiKeys", "Errors")
"""Load the classes of all messages and errors, as a Kafka client does when it first hears from a broker."""


def make_archive() -> Path:
    """Makes the archive unless it is there: runs a small stream and lets the JVM write down the classes that it has
    loaded.

    Only for a process without a Spark session.  Raises UsageError when Spark does not start.
    """
    if not jars_in() and subprocess.run([sys.executable, "-c", _FETCH], check=False).returncode:
        raise UsageError("Spark's connector for Kafka was not fetched", fix="the reason stands above; then try again")
    return cached(archive_name(), _fill) / ARCHIVE


def _fill(folder: Path) -> None:
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
        raise UsageError("Java wrote no archive of its classes", fix="bridges start without one, a little later")


def _run_a_stream(spark: SparkSession) -> None:
    seen: list[int] = []

    def take(batch: DataFrame, number: int) -> None:
        spark.sparkContext.parallelize(batch.collect(), 2).map(str).collect()
        seen.append(number)

    without_kafka = spark.readStream.format("kafka").options(**_NO_KAFKA)
    with suppress(PySparkException), _streaming(without_kafka, take) as query:
        query.awaitTermination(_SECONDS)  # its classes are loaded by then
    for name in _IN_USE:
        spark.sparkContext._gateway.jvm.java.lang.Class.forName(f"org.apache.kafka.common.protocol.{name}")  # type: ignore[union-attr]
    with _streaming(spark.readStream.format("rate"), take) as query:
        end = time.monotonic() + _SECONDS
        while len(seen) < _MICRO_BATCHES and query.isActive and time.monotonic() < end:
            time.sleep(0.1)


@contextmanager
def _streaming(reader: DataStreamReader, take: Callable[[DataFrame, int], None]) -> Iterator[StreamingQuery]:
    with tempfile.TemporaryDirectory() as checkpoint:
        query = reader.load().writeStream.foreachBatch(take).option("checkpointLocation", checkpoint).start()
        try:
            yield query
        finally:
            query.stop()


if __name__ == "__main__":
    print(make_archive())
