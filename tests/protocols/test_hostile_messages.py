"""Any bytes at all: no exception but DecodeError, no unsafe literal, no long wait."""

from __future__ import annotations

import json
import random
import struct
from functools import cache
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.events import Kind
from bridge.protocols import PROTOCOLS as REGISTERED
from bridge.protocols import DecodeOptions, decode_message, make_decoder
from tests.support.oracles import Pair, decoded
from tests.support.wire import (
    ROW_KEY,
    as_ckafka,
    canal,
    check_sound,
    compact,
    decode,
    frame,
    messages,
    open_event,
    open_key,
    open_row,
    open_value,
    reason,
)  # fmt: skip

PROTOCOLS = sorted(REGISTERED)
FOLDERS = {
    "canal-json": ["canal-ext", "canal-compat", "canal"],
    "ckafka": ["canal"],
    "debezium": ["debezium", "debezium-ext", "debezium-noschema", "debezium-noschema-ext"],
    "open-protocol": ["open", "open-lz4", "open-updated-only"],
}
SEED = 20261121
MUTATIONS = 1_000
REPLACEMENTS = [1_200, pytest.param(60_000, marks=pytest.mark.soak)]
SOAK_MUTATIONS = 250_000
"""Of each of the four protocols."""
LOT = 512
"""Messages that are decoded together."""


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=250)
@given(key=st.none() | st.binary(), value=st.none() | st.binary())
@example(key=bytes(7) + b"\1", value=bytes(8))
@example(key=bytes(7) + b"\1" + bytes(80), value=bytes(80))
@example(key=b"\x04\x22\x4d\x18", value=b"\x04\x22\x4d\x18")
def test_any_bytes(protocol: str, key: bytes | None, value: bytes | None) -> None:
    """Arbitrary bytes give events or one BAD."""
    check_sound(decode(protocol, key, value))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["1' OR '1'='1", "\0", "\\"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=150)
@given(value=json_values)
def test_any_json(protocol: str, value: Any) -> None:
    """Arbitrary JSON, as message, event key and event value, gives events or one BAD."""
    content = json.dumps(value).encode()
    check_sound(decode(protocol, b"", content))
    check_sound(decode(protocol, struct.pack(">q", 1) + frame(content), frame(content)))
    check_sound(decode(protocol, open_key(ROW_KEY), frame(content)))


@cache
def samples(golden: Path, protocol: str) -> list[tuple[bytes | None, bytes | None]]:
    """Genuine messages, each kind and table of them, small ones first."""
    seen: dict[object, tuple[bytes | None, bytes | None]] = {}
    for folder in FOLDERS[protocol]:
        for _, key, value in messages(golden / folder / "all_types.jsonl"):
            if protocol == "ckafka":
                value = as_ckafka(value or b"")
            events = decode(protocol, key, value)
            seen.setdefault((folder, len(events), *events[0][3:6], events[0].kind), (key, value))
    return sorted(seen.values(), key=lambda message: len(message[1] or b""))


def mutated(message: bytes, chance: random.Random) -> bytes:
    """A message after one to four changes of bytes: overwritten, cut out, doubled, set in."""
    changed = bytearray(message)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) + 1)
        to = min(len(changed), at + chance.choice([1, 1, 2, 8, 40]))
        changed[at:to] = chance.choice(
            [
                b"",
                changed[at:to] * 2,
                chance.randbytes(to - at),
                chance.choice([b'"', b"'", b"\\", b"9" * 99, b"{", b"-"]),
            ]
        )
    return bytes(changed)


def mutate(golden: Path, protocol: str, count: int) -> set[Kind]:
    """Decodes altered genuine messages among sound ones by the fast path and by parsing; the kinds of event that came
    of them."""
    chance = random.Random(SEED)
    options = DecodeOptions("Asia/Shanghai")
    decoder, oracle = make_decoder(protocol, options), make_decoder(protocol, options)
    kinds = set()
    for at in range(0, count, LOT // 2):
        pairs = [chance.choice(samples(golden, protocol)) for _ in range(LOT)]
        for number in range(min(LOT // 2, count - at)):
            pairs[number] = _altered(*pairs[number], chance)
        chance.shuffle(pairs)
        for pair, events in zip(pairs, decoded(decoder, pairs), strict=True):
            assert events == decode_message(oracle, *pair)
            check_sound(events)
            kinds |= {event.kind for event in events}
    return kinds


def _altered(key: bytes | None, value: bytes | None, chance: random.Random) -> Pair:
    if key and chance.random() < 0.3:
        key = mutated(key, chance)
    return key, mutated(value or b"", chance)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_mutated_bytes(golden: Path, protocol: str) -> None:
    """Genuine messages with altered bytes give events or one BAD with its reason."""
    assert {Kind.BAD, Kind.INSERT, Kind.UPDATE} <= mutate(golden, protocol, MUTATIONS)


@pytest.mark.soak
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_million_mutations(golden: Path, protocol: str) -> None:
    """The same, for longer."""
    kinds = set(Kind) - {Kind.BOUNDARY, Kind.LEFT_OUT, Kind.TRANSACTION}  # of other topics, and of filters
    assert kinds <= mutate(golden, protocol, SOAK_MUTATIONS)


def paths(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every node of a JSON document."""
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(deeper for name, child in children for deeper in paths(child, (*path, name)))]


def replaced(node: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A JSON document with one node replaced."""
    if not path:
        return new
    if isinstance(node, list):
        return [replaced(child, path[1:], new) if at == path[0] else child for at, child in enumerate(node)]
    return {name: replaced(child, path[1:], new) if name == path[0] else child for name, child in node.items()}


OTHERS = [
    None, True, False, 0, 1, -1, 1 << 63, 1 << 64, 1.5, 1e308, "", "0", "1", "x", "1' OR '1'='1", "\0", "\\", "'", [],
    [None], ["x"], [{}], {}, {"id": "1"}, {"id": {"t": 3, "v": 1}}, {"t": 3, "v": None}, {"\0": 1}, "2024-01-01",
]  # fmt: skip


@pytest.mark.parametrize("count", REPLACEMENTS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_mutated_json(golden: Path, protocol: str, count: int) -> None:
    """Genuine messages with any one part replaced by other JSON give events or one BAD, whatever is cached, together
    and one by one."""
    chance = random.Random(SEED)
    decoder = make_decoder(protocol, DecodeOptions("UTC"))
    skip = 8 if protocol == "open-protocol" else 0
    plain = [m for m in samples(golden, protocol) if m[1] and m[1][skip : skip + 1] == b"{" and frames_one(m, skip)]
    assert len(plain) > 30
    for at in range(0, count, LOT // 2):
        pairs: list[Pair] = [chance.choice(plain) for _ in range(LOT)]
        for number in range(min(LOT // 2, count - at)):
            key, value = pairs[number]
            document = json.loads((value or b"")[skip:])
            changed = compact(replaced(document, chance.choice(paths(document)), chance.choice(OTHERS)))
            pairs[number] = key, changed if skip == 0 else frame(changed)
        chance.shuffle(pairs)
        for pair, events in zip(pairs, decoded(decoder, pairs), strict=True):
            check_sound(events)
            assert events == decode(protocol, *pair) == decode_message(decoder, *pair)


def frames_one(message: tuple[bytes | None, bytes | None], skip: int) -> bool:
    value = message[1] or b""
    return not skip or int.from_bytes(value[:skip], "big") + skip == len(value)


def test_nested_values() -> None:
    """JSON nested as deeply as the parser allows is refused or compared without an overrun."""
    nested: Any = 1
    for _ in range(400):
        nested = {"t": nested}
    for change in ({"u": {"id": nested}}, {"u": {"id": {"t": 3, "v": nested}}}, {"u": {"id": {"t": nested, "v": 1}}}):
        assert reason(open_event(*open_row(change)))
    text = b'{"u":{"id":{"t":3,"v":1,"x":%s}}}' % (b"[" * 1000 + b"]" * 1000)
    decoder = make_decoder("open-protocol", DecodeOptions(None))
    for _ in range(2):
        check_sound(decode_message(decoder, open_key(ROW_KEY), frame(text)))


def test_many_packed_values_in_a_batch() -> None:
    """A batch of lz4 frames that are each within bounds is refused as a whole when it grows too large."""
    row = {"u": {"id": {"t": 15, "f": 0, "v": "x" * (2 << 20)}}}
    packed = frame(lz4.frame.compress(compact(row)))
    [event] = decode("open-protocol", open_key(*[ROW_KEY] * 100), packed * 100)
    assert "batch holds more than" in reason(event)


INJECTIONS = ["1 OR 1=1", "1;DROP TABLE t", "0x31", "1--", "(SELECT 1)", "NULL", "1,2", "1'", "'", "1\0", "٣", "1 "]
CHECKED_CODES = [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 16, 246, 247, 248]
CHECKED_TYPES = [
    "tinyint", "int unsigned", "bigint", "float", "double", "decimal(9,2)", "bit", "enum('a')", "set('a')", "year",
    "date", "time", "datetime", "timestamp",
]  # fmt: skip


@pytest.mark.parametrize("injection", INJECTIONS)
def test_injections(injection: str) -> None:
    """SQL in a column that is written without escaping makes the message BAD."""
    for mysql_type in CHECKED_TYPES:
        assert reason(decode("canal-json", b"", canal("INSERT", {"v": (mysql_type, injection)}))[0])
        old = canal("UPDATE", {"v": (mysql_type, None)}, old=[{"v": injection}])
        assert reason(decode("canal-json", b"", old)[0])
    for code in CHECKED_CODES:
        bad, good = {"v": {"t": code, "f": 65, "v": injection}}, {"v": {"t": code, "f": 65, "v": None}}
        for change in ({"u": bad}, {"d": bad}, {"u": good, "p": bad}):
            assert reason(decode("open-protocol", open_key(ROW_KEY), open_value(change))[0])
