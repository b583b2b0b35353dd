"""Debezium's own connectors for MySQL and MariaDB, in Kafka Connect: what they write is genuine.

Their jars are fetched once per user, and kept where the embedded servers are kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple
from urllib.error import URLError
from urllib.request import Request, urlopen

from bridge.cache import cached
from bridge.local.jars import Artifact, java, retrieve
from bridge.local.server import HOST, Server, free_port


class Release(NamedTuple):
    """A connector, and the Kafka Connect that runs it.  kind: `mysql` or `mariadb`."""

    kind: str
    version: str
    connect_version: str

    def jars(self) -> Path:
        """The folder of the jars.  Raises LocalError where they cannot be fetched."""
        return cached(f"debezium-{self.kind}-{self.version}-connect-{self.connect_version}", self._fetch)

    def _fetch(self, folder: Path) -> None:
        for artifact in (
            Artifact("org.apache.kafka", "connect-runtime", self.connect_version),
            Artifact("org.apache.kafka", "connect-json", self.connect_version),
            Artifact("io.debezium", f"debezium-connector-{self.kind}", self.version),
            Artifact("org.slf4j", "slf4j-simple", "1.7.36", is_alone=True),
        ):
            retrieve(artifact, folder)

    @property
    def class_name(self) -> str:
        """The connector's Java class."""
        return f"io.debezium.connector.{self.kind}.{'MySql' if self.kind == 'mysql' else 'MariaDb'}Connector"


OLD: Final = Release("mysql", "3.0.8.Final", "3.9.0")
"""Before 3.2, which began to leave TRUNCATE out."""
MYSQL: Final = Release("mysql", "3.6.1.Final", "4.3.0")
MARIADB: Final = Release("mariadb", "3.5.0.Final", "4.1.1")
"""The newest that Maven has whole."""
LOSSLESS: Final = {
    "skipped.operations": "none",
    "key.converter.replace.null.with.default": "false",
    "value.converter.replace.null.with.default": "false",
}
"""Against the defaults that lose data: TRUNCATE is sent, and NULL where a column has a default."""
_OF_CONVERTERS: Final = ("key.converter.", "value.converter.")
_NAME: Final = "source"
_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_AVRO: Final = "io.apicurio.registry.utils.converter.AvroConverter"
_APICURIO: Final = Artifact("io.apicurio", "apicurio-registry-utils-converter", "2.6.13.Final")


def apicurio_jars() -> Path:
    """The folder of Apicurio's converter.  Raises LocalError where it cannot be fetched."""
    return cached(f"{_APICURIO.name}-{_APICURIO.version}", lambda folder: retrieve(_APICURIO, folder))


class DebeziumConnector(Server):
    """Kafka Connect, standalone, with one connector, which reads a server as root.

    prefix: its topic.prefix, which is also the name of its topic of schema changes.
    schemas: the converters' schemas.enable.
    registry: the URL of a schema registry's own interface of Apicurio, whose converter then writes Avro.
    more: further properties of the connector, and of the converters; they win over the ones set here.
    """

    name: ClassVar[str] = "Debezium"
    needs: ClassVar[str] = "it needs Java 17"

    def __init__(
        self,
        bootstrap_servers: str,
        port: int,
        database: str,
        prefix: str,
        *,
        schemas: bool,
        release: Release = OLD,
        registry: str = "",
        more: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._rest_port = 0
        self._release = release
        self._worker = {"bootstrap.servers": bootstrap_servers, "offset.flush.interval.ms": "1000"}
        for part in ("key", "value"):
            self._worker |= {f"{part}.converter": _JSON, f"{part}.converter.schemas.enable": str(schemas).lower()}
        self._jars = [release.jars()]
        if registry:
            self._jars.append(apicurio_jars())
            for part in ("key", "value"):
                settings = {"": _AVRO, ".apicurio.registry.url": registry, ".apicurio.registry.auto-register": "true"}
                self._worker |= {f"{part}.converter{name}": value for name, value in settings.items()}
        more = more or {}
        of_worker = {
            name: value
            for name, value in more.items()
            if name.startswith(_OF_CONVERTERS) and f"{name.partition('.')[0]}.converter" not in more
        }
        self._worker |= of_worker  # a connector that names no converter gets the worker's, with the worker's settings
        self._connector = _connector(bootstrap_servers, port, database, prefix, release)
        self._connector |= {name: value for name, value in more.items() if name not in of_worker}

    def _prepare(self, folder: Path) -> None:
        self._rest_port = free_port()
        listener = {"listeners": f"http://{HOST}:{self._rest_port}"}
        offsets = {"offset.storage.file.filename": str(folder / "offsets")}
        _write(folder / "worker.properties", self._worker | listener | offsets)
        _write(folder / "connector.properties", self._connector)

    def _command(self, folder: Path) -> list[str]:
        flags = [
            *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-cp"),
            ":".join(f"{jars}/*" for jars in self._jars),
        ]
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        return [java(), *flags, main, str(folder / "worker.properties"), str(folder / "connector.properties")]

    def _answers(self) -> bool:
        status = self.status()
        return bool(status) and [task["state"] for task in status["tasks"]] == ["RUNNING"]

    def ask(self, what: str, config: Mapping[str, str] | None = None) -> None:
        """Has Connect `stop` or `resume` the connector; or, with `config`, changes these of its properties."""
        body = json.dumps({**self._connector, **config}).encode() if config else None
        url = f"http://{HOST}:{self._rest_port}/connectors/{_NAME}/{what}"
        with urlopen(Request(url, body, {"Content-Type": "application/json"}, method="PUT"), timeout=30):
            pass

    def status(self) -> dict[str, Any]:
        """The state of the connector and its task, as Connect tells it; empty where it does not answer."""
        return self._told("status")

    def offset(self) -> dict[str, Any]:
        """How far it was when Connect kept that last; empty where Connect does not tell."""
        return {
            name: value for one in self._told("offsets").get("offsets", ()) for name, value in one["offset"].items()
        }

    def _told(self, what: str) -> dict[str, Any]:
        try:
            with urlopen(f"http://{HOST}:{self._rest_port}/connectors/{_NAME}/{what}", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
        except (URLError, OSError):
            return {}
        return found


def _connector(bootstrap_servers: str, port: int, database: str, prefix: str, release: Release) -> dict[str, str]:
    """The properties without which the connector does not start; all others have their defaults."""
    return {
        "name": _NAME,
        "connector.class": release.class_name,
        "tasks.max": "1",
        "database.hostname": HOST,
        "database.port": str(port),
        "database.user": "root",
        "database.password": "",
        "database.server.id": "4711",
        "database.include.list": database,
        "topic.prefix": prefix,
        "topic.creation.default.partitions": "1",  # the tests' broker makes no topic by itself
        "topic.creation.default.replication.factor": "1",
        "schema.history.internal.kafka.bootstrap.servers": bootstrap_servers,
        "schema.history.internal.kafka.topic": f"{prefix}-history",
    }


def _write(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
