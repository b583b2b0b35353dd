"""`decode_batch` gives of each message what parsing gives, or leaves it to that."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.protocols import decode_message
from bridge.protocols.batch_decode import Messages, decode_messages
from bridge.protocols.fast import templates
from bridge.protocols.fast.compiled.codes import TEXT
from bridge.protocols.values import literals
from tests.bench.decoding import rows_of
from tests.bench.encoders import SENDERS
from tests.bench.workload import WORKLOADS
from tests.support.oracles import (
    CHANGES,
    FOR_EACH,
    MESSAGE,
    ORACLES,
    TAUGHT,
    WARM,
    Pair,
    always_tried,
    compared,
    decoded_fast,
    decoder_of,
    events_of,
    in_message_order,
    messages_of,
    unbase64,
)

TAUGHT_HEADS = decoder_of("canal-json")
with always_tried():
    decoded_fast(TAUGHT_HEADS, [(b"", orjson.dumps(MESSAGE))] * 600)

Pairs = list[Pair]
"""Keys and values of messages."""


def _pairs(protocol: str, changes: list[tuple[Any, Any]]) -> Pairs:
    return [(message.key, message.value) for message in messages_of(protocol, changes)]


@pytest.mark.parametrize(
    ("protocol", "variant"),
    [
        *(("canal-json", "canal-ext"), ("canal-json", "canal"), ("canal-json", "canal-updated-only")),
        *(("canal-json", "canal-handle-key-only"), ("open-protocol", "open"), ("open-protocol", "open-lz4")),
        *(("open-protocol", "open-updated-only"), ("open-protocol", "open-handle-key-only")),
        *(("debezium", "debezium-ext"), ("debezium", "debezium-noschema-ext")),
    ],
)
def test_genuine_messages_come_out_equal(golden: Path, protocol: str, variant: str) -> None:
    """Every message of every capture, in many copies, as one batch, before and after it taught: positions, events."""
    read = 0
    for capture in sorted((golden / variant).glob("*.jsonl")):
        once = [json.loads(line) for line in capture.read_text().splitlines()]
        lines = once * 2
        keys, values = ([unbase64(line[part]) for line in lines] for part in ("key", "value"))
        decoder, oracle = decoder_of(protocol), decoder_of(protocol)
        offsets = list(range(len(lines)))
        batch = Messages(["t"] * len(lines), [7] * len(lines), offsets, keys, values)
        parsed = [decode_message(oracle, keys[n], values[n]) for n in range(len(once))]
        expected = [(n, event) for n in offsets for event in parsed[n % len(once)]]
        rows = in_message_order(decode_messages(decoder, batch))
        assert set(rows["topic"].unique().to_pylist()) | set(rows["partition"].unique().to_pylist()) == {"t", 7}
        assert list(zip(rows["offset"].to_pylist(), events_of(rows), strict=True)) == expected
        together = decoded_fast(decoder, list(zip(keys, values, strict=True)))
        assert all(events == parsed[number % len(once)] for number, events in together.items())
        read += len(together)
    assert read > 1000 or variant not in {"canal-ext", "open", "debezium-ext", "debezium-noschema-ext"}


def test_a_form_that_is_read_otherwise_than_parsed_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried on the message that it was learned from, and must make the same event."""
    monkeypatch.setitem(templates._USUAL_STRINGS, literals.integer, TEXT)
    decoder = decoder_of("canal-json")
    assert decoded_fast(decoder, [(b"", orjson.dumps(MESSAGE))] * 600) == {}
    assert not decoder._reader.learned


@pytest.mark.parametrize("ts", [1, 10**17, 10**18, (1 << 63) - 1, 1 << 63, (1 << 64) + 1, 0, -1, "1", None, 1.0, True])
def test_every_commit_ts(ts: Any) -> None:
    """One beyond 63 bits is no TSO."""
    value = orjson.dumps(MESSAGE).replace(b'"commitTs":470611868434825218', b'"commitTs":' + json.dumps(ts).encode())
    compared("canal-json", TAUGHT_HEADS, [(b"", orjson.dumps(MESSAGE)), (b"", value)])


@pytest.mark.parametrize("protocol", SENDERS)
def test_few_messages_are_left_to_parsing(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To read them together costs more."""
    monkeypatch.setattr("bridge.protocols.fast.readiness._MANY", 512)
    pairs = _pairs(protocol, [(None, (n, n, "y")) for n in range(512)])
    assert decoded_fast(TAUGHT[protocol], pairs[1:]) == {}
    assert len(decoded_fast(TAUGHT[protocol], pairs)) == 512


@pytest.mark.parametrize("protocol", SENDERS)
def test_all_kinds_are_decoded_together(protocol: str) -> None:
    """Inserts, updates and deletes, NULL or not, with apostrophes and characters beyond ASCII."""
    row, new = (7, -8, "it's"), (7, 9, "\u00e9\u20ac")
    changes = [(None, row), (row, new), (row, (7, 9, None)), (new, None)] * 20
    assert compared(protocol, TAUGHT[protocol], _pairs(protocol, changes)) == set(range(len(changes)))


@pytest.mark.parametrize("protocol", SENDERS)
@FOR_EACH
@given(changes=st.lists(CHANGES, min_size=1, max_size=4), copies=st.integers(1, 12))
def test_together_as_one_by_one(protocol: str, changes: list[tuple[Any, Any]], copies: int) -> None:
    """Whatever stands in the values, of few messages or many, beside usual ones."""
    usual = _pairs(protocol, [(None, (7, 8, "y")), ((7, 8, "y"), (7, 9, None))])
    compared(protocol, TAUGHT[protocol], (_pairs(protocol, changes) + usual) * copies)


@pytest.mark.parametrize("protocol", SENDERS)
@FOR_EACH
@given(
    at=st.integers(0, 10_000),
    put=st.binary(max_size=3) | st.sampled_from([b'"', b'","', b"null", b"{}", b"\x80", b"'"]),
    cut=st.integers(0, 8),
    kind=st.sampled_from([0, 1, 2]),
    is_key=st.booleans(),
)
def test_damage_stays_where_it_is(protocol: str, at: int, put: bytes, cut: int, kind: int, is_key: bool) -> None:
    """Bytes changed, lost or put in anywhere in one message of many: it comes out as it does alone, the others too."""
    row, new = (7, 8, "y"), (7, 9, "z")
    [whole] = _pairs(protocol, [((None, row), (row, new), (row, None))[kind]])
    part = whole[0 if is_key else 1] or b""
    at %= len(part) + 1
    damaged = part[:at] + put + part[at + cut :]
    pairs = [whole] * 4 + [(damaged, whole[1]) if is_key else (whole[0], damaged)] + [whole] * 4
    compared(protocol, TAUGHT[protocol], pairs)


@pytest.mark.parametrize("protocol", ["canal-json", "open-protocol"])
@pytest.mark.parametrize("place", [0, 3, 6])
def test_an_old_row_whose_new_row_is_refused_is_nobody_elses(protocol: str, place: int) -> None:
    """The old row has become literals already; the rows of the messages behind it stay as they are."""
    changes = [((n, n, "y"), (n, -n, "z")) for n in range(6)]
    changes.insert(place, ((7, 8, "y"), (7, 987654321, "z")))
    pairs = [(key, (value or b"").replace(b"987654321", b"9" * 30)) for key, value in _pairs(protocol, changes)]
    assert compared(protocol, TAUGHT[protocol], pairs) == set(range(7)) - {place}


@pytest.mark.parametrize("protocol", SENDERS)
@pytest.mark.parametrize("odd", ["\\", "\0", "\n", '"'])
def test_what_needs_escaping_is_decoded_together(protocol: str, odd: str) -> None:
    """With all that does not."""
    pairs = _pairs(protocol, [(None, (n, n, "y")) for n in range(100)])
    [pairs[50]] = _pairs(protocol, [(None, (50, 50, odd))])
    assert compared(protocol, TAUGHT[protocol], pairs) == set(range(100))


@pytest.mark.parametrize("protocol", SENDERS)
def test_messages_that_are_not_there(protocol: str) -> None:
    """Tombstones and empty messages among rows; nothing at all."""
    [row] = _pairs(protocol, [(None, (1, 1, "y"))])
    decoder = TAUGHT[protocol]
    assert compared(protocol, decoder, [row, (row[0], None), row, (None, b""), (b"", row[1]), row]) >= {0, 2, 5}
    assert compared(protocol, decoder, []) == set()
    assert compared(protocol, decoder, [(None, None)] * 300) == set()


@pytest.mark.parametrize("protocol", SENDERS)
@pytest.mark.parametrize(("workload", "share"), [("wide", 0.9), ("real", 0.0)])
def test_rows_of_many_columns(protocol: str, workload: str, share: float) -> None:
    """Sixty columns of all types, which are decoded together; documents, quotes, line breaks, many scripts, binary
    values and NULLs of shops, which come out as parsing gives them."""
    pairs = [(m.key, m.value) for m in rows_of(protocol, WORKLOADS[workload], 400)]
    decoder = decoder_of(protocol)
    decoded_fast(decoder, pairs)
    assert len(compared(protocol, decoder, pairs)) >= share * len(pairs)


@pytest.mark.parametrize("odd", [12, -1, 1.0, '1,"x":1', "1"])
def test_heads_that_are_alike_only_in_those_looked_at(odd: Any) -> None:
    """Where things lie is taken from some messages; what lies elsewhere in others, or is no number, is seen.  One part
    more is another form, which is learned."""
    decoder, looked_at = decoder_of("canal-json"), set(range(0, 400, 9))
    usual = orjson.dumps({**MESSAGE, "ts": 7})
    other = orjson.dumps({**MESSAGE, "ts": odd}) if odd != '1,"x":1' else usual.replace(b'"ts":7', b'"ts":1,"x":1')
    decoded_fast(decoder, [(b"", usual)] * 2 * WARM)
    pairs: Pairs = [(b"", usual if number in looked_at else other) for number in range(400)]
    read = compared("canal-json", decoder, pairs)
    assert read == (looked_at if odd in (1.0, "1") else set(range(400)))


@given(at=st.integers(0, 1_000), put=st.sampled_from([b'"', b",", b":", b"{", b"}", b"1", b"a"]))
def test_a_byte_of_a_head(at: int, put: bytes) -> None:
    """Another one in its place, so that all else lies where it does in messages that were looked at."""
    usual = orjson.dumps({**MESSAGE, "es": 1668, "ts": 1668})
    at %= len(usual)
    damaged = usual[:at] + put + usual[at + 1 :]
    looked_at = set(range(0, 400, 9))
    pairs: Pairs = [(b"", usual if number in looked_at or number % 9 else damaged) for number in range(400)]
    compared("canal-json", TAUGHT_HEADS, pairs)


def test_a_batch_too_large_for_the_memory_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """And all of it comes out."""
    monkeypatch.setattr("bridge.protocols.batch_decode._TOGETHER_BYTES", 10_000)
    pairs = _pairs("canal-json", [(None, (n, n, "y")) for n in range(1000)])
    random.Random(1).shuffle(pairs)
    batch = Messages(["t"] * 1000, [0] * 1000, list(range(1000)), [k for k, _ in pairs], [v for _, v in pairs])
    found = in_message_order(decode_messages(TAUGHT["canal-json"], batch))
    assert found["offset"].to_pylist() == list(range(1000))
    assert events_of(found) == [decode_message(ORACLES["canal-json"], *pair)[0] for pair in pairs]
