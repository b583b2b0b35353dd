"""A micro-batch whose row changes stay on Spark's executors, as the applier takes it."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from bridge.model import PartitionId
from bridge.pipeline.backlog import Arrival, control_events
from bridge.spark.executor_rows import on_executors


def arrival_on_executors(events: DataFrame, ends: Mapping[PartitionId, int]) -> Arrival:
    """What `backlog.arrival_of` gives, with the row changes left on the executors.

    Raises what Spark raises when a task fails.
    """
    store, others, read, by_time = on_executors(events)
    return store, control_events(others, read | dict(ends), by_time=by_time)
