"""Rows of the server's own databases and the bridge's, and rules of a filter that match nothing: what commands do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.mysql.connection.session import Session
from tests.support.captures import line, row, watermark, write_lines
from tests.support.command import bridge
from tests.support.pipelines import admin

pytestmark = pytest.mark.usefixtures("spark")

PRIVILEGES = json.dumps({"access": 2**62, "plugin": "mysql_native_password", "authentication_string": ""})


def insert(ts: int, schema: str, table: str, **columns: tuple[str, str]) -> dict[str, Any]:
    return {
        **row(ts, 1), "database": schema, "table": table, "pkNames": list(columns)[:1],
        "mysqlType": {name: kind for name, (kind, _) in columns.items()},
        "data": [{name: value for name, (_, value) in columns.items()}],
    }  # fmt: skip


ACCOUNT = insert(
    12, "mysql", "global_priv", Host=("char(60)", "%"), User=("char(80)", "intruder"), Priv=("longtext", PRIVILEGES)
)
PROGRESS = insert(13, "_BRIDGE", "progress", name=("varchar(128)", "bridge"), applied_ts=("bigint", "99999"))


@pytest.fixture
def session(target: str) -> Iterator[Session]:
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY)")
        yield session
        session.execute("DELETE FROM mysql.global_priv WHERE User = 'intruder'")


@pytest.fixture
def capture(tmp_path: Path) -> str:
    messages = [row(10, 1), ACCOUNT, PROGRESS, ACCOUNT, row(14, 2), watermark(20)]
    path = write_lines(tmp_path / "m.jsonl", [line(offset, message) for offset, message in enumerate(messages)])
    return str(path)


def test_no_command_writes_them(target: str, session: Session, capture: str) -> None:
    """replay counts them and names the first; verify is equal; inspect shows why they are left out."""
    flags = ("--input", capture, "--protocol", "canal-json")
    ended = bridge("replay", *flags, "--target", target, "--filter", "*.*", "--filter", "!m.secrt")
    assert ended.code == 0, ended.err
    assert session.value("SELECT COUNT(*) FROM mysql.global_priv WHERE User = 'intruder'") == 0
    assert session.value("SELECT applied_ts FROM _bridge.progress") == 20
    assert session.rows("SELECT id FROM m.t ORDER BY id") == [(1,), (2,)]
    assert "2 row changes of mysql.global_priv were left out" in ended.out
    assert "1 row changes of _BRIDGE.progress were left out" in ended.out
    assert ended.err.count("table=mysql.global_priv") == 1
    assert "position=capture/0/1" in ended.err
    assert "the filter rule '!m.secrt' matched no table" in ended.out
    assert "the filter rule '*.*'" not in ended.out
    verified = bridge("verify", *flags, "--target", target, "--filter", "*.*", "--filter", "!m.secrt")
    assert verified.code == 0, verified.out
    assert "the filter rule '!m.secrt' matches no table of the log" in verified.out
    inspected = json.loads(bridge("inspect", *flags, "--json").out)
    assert [shown["kind"] for shown in inspected] == ["insert", *["left-out"] * 3, "insert", "boundary"]
    assert inspected[1]["reason"] == "it is in one of the server's own databases"


@pytest.mark.usefixtures("session")
def test_a_filter_that_leaves_everything_out_is_said(target: str, capture: str) -> None:
    """Which of its rules match nothing, as --json too; what a rule matches and leaves out is matched."""
    rules = [part for rule in ("shop.*", "!m.t", "/^m\\d$/.*") for part in ("--filter", rule)]
    ended = bridge("replay", "--input", capture, "--protocol", "canal-json", "--target", target, *rules, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert (found["rows"], found["unmatched"], found["left_out"]) == (0, ["shop.*", "/^m\\d$/.*"], {})
