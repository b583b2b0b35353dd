"""Much of one thing at once: tables, schema changes, partitions, rows of a transaction, a backlog, bytes of a
message, large documents.

Each runs under the default settings within 4 GiB for Python and JVM together, and ends as its upstream did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from bridge.demo.encode import EncodedMessage
from bridge.local import Kafka
from tests.support.floods import LIMIT_MIB, MESSAGE_BYTES, TS, boundaries, canal_json, fill, replayed, schema_change
from tests.support.pipelines import sql

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

TABLES: Final = 5000
PARTITIONS: Final = 4
COLUMNS: Final = "(id INT PRIMARY KEY, n INT)"


class Flood:
    """A topic, and a target for what it brings."""

    def __init__(self, kafka: Kafka, topic: Callable[..., str], target: str, folder: Path) -> None:
        self._kafka, self._topic, self._target, self._folder = kafka, topic, target, folder
        sql(target, "CREATE DATABASE m", "SELECT 1")

    def prepare(self, *statements: str) -> None:
        """Runs statements on the target."""
        sql(self._target, *statements, "SELECT 1")

    def found(self, query: str) -> list[tuple[int, ...]]:
        """Gives the numbers that a query finds in the target."""
        return [tuple(map(int, row)) for row in sql(self._target, query)]

    def runs(self, messages: Iterator[EncodedMessage], partitions: int = PARTITIONS, *more: str) -> None:
        """Replays the messages, and checks the memory that it took."""
        name = self._topic(partitions, {"max.message.bytes": str(MESSAGE_BYTES)})
        fill(self._kafka, name, messages)
        peak = replayed(self._kafka, name, self._target, self._folder, *more)
        print(peak)
        assert peak["total"] < LIMIT_MIB, peak


@pytest.fixture
def flood(kafka: Kafka, topic: Callable[..., str], target: str, tmp_path: Path) -> Flood:
    return Flood(kafka, topic, target, tmp_path)


def inserts(count: int, step: int, partitions: int = PARTITIONS) -> Iterator[EncodedMessage]:
    """Gives inserts into `m.t`; `step` is how far apart their commit ts are, 0 for one transaction."""
    for number in range(count):
        value = canal_json(TS + number * step, [{"id": str(number), "n": str(number)}])
        yield EncodedMessage(number % partitions, None, value)


def all_rows(flood: Flood) -> tuple[int, ...]:
    """Gives how many rows `m.t` has, and the sum of their values."""
    return flood.found("SELECT COUNT(*), COALESCE(SUM(n), 0) FROM m.t")[0]


def sum_below(count: int) -> int:
    """Gives the sum of the numbers below one."""
    return count * (count - 1) // 2


def test_5000_tables(flood: Flood) -> None:
    """Rows of 5,000 tables, in turn, 20 of each."""
    flood.prepare(*(f"CREATE TABLE m.t{number} {COLUMNS}" for number in range(TABLES)))

    def messages() -> Iterator[EncodedMessage]:
        for number in range(20 * TABLES):
            round_, table = divmod(number, TABLES)
            value = canal_json(TS + number, [{"id": str(round_), "n": str(number)}], table=f"t{table}")
            yield EncodedMessage(table % PARTITIONS, None, value)
            if number % 10_000 == 9_999:
                yield from boundaries(TS + number + 1, range(PARTITIONS))

    flood.runs(messages())
    for table in (0, 1, TABLES // 2, TABLES - 1):
        sum_ = sum(round_ * TABLES + table for round_ in range(20))
        assert flood.found(f"SELECT COUNT(*), SUM(n) FROM m.t{table}") == [(20, sum_)]


def test_5000_schema_changes(flood: Flood) -> None:
    """5,000 CREATE TABLE in a row, each sent to all partitions, then a row of each table."""

    def messages() -> Iterator[EncodedMessage]:
        for number in range(TABLES):
            value = schema_change(TS + number, f"CREATE TABLE `t{number}` {COLUMNS}", f"t{number}")
            yield from (EncodedMessage(partition, None, value) for partition in range(PARTITIONS))
        for number in range(TABLES):
            value = canal_json(TS + TABLES + number, [{"id": "1", "n": str(number)}], table=f"t{number}")
            yield EncodedMessage(number % PARTITIONS, None, value)
        yield from boundaries(TS + 3 * TABLES, range(PARTITIONS))

    flood.runs(messages())
    assert flood.found("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'm'") == [(TABLES,)]
    assert flood.found(f"SELECT n FROM m.t{TABLES - 1}") == [(TABLES - 1,)]


def test_200_partitions(flood: Flood) -> None:
    """A million rows over 200 partitions, with a boundary after every 100,000."""
    flood.prepare(f"CREATE TABLE m.t {COLUMNS}")
    count, partitions = 1_000_000, 200

    def messages() -> Iterator[EncodedMessage]:
        for number, message in enumerate(inserts(count, 1, partitions)):
            yield message
            if number % 100_000 == 99_999:
                yield from boundaries(TS + number + 1, range(partitions))

    flood.runs(messages(), partitions)
    assert all_rows(flood) == (count, sum_below(count))


def test_a_transaction_of_two_million_rows(flood: Flood) -> None:
    """It is written by one transaction of the target."""
    flood.prepare(f"CREATE TABLE m.t {COLUMNS}")
    count = 2_000_000

    def messages() -> Iterator[EncodedMessage]:
        yield from inserts(count, 0)
        yield from boundaries(TS + 1, range(PARTITIONS))

    flood.runs(messages())
    assert all_rows(flood) == (count, sum_below(count))


def test_a_partition_that_was_silent_for_a_day(flood: Flood) -> None:
    """5,000,000 rows wait for its first boundary: a backlog beyond the driver's memory."""
    flood.prepare(f"CREATE TABLE m.t {COLUMNS}")
    count, speaking = 5_000_000, PARTITIONS - 1

    def messages() -> Iterator[EncodedMessage]:
        for number, message in enumerate(inserts(count, 1, speaking)):
            yield message
            if number % 100_000 == 99_999:
                yield from boundaries(TS + number + 1, range(speaking))
        yield from boundaries(TS + count, range(PARTITIONS))

    flood.runs(messages())
    assert all_rows(flood) == (count, sum_below(count))


@pytest.mark.parametrize(("rows", "size"), [(1, 60_000_000), (600, 100_000)], ids=["one row", "many rows"])
def test_messages_of_60_mb(flood: Flood, rows: int, size: int) -> None:
    """Messages near Kafka's limit here, of one row or of many."""
    flood.prepare("CREATE TABLE m.t (id INT PRIMARY KEY, v LONGTEXT)")
    count = 20

    def messages() -> Iterator[EncodedMessage]:
        for number in range(count):
            data = [{"id": str(number * rows + row), "v": f"{number % 10}" * size} for row in range(rows)]
            yield EncodedMessage(number % PARTITIONS, None, canal_json(TS + number, data))
            yield from boundaries(TS + number + 1, range(PARTITIONS))

    flood.runs(messages())
    assert flood.found("SELECT COUNT(*), SUM(LENGTH(v)) FROM m.t") == [(count * rows, count * rows * size)]


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


@pytest.mark.parametrize("boundaries_sent", [50, 1], ids=["boundaries", "backlog"])
@pytest.mark.parametrize(
    ("count", "size"), [(20_000, 100_000), (200, 10_000_000), (460_000, 5_000)], ids=["100 KB", "10 MB", "5 KB"]
)
def test_large_documents(flood: Flood, count: int, size: int, boundaries_sent: int) -> None:
    """2 GB of documents, complete now and then or only at the end."""
    flood.prepare("CREATE TABLE m.t (id INT PRIMARY KEY, v LONGTEXT)")
    flood.runs(documents(count, size, count // boundaries_sent))
    expected = (count - count // 5, (count - count // 5) * size, count // 5)
    assert flood.found("SELECT COUNT(*), SUM(LENGTH(v)), SUM(LEFT(v, 10) <> id) FROM m.t") == [expected]
