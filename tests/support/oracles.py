"""Decoders that have learned forms of messages, others that never do and tell what is right, and messages for both."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import bridge.protocols.fast.loading  # noqa: F401
from bridge.demo.encode import EncodedMessage
from bridge.demo.model import BankColumn, BankTotals, Change, TableVersion, Transaction
from bridge.protocols import DecodeOptions, Decoder, batch_decode, decode_message, make_decoder
from bridge.protocols.batch_decode import Messages, decode_messages
from bridge.protocols.fast.decoder import FastDecoder
from tests.bench.encoders import SENDERS, protocol_of

WARM = 8
"""Messages after which their form is known: the first, second, fourth and eighth that is missed teaches."""
ALIKE = 2
"""Messages of a form from which on the fast path reads them together."""

FOR_EACH = settings(max_examples=40)
"""Of a test that runs for each sender, type or form: together they have hundreds of examples."""

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


def events_of(events: pa.Table) -> list[Any]:
    """Each row of decoded events, without its position."""
    return list(batch_decode.events_of(events))


def decoder_of(protocol: str, **options: Any) -> FastDecoder:
    """A decoder with both paths."""
    made = make_decoder(protocol_of(protocol), DecodeOptions("UTC", ckafka_binary="base64", **options))
    assert isinstance(made, FastDecoder)
    return made


def plain(protocol: str) -> Decoder:
    """A decoder that tells what is right: of it, `decode` alone is used, which knows no forms."""
    return decoder_of(protocol)


ORACLES = {protocol: plain(protocol) for protocol in SENDERS}

Pair = tuple[bytes | None, bytes | None]
"""Key and value of a message."""


def decoded_fast(decoder: FastDecoder, pairs: Sequence[Pair]) -> dict[int, list[Any]]:
    """The events of those messages that the fast path reads, by number; no other is in what it leaves."""
    lots, leftover = decoder.decode_batch([key for key, _ in pairs], [value for _, value in pairs])
    found: dict[int, list[Any]] = {}
    for rows in lots:
        assert rows.numbers.tolist() == sorted(rows.numbers.tolist())
        for number, event in zip(rows.numbers.tolist(), events_of(rows.events), strict=True):
            found.setdefault(number, []).append(event)
    assert sorted([*found, *leftover.tolist()]) == list(range(len(pairs)))
    return {number: sorted(events, key=lambda event: event.index) for number, events in found.items()}


def compared(protocol: str, decoder: FastDecoder, pairs: Sequence[Pair]) -> set[int]:
    """The numbers of the messages that the fast path reads, after a look at what they become."""
    found = decoded_fast(decoder, pairs)
    for number, events in found.items():
        assert events == decode_message(ORACLES[protocol], *pairs[number]), pairs[number]
    return set(found)


def decoded_alone(decoder: FastDecoder, value: bytes | None, key: bytes | None = b"") -> list[Any] | None:
    """What the fast path makes of a message; None when it leaves it to parsing."""
    found = decoded_fast(decoder, [(key, value)] * ALIKE)
    assert not found or len({tuple(events) for events in found.values()}) == 1 == len(found) - ALIKE + 1
    return found.get(0)


def decoded(decoder: Decoder, pairs: Sequence[Pair]) -> list[list[Any]]:
    """The events of each of many messages, decoded as one lot: by the fast path and by what parses the rest."""
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    lot = Messages(["t"] * len(pairs), [0] * len(pairs), list(range(len(pairs))), keys, values)
    events: list[list[Any]] = [[] for _ in pairs]
    rows = in_message_order(decode_messages(decoder, lot))
    for offset, event in zip(rows["offset"].to_pylist(), events_of(rows), strict=True):
        events[offset].append(event)
    return events


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
    encoder = SENDERS[protocol](1)
    transactions = (Transaction(TS + n, 0, (Change(SHAPE, *pair),), MOMENT) for n, pair in enumerate(changes))
    return [message for transaction in transactions for message in encoder.transaction(transaction)]


@contextmanager
def always_tried() -> Iterator[None]:
    """Messages are read by their forms, however few come together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bridge.protocols.fast.readiness._MANY", 1)
        yield


def taught(protocol: str) -> FastDecoder:
    """A decoder that has seen all three kinds of change, and NULL in one column."""
    first = (1, 2, "x")
    changes = [(None, first), (first, (1, 3, None)), (first, (1, 3, "z")), (first, None)] * (4 * WARM)
    decoder = decoder_of(protocol)
    with always_tried():
        decoded_fast(decoder, [(message.key, message.value) for message in messages_of(protocol, changes)])
    return decoder


TAUGHT = {protocol: taught(protocol) for protocol in SENDERS}
