"""Triggers and cascading foreign keys on the target: refused with the fix by `check` and at the start."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from tests.support.captures import write_lines
from tests.support.command import bridge
from tests.support.pipelines import sql
from tests.support.wire import canal

pytestmark = pytest.mark.usefixtures("spark")

CASCADE = "CREATE TABLE d.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES d.t (id) ON DELETE CASCADE)"
TRIGGER = "CREATE TRIGGER d.grow BEFORE INSERT ON d.t FOR EACH ROW SET NEW.id = NEW.id + 1"
OFFICIAL = {"_tidb": None, "id": 7, "es": 1700000000000}
"""Official Canal numbers its messages."""


@pytest.mark.parametrize(
    ("made", "fields", "words"),
    [
        (CASCADE, OFFICIAL, "foreign key"),
        (CASCADE, OFFICIAL | {"id": 0}, ""),
        (TRIGGER, OFFICIAL | {"id": 0}, "trigger grow on d.t"),
    ],
)
def test_refused(target: str, tmp_path: Path, made: str, fields: dict[str, Any], words: str) -> None:
    """Triggers always; cascades where the messages come from MySQL's own log, which TiCDC's do not."""
    sql(target, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", made, "SELECT 1")
    value = base64.b64encode(canal("INSERT", {"id": ("int", "1")}, **fields)).decode()
    path = write_lines(tmp_path / "c.jsonl", [{"partition": 0, "offset": 0, "key": None, "value": value}])
    flags = ("--input", str(path), "--target", target)
    checked, ended = bridge("check", *flags), bridge("replay", *flags)
    if not words:
        assert (checked.code, ended.code) == (0, 0), checked.out + ended.err
        assert sql(target, "SELECT id FROM d.t") == [(1,)]
        return
    assert checked.code == 2
    assert any(words in line and "drop" in line for line in checked.out.splitlines() if line.startswith("FAIL"))
    assert ended.code == 3
    assert words in ended.last_line
    assert "fix: drop" in ended.last_line
    assert sql(target, "SELECT id FROM d.t") == []
    without = bridge("replay", *flags, "--filter", "d.*", "--filter", "!d.child", "--filter", "!d.t")
    assert without.code == 0, without.err
