"""Decoders that have learnt templates, others that never do, which tell what is right, and messages for both."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from bridge.demo.encode import EncodedMessage
from bridge.demo.model import BankColumn, BankTotals, Change, TableVersion, Transaction
from bridge.protocols import DecodeOptions, Decoder, decode_all, make_decoder
from tests.bench.encoders import ENCODERS

WARM = 40
"""Messages after which a layout's conversion is written out."""

ROW = {"id": "1", "v": "x"}
MESSAGE: dict[str, Any] = {
    "id": 0, "database": "d", "table": "t", "pkNames": ["id"], "isDdl": False, "type": "INSERT", "es": 1, "ts": 1,
    "sql": "", "sqlType": {"id": 4, "v": 12}, "mysqlType": {"id": "int", "v": "varchar"}, "old": None, "data": [ROW],
    "_tidb": {"commitTs": 470611868434825218},
}  # fmt: skip
"""A row of Canal-JSON."""


def in_message_order(events: pa.Table) -> pa.Table:
    """Decoded events (EVENT_SCHEMA), which come in any order."""
    return events.sort_by([(name, "ascending") for name in ("topic", "partition", "offset", "index")])


def unlearning(protocol: str) -> Decoder:
    """A decoder without templates: what it gives is what a message holds."""
    decoder = make_decoder(protocol, DecodeOptions("UTC", ckafka_binary="base64"))
    decoder._templates.missed = lambda *_: None  # type: ignore[attr-defined]
    return decoder


ORACLES = {protocol: unlearning(protocol) for protocol in ENCODERS}


def unbase64(text: str | None) -> bytes | None:
    """A key or value of a capture file."""
    return None if text is None else base64.b64decode(text)


SHAPE = TableVersion(
    "d'b",
    "t\u00e9",
    (BankColumn("id", "int", key="primary"), BankColumn("n", "bigint"), BankColumn("v", "varchar", "99")),
)
NUMBERS = st.none() | st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from([0, 1, -1, 10**18, 10**17])
TEXTS = (
    st.none() | st.text() | st.sampled_from(["", "'", "\\", '"', "\0", "\n", "\x1f", "null", "{}", "\ud7ff", "a" * 300])
)
ROWS = st.tuples(st.integers(0, 1 << 31), NUMBERS, TEXTS)
CHANGES = st.tuples(st.none() | ROWS, st.none() | ROWS).filter(any)
MOMENT = BankTotals(0, 0, 0, 0)
TS = 470611868434825218


def messages_of(protocol: str, changes: list[tuple[Any, Any]]) -> list[EncodedMessage]:
    """One for each change of SHAPE, (old row, new row)."""
    encoder = ENCODERS[protocol](1)
    transactions = (Transaction(TS + n, 0, (Change(SHAPE, *pair),), MOMENT) for n, pair in enumerate(changes))
    return [message for transaction in transactions for message in encoder.transaction(transaction)]


def taught(protocol: str) -> Decoder:
    """A decoder that has seen all three kinds of change, and NULL in one column."""
    first = (1, 2, "x")
    changes = [(None, first), (first, (1, 3, None)), (first, (1, 3, "z")), (first, None)] * WARM
    messages = messages_of(protocol, changes)
    decoder = make_decoder(protocol, DecodeOptions("UTC", ckafka_binary="base64"))
    decode_all(decoder, [message.key for message in messages], [message.value for message in messages])
    return decoder


TAUGHT = {protocol: taught(protocol) for protocol in ENCODERS}
