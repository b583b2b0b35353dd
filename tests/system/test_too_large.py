"""A micro-batch whose events do not fit into the driver, through the whole bridge."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from bridge.local import Kafka
from tests.support.captures import watermark
from tests.support.command import bridge
from tests.support.pipelines import sql
from tests.support.producers import ordered_producer
from tests.support.wire import canal

ROWS, SIZE, TS = 60, 900_000, 470611868539682819


@pytest.mark.usefixtures("spark")
def test_it_is_read_again_in_parts(
    target: str, kafka: Kafka, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Spark, through the same source; every row comes once."""
    from bridge.pipeline.intake import Intake

    read, again = list[int | None](), Intake._read_again
    monkeypatch.setattr(Intake, "_read_again", lambda self, one: (read.append(one.messages), again(self, one))[1])
    name = topic(2)
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY, v LONGTEXT)", "SELECT 1")
    producer = ordered_producer(kafka.bootstrap_servers)
    for number in range(ROWS):
        value = canal(
            "INSERT",
            {"id": ("int", str(number)), "v": ("longtext", "x" * SIZE)},
            database="m",
            _tidb={"commitTs": TS + number},
        )
        producer.produce(name, value, None, number % 2)
        producer.flush(30)
    for partition in range(2):
        producer.produce(name, json.dumps(watermark(TS + ROWS)), None, partition)
    assert producer.flush(30) == 0
    ended = bridge(
        "replay", "--protocol", "canal-json", "--bootstrap-servers", kafka.bootstrap_servers, "--topic", name,
        "--target", target, "--timezone", "UTC", "--set", "stream.driver_bytes=33554432",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert sql(target, "SELECT COUNT(*), SUM(LENGTH(v)), SUM(id) FROM m.t") == [(ROWS, ROWS * SIZE, sum(range(ROWS)))]
    assert len(read) > 1, "it was not too large"
