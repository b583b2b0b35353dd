"""Events come to the driver as they were, by way of files or not, and leave no file behind."""

from __future__ import annotations

import pickle
import resource
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from bridge.events import EVENT_SCHEMA
from bridge.protocols import DecodeOptions
from bridge.protocols.batch_decode import EventDecoder, Messages
from bridge.spark import decoded_batch, event_transfer
from bridge.spark.chunk_source import Offsets, Planned, answering, flat, nested
from bridge.spark.decoded_batch import event_decoder
from bridge.spark.event_transfer import TooLargeError, coming_chunks, export_events, import_events
from bridge.spark.session import checkpoint_folder


def _events(count: int = 3) -> pa.Table:
    row = {
        "topic": "t",
        "partition": 0,
        "kind": 1,
        "commit_ts": 7,
        "index": 0,
        "schema": "d",
        "table": "t",
        "by_time": False,
    }
    return pa.Table.from_pylist([{**row, "offset": n, "after": f"{n}\0'é'"} for n in range(count)], EVENT_SCHEMA)


@pytest.mark.parametrize("with_folder", [True, False])
@pytest.mark.parametrize("counts", [[], [0], [3], [3, 0, 5]])
def test_events_arrive(tmp_path: Path, counts: list[int], with_folder: bool) -> None:
    """All of them, in order; the files are gone before the events are used."""
    batches = [_events(count) for count in counts]
    values = [export_events(batch, str(tmp_path) if with_folder else None) for batch in batches]
    assert len(list(tmp_path.iterdir())) == with_folder * len(counts)
    table = import_events(values)
    assert not list(tmp_path.iterdir())
    assert table.equals(pa.concat_tables([EVENT_SCHEMA.empty_table(), *batches]))


@contextmanager
def _files_of_at_most(size: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_without_room_the_events_themselves_are_handed_over(tmp_path: Path) -> None:
    """A container's temporary folder may be small."""
    batch = _events(1000)
    with _files_of_at_most(4096):
        value = export_events(batch, str(tmp_path))
    assert not list(tmp_path.iterdir())
    assert import_events([value]).equals(batch)
    assert import_events([export_events(batch, str(tmp_path / "absent"))]).equals(batch)


def test_a_reserve_stays_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark writes its log to the same memory, and ends the query where it cannot."""
    monkeypatch.setattr(event_transfer, "RESERVE_BYTES", 1 << 60)
    assert not export_events(_events(), str(tmp_path)).startswith(b"/")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("with_folder", [True, False])
def test_more_than_there_is_room_for_is_given_up(tmp_path: Path, with_folder: bool) -> None:
    """By each task for itself; who asked for it learns how much came of how many, and no file stays behind."""
    folder = str(tmp_path) if with_folder else None
    size = _events(10).nbytes
    enough = coming_chunks(iter([_events(10)]), folder, 2 * size)
    too_much = list(coming_chunks((_events(10) for _ in range(5)), folder, 2.5 * size))
    assert len(too_much) == 3
    with pytest.raises(TooLargeError) as raised:
        import_events(chunk.events for chunk in [*enough, *too_much])
    assert raised.value.decoded == (30, 3 * size)
    assert not list(tmp_path.iterdir())


def _as_sent(decoder: EventDecoder) -> EventDecoder:
    received: Any = cloudpickle.loads(cloudpickle.dumps(decoder))
    assert isinstance(received, type(decoder))
    return received


def test_tasks_share_a_decoder() -> None:
    """Each task unpickles the function anew, and must find what the last one learnt."""
    sent = event_decoder("canal-json", DecodeOptions("UTC"))
    messages = Messages(["t"], [0], [0], [b""], [b"{}"])
    kept = []
    for received in (_as_sent(sent), _as_sent(sent)):
        assert [batch.num_rows for batch in received([messages, messages])] == [1, 1]
        kept.append(next(iter(decoded_batch._decoders.values())))
    assert kept[0] is kept[1]


def test_another_stream_has_another_decoder() -> None:
    """Its options may differ; two may even take turns."""
    messages = Messages(["t"], [0], [0], [b""], [b"{}"])
    one, two = (iter(event_decoder(name, DecodeOptions("UTC"))([messages] * 2)) for name in ("canal-json", "debezium"))
    reasons = [next(stream).column("text")[0].as_py() for stream in (one, two, one, two)]
    assert reasons[0] == reasons[2] != reasons[1] == reasons[3]


class Plan:
    """Answers."""

    def initial(self) -> Offsets:
        return {"t": {"0": 0}}

    def latest(self) -> Offsets:
        return {"t": {"0": 5}}

    def newest(self) -> Offsets:
        return {"t": {"0": 9}}

    def tasks(self) -> list[bytes]:
        return [b"one", b"two"]


def answers(planned: bytes) -> list[object]:
    """What another process is told."""
    asking = pickle.loads(planned)
    return [asking.ask(question) for question in ("initial", "latest", "newest", "tasks")]


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
