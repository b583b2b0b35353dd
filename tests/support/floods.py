"""Topics that are large in one way or another, and the memory that a catch-up of them takes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bridge.demo.encode import EncodedMessage
from bridge.local import Kafka
from tests.bench.bridges import started
from tests.bench.processes import BRIDGE, Usage
from tests.bench.topics import send
from tests.support.producers import ordered_producer

TS = 470611868434825218
"""The commit ts of the first change."""
LIMIT_MIB = 4096
"""For Python and JVM together."""
SECONDS = 1500.0
MESSAGE_BYTES = 64 << 20

_MYSQL_TYPES = {"id": ("int", 4), "n": ("int", 4), "v": ("longtext", 2005)}
_NOTHING = {
    "id": 0, "database": "", "table": "", "pkNames": None, "isDdl": False, "sql": "",
    "sqlType": None, "mysqlType": None, "old": None, "data": None,
}  # fmt: skip


def canal_json(
    ts: int, rows: list[dict[str, str]], *, kind: str = "INSERT", table: str = "t", old: Any = None
) -> bytes:
    """Gives a message of TiCDC's Canal-JSON that changes rows of `m.<table>`, keyed by `id`, at a commit ts (TSO)."""
    columns = {name: _MYSQL_TYPES[name] for name in rows[0]}
    change = {
        "id": 0, "database": "m", "table": table, "pkNames": ["id"], "isDdl": False, "type": kind,
        "es": ts >> 18, "ts": ts >> 18, "sql": "", "sqlType": {name: code for name, (_, code) in columns.items()},
        "mysqlType": {name: words for name, (words, _) in columns.items()}, "old": old, "data": rows,
        "_tidb": {"commitTs": ts},
    }  # fmt: skip
    return json.dumps(change).encode()


def schema_change(ts: int, statement: str, table: str) -> bytes:
    """Gives a message of a schema change of `m.<table>` at a commit ts (TSO)."""
    change = {
        **_NOTHING, "database": "m", "table": table, "isDdl": True, "type": "CREATE", "sql": statement,
        "es": ts >> 18, "ts": ts >> 18, "_tidb": {"commitTs": ts},
    }  # fmt: skip
    return json.dumps(change).encode()


def boundaries(ts: int, partitions: Iterable[int]) -> Iterator[EncodedMessage]:
    """Gives a watermark (TSO) for each of the partitions: every change below it was sent."""
    mark = {**_NOTHING, "type": "TIDB_WATERMARK", "es": ts >> 18, "ts": ts >> 18, "_tidb": {"watermarkTs": ts}}
    value = json.dumps(mark).encode()
    return (EncodedMessage(partition, None, value) for partition in partitions)


def fill(kafka: Kafka, topic: str, messages: Iterator[EncodedMessage]) -> None:
    """Sends the messages to Kafka, a few megabytes at a time."""
    producer = ordered_producer(
        kafka.bootstrap_servers,
        compression_type="lz4",
        linger_ms=20,
        message_max_bytes=MESSAGE_BYTES,
        queue_buffering_max_kbytes=128 << 10,
    )
    for message in messages:
        send(producer, topic, message)
    assert producer.flush(300) == 0


def replayed(kafka: Kafka, topic: str, target: str, folder: Path, *more: str) -> dict[str, float]:
    """Runs `bridge replay` over a topic; gives the peaks of its memory in MiB (`Usage.peak_mib`)."""
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
