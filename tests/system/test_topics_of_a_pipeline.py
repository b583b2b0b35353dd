"""A known pipeline that is given other topics, or another beginning, than it had."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from bridge.local import Kafka
from bridge.rows.order_and_slices import RowChanges
from tests.support.bridges import kafka_arguments
from tests.support.captures import row, watermark
from tests.support.command import Ended, bridge
from tests.support.kept import kept
from tests.support.pipelines import sql
from tests.support.producers import ordered_producer
from tests.support.topics import group_offsets
from tests.support.upstreams import events_table, row_change
from tests.system.test_start_and_stop import drop_records

Topics = Callable[..., str]


class Pipeline:
    """Replays of some topics, into two tables: one of each topic."""

    def __init__(self, target: str, kafka: Kafka) -> None:
        self._target, self._servers = target, kafka.bootstrap_servers
        sql(target, "CREATE DATABASE m", *(f"CREATE TABLE m.{name} (id INT PRIMARY KEY)" for name in ("t", "u")))

    def send(self, topic: str, *messages: dict[str, Any], partition: int = -1) -> None:
        producer: Any = ordered_producer(self._servers)
        for message in messages:
            producer.produce(topic, json.dumps(message).encode(), b"", partition)
        assert producer.flush(30) == 0

    def replay(self, *topics: str, begin: str | None = None, group: str = "") -> Ended:
        given = [part for topic in topics for part in ("--topic", topic)] + (["--from", begin] if begin else [])
        given += ["--set", f"source.consumer_group={group}"] if group else []
        flags = ("--bootstrap-servers", self._servers, "--protocol", "canal-json", "--target", self._target)
        return bridge("replay", *flags, *given)

    def committed(self, group: str) -> dict[str, int]:
        """The offset of the only partition of each topic in a consumer group."""
        return {topic: offset for (topic, _), offset in group_offsets(self._servers, group).items()}

    def ids(self, table: str) -> list[int]:
        return [id_ for (id_,) in sql(self._target, f"SELECT id FROM m.{table} ORDER BY id")]


@pytest.fixture
def pipeline(target: str, kafka: Kafka) -> Pipeline:
    return Pipeline(target, kafka)


def other(ts: int) -> dict[str, Any]:
    """A row of the second topic."""
    return {**row(ts, ts), "table": "u"}


@pytest.mark.usefixtures("spark")
def test_a_topic_comes_and_goes(target: str, topic: Topics, pipeline: Pipeline) -> None:
    """Without a beginning, or with one below what is in the target, it would lose rows: exit 2 says how to do it, and
    that works, goes on working, and is remembered.  A topic that is left out is named, and can be taken out."""
    old, new = topic(1), topic(1)
    pipeline.send(old, row(10, 10), watermark(20))
    pipeline.send(new, other(5), other(15), other(25), other(35), watermark(50))
    assert pipeline.replay(old).code == 0
    for given, said in ((new, f"--topic {new}@20"), (f"{new}@15", "at or above 20"), (f"{new}@x", "neither a TSO")):
        ended = pipeline.replay(old, given)
        assert (ended.code, said in ended.last_line) == (2, True), ended.err
    assert pipeline.replay(old, new, old).code == 2
    pipeline.send(old, row(28, 28), watermark(50))
    for given in (f"{new}@30", f"{new}@30", new):
        ended = pipeline.replay(old, given)
        assert (ended.code, pipeline.ids("t"), pipeline.ids("u")) == (0, [10, 28], [35]), ended.err
        assert "late" not in ended.out + ended.err
    assert "began at 30, not at 31; at pipeline bridge; fix: leave @31 out" in pipeline.replay(old, f"{new}@31").err
    ended = pipeline.replay(old)
    assert (ended.code, f"bridge reset --topic {new}" in ended.last_line) == (2, True), ended.err
    assert bridge("reset", "--topic", "unknown", "--target", target, "--yes").code == 2
    assert bridge("reset", "--topic", "", "--target", target, "--yes").code == 2  # an unset variable: not all of them
    assert bridge("reset", "--topic", new, "--target", target, "--yes").code == 0
    pipeline.send(old, row(60, 60), watermark(70))
    assert (pipeline.replay(old).code, pipeline.ids("t")) == (0, [10, 28, 60])
    assert pipeline.replay(old, new).code == 2


@pytest.mark.usefixtures("spark")
def test_a_consumer_group_of_several_topics(target: str, topic: Topics, pipeline: Pipeline) -> None:
    """Shows each topic from when it comes; one that was taken out stays where it was, as Kafka keeps it."""
    old, new, group = topic(1), topic(1), topic(1)
    pipeline.send(old, row(10, 10), watermark(20))
    pipeline.send(new, other(25), watermark(50))
    assert pipeline.replay(old, group=group).code == 0
    assert pipeline.committed(group) == {old: 2}
    pipeline.send(old, row(28, 28), watermark(50))
    assert pipeline.replay(old, f"{new}@20", group=group).code == 0
    assert pipeline.committed(group) == {old: 4, new: 2}
    assert bridge("reset", "--topic", new, "--target", target, "--yes").code == 0
    pipeline.send(old, watermark(60))
    pipeline.send(new, watermark(60))
    assert pipeline.replay(old, group=group).code == 0
    assert pipeline.committed(group) == {old: 5, new: 2}


@pytest.mark.usefixtures("spark")
def test_two_topics_are_one_stream(target: str, topic: Topics, pipeline: Pipeline) -> None:
    """A transaction with a row in each is held back until both topics are beyond it, and then written at once."""
    left, right = topic(2), topic(1)
    for number in (0, 1):
        pipeline.send(left, row(10, 10), row(20, 20), watermark(30), partition=number)
    pipeline.send(right, other(20), watermark(20), partition=0)
    ended = pipeline.replay(left, right)
    assert (ended.code, pipeline.ids("t"), pipeline.ids("u")) == (0, [10], []), ended.err
    pipeline.send(right, watermark(25))
    ended = pipeline.replay(right, left)
    assert (ended.code, pipeline.ids("t"), pipeline.ids("u")) == (0, [10, 20], [20]), ended.err
    assert sql(target, "SELECT applied_ts FROM _bridge.progress") == [(25,)]


@pytest.mark.usefixtures("spark")
def test_from_on_a_known_pipeline(topic: Topics, pipeline: Pipeline) -> None:
    """Another beginning than it had is refused, with where it began; the same one, in whatever words, is not: the
    command of a daemon stays what it was."""
    name = topic(1)
    pipeline.send(name, row(5, 5), row(15, 15), watermark(20))
    for begin in ("10", None, "10"):
        ended = pipeline.replay(name, begin=begin)
        assert (ended.code, pipeline.ids("t")) == (0, [15]), ended.err
    for begin in ("11", "earliest", "2026-01-01T00:00:00Z"):
        ended = pipeline.replay(name, begin=begin)
        assert (ended.code, "the pipeline began at 10" in ended.last_line) == (2, True), ended.err
        assert "bridge reset" in ended.last_line


@pytest.mark.usefixtures("spark")
def test_a_beginning_that_is_gone_is_named_in_the_log(
    target: str, kafka: Kafka, topic: Topics, pipeline: Pipeline
) -> None:
    """Of a topic that is added, as when its table was made long ago, and of a pipeline that begins at the earliest;
    once, and not where it begins later."""
    old, new = topic(1), topic(1)
    pipeline.send(old, row(5, 5), row(15, 15), watermark(20))
    pipeline.send(new, other(25), other(26), watermark(50))
    for name in (old, new):
        drop_records(kafka, TopicPartition(name, 0, 1))
    for topics, gone in (((old,), ""), ((old, f"{new}@20"), new), ((old, new), "")):
        ended = pipeline.replay(*topics, begin="10")
        assert ended.code == 0
        assert re.findall(r"beginning_is_gone partitions=(\S+)/0 ", ended.err) == ([gone] if gone else [])
    assert bridge("reset", "--target", target, "--yes").code == 0
    assert f"beginning_is_gone partitions={old}/0 " in pipeline.replay(old).err


def test_rows_on_executors_begin_where_others_do(spark: Any) -> None:
    """What lies below the beginning of its topic is left out there as in the driver's memory."""
    changes = [row_change(10 * n, "k", ["id"], [], after=[n]) for n in range(10)]
    table = events_table([(0, n, change) for n, change in enumerate(changes)], "b")
    begins = {"a": 90, "b": 45}
    rows = RowChanges.here(table)
    there, here = kept(spark, rows).from_begins(begins), rows.from_begins(begins)
    assert there.count == here.count == 5
    assert there.table["commit_ts"].to_pylist() == here.table["commit_ts"].to_pylist()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("policy", "is_compacted"), [("compact,delete", True), ("delete", False)])
def test_a_compacted_topic_is_named(
    target: str, kafka: Kafka, topic: Callable[..., str], policy: str, is_compacted: bool
) -> None:
    """By `bridge check`, and in the log at the start; it is no failure."""
    name = topic(1, {"cleanup.policy": policy})
    replay = kafka_arguments("replay", kafka.bootstrap_servers, name, target)
    ended = bridge(*replay)
    assert (ended.code, "topic_is_compacted" in ended.err) == (0, is_compacted), ended.err
    checked = bridge("check", *replay[1:])
    assert (f"Kafka compacts the topic {name}" in checked.out) == is_compacted, checked.out
