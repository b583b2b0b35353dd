"""Debezium's connector in Avro: genuine messages, in all forms, with right and with wrong schemas."""

from __future__ import annotations

import base64
import json
import math
import random
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from bridge.errors import UsageError
from bridge.events import Code, Kind, Undecodable
from bridge.protocols import DecodeError, DecodeOptions, decode_message, in_json, make_decoder, recognise
from bridge.protocols.batch_decode import Messages, decode_messages, events_of
from bridge.protocols.debezium.avro.front import AvroFront
from bridge.protocols.debezium.avro.lots import AvroLots
from bridge.protocols.debezium.avro.schemas import read_schema
from bridge.protocols.debezium.columns import Envelopes
from bridge.protocols.debezium.recognition import DebeziumModes
from bridge.protocols.decoder import Decoder, SchemaId
from bridge.protocols.fast.compiled.codes import NOT_READ
from bridge.protocols.fast.texts import Texts
from bridge.protocols.sender_losses import losses
from bridge.registry import KeptSchemas
from bridge.sources.source import have_ids, key_and_value
from tests.support.avro_wire import Schemas, encoded, ticdc_schema
from tests.support.captures import read_lines
from tests.support.registry import schemas_of
from tests.support.wire import reason

SCRIPTS = ("bank", "keys", "all_types", "my_types", "ddl")
EVENTS = {"bank": 4191, "keys": 826, "all_types": 187, "my_types": 40, "ddl": 206}
"""How many events the JSON of the same upstream had, tombstones and transactions aside."""

Pairs = list[tuple[bytes | None, bytes | None]]


def pairs_of(path: Path) -> Pairs:
    """The keys and values of a capture."""
    return [(_bytes(line["key"]), _bytes(line["value"])) for line in read_lines(path)]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def decoder_of(schemas: Mapping[int, str], **options: Any) -> Decoder:
    return make_decoder("debezium", DecodeOptions(None, schemas=Schemas(schemas), **options))


def genuine(folder: Path, script: str) -> tuple[Pairs, dict[int, str]]:
    """The messages of a script and their schemas."""
    folder /= "debezium-avro"
    return pairs_of(folder / f"{script}.jsonl"), schemas_of(folder / f"{script}.schemas.json")


def decoded(decoder: Decoder, pairs: Pairs) -> list[Any]:
    return [event for key, value in pairs for event in decode_message(decoder, key, value)]


@pytest.mark.parametrize("script", SCRIPTS)
def test_genuine_messages(avro_captures: Path, script: str) -> None:
    """Each is decoded, to as many events as the same in JSON has."""
    events = decoded(decoder_of(genuine(avro_captures, script)[1]), genuine(avro_captures, script)[0])
    assert [event.reason for event in events if event.kind is Kind.BAD] == []
    assert len(events) == EVENTS[script]


@pytest.mark.parametrize("script", SCRIPTS)
def test_both_ways_give_the_same(avro_captures: Path, script: str) -> None:
    """Many messages together become what each becomes alone, and the same as JSON with its schema written out."""
    pairs, schemas = genuine(avro_captures, script)
    alone = Counter(decoded(decoder_of(schemas), pairs))
    written_out = in_json(pairs, Schemas(schemas))
    assert Counter(decoded(make_decoder("debezium", DecodeOptions(None)), written_out)) == alone
    many = pairs * max(1, 1 + 4096 // len(pairs))
    keys, values = zip(*many, strict=True)
    columns = Messages(["t"] * len(many), [0] * len(many), list(range(len(many))), list(keys), list(values))
    decoder = decoder_of(schemas)
    for _ in range(2):  # the second time it has learned
        together = Counter(events_of(decode_messages(decoder, columns)))
        assert together == Counter({event: count * (len(many) // len(pairs)) for event, count in alone.items()})


def both_ways(schemas: Mapping[int, str], pairs: Pairs) -> list[bool]:
    """Whether the compiled function wrote each message, which is then what the front writes of it alone."""
    front = AvroFront(Schemas(schemas), Envelopes())
    lots, alone = AvroLots(front), list[tuple[bytes | None, bytes | None]]()
    for pair in pairs:
        try:
            alone.append(front.in_json(*pair))
        except DecodeError:
            alone.append((None, None))
    keys, values = zip(*pairs, strict=True)
    together = [*zip(*lots.in_json(keys, values), strict=True)]
    assert [(key or None, value) for key, value in together] == [(key or None, value) for key, value in alone]
    return (lots._firsts_of(Texts.of(values, keys), keys, values) != NOT_READ).tolist()


@pytest.mark.parametrize("script", SCRIPTS)
def test_many_messages_become_the_same_json(avro_captures: Path, script: str) -> None:
    """Byte for byte; the compiled function writes the rows, and leaves the others."""
    pairs, schemas = genuine(avro_captures, script)
    written = both_ways(schemas, pairs)
    names = {number: read_schema(text).name for number, text in schemas.items()}
    rows = [
        bool(value) and names[int.from_bytes((value or b"")[1:5], "big")].endswith("Envelope") for _, value in pairs
    ]
    assert written == rows


VALUES: dict[str, list[Any]] = {
    "string": [
        "",
        "a" * 9,
        'q"\\/',
        "".join(map(chr, range(128))),
        "\x7f\x80\u07ff\u0800\uffff\U00010000\U0010ffff",
        "é" * 40,
    ],
    "bytes": [bytes(range(size)) for size in range(12)] + [b"\xff" * 30],
    "long": [sign * (1 << bits) + more for bits in range(63) for sign in (1, -1) for more in (-1, 0, 1)]
    + [(1 << 63) - 1, -(1 << 63)],
    "int": [0, 1, -1, (1 << 31) - 1, -(1 << 31)],
    "boolean": [True, False],
    "double": [
        *(0.0, -0.0, 0.5, -1.25, 0.1, 0.1 + 0.2, 1e15, 1e14, 1e16, 1e-5, 9.9e-6, 123456.789012, 5e-324, 1e300, 1e23),
    ]
    + [random.Random(2).uniform(-1e6, 1e6) for _ in range(50)]
    + [round(random.Random(seed).uniform(-1e9, 1e9), seed % 8) for seed in range(200)],
    "float": [0.0, 0.5, -1.25, 0.1, 3.4e38, 16777216.0, 1e-5],
}


def test_values_become_the_same_json() -> None:
    """Those of each type, at the edges; and what is no value of it is refused by both."""
    draw, written = random.Random(7), Counter[str]()
    for kind, values in VALUES.items():
        rows = [{"name": "x", "type": kind}, {"name": "y", "type": [kind, "null"]}]
        row = {"type": "record", "name": "Value", "fields": rows}
        source = {
            "type": "record",
            "name": "S",
            "fields": [{"name": name, "type": "string"} for name in ("db", "table")],
        }
        fields = [{"name": "after", "type": ["null", row]}, {"name": "source", "type": source}]
        text = json.dumps({"type": "record", "name": "Envelope", "namespace": "p.d.t", "fields": fields})
        pairs: Pairs = [(None, b"\0\0\0\0\1\2" + _avro(kind, value) + b"\2\2d\2t") for value in values]
        pairs += [(b"{}", b"\0\0\0\0\1\2" + _avro(kind, one) + b"\0" + _avro(kind, one) + b"\2d\2t") for one in values]
        pairs += [(None, _mutated(draw, value)) for _, value in pairs * 20 if value]
        written[kind] = sum(both_ways({1: text}, pairs)[: 2 * len(values)])
        if kind not in ("double", "float"):  # of which the compiled function writes the short ones
            assert written[kind] == 2 * len(values)
    assert written["double"] > 200
    assert written["float"] > 2


def _avro(kind: str, value: Any) -> bytes:
    text = base64.b64encode(value).decode() if kind == "bytes" else value
    return encoded({"type": {"long": "int64", "int": "int32"}.get(kind, kind)}, text)


def test_the_fast_path_reads_rows_in_avro(avro_captures: Path) -> None:
    """As many as of the same messages in JSON."""
    pairs, schemas = genuine(avro_captures, "bank")
    in_avro = [pair for pair in pairs if pair[1] is not None]
    written_out, left = in_json(in_avro, Schemas(schemas)), []
    for lot, decoder in (in_avro, decoder_of(schemas)), (written_out, make_decoder("debezium", DecodeOptions(None))):
        for _ in range(4):
            last = decoder.decode_batch(*zip(*lot, strict=True)).leftover.tolist()
        left.append(last)
    assert left[0] == left[1]
    assert len(left[0]) < len(in_avro)


def test_places_among_transactions(avro_captures: Path) -> None:
    """The fast path gives what parsing gives, of most rows: schema changes give tables other forms."""
    pairs, schemas = genuine(avro_captures, "bank")
    decoder = decoder_of(schemas, transactions=True)
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    decoder.decode_batch(keys, values)
    found = decoder.decode_batch(keys, values).events
    parsed = [decoder.decode(*pair) for pair in pairs]
    assert sum(len(lot.numbers) for lot in found) > 2500
    for lot in found:
        places = [parsed[number][0].place for number in lot.numbers.tolist()]
        assert lot.events["place"].to_pylist() == places


@pytest.mark.parametrize("form", ["apicurio2-8byte", "apicurio-headers"])
def test_apicurios_forms(avro_captures: Path, form: str) -> None:
    """Eight bytes of an id, and ids in Kafka's headers."""
    folder = avro_captures / "debezium-avro-wire"
    schemas = schemas_of(folder / f"my_types.{form}.schemas.json")
    received = [_Message(line) for line in read_lines(folder / f"my_types.{form}.jsonl")]
    assert have_ids(received) == (form == "apicurio-headers")
    events = decoded(decoder_of(schemas), [key_and_value(one) for one in received])
    assert len(events) == EVENTS["my_types"]
    assert not [event.reason for event in events if event.kind is Kind.BAD]


class _Message:
    """A message of a capture, as Kafka's client gives it."""

    def __init__(self, line: Mapping[str, Any]) -> None:
        self._line = line

    def key(self) -> bytes | None:
        return _bytes(self._line["key"])

    def value(self) -> bytes | None:
        return _bytes(self._line["value"])

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return [(name, _bytes(text)) for name, text in self._line.get("headers", {}).items()] or None


HEADERS = {"key": "AA==", "value": "BA==", "headers": {"__key_schema_id": "AAAAAAE=", "__value_schema_id": "AAAAAAI="}}


def test_confluents_headers() -> None:
    """Hold what otherwise is the prefix; of a message in JSON they are of no use."""
    assert key_and_value(_Message(HEADERS)) == (b"\0\0\0\0\1\0", b"\0\0\0\0\2\4")
    json_value = {**HEADERS, "value": base64.b64encode(b"{}").decode()}
    assert key_and_value(_Message(json_value)) == (b"\0", b"{}")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        *((b"\1" + bytes(16) + b"\2", "GUID"), (b"\3\0" + bytes(16) + b"\2", "Glue")),
        *((bytes(6), "not with a schema's id"), (b"\0\0\0\0\x63\2", "lacks the schema 99")),
    ],
)
def test_forms_that_are_not_read(value: bytes, why: str) -> None:
    """Are refused by their names, and never quarantined: they may be schema changes."""
    [event] = decode_message(decoder_of({}), None, value)
    assert isinstance(event, Undecodable)
    assert event.code == Code.SCHEMA_CHANGE
    assert why in event.reason


def test_without_a_registry_the_setting_is_named(avro_captures: Path) -> None:
    """By the decoder, and where the protocol is recognised."""
    pairs, _ = genuine(avro_captures, "my_types")
    [event] = decode_message(make_decoder("debezium", DecodeOptions(None)), *pairs[0])
    assert "--registry" in reason(event)
    with pytest.raises(UsageError, match=r"with a schema registry.*--registry"):
        recognise(pairs)


def test_they_are_recognised(avro_captures: Path) -> None:
    """As Debezium's, in Avro."""
    pairs, schemas = genuine(avro_captures, "my_types")
    protocol, reason = recognise(in_json(pairs, Schemas(schemas)))
    assert protocol == "debezium"
    assert "MySQL connector, in Avro" in reason


def test_ids_that_were_given_anew_are_never_garbage(avro_captures: Path) -> None:
    """A message that is read with any other schema of the registry is refused, or becomes what it is."""
    said = Counter[str]()
    for script in ("keys", "all_types", "my_types"):
        pairs, schemas = genuine(avro_captures, script)
        decoder = decoder_of(schemas)
        first = {value[:5]: (key, value) for key, value in reversed(pairs) if key and value}
        for key, value in first.values():
            right = decode_message(decoder, key, value)
            for number in schemas:
                if number != int.from_bytes(value[1:5], "big"):
                    wrong = decode_message(decoder_of(schemas), key, b"\0" + number.to_bytes(4, "big") + value[5:])
                    said["refused" if wrong[:1] and wrong[0].kind is Kind.BAD else "read"] += 1
                    assert wrong == right or [event.kind for event in wrong] == [Kind.BAD]
    assert said["refused"] > 1000
    assert said["read"] < 20  # versions of one table whose rows are the same bytes


REAL = {"type": "record", "name": "Envelope", "namespace": "p.d.t", "fields": [{"name": "x", "type": "double"}]}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks(number: float) -> None:
    """Are refused: JSON would say null."""
    decoder = decoder_of({1: json.dumps(REAL)})
    [event] = decode_message(decoder, None, b"\0\0\0\0\1" + struct.pack("<d", number))
    assert "no value of MySQL's" in reason(event)


def test_a_name_in_json_is_no_schema() -> None:
    """No message can name a schema as the front does."""
    [event] = decode_message(decoder_of({}), None, b'{"schema":{"avro":"contentIds/1"},"payload":{}}')
    assert "no sender does" in reason(event)


ROW = {
    "type": "record", "name": "Value", "fields": [
        {"name": "id", "type": {"type": "int", "connect.type": "int16"}},
        {"name": "d", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 65, "scale": 30,
            "connect.name": "org.apache.kafka.connect.data.Decimal", "connect.parameters": {"scale": "30"}}]},
        {"name": "_a_b", "connect.field": "a-b", "tidb_type": "BLOB", "type": ["bytes", "null"], "default": "x"},
    ],
}  # fmt: skip
CONNECT = [
    {"field": "id", "type": "int16", "optional": False},
    {"field": "d", "type": "bytes", "optional": True, "name": "org.apache.kafka.connect.data.Decimal",
     "parameters": {"scale": "30"}},
    {"field": "a-b", "type": "bytes", "optional": True, "default": "x", "tidb_type": "BLOB"},
]  # fmt: skip


def test_schemas_of_connect() -> None:
    """Types, names, optional values, defaults, and a record that is named again; TiCDC says how columns are called."""
    fields = [{"name": "before", "type": ["null", ROW]}, {"name": "after", "type": ["null", "Value"]}]
    schema = read_schema(json.dumps({"type": "record", "name": "Envelope", "namespace": "p.d.t", "fields": fields}))
    assert schema.name == "p.d.t.Envelope"
    assert schema.connect is not None
    for field in schema.connect["fields"]:
        assert field["fields"] == CONNECT
        assert (field["optional"], field["name"]) == (True, "p.d.t.Value")
    front = AvroFront(Schemas({}), Envelopes())
    record = front._record(b"\0\0\2\2\2\2\1\0\2x", 1, schema, SchemaId("contentIds", 1), "it")
    assert record == {"before": None, "after": {"id": 1, "d": "AQ==", "a-b": "eA=="}}


def test_schemas_without_connects_types() -> None:
    """connect.meta.data=false leaves them out: the target's columns tell the types then, as for bare JSON."""
    assert read_schema(json.dumps(REAL)).connect is None


UNKNOWN = '{"type":"record","name":"r","fields":[{"name":"x","type":"y"}]}'


@pytest.mark.parametrize(
    "text", ["", "1", '"string"', "[]", '{"type":"record"}', '{"type":"map","values":"int"}', UNKNOWN]
)
def test_schemas_that_are_none(text: str) -> None:
    """Are refused, whatever is wrong."""
    with pytest.raises(DecodeError, match="its schema is not one of Connect's"):
        read_schema(text)


def test_mutated_messages(avro_captures: Path) -> None:
    """None crashes, and none is misread: what is accepted says what its bytes say, to another reader of Avro."""
    _mutate(avro_captures, 3_000)


@pytest.mark.soak
def test_a_million_mutated_messages(avro_captures: Path) -> None:
    """The same at length."""
    _mutate(avro_captures, 1_000_000)


def _mutate(folder: Path, count: int) -> None:
    draw, seen = random.Random(4), Counter[Kind]()
    lots = [genuine(folder, script) for script in ("keys", "all_types", "my_types", "ddl")]
    decoders = [decoder_of(schemas) for _, schemas in lots]
    readers = [{number: json.loads(text) for number, text in schemas.items()} for _, schemas in lots]
    together: list[Pairs] = [[] for _ in lots]
    for _ in range(count):
        which = draw.randrange(len(lots))
        key, value = draw.choice(lots[which][0])
        if value is None:
            continue
        bad = _mutated(draw, value)
        together[which].append((key, bad))
        if len(together[which]) == 600:
            assert any(both_ways(lots[which][1], lots[which][0] + together[which])[len(lots[which][0]) :])
            together[which].clear()
        events = decode_message(decoders[which], key, bad)
        seen.update(event.kind for event in events)
        if any(event.kind is Kind.BAD for event in events):
            continue
        [(_, text)] = in_json([(key, bad)], Schemas(lots[which][1]))
        if bad[:1] != b"\0" or text == bad:
            continue  # another form
        assert text is not None
        said, end = _read(readers[which][int.from_bytes(bad[1:5], "big")], bad, 5)
        assert end == len(bad)
        told = orjson.loads(text)
        assert told.get("payload", told) == orjson.loads(orjson.dumps(said))
    assert seen[Kind.BAD] > count // 3
    assert seen.total() - seen[Kind.BAD] > count // 50


def _mutated(draw: random.Random, value: bytes) -> bytes:
    at = draw.randrange(len(value))
    match draw.randrange(5):
        case 0:
            return value[:at] + bytes([draw.randrange(256)]) + value[at + 1 :]
        case 1:
            return value[:at]
        case 2:
            return value[:at] + draw.randbytes(draw.randrange(1, 9)) + value[at:]
        case 3:
            return value[:at] + value[at + draw.randrange(1, 9) :]
        case _:
            return value[:4] + bytes([draw.randrange(64)]) + value[5:]


def _read(schema: Any, content: bytes, at: int, named: dict[str, Any] | None = None) -> tuple[Any, int]:
    """Reads a value of Avro, as its specification says; gives it as JSON has it, and where it ends."""
    named = dict(_records(schema)) if named is None else named
    if isinstance(schema, list):
        number, at = _long(content, at)
        assert number >= 0
        return _read(schema[number], content, at, named)
    if isinstance(schema, str):
        schema = named.get(schema.rpartition(".")[2], schema)
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(kind, list | dict):
        return _read(kind, content, at, named)
    match kind:
        case "null":
            return None, at
        case "boolean":
            assert content[at] in (0, 1)
            return content[at] == 1, at + 1
        case "int" | "long":
            return _long(content, at)
        case "float" | "double":
            form, size = ("<f", 4) if kind == "float" else ("<d", 8)
            return struct.unpack_from(form, content, at)[0], at + size
        case "string" | "bytes":
            size, at = _long(content, at)
            assert 0 <= size <= len(content) - at
            part = content[at : at + size]
            return part.decode() if kind == "string" else base64.b64encode(part).decode(), at + size
        case "array":
            items = []
            while True:
                count, at = _long(content, at)
                if count < 0:
                    _, at = _long(content, at)
                for _ in range(abs(count)):
                    item, at = _read(schema["items"], content, at, named)
                    items.append(item)
                if count == 0:
                    return items, at
    assert kind == "record"
    record = {}
    for field in schema["fields"]:
        record[field["name"]], at = _read(field["type"], content, at, named)
    return record, at


def _records(schema: Any) -> Iterator[tuple[str, Any]]:
    """The records that a schema defines, by their short names, of which the captures have no two."""
    for part in schema if isinstance(schema, list) else schema.values() if isinstance(schema, dict) else ():
        yield from _records(part)
    if isinstance(schema, dict) and schema.get("type") == "record":
        yield schema["name"], schema


def _long(content: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (content[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if content[at - 1] < 0x80:
            assert number < 1 << 64
            return (number >> 1) ^ -(number & 1), at


@pytest.mark.parametrize("script", ["keys", "all_types"])
def test_ticdcs_debezium_avro(golden: Path, script: str) -> None:
    """Genuine rows of TiCDC's Debezium, written as its debezium-avro writes them, become what they are in JSON."""
    pairs, schemas, ids = [], dict[int, str](), dict[str, int]()
    for key, value in pairs_of(golden / "debezium-ext" / f"{script}.jsonl"):
        found: list[Any] = [json.loads(part) if part else None for part in (key, value)]
        if not found[1] or found[1]["payload"].get("op") not in ("c", "u", "d"):
            continue
        parts = []
        for document in found:
            text = json.dumps(ticdc_schema(document["schema"]))
            number = ids.setdefault(text, len(ids) + 1)
            schemas[number] = text
            parts.append(b"\0" + number.to_bytes(4, "big") + encoded(document["schema"], document["payload"]))
        pairs.append(((key, value), (parts[0], parts[1])))
    told = decoded(make_decoder("debezium", DecodeOptions(None)), [in_json_ for in_json_, _ in pairs])
    events = decoded(decoder_of(schemas), [in_avro for _, in_avro in pairs])
    assert len(events) > 100
    assert [event.reason for event in events if event.kind is Kind.BAD] == []
    for event, wanted in zip(events, told, strict=True):
        if wanted.table != "gen":  # whose virtual columns come as NULL
            assert event == wanted
    _, reason = recognise(in_json([in_avro for _, in_avro in pairs], Schemas(schemas)))
    assert "TiCDC, in Avro" in reason
    [loss] = losses(in_json([in_avro for _, in_avro in pairs], Schemas(schemas)), DebeziumModes(), is_filtered=False)
    assert "default where the value is NULL" in loss.what


def test_ticdcs_plain_avro_is_refused() -> None:
    """It tells no commit ts of a delete, and sends no boundaries: the reason says so."""
    fields = [{"name": "id", "type": {"type": "int", "connect.parameters": {"tidb_type": "INT"}}}]
    decoder = decoder_of({1: json.dumps({"type": "record", "name": "t", "namespace": "default.d", "fields": fields})})
    [event] = decode_message(decoder, None, b"\0\0\0\0\1\2")
    assert "TiCDC's protocol avro" in reason(event)
    assert "protocol=canal-json" in reason(event)


@pytest.mark.parametrize("lacking", ["SchemaChangeKey", "SchemaChangeValue", "strs.Key", "strs.Envelope"])
def test_a_schema_change_is_told_from_a_row_by_what_is_there(avro_captures: Path, lacking: str) -> None:
    """Where a schema is missing, the other one of the message tells what it is: a schema change is never quarantined,
    a row may be."""
    pairs, schemas = genuine(avro_captures, "my_types")
    names = {number: read_schema(text).name for number, text in schemas.items()}
    left = {number: text for number, text in schemas.items() if not names[number].endswith(lacking)}
    assert len(left) < len(schemas)
    bad = [event for event in decoded(decoder_of(left), pairs) if event.kind is Kind.BAD]
    assert {event.code for event in bad} == {Code.SCHEMA_CHANGE if "Change" in lacking else Code.MALFORMED}


DELIMITED = {"p_d_t.Envelope": True, "p.d_t.Envelope": False, "p_d.t.Envelope": False, "d_x.Envelope": False}


@pytest.mark.parametrize("name", DELIMITED)
def test_names_joined_by_another_delimiter(name: str) -> None:
    """A topic's name, and with it a record's, may join its parts by something else (topic.delimiter)."""
    fields = [{"name": one, "type": "string"} for one in ("db", "table")]
    source = {"type": "record", "name": "s", "fields": fields}
    text = json.dumps({"type": "record", "name": name, "fields": [{"name": "source", "type": source}]})
    [event] = decode_message(decoder_of({1: text}), None, b"\0\0\0\0\1\2d\2t")
    assert ("but its schema is" not in reason(event)) == DELIMITED[name]


def test_cloud_events_in_avro() -> None:
    """Are named, as in JSON."""
    text = json.dumps(
        {"type": "record", "name": "p.d.t.CloudEvents.Envelope", "fields": [{"name": "id", "type": "int"}]}
    )
    [event] = decode_message(decoder_of({1: text}), None, b"\0\0\0\0\1\2")
    assert "CloudEvents" in reason(event)
    assert "AvroConverter" in reason(event)


def test_a_quarantined_message_is_kept_with_its_schemas(avro_captures: Path) -> None:
    """So it can be read when the registry is gone, or lacks them; what the registry gives comes first."""
    pairs, schemas = genuine(avro_captures, "keys")
    key, value = next(pair for pair in pairs if pair[0] and pair[1])
    assert value is not None
    [bad] = decode_message(decoder_of(schemas), key, value + b"x")
    assert isinstance(bad, Undecodable)
    kept = orjson.loads(bad.schemas or "")
    assert kept == {f"contentIds/{one[4]}": schemas[one[4]] for one in (key or b"", value)}
    right = decode_message(decoder_of(schemas), key, value)
    for registry in (None, Schemas({})):
        options = DecodeOptions(None, schemas=KeptSchemas(kept, registry))
        assert decode_message(make_decoder("debezium", options), key, value) == right
    wrong = dict.fromkeys(kept, "no schema")
    options = DecodeOptions(None, schemas=KeptSchemas(wrong, Schemas(schemas)))
    assert decode_message(make_decoder("debezium", options), key, value) == right
    [event] = decode_message(make_decoder("debezium", DecodeOptions(None, schemas=KeptSchemas({}, None))), key, value)
    assert "was not kept" in reason(event)


def test_a_tombstone_needs_no_schema() -> None:
    """It holds nothing."""
    assert decode_message(decoder_of({}), b"\0\0\0\0\1\2", None) == []
