"""Any value of any type: encoded by the rules of the seed, decoded, and read back from its literal."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.events import NO_KEY, NO_PRIMARY_KEY, Kind
from tests.support.wire import (
    ROW_KEY,
    TSO,
    base64_text,
    canal,
    compact,
    decode,
    frame,
    go_quoted,
    names_of,
    open_key,
    plain_notation,
    read_literal,
    split,
    untyped,
)  # fmt: skip


@dataclass(frozen=True)
class Type:
    """How a type is written by both formats, and what its literal reads back as."""

    mysql_type: str
    code: int
    flags: int
    values: st.SearchStrategy[Any]
    canal: Callable[[Any], str] = str
    opened: Callable[[Any], Any] = lambda value: value
    read: Callable[[Any], Any] = lambda value: value


def integers(bits: int, unsigned: bool) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << bits) - 1) if unsigned else st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def latin1(value: bytes) -> str:
    return value.decode("latin-1")


texts = st.text(st.characters(exclude_categories=["Cs"])) | st.text("\\'\0\"a")
binaries = st.binary() | texts.map(str.encode)
fractions = (
    st.integers(0, 6)
    .flatmap(lambda n: st.text("0123456789", min_size=n, max_size=n))
    .map(lambda digits: "." + digits if digits else "")
)
dates = st.dates().map(str) | st.sampled_from(["0000-00-00", "2024-00-10", "2024-02-30", "0000-01-01"])
clocks = st.times().map(lambda clock: f"{clock:%H:%M:%S}")
datetimes = st.builds("{} {}{}".format, dates, clocks, fractions)
durations = st.builds(
    "{}{:02}{}{}".format, st.sampled_from(["", "-"]), st.integers(0, 838), clocks.map(lambda c: c[2:]), fractions
)
decimals = st.integers(0, 30).flatmap(
    lambda scale: st.integers(-(10 ** 65) + 1, 10**65 - 1).map(lambda n: format(Decimal(n).scaleb(-scale), "f"))
).filter(lambda text: sum(map(str.isdigit, text)) <= 65)  # fmt: skip
singles = st.floats(width=32, allow_nan=False, allow_infinity=False)
doubles = st.floats(allow_nan=False, allow_infinity=False)
u64 = integers(64, unsigned=True)

INTEGERS = [("tinyint", 1, 8), ("smallint", 2, 16), ("mediumint", 9, 24), ("int", 3, 32), ("bigint", 8, 64)]

TYPES = [
    *[
        Type(f"{name} unsigned" if unsigned else name, code, 193 if unsigned else 65, integers(bits, unsigned))
        for name, code, bits in INTEGERS
        for unsigned in (False, True)
    ],
    Type("bit", 16, 193, u64), Type("enum", 247, 64, st.integers(0, 65535)), Type("set", 248, 64, u64),
    Type("year", 13, 193, st.just(0) | st.integers(1901, 2155)),
    Type("decimal", 246, 65, decimals, read=lambda value: format(Decimal(value), "f")),
    Type("float", 4, 65, singles, canal=plain_notation), Type("double", 5, 65, doubles, canal=plain_notation),
    Type("char", 254, 64, texts), Type("varchar", 15, 64, texts), Type("varchar(9)", 253, 0, texts),
    Type("json", 245, 65, texts), Type("vector", 225, 65, texts),
    *[
        Type(name, code, 64, texts, opened=lambda value: base64_text(value.encode()))
        for name, code in [("tinytext", 249), ("text", 252), ("mediumtext", 250), ("longtext", 251)]
    ],
    *[
        Type(name, code, 65, binaries, canal=latin1, opened=go_quoted, read=lambda value: value or b"")
        for name, code in [("binary", 254), ("varbinary", 15), ("varbinary(9)", 253)]
    ],
    *[
        Type(name, code, 65, binaries, canal=latin1, opened=base64_text, read=lambda value: value or b"")
        for name, code in [("tinyblob", 249), ("blob", 252), ("mediumblob", 250), ("longblob", 251)]
    ],
    Type("date", 10, 65, dates), Type("date", 14, 65, dates), Type("time", 11, 65, durations),
    Type("datetime", 12, 65, datetimes), Type("timestamp", 7, 65, datetimes),
]  # fmt: skip


def same(read: Any, value: Any) -> bool:
    """Equal, and of the same sign where zero has one."""
    if isinstance(value, float):
        return isinstance(read, float) and read == value and math.copysign(1, read) == math.copysign(1, value)
    return type(read) is type(value) and read == value


@pytest.mark.parametrize("type_", TYPES, ids=[f"{type_.mysql_type}-{type_.code}" for type_ in TYPES])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_type(type_: Type, data: st.DataObject) -> None:
    """A value of each type survives both formats, which make the same literal of it."""
    value = data.draw(type_.values)
    [by_canal] = decode("canal-json", b"", canal("INSERT", {"v": (type_.mysql_type, type_.canal(value))}))
    column = {"t": type_.code, "f": type_.flags, "v": type_.opened(value)}
    [by_open] = decode("open-protocol", open_key(ROW_KEY), frame(compact({"u": {"v": column}})))
    assert by_canal.cut is None
    assert by_canal.after is not None
    assert same(type_.read(read_literal(by_canal.after)), value)
    assert by_open.after == by_canal.after


@given(singles)
def test_float_fits_its_column(value: float) -> None:
    """A FLOAT's literal is exactly a float32, so that a strict column does not overflow or round it."""
    [event] = decode("canal-json", b"", canal("INSERT", {"v": ("float", plain_notation(value))}))
    written = float(event.after or "")
    assert struct.unpack("f", struct.pack("f", written))[0] == written == value


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)


@dataclass(frozen=True)
class Change:
    """A change of one row as a test makes it: types, rows and which columns the old row holds."""

    kind: Kind
    types: dict[str, Type]
    new: dict[str, Any]
    old: dict[str, Any]
    sent: set[str]
    key: list[str]


@st.composite
def changes(draw: st.DrawFn) -> Change:
    columns = draw(st.lists(names, min_size=1, max_size=6, unique_by=str.lower))  # else it is no table's row
    types = {name: draw(st.sampled_from(TYPES)) for name in columns}
    new = {name: draw(st.none() | type_.values) for name, type_ in types.items()}
    old = {name: draw(st.just(new[name]) | st.none() | type_.values) for name, type_ in types.items()}
    changed = {name for name in types if not same(new[name], old[name]) or new[name] != old[name]}
    sent = changed | draw(st.sets(st.sampled_from(list(types))))
    key = draw(st.lists(st.sampled_from(list(types)), unique=True))
    return Change(draw(st.sampled_from([Kind.INSERT, Kind.UPDATE, Kind.DELETE])), types, new, old, sent, key)


def canal_row(change: Change, row: dict[str, Any], names: set[str]) -> dict[str, str | None]:
    return {n: None if v is None else change.types[n].canal(v) for n, v in row.items() if n in names}


def by_canal_json(change: Change) -> list[Any]:
    everything = set(change.types)
    types = {name: (type_.mysql_type, None) for name, type_ in change.types.items()}
    old = [canal_row(change, change.old, change.sent)] if change.kind is Kind.UPDATE else None
    row = [canal_row(change, change.old if change.kind is Kind.DELETE else change.new, everything)]
    return decode("canal-json", b"", canal(change.kind.name, types, data=row, old=old, pkNames=change.key))


def open_columns(change: Change, row: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {
        n: {"t": change.types[n].code}
        | ({"h": True} if n in change.key else {})
        | {"f": change.types[n].flags, "v": None if v is None else change.types[n].opened(v)}
        for n, v in row.items()
        if n in names
    }


def by_open_protocol(change: Change) -> list[Any]:
    everything = set(change.types)
    if change.kind is Kind.DELETE:
        row = {"d": open_columns(change, change.old, everything)}
    else:
        row = {"u": open_columns(change, change.new, everything)}
    if change.kind is Kind.UPDATE:
        row["p"] = open_columns(change, change.old, change.sent)
    return decode("open-protocol", open_key(ROW_KEY), frame(compact(row)))


def check_image(change: Change, row: dict[str, Any], image: str | None) -> None:
    for (name, value), literal in zip(row.items(), split(image), strict=True):
        read = read_literal(literal)
        assert (literal == "NULL") if value is None else change.types[name].read(read) == value


@settings(max_examples=150, deadline=None)
@given(changes())
def test_change(change: Change) -> None:
    """A change of any table survives both formats: kind, columns, key and images; partial old rows are completed."""
    [event] = by_canal_json(change)
    assert (event.kind, event.commit_ts, event.schema, event.table) == (change.kind, TSO, "d", "t")
    assert split(names_of(event)) == list(change.types)
    assert event.key == ("\0".join(change.key) or NO_PRIMARY_KEY)
    assert (event.before is None, event.after is None) == (change.kind is Kind.INSERT, change.kind is Kind.DELETE)
    if event.before is not None:
        check_image(change, change.old, event.before)
    if event.after is not None:
        check_image(change, change.new, event.after)
    in_order = "\0".join(name for name in change.types if name in change.key) or NO_KEY
    assert untyped(by_open_protocol(change)) == untyped([event._replace(key=in_order)])
