"""Genuine messages of Debezium's own connector and of Canal's own server, on the fast path and on the plain one."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.events import Event, Kind
from bridge.protocols import decode_message
from bridge.protocols.debezium.transactions import plain_id
from bridge.protocols.decoder import DecodeError
from bridge.protocols.fast.compiled.codes import INDEX
from bridge.protocols.fast.lessons import parts_of_place
from bridge.protocols.values.event_time import COORDINATES_SEP, GTID, NUMBER_DIGITS
from tests.support.debezium_wire import CUSTOMER_KEY, NATIVE_SOURCE, connect, named, native, plain
from tests.support.oracles import ORACLES, Pair, always_tried, compared, decoded_fast, decoder_of, unbase64

LOT = 250
"""Messages that come together: few, as a schema change gives a table another form."""
ROWS = (Kind.INSERT, Kind.UPDATE, Kind.DELETE)


class Capture(NamedTuple):
    """A capture of kinds of messages that are enough to be read fast.

    several: the share of row messages that hold several rows, which are left over.
    other_form: the largest share that may be left over as the table's form was another one shortly before.
    """

    path: str
    protocol: str
    several: float = 0.0
    other_form: float = 0.02


CAPTURES = [
    Capture("debezium-restarts/bank.jsonl", "debezium"),
    Capture("debezium-3.6.1/topics.jsonl", "debezium"),
    Capture("canal-1.1.7/server.jsonl", "canal-json", several=0.3, other_form=0.06),
]
"""What is left over besides, and why: the placeholder of a value that is not available, since plain decoding looks at
both rows then."""


@cache
def _pairs(path: Path) -> list[Pair]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [(unbase64(line["key"]), unbase64(line["value"])) for line in lines]


@cache
def _row_pairs(path: Path, protocol: str) -> list[Pair]:
    """Those that hold one row."""
    parsed = ((pair, decode_message(ORACLES[protocol], *pair)) for pair in _pairs(path))
    return [pair for pair, events in parsed if len(events) == 1 and events[0].kind in ROWS]


def _why_left(value: bytes, events: list[Event]) -> str:
    if len(events) > 1:
        return "several rows"
    return "placeholder" if b'"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="' in value else "other form"


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda capture: capture.path)
def test_genuine_rows_are_read_fast(real_senders: Path, capture: Capture) -> None:
    """Row messages are left over for the reasons of the table alone; the others come out as parsing gives them."""
    decoder, reasons, rows = decoder_of(capture.protocol), Counter[str](), 0
    pairs = _pairs(real_senders / capture.path)
    for at in range(0, len(pairs), LOT):
        lot = pairs[at : at + LOT]
        read = compared(capture.protocol, decoder, lot)
        for number, (key, value) in enumerate(lot):
            events = decode_message(ORACLES[capture.protocol], key, value)
            if events and events[0].kind in ROWS:
                rows += 1
                reasons[_why_left(value or b"", events)] += number not in read
    assert reasons["several rows"] <= capture.several * rows, (reasons, rows)
    assert reasons["other form"] <= capture.other_form * rows, (reasons, rows)
    assert reasons["placeholder"] <= 1, (reasons, rows)


VARIANTS: dict[str, list[tuple[bytes, bytes]]] = {
    "as it is": [],
    "MariaDB": [(b'"connector":"mysql"', b'"connector":"mariadb"'), (b'"gtid":null', b'"gtid":"0-1-4711"')],
    "another version": [(b'"version":"3.0.8.Final"', b'"version":"3.5.0.Final"')],
    "GTIDs": [(b'"gtid":null', b'"gtid":"3E11FA47-71CA-11E1-9E33-C80AA9429562:23"')],
    "tagged GTIDs": [(b'"gtid":null', b'"gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:tag:23"')],
    "a statement": [(b'"query":null', b'"query":"UPDATE t SET n = \\"x\\" WHERE id = 1"')],
    "an incremental snapshot": [(b'"snapshot":"false"', b'"snapshot":"incremental"'), (b"000,", b"123,")],
    "a transaction": [(b'"transaction":null', b'"transaction":{"id":"x:1","total_order":1,"data_collection_order":2}')],
    "no thread": [(b'"thread":13,', b'"thread":null,')],
    "blanks": [(b",", b" , "), (b'":', b'" :\n\t')],
    "no file": [(b'"file":"binlog.000001"', b'"file":""')],
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("capture", CAPTURES[:2], ids=lambda capture: capture.path)
def test_every_form_of_the_connector(real_senders: Path, capture: Capture, variant: str) -> None:
    """Both connectors, all releases, GTIDs, transactions, snapshots, statements, blanks: each row message is read, in
    two lots of the same messages at the latest."""
    pairs: list[Pair] = []
    for key, value in _row_pairs(real_senders / capture.path, capture.protocol)[-LOT:]:
        changed = value or b""
        for old, new in VARIANTS[variant]:
            changed = changed.replace(old, new)
        pairs.append((key, changed))
    decoder = decoder_of(capture.protocol)
    compared(capture.protocol, decoder, pairs)
    read = compared(capture.protocol, decoder, pairs)
    assert len(read) >= 0.98 * len(pairs), [pairs[n] for n in range(len(pairs)) if n not in read][:1]


IDS = {
    "a file and position": b"file=binlog.000001,pos=",
    "a GTID": b"3e11fa47-71ca-11e1-9e33-c80aa9429562:",
    "a GTID with a tag": b"3e11fa47-71ca-11e1-9e33-c80aa9429562:tag:",
    "a GTID of MariaDB": b"0-1-",
    "none, but of an incremental snapshot": b"",
}


@pytest.mark.parametrize("id_", IDS.values(), ids=IDS)
def test_places_among_transactions(real_senders: Path, id_: bytes) -> None:
    """Each row is read, with the place of its transaction, whatever names that."""
    pairs: list[Pair] = []
    for key, value in _row_pairs(real_senders / CAPTURES[0].path, "debezium")[-LOT:]:
        changed = re.sub(rb'"transaction":{"id":"[^"]*pos=', b'"transaction":{"id":"' + id_, value or b"")
        if b"file" not in id_:
            changed = re.sub(
                rb'"gtid":null(.*"pos":(\d+))', rb'"gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:\2"\1', changed
            )
        if not id_:
            changed = re.sub(rb'"transaction":{[^}]*}', b'"transaction":null', changed)
            changed = changed.replace(b'"snapshot":"false"', b'"snapshot":"incremental"')
        pairs.append((key, changed))
    decoder, oracle = decoder_of("debezium", transactions=True), decoder_of("debezium", transactions=True)
    decoded_fast(decoder, pairs)
    found = decoded_fast(decoder, pairs)
    assert len(found) >= 0.98 * len(pairs)
    for number, events in found.items():
        assert events == decode_message(oracle, *pairs[number])
    places = {(events[0].place or "").rsplit("\n", 1)[1] for events in found.values()}
    assert all(plain_id(place).encode().startswith(id_) for place in places)
    assert len(places) > 30 or not id_


@pytest.mark.parametrize("has_schema", [True, False], ids=["with a schema", "without"])
@pytest.mark.parametrize("spoilt", [None, b"{}", b'"count"', b"", b'{"status":"END"}', b"]"])
def test_marks_of_transactions(real_senders: Path, spoilt: bytes | None, *, has_schema: bool) -> None:
    """BEGINs and ENDs are read together, as parsing gives them; beside another message none is."""
    pairs = [pair for pair in _pairs(real_senders / CAPTURES[0].path) if b'{"status":"' in (pair[1] or b"")][:LOT]
    if not has_schema:
        pairs = [(key, value[value.index(b'{"status":"') : -1]) for key, value in pairs if value]
    oracle = decoder_of("debezium", transactions=True)
    found = decoded_fast(decoder_of("debezium", transactions=True), pairs)
    assert [found[number] for number in range(LOT)] == [decode_message(oracle, *pair) for pair in pairs]
    if spoilt is not None:
        pairs[LOT // 2] = (None, spoilt)
        assert not decoded_fast(decoder_of("debezium", transactions=True), pairs)
        pairs[LOT // 2] = (None, (pairs[0][1] or b"")[:-1] + spoilt)
        assert not decoded_fast(decoder_of("debezium", transactions=True), pairs)
        pairs[0], pairs[LOT // 2] = pairs[LOT // 2], pairs[0]
        assert not decoded_fast(decoder_of("debezium", transactions=True), pairs)


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda capture: capture.path)
@given(
    which=st.integers(0, 10_000),
    at=st.integers(0, 10_000),
    put=st.binary(max_size=2) | st.sampled_from([b'"', b" ", b"null", b"{}", b"0", b"-", b",", b'\\"', b"9" * 20]),
    cut=st.integers(0, 4),
    where=st.sampled_from(["key", "payload", "anywhere"]),
)
@example(which=0, at=0, put=b" ", cut=0, where="key")
def test_damaged_genuine_messages(
    real_senders: Path, capture: Capture, which: int, at: int, put: bytes, cut: int, where: str
) -> None:
    """Bytes changed, lost or put in: the message comes out as parsing gives it, and its neighbours too."""
    rows = _row_pairs(real_senders / capture.path, capture.protocol)
    which = len(rows) // 2 + which % (len(rows) // 4)
    key, value = rows[which]
    part = (key or b"") if where == "key" else (value or b"")
    first = max(0, part.rfind(b'"payload":')) if where == "payload" else 0
    at = first + at % (len(part) - first + 1)
    damaged = part[:at] + put + part[at + cut :]
    pair = (damaged, value) if where == "key" else (key, damaged)
    beside = rows[which - 5 : which + 5]
    decoder = decoder_of(capture.protocol)
    compared(capture.protocol, decoder, beside)
    compared(capture.protocol, decoder, [*beside, pair, *beside])


ODD_NUMBERS: list[Any] = [0, 1, -1, 7, 99_999_999_999, 100_000_000_000, (1 << 32) - 1, 1 << 32, (1 << 45) - 1, 1 << 45]
ODD_NUMBERS += [(1 << 63) - 1, 1 << 63, 10**19, 10**20, 1.0, 1.5, "7", None, True]
ODD_GTIDS = ["", "a:0", "a:1", "A-1:" + "9" * 19, "a:" + "9" * 18, "a:9:9", "a:tag:7", "0-1-2", "0-1-0", "1-2", "a:1-5"]
ODD_FILES = [
    *("", "b.1", "b.0000000001", "b.2147483647", "b.2147483648", "b.99999999999", "b", ".5", "a.b.000002", "b.-1"),
]
ODD_SOURCES: list[dict[str, Any]] = [
    *({"pos": number} for number in ODD_NUMBERS),
    *({"ts_ms": number} for number in ODD_NUMBERS),
    *({"server_id": number} for number in (0, 1, 2, None, "1", 1.5)),
    *({"gtid": gtid} for gtid in [*ODD_GTIDS, None, 7, "a:\u0661"]),
    *({"file": file} for file in [*ODD_FILES, None, 7, "b.\u0661"]),
    *({"gtid": gtid, "file": "b"} for gtid in ODD_GTIDS),
    {"name": "other"}, {"name": None}, {"snapshot": "incremental"}, {"snapshot": "true"}, {"snapshot": None},
    {"commit_ts": 470611868434825218}, {"commit_ts": None}, {"connector": "TiCDC"}, {"connector": None},
    *({"row": number} for number in [*ODD_NUMBERS, 999_999_999, 1_000_000_000]),
    {"version": "2.7.4.Final"}, {"connector": "mariadb"}, {"thread": None}, {"query": "x"},
    {"query": "__debezium_unavailable_value"},
]  # fmt: skip


@pytest.mark.parametrize("taught", [{}, {"gtid": "a:7"}, {"gtid": "0-1-7"}], ids=str)
def test_every_place_and_time(taught: dict[str, Any]) -> None:
    """What a sound message teaches gives no other place or time to an odd one than parsing does."""

    def message(source: dict[str, Any]) -> Pair:
        return b'{"id":1}', native("c", {"id": 1, "v": "x"}, source=NATIVE_SOURCE | {"file": "b.000001"} | source)

    usual = message(taught)
    for odd in ODD_SOURCES:
        decoder, other = decoder_of("debezium"), message(taught | odd)
        assert compared("debezium", decoder, [usual] * 4) == {0, 1, 2, 3}, odd
        assert compared("debezium", decoder, [usual, other, usual]) >= {0, 2}, odd
        compared("debezium", decoder, [other] * 4)


ODD_SETS = ["", "a:1-5", "a:1-0", "a:1-05", "a:1-5:7-9", "a:2-5", "a:5", "a:1-5,b:1-7", "b:1-5,a:1-7", "a:1-5, b:1-3",
            "a:1-5,\nb:1-3", "a:1-5,a:1-7", "0-1-5", "0-1-5,1-1-7", "0-1-5,0-2-7", "a:1-" + "9" * 18, "a:1-" + "9" * 19,
            "a:1-5,b:1-5,c:1-5,d:1-5", "a:1-5,b:1-5,c:1-5,d:1-5,e:1-5",
            ",".join(f"s{n}:1-5" for n in range(64)), "x", None, 7]  # fmt: skip


@pytest.mark.parametrize("more", [{}, {"id": 0}, {"es": 1}, {"es": 1_795_662_226}, {"old": [{"id": None}]}], ids=str)
def test_every_set_of_gtids_of_canal(more: dict[str, Any]) -> None:
    """A place from the last number of each server or domain, or none."""
    message: dict[str, Any] = {
        "data": [{"id": "1", "v": "x"}], "database": "d", "es": 1_795_662_226_000, "gtid": "a:1-5,b:1-3", "id": 3,
        "isDdl": False, "mysqlType": {"id": "INT", "v": "VARCHAR(9)"}, "old": [{"v": "y"}], "pkNames": ["id"],
        "sql": "", "sqlType": {"id": 4, "v": 12}, "table": "t", "ts": 1_795_662_227_000, "type": "UPDATE",
    }  # fmt: skip
    usual = orjson.dumps(message)
    for gtids in ODD_SETS:
        decoder, other = decoder_of("canal-json"), orjson.dumps(message | {"gtid": gtids} | more)
        assert compared("canal-json", decoder, [(None, usual)] * 4) == {0, 1, 2, 3}, gtids
        assert compared("canal-json", decoder, [(None, usual), (None, other), (None, usual)]) >= {0, 2}, gtids
        compared("canal-json", decoder, [(None, other)] * 4)


def test_the_compiled_functions_have_room_for_every_place_that_they_are_taught() -> None:
    """A set of the GTIDs of more servers is left to parsing: its numbers would be written behind their table."""
    most = [f"{GTID}/s{n} {5:0{NUMBER_DIGITS}}" for n in range(INDEX + 1)]
    assert len(parts_of_place(COORDINATES_SEP.join(most[:-1]))) == INDEX
    with pytest.raises(DecodeError):
        parts_of_place(COORDINATES_SEP.join(most))


def test_rows_of_canal_with_columns_of_another_moment(real_senders: Path) -> None:
    """A genuine row whose sqlType does not fit its mysqlType is never read fast, and plain decoding refuses it."""
    pairs = [pair for pair in _row_pairs(real_senders / CAPTURES[2].path, "canal-json") if b":91" in (pair[1] or b"")]
    others: list[Pair] = [(key, (value or b"").replace(b":91", b":2004")) for key, value in pairs]
    decoder = decoder_of("canal-json")
    for _ in range(3):
        assert compared("canal-json", decoder, pairs + others) <= set(range(len(pairs)))
    assert len(compared("canal-json", decoder, pairs)) >= 0.9 * len(pairs) >= 9
    assert {decode_message(ORACLES["canal-json"], *other)[0].kind for other in others} == {Kind.BAD}


OLD_ROWS = [
    *("{}", '{"id":"1"}', '{"v":null}', '{"w":"1","v":"2"}', '{"id":"1","v":"2","w":"3"}', '{"x":"1"}', "[]", "null"),
    *('{"v":"1","v":"2"}', '{"v":"1",}', '{,"v":"1"}', '{"v":1}', '{"v":"1"', '{"v" :"1"}', '{"v":"1"}x', '{""}'),
]


@pytest.mark.parametrize("old", OLD_ROWS)
def test_every_old_row_of_canal(old: str) -> None:
    """What the old row lacks is as in the new one; what is no old row is left over."""
    row = '{"id":"1","v":"x","w":"2024-02-29"}'
    types = '{"id":"INT","v":"VARCHAR(9)","w":"DATE"}'
    text = (
        f'{{"data":[{row}],"database":"d","es":1795662226000,"gtid":"","id":3,"isDdl":false,"mysqlType":{types},'
        '"old":[OLD],"pkNames":["id"],"sql":"","sqlType":{"id":4,"v":12,"w":91},"table":"t","ts":1795662227000,"type":"UPDATE"}'
    )
    decoder = decoder_of("canal-json")
    usual, other = (text.replace("OLD", one).encode() for one in ('{"v":"y"}', old))
    assert compared("canal-json", decoder, [(None, usual)] * 4) == {0, 1, 2, 3}
    read = compared("canal-json", decoder, [(None, usual), (None, other), (None, usual)])
    assert read >= {0, 2}
    assert 1 in read or old not in OLD_ROWS[1:3]


def _base64(size: int, number: int) -> str:
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


def _decimal(scale: int) -> dict[str, Any]:
    return connect("bytes", "Decimal", parameters={"scale": str(scale), "connect.decimal.precision": "38"})


COLUMNS: dict[str, tuple[dict[str, Any], Any, list[Any]]] = {
    **{
        f"DECIMAL of scale {scale}": (
            _decimal(scale),
            _base64(2, 12345 % 30_000),
            [
                *(_base64(size, number) for size in (1, 2, 8) for number in (0, 1, -1, 99, -100, 127, -128)),
                *(_base64(8, number) for number in ((1 << 63) - 1, -(1 << 63), 10**18, -(10**18))),
                *(_base64(9, 1 << 64), "", "AA==", "AB==", "A===", "-_8=", "+/8=", "AAA", "x", 7, 7.5, True, None),
            ],
        )
        for scale in (0, 2, 18, 19, 30)
    },
    "DATETIME(3)": (
        named("int64", "time.Timestamp"),
        1_709_210_096_123,
        [0, 1, 999, -1, 1_709_210_096_000, 253_402_300_799_999, 253_402_300_800_000, 10**14 - 1, 10**14, "1", None],
    ),
    "DATETIME(6)": (
        named("int64", "time.MicroTimestamp"),
        1_709_210_096_123_456,
        [0, 1, -1, 1_709_210_096_000_000, 1_709_210_096_100_000, 253_402_300_800_000_000, 10**17 - 1, 1.5, "1", None],
    ),
    "DATE": (named("int32", "time.Date"), 19_782, [0, 1, -1, 2_932_896, 2_932_897, 999_999, 10**6, "1", 1.0, None]),
    "TIMESTAMP": (
        named("string", "time.ZonedTimestamp"),
        "2024-02-29T12:34:56Z",
        [
            "2024-02-29T12:34:56.5Z", "2024-02-29T12:34:56.123456Z", "2024-02-29T12:34:56.120Z", "1970-01-01T00:00:00Z",
            "1970-01-01T00:00:01Z", "2024-00-10T00:00:00Z", "2024-02-00T00:00:00Z", "2024-13-01T00:00:00Z",
            "0000-01-01T00:00:00Z", "2024-02-29T24:00:00Z", "2024-02-29T12:34:56+02:00", "2024-02-29 12:34:56Z",
            "2024-02-29T12:34:56.Z", "2024-02-29T12:34:56.1234567Z", "", "Z", 7, None,
        ],
    ),
    "JSON": (
        named("string", "data.Json"),
        '{"a": 1}',
        ['{"a": "it\'s"}', '{"a": 1.00000000000000000001}', "123456789012345678", "12345678901234567", "1\\n2", None,
         '{"n": 100000000000000000000000000000000000}', "\u0661" * 20, 7],
    ),
    "VARBINARY": (plain("bytes"), "YWJj", ["", "YQ==", "YR==", "YQ=", "-_-_", "+/+/", "a b", "'", 7, None]),
    "BIGINT UNSIGNED": (plain("int64", "bigint unsigned"), 7, [0, -1, -(1 << 63), (1 << 63) - 1, 1.0, "1", None]),
}  # fmt: skip


@pytest.mark.parametrize("kind", COLUMNS)
def test_values_of_every_connect_type(kind: str) -> None:
    """The literal that the column's converter makes, of odd values beside usual ones; usual ones are read."""
    field, usual, odd = COLUMNS[kind]
    fields = [{"type": "int32", "optional": False, "field": "id"}, {**field, "field": "v"}]

    def message(value: Any) -> Pair:
        return CUSTOMER_KEY, native("c", {"id": 1, "v": value}, fields)

    decoder = decoder_of("debezium")
    assert compared("debezium", decoder, [message(usual)] * 4) == {0, 1, 2, 3}
    for value in odd:
        read = compared("debezium", decoder, [message(usual), message(value), message(usual)])
        assert read >= {0, 2}, value


@given(content=st.binary(min_size=1, max_size=8), scale=st.integers(0, 18))
def test_every_decimal(content: bytes, scale: int) -> None:
    """Any unscaled number of eight bytes at most."""
    fields = [{"type": "int32", "optional": False, "field": "id"}, {**_decimal(scale), "field": "v"}]
    value = native("c", {"id": 1, "v": base64.b64encode(content).decode()}, fields)
    assert compared("debezium", decoder_of("debezium"), [(CUSTOMER_KEY, value)] * 2) == {0, 1}


BLANKS = [b" ", b"\n", b"\t", b"\r", b"  ", b"\v", b"\xc2\xa0"]


@pytest.mark.parametrize("blank", BLANKS)
@given(at=st.lists(st.integers(0, 1_000), min_size=1, max_size=3), first=st.booleans())
def test_a_blank_anywhere(blank: bytes, at: list[int], first: bool) -> None:
    """Between tokens it changes nothing; in a token it makes the message another one, or none."""
    key, value = b'{"id":1}', native("c", {"id": 1, "v": "x", "n": -15, "b": True})
    damaged = b"{" + blank + value[1:] if first else value
    for place in at:
        place %= len(damaged) + 1
        damaged = damaged[:place] + blank + damaged[place:]
    decoder = decoder_of("debezium")
    with always_tried():
        compared("debezium", decoder, [(key, value)] * 2)
        compared("debezium", decoder, [(key, value), (key, damaged), (key + blank, value), (key, value)])
