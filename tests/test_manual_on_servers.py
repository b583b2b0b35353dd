"""Blocks of real output in the manual that need a target: one small shop, replicated and looked at."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.config import Settings
from bridge.ddl.policy import ddl_rules
from bridge.errors import BadMessageError, HeldError
from bridge.tso import ms_tso
from tests.support.command import bridge
from tests.support.pipelines import admin, decoded, run_all
from tests.support.shop import BEGAN, write_capture
from tests.support.shown_output import assert_shown, blocks
from tests.support.upstreams import boundary, in_one_partition, schema_change

WIDTH = "120"


@pytest.fixture
def shop(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The capture of the shop, whose database is on the target; the current folder holds it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", WIDTH)
    with admin(target) as session:
        session.execute("CREATE DATABASE shop")
    return write_capture(tmp_path / "captures")


@pytest.fixture
def shown(target: str) -> Callable[[str], None]:
    """Runs the command of a block on the target and holds the block against what it prints."""

    def run(name: str) -> None:
        command = blocks()[name].command.replace("mysql://bridge@db:3306/", target)
        printed = bridge(*shlex.split(command)[1:])
        assert_shown(name, in_the_manual(printed.out, target))

    return run


def in_the_manual(printed: str, target: str) -> str:
    """The places as the manual calls them."""
    return printed.replace(target, "mysql://bridge@db:3306/").replace(socket.gethostname(), "bridge-1")


@pytest.mark.usefixtures("shop")
def test_check_is_shown_as_it_is(shown: Callable[[str], None]) -> None:
    """What would stop a pipeline, before it has begun."""
    shown("check")


def test_a_pipeline_is_shown_as_it_is(target: str, shop: Path, shown: Callable[[str], None]) -> None:
    """With a schema change that is held and a quarantine: status, ddl and quarantine."""
    with pytest.raises(HeldError):
        run_all(target, decoded(shop, "canal-json"), quarantine=True, ddl=ddl_rules(hold=["drop table"]))
    for name in ("status", "ddl-list", "quarantine-list", "quarantine-show", "quarantine-retry"):
        shown(name)


def test_merged_shards_are_shown_as_they_are(target: str, shown: Callable[[str], None]) -> None:
    """What ran for the first shard, what was confirmed for the other, and what waits for the operator."""
    make, add = (
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, total INT)",
        "ALTER TABLE orders ADD COLUMN note VARCHAR(9)",
    )
    changes = [
        *((f"shop_{number}", make) for number in (1, 2)),
        *((f"shop_{number}", add) for number in (1, 2)),
        ("shop_2", "ALTER TABLE orders DROP COLUMN total"),
    ]
    events = [schema_change(BEGAN + ms_tso(500 * i), text, schema=shard) for i, (shard, text) in enumerate(changes)]
    rules = Settings(route=("shop_*.orders => shop.orders",)).ddl_rules()
    with admin(target) as session:
        session.execute("CREATE DATABASE shop")
    with pytest.raises(HeldError):
        run_all(target, in_one_partition([*events, boundary(BEGAN + ms_tso(9000))]), ddl=rules)
    shown("shards-ddl-list")


def test_a_message_that_stops_is_shown_as_it_is(target: str, shop: Path) -> None:
    """One line: what, where, what to do."""
    with pytest.raises(BadMessageError) as stopped:
        run_all(target, decoded(shop, "canal-json"))
    assert_shown("bad-message", f"bridge: {stopped.value}")
