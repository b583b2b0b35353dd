"""Producers with transactions: what is aborted never was, what is open is not there yet."""

from __future__ import annotations

import base64
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pymysql.err import MySQLError

from bridge.local import Kafka
from bridge.sources.kafka.source import KafkaSource
from tests.support.bridges import kafka_arguments
from tests.support.captures import Line, read_lines, row, watermark, with_value
from tests.support.command import SECONDS, bridge
from tests.support.pipelines import sql
from tests.support.producers import ordered_producer

Topics = Callable[..., str]
Messages = list[dict[str, Any]]
SENT_SECONDS = 30.0


class Sender:
    """One transaction after the other, into one topic; at most one stays open."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._producer: Any = ordered_producer(
            bootstrap_servers, transactional_id=uuid.uuid4().hex, transaction_timeout_ms=600_000
        )
        self._producer.init_transactions(SENT_SECONDS)

    def open(self, messages: Iterable[dict[str, Any]], partition: int = 0) -> None:
        """A transaction that stays open; its messages have come to Kafka."""
        self._producer.begin_transaction()
        for message in messages:
            self._producer.produce(self._topic, json.dumps(message).encode(), b"", partition)
            self._producer.poll(0)
        assert self._producer.flush(SENT_SECONDS) == 0

    def open_lines(self, lines: Iterable[Line]) -> None:
        """The same of the lines of a capture, each in its own topic."""
        self._producer.begin_transaction()
        for line in lines:
            key, value = (None if line[name] is None else base64.b64decode(line[name]) for name in ("key", "value"))
            self._producer.produce(line["topic"], value, key, line["partition"])
            self._producer.poll(0)
        assert self._producer.flush(SENT_SECONDS) == 0

    def commit(self) -> None:
        """The open one becomes valid."""
        self._producer.commit_transaction(SENT_SECONDS)

    def abort(self) -> None:
        """The open one never was."""
        self._producer.abort_transaction(SENT_SECONDS)


def rows(ids: Iterable[int], *, extension: bool = True) -> Messages:
    """Each with its id for its commit ts."""
    found = [row(id_, id_) for id_ in ids]
    return found if extension else [{name: part for name, part in one.items() if name != "_tidb"} for one in found]


@pytest.fixture
def table(target: str) -> str:
    """The URL of a target with the table of these rows."""
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY)")
    return target


def ids(target: str) -> list[int]:
    return [id_ for (id_,) in sql(target, "SELECT id FROM m.t ORDER BY id")]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("extension", "end"), [(True, "aborted"), pytest.param(True, "open", marks=pytest.mark.soak), (False, "open")]
)
def test_only_what_is_committed_is_applied(table: str, kafka: Kafka, topic: Topics, extension: bool, end: str) -> None:
    """A replay ends, whatever the topic ends with; what was open is applied when it has been committed, what came
    behind it then too, and nothing twice."""
    name = topic(1)
    sender, other = Sender(kafka.bootstrap_servers, name), Sender(kafka.bootstrap_servers, name)
    marks = [watermark(20)] if extension else []
    for messages in (rows([1, 2], extension=extension), rows([3], extension=extension)):
        sender.open(messages)
        sender.commit()
        sender.open(rows([4], extension=extension))
        sender.abort()
    sender.open(marks or rows([5], extension=extension))
    sender.commit()
    if end == "aborted":
        sender.open(rows([6, 7], extension=extension))
        sender.abort()
    if end == "open":
        sender.open(rows([25], extension=extension))
        other.open([watermark(30)] if extension else rows([26], extension=extension))
        other.commit()
    arguments = kafka_arguments("replay", kafka.bootstrap_servers, name, table)
    ended = bridge(*arguments)
    before = [1, 2, 3] if extension else [1, 2, 3, 5]
    assert (ended.code, ids(table)) == (0, before), ended.err
    if end == "open":
        sender.commit()
        ended = bridge(*arguments)
        assert (ended.code, ids(table)) == (0, [*before, 25] if extension else [*before, 25, 26]), ended.err


@pytest.mark.usefixtures("spark")
def test_a_long_backlog_with_gaps(table: str, kafka: Kafka, topic: Topics) -> None:
    """Aborted messages are in no micro-batch, in whatever way ranges are cut; verify and inspect see what was
    applied."""
    name = topic(2)
    sender = Sender(kafka.bootstrap_servers, name)
    for first in range(0, 8000, 1000):
        sender.open(rows(range(10_000 + first, 11_000 + first)), first // 1000 % 2)
        sender.abort()
        sender.open(rows(range(1 + first, 1001 + first)), first // 1000 % 2)
        sender.commit()
    for partition in (0, 1):
        sender.open([watermark(50_000)], partition)
        sender.commit()
    sender.open(rows(range(20_000, 20_100)), 1)
    sender.abort()
    sender.open(rows([30_000]), 0)  # and stays open
    arguments = kafka_arguments("replay", kafka.bootstrap_servers, name, table)
    arguments += ["--set", "stream.messages_per_batch=7000"]
    ended = bridge(*arguments)
    assert (ended.code, ids(table)) == (0, list(range(1, 8001))), ended.err
    assert bridge("verify", *arguments[1:-2]).code == 0
    flags = arguments[1 : arguments.index("--target")]
    shown = json.loads(bridge("inspect", *flags, "--protocol", "canal-json", "--limit", "0", "--json").out)
    assert sorted(int(one["after"]["id"]) for one in shown if one["kind"] == "insert") == ids(table)
    again = bridge(*arguments)
    assert again.out.startswith("applied 0 row changes"), again.err


@pytest.mark.usefixtures("spark")
def test_a_running_bridge_waits_for_an_open_transaction(table: str, kafka: Kafka, topic: Topics) -> None:
    """Its rows come when it is committed, although the messages have been there before; those of an aborted one
    never."""
    name = topic(1)
    sender, other = Sender(kafka.bootstrap_servers, name), Sender(kafka.bootstrap_servers, name)
    seen: list[list[int]] = []

    def meanwhile() -> None:
        try:
            wait_for_rows(table, 1)
            sender.open([*rows([6]), watermark(10)])
            other.open([*rows([7]), watermark(10)])
            sender.abort()
            seen.append(ids(table))
            other.commit()
            wait_for_rows(table, 2)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    sender.open([*rows([1]), watermark(5)])
    sender.commit()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(meanwhile)
        ended = bridge(*kafka_arguments("run", kafka.bootstrap_servers, name, table))
        done.result()
    assert (ended.code, seen, ids(table)) == (0, [[1]], [1, 7]), ended.err


def wait_for_rows(target: str, count: int) -> None:
    deadline = time.monotonic() + SECONDS / 3
    while len(ids(target)) < count and time.monotonic() < deadline:
        time.sleep(0.05)


def test_the_operator_may_read_what_is_not_committed(kafka: Kafka, topic: Topics) -> None:
    """isolation.level in [source.kafka] wins, for every client."""
    name = topic(1)
    sender = Sender(kafka.bootstrap_servers, name)
    sender.open(rows([1]))
    for properties, offsets in (({}, []), ({"isolation.level": "read_uncommitted"}, [0])):
        source = KafkaSource(kafka.bootstrap_servers, [name], properties)
        assert source.extents()[name, 0].high == len(offsets)
        assert [message.position.offset for message in source.messages(None, None)] == offsets
    sender.abort()


@pytest.mark.usefixtures("spark")
def test_a_connector_with_exactly_once_delivery(target: str, kafka: Kafka, real_senders: Path) -> None:
    """Kafka Connect writes rows and marks in transactions of its own (KIP-618).  What it aborted counts neither as rows
    nor as BEGIN or END, and the control records between hold nothing up: everything is in the target while it runs."""
    folder = real_senders / "debezium-restarts"
    lines = read_lines(folder / "bank.jsonl")
    tables = json.loads((folder / "bank.expected.json").read_text(encoding="utf-8"))["tables"]
    names = sorted({line["topic"] for line in lines})
    for name in names:
        kafka.create_topic(name, 1)
    sender = Sender(kafka.bootstrap_servers, names[0])
    for first in range(0, len(lines), 500):
        part = lines[first : first + 500]
        sender.open_lines(with_value(line, other(line)) for line in part[::20])
        sender.abort()
        sender.open_lines(part)
        sender.commit()
    for lines_of_aborted in (lines[-30:], lines[-20:]):
        sender.open_lines(with_value(line, other(line)) for line in lines_of_aborted)
        sender.abort()
    sender.open_lines(with_value(line, other(line)) for line in lines[-30:])  # and stays open
    seen, over = list[bool](), threading.Event()

    def is_equal() -> bool:
        with suppress(MySQLError):
            return all(
                sorted([str(value) for value in row] for row in sql(target, f"SELECT * FROM {name}"))
                == sorted(map(list, table["rows"]))
                for name, table in tables.items()
            )
        return False

    def meanwhile() -> None:
        deadline = time.monotonic() + SECONDS / 3
        while not (over.is_set() or is_equal()) and time.monotonic() < deadline:
            time.sleep(0.2)
        seen.append(is_equal())
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    more = [part for name in names[1:] for part in ("--topic", name)]
    more += ["--protocol", "debezium", "--set", "ddl.source=mysql-8", "--timezone", "UTC"]
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(meanwhile)
        ended = bridge(*kafka_arguments("run", kafka.bootstrap_servers, names[0], target, *more))
        over.set()
        done.result()
    assert (ended.code, seen) == (0, [True]), ended.err


def other(line: Line) -> bytes:
    """Its value with other numbers: it would stop the bridge, or hold everything up."""
    value = base64.b64decode(line["value"])
    return value.replace(b'"total_order":', b'"total_order":9').replace(b'"event_count":', b'"event_count":9')
