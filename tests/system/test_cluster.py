"""More than one machine: the job by spark-submit on a Spark standalone cluster, a worker of which is killed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import bridge
from bridge.local import Kafka
from bridge.stream.connector import KAFKA_PACKAGE
from tests.bench.database import fingerprint, make_tables
from tests.bench.encoders import ENCODERS
from tests.bench.topics import fill
from tests.bench.workload import PARTITIONS, WORKLOADS, Upstream, messages
from tests.system.clusters import SPARK_HOME, Cluster
from tests.system.command import Process
from tests.system.pipelines import applied_ts, kafka_arguments


def submit(folder: Path, cluster: Cluster, *arguments: str) -> Process:
    """The bridge as an application of the cluster."""
    properties = {"spark.pyspark.python": sys.executable, "spark.executor.memory": "512m"}
    conf = [part for name, value in properties.items() for part in ("--conf", f"{name}={value}")]
    program = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.url, "--packages", KAFKA_PACKAGE, *conf]
    return Process(folder, str(Path(bridge.__file__).with_name("__main__.py")), *arguments, program=program)


@pytest.mark.parametrize(
    ("driver_rows", "events"), [pytest.param(500_000, 40_000, marks=pytest.mark.soak), (0, 20_000)]
)
def test_a_worker_that_is_killed_costs_nothing_but_time(
    target: str, kafka: Kafka, topic: Callable[..., str], tmp_path: Path, driver_rows: int, events: int
) -> None:
    """Submitted to two workers of one core each, one is killed (SIGKILL) with its executor after the first
    transactions: what it held is read again, and the end is the upstream's."""
    name, workload = topic(PARTITIONS), WORKLOADS["sysbench"]
    upstream = Upstream(workload)
    fill(kafka.bootstrap_servers, name, messages(upstream, ENCODERS["canal-json"](PARTITIONS), events))
    make_tables(target, workload)
    sizes = {"messages_per_batch": 4000, "driver_rows": driver_rows}
    settings = [part for key, value in sizes.items() for part in ("--set", f"stream.{key}={value}")]
    arguments = kafka_arguments("replay", kafka.bootstrap_servers, name, target, *settings)
    with Cluster(workers=2) as cluster, submit(tmp_path, cluster, *arguments) as process:
        process.wait_for(lambda: applied_ts(target) > 0, "a first transaction")
        cluster.workers[0].kill()
        at_kill = applied_ts(target)
        assert process.wait() == 0, process.end_of_log
        assert applied_ts(target) > at_kill, "the kill came too late to tell anything"
    assert fingerprint(target, workload) == upstream.fingerprint()
