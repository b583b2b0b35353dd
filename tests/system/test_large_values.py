"""Topics of large documents: the bridge takes them by bytes, as it takes small ones by rows."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from bridge.demo.encode import EncodedMessage
from bridge.local import Kafka
from tests.bench.bridges import started
from tests.bench.processes import BRIDGE, Usage
from tests.bench.topics import send
from tests.support.pipelines import sql

TS = 470611868434825218
PARTITIONS = 4
LIMIT_MIB = 4096
"""For Python and JVM together."""
SECONDS = 1500.0


def document(number: int, size: int) -> str:
    """Some text that no other row has."""
    return (f"{number:010d} " * (size // 11 + 1))[:size]


def documents(count: int, size: int, boundary_every: int) -> Iterator[EncodedMessage]:
    """Inserts, of which every fifth row is changed at once, as Canal-JSON; each a transaction."""
    for number in range(count):
        ts, partition = TS + number, number % PARTITIONS
        is_update = number % 5 == 4
        row = {"id": str(number - PARTITIONS if is_update else number), "v": document(number, size)}
        old = [{"id": row["id"], "v": document(number - PARTITIONS, size)}] if is_update else None
        change = {
            "id": 0, "database": "m", "table": "t", "pkNames": ["id"], "isDdl": False,
            "type": "UPDATE" if is_update else "INSERT", "es": ts >> 18, "ts": ts >> 18, "sql": "",
            "sqlType": {"id": 4, "v": 2005}, "mysqlType": {"id": "int", "v": "longtext"}, "old": old, "data": [row],
            "_tidb": {"commitTs": ts},
        }  # fmt: skip
        yield EncodedMessage(partition, None, json.dumps(change).encode())
        if (number + 1) % boundary_every == 0:
            yield from boundaries(ts + 1)
    yield from boundaries(TS + count)


def boundaries(ts: int) -> Iterator[EncodedMessage]:
    """Of all partitions."""
    mark = {
        "id": 0, "database": "", "table": "", "pkNames": None, "isDdl": False, "type": "TIDB_WATERMARK",
        "es": ts >> 18, "ts": ts >> 18, "sql": "", "sqlType": None, "mysqlType": None, "old": None, "data": None,
        "_tidb": {"watermarkTs": ts},
    }  # fmt: skip
    for partition in range(PARTITIONS):
        yield EncodedMessage(partition, None, json.dumps(mark).encode())


def fill(kafka: Kafka, topic: str, messages: Iterator[EncodedMessage]) -> None:
    """Into Kafka, a few megabytes at a time."""
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers, "compression.type": "lz4", "linger.ms": 20,
            "message.max.bytes": 64 << 20, "queue.buffering.max.kbytes": 128 << 10,
        }
    )  # fmt: skip
    for message in messages:
        send(producer, topic, message)
    assert producer.flush(300) == 0


def replayed(kafka: Kafka, topic: str, target: str, folder: Path, *more: str) -> dict[str, float]:
    """Peak memory of a catch-up, in MiB."""
    log = folder / "log"
    arguments = [
        "replay", "--json", "--protocol", "canal-json", "--bootstrap-servers", kafka.bootstrap_servers,
        "--topic", topic, "--target", target, *more,
    ]  # fmt: skip
    with started(arguments, subprocess.PIPE, log) as process, Usage({BRIDGE: process.pid}, shares=True) as usage:
        try:
            process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert process.returncode == 0, log.read_text(errors="replace")[-3000:]
    return usage.peak_mib


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("boundaries_sent", [50, 1], ids=["boundaries", "backlog"])
@pytest.mark.parametrize(
    ("count", "size"), [(20_000, 100_000), (200, 10_000_000), (460_000, 5_000)], ids=["100 KB", "10 MB", "5 KB"]
)
def test_large_documents_run_in_little_memory(
    kafka: Kafka,
    topic: Callable[..., str],
    target: str,
    tmp_path: Path,
    count: int,
    size: int,
    boundaries_sent: int,
) -> None:
    """2 GB of documents, complete now and then or only at the end: under the default settings, within 4 GiB."""
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY, v LONGTEXT)", "SELECT 1")
    name = topic(PARTITIONS, {"max.message.bytes": str(64 << 20)})
    fill(kafka, name, documents(count, size, count // boundaries_sent))
    peak = replayed(kafka, name, target, tmp_path)
    print(peak)
    expected = [(count - count // 5, (count - count // 5) * size, count // 5)]
    found = "SELECT COUNT(*), SUM(LENGTH(v)), SUM(LEFT(v, 10) <> id) FROM m.t"
    assert [tuple(map(int, row)) for row in sql(target, found)] == expected
    assert peak["total"] < LIMIT_MIB, peak
