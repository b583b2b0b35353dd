"""What Spark's failures mean."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bridge.errors import ApplyError, BridgeError, RefusedRowsError, RegistryAwayError, SourceError, UnansweredError
from bridge.spark.errors import (
    MOST_LOSSES,
    SPARK_ENDED,
    ExecutorLost,
    Losses,
    is_executor_lost,
    is_worker_killed,
    source_error,
)
from bridge.spark.session import end_tasks
from tests.support.command import SECONDS
from tests.support.waiting import wait_for

LOST = (
    "Job aborted due to stage failure: Task 1 in stage 53.0 failed 4 times: org.apache.spark.SparkException:"
    " [CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_12_0 not found!"
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PySparkException(LOST), True),
        (PySparkException("[STREAM_FAILED] Query [id = 6] terminated: Python worker failed to connect back."), True),
        (PySparkException("org.apache.kafka.common.errors.TimeoutException: no answer"), False),
        (ValueError(LOST), False),
    ],
)
def test_only_lost_chunks_begin_anew(error: Exception, expected: bool) -> None:
    """A checkpointed chunk whose executor is gone is no failure, nor is a worker that came too late; everything else
    that Spark raises is."""
    assert is_executor_lost(error) is expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PySparkException("job failed: Python worker exited unexpectedly (crashed). Consider setting"), True),
        (PySparkException("EOFException occurred while reading the port number from pyspark.daemon's stdout."), True),
        (PySparkException("[STREAM_FAILED] Query [id = 6] terminated with exception:  SQLSTATE: XXKST\n=== St"), True),
        (PySparkException("[STREAM_FAILED] Query [id = 6] terminated with exception: Broken pipe SQLSTATE: X"), True),
        (PySparkException("[STREAM_FAILED] Query [id = 6] terminated with exception: no SQLSTATE: XXKST\n"), False),
        (PySparkException("org.apache.kafka.common.errors.TimeoutException: no answer"), False),
    ],
)
def test_a_killed_worker_is_no_failure(error: Exception, expected: bool) -> None:
    """Nor is a planner that was killed, of which Spark has hardly a word."""
    assert is_worker_killed(error) is expected
    assert ("kernel's log" in str(source_error(error))) is expected  # verify does not begin anew


def test_losses_without_progress_end() -> None:
    """Executors that end again and again at one place stop the bridge; progress between them forgives."""
    losses = Losses()
    for applied_ts in (1, 2):
        for _ in range(MOST_LOSSES - 1):
            losses.count(ExecutorLost(LOST), applied_ts)
    with pytest.raises(SourceError, match="again and again: Job aborted"):
        losses.count(ExecutorLost(LOST), 2)


def test_the_innermost_exception_is_shown() -> None:
    """Spark's traces are long; the cause stands in the last "Caused by"."""
    error = PySparkException("org.a.SparkException: job failed\n\tat x\nCaused by: org.b.DiskException: disk full\n")
    assert "a Spark job failed: org.b.DiskException: disk full" in str(source_error(error))


@pytest.mark.parametrize(
    ("said", "is_away"),
    [
        ("bridge.errors.UnansweredError: no message came for 60 s; at cdc/0/7", True),
        ("org.apache.kafka.common.errors.UnknownTopicOrPartitionException: gone", False),
        ("org.apache.kafka.common.errors.SaslAuthenticationException: refused", False),
        ("java.lang.IllegalStateException: offsets were lost", False),
    ],
)
def test_a_kafka_that_is_away_may_answer_later(said: str, is_away: bool) -> None:
    """It is waited for; what no time cures is not."""
    error = PySparkException(f"org.a.SparkException: job failed\nCaused by: {said}\n\tat org.b")
    assert isinstance(source_error(error), UnansweredError) is is_away


def test_a_full_disk_is_no_fault_of_kafka() -> None:
    """Spark's own words come with the plan of the query, in one line, and name no folder."""
    said = "[STREAM_FAILED] Query [id = 8ad4] terminated with exception: java.io.IOException: No space left on device"
    error = source_error(Exception(f"{said} SQLSTATE: XXKST\n=== Streaming Query ===\nPlan:\n~Write"))
    assert str(error).startswith(f"a Spark job failed: {said}; fix: make room where Spark writes")


def test_what_the_bridge_raised_on_an_executor_speaks_for_itself() -> None:
    """Rows that the target's columns cannot hold are no fault of the source, and their own fix is shown."""
    raised = RefusedRowsError("the column n is INT", table=("m", "t"), code="x", where="commit ts 7", fix="alter it")
    error = PySparkException(f"org.a.SparkException: job failed\n  bridge\nbridge.errors.RefusedRowsError: {raised}\n")
    shown = source_error(error)
    assert isinstance(shown, ApplyError)
    assert str(shown) == str(raised)


@pytest.mark.parametrize(
    ("named", "is_bug"),
    [
        ("KeyError: 'x'", True),
        ("pyarrow.lib.ArrowInvalid: offset overflow", True),
        ("UnicodeDecodeError: 'utf-8' codec", True),
        ("pyarrow.lib.ArrowMemoryError: malloc failed", False),
        ("bridge.errors.SourceError: no message came", False),
        ("OSError: [Errno 28] No space left on device", False),
        ("org.apache.kafka.common.KafkaException: ValueError: no", False),
    ],
)
def test_a_bug_on_an_executor_is_no_fault_of_the_source(named: str, is_bug: bool) -> None:
    """It is none of the bridge's errors, so that the command ends with 70 and not with advice about Kafka."""
    shown = source_error(PySparkException(f"org.a.SparkException: job failed\n  at x\n{named}\n\n\tat org.b"))
    assert isinstance(shown, BridgeError) is not is_bug
    assert named in str(shown)


def test_an_error_is_told_without_the_jvm_that_knows_its_text() -> None:
    """Which may be what has failed: killed for want of memory, for example."""

    class UntoldError(Py4JError):
        def __str__(self) -> str:
            raise Py4JNetworkError

    assert "the JVM has ended" in str(source_error(UntoldError("o1")))
    assert not is_executor_lost(UntoldError("o1"))


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        Py4JNetworkError("Error while sending or receiving"),
        PySparkException("java.lang.OutOfMemoryError: heap"),
    ],
)
def test_a_jvm_that_has_ended_is_no_fault_of_the_target(error: Exception) -> None:
    """Nor of Kafka: most often it ran out of memory."""
    shown = source_error(error)
    assert isinstance(shown, BridgeError)
    assert "Spark's JVM has ended" in shown.what
    assert "spark.driver.memory" in shown.fix


@pytest.mark.parametrize(
    "error",
    [
        RegistryAwayError("the schema registry does not answer (http://r: HTTP 503)", where="t/0/7", fix="check it"),
        SourceError("the schema registry http://r refuses the schema 7: HTTP 401", where="t/0/7", fix="check it"),
    ],
)
def test_a_schema_registry_on_an_executor(error: SourceError) -> None:
    """What is said of it comes through whole, with the message's place; one that is away may answer later."""
    of_spark = PySparkException(
        f"org.a.SparkException: job failed\nCaused by: bridge.errors.{type(error).__name__}: {error}"
    )
    made = source_error(of_spark)
    assert (type(made), str(made)) == (type(error), str(error))


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
