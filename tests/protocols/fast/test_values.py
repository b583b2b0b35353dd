"""Whatever a value is, in a lot of usual ones: its literal is the one that parsing gives, or parsing is left to it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.protocols import decode_message
from bridge.protocols.canal.types import TYPES
from tests.support.debezium_wire import TICDC_SOURCE, payload
from tests.support.oracles import (
    FOR_EACH,
    MESSAGE,
    WARM,
    Pair,
    compared,
    decoded_fast,
    decoder_of,
    messages_of,
)
from tests.support.wire import compact

NUMBERS = [
    "0", "-0", "7", "-7", "00", "01", "+1", "1.", ".5", "-", "", "0.5", "-0.5", "0.0", "-0.0", "0.10", "10.0", "10.00",
    "0.0001", "0.00001", "0.0000", "1e5", "1E-5", "1.5e300", "1e999", "123456789012345", "12345678901234.5",
    "1234567890123.45", "123456789012345.6", "1234567890123456.7", "9007199254740993", "0.1234567890123456",
    "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616",
    "1999", "-9223372036854775808", "-9223372036854775809", "1" * 25, "NaN", "Infinity", "true", "false", "null", "nul",
    "{}", "[]", "[1.5]", '"7"', '"x"', "1 ", " 1", "1\n", "0x1F", "1_000", "1.5.5", "--1", "1e", "\u0661",
]  # fmt: skip
"""Numbers, and what is not quite a number."""
TEXTS = st.text() | st.text(alphabet=st.sampled_from("\\'\"\0\n\x7f\u00e9\u20ac\U0001f600ab"), max_size=40)
ESCAPES = st.sampled_from(
    [
        r"\n", r"\t", r"\"", r"\\", r"\/", r"\b", r"\f", r"\r", r"\u0000", r"\u0027", r"\u005c", r"\u00e9", r"\u20AC",
        r"\u00ff", r"\u0100",
        r"\ud83d\ude00", r"\ud83d", r"\ude00", r"\ude00\ud83d", r"\ud83d\n", r"\u12", r"\x41", r"\'", "'", "\x1f",
        "\x7f",
        "\u00e9", "\u20ac", "\U0001f600", "a", "seven b", "eight by", "\ufffd", '"', "\\",
    ]
)  # fmt: skip
"""Pieces of JSON strings, some of which no JSON string has."""
BYTES = st.sampled_from(
    [b"\xc4\x80", b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc2\x80", b"\xe0\x80\x80", b"\xe0\xa0\x80",
     b"\xed\x9f\xbf", b"\xed\xa0\x80", b"\xef\xbf\xbf", b"\xf0\x80\x80\x80", b"\xf0\x90\x80\x80", b"\xf4\x8f\xbf\xbf",
     b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"\xe2\x82", b"\xf0\x9f\x98", b"a", b"1234567", b"12345678"]
)  # fmt: skip
"""Pieces of UTF-8, some of which no text has."""


def _compare(protocol: str, usual: Sequence[Pair], odd: Sequence[Pair]) -> set[int]:
    """Decodes odd messages among usual ones; gives the numbers of those that were read, odd ones first."""
    decoder = decoder_of(protocol)
    decoded_fast(decoder, list(usual))
    pairs = [*odd, *usual[:3]]
    read = compared(protocol, decoder, pairs)
    assert {*range(len(odd), len(pairs))} <= read
    return read


def _open(kind: int, flags: int | None, value: bytes) -> Pair:
    """A row of the Open Protocol whose second column is of a type."""
    column = {"t": kind, "v": "@"} if flags is None else {"t": kind, "f": flags, "v": "@"}
    row = compact({"u": {"id": {"t": 3, "h": True, "f": 11, "v": 1}, "v": column}}).replace(b'"@"', value)
    key = compact({"ts": 470611868434825218, "scm": "d", "tbl": "t", "t": 1})
    frames = [len(part).to_bytes(8) + part for part in (key, row)]
    return (1).to_bytes(8) + frames[0], frames[1]


def _debezium(value: bytes) -> Pair:
    content = compact({"payload": payload("c", {"id": 1, "v": "@"}, TICDC_SOURCE)})
    return b'{"payload":{"id":1}}', content.replace(b'"@"', value)


def _canal(kind: str, value: bytes) -> Pair:
    types = {"id": "int", "v": kind}
    message = {**MESSAGE, "mysqlType": types, "sqlType": dict.fromkeys(types, 1), "data": [{"id": "1", "v": "@"}]}
    return b"", orjson.dumps(message).replace(b'"@"', value)


def _ckafka(value: bytes) -> Pair:
    [message] = messages_of("ckafka", [(None, (1, 777, "y"))])
    return message.key, (message.value or b"").replace(b'"y"', value)


Make = Callable[[bytes], Pair]
WITH_NUMBERS: list[tuple[str, Make, bytes]] = [
    *(("open-protocol", lambda value, kind=kind: _open(kind, 0, value), b"7") for kind in (1, 3, 4, 5, 8, 16, 247)),
    ("open-protocol", lambda value: _open(13, 0, value), b"1999"),
    ("debezium", _debezium, b"7"),
    ("debezium", _debezium, b"0.5"),
]


@pytest.mark.parametrize(("protocol", "make", "usual"), WITH_NUMBERS)
def test_every_number(protocol: str, make: Make, usual: bytes) -> None:
    """In the shortest form, and in others."""
    _compare(protocol, [make(usual)] * WARM, [make(number.encode()) for number in NUMBERS])


@pytest.mark.parametrize(
    "kind",
    [
        *("int", "int unsigned", "bigint unsigned", "bit", "decimal", "float", "double", "year", "enum('7','x')"),
        *("set('7')", "FLOAT8", "SERIAL"),
    ],
)
def test_every_number_as_a_string(kind: str) -> None:
    """Canal's numbers are strings."""
    strings = [_canal(kind, json.dumps(number).encode()) for number in NUMBERS]
    usual = b'"1999"' if kind == "year" else b'"7"'
    _compare(
        "canal-json", [_canal(kind, usual)] * WARM, strings + [_canal(kind, number.encode()) for number in NUMBERS]
    )


def test_ckafka_rows_in_other_forms() -> None:
    """Values that are numbers, and rows that are texts, are left to parsing."""
    numbers = [_ckafka(number.encode()) for number in NUMBERS]
    key, whole = _ckafka(b'"7"')
    found = orjson.loads(whole or b"")
    texts = [(key, orjson.dumps({**found, "NEW_VALUES": json.dumps(found["NEW_VALUES"])}))]
    _compare("ckafka", [_ckafka(b'"x"')] * WARM, [*numbers, *texts])


STRINGS: list[tuple[str, Make]] = [
    ("open-protocol", lambda value: _open(15, 0, value)),
    ("open-protocol", lambda value: _open(245, 0, value)),
    ("debezium", _debezium),
    ("ckafka", _ckafka),
    ("canal-json", lambda value: _canal("varchar", value)),
    ("canal-json", lambda value: _canal("varbinary", value)),
    ("canal-json", lambda value: _canal("json", value)),
    ("canal-json", lambda value: _canal("NATIONAL VARCHAR(9)", value)),
    ("canal-json", lambda value: _canal("point", value)),
]


@pytest.mark.parametrize(("protocol", "make"), STRINGS)
@FOR_EACH
@given(texts=st.lists(TEXTS, max_size=6))
def test_every_text(protocol: str, make: Make, texts: list[str]) -> None:
    """As two encoders write it: with as few escapes as JSON allows, and with all."""
    found = [make(json.dumps(text, ensure_ascii=all_escapes).encode("utf-8", "surrogatepass"))
             for text in texts for all_escapes in (False, True)]  # fmt: skip
    _compare(protocol, [make(b'"x"')] * WARM, found)


@pytest.mark.parametrize(("protocol", "make"), STRINGS)
@FOR_EACH
@given(strings=st.lists(st.lists(ESCAPES, max_size=6).map("".join), min_size=1, max_size=6))
def test_every_escape(protocol: str, make: Make, strings: list[str]) -> None:
    """Also those that JSON does not know."""
    _compare(protocol, [make(b'"x"')] * WARM, [make(f'"{string}"'.encode()) for string in strings])


@pytest.mark.parametrize(("protocol", "make"), STRINGS)
@FOR_EACH
@given(strings=st.lists(st.lists(BYTES, max_size=6).map(b"".join), min_size=1, max_size=6))
def test_every_byte(protocol: str, make: Make, strings: list[bytes]) -> None:
    """Also what is not UTF-8."""
    _compare(protocol, [make(b'"x"')] * WARM, [make(b'"' + string + b'"') for string in strings])


@pytest.mark.parametrize(("kind", "flags"), [(249, 0), (252, 0), (252, None), (252, 1), (254, 1), (15, 1)])
@FOR_EACH
@example(contents=[], odd=["QU_=", "QU\n=", "Q_==", "QUI="])
@given(
    contents=st.lists(TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.lists(BYTES).map(b"".join)),
    odd=st.lists(
        st.text(alphabet=st.sampled_from("QUJD+/=-_ \\n"), max_size=12)
        | st.sampled_from(
            [
                *("=", "==", "====", "QQ", "QQ=", "QQ==", "QR==", "QUI=", "QUJ=", "QUJD", "Q=Q=", "QQ==QQ==", "QU_="),
                *("QU\n=", "Q_=="),
            ]
        )
    ),
)
def test_every_base64(kind: int, flags: int | None, contents: list[bytes], odd: list[str]) -> None:
    """Text and bytes, and what is neither base64 nor UTF-8."""
    values = [base64.b64encode(content).decode() for content in contents] + odd
    usual = [_open(kind, flags, b'"eA=="')] * WARM
    _compare("open-protocol", usual, [_open(kind, flags, compact(value)) for value in values])


MOMENTS = st.from_regex(
    r"-?[0-9]{1,4}[-:][0-9]{2}[-:][0-9]{2}( [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{0,7})?)?", fullmatch=True
)


@pytest.mark.parametrize("kind", ["date", "datetime", "time"])
@pytest.mark.parametrize("fraction", ["", ".", ".1", ".123456", ".1234567"])
def test_every_fraction(kind: str, fraction: str) -> None:
    """Six digits at most."""
    usual = {"date": "2024-02-29", "time": "12:00:00"}.get(kind, "2024-02-29 23:59:59")
    odd = [_canal(kind, json.dumps(usual + fraction).encode())]
    _compare("canal-json", [_canal(kind, json.dumps(usual).encode())] * WARM, odd)


@pytest.mark.parametrize("kind", ["date", "datetime", "timestamp", "time"])
@FOR_EACH
@given(values=st.lists(MOMENTS))
def test_every_moment(kind: str, values: list[str]) -> None:
    """Within the range of its type, and beyond."""
    usual = {"date": "2024-02-29", "time": "12:00:00"}.get(kind, "2024-02-29 23:59:59")
    _compare(
        "canal-json",
        [_canal(kind, json.dumps(usual).encode())] * WARM,
        [_canal(kind, json.dumps(value).encode()) for value in values],
    )


def test_what_is_usual_is_read() -> None:
    """Of these values none is left to parsing."""
    usual: list[tuple[str, Make, list[Any]]] = [
        ("open-protocol", lambda value: _open(5, 0, value), [1, 0.5, -2.25, 1e300, None]),
        ("open-protocol", lambda value: _open(252, 0, value), ["", "eA==", "w6k=", None]),
        ("debezium", _debezium, [1, 0.5, "x", "\n", True, None]),
        ("open-protocol", lambda value: _open(252, 1, value), ["", "eA==", "w6k=", "AP9c", None]),
        ("canal-json", lambda value: _canal("varbinary", value), ["\u00ff", "", "\x80'\n\\\0a\u00c3\x1f", None]),
        ("canal-json", lambda value: _canal("int unsigned", value), ["-1", "007", "5"]),
        ("canal-json", lambda value: _canal("time", value), ["838:59:59", "12:00:00.5"]),
    ]
    for protocol, make, values in usual:
        odd = [make(compact(value)) for value in values]
        assert _compare(protocol, [make(compact(values[0]))] * WARM, odd) >= set(range(len(odd)))


def test_literals_much_longer_than_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for each of them, also where many values have the same."""
    monkeypatch.setitem(TYPES, "double", lambda value: value * 20_000)
    rows = [_canal("double", b'"1"')] * 600
    decoder = decoder_of("canal-json")
    assert set(decoded_fast(decoder, rows)) == set(range(600))
    expected = decode_message(decoder_of("canal-json"), *rows[0])
    assert all(events == expected for events in decoded_fast(decoder, rows).values())
