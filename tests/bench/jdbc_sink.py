"""`python -m tests.bench.jdbc_sink`: a catch-up beside Debezium's JDBC sink, of one log, in one run, taking turns.

The log is what Debezium's connector for MySQL writes with schemas, which is its default.  The sink is tuned: several
tasks, large polls and batches, its reduction buffer; the log has no tombstones, over which it stumbles.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.error import URLError
from urllib.request import urlopen

from bridge.local.jars import java
from bridge.local.server import HOST, Server, free_port
from tests.bench.__main__ import servers
from tests.bench.bridges import Servers
from tests.bench.catching_up import Case, Topic, filled, replayed
from tests.bench.database import fingerprint, make_tables
from tests.bench.workload import PARTITIONS, WORKLOADS
from tests.support.debezium_connector import MARIADB

TASKS: Final = 2
PROTOCOL: Final = "debezium-schemas"
_LOOK_SECONDS: Final = 0.2


class JdbcSink(Server):
    """Kafka Connect, standalone, with one sink.

    plugin: the folder of its jars and the driver's: that of the archive `debezium-connector-jdbc` (tar.gz, classifier
        plugin) of Maven Central.
    """

    name: ClassVar[str] = "the JDBC sink"
    needs: ClassVar[str] = "it needs Java 17"

    def __init__(self, servers: Servers, topic: Topic, plugin: Path) -> None:
        super().__init__()
        self._port = free_port()
        port, schema = servers.mariadb.port, topic.workload.shapes[0].schema
        self._sink = {
            "name": "sink",
            "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
            "tasks.max": str(TASKS),
            "topics": topic.name,
            "connection.url": f"jdbc:mariadb://{HOST}:{port}/{schema}?useBulkStmts=true",
            "connection.username": "root",
            "connection.password": "",
            "insert.mode": "upsert",
            "delete.enabled": "true",
            "primary.key.mode": "record_key",
            "schema.evolution": "none",
            "collection.name.format": "${source.table}",
            "use.time.zone": "UTC",
            "use.reduction.buffer": "true",
            "batch.size": "5000",
            "consumer.override.max.poll.records": "10000",
            "consumer.override.fetch.min.bytes": "1048576",
            "consumer.override.max.partition.fetch.bytes": "16777216",
        }
        self._worker = {
            "bootstrap.servers": servers.kafka.bootstrap_servers,
            "connector.client.config.override.policy": "All",
            "plugin.path": str(plugin.resolve().parent),
            "listeners": f"http://{HOST}:{self._port}",
            **{f"{part}.converter": "org.apache.kafka.connect.json.JsonConverter" for part in ("key", "value")},
        }

    def _prepare(self, folder: Path) -> None:
        worker = self._worker | {"offset.storage.file.filename": str(folder / "offsets")}
        for name, properties in (("worker", worker), ("sink", self._sink)):
            lines = [f"{key}={value}\n" for key, value in properties.items()]
            (folder / f"{name}.properties").write_text("".join(lines))

    def _command(self, folder: Path) -> list[str]:
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        files = [str(folder / f"{name}.properties") for name in ("worker", "sink")]
        return [java(), "-Xmx2g", "-cp", f"{MARIADB.jars()}/*", main, *files]

    def _answers(self) -> bool:
        return bool(self.tasks())

    def tasks(self) -> list[dict[str, str]]:
        """Its tasks with their states; none where it does not answer."""
        try:
            with urlopen(f"http://{HOST}:{self._port}/connectors/sink/status", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
        except (URLError, OSError):
            return []
        return list(found["tasks"])


def sunk(servers: Servers, topic: Topic, plugin: Path) -> float:
    """Row changes a second of one catch-up by the sink into empty tables, from the first row that is seen on."""
    make_tables(servers.mariadb.url, topic.workload)
    began = 0.0
    with JdbcSink(servers, topic, plugin) as sink:
        while (found := fingerprint(servers.mariadb.url, topic.workload)) != topic.expected:
            began = began or (time.monotonic() if found[0] else 0.0)
            failed = [task["trace"] for task in sink.tasks() if task["state"] == "FAILED"]
            assert not failed, failed[0]
            time.sleep(_LOOK_SECONDS)
        return topic.rows / (time.monotonic() - began)


def main() -> None:
    """Fills a topic, and lets both take turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plugin", type=Path, help="the folder of the sink's jars")
    parser.add_argument("--events", type=int, default=1_000_000, help="row changes")
    parser.add_argument("--rounds", type=int, default=2, help="of each")
    given = parser.parse_args()
    workload = WORKLOADS["sysbench"]
    with servers() as running:
        topic = filled(running, workload, PROTOCOL, given.events, PARTITIONS)
        for number in range(given.rounds):
            print(f"round {number + 1}: the sink: {sunk(running, topic, given.plugin):,.0f} rows/s", flush=True)
            ours = replayed(running, topic, Case(workload.name, PROTOCOL, "atomic"), f"ours{number}")
            print(f"round {number + 1}: the bridge: {ours.rate:,.0f} rows/s in stream", flush=True)


if __name__ == "__main__":
    main()
