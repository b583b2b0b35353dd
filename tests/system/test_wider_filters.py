"""Filters that let more in than before, while rows above the applied ts were read already."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.local import Kafka
from bridge.tso import ms_tso
from tests.pipeline.test_bad_messages import row, watermark
from tests.support.command import Ended, bridge
from tests.support.pipelines import sql
from tests.support.producers import ordered_producer
from tests.support.topics import delete_topic

BEGIN_MS = 1_700_000_000_000
DELETES = """
[[event_filters]]
matcher = ["m.u"]
ignore-event = ["delete"]
"""


def ts(seconds: float) -> int:
    return ms_tso(BEGIN_MS + round(seconds * 1000))


class Upstream:
    """Two tables in a topic of two partitions, of which the second is behind.

    stamps_behind: by how many seconds the clock of the sender is.
    """

    def __init__(self, target: str, kafka: Kafka, topic: str, folder: Path, stamps_behind: int = 0) -> None:
        self._behind = stamps_behind
        self._target, self._kafka, self._topic, self._folder = target, kafka, topic, folder
        self._producer: Any = ordered_producer(kafka.bootstrap_servers)
        sql(target, "CREATE DATABASE m", *(f"CREATE TABLE m.{name} (id INT PRIMARY KEY)" for name in ("t", "u")))

    def send(self, partition: int, message: dict[str, Any], seconds: float) -> None:
        stamp = BEGIN_MS + round((seconds - self._behind) * 1000)
        self._producer.produce(self._topic, json.dumps(message).encode(), partition=partition, timestamp=stamp)
        assert self._producer.flush(30) == 0

    def row(self, partition: int, seconds: float, table: str, id_: int, kind: str = "INSERT") -> None:
        self.send(partition, {**row(ts(seconds), id_), "table": table, "type": kind}, seconds)

    def boundary(self, partition: int, seconds: float) -> None:
        self.send(partition, watermark(ts(seconds)), seconds)

    def replay(self, *flags: str, settings: str = "") -> Ended:
        path = self._folder / "bridge.toml"
        path.write_text(settings)
        return bridge(
            "replay", "--config", str(path), "--bootstrap-servers", self._kafka.bootstrap_servers, "--topic",
            self._topic, "--protocol", "canal-json", "--target", self._target, *flags,
        )  # fmt: skip

    def create_topic_again(self, partitions: int) -> None:
        delete_topic(self._kafka.bootstrap_servers, self._topic)
        self._kafka.create_topic(self._topic, partitions)

    def ids(self, table: str) -> list[int]:
        return [id_ for (id_,) in sql(self._target, f"SELECT id FROM m.{table} ORDER BY id")]


@pytest.fixture
def upstream(
    target: str, kafka: Kafka, topic: Callable[..., str], tmp_path: Path, request: pytest.FixtureRequest
) -> Upstream:
    made = Upstream(target, kafka, topic(2), tmp_path, getattr(request, "param", 0))
    for partition in (0, 1):
        made.boundary(partition, 1)
        made.row(partition, 2, "t", 10 + partition)
        made.boundary(partition, 3)
        made.row(partition, 4, "u", partition)
        made.boundary(partition, 900)
    made.row(0, 922, "u", 7, "DELETE")
    return made


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("upstream", [0, 7200], indirect=True, ids=["stamps are right", "stamps are behind"])
def test_a_table_that_was_left_out(target: str, upstream: Upstream) -> None:
    """With a copy of it as of the applied ts it is right from then on, whatever was read of it before, and although
    nothing can be applied at the first start with the wider filter.  What is below the applied ts is not read again.
    Timestamps that are behind are noticed."""
    narrow, wide = ("--filter", "m.t"), ("--filter", "m.t", "--filter", "m.u")
    upstream.row(0, 921, "u", 30)
    upstream.boundary(0, 8000)
    assert upstream.replay(*narrow).code == 0
    assert sql(target, "SELECT applied_ts FROM _bridge.progress") == [(ts(900),)]
    sql(target, "INSERT INTO m.u VALUES (0), (1), (7)", "SELECT 1")
    for _ in range(2):
        ended = upstream.replay(*wide)
        assert (ended.code, upstream.ids("u")) == (0, [0, 1, 7]), ended.err
    upstream.boundary(1, 930)
    ended = upstream.replay(*wide)
    assert (ended.code, upstream.ids("t"), upstream.ids("u")) == (0, [10, 11], [0, 1, 30]), ended.err
    assert "late" not in ended.err
    assert "reading_again" not in ended.err


@pytest.mark.usefixtures("spark")
def test_rows_that_an_event_filter_left_out(upstream: Upstream) -> None:
    """They are read again from the applied ts on."""
    upstream.boundary(0, 930)
    assert upstream.replay(settings=DELETES).code == 0
    ended = upstream.replay()
    assert ended.code == 0
    assert "rows_were_left_out" in ended.err
    assert "reading_again" in ended.err
    upstream.row(1, 910, "u", 7)
    upstream.boundary(1, 930)
    assert upstream.replay().code == 0
    assert upstream.ids("u") == [0, 1]


@pytest.mark.usefixtures("spark")
def test_a_topic_that_was_created_again(upstream: Upstream) -> None:
    """It is refused as with the filter before, and not asked for where messages begin that it does not have."""
    assert upstream.replay("--filter", "m.t").code == 0
    upstream.create_topic_again(partitions=1)
    ended = upstream.replay("--set", "source.retry_seconds=20")
    assert ended.code == 3
    assert "was deleted and created again" in ended.last_line
