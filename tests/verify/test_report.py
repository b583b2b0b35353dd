"""What verify prints of many tables."""

from __future__ import annotations

import pytest

from bridge.cli import output
from bridge.model import TableName
from bridge.verify.report import Report, TableResult


def test_many_tables_do_not_flood_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that differ have lines of their own before the others do; what has none is summed up."""
    tables = [TableResult(TableName("d", f"t{number}"), rows=2, missing=number % 100 == 99) for number in range(1000)]
    output.verification(Report("log", 0, 0.0, tables), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 110
    assert len([line for line in lines if " d.t" in line and "DIFFERENT" in line]) == 10
    [others] = [line.replace(" ", "").strip("\u2502") for line in lines if "others" in line]
    assert others.startswith("900others\u25021,800\u2502")
    assert others.endswith("equal")


def test_many_tables_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    """As when the target is empty."""
    missing = [TableResult(TableName("d", f"t{n}"), schema=("the table is missing",)) for n in range(200)]
    output.verification(Report("log", 0, 0.0, [TableResult(TableName("d", "a")), *missing]), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 210
    first, second = [line.split() for line in lines if " other" in line]
    assert (first[1], first[-2]) == ("100", "DIFFERENT")
    assert (second[1], second[-2]) == ("1", "equal")
