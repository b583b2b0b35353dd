"""Topics without boundaries through the whole bridge: Canal-JSON without the TiDB extension."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.demo.encode import CanalJsonEncoder, EncodedMessage
from bridge.demo.model import BankSchemaChange, Transaction
from bridge.local import Kafka
from bridge.sources.kafka.source import KafkaSource
from tests.support.bridges import PARTITIONS, assert_equal, assert_ran_once, kafka_arguments, running, status
from tests.support.captures import Line, canal, read_lines, write_lines
from tests.support.command import Process, bridge
from tests.support.feeds import Feed
from tests.support.golden import capture, differences
from tests.support.pipelines import sql
from tests.system.test_upgrades import numbered

IDLE = ("--set", "stream.idle_seconds=3")


class PlainCanalJsonEncoder(CanalJsonEncoder):
    """Canal-JSON as TiCDC writes it without the extension: neither commit ts nor boundaries."""

    def transaction(self, transaction: Transaction) -> list[EncodedMessage]:
        return list(map(_without_extension, super().transaction(transaction)))

    def schema_change(self, change: BankSchemaChange) -> list[EncodedMessage]:
        return list(map(_without_extension, super().schema_change(change)))

    def boundary(self, ts: int) -> list[EncodedMessage]:
        del ts
        return []


def _without_extension(message: EncodedMessage) -> EncodedMessage:
    document = json.loads(message.value)
    del document["_tidb"]
    return message._replace(value=json.dumps(document).encode())


def unread(target: str, bootstrap_servers: str, topic: str) -> int:
    """How many messages progress says are not in the target yet."""
    ends = KafkaSource(bootstrap_servers, [topic], {}).extents()
    found = status(target)
    positions = found.progress.positions if found else {}
    return sum(extent.high - (positions[where].offset if where in positions else 0) for where, extent in ends.items())


def live(process: Process, target: str, seconds: float) -> None:
    """Waits until the process has applied something, and so many seconds more."""
    before = sql(target, "SELECT positions FROM _bridge.progress") if status(target) else None
    process.wait_for(
        lambda: status(target) is not None and sql(target, "SELECT positions FROM _bridge.progress") != before,
        "a first transaction",
    )
    until = time.monotonic() + seconds
    process.wait_for(lambda: time.monotonic() >= until, "the kill")


@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(600)
def test_a_killed_bridge_loses_and_repeats_nothing(
    target: str, kafka: Kafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """The partitions move at different speed, one of them stays empty, the whole process group is killed; schema
    changes come in the middle, wait for the slower partitions, and run once; the end is the upstream's."""
    name, chance = topic(PARTITIONS + 1), random.Random(3)
    arguments = [kafka.bootstrap_servers, name, target, *IDLE]
    folder = tmp_path / "bridge"
    with Feed(kafka.bootstrap_servers, name, copies=False, lags=True, seed=3, encoder=PlainCanalJsonEncoder) as feed:
        feed.open_bank()
        feed.start()
        with running(folder, *arguments) as process:
            live(process, target, chance.uniform(0, 2))
            feed.schedule(feed.bank.add_column)
            feed.schedule(feed.bank.create_table)
            time.sleep(chance.uniform(0, 2))
        feed.finish()
    ended = bridge(*kafka_arguments("replay", *arguments))
    assert ended.code == 0, ended.err
    assert unread(target, kafka.bootstrap_servers, name) == 0
    assert_equal(target, feed.bank)
    assert_ran_once(target, feed.schema_changes)


def spliced(golden: Path, first: str, second: str) -> list[Line]:
    """The script `bank` as captured in one variant, and from the middle on in another."""
    lines = [(variant, line) for variant in (first, second) for line in read_lines(capture(golden, variant, "bank"))]
    times = sorted(canal(line)["es"] for _, line in lines)
    middle = times[len(times) // 2]
    return numbered(line for variant, line in lines if (canal(line)["es"] < middle) == (variant == first))


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("first", "second", "order"),
    [("canal", "canal-ext", "commit ts"), ("canal-ext", "canal", "the order of each partition")],
)
def test_the_extension_is_switched_in_mid_stream(
    target: str, golden: Path, tmp_path: Path, first: str, second: str, order: str
) -> None:
    """On: whole transactions from where every partition has boundaries.  Off: the order of the partitions.  Nothing is
    lost or doubled either way, and the target remembers which it is."""
    path = write_lines(tmp_path / "spliced.jsonl", spliced(golden, first, second))
    arguments = ["--protocol", "canal-json", "--input", str(path), "--target", target, "--timezone", "UTC"]
    for _ in range(2):
        ended = bridge("replay", *arguments)
        assert ended.code == 0, ended.err
        assert differences(target, golden, "bank") == []
    assert "applied 0 row changes and 0 schema changes" in ended.out
    assert re.search(rf"order +{order}", bridge("status", "--target", target).out)
