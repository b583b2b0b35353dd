"""The blocks of the manual's page on the first day: one shop, from `bridge check` to a target that is right."""

from __future__ import annotations

import getpass
import json
import shlex
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from bridge.local import Kafka
from bridge.local.server import free_port
from tests.support.bridges import running, status
from tests.support.clients import run_file
from tests.support.command import Ended, Process, bridge
from tests.support.pipelines import sql
from tests.support.producers import ordered_producer
from tests.support.shop import MESSAGES
from tests.support.shown_output import assert_shown, blocks

WIDTH = "120"
TOPIC = "the-day"
"""As long as the name that the manual has for it, since tables are as wide as what is in them."""


@dataclass
class Day:
    """The places of the shop.  The manual has other names for them."""

    servers: str
    topic: str
    target: str

    def ends(self, name: str) -> Ended:
        """Runs the command of a block, without what stands behind a pipe."""
        command, _, _ = blocks()[name].command.partition(" | ")
        return bridge(*shlex.split(command)[1:])

    def shows(self, name: str, code: int = 0) -> None:
        """Runs the command of a block and holds the block against what it prints."""
        ended = self.ends(name)
        assert ended.code == code, ended
        lines = ended.out.splitlines()
        if "grep ^FAIL" in blocks()[name].command:
            lines = [line for line in lines if line.startswith("FAIL")]
        self.is_shown(name, "\n".join(lines))

    def is_shown(self, name: str, printed: str) -> None:
        """Holds a block against an output, apart from how the time was shared."""
        called = {self.target: "mysql://bridge@db:3306/", self.servers: "kafka:9092", self.topic: "changes"}
        called |= {f"{getpass.getuser()}@": "ops@"}
        for place, known_as in {**called, socket.gethostname(): "bridge-1"}.items():
            printed = printed.replace(place, known_as)
        time_lines = [line for line in blocks()[name].output.splitlines() if line.startswith("time goes to")]
        lines = [
            time_lines[0] if line.startswith("time goes to") and time_lines else line for line in printed.splitlines()
        ]
        assert_shown(name, "\n".join(lines))

    def holds(self, process: Process, text: str) -> None:
        """Waits until the running bridge holds a schema change."""

        def is_held() -> bool:
            found = status(self.target)
            said = str(found.last_status.get("waiting_for")) if found else ""
            return found is not None and "held" in said and any(text in entry.statement for entry in found.open_changes)

        process.wait_for(is_held, f"a held {text}", seconds=400)


def readiness(port: int) -> str:
    """What `/readyz` says, whatever its code."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            return str(answer.read(), "utf-8")
    except HTTPError as refusal:
        return str(refusal.read(), "utf-8")


@pytest.fixture
def day(target: str, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Day:
    """A shop whose messages are in a topic, a database for it on the target, and settings in the environment."""
    name = TOPIC
    kafka.create_topic(name, 1)
    places = {"BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "TOPIC": name, "TARGET": target, "TIMEZONE": "UTC"}
    for key, value in {**{f"BRIDGE_{key}": value for key, value in places.items()}, "COLUMNS": WIDTH}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.chdir(tmp_path)
    sql(target, "CREATE DATABASE shop", "SELECT 1")
    producer = ordered_producer(kafka.bootstrap_servers)
    for message in MESSAGES:
        producer.produce(name, json.dumps(message, separators=(",", ":")).encode())
    assert producer.flush(60) == 0
    return Day(kafka.bootstrap_servers, name, target)


@pytest.mark.usefixtures("spark")
def test_the_first_day_is_shown_as_it_is(day: Day, tmp_path: Path) -> None:
    """From check, over a bad message, a held ALTER and a pause, to the fix: as the page has it, in this order."""
    day.shows("first-check", 2)
    stopped = day.ends("first-bad-message")
    assert stopped.code == 3
    day.is_shown("first-bad-message", stopped.last_line)
    day.shows("first-inspect")
    port = free_port()
    meanings = ("--timezone", "UTC", "--on-bad-message", "quarantine", "--set", "ddl.hold=add index,drop table")
    more = (*meanings, "--listen", str(port))
    with running(tmp_path / "running", day.servers, day.topic, day.target, *more) as process:
        day.holds(process, "by_customer")
        day.shows("first-status")
        day.shows("first-held")
        day.shows("first-approve")
        day.holds(process, "carts")
        day.shows("first-skip")
        day.shows("first-quarantine")
        sql(day.target, "ALTER TABLE shop.orders MODIFY note VARCHAR(100)", "SELECT 1")
        day.shows("first-retry")
        day.shows("first-pause")
        process.wait_for(lambda: "paused" in readiness(port), "a pause")
        day.is_shown("first-not-ready", readiness(port))
        day.shows("first-resume")
        process.wait_for(lambda: "paused" not in readiness(port), "the end of the pause")
        sql(day.target, "UPDATE shop.orders SET total = 1.99 WHERE id = 4711", "SELECT 1")
        day.shows("first-verify", 1)
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    assert run_file(day.target, Path("fix.sql")).returncode == 0
    day.shows("first-verified")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("command", ["run", "replay", "inspect"])
@pytest.mark.parametrize("protocol", ["auto", "canal-json"])
def test_an_unknown_topic_is_one_plain_line(
    kafka: Kafka, topic: Callable[..., str], target: str, command: str, protocol: str
) -> None:
    """With the name that is most like it, and not in the words of Kafka's library."""
    name = topic(1)
    source = ("--bootstrap-servers", kafka.bootstrap_servers, "--topic", f"{name}s", "--protocol", protocol)
    ended = bridge(command, *source, *(() if command == "inspect" else ("--target", target)))
    lines = [line for line in ended.err.splitlines() if line.startswith("bridge: ")]
    assert (ended.code, len(lines)) == (3, 1), ended.err
    assert lines[0].startswith(f"bridge: Kafka has no topic '{name}s'; fix: did you mean {name}? check --topic")
    assert "KafkaError" not in ended.err
