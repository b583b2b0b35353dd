"""Messages that cannot be decoded: everything complete before them is in the target, then the bridge stops."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bridge.errors import BadMessageError
from bridge.mysql.connection.session import Session
from tests.support.captures import row, watermark
from tests.support.pipelines import decoded, opened, run_all, session_after, sql

PARTITIONS = [("cdc", 0), ("cdc", 1)]


def capture(
    folder: Path,
    *partitions: Sequence[dict[str, Any] | bytes],
    timezone: str | None = "UTC",
    latest_ms: int | None = None,
) -> pa.Table:
    """The events of these messages; bytes are a message as it is.  latest_ms: when they were read."""
    lines = []
    for partition, messages in enumerate(partitions):
        for offset, message in enumerate(messages):
            value = message if isinstance(message, bytes) else json.dumps(message).encode()
            line = {"partition": partition, "offset": offset, "key": None, "value": base64.b64encode(value).decode()}
            lines.append(json.dumps(line))
    path = folder / "capture.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return decoded(path, "canal-json", timezone, latest_ms=latest_ms)


session = session_after("CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY, at TIMESTAMP NULL)")


def ids(session: Session) -> list[int]:
    return [id_ for (id_,) in session.rows("SELECT id FROM m.t ORDER BY id")]


@pytest.mark.parametrize("batch", [1, 100])
@pytest.mark.parametrize("bad", [b"{", b"", b"\xff\xfe", b'{"isDdl": false}', b'{"type": "INSERT", "data": "x"}'])
def test_complete_changes_first_then_the_bad_message(
    target: str, session: Session, tmp_path: Path, bad: bytes, batch: int
) -> None:
    """What lies below the last boundary before a bad message is in the target, nothing at or above it; the error names
    topic, partition and offset, and a restart comes to the same end."""
    events = capture(
        tmp_path,
        [row(10, 1), watermark(11), row(11, 2), bad, row(12, 3), watermark(20)],
        [row(10, 4), row(11, 5), watermark(20), row(21, 6), watermark(30)],
    )
    for _ in range(2):
        with pytest.raises(BadMessageError) as raised:
            run_all(target, events, batch=batch)
        assert raised.value.where == "cdc/0/3"
        assert raised.value.exit_code == 3
        assert "cdc/0/3" in str(raised.value)
        assert ids(session) == [1, 4]
    assert sql(target, "SELECT applied_ts FROM _bridge.progress") == [(11,)]


def test_slower_partitions_are_waited_for(target: str, session: Session, tmp_path: Path) -> None:
    """A bad message ahead of a slow partition does not stop the bridge before what is complete below it has come, nor
    for some seconds."""
    events = capture(tmp_path, [row(10, 1), watermark(20), b"{"], [row(10, 2), row(12, 3), watermark(20)])
    with opened(target, PARTITIONS) as pipeline:
        pipeline.take(events.slice(0, 3))
        pipeline.applier.tick()
        assert ids(session) == []
        pipeline.take(events.slice(3, 2))
        assert "bad message" in pipeline.applier.waiting_for() or "no boundary" in pipeline.applier.waiting_for()
        pipeline.take(events.slice(5, 1))
        assert ids(session) == [1, 2, 3]
        with pytest.raises(BadMessageError):
            pipeline.applier.finish()


def test_a_fixed_cause_lets_the_bridge_go_on(target: str, session: Session, tmp_path: Path) -> None:
    """A TIMESTAMP without a configured zone stops like a bad message, saying which setting is missing; with the zone
    set the same messages are read again and nothing is lost or doubled."""
    messages = [
        [row(10, 1), watermark(11), row(11, 2, at=("timestamp", "2024-01-01 08:00:00")), watermark(20)],
        [row(11, 3), watermark(20)],
    ]
    with pytest.raises(BadMessageError) as raised:
        run_all(target, capture(tmp_path, *messages, timezone=None))
    assert raised.value.where == "cdc/0/2"
    assert "timezone" in str(raised.value)
    assert ids(session) == [1]
    run_all(target, capture(tmp_path, *messages, timezone="+08:00"))
    assert session.rows("SELECT id, CAST(at AS CHAR) FROM m.t ORDER BY id") == [
        (1, None), (2, "2024-01-01 00:00:00"), (3, None)
    ]  # fmt: skip


def test_several_bad_messages(target: str, session: Session, tmp_path: Path) -> None:
    """The error names one bad message and says how many more there are."""
    events = capture(tmp_path, [row(10, 1), watermark(20), b"{", b"["], [watermark(20), b"}"])
    with pytest.raises(BadMessageError, match="2 more") as raised:
        run_all(target, events)
    assert raised.value.where == "cdc/0/2"
    assert ids(session) == [1]


def test_until_below_a_bad_message(target: str, session: Session, tmp_path: Path) -> None:
    """What --until leaves out cannot stop the bridge."""
    events = capture(tmp_path, [row(10, 1), watermark(20), b"{", watermark(30)], [watermark(30)])
    run_all(target, events, until=15)
    assert ids(session) == [1]
    assert sql(target, "SELECT applied_ts FROM _bridge.progress") == [(15,)]
