"""The demo's encoders against the bridge's decoders, and against genuine messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.demo.bank import Bank
from bridge.demo.encode import ENCODERS, CanalJsonEncoder, EncodedMessage, Encoder, OpenProtocolEncoder
from bridge.demo.model import (
    BankColumn,
    BankRow,
    BankSchemaChange,
    BankStep,
    BankTotals,
    Change,
    DdlKind,
    TableVersion,
    Transaction,
    Value,
)
from bridge.events import NO_PRIMARY_KEY, SEP, Boundary, DdlStatement, Event, Kind, RowChange
from bridge.protocols import DecodeOptions, decode_message, make_decoder
from tests.support.wire import untyped

START_MS = 1_700_000_000_000
PARTITIONS = 4
TSO = 470611875882860545

ACCOUNT = TableVersion(
    "bank",
    "acc_a",
    (
        BankColumn("id", "int", key="primary"),
        BankColumn("balance", "bigint"),
        BankColumn("note", "varchar", "40", nullable=True),
    ),
)


def life(seed: int, transfers: int = 120) -> list[BankStep]:
    bank = Bank(seed, accounts=20, start_ms=START_MS)
    half = transfers // 2
    steps: list[BankStep] = [*bank.schema(), *(bank.transfer() for _ in range(half))]
    steps += [bank.add_column(), bank.create_table()]
    return [*steps, *(bank.transfer() for _ in range(half))]


def encoded(encoder: Encoder, steps: list[BankStep]) -> Iterator[list[EncodedMessage]]:
    for step in steps:
        yield encoder.transaction(step) if isinstance(step, Transaction) else encoder.schema_change(step)


def decoded(protocol: str, messages: list[EncodedMessage]) -> list[Event]:
    decoder = make_decoder(protocol, DecodeOptions(None))
    return [_first(event) for _, key, value in messages for event in decode_message(decoder, key, value)]


def _first(event: Event) -> Event:
    assert isinstance(event, RowChange | DdlStatement | Boundary)
    return event._replace(index=0)


def literal(value: Value) -> str:
    """A value of the bank as a SQL literal, made independently of the encoders."""
    match value:
        case None:
            return "NULL"
        case datetime():
            milliseconds = f".{value.microsecond // 1000:03d}"
            return f"'{value:%Y-%m-%d %H:%M:%S}{milliseconds}'"
        case int() | Decimal():
            return str(value)
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def image(shape: TableVersion, row: BankRow | None) -> str | None:
    if row is None:
        return None
    literals = [literal(value) for value in row]
    if "opened" in shape.at:
        literals[shape.at["opened"]] = literals[shape.at["opened"]].replace(".000", "")
    if "amount" in shape.at:
        literals[shape.at["amount"]] = f"{row[shape.at['amount']]:.2f}"
    return SEP.join(literals)


def event_of(change: Change, commit_ts: int, *, names_unique_keys: bool) -> RowChange:
    shape, before, after = change
    kind = Kind.DELETE if after is None else Kind.INSERT if before is None else Kind.UPDATE
    is_named = shape.handle.key == "primary" or names_unique_keys
    return RowChange(
        kind,
        commit_ts,
        0,
        shape.schema,
        shape.name,
        SEP.join(column.name for column in shape.columns),
        shape.handle.name if is_named else NO_PRIMARY_KEY,
        image(shape, before),
        image(shape, after),
    )


@pytest.mark.parametrize("protocol", ENCODERS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_messages_decode_to_exactly_the_changes(protocol: str, seed: int) -> None:
    """Nothing is lost, added or altered; Canal-JSON names primary keys only."""
    steps = life(seed)
    for step, messages in zip(steps, encoded(ENCODERS[protocol](PARTITIONS), steps), strict=True):
        events = decoded(protocol, messages)
        if isinstance(step, BankSchemaChange):
            table = step.shape.name if step.shape else ""
            expected = DdlStatement(step.commit_ts, 0, step.schema, table, step.statement)
            assert set(events) == {expected}
            continue
        names_unique_keys = protocol == "open-protocol"
        changes = [event_of(c, step.commit_ts, names_unique_keys=names_unique_keys) for c in step.changes]
        assert sorted(untyped(events), key=repr) == sorted(changes, key=repr)


@pytest.mark.parametrize("protocol", ENCODERS)
def test_the_same_step_gives_the_same_bytes(protocol: str) -> None:
    make = ENCODERS[protocol]
    assert list(encoded(make(PARTITIONS), life(9))) == list(encoded(make(PARTITIONS), life(9)))


@pytest.mark.parametrize("protocol", ENCODERS)
def test_a_row_stays_in_its_partition_and_all_partitions_are_used(protocol: str) -> None:
    """Order per row is all that Kafka keeps."""
    encoder = ENCODERS[protocol](PARTITIONS)
    places: dict[tuple[str, Value], set[int]] = {}
    for step in life(2, transfers=400):
        for shape, before, after in step.changes if isinstance(step, Transaction) else ():
            row = before if after is None else after
            assert row is not None
            change = Change(shape, before, after)
            places.setdefault((shape.name, shape.key_of(row)), set()).add(encoder.partition_of(change))
    assert all(len(partitions) == 1 for partitions in places.values())
    assert set.union(*places.values()) == set(range(PARTITIONS))


@pytest.mark.parametrize("protocol", ENCODERS)
def test_boundaries_go_to_every_partition(protocol: str) -> None:
    messages = ENCODERS[protocol](PARTITIONS).boundary(TSO)
    assert [message.partition for message in messages] == list(range(PARTITIONS))
    assert decoded(protocol, messages) == [Boundary(TSO)] * PARTITIONS


def test_schema_changes_go_where_ticdc_sends_them() -> None:
    """Canal-JSON: partition 0 only.  Open Protocol: everywhere."""
    change = BankSchemaChange(TSO, DdlKind.CREATE_DATABASE, "bank", None, "CREATE DATABASE `bank`")
    assert [m.partition for m in CanalJsonEncoder(PARTITIONS).schema_change(change)] == [0]
    assert [m.partition for m in OpenProtocolEncoder(PARTITIONS).schema_change(change)] == list(range(PARTITIONS))


def test_canal_json_as_genuine() -> None:
    """Byte for byte as in a capture of TiCDC (its `ts`, the time of encoding, taken to be the time of the commit), but
    for the order within mysqlType, which is random there."""
    change = Change(ACCOUNT, (47, 1000, "init"), (47, 1018, "t0"))
    [message] = CanalJsonEncoder(PARTITIONS).transaction(_transaction(change))
    assert message.key == b""
    types = b'"mysqlType":{"id":"int","balance":"bigint","note":"varchar"}'
    assert re.sub(rb'"mysqlType":\{[^}]*\}', types, message.value) == (
        b'{"id":0,"database":"bank","table":"acc_a","pkNames":["id"],"isDdl":false,"type":"UPDATE","es":1795241836101,'
        b'"ts":1795241836101,"sql":"","sqlType":{"id":4,"balance":-5,"note":12},"mysqlType":{"id":"int",'
        b'"balance":"bigint","note":"varchar"},"old":[{"id":"47","balance":"1000","note":"init"}],'
        b'"data":[{"id":"47","balance":"1018","note":"t0"}],"_tidb":{"commitTs":470611875882860545}}'
    )


def test_types_come_in_any_order() -> None:
    """As TiCDC's do: what reads them must not depend on it."""
    encoder, change = CanalJsonEncoder(PARTITIONS), Change(ACCOUNT, None, (47, 1000, "init"))
    transactions = (Transaction(470611875882860545 + n, 0, (change,), BankTotals(0, 0, 0, 0)) for n in range(50))
    types = [orjson.loads(message.value)["mysqlType"] for one in transactions for message in encoder.transaction(one)]
    assert all(one == types[0] for one in types)
    assert len({tuple(one) for one in types}) > 2


def test_canal_json_watermark_and_schema_change_as_genuine() -> None:
    """Without key; the order of the fields differs from that of rows."""
    watermark = CanalJsonEncoder(1).boundary(470611875874734082)
    assert watermark == [
        EncodedMessage(
            0,
            None,
            b'{"id":0,"database":"","table":"","pkNames":null,"isDdl":false,"type":"TIDB_WATERMARK",'
            b'"es":1795241836070,"ts":1795241836070,"sql":"","sqlType":null,"mysqlType":null,"data":null,"old":null,'
            b'"_tidb":{"watermarkTs":470611875874734082}}',
        )
    ]
    change = BankSchemaChange(470611875873947648, DdlKind.CREATE_DATABASE, "bank", None, "CREATE DATABASE `bank`")
    [message] = CanalJsonEncoder(4).schema_change(change)
    assert message == EncodedMessage(
        0,
        None,
        b'{"id":0,"database":"bank","table":"","pkNames":null,"isDdl":true,"type":"QUERY","es":1795241836067,'
        b'"ts":1795241836067,"sql":"CREATE DATABASE `bank`","sqlType":null,"mysqlType":null,"data":null,"old":null,'
        b'"_tidb":{"commitTs":470611875873947648}}',
    )


def test_canal_json_escapes_as_go_does() -> None:
    [message] = CanalJsonEncoder(1).transaction(_transaction(Change(ACCOUNT, None, (1, 2, "<b>&é</b>"))))
    assert '"note":"\\u003cb\\u003e\\u0026é\\u003c/b\\u003e"'.encode() in message.value


def test_open_protocol_as_genuine() -> None:
    """Two rows of one partition in one message; byte for byte as in a capture of TiCDC."""
    rows = (Change(ACCOUNT, None, (47, 1000, "init")), Change(ACCOUNT, (44, 1000, "init"), None))
    [message] = OpenProtocolEncoder(1).transaction(_transaction(*rows))
    key = b':{"ts":470611875882860545,"scm":"bank","tbl":"acc_a","t":1}'
    head = b"\0\0\0\0\0\0\0"
    assert message.key == head + b"\1" + head + key + head + key
    assert message.value == (
        head + b'n{"u":{"id":{"t":3,"h":true,"f":11,"v":47},"balance":{"t":8,"f":1,"v":1000},'
        b'"note":{"t":15,"f":64,"v":"init"}}}'
        + head + b'n{"d":{"id":{"t":3,"h":true,"f":11,"v":44},"balance":{"t":8,"f":1,"v":1000},'
        b'"note":{"t":15,"f":64,"v":"init"}}}'
    )  # fmt: skip


def test_open_protocol_resolved_as_genuine() -> None:
    assert OpenProtocolEncoder(1).boundary(470611875874734082) == [
        EncodedMessage(0, b'\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\x1f{"ts":470611875874734082,"t":3}', b"\0" * 8)
    ]


@pytest.mark.parametrize("protocol", ENCODERS)
def test_an_unknown_type_is_refused(protocol: str) -> None:
    """Rather than written in a form that no TiCDC writes."""
    shape = TableVersion("d", "t", (BankColumn("id", "geometry", key="primary"),))
    with pytest.raises(ValueError, match="geometry; known are int, bigint"):
        ENCODERS[protocol](1).transaction(_transaction(Change(shape, None, (1,))))


def _transaction(*changes: Change) -> Transaction:
    return Transaction(TSO, 1, changes, BankTotals(0, 0, 0, 0))
