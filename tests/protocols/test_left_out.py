"""Rows of tables that are not replicated: what a decoder gives for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from bridge.events import Kind, LeftOut
from bridge.filters.table_filter import ReservedSchemas
from bridge.protocols import PROTOCOLS as REGISTERED
from bridge.protocols import DecodeOptions, decode_message, make_decoder
from bridge.protocols.batch_decode import decode_messages
from tests.protocols.test_reasons import SCHEMA_CHANGE_OF
from tests.support.debezium_wire import TICDC_SOURCE, ticdc
from tests.support.wire import as_ckafka, canal, lot, open_row

PROTOCOLS = sorted(REGISTERED)
Pair = tuple[bytes | None, bytes]


def message(protocol: str, schema: str, id_: int = 1) -> Pair:
    """A row of the table t."""
    return MESSAGES[protocol](schema, id_)


def _of_canal(schema: str, id_: int) -> Pair:
    return b"", canal("INSERT", {"id": ("int", str(id_))}, database=schema)


MESSAGES: dict[str, Callable[[str, int], Pair]] = {
    "canal-json": _of_canal,
    "ckafka": lambda schema, id_: (b"", as_ckafka(_of_canal(schema, id_)[1])),
    "debezium": lambda schema, id_: (
        b'{"payload":{"id":1}}',
        ticdc("c", {"id": id_}, source=TICDC_SOURCE | {"db": schema, "table": "t"}),
    ),
    "open-protocol": lambda schema, id_: open_row({"u": {"id": {"t": 3, "h": True, "f": 11, "v": id_}}}, scm=schema),
}
"""How a message is made: a row of the table t of a database."""


def decoded(protocol: str, pairs: Iterable[Pair], **options: Any) -> list[dict[str, Any]]:
    """The events of messages that are decoded together, by one decoder, twice: it has learned then."""
    decoder = make_decoder(protocol, DecodeOptions("UTC", **options))
    keys, values = zip(*pairs, strict=True)
    messages = lot(values, keys)
    decode_messages(decoder, messages)
    events: list[dict[str, Any]] = decode_messages(decoder, messages).to_pylist()
    return events


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rows_that_must_never_be_written(protocol: str) -> None:
    """Each is known by its table and position, and none comes as a row; also when a template of another table reads
    such messages, whatever the filter wants."""
    schemas = ["shop", "mysql", "shop", "MySQL", "_own"]
    pairs = [message(protocol, schemas[n % 5], n) for n in range(1000)]
    for accepts in (None, lambda *_: True):
        events = decoded(protocol, pairs, accepts=accepts, reserved=ReservedSchemas("_own"))
        assert Counter((event["kind"], event["schema"]) for event in events) == {
            (Kind.INSERT, "shop"): 400, **{(Kind.LEFT_OUT, schema): 200 for schema in ("mysql", "MySQL", "_own")},
        }  # fmt: skip
        assert {event["offset"] % 5 for event in events if event["kind"] == Kind.LEFT_OUT} == {1, 3, 4}
        assert {event["text"] for event in events if event["schema"] == "_own"} == {
            "it is in the bridge's own database"
        }


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rows_that_the_filter_leaves_out(protocol: str) -> None:
    """Their tables are told once where that is asked for, else nothing is; a reserved one that the filter leaves out as
    well is no news."""
    pairs = [message(protocol, ["shop", "other", "mysql"][n % 3], n) for n in range(600)]

    def kinds(**options: Any) -> Counter[tuple[int, str]]:
        found = decoded(protocol, pairs, accepts=lambda schema, _: schema == "shop", **options)
        return Counter((event["kind"], event["schema"]) for event in found)

    assert kinds() == {(Kind.INSERT, "shop"): 200}
    assert kinds(tells_unwanted=True) == {(Kind.INSERT, "shop"): 200}  # told by the first pass


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tables_that_the_filter_leaves_out_are_told_once(protocol: str) -> None:
    """By each decoder."""
    decoder = make_decoder(protocol, DecodeOptions("UTC", lambda *_: False, tells_unwanted=True))
    told = [decoder.decode(*message(protocol, schema)) for schema in ("other", "other", "mysql", "another", "mysql")]
    assert told == [
        [LeftOut("other", "t", None)], [], [LeftOut("mysql", "t", None)], [LeftOut("another", "t", None)], [],
    ]  # fmt: skip


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_values_of_unwanted_tables_are_not_looked_at(protocol: str) -> None:
    """The filter is asked once for each table, and leaves out no schema change."""
    asked = []

    def accepts(schema: str, _: str) -> bool:
        asked.append(schema)
        return schema == "shop"

    def broken(schema: str) -> Pair:
        key, value = message(protocol, schema, 7777)
        return key, value.replace(b'"7777"', b"{}    ").replace(b"7777", b"{}  ")

    decoder = make_decoder(protocol, DecodeOptions("UTC", accepts))
    assert [decode_message(decoder, *broken("other")) for _ in range(2)] == [[], []]
    assert [event.kind for event in decode_message(decoder, *broken("shop"))] == [Kind.BAD]
    assert asked == ["other", "shop"]
    assert len(decode_message(decoder, *SCHEMA_CHANGE_OF.get(protocol, SCHEMA_CHANGE_OF["canal-json"]))) == 1
