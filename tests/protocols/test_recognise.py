"""Protocol and variant, from the messages alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lz4.frame
import pytest
from cramjam import snappy
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import UsageError
from bridge.protocols.detect import recognise, recognise_message
from tests.support.wire import canal, compact, messages, open_row

ID = {"id": ("int", "1")}
EXTENDED = canal("INSERT", ID)
PLAIN = canal("INSERT", ID, _tidb=None)
OFFICIAL = canal("INSERT", {"id": ("int(11)", "1")}, id=7, _tidb=None)
CKAFKA = compact({"BINLOG_NAME": "mysql-bin.000001", "BINLOG_POS": 4, "TYPE": "I"})
SECONDS_DDL = canal("CREATE", {}, isDdl=True, es=1655812326, _tidb=None)
MILLIS_DDL = canal("RENAME", {}, isDdl=True, es=1656300979748, _tidb=None)


def debezium(**fields: Any) -> bytes:
    return compact({"payload": {"source": {"connector": "TiCDC"}, "op": "c"}} | fields)


@pytest.mark.parametrize(
    ("key", "value", "protocol", "variant"),
    [
        (*open_row({"u": {}}), "open-protocol", "version 1"),
        (open_row({})[0], bytes(8) + lz4.frame.compress(b"{}"), "open-protocol", "version 1"),
        (open_row({})[0], bytes(8) + bytes(snappy.compress_raw(b"{}")), "open-protocol", "version 1"),
        (open_row({})[0], bytes(8), "open-protocol", "version 1"),
        (b"", EXTENDED, "canal-json", "TiCDC with the TiDB extension"),
        (b"", lz4.frame.compress(EXTENDED), "canal-json", "TiCDC with the TiDB extension"),
        (b"", bytes(snappy.compress_raw(PLAIN)), "canal-json", "TiCDC without the extension"),
        (None, PLAIN, "canal-json", "TiCDC without the extension"),
        (None, OFFICIAL, "canal-json", "official Canal"),
        (None, canal("INSERT", ID, gtid="", _tidb=None), "canal-json", "official Canal"),
        (None, MILLIS_DDL, "canal-json", "TiCDC without the extension"),
        (None, SECONDS_DDL, "ckafka", "schema change in Canal's form"),
        (None, CKAFKA, "ckafka", "official format 1"),
        (None, debezium(), "debezium", "TiCDC, without schema"),
        (None, debezium(schema={}), "debezium", "TiCDC, with schema"),
        (None, compact({"source": {"connector": "mysql"}, "op": "r"}), "debezium",
         "Debezium's MySQL connector, without schema"),
        (None, compact({"payload": {"source": {}, "ddl": "x"}, "schema": {}}), "debezium",
         "Debezium's MySQL connector, with schema"),
    ],
)  # fmt: skip
def test_message(key: bytes | None, value: bytes, protocol: str, variant: str) -> None:
    """Each form shows in the message itself."""
    found = recognise_message(key, value)
    assert found
    assert (found.protocol, found.variant) == (protocol, variant)


@pytest.mark.parametrize(
    "value", [None, b"", b"x", b"{}", b"[]", b'{"payload":1}', b'{"payload":{"source":{}}}', b"\0"]
)
def test_nothing_to_see(value: bytes | None) -> None:
    """A tombstone, and what is no message of any protocol, shows none."""
    assert recognise_message(b"key", value) is None


@settings(max_examples=300)
@given(st.none() | st.binary(), st.none() | st.binary())
def test_any_bytes(key: bytes | None, value: bytes | None) -> None:
    """Arbitrary bytes raise nothing."""
    recognise_message(key, value)


@pytest.mark.parametrize(
    ("values", "protocol", "reason"),
    [
        ([EXTENDED, b"x"], "canal-json",
         "1 of 2 messages have isDdl, database and type, as Canal-JSON has (1: TiCDC with the TiDB extension)"),
        ([PLAIN, EXTENDED, EXTENDED], "canal-json",
         "3 of 3 messages have isDdl, database and type, as Canal-JSON has"
         " (2: TiCDC with the TiDB extension, 1: TiCDC without the extension)"),
        ([SECONDS_DDL, MILLIS_DDL, CKAFKA, CKAFKA], "ckafka",
         "3 of 4 messages have BINLOG_NAME, BINLOG_POS and TYPE, as CKafka's official format 1 has"
         " (2: official format 1, 1: schema change in Canal's form)"),
        ([SECONDS_DDL, PLAIN], "canal-json",
         "1 of 2 messages have isDdl, database and type, as Canal-JSON has (1: TiCDC without the extension)"),
        ([SECONDS_DDL], "ckafka", "1 of 1 messages"),
        ([MILLIS_DDL, SECONDS_DDL], "ckafka", "1 of 2 messages"),
        ([MILLIS_DDL], "canal-json", "1 of 1 messages"),
        ([None, debezium()], "debezium", "1 of 2 messages have a payload with source and op or ddl"),
    ],
)  # fmt: skip
def test_sample(values: list[bytes | None], protocol: str, reason: str) -> None:
    """A sample tells the protocol, whichever variants it holds, and the reason counts them."""
    found, why = recognise([(None, value) for value in values])
    assert found == protocol
    assert reason in why


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([], "the source is empty"),
        ([b"x", None], "no known protocol is recognised in 2 messages"),
        ([EXTENDED, CKAFKA, CKAFKA], "several protocols: 2 ckafka, 1 canal-json"),
    ],
)
def test_undecided(values: list[bytes | None], words: str) -> None:
    """What does not tell its protocol, or tells two, is left to the operator."""
    with pytest.raises(UsageError, match=words) as refusal:
        recognise([(None, value) for value in values])
    assert "--protocol" in str(refusal.value)


def test_golden(golden: Path) -> None:
    """Every genuine capture is recognised, message by message, with its sender."""
    says = {
        "canal": "TiCDC without the extension", "debezium": "TiCDC, with schema", "open": "version 1",
        "debezium-noschema-ext": "TiCDC, without schema", "canal-ext": "TiDB extension",
    }  # fmt: skip
    folders = sorted(path for path in golden.iterdir() if (path / "all_types.jsonl").exists())
    assert says.keys() <= {folder.name for folder in folders}
    for folder in folders:
        sample = [(key, value) for _, key, value in messages(folder / "all_types.jsonl")][:200]
        protocol, reason = recognise(sample)
        assert protocol == {"canal": "canal-json", "open": "open-protocol"}.get(folder.name.split("-")[0], "debezium")
        assert reason.startswith(f"{len(sample)} of {len(sample)} messages")
        assert says.get(folder.name, "") in reason
