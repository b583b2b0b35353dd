"""The driver answers what Spark asks its data source."""

from __future__ import annotations

import pickle
import stat
import threading
from multiprocessing import get_context
from pathlib import Path

import pytest

from bridge.spark.session import checkpoint_folder
from bridge.spark.source.plans import Offsets, Planned, answering, flat, nested


class Plan:
    """Answers."""

    def initial(self) -> Offsets:
        return {"t": {"0": 0}}

    def latest(self) -> Offsets:
        return {"t": {"0": 5}}

    def known(self) -> Offsets:
        return {"t": {"0": 9}}

    def tasks(self) -> list[bytes]:
        return [b"one", b"two"]


def answers(planned: bytes) -> list[object]:
    """What another process is told."""
    asking = pickle.loads(planned)
    return [asking.ask(question) for question in ("initial", "latest", "known", "tasks")]


@pytest.mark.parametrize("name", ["query", "a long name " * 15])
def test_another_process_asks(tmp_path: Path, name: str) -> None:
    """However long the path of the folder is: that of a socket may have 107 bytes."""
    folder = tmp_path / name
    folder.mkdir()
    with answering(Plan(), str(folder)), get_context("spawn").Pool(1) as pool:
        told = pool.apply(answers, (pickle.dumps(Planned(str(folder))),))
    assert told == [{"t": {"0": 0}}, {"t": {"0": 5}}, {"t": {"0": 9}}, [b"one", b"two"]]


def test_only_this_user_may_ask(tmp_path: Path) -> None:
    """The answers hold the properties of Kafka's client, secrets too: nobody else reaches the socket in the folder."""
    with checkpoint_folder(str(tmp_path)) as folder, answering(Plan(), folder):
        assert Path(folder, "plans").is_socket()
        assert stat.S_IMODE(Path(folder).stat().st_mode) & 0o077 == 0


def test_no_thread_is_left(tmp_path: Path) -> None:
    """A bridge begins to read again after each executor that it loses."""
    before = set(threading.enumerate())
    for _ in range(200):  # its end races with whoever asks
        with answering(Plan(), str(tmp_path)):
            assert "plans" in {thread.name for thread in set(threading.enumerate()) - before}
        (tmp_path / "plans").unlink(missing_ok=True)
    assert not any(thread.name == "plans" for thread in set(threading.enumerate()) - before)


def test_offsets_in_the_form_of_spark() -> None:
    """There and back."""
    offsets = {("b", 0): 3, ("a", 10): 2, ("a", 9): 1}
    assert nested(offsets) == {"a": {"9": 1, "10": 2}, "b": {"0": 3}}
    assert flat(nested(offsets)) == offsets
