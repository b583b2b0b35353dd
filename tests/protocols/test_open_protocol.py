"""Open Protocol: one case per type code, flag and rule of the seed "TiCDC Open Protocol"."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import lz4.frame
import orjson
import pytest
from cramjam import snappy
from hypothesis import given
from hypothesis import strategies as st

from bridge.events import NO_KEY, Boundary, DdlStatement, Event, Kind, RowChange
from bridge.protocols import DecodeError, DecodeOptions, decode_message, make_decoder
from bridge.protocols.open_protocol.types import unescaped
from bridge.protocols.values.row_image import split_forms
from tests.support.wire import (
    ROW_KEY,
    TSO,
    compact,
    decode,
    frame,
    go_quoted,
    names_of,
    open_event,
    open_key,
    open_row,
    open_value,
    reason,
    row_change,
    row_of,
    untyped,
)

ID = {"id": {"t": 3, "h": True, "f": 11, "v": 1}}

TYPES: list[tuple[dict[str, Any], str]] = [
    # Column type code: the output examples of the table, which have no flags
    ({"t": 1, "v": 1}, "1"), ({"t": 2, "v": 1}, "1"), ({"t": 3, "v": 123}, "123"),
    ({"t": 4, "v": 153.123}, "153.1230010986328e0"), ({"t": 5, "v": 153.123}, "153.123e0"),
    ({"t": 6, "v": None}, "NULL"), ({"t": 7, "v": "1973-12-30 15:30:00"}, "'1973-12-30 15:30:00'"),
    ({"t": 8, "v": 123}, "123"), ({"t": 9, "v": 123}, "123"),
    ({"t": 10, "v": "2000-01-01"}, "'2000-01-01'"), ({"t": 14, "v": "2000-01-01"}, "'2000-01-01'"),
    ({"t": 11, "v": "23:59:59"}, "'23:59:59'"), ({"t": 12, "v": "2015-12-20 23:58:58"}, "'2015-12-20 23:58:58'"),
    ({"t": 13, "v": 1970}, "1970"), ({"t": 15, "v": "test"}, "'test'"), ({"t": 253, "v": "test"}, "'test'"),
    ({"t": 16, "v": 81}, "81"), ({"t": 245, "v": '{"key1": "value1"}'}, """'{"key1": "value1"}'"""),
    ({"t": 246, "v": "129012.1230000"}, "129012.1230000"), ({"t": 247, "v": 1}, "1"), ({"t": 248, "v": 3}, "3"),
    *[({"t": code, "v": "5rWL6K+VdGV4dA=="}, "'测试text'") for code in (249, 250, 251, 252)],
    ({"t": 254, "v": "test"}, "'test'"),
    # BinaryFlag tells VARBINARY, BINARY and BLOB from VARCHAR, CHAR and TEXT
    *[({"t": code, "f": 65, "v": r"\x89PNG\r\n\x1a\n"}, "x'89504e470d0a1a0a'") for code in (15, 253, 254)],
    *[({"t": code, "f": 64, "v": r"\x89PNG"}, r"'\\x89PNG'") for code in (15, 253, 254)],
    *[({"t": code, "f": 65, "v": "5rWLAA=="}, "x'e6b58b00'") for code in (249, 250, 251, 252)],
    *[({"t": code, "f": 64, "v": "5rWLAA=="}, r"'测\0'") for code in (249, 250, 251, 252)],
    *[({"t": code, "f": 65, "v": ""}, "''") for code in (15, 249, 250, 251, 252, 253, 254)],
    # without flags, TEXT and BLOB are told by their bytes
    ({"t": 252, "v": "/wA="}, "x'ff00'"), ({"t": 252, "f": None, "v": "/wA="}, "x'ff00'"),
    # values at their limits (types-seen)
    ({"t": 1, "f": 65, "v": -128}, "-128"), ({"t": 8, "f": 65, "v": -9223372036854775808}, "-9223372036854775808"),
    ({"t": 8, "f": 193, "v": 18446744073709551615}, "18446744073709551615"),
    ({"t": 16, "f": 193, "v": 18446744073709551615}, "18446744073709551615"),
    ({"t": 248, "f": 64, "v": 9223372036854775809}, "9223372036854775809"),
    ({"t": 4, "f": 65, "v": 3.4028235e38}, "3.4028234663852886e+38"),
    ({"t": 4, "f": 65, "v": 16777216}, "16777216.0e0"),
    ({"t": 5, "f": 65, "v": 1.7976931348623157e308}, "1.7976931348623157e+308"),
    ({"t": 5, "f": 65, "v": 9007199254740992}, "9007199254740992.0e0"), ({"t": 5, "f": 65, "v": 0}, "0.0e0"),
    ({"t": 5, "f": 65, "v": 100000000000000000000}, "1e+20"),
    ({"t": 7, "f": 65, "v": "0000-00-00 00:00:00.000"}, "'0000-00-00 00:00:00.000'"),
    ({"t": 11, "f": 65, "v": "-838:59:58.999999"}, "'-838:59:58.999999'"), ({"t": 13, "f": 193, "v": 0}, "0"),
    ({"t": 225, "f": 65, "v": "[1,2,3.5]"}, "'[1,2,3.5]'"), ({"t": 15, "f": 0, "v": "it's"}, r"'it\'s'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "flags", "form"),
    [(15, None, "quoted"), (253, None, "quoted"), (254, None, "quoted"), (15, 64, ""), (252, None, "")],
)
def test_strings_without_flags(code: int, flags: int | None, form: str) -> None:
    """Only the target's column tells VARCHAR from VARBINARY, whose bytes are escaped, as in the examples."""
    column = {"t": code, "v": None} | ({} if flags is None else {"f": flags})
    event = open_event(*open_row({"u": ID | {"v": column}}))
    assert split_forms(event.columns or "")[1] == ["", form]


@pytest.mark.parametrize(("column", "literal"), TYPES)
def test_type(column: dict[str, Any], literal: str) -> None:
    """Each type code becomes its literal; NULL is NULL in all of them."""
    event = open_event(*open_row({"u": ID | {"v": column, "n": column | {"v": None}}}))
    assert row_of(event, event.after) == {"id": "1", "v": literal, "n": "NULL"}


SAMPLES: list[tuple[str, str, Event]] = [
    # the logs of "Examples of the Event stream output"
    (
        '{"ts":415508856908021766,"scm":"test","tbl":"t1","t":2}',
        '{"q":"CREATE TABLE test.t1(id int primary key, val varchar(16))","t":3}',
        DdlStatement(
            415508856908021766, 0, "test", "t1", "CREATE TABLE test.t1(id int primary key, val varchar(16))"
        ),
    ),
    ('{"ts":415508856908021766,"t":3}', "", Boundary(415508856908021766)),
    (
        # VARCHAR is plain text, as the table of type codes and genuine messages have it, though the log means 'aa'
        '{"ts":415508878783938562,"scm":"test","tbl":"t1","t":1}',
        '{"u":{"id":{"t":3,"h":true,"v":1},"val":{"t":15,"v":"YWE="}}}',
        RowChange(Kind.INSERT, 415508878783938562, 0, "test", "t1", "id\0val", "id", None, "1\0'YWE='"),
    ),
    (
        '{"ts":415508881418485761,"scm":"test","tbl":"t1","t":1}',
        '{"d":{"id":{"t":3,"h":true,"v":1}}}',
        RowChange(Kind.DELETE, 415508881418485761, 0, "test", "t1", "id", "id", "1", None),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "event"), SAMPLES, ids=[row[-1].kind.name for row in SAMPLES])
def test_samples_of_the_description(key: str, value: str, event: Event) -> None:
    """The description's own messages."""
    assert untyped(decode("open-protocol", open_key(orjson.loads(key)), frame(value.encode()))) == [event]


@pytest.mark.parametrize("value", [bytes(8), b"", None])
def test_resolved_values(value: bytes | None) -> None:
    """A resolved event's value is one frame of no length, empty or absent."""
    assert open_event(open_key({"ts": TSO, "t": 3}), value) == Boundary(TSO)


UPDATE = {"u": ID | {"a": {"t": 15, "f": 64, "v": "new"}, "b": {"t": 3, "f": 65, "v": None}}}


@pytest.mark.parametrize(
    ("old", "before"),
    [
        (ID | {"a": {"t": 15, "f": 64, "v": "old"}, "b": {"t": 3, "f": 65, "v": 7}}, "1\0'old'\x007"),
        ({"b": {"t": 3, "f": 65, "v": 7}, "a": {"t": 15, "f": 64, "v": None}} | ID, "1\0NULL\x007"),
        ({"a": {"t": 15, "f": 64, "v": "old"}}, "1\0'old'\0NULL"),
        ({}, "1\0'new'\0NULL"),
        # TiCDC forgets the name of a changed column that became NULL: here only `b` can be meant
        ({"t": 3, "f": 65, "v": 7}, "1\0'new'\x007"),
        ({"a": {"t": 15, "f": 64, "v": "old"}, "t": 3, "f": 65, "v": 7}, "1\0'old'\x007"),
        # ... and here nothing fits, but the key has not changed
        ({"t": 3, "f": 64, "v": 7}, None),
    ],
)
def test_old_rows(old: dict[str, Any], before: str | None) -> None:
    """`p` is the whole old row, or the changed columns, which the new row completes."""
    [event] = untyped([open_event(*open_row(UPDATE | {"p": old}))])
    assert event == RowChange(Kind.UPDATE, TSO, 0, "d", "t", "id\0a\0b", "id", before, "1\0'new'\0NULL")


def test_nameless_old_values_of_two_columns() -> None:
    """When two columns became NULL their old values cannot be told apart: the old row counts as not sent."""
    nulls = {name: {"t": 3, "f": 65, "v": None} for name in "ab"}
    lost = {"t": 3, "f": 65, "v": 7}
    assert open_event(*open_row({"u": ID | nulls, "p": lost})).before is None
    for old in (ID | lost, lost | {"id": {"t": 3, "h": True, "f": 11, "v": 2}}):
        assert "lost the names" in reason(open_event(*open_row({"u": ID | nulls, "p": old})))
    assert "lost the names" in reason(open_event(*open_row({"u": nulls, "p": lost})))
    called_t = {"t": {"t": 3, "h": True, "f": 11, "v": 1}}
    assert "lost the names" in reason(open_event(*open_row({"u": called_t | nulls, "p": lost})))


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ({"a": {"t": 3, "h": True, "v": 1}, "b": {"t": 3, "v": 1}}, "a"),
        ({"b": {"t": 3, "f": 43, "v": 1}, "c": {"t": 3, "v": 1}, "a": {"t": 3, "h": True, "f": 42, "v": 1}}, "b\0a"),
        ({"a": {"t": 3, "f": 81, "v": 1}}, NO_KEY),
        ({"a": {"t": 3, "h": False, "f": 8, "v": 1}}, NO_KEY),
        # the description's two examples of flags
        ({"a": {"t": 3, "f": 85, "v": 1}}, NO_KEY),
        ({"a": {"t": 3, "f": 46, "v": 1}}, "a"),
    ],
)  # fmt: skip
def test_key(columns: dict[str, Any], key: str) -> None:
    """The key is the columns with `h` or HandleKeyFlag, in the message's order; generated columns stay in the image."""
    event = open_event(*open_row({"u": columns}))
    assert event.key == key
    assert names_of(event) == "\0".join(columns)


def test_batch() -> None:
    """A message holds any number of events; index is the position, schema changes and boundaries may be between."""
    key = open_key(ROW_KEY, ROW_KEY | {"ts": TSO - 1, "t": 2}, ROW_KEY | {"tbl": "u"}, {"ts": TSO, "t": 3})
    value = open_value({"u": ID}, {"q": "DROP TABLE x", "t": 4}, {"d": ID}) + bytes(8)
    events = decode("open-protocol", key, value)
    assert [(e.kind, e.index, e.table, e.commit_ts) for e in events[:-1]] == [
        (Kind.INSERT, 0, "t", TSO),
        (Kind.SCHEMA_CHANGE, 1, "t", TSO - 1),
        (Kind.DELETE, 2, "u", TSO),
    ]
    assert events[-1] == Boundary(TSO, 3)
    of_u = make_decoder("open-protocol", DecodeOptions(None, lambda _, table: table == "u"))
    assert decode_message(of_u, key, value) == events[1:], "what the filter leaves in keeps its index"


def test_batches_are_all_or_nothing() -> None:
    """One bad event makes its message bad."""
    key = open_key(ROW_KEY, ROW_KEY)
    rows: list[dict[str, Any]] = [{"u": ID}, {"u": {"id": {"t": 3, "v": "1"}}}]
    assert "not an integer" in reason(open_event(key, open_value(*rows)))
    assert "not an integer" in reason(open_event(key, open_value(*rows[::-1])))


@pytest.mark.parametrize("compress", [lz4.frame.compress, lambda value: bytes(snappy.compress_raw(value))])
def test_compressed(compress: Callable[[bytes], bytes]) -> None:
    """Each event's value may be an lz4 frame or a snappy block inside its frame; keys and resolved values are not."""
    key = open_key(ROW_KEY, ROW_KEY | {"t": 2}, {"ts": TSO, "t": 3})
    values = [compact({"u": ID}), compact({"q": "DROP TABLE t", "t": 4})]
    packed = b"".join(frame(compress(value)) for value in values) + bytes(8)
    plain = b"".join(frame(value) for value in values) + bytes(8)
    assert decode("open-protocol", key, packed) == decode("open-protocol", key, plain)


def test_columns_that_come_in_another_order() -> None:
    """Have that of their message."""
    decoder = make_decoder("open-protocol", DecodeOptions("UTC"))
    for order in ("ab", "ba"):
        [event] = decode_message(decoder, *open_row({"u": {name: {"t": 3, "v": 1} for name in order}}))
        assert names_of(row_change(event)) == "\0".join(order)


def bad_column(column: dict[str, Any]) -> tuple[bytes, bytes]:
    return open_row({"u": ID | {"v": column}})


HUGE = struct.pack(">q", (1 << 63) - 1)
BAD: list[tuple[bytes | None, bytes | None, str]] = [
    (None, b"", "no key"),
    (b"", b"", "no key"),
    (b"\0", b"", "version"),
    (struct.pack(">q", 2) + frame(compact(ROW_KEY)), open_value({"u": ID}), "version"),
    (struct.pack(">q", 1), b"", "0 events"),
    (open_key(ROW_KEY), None, "no value"),
    (open_key(ROW_KEY), bytes(8), "no value"),
    (open_key(ROW_KEY, ROW_KEY), open_value({"u": ID}), "2 events in the key, 1 in the value"),
    (open_key(ROW_KEY), open_value({"u": ID}, {"u": ID}), "1 events in the key, 2 in the value"),
    (open_key(ROW_KEY) + b"\0", open_value({"u": ID}), "frame"),
    (open_key(ROW_KEY), open_value({"u": ID})[:-1], "frame"),
    (open_key(ROW_KEY)[:8] + HUGE + b"{}", open_value({"u": ID}), "frame"),
    (open_key(ROW_KEY), HUGE + b"{}", "frame"),
    (open_key(ROW_KEY), struct.pack(">q", -1) + b"{}", "frame"),
    (open_key(ROW_KEY), struct.pack(">q", -8), "frame"),
    (open_key(ROW_KEY), frame(b"{"), "not JSON"),
    (open_key(ROW_KEY), frame(b"[]"), "array"),
    (open_key(ROW_KEY), frame(b'{"u":{"\\udc00":{}}}'), "not JSON"),
    (struct.pack(">q", 1) + frame(b"[]"), open_value({"u": ID}), "JSON type"),
    (struct.pack(">q", 1) + frame(b"{}"), open_value({"u": ID}), "'ts' is missing"),
    (*open_row({"u": ID}, t=4), "unknown event type 4"),
    (*open_row({"u": ID}, t=None), "unknown event type None"),
    *[(*open_row({"u": ID}, ts=ts), "not a TSO") for ts in (0, -1, 1 << 63, 1.5, "5", None, True)],
    (*open_row({"u": ID}, ohk=True), "whole row"),
    (*open_row({"u": ID}, ccl="s3://x/y"), "whole row"),
    (*open_row({"u": ID}, scm=None), "schema name"),
    (*open_row({"u": ID}, tbl=5), "table name"),
    (*open_row({"u": ID}, tbl="a\0b"), "NUL"),
    (*open_row({"q": "x"}, scm="a\0b", t=2), "NUL"),
    (*open_row({"u": {"a\0b": {"t": 3, "v": 1}}}), "NUL"),
    (*open_row({"q": "", "t": 3}, t=2), "statement"),
    *((*open_row({"t": 3}, t=2), "'q' is missing"), (*open_row({}, t=3), "resolved")),
    *((*open_row({}), "'d' is missing"), (*open_row({"u": ID, "d": ID}), "both")),
    *((*open_row({"u": {}}), "without columns"), (*open_row({"d": {}}), "without columns")),
    (*open_row({"u": ID, "p": {"x": {"t": 3, "v": 1}}}), "old row"),
    (*open_row({"u": ID, "p": {"id": {"t": 8, "h": True, "f": 11, "v": 1}}}), "old row"),
    (*open_row({"u": ID, "p": {"id": {"t": 3, "h": True, "f": 11, "v": "x"}}}), "column 'id' (INT): 'x' is not"),
    *((*open_row({"u": ID, "p": 5}), "JSON type"), (*open_row({"u": {"id": 5}}), "JSON type")),
    *((*bad_column({"t": 3}), "'v' is missing"), (*bad_column({"v": 3}), "'t' is missing")),
    (*bad_column({"t": 255, "v": "x"}), "column 'v' is of the unknown type 255"),
    (*bad_column({"t": "3", "v": 1}), "unknown type '3'"),
    (*bad_column({"t": [], "v": 1}), "JSON type"),
    (*bad_column({"t": 15, "f": "1", "v": "x"}), "flags"),
    (*bad_column({"t": 6, "v": 1}), "NULL"),
    *[(*bad_column({"t": code, "v": 1.0}), "column 'v'") for code in (1, 2, 3, 8, 9, 13, 16, 247, 248)],
    *[(*bad_column({"t": code, "v": "1"}), "column 'v'") for code in (1, 2, 3, 4, 5, 8, 9, 13, 16, 247, 248)],
    *[(*bad_column({"t": code, "v": True}), "column 'v'") for code in (1, 2, 3, 4, 5, 8, 9, 13, 16, 247, 248)],
    (*bad_column({"t": 8, "f": 193, "v": 18446744073709551616}), "not an integer"),
    *[(*bad_column({"t": code, "v": -1}), "column 'v'") for code in (13, 16, 247, 248)],
    *[
        (*bad_column({"t": code, "f": flags, "v": value}), "column 'v'")
        for code in (7, 10, 11, 12, 14, 15, 225, 245, 246, 249, 250, 251, 252, 253, 254)
        for flags in (0, 1)
        for value in (5, 1.5, True, [], {}, ["'"], {"'": 1})
    ],
    *[
        (*bad_column({"t": 252, "f": flags, "v": value}), "column 'v' (")
        for flags in (None, 0, 1)
        for value in ("YQ", "YQ=", "YQ==x", "Y Q=", "YQ==\n", "YQ-_", "é", "=", "YQ==YQ==")
    ],
    (*bad_column({"t": 252, "f": 64, "v": "/w=="}), "utf-8"),
    (*bad_column({"t": 252, "f": 64, "v": "7aCA"}), "utf-8"),
    (*bad_column({"t": 15, "f": 65, "v": r"\q"}), "escape"),
    (*bad_column({"t": 246, "v": "1 OR 1=1"}), "not a decimal"),
    (*bad_column({"t": 7, "v": "now()"}), "not a date"),
]  # fmt: skip


def test_bad() -> None:
    """What is not understood whole is BAD, and the reason says what and where."""
    for key, value, why in BAD:
        [event] = decode("open-protocol", key, value)
        assert why in reason(event), (key, value)


@pytest.mark.parametrize(
    ("quoted", "content"),
    [
        ("", b""),
        ("test", b"test"),
        (r"\x89PNG\r\n\x1a\n", b"\x89PNG\r\n\x1a\n"),
        (r"\a\b\f\n\r\t\v\\\'\"", b"\a\b\f\n\r\t\v\\'\""),
        (r"\x00\xfF\xAb", b"\x00\xff\xab"),
        (r"\000\377\101", b"\x00\xffA"),
        (r"é\u00e9\U0001f600\ufffd", "éé😀\ufffd".encode()),
        (r"\\x41", b"\\x41"),
        (r"\x410", b"A0"),
        (r"a\x00", b"a\x00"),
    ],
)
def test_unquoted(quoted: str, content: bytes) -> None:
    r"""\x and octal are bytes, \u and \U are characters, the rest is itself."""
    assert unescaped(quoted) == content


@pytest.mark.parametrize(
    "quoted", ["\\", "a\\", r"\x", r"\x4", r"\xzz", r"\q", r"\400", r"\8", r"\01", r"\u12", r"\ud800", r"\U00110000"]
)
def test_refused(quoted: str) -> None:
    """What strconv.Unquote calls a syntax error is refused."""
    with pytest.raises(DecodeError):
        unescaped(quoted)


@given(st.binary() | st.text().map(str.encode))
def test_round_trip(content: bytes) -> None:
    """Any bytes survive Go's quoting."""
    assert unescaped(go_quoted(content)) == content


def test_every_byte() -> None:
    """Each byte by itself survives Go's quoting."""
    assert [unescaped(go_quoted(bytes([byte]))) for byte in range(256)] == [bytes([byte]) for byte in range(256)]
