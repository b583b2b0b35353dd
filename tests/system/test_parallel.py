"""`--consistency parallel` through Kafka and Spark, killed in mid-stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bridge.demo.encode import ENCODERS
from bridge.local import Kafka
from tests.bench.topics import fill
from tests.bench.workload import PARTITIONS, SCHEMA, START_TS, WORKLOADS, Upstream, messages
from tests.support.bridges import applied_ts
from tests.support.command import Process
from tests.support.pipelines import admin

SMALL = (
    *("stream.writers=3", "stream.messages_per_batch=5000", "stream.rows_per_transaction=3000"),
    "stream.driver_rows=15000",
)
LARGE = ("stream.writers=8", "spark.spark.master=local[8]", "stream.driver_rows=0", "stream.messages_per_batch=20000")
"""Executors write, and so many that they would write steps that the driver could hold, too."""


@pytest.mark.parametrize(("events", "settings"), [(24_000, SMALL), (120_000, LARGE)], ids=["small", "large"])
@pytest.mark.soak
def test_killed_in_mid_stream_it_ends_equal(
    target: str, kafka: Kafka, topic: Callable[..., str], tmp_path: Path, events: int, settings: Sequence[str]
) -> None:
    """Steps go over several connections, of the driver or of executors; a kill between any of them changes nothing in
    the end."""
    name, upstream = topic(PARTITIONS), Upstream(WORKLOADS["sysbench"])
    fill(kafka.bootstrap_servers, name, messages(upstream, ENCODERS["canal-json"](PARTITIONS), events))
    with admin(target) as session:
        for statement in upstream.workload.statements:
            session.execute(statement)
    arguments = [
        "replay", "--protocol", "canal-json", "--bootstrap-servers", kafka.bootstrap_servers, "--topic", name,
        "--target", target, "--consistency", "parallel", *(part for one in settings for part in ("--set", one)),
    ]  # fmt: skip
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with Process(first, *arguments) as process:
        if settings is LARGE:
            process.wait_for(lambda: "executors_write" in process.log, "executors that write")
        process.wait_for(lambda: applied_ts(target) > START_TS + (1000 << 18), "some rows")
        process.kill()
    with Process(second, *arguments) as process:
        assert process.wait() == 0, process.end_of_log
        assert "written_again" not in process.log
    with admin(target) as session:
        found = {row[0]: row for row in session.rows(f"SELECT id, k, c, pad FROM {SCHEMA}.sbtest")}
        assert found == {row[0]: row for row in upstream.rows()}
        assert session.value("SELECT applying_ts = applied_ts FROM _bridge.progress") == 1
