"""Row changes with raw values meet the target's catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

import pyarrow as pa
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import ApplyError, RefusedRowsError
from bridge.events import EVENT_SCHEMA, SEP, Kind, RowChange
from bridge.model import Column, Table, TableName
from bridge.protocols.decoder import FAILURES, DecodeError, explain
from bridge.protocols.values.column_types import column_type
from bridge.protocols.values.literals import double_number
from bridge.protocols.values.row_image import raw_converter, split_forms, with_forms
from bridge.rows import resolve_types
from bridge.rows.resolve_types import typed
from bridge.rows.type_check import CheckedTypes
from tests.support.oracles import always_tried

JSON = "json:double,adaptive_time_microseconds,base64"
NAME = TableName("d", "t")
TABLE = Table(
    NAME,
    {
        "id": Column("id", "bigint unsigned", None, generated=False, nullable=False),
        "d": Column("D", "decimal(20,4)", None, generated=False),
        "at": Column("at", "datetime(6)", None, generated=False, nullable=False),
    },
    (("id",),),
    (("id",),),
)


def changes(*events: RowChange) -> pa.Table:
    rows = [("t", 0, offset, *event) for offset, event in enumerate(events)]
    arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), EVENT_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=EVENT_SCHEMA)


def row(columns: str, before: str | None, after: str | None) -> RowChange:
    return RowChange(Kind.UPDATE, 5, 0, "d", "t", columns, "id", before, after)


@pytest.fixture(autouse=True, params=["compiled", "one by one"], scope="module")
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways in which literals are converted."""
    with always_tried() if request.param == "compiled" else nullcontext():
        yield


@pytest.fixture(autouse=True)
def _nothing_said_yet() -> Iterator[None]:
    resolve_types._logged_columns.clear()
    yield
    resolve_types._logged_columns.clear()


def test_ready_rows_stay_the_same_object() -> None:
    """Formats with types pay nothing."""
    ready = changes(row("id\0d", "1\x001.0", "1\x002.0"))
    assert typed({NAME: TABLE}, ready, CheckedTypes()) is ready


def test_types_are_compared_once() -> None:
    """What fits is not compared again with the same table."""
    checked, rows = CheckedTypes(), changes(row(with_forms("at", ["json:double"]), None, "0"))
    typed({NAME: TABLE}, rows, checked)
    assert checked == {(NAME, rows["columns"][0].as_py())}


def test_raw_rows_become_ready() -> None:
    """Literals are the columns', names are plain, ready rows of the same table stay, the schema too."""
    raw = with_forms("id\0D\0at", [JSON])
    mixed = with_forms("id\0d", ["", "float64"])
    found = typed(
        {NAME: TABLE},
        changes(
            row(raw, "-1\x001.5e0\x001000000", "-1\0NULL\x002000000"),
            row("id\0d", None, "-1\x001.5e0"),
            row(mixed, "-1\x002", None),
            row(with_forms("id", [JSON]), None, "7"),
        ),
        CheckedTypes(),
    )
    assert found.schema == EVENT_SCHEMA
    assert found["columns"].to_pylist() == ["id\0D\0at", "id\0d", "id\0d", "id"]
    assert found["before"].to_pylist() == [
        "18446744073709551615\x001.5000\0'1970-01-01 00:00:01'", None, "-1\x002.0000", None,
    ]  # fmt: skip
    assert found["after"].to_pylist() == [
        "18446744073709551615\0NULL\0'1970-01-01 00:00:02'", "-1\x001.5e0", None, "7",
    ]  # fmt: skip


def test_columns_that_the_target_lacks_are_left_to_rendering() -> None:
    """Typing says nothing of a missing column; rendering does."""
    found = typed({NAME: TABLE}, changes(row(with_forms("id\0gone", [JSON]), None, "-1\x005")), CheckedTypes())
    assert found["after"].to_pylist() == ["18446744073709551615\x005"]


def test_an_impossible_value_names_its_place() -> None:
    """Table, column, position and commit ts."""
    rows = changes(
        row(with_forms("id\0at", [JSON]), None, "1\x001"), row(with_forms("id\0at", [JSON]), "1\0'x'", "1\x001")
    )
    with pytest.raises(ApplyError) as refusal:
        typed({NAME: TABLE}, rows, CheckedTypes())
    for words in ("d.t", "column at", "t/0/1", "commit ts 5", "[debezium]"):
        assert words in str(refusal.value)


def test_losses_are_said_once_per_column() -> None:
    """An error line with the table, the column and the fix, not one per value."""
    lossy = row(with_forms("id\0d", [JSON]), None, "1\x001234567890123456.8e0")
    with structlog.testing.capture_logs() as logs:
        typed({NAME: TABLE}, changes(lossy, lossy), CheckedTypes())
        typed({NAME: TABLE}, changes(lossy), CheckedTypes())
    [said] = logs
    assert (said["log_level"], said["table"], said["column"]) == ("error", "d.t", "d")
    assert "Canal-JSON" in said["fix"]


def test_texts_that_official_canal_could_not_read_are_said_once_per_column() -> None:
    """In a column of UTF-8, which can hold what Canal writes for them; others refuse it."""
    text = Column("v", "varchar(9)", "utf8mb4", generated=False)
    table = replace(TABLE, columns={**TABLE.columns, "v": text, "w": replace(text, name="w")})
    columns = with_forms("id\0v\0w", ["", "utf8", "utf8"])
    right, lost = row(columns, None, "1\0'é'\0'x'"), row(columns, "1\0'é'\0'x'", "1\0'é'\0'\ufffd'")
    with structlog.testing.capture_logs() as logs:
        for rows in ((right,), (right, lost), (lost,)):
            assert typed({NAME: table}, changes(*rows), CheckedTypes())["after"].to_pylist() == [
                one.after for one in rows
            ]
    [said] = logs
    assert (said["event"], said["column"]) == ("values_inexact", "w")
    assert "utf8mb4" in said["fix"]


TYPES = (
    "int", "int unsigned", "bigint unsigned", "bit(8)", "decimal(12,2)", "double", "float", "date", "time(3)",
    "datetime(6)", "datetime", "timestamp", "year", "varchar(20)", "binary(3)",
)  # fmt: skip
STRINGS = (
    "0", "-0", "007", "12", "-12", "true", "9" * 17, "9" * 18, "9" * 19, "9" * 20, "-" + "9" * 18, "1.50", "-1.5",
    "0.5", "100.10", "0.0001", "0.00001", "-0.0", "12345678901.2345", "1234567890123456.7001", "123456789012.5", "1e3",
    "9" * 31 + ".5", "2024-00-10", "2024-13-10", "2024-01-02 03:04:05.60", "2024-01-02 03:04:05", "-838:59:59",
    "839:00:00", "1999", "1900", "x", "", "a\\'b", "QUJD", "é", "1\n",
)  # fmt: skip
NUMBERS = (
    "0", "7", "-7", "18446744073709551615", "1.5e0", "-2.0e0", "1700000000000", "19000", "-0.0e0", "0.25e0", "0.125e0",
    "9999999999.99e0", "12345678901234.5e0", "0.30000000000000004e0", "1e-05", "1704107881597146", "253402300799999",
)  # fmt: skip
FORMS = {"ckafka:UTC,base64": [f"'{text}'" for text in STRINGS], JSON: [*NUMBERS, "'1.5'", "'QUJD'", "'2024-01-02'"]}


@st.composite
def raw_changes(draw: st.DrawFn) -> tuple[dict[TableName, Table], list[RowChange]]:
    """Tables of some columns, and row changes with raw values of one form and ready rows; most are what they can be."""
    catalog, shapes = {}, []
    for name in "abc":
        types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))
        columns = {f"c{i}": Column(f"C{i}", kind, None, False, draw(st.booleans())) for i, kind in enumerate(types)}
        catalog[TableName("d", name)] = Table(TableName("d", name), columns)
        form = draw(st.sampled_from([*FORMS, ""]))
        names = SEP.join(column.name for column in columns.values())
        good = [
            [one for one in FORMS[form] if converted(form, c, one)[1] is None] if form else ["1"]
            for c in columns.values()
        ]
        shapes.append((name, with_forms(names, [form]) if form else names, form, good))
    events = []
    careless = draw(st.integers(0, 3)) == 0
    for ts in range(draw(st.integers(1, 12))):
        name, names, form, good = draw(st.sampled_from(shapes))
        literals = [FORMS.get(form, []) if careless else one for one in good]
        before, after = (SEP.join(draw(st.sampled_from([*one, "NULL"])) for one in literals) for _ in range(2))
        kind = draw(st.integers(0, 2))
        events.append(
            row(names, *[(None, after), (before, None), (before, after)][kind])._replace(table=name, commit_ts=ts)
        )
    return catalog, events


def converted(form: str, column: Column, literal: str) -> tuple[str, str | None]:
    """A literal by its converter, and why it cannot be."""
    convert = raw_converter(form, column_type(column.type, nullable=column.nullable), lambda _: None)
    try:
        return (convert(literal) if convert else literal), None
    except (*FAILURES, DecodeError) as failure:
        return literal, f"column {column.name}: {explain(failure)}"


def plainly(table: Table, event: RowChange) -> tuple[list[str | None], list[str]]:
    """Both images of a row change, literal by literal, and what they cannot be."""
    names, forms = split_forms(event.columns or "")
    columns = [table.columns[name.lower()] for name in names.split(SEP)]
    images: list[str | None] = []
    failures = []
    for image in (event.before, event.after):
        found = [
            converted(*one) if one[0] else (one[2], None)
            for one in zip(forms, columns, (image or "").split(SEP), strict=image is not None)
        ]
        failures += [failure for _, failure in found if failure and image is not None]
        images.append(None if image is None else SEP.join(literal for literal, _ in found))
    return images, failures


@settings(max_examples=60, deadline=None)
@given(raw_changes())
def test_rows_are_typed_like_each_literal_by_itself(drawn: tuple[dict[TableName, Table], list[RowChange]]) -> None:
    """All rows of all tables together, whether their values are usual or not; the first that cannot be is named."""
    catalog, events = drawn
    expected = [plainly(catalog[TableName("d", event.table)], event) for event in events]
    failed = next(((number, failures[0]) for number, (_, failures) in enumerate(expected) if failures), None)
    if failed:
        with pytest.raises(RefusedRowsError) as refusal:
            typed(catalog, changes(*events), CheckedTypes())
        assert refusal.value.what.endswith(f" cannot be what its column holds: {failed[1]}")
        assert refusal.value.where == f"t/0/{failed[0]}, commit ts {failed[0]}"
        return
    found = typed(catalog, changes(*events), CheckedTypes())
    assert found.schema == EVENT_SCHEMA
    assert list(zip(*(found[name].to_pylist() for name in ("before", "after")), strict=True)) == [
        tuple(images) for images, _ in expected
    ]
    assert found["columns"].to_pylist() == [split_forms(event.columns or "")[0] for event in events]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", TYPES)
def test_usual_values_are_what_the_converter_makes_of_them(form: str, kind: str) -> None:
    """Every literal of the pool that a column can have."""
    column = Column("c", kind, None, generated=False)
    literals = [one for one in [*FORMS[form], "NULL"] if converted(form, column, one)[1] is None]
    given = changes(*(row(with_forms("c", [form]), None, one) for one in literals))
    found = typed({NAME: Table(NAME, {"c": column})}, given, CheckedTypes())
    assert found["after"].to_pylist() == [converted(form, column, one)[0] for one in literals]


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["decimal(12,2)", "decimal(20,4)", "decimal(30,14)", "decimal(9,0)", "double", "datetime(3)"])
    | st.sampled_from(["datetime", "datetime(6)"]),
    st.lists(
        st.integers(-(10**15), 10**18).map(str)
        | st.floats(-1e6, 1e6).map(double_number)
        | st.decimals(-(10**13), 10**13, places=2).map(lambda number: double_number(float(number))),
        min_size=1,
    ),
)
def test_usual_numbers_are_what_the_converter_makes_of_them(kind: str, drawn: list[str]) -> None:
    """Numbers of any size and with any number of digits, as Debezium writes decimals, doubles and moments."""
    column = Column("c", kind, None, generated=False)
    literals = [one for one in ["NULL", *drawn] if converted(JSON, column, one)[1] is None]
    given = changes(*(row(with_forms("c", [JSON]), None, one) for one in literals))
    found = typed({NAME: Table(NAME, {"c": column})}, given, CheckedTypes())
    assert found["after"].to_pylist() == [converted(JSON, column, one)[0] for one in literals]


def test_a_column_beyond_two_gigabytes_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's offsets of texts have 32 bits; images that are more together lie in several pieces."""
    monkeypatch.setattr(resolve_types, "_MOST_BYTES", 100)
    raw = with_forms("id", [JSON])
    rows = [str(number) * 10 for number in range(10, 60)]
    found = typed({NAME: TABLE}, changes(*(row(raw, None, number[:19]) for number in rows)), CheckedTypes())
    assert found["after"].num_chunks > 5
    assert found["after"].to_pylist() == [number[:19] for number in rows]
