"""A replication bridge from change messages in Kafka to a MySQL-compatible target."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Arrow's allocator returns freed memory to the system after so many ms, 10 by default, and takes it again for the next
# micro-batch, page by page.  pyarrow reads it when it is imported, also in Spark's Python workers.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10000")

# NumPy's BLAS, which nothing uses, starts a thread for each core, and they look for work for 0.1 s of processor time
# (measured): most of what importing NumPy costs.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# pyarrow tries to import dateutil for each Python value that it is given (pa.scalar, pc.equal(column, "t")), and that
# takes 0.1 ms where that is not installed.  Where Python knows that it is not there, it takes nothing.
if find_spec("dateutil") is None:
    sys.modules["dateutil"] = None  # type: ignore[assignment]


def register(spark: SparkSession) -> None:
    """Registers the data source `bridge`, so that `spark.read.format("bridge")` and `spark.readStream.format("bridge")`
    give decoded change events (`bridge.spark.data_source`)."""
    from bridge.spark.data_source import EventSource

    spark.dataSource.register(EventSource)
