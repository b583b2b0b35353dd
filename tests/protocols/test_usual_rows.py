"""The short way of decoding gives what the long way gives, or leaves the message to it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.events import Event, Kind
from bridge.protocols import DecodeError, DecodeOptions, Decoder, decode_all, decode_message, make_decoder
from bridge.protocols.decoder import FAILURES

WARM = 40
"""Messages after which a layout's conversion is written out."""
ROW = {"id": "1", "v": "x"}
MESSAGE: dict[str, Any] = {
    "id": 0, "database": "d", "table": "t", "pkNames": ["id"], "isDdl": False, "type": "INSERT", "es": 1, "ts": 1,
    "sql": "", "sqlType": {"id": 4, "v": 12}, "mysqlType": {"id": "int", "v": "varchar"}, "old": None, "data": [ROW],
    "_tidb": {"commitTs": 470611868434825218},
}  # fmt: skip


def _warm() -> Decoder:
    decoder = make_decoder("canal-json", DecodeOptions("UTC"))
    for kind, old in (("INSERT", None), ("UPDATE", [ROW]), ("DELETE", None)):
        for _ in range(WARM):
            decoder.decode(b"", orjson.dumps({**MESSAGE, "type": kind, "old": old}))
    return decoder


WARMED = _warm()


def _the_short_way(decoder: Decoder, value: bytes | None, key: bytes | None = b"") -> Event | None:
    try:
        return decoder.usual_row(key, value)
    except (*FAILURES, DecodeError):
        return None


def _unbase64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@pytest.mark.parametrize(
    ("protocol", "variant"),
    [
        ("canal-json", "canal-ext"),
        ("canal-json", "canal"),
        ("canal-json", "canal-handle-key-only"),
        ("open-protocol", "open"),
        ("open-protocol", "open-lz4"),
        ("open-protocol", "open-updated-only"),
        ("open-protocol", "open-handle-key-only"),
    ],
)
def test_golden_messages_come_out_equal(golden: Path, protocol: str, variant: str) -> None:
    """Every genuine message, once the tables are known."""
    short = 0
    for capture in sorted((golden / variant).glob("*.jsonl")):
        lines = [json.loads(line) for line in capture.read_text().splitlines()]
        keys, values = ([_unbase64(line[part]) for line in lines] for part in ("key", "value"))
        decoder = make_decoder(protocol, DecodeOptions("UTC"))
        for key, value in [*zip(keys, values, strict=True)] * 2:
            found = _the_short_way(decoder, value, key)
            expected = decode_message(decoder, key, value)
            assert found is None or [found] == expected
            short += found is not None
        events, numbers = decode_all(decoder, keys, values)
        pairs = [
            (number, event)
            for number, (key, value) in enumerate(zip(keys, values, strict=True))
            for event in decode_message(decoder, key, value)
        ]
        assert list(zip(numbers, events, strict=True)) == pairs
    assert short > 1000 or variant not in {"canal-ext", "open"}


def test_a_usual_row_takes_the_short_way() -> None:
    """All three kinds of change."""
    decoder = _warm()
    for kind, old in (("INSERT", None), ("UPDATE", [ROW]), ("DELETE", None)):
        event = _the_short_way(decoder, orjson.dumps({**MESSAGE, "type": kind, "old": old}))
        assert event is not None
        assert event.kind is Kind[kind]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, (1 << 64) - 1)
    | st.sampled_from(["1", "x", "", "INSERT", "d", "t", "id"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["id", "v", "commitTs"]), inner),
    max_leaves=4,
)


@pytest.mark.parametrize("kind", ["INSERT", "UPDATE", "DELETE"])
@given(changes=st.dictionaries(st.sampled_from(sorted(MESSAGE)), VALUES, max_size=2), data=st.lists(VALUES, max_size=2))
def test_what_is_unusual_is_left_to_the_long_way(kind: str, changes: dict[str, Any], data: list[Any]) -> None:
    """Whatever stands where, the short way gives what the long way gives, or nothing."""
    decoder = WARMED
    for value in ({**MESSAGE, "type": kind, "old": [ROW], **changes}, {**MESSAGE, "type": kind, "old": data}):
        packed = orjson.dumps(value)
        found = _the_short_way(decoder, packed)
        assert found is None or [found] == decode_message(decoder, b"", packed)
