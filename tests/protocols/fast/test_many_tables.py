"""Tables with the same columns share what is learned of one of them; what comes of it is what parsing gives."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.demo.model import BankColumn, BankRow, Change, TableVersion, Transaction
from bridge.events import Kind
from bridge.protocols import decode_message
from bridge.protocols.batch_decode import event_columns
from bridge.protocols.fast.decoder import FastDecoder
from bridge.protocols.fast.reader import Reader
from tests.bench.encoders import SENDERS
from tests.support.debezium_wire import TICDC_SOURCE, payload, plain
from tests.support.oracles import MESSAGE, MOMENT, ORACLES, TS, WARM, Pair, decoded, decoded_fast, decoder_of
from tests.support.wire import compact

KEY, NUMBER = BankColumn("id", "int", key="primary"), BankColumn("n", "bigint")
TEXT, ALSO_KEY = BankColumn("v", "varchar", "99"), BankColumn("n", "bigint", key="primary")
LAYOUTS = [
    *((KEY, NUMBER, TEXT), (KEY, BankColumn("n", "varchar", "99"), TEXT), (BankColumn("id", "int"), ALSO_KEY, TEXT)),
    *((KEY, TEXT, NUMBER), (KEY, NUMBER, TEXT, BankColumn("w", "int"))),
]
"""Near each other: another type, another key, another order, one more."""
TWISTS = [
    *((b"", b""), (b'"n":"bigint"', b'"n":"bigint unsigned"'), (b'"v":"varchar', b'"v":"varbinary')),
    *((b'"t":15,"f":0', b'"t":15,"f":1'), (b'"t":8,"f":1', b'"t":3,"f":1'), (b'"pkNames":["id"]', b'"pkNames":["n"]')),
    (b'"connector":"TiCDC"', b'"connector":"mysql"'),
    (b'"database":', b'"databases":'),
    (b'"table":', b'"table":"t0","table":'),
]
"""What only one table's messages have."""
IMAGES = ("before", "after")
NAMES = ["t0", "t1", "T1", "t\u00e9", "t'1", "t\\1", 't"1', "", 'x","table":"t0', "n" * 64, "n" * 65, "t\x01", "\0"]
TEXTS = ["x", "it's", '"', "\\", "\n", "", None, "null", '"table":"t0"', "\u20ac"]


def _row(columns: Sequence[BankColumn], dice: random.Random) -> BankRow:
    odd = dice.random() < 0.1
    return tuple(
        (dice.choice(TEXTS) if odd else f"v{dice.randrange(99)}")
        if column.mysql_type == "varchar"
        else dice.choice([-1, 0, 1 << 62])
        if odd and column is NUMBER
        else dice.randrange(1, 1 << 31)
        for column in columns
    )


def _change(shape: TableVersion, dice: random.Random) -> Change:
    before, after = _row(shape.columns, dice), _row(shape.columns, dice)
    return Change(shape, *dice.choice([(None, after), (before, after), (before, None)]))


def _encoded(protocol: str, changes: Sequence[Change]) -> list[Pair]:
    encoder = SENDERS[protocol](1)
    transactions = (Transaction(TS + n, 0, (change,), MOMENT) for n, change in enumerate(changes))
    return [(m.key, m.value) for transaction in transactions for m in encoder.transaction(transaction)]


def _together(decoder: FastDecoder, pairs: Sequence[Pair]) -> int:
    """How many messages the fast path reads."""
    return len(decoded_fast(decoder, pairs))


def _tables(count: int, columns: tuple[BankColumn, ...] = LAYOUTS[0]) -> list[TableVersion]:
    return [TableVersion("d", f"t{number}", columns) for number in range(count)]


@pytest.mark.parametrize("protocol", SENDERS)
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_a_mixture_of_tables_comes_out_as_parsing_gives_it(protocol: str, seed: int) -> None:
    """Tables near each other in columns, types, keys and names, some of which change their columns in mid-stream."""
    dice = random.Random(seed)
    layouts = dice.choices(LAYOUTS, [9, 1, 1, 1, 1], k=20)
    names = [dice.choice(NAMES) if dice.random() < 0.3 else f"t{n}" for n in range(20)]
    twists = dice.choices(TWISTS, [30, *[2] * (len(TWISTS) - 1)], k=20)
    decoder = decoder_of(protocol)
    for _ in range(3):
        tables = dice.choices(range(20), k=150)
        changes = [_change(TableVersion("d", names[table], layouts[table]), dice) for table in tables]
        pairs = [
            (key, (value or b"").replace(*twists[table]))
            for table, (key, value) in zip(tables, _encoded(protocol, changes), strict=True)
        ]
        assert decoded(decoder, pairs) == [decode_message(ORACLES[protocol], *pair) for pair in pairs]
        changed = dice.randrange(20)
        layouts[changed], twists[changed] = dice.choice(LAYOUTS), dice.choice(TWISTS)
    assert decoder._reader.learned


@pytest.mark.parametrize("protocol", SENDERS)
def test_a_table_never_seen_is_decoded_together(protocol: str) -> None:
    """By what was learned of another with the same columns: one row of each of two hundred tables."""
    decoder, dice = decoder_of(protocol), random.Random(1)
    [taught] = _tables(1)
    decoded(decoder, _encoded(protocol, [Change(taught, None, (n, n, "x")) for n in range(WARM)]))
    pairs = _encoded(protocol, [Change(shape, None, (dice.randrange(99), 1, "y")) for shape in _tables(200)])
    assert _together(decoder, pairs) == 200
    assert decoded(decoder, pairs) == [decode_message(ORACLES[protocol], *pair) for pair in pairs]


@pytest.mark.parametrize("protocol", SENDERS)
def test_tables_that_are_not_wanted_stay_away(protocol: str) -> None:
    """Though a template of a wanted table matches their messages, and names that none can have are told."""
    decoder, asked = decoder_of(protocol, accepts=lambda _, table: table != "t1"), decoder_of(protocol)
    shapes = [*_tables(2), TableVersion("d", "n" * 65, LAYOUTS[0])]
    pairs = _encoded(protocol, [Change(shapes[n % 20 if n % 20 < 3 else 0], None, (n, n, "x")) for n in range(180)])
    expected = [decode_message(asked, *pair) for pair in pairs]
    assert {events[0].kind for events in expected} == {Kind.INSERT, Kind.BAD}
    for _ in range(2):
        found = decoded(decoder, pairs)
        assert found == [[] if event_columns(events[0])[4] == "t1" else events for events in expected]
    assert _together(decoder, pairs) == 180 - 2 * 9


def test_a_lot_of_one_table() -> None:
    """Or nearly so: the few rows of another are read with them."""
    decoder, shapes = decoder_of("canal-json"), _tables(2)
    pairs = _encoded("canal-json", [Change(shapes[n % 100 == 50], None, (n, n, "x")) for n in range(900)])
    for _ in range(2):
        assert decoded(decoder, pairs) == [decode_message(ORACLES["canal-json"], *pair) for pair in pairs]
    assert _together(decoder, pairs) == 900


@pytest.mark.parametrize("protocol", SENDERS)
def test_a_flood_of_tables_is_no_burden(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of tables is forgotten between two lots when it is too much."""
    monkeypatch.setattr("bridge.protocols.fast.reader._MOST_KINDS", 20)
    decoder = decoder_of(protocol)
    pairs = _encoded(protocol, [Change(shape, None, (1, 1, "y")) for shape in _tables(120)])
    for _ in range(2):
        assert decoded(decoder, pairs) == [decode_message(ORACLES[protocol], *pair) for pair in pairs]
    assert _together(decoder, pairs) == 120
    assert decoder._reader.learned == 3  # in each lot anew


@pytest.mark.parametrize("protocol", ["debezium", "ckafka"])
def test_columns_of_the_same_names_and_other_types(protocol: str) -> None:
    """Messages that do not say the types: numbers in one table are texts in another, or the key; all are learned."""
    decoder = decoder_of(protocol)
    shapes = [TableVersion("d", name, columns) for name, columns in zip("abc", LAYOUTS, strict=False)]
    changes = [
        Change(shape, None, (1, shape.name if shape.name == "b" else n, "x")) for n in range(40) for shape in shapes
    ]
    pairs = _encoded(protocol, changes)
    assert decoded(decoder, pairs) == [decode_message(ORACLES[protocol], *pair) for pair in pairs]
    assert _together(decoder, pairs) == 120


def test_old_values_begin_in_all_tables() -> None:
    """A changefeed that is switched over: every table's updates have another form, with the same columns, from then on.
    It is learned, whatever there was before that cannot be learned from."""
    decoder = decoder_of("canal-json")

    def lot(size: int, v: str, old: list[Any] | None) -> list[Pair]:
        message = {**MESSAGE, "type": "UPDATE", "old": old, "data": [{"id": "1", "v": v}]}
        return [(b"", orjson.dumps({**message, "table": f"t{n % 100}"})) for n in range(size)]

    switched = lot(1000, "x", [{"id": "1", "v": "y"}])
    for pairs in (lot(1000, "x", None), lot(1300, "\\", None), switched):
        assert decoded(decoder, pairs) == [decode_message(ORACLES["canal-json"], *pair) for pair in pairs]
    assert _together(decoder, switched) == 1000


@pytest.mark.parametrize("protocol", SENDERS)
def test_the_first_lot_is_decoded_together(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as enough has been learned of it: few of its messages are parsed, however many tables there are."""
    decoder, parsed = decoder_of(protocol), []
    decode = decoder.decode
    monkeypatch.setattr(decoder, "decode", lambda key, value: parsed.append(value) or decode(key, value))
    dice = random.Random(1)
    shapes = _tables(200)
    pairs = _encoded(protocol, [_change(dice.choice(shapes), dice) for _ in range(600)])
    assert decoded(decoder, pairs) == [decode_message(ORACLES[protocol], *pair) for pair in pairs]
    assert len(parsed) < 240


@pytest.mark.parametrize("protocol", SENDERS)
def test_kinds_are_tried_together(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial for each new table would take longer than everything else that is done for few rows of it."""
    reads, read = [], Reader.read
    monkeypatch.setattr(Reader, "read", lambda *given: reads.append(given) or read(*given))
    decoder = decoder_of(protocol)
    pairs = _encoded(protocol, [Change(shape, None, (1, 1, "y")) for shape in _tables(200)])
    assert _together(decoder, pairs) == 200
    assert len(reads) == 2


def test_a_message_that_cannot_be_learned_from_hinders_no_other() -> None:
    """Though all new kinds of a lot are tried together."""
    decoder = decoder_of("canal-json")
    pairs = _encoded("canal-json", [Change(shape, None, (1, 1, "y")) for shape in _tables(120)])
    for number, (old, new) in enumerate([(b'"id":"1"', b'"id":1'), (b'"t1"', b'"t\\u0031"'), (b'"data"', b'"date"')]):
        key, value = pairs[number]
        assert value is not None
        assert old in value
        pairs[number] = key, value.replace(old, new)
    assert decoded(decoder, pairs) == [decode_message(ORACLES["canal-json"], *pair) for pair in pairs]
    assert len(decoded_fast(decoder, pairs)) >= 117


def test_schemas_name_the_table() -> None:
    """Debezium's schemas, of message and key, differ by the table's name alone where the columns are the same; a column
    of another type is another form, and a key of another column is looked at."""

    def message(number: int) -> Pair:
        name = f"t{number % 75}"
        kind = "varbinary" if number % 7 == 0 else "varchar"
        fields = [{"type": "int32", "optional": False, "field": "id"}, {**plain("string", kind), "field": "v"}]
        images = [{"type": "struct", "name": f"c.d.{name}.Value", "field": image, "fields": fields} for image in IMAGES]
        schema = {"type": "struct", "name": f"c.d.{name}.Envelope", "fields": images}
        content = payload("c", {"id": number, "v": "eA=="}, {**TICDC_SOURCE, "table": name})
        handle = {"id": number} if number % 11 else {"n": number}
        return compact({"payload": handle, "schema": {"name": f"c.d.{name}.Key"}}), compact(
            {"payload": content, "schema": schema}
        )

    pairs = [message(number) for number in range(300)]
    decoder = decoder_of("debezium")
    for _ in range(2):
        assert decoded(decoder, pairs) == [decode_message(ORACLES["debezium"], *pair) for pair in pairs]
    assert _together(decoder, pairs) >= 0.8 * len(pairs)
