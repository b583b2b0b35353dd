"""The fast path gives of a message what parsing gives, or leaves the message to it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import orjson
import pytest

from bridge.demo.model import BankColumn, Change, TableVersion, Transaction
from bridge.protocols import decode_message
from bridge.protocols.fast.decoder import FastDecoder
from tests.bench.encoders import SENDERS
from tests.support.oracles import (
    ALIKE,
    MESSAGE,
    MOMENT,
    ORACLES,
    TS,
    WARM,
    always_tried,
    decoded,
    decoded_alone,
    decoded_fast,
    decoder_of,
    messages_of,
)

TAUGHT_BY = WARM // ALIKE
"""Lots of a message, of ALIKE each, after which its form is known."""


WARMED = decoder_of("canal-json")
with always_tried():
    decoded_fast(WARMED, [(b"", orjson.dumps(MESSAGE))] * 600)


def _learn_and_compare(protocol: str, messages: Sequence[tuple[bytes | None, bytes]]) -> FastDecoder:
    """Decodes the messages one by one; whatever comes in between, each gives what it gives without forms."""
    decoder, oracle = decoder_of(protocol), decoder_of(protocol)
    for key, value in messages:
        assert decoded(decoder, [(key, value)] * ALIKE) == [decode_message(oracle, key, value)] * ALIKE
    return decoder


def test_quotes_in_a_binary_value_teach_nothing_of_those_in_texts() -> None:
    """A literal with a quote that is not escaped would let the wire into the statement."""
    types = {"id": "int", "name": "varchar", "b": "varbinary"}
    message = {**MESSAGE, "mysqlType": types, "sqlType": dict.fromkeys(types, 12)}

    def row(name: str, binary: str) -> bytes:
        return orjson.dumps({**message, "data": [{"id": "1", "name": name, "b": binary}]})

    taught = [(b"", row("x", "it's"))] * 2 * TAUGHT_BY
    decoder = _learn_and_compare(
        "canal-json", [*taught, (b"", row("O'Brien", "abc")), (b"", row("',(select 1", "abc"))]
    )
    assert decoded_alone(decoder, row("x", "it's")) is not None


@pytest.mark.parametrize("protocol", SENDERS)
def test_images_come_and_go(protocol: str) -> None:
    """Old values that a changefeed begins to send, or ceases to, in mid-stream; every message is read as ever."""
    row, new = (7, 8, "y"), (7, 9, "z")
    pairs = {"update": (row, new), "insert": (None, new), "delete": (row, None)}
    plain = {name: messages_of(protocol, [pair])[0] for name, pair in pairs.items()}
    update, key = plain["update"].value or b"", plain["update"].key
    without = [
        re.sub(rb'"(old|p|before|OLD_VALUES)":', rb'"\1x":', update),
        re.sub(rb'"before":\{[^}]*\}', b'"before":null', update),
        re.sub(rb'"before":\{[^}]*\},', b"", update),
        re.sub(rb'"old":\[\{[^}]*\}\]', b'"old":null', update),
        update + b"\n",
        (plain["insert"].value or b"") + b"\n",
    ]
    messages = [(key, value) for value in (update, *without)]
    for _ in range(2):
        _learn_and_compare(protocol, [pair for pair in messages for _ in range(TAUGHT_BY)] * 2)
        _learn_and_compare(protocol, messages * 2 * TAUGHT_BY)
        messages.reverse()


def test_a_column_called_like_a_part_of_the_message() -> None:
    """Open Protocol: `p` names the old row, and may name a column."""
    shape = TableVersion(
        "d", "t", (BankColumn("id", "int", key="primary"), BankColumn("p", "int"), BankColumn("u", "int"))
    )
    changes = [Change(shape, None, (1, 2, 3)), Change(shape, (1, 2, 3), (1, 3, 4)), Change(shape, (1, 3, 4), None)]
    for protocol in SENDERS:
        encoder = SENDERS[protocol](1)
        messages = encoder.transaction(Transaction(TS, 0, tuple(changes), MOMENT))
        _learn_and_compare(protocol, [(m.key, m.value or b"") for m in messages] * 3 * TAUGHT_BY)


def test_a_key_that_changes_is_seen() -> None:
    """Debezium's message says its key's columns in Kafka's key alone."""
    value = messages_of("debezium", [((7, 8, "y"), (7, 9, "z"))])[0].value or b""
    keys = [b'{"payload":{"id":7}}', b'{"payload":{"id":7,"n":8}}', b'{"payload":{"n":7}}', b'{"payload":{}}', None]
    _learn_and_compare("debezium", [(key, value) for key in keys for _ in range(2 * TAUGHT_BY)])
    _learn_and_compare("debezium", [(key, value) for key in keys] * 3 * TAUGHT_BY)


def test_types_in_any_order() -> None:
    """TiCDC's mysqlType is in random order; other types are another layout."""
    names = ["id", "v", "w", "x"]
    row = dict.fromkeys(names, "1")
    messages = []
    for order in itertools.permutations(names):
        types = {name: "int" if name == "id" else "varchar" for name in order}
        codes = {name: 4 + len(messages) % 2 for name in names}
        messages.append(orjson.dumps({**MESSAGE, "mysqlType": types, "sqlType": codes, "data": [row]}))
    decoder = _learn_and_compare("canal-json", [(b"", value) for value in messages] * TAUGHT_BY)
    assert all(decoded_alone(decoder, value) is not None for value in messages)
    other = orjson.loads(messages[0])
    other["mysqlType"]["w"] = "blob"
    _learn_and_compare("canal-json", [(b"", messages[0])] * 2 * TAUGHT_BY + [(b"", orjson.dumps(other))])
    assert decoded_alone(decoder, messages[0].replace(b'"sqlType":{', b'"sqlType":{5,')) is None


@pytest.mark.parametrize(
    "types",
    [
        b'{"v":"varchar","id":"int"}', b'{"id":"int"}', b'{"id":"int","id":"int"}', b"{}", b'{"id":"int","v":"varchar"',
        b'{"id":"int","id":"int","v":"varchar"}', b'{"id":"int","v":"varchar","w":"int"}', b"null", b'["id","v"]',
        b'{"id":"int","v":"varchar",}', b'{"id":"int";"v":"varchar"}', b'{"id":"int","v":"varbinary"}',
        b'{"id":"int","v":1}',
    ],
)  # fmt: skip
def test_an_object_in_any_order(types: bytes) -> None:
    """With all its members, each as it was."""
    value = orjson.dumps({**MESSAGE, "type": "INSERT"}).replace(b'{"id":"int","v":"varchar"}', types)
    found = decoded_alone(WARMED, value)
    assert found is None or found == decode_message(ORACLES["canal-json"], b"", value)
    assert found is not None or types != b'{"v":"varchar","id":"int"}'


def test_cut_rows_do_not_make_forms_be_forgotten() -> None:
    """One row in a hundred that was cut to its key, whose layout is another."""
    decoder = decoder_of("canal-json", cut_rows=True)
    whole = orjson.dumps({**MESSAGE, "type": "INSERT"})
    extension = {**MESSAGE["_tidb"], "onlyHandleKey": True}
    cut = orjson.dumps({**MESSAGE, "data": [{"id": "1"}], "_tidb": extension})
    for _ in range(WARM):
        decoded(decoder, [(b"", whole)] * 4)
        [[event]] = decoded(decoder, [(b"", cut)])
        assert event.cut
    assert decoded_alone(decoder, whole) is not None


def test_nesting_is_counted_from_the_message() -> None:
    """What is too deep for the message as a whole is not read as a part of it."""
    value = orjson.dumps({**MESSAGE, "type": "INSERT"})
    for depth in range(1019, 1026):
        codes = b'"sqlType":{"a":' + b"[" * depth + b"]" * depth + b"}"
        deep = re.sub(rb'"sqlType":\{[^}]*\}', lambda _, codes=codes: codes, value)
        found = decoded_alone(WARMED, deep)
        assert found is None or found == decode_message(ORACLES["canal-json"], b"", deep)
