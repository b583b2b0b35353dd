"""`--consistency parallel` through Kafka and Spark, killed in mid-stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bridge.demo.encode import ENCODERS
from bridge.local import Kafka
from tests.bench.topics import fill
from tests.bench.workload import PARTITIONS, SCHEMA, START_TS, WORKLOADS, Upstream, messages
from tests.support.bridges import applied_ts
from tests.support.command import Process
from tests.support.pipelines import admin

EVENTS = 24_000


def test_killed_in_mid_stream_it_ends_equal(
    target: str, kafka: Kafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Steps go over several connections; a kill between any of them changes nothing in the end, and neither does that
    15,000 messages are read while Spark starts."""
    name, upstream = topic(PARTITIONS), Upstream(WORKLOADS["sysbench"])
    fill(kafka.bootstrap_servers, name, messages(upstream, ENCODERS["canal-json"](PARTITIONS), EVENTS))
    with admin(target) as session:
        for statement in upstream.workload.statements:
            session.execute(statement)
    arguments = [
        "replay", "--protocol", "canal-json", "--bootstrap-servers", kafka.bootstrap_servers, "--topic", name,
        "--target", target, "--consistency", "parallel", "--set", "stream.writers=3",
        "--set", "stream.messages_per_batch=5000", "--set", "stream.rows_per_transaction=3000",
        "--set", "stream.driver_rows=15000",
    ]  # fmt: skip
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with Process(first, *arguments) as process:
        process.wait_for(lambda: applied_ts(target) > START_TS + (1000 << 18), "some rows")
        process.kill()
    with Process(second, *arguments) as process:
        assert process.wait() == 0, process.end_of_log
    with admin(target) as session:
        found = {row[0]: row for row in session.rows(f"SELECT id, k, c, pad FROM {SCHEMA}.sbtest")}
        assert found == {row[0]: row for row in upstream.rows()}
        assert session.value("SELECT applying_ts = applied_ts FROM _bridge.progress") == 1
