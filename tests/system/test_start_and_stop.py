"""Starts and stops at bad moments, and Kafka as it should not be."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from bridge.errors import UnansweredError
from bridge.local import Kafka
from bridge.model import PartitionId
from bridge.mysql.server_errors import LostConnectionError
from bridge.mysql.state.progress import ProgressTable
from bridge.pipeline import assembly
from bridge.sources.kafka.source import KafkaSource
from bridge.sources.source import Extent
from tests.support.bridges import (
    PARTITIONS,
    applied_ts,
    assert_equal,
    assert_ran_once,
    kafka_arguments,
    running,
)
from tests.support.command import bridge
from tests.support.feeds import Feed
from tests.support.pipelines import sql
from tests.support.producers import ordered_producer
from tests.support.topics import delete_topic
from tests.support.waiting import wait_for

Topics = Callable[..., str]
Extents = dict[PartitionId, Extent]


# --- starts and stops


@pytest.mark.parametrize(
    ("number", "seconds"), [(signal.SIGINT, 1.0), pytest.param(signal.SIGTERM, 5.0, marks=pytest.mark.soak)]
)
def test_a_signal_while_it_starts_ends_it_with_0(
    target: str, kafka: Kafka, topic: Topics, tmp_path: Path, number: signal.Signals, seconds: float
) -> None:
    """Ctrl-C and systemd signal the whole group, the JVM too: no traceback all the same."""
    with running(tmp_path / "bridge", kafka.bootstrap_servers, topic(1), target) as process:
        process.wait_for(lambda: sql(target, "SHOW DATABASES LIKE '_bridge'") != [], "its tables")
        time.sleep(seconds)
        process.signal_group(number)
        assert process.wait(60) == 0, process.end_of_log
        assert "Traceback" not in process.log, process.log


def test_a_topic_without_messages_is_waited_for_and_one_made_anew_is_noticed(
    target: str, kafka: Kafka, topic: Topics, tmp_path: Path
) -> None:
    """It says once that it waits, recognises the first messages and begins.  The topic is made anew between two looks
    at it, and with as much in it: nothing of the new one reaches the target."""
    name = topic(1)
    with (
        running(tmp_path / "bridge", kafka.bootstrap_servers, name, target, "--protocol", "auto") as process,
        Feed(kafka.bootstrap_servers, name, partitions=1, copies=False) as feed,
    ):
        process.says("there is no message yet")
        feed.open_bank()
        end = feed.go_on(beats=20)
        process.says(r"protocol canal-json: \d+ of \d+ messages")
        process.wait_for(lambda: applied_ts(target) == end, "the end")
        assert process.log.count("there is no message yet") == 1
        process.signal_group(signal.SIGSTOP)
        made_anew(kafka, name)
        process.signal_group(signal.SIGCONT)
        assert process.wait() == 3, process.end_of_log
        assert "was deleted and created again" in process.last_line
        assert "Traceback" not in process.log
    assert applied_ts(target) == end
    assert_equal(target, feed.bank)


@pytest.mark.usefixtures("spark")
def test_an_unused_partition_is_not_waited_for_until_a_message_comes(target: str, kafka: Kafka, topic: Topics) -> None:
    """The topic has a partition more than the changefeed writes to; one that it does write to stops the bridge, and a
    start refuses it."""
    name = topic(PARTITIONS + 1)
    unused = f"the partition {name}/{PARTITIONS} is said to be unused"
    with Feed(kafka.bootstrap_servers, name) as feed:
        feed.open_bank()
        feed.go_on(beats=1)

    def meanwhile() -> None:
        wait_for(lambda: applied_ts(target) > 0, "no first transaction")
        producer = ordered_producer(kafka.bootstrap_servers)
        producer.produce(name, b"{}", partition=PARTITIONS)
        producer.flush()

    arguments = kafka_arguments("run", kafka.bootstrap_servers, name, target)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(meanwhile)
        ended = bridge(*arguments, "--set", f"source.unused_partitions={name}/{PARTITIONS}")
        done.result()
    assert (ended.code, unused in ended.last_line) == (3, True), ended.err
    again = bridge(*arguments)  # it is kept in the progress
    assert (again.code, unused in again.last_line) == (3, True), again.err


# --- catching up from Kafka

pytestmark = pytest.mark.usefixtures("spark")


def test_replay_brings_a_topic_to_its_end(target: str, kafka: Kafka, topic: Topics) -> None:
    """Whatever protocol is found in it; a second time there is nothing to do; later messages come on top.  What was
    still needed and is gone stops it with 3, and the line names partition and offsets."""
    name = topic(PARTITIONS)
    arguments = kafka_arguments("replay", kafka.bootstrap_servers, name, target, "--protocol", "auto")
    with Feed(kafka.bootstrap_servers, name, protocol="open-protocol") as feed:
        feed.open_bank()
        for _ in range(30):
            feed.beat()
        feed.schedule(feed.bank.add_column)
        for _ in range(10):
            feed.beat()
        feed.finish()
        ended = bridge(*arguments)
        assert ended.code == 0, ended.err
        assert "protocol open-protocol" in ended.err
        assert_equal(target, feed.bank)
        again = bridge(*arguments)
        assert (again.code, again.out.startswith("applied 0 row changes and 0 schema changes")) == (0, True), again.err
        feed.schedule(feed.bank.create_table)
        for _ in range(10):
            feed.beat()
        feed.finish()
        assert bridge(*arguments).code == 0
        assert_equal(target, feed.bank)
        assert_ran_once(target, feed.schema_changes)
        feed.go_on(beats=20)
    drop_records(kafka, TopicPartition(name, 2, -1))
    ended = bridge(*arguments)
    assert ended.code == 3
    assert "Kafka no longer holds the messages from offset" in ended.last_line
    assert f"{name}/2" in ended.last_line


def drop_records(kafka: Kafka, below: TopicPartition) -> None:
    """As retention does."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_records([below]).values():
        future.result(30)


def add_partition(kafka: Kafka, feed: Feed, name: str, count: int) -> None:
    """Of so many, and has rows come in it."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(name, count)])[name].result(30)
    feed.add_partition()
    feed.go_on(beats=20)


def test_replay_of_an_empty_topic(target: str, kafka: Kafka, topic: Topics) -> None:
    """Nothing to do: exit 0, with --until 4; nothing tells its protocol: 2."""
    arguments = kafka_arguments("replay", kafka.bootstrap_servers, topic(3), target)
    assert bridge(*arguments).code == 0
    assert bridge(*arguments, "--until", "5").code == 4
    assert bridge(*arguments, "--protocol", "auto").code == 2


@contextmanager
def replayed(kafka: Kafka, name: str, target: str, partitions: int) -> Iterator[tuple[Feed, list[str]]]:
    """A small bank that is in the target, whose feed can go on as long as the block lasts; and the replay's
    arguments."""
    arguments = kafka_arguments("replay", kafka.bootstrap_servers, name, target)
    with Feed(kafka.bootstrap_servers, name, partitions=partitions, copies=False) as feed:
        feed.open_bank()
        feed.go_on(beats=1)
        assert bridge(*arguments).code == 0
        yield feed, arguments


def test_a_partition_added_while_it_starts(
    target: str, kafka: Kafka, topic: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the offsets and the planner's own: it is read from its beginning.  Of one that comes later
    Kafka has dropped something: it is missing as much as of a partition that was read."""
    name = topic(1)
    look = KafkaSource.extents

    def before_it_was_added(self: KafkaSource) -> Extents:
        return {where: extent for where, extent in look(self).items() if where[1] == 0}

    with replayed(kafka, name, target, 1) as (feed, arguments):
        add_partition(kafka, feed, name, 2)
        with monkeypatch.context() as patch:
            patch.setattr(KafkaSource, "extents", before_it_was_added)
            ended = bridge(*arguments)
        assert ended.code == 0, ended.err
        assert_equal(target, feed.bank)
        add_partition(kafka, feed, name, 3)
    drop_records(kafka, TopicPartition(name, 2, 1))
    ended = bridge(*arguments)
    assert ended.code == 3
    assert "no longer holds the messages from offset 0 on, only 1 to" in ended.last_line
    assert f"{name}/2" in ended.last_line


def made_anew(kafka: Kafka, name: str) -> Feed:
    """The topic is deleted and made again, with more in it than the old one had; gives the feed of the new one."""
    delete_topic(kafka.bootstrap_servers, name)
    kafka.create_topic(name, 1)
    with Feed(kafka.bootstrap_servers, name, partitions=1, copies=False, seed=2) as feed:
        feed.bank.schema()
        feed.go_on(beats=20)
    return feed


def test_a_topic_made_anew_with_more_in_it_is_noticed(target: str, kafka: Kafka, topic: Topics) -> None:
    """Offsets of another topic of the same name say nothing: it must not pass for the old one.  The line says what to
    do, and doing it fixes it."""
    name = topic(1)
    with replayed(kafka, name, target, 1) as (_, arguments):
        at = applied_ts(target)
    new = made_anew(kafka, name)
    ended = bridge(*arguments)
    assert (ended.code, applied_ts(target)) == (3, at)
    assert (
        f"deleted and created again: its messages do not continue what is in the target; at topic {name}"
        in ended.last_line
    )
    assert "`bridge reset` and start with --from that commit ts" in ended.last_line
    sql(target, *(f"TRUNCATE bank.{table}" for table in new.bank.tables))
    assert bridge("reset", "--target", target, "--yes").code == 0
    assert bridge(*arguments, "--from", str(at)).code == 0
    assert_equal(target, new.bank)


def fails_once(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: Exception) -> None:
    """The first call of a function meets an error, as of an end that is away at that moment."""
    function, calls = getattr(owner, name), list[object]()

    def failing(*given: object, **more: object) -> object:
        calls.append(given)
        if len(calls) == 1:
            raise error
        return function(*given, **more)

    monkeypatch.setattr(owner, name, failing)


def test_an_end_that_is_away_at_the_start_is_waited_for(
    target: str, kafka: Kafka, topic: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the rule for later, at every look at the ends before anything is read."""
    name = topic(1)
    with Feed(kafka.bootstrap_servers, name, partitions=1) as feed:
        feed.open_bank()
        feed.go_on(beats=20)
    looks = ("sample", "extents", "topics")
    for look in looks:
        fails_once(monkeypatch, KafkaSource, look, UnansweredError(f"no answer to {look}"))
    for owner, look in ((ProgressTable, "create"), (ProgressTable, "set_topics"), (assembly, "find_side_effects")):
        fails_once(monkeypatch, owner, look, LostConnectionError(2013, f"lost at {look}"))
    arguments = kafka_arguments("replay", kafka.bootstrap_servers, name, target, "--protocol", "auto")
    ended = bridge(*arguments)
    assert ended.code == 0, ended.err
    for look in looks:
        assert f"no answer to {look}" in ended.err
    assert "lost at find_side_effects" in ended.err
    assert_equal(target, feed.bank)


def test_an_unreachable_kafka_ends_with_3(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that names the address."""
    monkeypatch.setattr("bridge.sources.kafka.topic_guard._TIMEOUT_SECONDS", 2)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        ended = bridge(*kafka_arguments("replay", address, "none", target, "--set", "source.retry_seconds=1"))
    assert ended.code == 3
    assert address in ended.last_line
    assert "Traceback" not in ended.err
