"""An embedded Kafka broker, which is its own controller (KRaft)."""

from __future__ import annotations

import base64
import re
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bridge.cache import cached
from bridge.local.errors import LocalError
from bridge.local.jars import Artifact, java, retrieve
from bridge.local.server import HOST, Server, free_port, run_tool

VERSION = "4.1.0"
# Kafka brings only the interface of its logging; without an implementation it would fail in silence.
ARTIFACTS = [Artifact("org.apache.kafka", "kafka_2.13", VERSION), Artifact("org.slf4j", "slf4j-simple", "1.7.36")]
REQUEST_SECONDS = 30.0
DATA = "data"
MESSAGE_BYTES = 64 << 20
JAVA_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A broker that lives for minutes spends half of its processor time in Java's optimising compiler otherwise."""


class Kafka(Server):
    """Kafka 4.1 on 127.0.0.1, one node, which keeps messages for ever, whatever their timestamp says.

    heap_mib: the most the Java heap may take.
    properties: further broker properties; they win over the ones set here.
    """

    name: ClassVar[str] = "Kafka"
    needs: ClassVar[str] = "it needs Java 17 and about 1 GiB of free memory"

    def __init__(self, *, heap_mib: int = 768, properties: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._heap_mib = heap_mib
        self._properties = dict(properties or {})
        self.port = 0
        """The TCP port; 0 before start."""

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, as `--bootstrap-servers` takes it."""
        return f"{HOST}:{self.port}"

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Creates a topic; returns when every partition has a leader. Raises LocalError when Kafka refuses."""
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin = self._admin()  # kept in a variable, or it would be collected before the answer comes
        try:
            admin.create_topics([topic], operation_timeout=REQUEST_SECONDS)[name].result(REQUEST_SECONDS)
        except KafkaException as error:
            raise LocalError(f"topic {name} was not created: {error}") from error
        self._wait_for_leaders(name, partitions)

    def _wait_for_leaders(self, topic: str, partitions: int) -> None:
        deadline = time.monotonic() + REQUEST_SECONDS
        while time.monotonic() < deadline:
            known = self._admin().list_topics(topic, timeout=REQUEST_SECONDS).topics[topic].partitions
            if len(known) == partitions and all(partition.leader >= 0 for partition in known.values()):
                return
            time.sleep(0.05)
        raise LocalError(f"topic {topic} has no leaders after {REQUEST_SECONDS:.0f} s")

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def _prepare(self, folder: Path) -> None:
        self.port = free_port()
        controller_port = free_port(taken=self.port)
        settings = _settings(folder, self.port, controller_port) | self._properties
        path = folder / "server.properties"
        _write(path, settings)
        _format(folder / DATA)

    def _command(self, folder: Path) -> list[str]:
        memory = ["-Xms128m", f"-Xmx{self._heap_mib}m"]
        return [*_java_command(*memory), "kafka.Kafka", str(folder / "server.properties")]

    def _answers(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), timeout=5).close()  # librdkafka backs off after a refusal
            return bool(self._admin().list_topics(timeout=5).brokers)
        except (OSError, KafkaException):
            return False


def _settings(folder: Path, port: int, controller_port: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(folder / DATA),
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "message.max.bytes": str(MESSAGE_BYTES),
        "replica.fetch.max.bytes": str(MESSAGE_BYTES),
        # Captures may be years old, or come from machines with another clock: they must not expire or be refused.
        "log.retention.ms": "-1",
        "log.message.timestamp.after.max.ms": str(2**63 - 1),
        "log.cleaner.dedupe.buffer.size": str(8 << 20),  # 128 MiB of heap otherwise
        # For this long a killed broker counts as alive, and its successor has to wait.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "metadata.max.idle.interval.ms": "10000",  # a record of nothing each half second is a third of an idle broker
    }


def _write(path: Path, settings: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


def _format(data: Path) -> None:
    """Begins the storage of a new cluster; it is the same for all of them but for the cluster's id."""
    shutil.copytree(cached(f"kafka-{VERSION}-storage", _format_any), data)
    facts, cluster = data / "meta.properties", base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    facts.write_text(re.sub(r"(?m)^cluster\.id=.*", f"cluster.id={cluster}", facts.read_text()))


def _format_any(folder: Path) -> None:
    """Takes a JVM, and two seconds of the processor."""
    with tempfile.TemporaryDirectory() as name:
        properties = Path(name) / "server.properties"
        _write(properties, _settings(Path(name), free_port(), free_port()))
        cluster = f"--cluster-id={base64.urlsafe_b64encode(bytes(16)).decode().rstrip('=')}"
        command = [*_java_command(), "kafka.tools.StorageTool", "format", cluster, f"--config={properties}"]
        run_tool(command, Path(name), failed="Kafka's storage could not be formatted", needs=Kafka.needs)
        shutil.copytree(Path(name) / DATA, folder, dirs_exist_ok=True)


def _java_command(*flags: str) -> list[str]:
    jars = cached(f"kafka-{VERSION}", _fetch)
    return [java(), *JAVA_FLAGS, *flags, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}/*"]


def _fetch(folder: Path) -> None:
    for artifact in ARTIFACTS:
        retrieve(artifact, folder)
