"""What verify prints of many tables."""

from __future__ import annotations

import pytest

from bridge.cli import output
from bridge.model import TableName
from bridge.verify.report import Report, TableResult


def test_every_table_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of their names; what differs is said once more below all of them."""
    tables = [TableResult(TableName("d", f"t{number:03}"), rows=2) for number in reversed(range(1000))]
    tables[7].schema = ("the table is missing",)
    output.verification(Report("log", 0, 0.0, tables), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    named = [line.split()[1] for line in lines if line.startswith("\u2502 d.t")]
    assert named == sorted(str(table.name) for table in tables)
    assert [line for line in lines if "DIFFERENT" in line and " d.t992" in line]
    assert "d.t992: the table is missing" in lines[-2]
