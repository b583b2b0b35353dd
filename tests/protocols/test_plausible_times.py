"""Messages of a time that has not come yet: what they say of time is not believed."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import pytest

from bridge.events import Code, Kind
from bridge.protocols import DecodeOptions, make_decoder
from bridge.protocols.batch_decode import Messages, decode_messages
from bridge.protocols.decoder import MS_AHEAD
from bridge.tso import ms_tso
from tests.support.captures import row, watermark
from tests.support.debezium_wire import TICDC_SOURCE, ticdc
from tests.support.wire import open_key, open_row, open_value

NOW: Final = 1_764_000_000_000
AHEAD: Final = ms_tso(NOW + MS_AHEAD + 1)
"""The first TSO that is not believed."""
Pair = tuple[bytes | None, bytes]


def canal_row(ts: int) -> Pair:
    return None, orjson.dumps(row(ts, 1))


def canal_boundary(ts: int) -> Pair:
    return None, orjson.dumps(watermark(ts))


def open_boundary(ts: int) -> Pair:
    return open_key({"ts": ts, "t": 3}), open_value() + bytes(8)


def open_change(ts: int) -> Pair:
    return open_row({"u": {"id": {"t": 3, "h": True, "f": 11, "v": 1}}}, ts=ts)


def debezium_row(ts: int) -> Pair:
    return b'{"payload":{"id":1}}', ticdc("c", {"id": 1}, source=TICDC_SOURCE | {"commit_ts": ts})


MAKERS: Final = {
    "canal-json": [canal_row, canal_boundary], "open-protocol": [open_change, open_boundary], "debezium": [debezium_row]
}  # fmt: skip


def decoded(protocol: str, pairs: list[Pair], latest_ms: list[int], **options: Any) -> list[dict[str, Any]]:
    """The events of messages that are decoded together, twice, since the decoder has learned their forms then."""
    keys, values = zip(*pairs, strict=True)
    count = len(pairs)
    messages = Messages(["q"] * count, [0] * count, list(range(count)), list(keys), list(values), latest_ms)
    decoder = make_decoder(protocol, DecodeOptions("UTC", **options))
    decode_messages(decoder, messages)
    events: list[dict[str, Any]] = decode_messages(decoder, messages).to_pylist()
    return sorted(events, key=lambda event: event["offset"])


@pytest.mark.parametrize(("protocol", "make"), [(name, one) for name, makers in MAKERS.items() for one in makers])
@pytest.mark.parametrize("count", [1, 1500])
def test_one_from_the_future_among_others(protocol: str, make: Any, count: int) -> None:
    """It is bad, with its bytes; those around it are what they are, whichever path decodes them."""
    pairs = [make(AHEAD - 1)] * count + [make(AHEAD)] + [make(AHEAD - 1)] * count
    events = decoded(protocol, pairs, [NOW] * len(pairs))
    [bad] = [event for event in events if event["kind"] == Kind.BAD]
    assert len(events) == 2 * count + 1
    assert (bad["offset"], bad["columns"]) == (count, Code.AHEAD_OF_CLOCK)
    assert bad["after"]
    assert f"{AHEAD} is 2035-11-22T16:00:00.001Z, later than can be" in bad["text"]
    assert "source.ahead_seconds" in bad["text"]


@pytest.mark.parametrize(
    "ts",
    [
        ms_tso(int(datetime(2200, 1, 1, tzinfo=UTC).timestamp()) * 1000), NOW * 1_000_000, (1 << 63) - 1, 1 << 62,
    ],
)  # fmt: skip
def test_what_senders_get_wrong(ts: int) -> None:
    """The year 2200, nanoseconds instead of a TSO, and the largest numbers are no boundaries."""
    [event] = decoded("canal-json", [canal_boundary(ts)], [NOW])
    assert event["columns"] == Code.AHEAD_OF_CLOCK


def test_a_schema_change_from_the_future_is_a_schema_change() -> None:
    """It is never quarantined by itself."""
    change = {**row(AHEAD, 1), "isDdl": True, "type": "ALTER", "sql": "ALTER TABLE t ADD COLUMN c INT", "data": None}
    [event] = decoded("canal-json", [(None, orjson.dumps(change))], [NOW])
    assert (event["kind"], event["columns"]) == (Kind.BAD, Code.SCHEMA_CHANGE)
    assert "later than can be" in event["text"]


def test_kafka_tells_the_time_where_the_clock_is_behind() -> None:
    """A machine whose clock has not been set yet takes every message for one of the future, if it asks nobody else."""
    pairs = [canal_boundary(ms_tso(NOW))] * 3
    assert {event["kind"] for event in decoded("canal-json", pairs, [0, 0, NOW])} == {Kind.BOUNDARY}
    assert {event["kind"] for event in decoded("canal-json", pairs, [0, 0, 0])} == {Kind.BAD}


def test_an_upstream_whose_clock_is_ahead() -> None:
    """The setting says so."""
    [event] = decoded("canal-json", [canal_boundary(AHEAD)], [NOW], ms_ahead=MS_AHEAD + 1)
    assert event["kind"] == Kind.BOUNDARY


def test_event_times_are_believed() -> None:
    """A session of MySQL sets its own time; without a TSO nothing is dropped by it."""
    message = {name: value for name, value in row(1, 1).items() if name != "_tidb"} | {"es": NOW * 2}
    [event] = decoded("canal-json", [(None, orjson.dumps(message))], [NOW])
    assert (event["kind"], event["by_time"]) == (Kind.INSERT, True)


def test_without_a_clock_everything_is_believed() -> None:
    """Whoever does not say when messages were read gets what they say."""
    [event] = decoded("canal-json", [canal_boundary((1 << 63) - 1)], [])
    assert event["kind"] == Kind.BOUNDARY
    assert time.time() * 1000 > NOW
