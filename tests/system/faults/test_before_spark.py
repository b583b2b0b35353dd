"""The driver reads and applies by itself while Spark's JVM takes long to start, and something happens meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from bridge.local import Kafka
from tests.support.bridges import PARTITIONS, applied_ts, assert_equal, running
from tests.support.command import Process, bridge
from tests.support.feeds import Feed
from tests.support.pipelines import sql
from tests.support.topics import delete_topic

JAVA = """#!/bin/sh
while [ -e "{hold}" ]; do sleep 0.1; done
[ -e "{fail}" ] && {{ echo "Error: Could not create the Java Virtual Machine." >&2; exit 1; }}
exec {java} "$@"
"""
WAYS = ["atomic", "parallel"]
LEDGER = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'bank' AND table_name = 'ledger'"
SECONDS = 60.0


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[Kafka]:
    """A broker of this module's own, which its tests kill."""
    with Kafka() as kafka:
        yield kafka


@dataclass
class Scene:
    """A bridge whose JVM has to wait, while messages come."""

    kafka: Kafka
    topic: str
    target: str
    folder: Path
    feed: Feed
    process: Process

    def finish(self) -> None:
        """Sends what is still to come, and waits until it is in the target."""
        end = self.feed.finish()

        self.process.wait_for(lambda: applied_ts(self.target) >= end, "its end", SECONDS)

    def let_spark_start(self, *, fails: bool = False) -> None:
        """Or have it fail."""
        if fails:
            (self.folder / "fail").touch()
        (self.folder / "hold").unlink()

    def some(self) -> None:
        """Some more messages."""
        for _ in range(20):
            self.feed.beat()


@contextmanager
def scene(kafka: Kafka, target: str, folder: Path, *more: str) -> Iterator[Scene]:
    """The bridge has applied what was there when it started, and Spark is not there."""
    name = f"before-{time.monotonic_ns()}"
    kafka.create_topic(name, PARTITIONS)
    (folder / "bin").mkdir()
    hold, fail, java = folder / "hold", folder / "fail", folder / "bin" / "java"
    hold.touch()
    java.write_text(JAVA.format(hold=hold, fail=fail, java=shutil.which("java")))
    java.chmod(0o755)
    environment = {"PATH": f"{java.parent}:{os.environ['PATH']}", "JAVA_HOME": ""}
    with Feed(kafka.bootstrap_servers, name, copies=False, lags=True) as feed:
        feed.open_bank()
        for _ in range(20):
            feed.beat()
        with running(
            folder / "bridge", kafka.bootstrap_servers, name, target, *more, environment=environment
        ) as process:
            found = Scene(kafka, name, target, folder, feed, process)
            process.wait_for(lambda: bool(sql(target, LEDGER)), "tables", SECONDS)
            process.wait_for(lambda: bool(sql(target, "SELECT COUNT(*) FROM bank.ledger")[0][0]), "rows", SECONDS)
            try:
                yield found
            finally:
                with suppress(FileNotFoundError):
                    hold.unlink()


def ends_equal(found: Scene) -> None:
    """Everything comes, and a stop ends the bridge with 0."""
    found.finish()
    found.process.signal(signal.SIGTERM)
    assert found.process.wait() == 0, found.process.end_of_log
    assert_equal(found.target, found.feed.bank)
    assert "Traceback" not in found.process.log, found.process.log


def no_kafka(found: Scene) -> None:
    """Kafka goes away, and comes back."""
    found.kafka.kill()
    found.process.says("source_unanswered|on=source|partition_ends_unknown", SECONDS)
    found.kafka.restart()


def no_kafka_when_spark_comes(found: Scene) -> None:
    """Kafka goes away, Spark comes, then Kafka comes back."""
    found.kafka.kill()
    found.let_spark_start()
    time.sleep(12)
    found.kafka.restart()


def more_partitions(found: Scene) -> None:
    """A partition is added."""
    admin = AdminClient({"bootstrap.servers": found.kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(found.topic, PARTITIONS + 1)])[found.topic].result(30)
    found.feed.add_partition()


def a_schema_change(found: Scene) -> None:
    """One comes among rows."""
    found.feed.schedule(found.feed.bank.add_column)
    found.some()
    found.feed.schedule(found.feed.bank.create_table)


def a_held_schema_change(found: Scene) -> None:
    """One waits for people, who approve it."""
    found.feed.schedule(found.feed.bank.add_column)
    found.some()
    found.process.says("schema_change_held", SECONDS)
    found.some()
    [id_] = [row[0] for row in sql(found.target, HELD)]
    assert bridge("ddl", "approve", id_, "--target", found.target).code == 0
    found.process.says("schema_change .*add column|ADD COLUMN", SECONDS)


HELD = "SELECT CONCAT(commit_ts, '-', LEFT(statement_hash, 8)) FROM _bridge.schema_changes WHERE state = 'held'"


MEANWHILE = {
    "Kafka goes away": no_kafka,
    "Kafka goes away until Spark is there": no_kafka_when_spark_comes,
    "a partition is added": more_partitions,
    "schema changes": a_schema_change,
    "a schema change is held": a_held_schema_change,
}


@pytest.mark.soak
@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_it_goes_on(own_kafka: Kafka, target: str, tmp_path: Path, meanwhile: str, way: str) -> None:
    """Whatever happens, the end is the upstream's, also behind Spark's start."""
    more = ["--consistency", way]
    if meanwhile == "a schema change is held":
        more += ["--set", "ddl.hold=add column"]
    with scene(own_kafka, target, tmp_path, *more) as found:
        found.some()
        MEANWHILE[meanwhile](found)
        found.some()
        with suppress(FileNotFoundError):
            found.let_spark_start()
        found.process.says("spark_started", SECONDS)
        found.some()
        ends_equal(found)


@pytest.mark.soak
@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("anew", [False, True])
def test_a_topic_that_is_deleted(own_kafka: Kafka, target: str, tmp_path: Path, way: str, anew: bool) -> None:
    """It stops with 3, and says what to do; nothing of a new one of its name is applied."""
    with scene(own_kafka, target, tmp_path, "--consistency", way) as found:
        found.finish()
        delete_topic(own_kafka.bootstrap_servers, found.topic)
        if anew:
            own_kafka.create_topic(found.topic, PARTITIONS)
            with Feed(own_kafka.bootstrap_servers, found.topic, copies=False, seed=2) as other:
                other.bank.schema()
                other.go_on(beats=20)
        assert found.process.wait(SECONDS) == 3, found.process.end_of_log
        last = found.process.last_line
        assert "Kafka has no topic" in last or (anew and "deleted and created again" in last)
        assert "fix: " in last
        assert "Traceback" not in found.process.log
        assert_equal(target, found.feed.bank)


@pytest.mark.soak
@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["it fails", "it is killed", "SIGTERM", "SIGKILL"])
def test_spark_does_not_come(own_kafka: Kafka, target: str, tmp_path: Path, how: str, way: str) -> None:
    """It ends as it should, and what a later start does is right."""
    with scene(own_kafka, target, tmp_path, "--consistency", way) as found:
        found.some()
        if how == "it fails":
            found.let_spark_start(fails=True)
            assert found.process.wait(SECONDS) == 2, found.process.end_of_log
            assert "Spark did not start" in found.process.last_line
        elif how == "it is killed":
            found.let_spark_start()
            found.process.wait_for(lambda: bool(javas(found.process.pid)), "a JVM", SECONDS)
            for pid in javas(found.process.pid):
                os.kill(pid, signal.SIGKILL)
            assert found.process.wait(SECONDS) == 3, found.process.end_of_log
            assert "JVM" in found.process.last_line
        elif how == "SIGTERM":
            found.process.signal(signal.SIGTERM)
            assert found.process.wait(30) == 0, found.process.end_of_log
        else:
            found.process.kill()
        assert "Traceback" not in found.process.log, found.process.log
        (tmp_path / "fail").unlink(missing_ok=True)
        found.some()
        found.feed.finish()
        ended = bridge(
            "replay", "--bootstrap-servers", own_kafka.bootstrap_servers, "--topic", found.topic, "--target", target,
            "--protocol", "canal-json", "--consistency", way,
        )  # fmt: skip
        assert ended.code == 0, ended.err
        assert_equal(target, found.feed.bank)


def javas(group: int) -> list[int]:
    """The JVMs of a process group that Spark has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError, FileNotFoundError):
            if os.getpgid(int(folder.name)) == group and b"SparkSubmit" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found
