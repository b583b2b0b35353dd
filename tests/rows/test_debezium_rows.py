"""Debezium's rows, typed by the target's catalog, beside those of Canal-JSON, which names its types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.events import SEP, Event, Kind
from bridge.model import Column, Table, TableName
from bridge.rows.types.resolve_types import all_typed
from bridge.rows.types.type_check import CheckedTypes
from tests.support.golden import expected_tables
from tests.support.upstreams import in_one_partition
from tests.support.wire import capture_events

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


def rows(golden: Path, variant: str, script: str) -> Iterator[tuple[TableName, Event]]:
    """The row changes of tables that are still there at the end, typed."""
    tables = catalog(golden, script)
    events = [
        event
        for _, event in capture_events(golden / variant / f"{script}.jsonl")
        if event.kind <= Kind.DELETE and (event.schema, event.table) in tables
    ]
    ready = all_typed(tables, in_one_partition(events), CheckedTypes())
    for event, row in zip(events, ready.to_pylist(), strict=True):
        typed = event._replace(columns=row["columns"], before=row["before"], after=row["after"])
        yield TableName(event.schema, event.table), typed


def images(event: Event) -> list[str]:
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
