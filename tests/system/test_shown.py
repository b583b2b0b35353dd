"""The block of real output in the manual that needs Spark."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.support.command import bridge
from tests.support.pipelines import sql
from tests.support.shop import write_capture
from tests.support.shown_output import assert_shown, blocks


@pytest.mark.usefixtures("spark")
def test_a_replay_is_shown_as_it_is(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary of a replay that ended with something in the quarantine, which makes it end with 4."""
    monkeypatch.chdir(tmp_path)
    write_capture(tmp_path / "captures")
    sql(target, "CREATE DATABASE shop", "SELECT 1")
    replayed = bridge(*shlex.split(blocks()["replay"].command.replace("mysql://bridge@db:3306/", target))[1:])
    assert replayed.code == 4, replayed.err
    assert_shown("replay", replayed.out)
