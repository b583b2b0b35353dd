"""The fast path gives of a message what parsing gives, or leaves the message to it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.demo.model import BankColumn, Change, TableVersion, Transaction
from bridge.events import Kind
from bridge.protocols import decode_message
from bridge.protocols.fast.decoder import FastDecoder
from tests.bench.encoders import SENDERS
from tests.support.oracles import (
    ALIKE,
    FOR_EACH,
    MESSAGE,
    MOMENT,
    ORACLES,
    ROW,
    TAUGHT,
    TS,
    WARM,
    decoded,
    decoded_alone,
    decoded_fast,
    decoder_of,
    messages_of,
)

TAUGHT_BY = WARM // ALIKE
"""Lots of a message, of ALIKE each, after which its form is known."""


def _warm() -> FastDecoder:
    decoder = decoder_of("canal-json")
    for kind, old in (("INSERT", None), ("UPDATE", [ROW]), ("DELETE", None)):
        decoded_fast(decoder, [(b"", orjson.dumps({**MESSAGE, "type": kind, "old": old}))] * 600)
    return decoder


WARMED = _warm()


def test_a_usual_row_is_read_by_its_form() -> None:
    """All three kinds of change."""
    decoder = _warm()
    for kind, old in (("INSERT", None), ("UPDATE", [ROW]), ("DELETE", None)):
        events = decoded_alone(decoder, orjson.dumps({**MESSAGE, "type": kind, "old": old}))
        assert events is not None
        assert [event.kind for event in events] == [Kind[kind]]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, (1 << 64) - 1)
    | st.sampled_from(["1", "x", "", "INSERT", "d", "t", "id"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["id", "v", "commitTs"]), inner),
    max_leaves=4,
)


@pytest.mark.parametrize("kind", ["INSERT", "UPDATE", "DELETE"])
@FOR_EACH
@given(changes=st.dictionaries(st.sampled_from(sorted(MESSAGE)), VALUES, max_size=2), data=st.lists(VALUES, max_size=2))
def test_what_is_unusual_is_left_to_parsing(kind: str, changes: dict[str, Any], data: list[Any]) -> None:
    """Whatever stands where, a form gives what parsing gives, or nothing."""
    decoder = WARMED
    for value in ({**MESSAGE, "type": kind, "old": [ROW], **changes}, {**MESSAGE, "type": kind, "old": data}):
        packed = orjson.dumps(value)
        found = decoded_alone(decoder, packed)
        assert found is None or found == decode_message(ORACLES["canal-json"], b"", packed)


def test_a_table_that_changes_is_learned_anew() -> None:
    """Columns that come and go: forms of another layout never match, and the new one is learned."""
    decoder = _warm()
    for column in ("w", "v", "w"):
        row = {"id": "1", column: "x"}
        message = {**MESSAGE, "mysqlType": {"id": "int", column: "varchar"}, "sqlType": {"id": 4, column: 12}}
        value = orjson.dumps({**message, "data": [row]})
        for _ in range(20 * WARM):
            assert decoded(decoder, [(b"", value)]) == [decode_message(ORACLES["canal-json"], b"", value)]
        assert decoded_alone(decoder, value) is not None


CARE = {
    b"yyy": (b"y\x00y", b"y\ny", b"y\x1fy", b"y\xffy", b'y"y', b"y'y", b"y\\y", b"\\u0041"),
    b"777": (b"0777", b"-0", b"+7", b"9" * 19, b"9" * 20, b"-" + b"9" * 19, b"7e2", b"7.0"),
}
BEHIND = (b" ", b"\n", b"x", b"}", b"{}", b"\0", b"," + orjson.dumps(MESSAGE))


@pytest.mark.parametrize("protocol", SENDERS)
def test_what_needs_care_is_left_to_parsing(protocol: str) -> None:
    """What JSON forbids, what needs escaping, numbers in other forms than they are written in; what stands behind a
    message is part of it."""
    (message,) = messages_of(protocol, [(None, (7, 777, "yyy"))])
    value = message.value or b""
    odd = [value.replace(what, instead) for what, others in CARE.items() for instead in others]
    for one in (*odd, *(value + behind for behind in BEHIND)):
        found = decoded_alone(TAUGHT[protocol], one, message.key)
        assert found is None or found == decode_message(ORACLES[protocol], message.key, one), one


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
    found = decoded_alone(_warm(), value)
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
