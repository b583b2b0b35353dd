"""Real senders between an upstream server and Kafka: Canal and Debezium, as they are started for a round of work."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from bridge.commands.manual import example
from bridge.local import Kafka, MariaDB, MySQL
from bridge.local.mysql import OLD_VERSION
from bridge.local.sql_server import SqlServer
from tests.support import canal_server, debezium_connector
from tests.support.canal_server import CanalServer
from tests.support.captures import Line, encoded
from tests.support.debezium_connector import LOSSLESS, DebeziumConnector, Release
from tests.support.pipelines import sql
from tests.support.upstream_writers import DATABASE, GHOSTS, NAMES, SIGNALS
from tests.support.waiting import wait_for

Sender = CanalServer | DebeziumConnector
ENDING: Final = "ending"
"""The table whose row is the last that a sender sends."""
LAST_WORDS: Final = b"the last row of the upstream"
STREAMS: Final = "- Starting streaming"
"""Debezium's log says so once its snapshot is done: a table that is altered before ends it."""
READS: Final = "the next step is binlog dump"
"""Canal's log says so once it knows the tables, which it takes as they are then, whatever its place."""
SENT_SECONDS: Final = 300.0
SHOWN: Final = 4000
"""Characters of a sender's log."""
CAUSES: Final = 3
"""Lines of it that name a cause, the innermost of the last error."""
_IN_BINLOG: Final = ("--log-bin=binlog", "--server-id=1", "--binlog-format=ROW", "--default-time-zone=+00:00")
_SNAPSHOTS: Final = {"signal.data.collection": f"{DATABASE}.{SIGNALS}", "incremental.snapshot.chunk.size": "20"}
_FULL: Final = ("--binlog-row-image=FULL",)
_GTIDS: Final = ("--gtid-mode=ON", "--enforce-gtid-consistency")


@dataclass(frozen=True)
class Kind:
    """A sender, and the server that it reads.

    source: the bridge's `ddl.source`.  release: of Debezium, None for Canal.  has_gtids: whether Canal tells them.
    """

    source: str
    release: Release | None = None
    has_gtids: bool = False

    @property
    def protocol(self) -> str:
        """What the bridge calls its messages."""
        return "debezium" if self.release else "canal-json"

    @property
    def server(self) -> SqlServer:
        """An upstream that is not started yet."""
        if self.source == "mariadb":
            return MariaDB(options=[*_IN_BINLOG])
        version = {"version": OLD_VERSION} if self.source == "mysql-5.7" else {}
        gtids = _GTIDS if self.has_gtids or self.release else ()
        return MySQL(options=[*_IN_BINLOG, *_FULL, *gtids], **version)

    def fetch(self) -> None:
        """Has the sender's jars.  Raises LocalError where they cannot be fetched."""
        if self.release:
            self.release.jars()
        else:
            canal_server.jars()


KINDS: Final = {
    "Canal, MySQL": Kind("mysql-8", has_gtids=True),
    "Canal without GTIDs, MySQL": Kind("mysql-8"),
    "Canal, MySQL 5.7": Kind("mysql-5.7", has_gtids=True),
    "Canal, MariaDB": Kind("mariadb"),
    "Debezium, MySQL": Kind("mysql-8", debezium_connector.MYSQL),
    "Debezium, MySQL 5.7": Kind("mysql-5.7", debezium_connector.OLD),
    "Debezium, MariaDB": Kind("mariadb", debezium_connector.MARIADB),
}


@dataclass
class Round:
    """A sender for a while, with topics of its own.  topics: of Debezium, the first is that of schema changes."""

    kind: Kind
    kafka: Kafka
    upstream: SqlServer
    sender: Sender
    topics: Sequence[str]

    def finish(self) -> list[Line]:
        """Writes the last row upstream; gives all messages, once the sender has sent that row."""
        say_last_words(self.upstream)
        return self.messages()

    def messages(self) -> list[Line]:
        """Gives all messages, once the sender has sent the last row upstream.  Raises SenderError."""
        with said_in(self.sender):
            return messages_until(self.kafka.bootstrap_servers, self.topics, LAST_WORDS)

    def arguments(self, command: str, target: str) -> list[str]:
        """`bridge run` or `bridge replay` of its topics."""
        return [
            command,
            *("--bootstrap-servers", self.kafka.bootstrap_servers),
            *(part for topic in self.topics for part in ("--topic", topic)),
            *("--protocol", self.kind.protocol, "--target", target, "--timezone", "UTC"),
            *("--set", f"ddl.source={self.kind.source}"),
            *("--set", "debezium.time_precision_mode=adaptive_time_microseconds"),
        ]


class SenderError(AssertionError):
    """A sender does not go on; with the causes in its log, and the log's end."""


@contextmanager
def said_in(sender: Sender) -> Iterator[None]:
    """Raises SenderError for what fails in it."""
    try:
        yield
    except AssertionError as error:
        log = (sender.folder / "server.log").read_text(errors="replace")
        causes = list(dict.fromkeys(line for line in log.splitlines() if line.startswith("Caused by: ")))
        raise SenderError("\n".join([str(error), *causes[-CAUSES:], "its log ends:", log[-SHOWN:]])) from None


def say_last_words(upstream: SqlServer) -> None:
    """Writes the last row upstream."""
    sql(
        upstream.url,
        f"CREATE TABLE {DATABASE}.{ENDING} (id INT PRIMARY KEY, v TEXT)",
        f"INSERT INTO {DATABASE}.{ENDING} VALUES (1, '{LAST_WORDS.decode()}')",
        "SELECT 1",
    )


@contextmanager
def sending(
    kind: Kind,
    kafka: Kafka,
    upstream: SqlServer,
    name: str,
    *,
    partitions: int,
    by_key: bool = True,
    apart: bool = False,
) -> Iterator[Round]:
    """A sender from now on: Canal; Debezium begins with a snapshot.

    name: of its topics.  partitions: of each topic of rows.  by_key: whether Canal chooses them by row, or by table.
    apart: whether it sends each schema change in a batch of its own.
    """
    servers = kafka.bootstrap_servers
    if kind.release is None:
        kafka.create_topic(name, partitions)
        settings = {"canal.mq.topic": name, "canal.instance.get.ddl.isolation": str(apart).lower()}
        if partitions > 1:
            rule = r".*\..*:$pk$" if by_key else r".*\..*"
            settings |= {"canal.mq.partitionsNum": str(partitions), "canal.mq.partitionHash": rule}
        sql(upstream.url, "CREATE DATABASE IF NOT EXISTS before_it", "SELECT 1")  # of no transaction there is no GTID
        file, at = sql(upstream.url, "SHOW MASTER STATUS")[0][:2]
        gtids = sql(upstream.url, "SELECT @@global.gtid_executed")[0][0] if kind.has_gtids else None
        begin = None if kind.has_gtids else (file, at)
        sender: Sender = CanalServer(servers, upstream.port, settings, begin=begin, gtids=gtids)
        topics = [name]
    else:
        topics = [name, *(f"{name}.{DATABASE}.{table}" for table in (*NAMES, *GHOSTS, "_x", ENDING, SIGNALS))]
        for topic in topics:
            kafka.create_topic(topic, 1 if topic == name else partitions)
        sender = DebeziumConnector(
            servers, upstream.port, DATABASE, name, schemas=False, release=kind.release, more=LOSSLESS | _SNAPSHOTS
        )
    with sender:
        log, says = sender.folder / "server.log", STREAMS if kind.release else READS
        with said_in(sender):
            wait_for(lambda: says in log.read_text(errors="replace"), f"it has not said {says!r}", SENT_SECONDS)
        yield Round(kind, kafka, upstream, sender, topics)


def example_settings(name: str, folder: Path, servers: str, target: str, upstream: str) -> tuple[Path, str]:
    """Writes what `bridge config example` prints of that name, with these ends; returns the file, and its text."""
    text = example(name)
    text = re.sub(r'(bootstrap_servers = )".*?"', rf'\1"{servers}"', text)
    for section, url in (("target", target), ("upstream", upstream)):
        text = re.sub(rf'(\[{section}\].*\nurl = )".*?"', rf'\1"{url}"', text)
    settings = folder / "bridge.toml"
    settings.write_text(text, encoding="utf-8")
    return settings, text


def messages_until(bootstrap_servers: str, topics: Sequence[str], last: bytes) -> list[Line]:
    """What is in the topics, as lines of a capture file, once a value holds `last`."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "reader", "enable.auto.commit": False})
    known = admin.list_topics(timeout=30).topics
    consumer.assign([TopicPartition(topic, number, 0) for topic in topics for number in known[topic].partitions])
    lines: list[Line] = []
    deadline, is_over = time.monotonic() + SENT_SECONDS, False
    try:
        while True:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                lines.append(_line(message))
                is_over = is_over or last in (message.value() or b"")
            elif is_over:
                return sorted(lines, key=lambda line: (line["topic"], line["partition"], line["offset"]))
            assert time.monotonic() < deadline, f"the sender has not sent {last!r} within {SENT_SECONDS:.0f} s"
    finally:
        consumer.close()


def _line(message: Any) -> Line:
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": encoded(message.key()),
        "value": encoded(message.value()),
    }
