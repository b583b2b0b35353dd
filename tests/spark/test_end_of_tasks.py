"""What still runs when the bridge has come to its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bridge.spark.errors import SPARK_ENDED
from bridge.spark.session import end_tasks
from tests.support.command import SECONDS
from tests.support.waiting import wait_for


def running_tasks(spark: SparkSession) -> int:
    context: Any = spark.sparkContext
    return sum(one.numRunningTasks() for one in context._jsc.sc().statusTracker().getExecutorInfos())


def test_tasks_that_nobody_waits_for_are_ended(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is left when it returns, however long they would have run; and there is nothing to end then."""
    monkeypatch.setattr("bridge.spark.session._END_SECONDS", SECONDS)
    ended = threading.Event()

    def slow(numbers: Iterable[int]) -> Iterable[int]:
        time.sleep(10 * SECONDS)
        return numbers

    def run() -> None:
        with suppress(*SPARK_ENDED):
            spark.sparkContext.parallelize(range(2), 2).mapPartitions(slow).count()
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    wait_for(lambda: running_tasks(spark), "no task began", SECONDS)
    end_tasks(spark)
    assert running_tasks(spark) == 0
    assert ended.wait(SECONDS)
    end_tasks(spark)
