"""Set-ups that are broken in one way each: exactly one line of `bridge check` fails, the right one."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bridge.filters.routes import Routes
from bridge.local.server import free_port
from bridge.mysql.state import schema as own_tables
from bridge.sources.capture_files import CaptureSource
from bridge.sources.source import TopicNow
from tests.support.captures import watermark, write_lines
from tests.support.command import Ended, bridge
from tests.support.pipelines import admin, ran_with, sql
from tests.support.wire import TSO, canal

BOUNDARY = json.dumps(watermark(TSO + 1)).encode()
ROW = canal("INSERT", {"id": ("int", "1"), "v": ("int", "1")})
WRONG_ROW = canal("INSERT", {"id": ("int", "one"), "v": ("int", "1")})
TIMED_ROW = canal("INSERT", {"id": ("int", "1"), "v": ("timestamp", "2026-11-22 10:00:00")})
CUT_ROW = canal("INSERT", {"id": ("int", "1")}, _tidb={"commitTs": TSO, "onlyHandleKey": True})


@dataclass
class Setup:
    """A target with the table d.t, and a topic with one row for it; `flags` win over the usual ones."""

    url: str
    messages: list[bytes] = field(default_factory=lambda: [ROW, BOUNDARY])
    flags: dict[str, str] = field(default_factory=dict)
    patch: pytest.MonkeyPatch = field(default_factory=pytest.MonkeyPatch)

    def checked(self, folder: Path) -> Ended:
        """Runs `bridge check`."""
        lines: list[dict[str, Any]] = [
            {"partition": 0, "offset": at, "key": None, "value": base64.b64encode(value).decode()}
            for at, value in enumerate(self.messages)
        ]
        capture = write_lines(folder / "c.jsonl", lines)
        usual = {"--target": self.url, "--input": str(capture), "--timezone": "UTC"}
        given = {name: value for name, value in (usual | self.flags).items() if value}
        return bridge("check", *(part for pair in given.items() for part in pair), "--json")


Break = Callable[[Setup], None]


@pytest.fixture
def setup(target: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setup]:
    """What `bridge check` finds nothing wrong with."""
    sql(target, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)", "CREATE DATABASE _bridge")
    yield Setup(target, patch=monkeypatch)
    with admin(target) as session:
        session.execute("SET GLOBAL read_only = OFF")
        session.execute("DROP USER IF EXISTS poor")


def altered(statement: str) -> Break:
    """The target is other than it should be."""
    return lambda setup: void(sql(setup.url, statement))


def flag(name: str, value: str) -> Break:
    """A flag is wrong, or missing with ""."""
    return lambda setup: setup.flags.update({name: value})


def sent(*messages: bytes) -> Break:
    """The topic holds something else."""
    return lambda setup: setup.messages.__setitem__(slice(None), messages)


def poor(*grants: str, password: str = "") -> Break:
    """The user may do less; with a password that the bridge is not told."""

    def make(setup: Setup) -> None:
        sql(
            setup.url,
            f"CREATE USER poor IDENTIFIED BY '{password}'",
            *(f"GRANT {grant} TO poor" for grant in grants),
            "SELECT 1",
        )
        setup.flags["--target"] = setup.url.replace("root@", "poor@")

    return make


def nowhere(*_: object) -> str:
    return f"127.0.0.1:{free_port()}"


def no_broker(setup: Setup) -> None:
    setup.patch.setattr("bridge.sources.kafka.topic_guard._TIMEOUT_SECONDS", 1)
    setup.flags.update({"--input": "", "--bootstrap-servers": nowhere(), "--topic": "t"})


def other_routes(setup: Setup) -> None:
    """Tables of both names are there; the pipeline has written the one, and would go on with the other."""
    sql(setup.url, "CREATE DATABASE e", "CREATE TABLE e.t LIKE d.t", "SELECT 1")
    with admin(setup.url) as session:
        ran_with(session, Routes())
    setup.flags["--route"] = "d.t -> e.t"


def another_topic(setup: Setup) -> None:
    """The pipeline has read one that is gone."""
    with admin(setup.url) as session:
        ran_with(session, Routes())
        session.execute(
            """UPDATE _bridge.progress SET topics = '{"t": "one"}', positions = '{"t": {"0": [1, 5, 5]}}'"""
        )
    setup.patch.setattr(CaptureSource, "topics", lambda _: {"t": TopicNow("two", 1)})


def of_another_upstream(setup: Setup) -> None:
    """One that is not TiDB, of a row that is cut to its key."""
    setup.messages = [CUT_ROW, BOUNDARY]
    setup.flags["--upstream"] = setup.url


def without_transactions(setup: Setup) -> None:
    with admin(setup.url) as session:
        own_tables.make(session, "_bridge")
        session.execute("ALTER TABLE _bridge.progress ENGINE = Aria")


def void(_: object) -> None:
    """A statement's rows are not looked at."""


OWN = "ALL ON _bridge.*"
NEEDED = "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX"
BROKEN: dict[str, tuple[Break, str, str]] = {
    "no target server": (flag("--target", f"mysql://root@{nowhere()}/"), "target", "does not answer"),
    "no target": (flag("--target", ""), "target", "no target is given"),
    "wrong password": (poor("USAGE ON *.*", password="hidden"), "target", "BRIDGE_TARGET_PASSWORD"),
    "no broker": (no_broker, "source", "Kafka does not answer"),
    "no capture file": (flag("--input", "/no/such.jsonl"), "source", "no capture file"),
    "another protocol": (flag("--protocol", "open-protocol"), "protocol", "give --protocol canal-json"),
    "a message that is none": (sent(ROW, WRONG_ROW, BOUNDARY), "messages", "1 message that cannot be decoded"),
    "rows cut to their key": (sent(CUT_ROW, BOUNDARY), "messages", "--upstream"),
    "an upstream that cannot show past rows": (
        of_another_upstream,
        "upstream-history",
        "not TiDB: rows of which messages hold only the key cannot be read back; the sample holds 1 of them",
    ),
    "no zone, in a message": (lambda s: (flag("--timezone", "")(s), sent(TIMED_ROW)(s))[-1], "timezone", "--timezone"),
    "read-only": (altered("SET GLOBAL read_only = ON"), "read-only", "point --target at the primary"),
    "a trigger": (
        altered("CREATE TRIGGER d.x AFTER INSERT ON d.t FOR EACH ROW SET @a = 1"),
        "side-effects",
        "trigger x on d.t",
    ),
    "no table": (altered("DROP TABLE d.t"), "tables", "d.t"),
    "no column": (altered("ALTER TABLE d.t DROP COLUMN v"), "columns", "d.t lacks v"),
    "a grant is missing": (
        poor(OWN, f"{NEEDED.replace('DELETE, ', '')} ON d.*"),
        "grants",
        "GRANT DELETE ON `d`.* TO 'poor'@'%'",
    ),
    "no grant on its own database": (poor(f"{NEEDED} ON d.*"), "grants", "`_bridge`.*"),
    "a topic that was made anew": (another_topic, "topics", "topic t, whose id was one and is now two"),
    "other routes": (other_routes, "routes", "d.t went to d.t, and would go to e.t"),
    "no transactions": (without_transactions, "target", "ALTER TABLE `_bridge`.`progress` ENGINE=InnoDB"),
    "an upstream that refuses the login": (
        lambda s: s.flags.update({"--upstream": s.url.replace("root@", "nobody@")}),
        "upstream",
        "the user in --upstream and the password in BRIDGE_UPSTREAM_PASSWORD",
    ),
    "no upstream": (flag("--upstream", f"mysql://root@{nowhere()}/"), "upstream", "does not answer"),
}


def test_nothing_is_wrong(setup: Setup, tmp_path: Path) -> None:
    """The set-up that each of them breaks has no line that fails; looking makes no table."""
    ended = setup.checked(tmp_path)
    assert ended.code == 0, ended.out
    assert sql(setup.url, "SHOW TABLES IN _bridge") == []


@pytest.mark.parametrize("how", BROKEN)
def test_exactly_one_line_fails(setup: Setup, tmp_path: Path, how: str) -> None:
    """It is the one of the check that looks for it, it says what to do, and the exit code is 2."""
    break_it, check, words = BROKEN[how]
    break_it(setup)
    ended = setup.checked(tmp_path)
    assert ended.code == 2, ended.out + ended.err
    failing = [line for line in json.loads(ended.out) if line["level"] == "fail"]
    assert [line["check"] for line in failing] == [check], failing
    assert words in f"{failing[0]['what']} {failing[0]['fix']}"
    assert failing[0]["fix"]


def test_a_silent_target_does_not_keep_check(tmp_path: Path, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not need it is said all the same."""
    monkeypatch.setattr("bridge.mysql.connection.target.LOGIN_SECONDS", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, says nothing
        setup.flags["--target"] = f"mysql://root@127.0.0.1:{silent.getsockname()[1]}/"
        ended = setup.checked(tmp_path)
    lines = json.loads(ended.out)
    [failing] = [line["what"] for line in lines if line["level"] == "fail"]
    assert failing.startswith("the target does not answer")
    assert {"source", "protocol", "order"} <= {line["check"] for line in lines}


def test_create_makes_the_bridges_own_tables(tmp_path: Path, setup: Setup) -> None:
    """Only when asked for; then they are said to be there."""
    assert bridge("check", "--target", setup.url, "--create").code == 2  # no source is given
    assert ("progress",) in sql(setup.url, "SHOW TABLES IN _bridge")
    found = {line["check"]: line["what"] for line in json.loads(setup.checked(tmp_path).out)}
    assert "are there" in found["own-tables"]
