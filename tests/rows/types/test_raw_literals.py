"""The compiled function that converts usual raw literals of row images."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.events import SEP, RowChange
from bridge.model import Column, Table, TableName
from bridge.protocols.values.column_types import column_type
from bridge.protocols.values.row_image import raw_converter
from bridge.rows.resolve_types import ValueKind, typed, unusual_raw
from bridge.rows.type_check import CheckedTypes
from tests.support.golden import expected_tables
from tests.support.upstreams import in_one_partition
from tests.support.wire import capture_events

JSON = "json:double,adaptive_time_microseconds,base64"
_DATE = "[0-9]{4}-(0[0-9]|1[0-2])-([0-2][0-9]|3[01])"
_MINUTES = r"[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
_MOMENT = f"'{_DATE} ([01][0-9]|2[0-3]):{_MINUTES}'"
_BASE64 = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"
CKAFKA = "ckafka:UTC,base64"
USUAL = [
    (CKAFKA, "int", "'(0|-?[1-9][0-9]{0,17})'"),
    (CKAFKA, "int unsigned", "'(0|[1-9][0-9]{0,17})'"),
    (CKAFKA, "decimal(12,2)", r"'-?[0-9]{1,30}(\.[0-9]{1,20})?'"),
    (CKAFKA, "double", r"'-?(0|[1-9][0-9]{0,10})\.[0-9]{0,3}[1-9]'"),
    (CKAFKA, "date", f"'{_DATE}'"),
    (CKAFKA, "time(6)", f"'-?[0-9]{{2}}:{_MINUTES}'"),
    (CKAFKA, "datetime(3)", _MOMENT),
    (CKAFKA, "timestamp", _MOMENT),
    (CKAFKA, "blob", f"'{_BASE64}'"),
    (JSON, "bigint unsigned", "0|[1-9][0-9]{0,18}"),
    (JSON, "decimal(20,4)", r"-?(0|[1-9][0-9]{0,10})\.[0-9]{1,4}e0"),
    (JSON, "decimal(15,14)", r"-?[0-9]\.[0-9]{1,14}e0"),
    (JSON, "double", r"-?(0|[1-9][0-9]{0,10})\.(0|[0-9]{0,3}[1-9])e0"),
    (JSON, "datetime", "[1-9][0-9]{0,13}"),
    (JSON, "datetime(6)", "[1-9][0-9]{0,16}"),
    ("json:,,", "datetime(6)", "[1-9][0-9]{15,16}"),
    ("json:,,", "datetime(3)", "[1-9][0-9]{0,13}"),
    (JSON, "varbinary(20)", f"'{_BASE64}'"),
    (JSON, "json", r"'([\[ ]([0-9]{0,9}[a-z .:]|\\\\u00e9){0,20}\])?'|[0-9]{1,17}|0"),
    ("json:double,microseconds,base64", "datetime(3)", "[1-9][0-9]{0,16}"),
    ("string:string,adaptive_time_microseconds,base64", "decimal(9,3)", r"'-?[0-9]{1,30}(\.[0-9]{1,20})?'"),
    ("string:string,adaptive_time_microseconds,base64", "tinyblob", f"'{_BASE64}'"),
]
"""Forms, types, and a pattern of the literals that compiled functions convert."""


@pytest.mark.parametrize(("form", "kind", "pattern"), USUAL)
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_what_is_usual(form: str, kind: str, pattern: str, data: st.DataObject) -> None:
    """Becomes what the converter makes of it, which loses nothing; nothing of it is left to the converter."""
    column, losses = column_type(kind, nullable=False), list[str]()
    convert = raw_converter(form, column, losses.append)
    assert convert is not None
    literals = data.draw(st.lists(st.from_regex(pattern, fullmatch=True), min_size=1))
    images = pa.array(literals, pa.large_string())
    found = unusual_raw(images, np.zeros(len(literals), np.int64), [1], [{0: ValueKind(form, column)}])
    assert found.literals.texts.to_pylist() == []
    assert found.images.to_pylist() == [convert(one) for one in literals]
    assert losses == []


@given(
    st.lists(st.none() | st.lists(st.sampled_from(["7", "'x\u00e9'", "'12345678'", "NULL"]), min_size=1, max_size=4))
)
def test_images_with_too_few_or_too_many_literals_are_refused(drawn: list[list[str] | None]) -> None:
    """An image that is none has no literals."""
    images = pa.array([None if one is None else SEP.join(one) for one in drawn], pa.large_string())
    kinds = [{1: ValueKind(JSON, column_type("bigint unsigned", nullable=True))}]
    shape_of = np.zeros(len(drawn), np.int64)
    if any(one is not None and len(one) != 2 for one in drawn):
        with pytest.raises(ValueError, match="a literal for each"):
            unusual_raw(images, shape_of, [2], kinds)
        return
    found = unusual_raw(images, shape_of, [2], kinds)
    assert found.images.to_pylist() == images.to_pylist()
    assert found.literals.texts.to_pylist() == [one[1] for one in drawn if one and one[1].startswith("'")]


def test_images_may_begin_within_their_characters() -> None:
    """As those of a slice do."""
    images = pa.array(["1.50e0", None, "2.5e0", "3.25e0"], pa.large_string())
    kinds = [{0: ValueKind(JSON, column_type("decimal(9,3)", nullable=True))}]
    found = unusual_raw(images.slice(2), np.zeros(2, np.int64), [1], kinds)
    assert found.images.to_pylist() == ["2.500", "3.250"]


LEFT = [
    (JSON, "datetime", ["0", "-5", "1" * 15, "'2024-01-02T03:04:05Z'", "1.5e0"]),
    (JSON, "datetime(6)", ["0", "1" * 18]),
    ("json:,,", "datetime(6)", ["1" * 15, "1709210096789"]),
    (
        JSON,
        "decimal(20,4)",
        ["123456789012.1e0", "1.12345e0", "1e-05", "1", "1.5e1", "'1.5'", "01.5e0", ".5e0", "1.e0"],
    ),
    (JSON, "decimal(9,0)", ["7.0e0"]),
    (JSON, "bigint unsigned", ["-1", "'AQ=='", "1" * 20, "007"]),
    (JSON, "double", ["1e-05", "7", "0.30000000000000004e0", "1.50e0", "'x'"]),
    (JSON, "json", ["'" + "1" * 18 + "'", "'[1.2345678901234567]'", "'[" + "." * 30 + "1" * 18 + "]'"]),
    (JSON, "blob", ["7", "'QQ='", "'Q-=='", "'a b='", "'QQ==QQ=='"]),
    ("json:double,adaptive_time_microseconds,hex", "blob", ["'abcd'"]),
    ("json:double,adaptive_time_microseconds", "blob", ["'abcd'"]),
    (JSON, "float", ["1.5e0"]),
    (CKAFKA, "int", ["'007'", "'-0'", "'+1'", "''", "' 1'", "'" + "9" * 20 + "'"]),
    (CKAFKA, "int unsigned", ["'-1'"]),
    (CKAFKA, "decimal(12,2)", ["'.5'", "'1.'", "'1e3'", "''", "'1.5.5'"]),
    (CKAFKA, "double", ["'1.50'", "'1'", "'1e5'", "'.5'", "'0.00001'"]),
    (CKAFKA, "date", ["'2024-13-10'", "'2024-1-1'", "'2024-01-02 00:00:00'"]),
    (CKAFKA, "time", ["'839:00:00'", "'1:00:00'", "'00:60:00'"]),
    (CKAFKA, "datetime", ["'2024-01-02 24:00:00'", "'2024-01-02T03:04:05'", "'2024-01-02 03:04:05.1234567'"]),
    (CKAFKA, "binary(3)", ["'QUJD'"]),
    ("ckafka:UTC,", "blob", ["'QUJD'"]),
    ("ckafka:Asia/Shanghai,base64", "timestamp", ["'2024-01-02 03:04:05'"]),
]
"""Forms, types, and literals of which only the converter knows what they are, or whether something is lost."""


@pytest.mark.parametrize(("form", "kind", "literals"), LEFT)
def test_what_is_left(form: str, kind: str, literals: list[str]) -> None:
    """It stays as it is, and so does a NULL that the column cannot hold."""
    images = pa.array(["NULL", *literals], pa.large_string())
    kinds = [{0: ValueKind(form, column_type(kind, nullable=False))}]
    found = unusual_raw(images, np.zeros(len(images), np.int64), [1], kinds)
    assert found.images.to_pylist() == ["NULL", *literals]
    assert found.literals.texts.to_pylist() == ["NULL", *literals]


@pytest.mark.parametrize(
    ("kind", "literal", "ready"),
    [("decimal(30,14)", "1.5e0", "1.50000000000000"), ("datetime(6)", "5", "'1970-01-01 00:00:00.000005'")],
)
def test_literals_that_grow_most(kind: str, literal: str, ready: str) -> None:
    """There is room for them, in many rows that hold nothing else; rows without an image need none."""
    images = pa.array([literal, None] * 50_000 + [None] * 50_000, pa.large_string())
    kinds = [{0: ValueKind(JSON, column_type(kind, nullable=True))}]
    found = unusual_raw(images, np.zeros(len(images), np.int64), [1], kinds).images
    assert found.to_pylist() == [ready, None] * 50_000 + [None] * 50_000
    nothing = pa.nulls(600, pa.large_string())
    assert unusual_raw(nothing, np.zeros(600, np.int64), [1], kinds).images == nothing


VARIANTS = ["debezium", "debezium-ext", "debezium-noschema", "debezium-noschema-ext"]
FLOAT64_DIGITS = 15

_FRACTION = re.compile(r"('-?[-0-9 ]*[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]*?)0*)'")


def catalog(golden: Path, script: str) -> dict[TableName, Table]:
    """The tables of the script's end, as the target has them."""
    tables = {}
    for table in expected_tables(golden, script):
        name = TableName(table.schema, table.table)
        columns = {
            column.name.lower(): Column(column.name, column.type, None, generated=False, nullable=column.is_nullable)
            for column in table.definition.columns
        }
        tables[name] = Table(name, columns)
    return tables


def rows(golden: Path, variant: str, script: str) -> Iterator[tuple[TableName, RowChange]]:
    """The row changes of tables that are still there at the end, typed."""
    tables = catalog(golden, script)
    events = [
        event
        for _, event in capture_events(golden / variant / f"{script}.jsonl")
        if isinstance(event, RowChange) and (event.schema, event.table) in tables
    ]
    ready = typed(tables, in_one_partition(events), CheckedTypes())
    for event, row in zip(events, ready.to_pylist(), strict=True):
        resolved = event._replace(columns=row["columns"], before=row["before"], after=row["after"])
        yield TableName(event.schema, event.table), resolved


def images(event: RowChange) -> list[str]:
    """The literals of both images, without what only the format tells: zeros at the end of a fraction."""
    return [
        _FRACTION.sub(lambda m: m[1] + ("." + m[2] if m[2] else "") + "'", literal)
        for image in (event.before, event.after)
        for literal in (image.split(SEP) if image is not None else [])
    ]


def by_place(golden: Path, variant: str, script: str) -> dict[tuple[object, ...], list[list[str]]]:
    """Literals by table, kind, moment and columns."""
    found: dict[tuple[object, ...], list[list[str]]] = {}
    for name, event in rows(golden, variant, script):
        found.setdefault((name, event.kind, event.commit_ts, event.columns), []).append(images(event))
    return {place: sorted(several) for place, several in found.items()}


def is_told(column: Column, literal: str) -> bool:
    """Whether Debezium carries the value as Canal-JSON does: not numbers of ENUM and SET, nor zero dates, nor long
    DECIMALs."""
    if column.type.startswith(("enum", "set")) or re.match(r"'(?:0000|[0-9]{4}-00|[0-9-]{7}-00)", literal):
        return False
    return not column.type.startswith("decimal") or len(literal.strip("-0.")) <= FLOAT64_DIGITS


@pytest.mark.parametrize("script", ["all_types", "all_types_tz8", "keys", "keys_raw"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_typed_rows_are_those_of_canal_json(golden: Path, variant: str, script: str) -> None:
    """Every literal of every row, with schemas or without, is Canal-JSON's, as far as Debezium can carry it."""
    of_debezium, of_canal = (by_place(golden, which, script) for which in (variant, "canal-ext"))
    assert of_debezium.keys() == of_canal.keys()
    tables, compared = catalog(golden, script), 0
    for place, several in of_canal.items():
        name, columns = place[0], str(place[3]).lower().split(SEP)
        assert isinstance(name, TableName)
        for ours, theirs in zip(of_debezium[place], several, strict=True):
            for column, our, their in zip(columns * 2, ours, theirs, strict=False):
                if is_told(tables[name].columns[column], their):
                    assert our == their, (place, column)
                    compared += 1
    assert compared > 1000
