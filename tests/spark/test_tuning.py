"""The switch of what makes the bridge's processes faster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from bridge.config import Tuning
from bridge.spark.tuning import VARIABLE, is_on, switch_off

PACKAGE = Path(__file__).parents[2] / "bridge"


def test_what_is_switched_off_is_off_for_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that start from now on inherit the environment."""
    monkeypatch.setenv(VARIABLE, "")
    assert is_on("niceness")
    switch_off(["niceness", "event-files"])
    assert [is_on(name) for name in ("niceness", "event-files", "zip-folders")] == [False, False, True]
    switch_off([])
    assert is_on("niceness")


def test_each_has_a_place_and_a_figure() -> None:
    """One place asks for it, and the manual says what it gains."""
    code = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    asked = re.findall(r'is_on\("([a-z-]+)"\)', code)
    page = (PACKAGE / "manual" / "performance.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([a-z-]+)` \|.*%", page, re.MULTILINE)
    assert sorted(asked) == sorted(listed) == sorted(get_args(Tuning))
