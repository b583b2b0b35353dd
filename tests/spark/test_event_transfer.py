"""Events come to the driver as they were, by way of files or not, and leave no file behind."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from bridge.events import EVENT_SCHEMA
from bridge.protocols import DecodeOptions
from bridge.protocols.batch_decode import EventDecoder, Messages
from bridge.spark import event_transfer, worker_decoder
from bridge.spark.event_transfer import TooLargeError, coming_chunks, export_events, import_events
from bridge.spark.worker_decoder import event_decoder


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
        kept.append(next(iter(worker_decoder._decoders.values())))
    assert kept[0] is kept[1]


def test_another_stream_has_another_decoder() -> None:
    """Its options may differ; two may even take turns."""
    messages = Messages(["t"], [0], [0], [b""], [b"{}"])
    one, two = (iter(event_decoder(name, DecodeOptions("UTC"))([messages] * 2)) for name in ("canal-json", "debezium"))
    reasons = [next(stream).column("text")[0].as_py() for stream in (one, two, one, two)]
    assert reasons[0] == reasons[2] != reasons[1] == reasons[3]
