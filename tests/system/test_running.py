"""One bridge that runs, and what others see of it and do to it.  The tests share it, in the order they stand."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from bridge.demo.model import BankSchemaChange
from bridge.local import Kafka, MariaDB
from tests.support.bridges import applied_ts, assert_equal, assert_ran_once, kafka_arguments, owner, running, status
from tests.support.command import Process, bridge
from tests.support.feeds import Feed
from tests.support.pipelines import admin, drop_all, sql
from tests.support.topics import group_offsets
from tests.support.waiting import wait_for

SILENT = 3
PARTITIONS = 4
TOPIC = "running"
GROUP = "shown-to-others"


@dataclass
class Running:
    """A bridge at work, and what feeds it."""

    process: Process
    feed: Feed
    kafka: Kafka
    target: str
    address_file: Path

    def answers(self, path: str) -> tuple[int, str]:
        """What the bridge's port answers: status and text."""
        self.process.says(r"page_served")
        found = re.search(r"url=(\S+)", self.process.log)
        assert found is not None
        try:
            with urlopen(found[1] + path, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()

    def catches_up(self) -> None:
        """Waits until a transaction committed upstream after now has arrived."""
        moment = self.feed.bank.boundary()
        self.process.wait_for(lambda: applied_ts(self.target) >= moment, "new transactions")
        self.feed.check()

    def runs(self, make: Callable[[], BankSchemaChange]) -> None:
        """Has a schema change sent, and waits until it has arrived."""
        self.feed.schedule(make)
        self.process.wait_for(lambda: self.feed.has_sent_what_was_asked, "schema change that was asked for")
        self.catches_up()


@pytest.fixture(scope="module")
def bridge_at_work(mariadb: MariaDB, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """`bridge run` on a topic of which one partition is silent at first."""
    kafka.create_topic(TOPIC, PARTITIONS)
    folder = tmp_path_factory.mktemp("running")
    more = ("--set", "stream.status_seconds=1", "--set", "target.retry_seconds=120", "--listen", "0")
    soon = ("--set", "source.timeout_seconds=5")
    group = ("--set", f"source.consumer_group={GROUP}", "--set", f"watch.address_file={folder / 'address'}")
    with (
        Feed(kafka.bootstrap_servers, TOPIC) as feed,
        running(folder, kafka.bootstrap_servers, TOPIC, mariadb.url, *more, *soon, *group) as process,
    ):
        feed.silent.add(SILENT)
        feed.open_bank()
        feed.start()
        yield Running(process, feed, kafka, mariadb.url, folder / "address")
    with admin(mariadb.url) as session:
        drop_all(session)


def test_the_status_line_says_what_it_waits_for(bridge_at_work: Running) -> None:
    """Lag, rates, and which partition has had no boundary for how long; the time grows."""
    process = bridge_at_work.process
    pattern = rf"waiting_for=.partition {SILENT} has had no boundary for (\d+) s"
    process.wait_for(lambda: len(re.findall(pattern, process.log)) >= 4, "waiting")
    said = [line for line in process.lines if re.search(pattern, line)]
    for field in ("applied=", "source_lag_s=", "apply_lag_s=", "rows_per_s=", "backlog="):
        assert field in said[-1]
    assert applied_ts(bridge_at_work.target) == 0
    document = json.loads(bridge_at_work.answers("status")[1])
    assert (document["partitions"][0]["partition"], document["partitions"][0]["holds_back"]) == (SILENT, True)
    seconds = [int(s) for s in re.findall(pattern, process.log)]
    assert seconds == sorted(seconds)
    assert len(set(seconds)) >= 3


def test_it_goes_on_when_the_partition_speaks(bridge_at_work: Running) -> None:
    """Then the backlog is applied, and the line names rows."""
    bridge_at_work.feed.silent.clear()
    bridge_at_work.catches_up()
    bridge_at_work.process.says(r" rows=[1-9]\d+")
    assert re.search(r"time_goes_to='[a-zA-Z]+", bridge_at_work.process.log)


def test_its_port_tells_what_it_applies(bridge_at_work: Running) -> None:
    """Ready, healthy; each metric of the manual but for those of what did not happen; the page's tables."""
    process = bridge_at_work.process
    ends_of, rows_of = r"^bridge_partition_offsets_behind\{", r"^bridge_rows_total\{.*\} ([1-9]\S*)"
    process.wait_for(lambda: bridge_at_work.answers("readyz") == (200, "ok\n"), "readiness")
    assert bridge_at_work.answers("healthz") == (200, "ok\n")
    assert bridge_at_work.address_file.read_text().strip() in process.log
    metrics = ""

    def has_a_sample() -> bool:
        """One that was taken, once a second, after Kafka told its ends and rows were applied."""
        nonlocal metrics
        metrics = bridge_at_work.answers("metrics")[1]
        return all(re.search(known, metrics, re.MULTILINE) for known in (ends_of, rows_of))

    process.wait_for(has_a_sample, "Kafka's ends and rows")
    assert "NaN" not in metrics
    rows = sum(float(value) for value in re.findall(rows_of, metrics, re.MULTILINE))
    assert 0 < rows <= json.loads(bridge_at_work.answers("status")[1])["rows"]
    spent = sum(float(value) for value in re.findall(r"^bridge_phase_seconds_total\{.*\} (\S+)", metrics, re.MULTILINE))
    assert spent > 1
    assert len(re.findall(r"^bridge_partition_boundary_age_seconds\{", metrics, re.MULTILINE)) == PARTITIONS


def test_a_consumer_group_shows_what_is_in_the_target(bridge_at_work: Running) -> None:
    """To Kafka's own tools: where a restart would begin, of each partition."""

    def committed() -> dict[int, int]:
        found = group_offsets(bridge_at_work.kafka.bootstrap_servers, GROUP)
        return {partition: offset for (topic, partition), offset in found.items() if topic == TOPIC}

    def restart() -> dict[int, int]:
        found = status(bridge_at_work.target)
        assert found is not None
        return {partition: start.offset for (_, partition), start in found.progress.positions.items()}

    bridge_at_work.catches_up()
    before = restart()
    assert sum(before.values()) > 0
    bridge_at_work.process.wait_for(
        lambda: all(committed().get(partition, -1) >= offset for partition, offset in before.items()), "the commits"
    )
    shown = committed()
    assert shown.keys() == before.keys()
    assert all(offset <= restart()[partition] for partition, offset in shown.items())


def test_a_read_only_target_is_named_and_waited_for(bridge_at_work: Running) -> None:
    """By the status line, since when, in place of any partition, and by `bridge status`; nothing is written meanwhile,
    although the user may."""
    process, target = bridge_at_work.process, bridge_at_work.target
    pattern = r"waiting_for='target 127.0.0.1:\d+ is read-only for (\d+) s'"
    with admin(target) as session:
        session.execute("SET GLOBAL read_only = 1")
        try:
            process.wait_for(
                lambda: bool(re.search(pattern, process.log)), "the reason"
            )  # what was under way has ended
            before = session.rows("SELECT * FROM _bridge.progress, _bridge.owner")
            process.wait_for(lambda: len(set(re.findall(pattern, process.log))) >= 4, "what it waits for")
            said = re.findall(r"waiting_for='([^']*)'", process.log)
            first = next(number for number, words in enumerate(said) if "is read-only" in words)
            assert all("is read-only" in words for words in said[first:])
            ended = bridge("status", "--target", target)
            assert "is read-only: a bridge waits" in ended.out
            code, reason = bridge_at_work.answers("readyz")
            assert (code, "is read-only for" in reason) == (503, True)
            assert session.rows("SELECT * FROM _bridge.progress, _bridge.owner") == before
        finally:
            session.execute("SET GLOBAL read_only = 0")
    bridge_at_work.catches_up()
    document = json.loads(bridge("status", "--json", "--target", target).out)
    assert document["target_takes_writes"] is True
    process.wait_for(lambda: status_said(target)["target_away"] == 0, "a status without trouble")


def test_the_operator_steers_it(bridge_at_work: Running) -> None:
    """While it is paused nothing is applied, by whom and since when is in the status line, and it stays the owner; a
    rate, a throttle and a log level are taken up as well; when all is lifted it catches up.  All but one, which a busy
    machine may delay, are taken up within two seconds."""
    process, target = bridge_at_work.process, bridge_at_work.target
    taken: list[float] = []

    def steer(*arguments: str) -> None:
        ended = bridge("ctl", *arguments, "--target", target, "--json")
        assert ended.code == 0
        taken_up = json.loads(ended.out)["taken_up"]
        assert taken_up["by"].startswith(f"process {process.pid} on ")
        assert taken_up["seconds"] is not None, arguments
        taken.append(taken_up["seconds"])

    steer("pause")
    process.says(r"waiting_for='paused by .+@.+ since \d{4}-")
    before = applied_ts(target)
    process.wait_for(lambda: len(re.findall("waiting_for='paused by", process.log)) >= 3, "seconds of a pause")
    assert applied_ts(target) == before
    code, reason = bridge_at_work.answers("readyz")
    assert (code, reason.startswith("paused by ")) == (503, True)
    process.wait_for(lambda: status_said(target)["paused"] is True, "bridge status")
    found = status(target)
    assert found is not None
    assert found.running
    steer("rate", "1000000")
    steer("throttle", "Threads_connected=0")
    steer("resume")
    process.says(r"waiting_for='Threads_connected of the target is \d+, above 0'")
    steer("throttle", "off")
    bridge_at_work.catches_up()
    steer("rate", "off")
    assert sorted(taken)[-2] <= 2
    bridge_at_work.catches_up()


def test_a_broker_that_is_away_is_named_and_waited_for(bridge_at_work: Running) -> None:
    """By the status line and `bridge status`; it goes on by itself when the broker is back."""
    process = bridge_at_work.process
    bridge_at_work.kafka.kill()
    try:
        pattern = r"waiting_for='source 127.0.0.1:\d+ does not answer for (\d+) s'"
        process.wait_for(lambda: len(set(re.findall(pattern, process.log))) >= 2, "what it waits for")
        words = "does not answer for"
        process.wait_for(lambda: words in bridge("status", "--target", bridge_at_work.target).out, "bridge status")
        code, reason = bridge_at_work.answers("readyz")
        assert (code, words in reason) == (503, True)
    finally:
        bridge_at_work.kafka.restart()
    bridge_at_work.catches_up()


def status_said(target: str) -> dict[str, float]:
    """The last status that the owner wrote."""
    said: dict[str, float] = json.loads(bridge("status", "--json", "--target", target).out)["last_said"]
    return said


def test_a_second_bridge_ends_with_5(bridge_at_work: Running) -> None:
    """One line that names the owner; the owner goes on."""
    second = bridge(*kafka_arguments("run", bridge_at_work.kafka.bootstrap_servers, TOPIC, bridge_at_work.target))
    assert second.code == 5
    assert f"process {bridge_at_work.process.pid} on " in second.last_line
    assert "--take-over" in second.last_line
    assert len(second.err.strip().splitlines()) == 1
    bridge_at_work.catches_up()


def test_reset_leaves_a_running_pipeline_alone(bridge_at_work: Running) -> None:
    """Exit 5, naming the owner."""
    ended = bridge("reset", "--yes", "--target", bridge_at_work.target)
    assert ended.code == 5
    assert f"process {bridge_at_work.process.pid} on " in ended.last_line
    bridge_at_work.catches_up()


def test_status_shows_the_owner(bridge_at_work: Running) -> None:
    """Running, by which process, how far behind, and what it said last."""
    document = json.loads(bridge("status", "--json", "--target", bridge_at_work.target).out)
    assert document["running"] is True
    assert document["owner"]["pid"] == bridge_at_work.process.pid
    assert 0 <= document["lag_seconds"] < 60
    assert "no boundary for" in document["last_said"]["waiting_for"]


def test_a_schema_change_runs_while_it_runs(bridge_at_work: Running) -> None:
    """Rows before it and after it arrive."""
    bridge_at_work.runs(bridge_at_work.feed.bank.add_column)
    wait_for(lambda: bool(sql(bridge_at_work.target, "SHOW COLUMNS FROM bank.checking LIKE 'note'")), "no new column")


def test_a_restart_of_the_target_is_lived_through(bridge_at_work: Running, mariadb: MariaDB) -> None:
    """The same process goes on, still owns the pipeline, and nobody else can have it."""
    mariadb.kill()
    time.sleep(1)
    mariadb.restart()
    bridge_at_work.catches_up()
    second = bridge(*kafka_arguments("run", bridge_at_work.kafka.bootstrap_servers, TOPIC, bridge_at_work.target))
    assert second.code == 5, second.err
    bridge_at_work.catches_up()


def test_killed_connections_are_opened_again(bridge_at_work: Running) -> None:
    """Whichever of them is killed: the pipeline stays owned, schema changes run."""
    for (connection,) in sql(
        bridge_at_work.target,
        "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'root'",
    ):
        sql(bridge_at_work.target, f"KILL {connection}", "SELECT 1")
    bridge_at_work.runs(bridge_at_work.feed.bank.create_table)
    wait_for(lambda: bool(sql(bridge_at_work.target, "SHOW TABLES IN bank LIKE 'pension'")), "no new table")
    second = bridge(*kafka_arguments("run", bridge_at_work.kafka.bootstrap_servers, TOPIC, bridge_at_work.target))
    assert second.code == 5, second.err


def test_a_partition_added_meanwhile_is_read(bridge_at_work: Running) -> None:
    """Until it has a boundary nothing more is complete; then everything goes on."""
    admin_client = AdminClient({"bootstrap.servers": bridge_at_work.kafka.bootstrap_servers})
    admin_client.create_partitions([NewPartitions(TOPIC, PARTITIONS + 1)])[TOPIC].result(30)
    bridge_at_work.feed.add_partition()
    bridge_at_work.catches_up()
    found = status(bridge_at_work.target)
    assert found is not None
    assert (TOPIC, PARTITIONS) in found.progress.positions


def test_sigterm_ends_it_with_0(bridge_at_work: Running) -> None:
    """In mid-stream, and while it is paused; what is in the target is the upstream's once the rest is replayed."""
    process = bridge_at_work.process
    paused = len(re.findall("waiting_for='paused by", process.log))
    bridge("ctl", "pause", "--target", bridge_at_work.target)
    try:
        process.wait_for(lambda: len(re.findall("waiting_for='paused by", process.log)) > paused, "the pause")
        process.signal(signal.SIGTERM)
    finally:
        bridge("ctl", "resume", "--target", bridge_at_work.target)
    assert process.wait() == 0, process.end_of_log
    assert process.last_line.startswith("bridge: stopped; everything below ")
    assert "Traceback" not in process.log
    found = status(bridge_at_work.target)
    assert found is not None
    assert not found.running


@pytest.mark.usefixtures("spark")
def test_a_replay_brings_the_rest(bridge_at_work: Running) -> None:
    """The end is the upstream's, and schema changes ran once."""
    boundary = bridge_at_work.feed.finish()
    arguments = kafka_arguments("replay", bridge_at_work.kafka.bootstrap_servers, TOPIC, bridge_at_work.target)
    ended = bridge(*arguments, "--until", str(boundary))
    assert ended.code == 0, ended.err
    assert_equal(bridge_at_work.target, bridge_at_work.feed.bank)
    assert_ran_once(bridge_at_work.target, bridge_at_work.feed.schema_changes)
    assert owner(bridge_at_work.target)["pid"] != bridge_at_work.process.pid
