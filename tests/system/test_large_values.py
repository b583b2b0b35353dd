"""Topics of large documents: the bridge takes them by bytes, as it takes small ones by rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridge.demo.encode import EncodedMessage
from bridge.local import Kafka
from tests.support.floods import LIMIT_MIB, MESSAGE_BYTES, TS, boundaries, canal_json, fill, replayed
from tests.support.pipelines import sql

PARTITIONS = 4


def document(number: int, size: int) -> str:
    """Some text that no other row has."""
    return (f"{number:010d} " * (size // 11 + 1))[:size]


def documents(count: int, size: int, boundary_every: int) -> Iterator[EncodedMessage]:
    """Inserts, of which every fifth row is changed at once; each a transaction."""
    for number in range(count):
        is_update = number % 5 == 4
        row = {"id": str(number - PARTITIONS if is_update else number), "v": document(number, size)}
        old = [{"id": row["id"], "v": document(number - PARTITIONS, size)}] if is_update else None
        value = canal_json(TS + number, [row], kind="UPDATE" if is_update else "INSERT", old=old)
        yield EncodedMessage(number % PARTITIONS, None, value)
        if (number + 1) % boundary_every == 0:
            yield from boundaries(TS + number + 1, range(PARTITIONS))
    yield from boundaries(TS + count, range(PARTITIONS))


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("boundaries_sent", [50, 1], ids=["boundaries", "backlog"])
@pytest.mark.parametrize(
    ("count", "size"), [(20_000, 100_000), (200, 10_000_000), (460_000, 5_000)], ids=["100 KB", "10 MB", "5 KB"]
)
def test_large_documents_run_in_little_memory(
    kafka: Kafka, topic: Callable[..., str], target: str, tmp_path: Path, count: int, size: int, boundaries_sent: int
) -> None:
    """2 GB of documents, complete now and then or only at the end: under the default settings, within 4 GiB."""
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY, v LONGTEXT)", "SELECT 1")
    name = topic(PARTITIONS, {"max.message.bytes": str(MESSAGE_BYTES)})
    fill(kafka, name, documents(count, size, count // boundaries_sent))
    peak = replayed(kafka, name, target, tmp_path)
    print(peak)
    expected = [(count - count // 5, (count - count // 5) * size, count // 5)]
    found = "SELECT COUNT(*), SUM(LENGTH(v)), SUM(LEFT(v, 10) <> id) FROM m.t"
    assert [tuple(map(int, row)) for row in sql(target, found)] == expected
    assert peak["total"] < LIMIT_MIB, peak
