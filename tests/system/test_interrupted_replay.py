"""A replay that is stopped before it came to the end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bridge.model import Advance
from bridge.mysql.connection.target import Target
from bridge.pipeline.applier import Applier
from bridge.pipeline.by_boundaries import BoundaryOrder
from tests.support.captures import line, row, watermark, write_lines
from tests.support.command import SECONDS, bridge
from tests.support.pipelines import sql

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def arguments(target: str, tmp_path: Path) -> list[str]:
    """A replay of 40 upstream transactions, each a transaction of the target."""
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY)")
    messages = [*(row(10 + id_, id_) for id_ in range(40)), watermark(100)]
    path = write_lines(tmp_path / "m.jsonl", [line(offset, message) for offset, message in enumerate(messages)])
    flags = ("--protocol", "canal-json", "--set", "stream.rows_per_transaction=1")
    return ["replay", "--input", str(path), "--target", target, *flags]


@contextmanager
def signalled() -> Iterator[None]:
    """Sends this process SIGTERM behind the first transaction; the next one waits until it has come to the applier."""
    moved, interrupt, come = BoundaryOrder.moved, Applier.interrupt, threading.Event()

    def then_signal(self: BoundaryOrder, step: Advance) -> None:
        moved(self, step)
        if step.new_ts > 11 and not come.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
            come.wait(SECONDS / 6)

    def note(self: Applier) -> None:
        interrupt(self)
        come.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BoundaryOrder, "moved", then_signal)
        patch.setattr(Applier, "interrupt", note)
        yield


def test_an_interrupted_replay_says_so_and_goes_on(target: str, arguments: list[str]) -> None:
    """It ends with 4, not 0, at the next transaction, says how far it came, and the same command does the rest."""
    with signalled():
        ended = bridge(*arguments)
    session = Target(target).connect(autocommit=True)
    applied, rows = session.value("SELECT applied_ts FROM _bridge.progress"), session.value("SELECT COUNT(*) FROM m.t")
    session.close()
    assert ended.code == 4, ended.err
    assert 0 < rows < 40
    assert f"interrupted before the end of the input; everything below {applied} (" in ended.err
    assert "the same command goes on from there" in ended.last_line
    again = bridge(*arguments)
    assert (again.code, "interrupted" in again.err) == (0, False)
    assert sql(target, "SELECT COUNT(*) FROM m.t") == [(40,)]
