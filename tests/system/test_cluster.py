"""More than one machine: the job by spark-submit on a Spark standalone cluster, a worker of which is killed."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import bridge
from bridge.local import Kafka
from bridge.spark.process_memory import driver_java_options
from tests.bench.database import fingerprint, make_tables
from tests.bench.encoders import ENCODERS
from tests.bench.topics import fill
from tests.bench.workload import PARTITIONS, WORKLOADS, Upstream, messages
from tests.support import command
from tests.support.bridges import applied_ts, kafka_arguments
from tests.support.clusters import SPARK_HOME, Cluster
from tests.support.command import Process
from tests.support.pipelines import sql
from tests.support.verify_servers import execute


def submit(folder: Path, master: str, *arguments: str) -> Process:
    """The bridge as an application of a cluster, by its URL."""
    properties = {
        "spark.pyspark.python": sys.executable,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    conf = [part for name, value in properties.items() for part in ("--conf", f"{name}={value}")]
    program = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master, *conf]
    script = str(Path(bridge.__file__).with_name("__main__.py"))
    sooner = {"SPARK_SUBMIT_OPTS": driver_java_options()}
    return Process(folder, script, *arguments, program=program, environment=sooner)


def ends_with_0(process: Process, number: signal.Signals) -> None:
    """By a signal that reaches the JVM only, which hands it over: from then on nothing is said to have failed.  Spark
    itself may have told before what a lost executor did."""
    before = len(process.lines)
    process.signal(number)
    assert process.wait(60) == 0, process.end_of_log
    assert not [line for line in process.lines[before:] if "Traceback" in line], process.log
    assert process.last_line.startswith("bridge: stopped; everything below"), process.end_of_log


IN_A_STEP = "SELECT COALESCE(MAX(applying_ts > applied_ts AND applied_ts > 0), 0) FROM _bridge.progress"


@pytest.mark.parametrize(
    ("consistency", "driver_rows", "events"),
    [
        pytest.param("atomic", 500_000, 40_000, marks=pytest.mark.soak),
        pytest.param("atomic", 0, 10_000, marks=pytest.mark.soak),
        ("parallel", 0, 10_000),
    ],
)
def test_a_worker_that_is_killed_costs_nothing_but_time(
    target: str,
    kafka: Kafka,
    topic: Callable[..., str],
    tmp_path: Path,
    consistency: str,
    driver_rows: int,
    events: int,
) -> None:
    """Submitted to two workers of one core each, one is killed (SIGKILL) with its executor after the first
    transactions, or while both write a step: what it held is read again, and the end is the upstream's.  SIGTERM and
    Ctrl-C end it with 0."""
    name, workload = topic(PARTITIONS), WORKLOADS["sysbench"]
    upstream = Upstream(workload)
    sent = list(messages(upstream, ENCODERS["canal-json"](PARTITIONS), events, boundary_every=200))
    end = json.loads(sent[-1].value)["_tidb"]["watermarkTs"]
    make_tables(target, workload)
    sizes = {"messages_per_batch": 3000, "driver_rows": driver_rows, "rows_per_transaction": 300}
    settings = [part for key, value in sizes.items() for part in ("--set", f"stream.{key}={value}")]
    arguments = kafka_arguments("run", kafka.bootstrap_servers, name, target, "--consistency", consistency, *settings)
    with Cluster(workers=2) as cluster, submit(tmp_path, cluster.url, *arguments) as process:
        process.says("spark_started")
        fill(kafka.bootstrap_servers, name, sent)
        process.wait_for(lambda: applied_ts(target) > 0, "a first transaction")
        if consistency == "parallel":
            process.wait_for(lambda: sql(target, IN_A_STEP) == [(1,)], "a step that executors write")
        cluster.workers[0].kill()
        assert applied_ts(target) < end, "the kill came too late to tell anything"
        process.wait_for(lambda: applied_ts(target) >= end, "the end")
        ends_with_0(process, signal.SIGTERM if consistency == "parallel" else signal.SIGINT)
    dropped = [line for line in process.lines if "late_changes_dropped" in line]
    assert not dropped, "\n".join(dropped) + f"\nthe end of the log:\n{process.end_of_log}"
    assert fingerprint(target, workload) == upstream.fingerprint(), process.end_of_log
    assert sql(target, f"SELECT applied_ts >= {end}, applying_ts = applied_ts FROM _bridge.progress") == [(1, 1)]
    assert ("executors_write" in process.log) is (consistency == "parallel")


@pytest.mark.soak
def test_verify_finds_and_fixes_what_differs(
    target: str, kafka: Kafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """With executors that share no folder with the driver, hashes pass through Spark, and then the rows of the ranges
    that differ: one that is changed, one that is lost, and one that the log deleted."""
    name, workload = topic(PARTITIONS), WORKLOADS["sysbench"]
    upstream = Upstream(workload)
    fill(kafka.bootstrap_servers, name, messages(upstream, ENCODERS["canal-json"](PARTITIONS), 120_000))
    make_tables(target, workload)
    assert command.bridge(*kafka_arguments("replay", kafka.bootstrap_servers, name, target)).code == 0
    first = workload.shapes[0]
    table = f"{first.schema}.{first.name}"
    ids = {number for (number,) in sql(target, f"SELECT id FROM {table}")}
    low, high = min(ids), max(ids)
    deleted = min(set(range(low, high)) - ids)
    execute(
        target,
        f"UPDATE {table} SET k = k + 1 WHERE id = {low}; DELETE FROM {table} WHERE id = {high};"
        f" INSERT INTO {table} SELECT {deleted}, k, c, pad FROM {table} WHERE id = {low}",
    )
    fixes = tmp_path / "fix.sql"
    arguments = kafka_arguments("verify", kafka.bootstrap_servers, name, target, "--against", "log")
    with Cluster(workers=2) as cluster:
        with submit(tmp_path, cluster.url, *arguments, "--fix-sql", str(fixes)) as process:
            assert process.wait(180) == 1, process.end_of_log
        execute(target, fixes.read_text())
        with submit(tmp_path, cluster.url, *arguments) as process:
            assert process.wait(180) == 0, process.end_of_log
    assert fingerprint(target, workload) == upstream.fingerprint()
