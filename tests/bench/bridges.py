"""The bridge under measurement: its command line, and one catch-up."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bridge.local import Kafka, MariaDB
from tests.bench.encoders import SETTINGS, protocol_of
from tests.bench.processes import BRIDGE, Usage
from tests.support.registry import Registry


@dataclass(frozen=True)
class Servers:
    """What the benchmark runs against."""

    kafka: Kafka
    mariadb: MariaDB
    registry: Registry

    @property
    def pids(self) -> dict[str, int]:
        """Name -> process id."""
        return {"mariadb": self.mariadb.pid, "kafka": self.kafka.pid}


@dataclass(frozen=True)
class Measured:
    """One catch-up.

    rate: row changes a second, from the start of the stream to the last commit (the start of Spark left out, and the
    row changes that were applied before).
    rate_of_command: the same from the start of the command to its end.
    cpu_seconds: by process: driver, jvm, workers, mariadb, kafka.
    peak_mib: resident memory: python, jvm, total (of the bridge).
    """

    rows: int
    rate: float
    seconds: float
    rate_of_command: float
    cpu_seconds: Mapping[str, float]
    peak_mib: Mapping[str, float]

    @property
    def cpu_per_million(self) -> dict[str, float]:
        """Seconds for a million row changes."""
        return {kind: round(seconds * 1e6 / self.rows, 2) for kind, seconds in self.cpu_seconds.items()}


def command(
    servers: Servers, name: str, protocol: str, topic: str, consistency: str, more: Sequence[str] = ()
) -> list[str]:
    """What follows `bridge run` and `bridge replay`."""
    binary = ["--set", "ckafka.binary=base64"] if protocol == "ckafka" else []
    if protocol == "debezium-avro":
        binary = ["--registry", servers.registry.url]
    return [
        "--name", name, "--protocol", protocol_of(protocol), "--topic", topic, "--bootstrap-servers",
        servers.kafka.bootstrap_servers, "--target", servers.mariadb.url, "--consistency", consistency,
        "--timezone", "UTC", *binary, *SETTINGS.get(protocol, ()), *more,
    ]  # fmt: skip


def started(arguments: Sequence[str], stdout: int, log: Path) -> subprocess.Popen[str]:
    """`python -m bridge ...`."""
    with log.open("wb") as stderr:
        return subprocess.Popen([sys.executable, "-m", "bridge", *arguments], stdout=stdout, stderr=stderr, text=True)


def catch_up(servers: Servers, arguments: Sequence[str], roots: Mapping[str, int] | None = None) -> Measured:
    """Runs `bridge replay`; AssertionError with the end of its log when it fails.

    roots: further process trees that work for the bridge.
    """
    with tempfile.TemporaryDirectory(prefix="bridge-bench-") as folder:
        log = Path(folder) / "log"
        with started(["replay", "--json", *arguments], subprocess.PIPE, log) as process:
            began = time.monotonic()
            with Usage({BRIDGE: process.pid, **servers.pids, **(roots or {})}) as usage:
                said, _ = process.communicate()
                seconds = time.monotonic() - began
            assert process.returncode == 0, log.read_text(errors="replace")[-3000:]
    outcome = json.loads(said)
    return Measured(
        outcome["rows"],
        outcome["rows"] / outcome["stream_seconds"],
        outcome["stream_seconds"],
        outcome["rows"] / seconds,
        usage.cpu_seconds,
        usage.peak_mib,
    )
