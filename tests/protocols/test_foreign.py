"""Messages of formats that the bridge does not read are named, with what to set at the sender."""

from __future__ import annotations

import gzip
import json
import random
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from bridge.commands.check import Level
from bridge.commands.check.kafka import SourceFacts
from bridge.commands.check.protocol import judge_protocol
from bridge.commands.inspect import inspect
from bridge.config import Settings
from bridge.errors import UsageError
from bridge.events import Kind
from bridge.protocols import DecodeOptions, decode_message, in_json, make_decoder, recognise
from bridge.protocols.detect import foreign
from bridge.sources.capture_files import CaptureSource
from tests.support.avro_wire import Schemas
from tests.support.captures import encoded, read_lines, text, write_lines
from tests.support.golden import PROTOCOLS
from tests.support.wire import reason

MAXWELL = {"database": "d", "table": "t", "type": "insert", "ts": 1, "xid": 2, "commit": True, "data": {"id": 1}}
SIMPLE = {"version": 1, "database": "d", "table": "t", "tableID": 5, "type": "INSERT", "commitTs": 9, "buildTs": 1}
BOOTSTRAP = {"version": 1, "type": "BOOTSTRAP", "commitTs": 0, "buildTs": 1, "tableSchema": {"schema": "d"}}
DMS = {"data": {"id": 1}, "metadata": {"record-type": "data", "operation": "insert", "table-name": "t"}}
CLOUD = {
    "specversion": "1.0",
    "id": "x",
    "source": "/debezium/mysql",
    "type": "io.debezium.datachangeevent",
    "data": {},
}
FLAT = {"schema": {"type": "struct", "name": "p.d.t.Value", "fields": []}, "payload": {"id": 1}}
CANAL = b"\x18\x07\x2a\x10\x08\x01\x12\x0c" + bytes(12)
NOISE = random.Random(3).randbytes(64)


def _json(document: Any) -> bytes:
    return json.dumps(document).encode()


NOT_READ: list[tuple[bytes, str, str]] = [
    (_json(SIMPLE), "TiCDC's Simple protocol", "canal-json"),
    (_json(BOOTSTRAP), "TiCDC's Simple protocol", "canal-json"),
    (b"\x16\x00\x00\x02\x80\x01", "TiCDC's Simple protocol in Avro", "canal-json"),
    (b"\x16\x06\x06\x02\x02d", "TiCDC's Simple protocol in Avro", "canal-json"),
    (_json(MAXWELL), "Maxwell's JSON", "Debezium's connector"),
    (CANAL, "Canal's Protobuf", "canal.mq.flatMessage=true"),
    (_json(DMS), "AWS DMS's JSON", "Debezium's connector"),
    (_json(CLOUD), "CloudEvents", "JsonConverter"),
    (_json(FLAT), "flattened by Debezium's transform ExtractNewRecordState", "take the transform out"),
    (_json({"id": 1, "__deleted": "false"}), "flattened by Debezium's", "take the transform out"),
    (b"\0\0\0\0\7\2\4ab", "with a schema registry", "--registry"),
    (b'\0\0\0\0\7{"id": 1}', "JSON Schema's form", "converters? to the ones for JSON or Avro"),
    (b"\1" + bytes(16) + b"\2", "a GUID", "value.converter"),
    (b"\3\0" + bytes(16) + b"\2", "AWS Glue's form", "value.converter"),
    (gzip.compress(b"{}", mtime=0), "compressed with gzip", "compression.type"),
    (zlib.compress(b"{}"), "compressed with zlib", "compression.type"),
    (_json({"encrypted": {"iv": "", "bytes": ""}}), "encrypted", "take that out"),
    (NOISE, "maybe encrypted", "take that out"),
]
"""A value, how it is named, and what is said to be set, as regular expressions."""


@pytest.mark.parametrize(("value", "what", "fix"), NOT_READ)
def test_formats_that_are_not_read(value: bytes, what: str, fix: str) -> None:
    """Where the protocol is recognised, and in the reason of each message that is decoded for another protocol."""
    with pytest.raises(UsageError, match=f"no known protocol is recognised in 2 messages; 2 are .*{what}.*{fix}"):
        recognise([(None, value)] * 2)
    for protocol in ("canal-json", "debezium"):
        [event] = decode_message(make_decoder(protocol, DecodeOptions(None)), None, value)
        assert event.kind is Kind.BAD
        assert what in reason(event) or value[:1] == b"\0"  # which the decoder names


@pytest.mark.parametrize(("value", "what", "fix"), NOT_READ)
def test_check_and_inspect_name_them(value: bytes, what: str, fix: str, tmp_path: Path) -> None:
    """As the start does; inspect also shows why the message is none that it reads, and where."""
    parts = {("t", 0): [(None, value)] * 2}
    finding = judge_protocol(SourceFacts("files", False, {}, {}, parts, parts, 0), Settings())
    assert finding.level is Level.FAIL
    assert re.search(what, finding.what)
    assert re.search(fix, finding.fix)
    line = {"partition": 0, "offset": 0, "key": None, "value": encoded(value)}
    [record] = inspect(CaptureSource(str(write_lines(tmp_path / "t.jsonl", [line]))), Settings(), limit=0)
    document = record.document()
    assert document["kind"] == "bad"
    assert re.search(f"{what}.*{fix}", document["reason"])


def test_avro_that_its_registry_does_not_tell() -> None:
    """Is named by the reason, and nobody is told to give the registry that was given."""
    fields = [{"name": "id", "type": {"type": "int", "connect.parameters": {"tidb_type": "INT"}}}]
    plain = json.dumps({"type": "record", "name": "t", "namespace": "default.d", "fields": fields})
    for schemas, what in ({1: plain}, "TiCDC's protocol avro"), ({}, "lacks the schema 1"):
        with pytest.raises(UsageError, match=f"2 are in Avro, and cannot be read: .*{what}") as caught:
            recognise(in_json([(None, b"\0\0\0\0\1\2")] * 2, Schemas(schemas)))
        assert "--registry" not in str(caught.value)


@pytest.mark.parametrize("value", [b"", None, b"7", b"hello", b'{"a": 1}', b"[]"])
def test_what_shows_nothing_gets_no_name(value: bytes | None) -> None:
    """A guess would send the operator the wrong way."""
    assert foreign(None, value) is None


@pytest.mark.parametrize("variant", [one for one in PROTOCOLS if not one.startswith("open")])
def test_messages_that_are_read_get_no_other_name(golden: Path, variant: str) -> None:
    """Genuine messages of each protocol."""
    for line in read_lines(golden / variant / "keys.jsonl"):
        assert foreign(None, text(line).encode()) is None
