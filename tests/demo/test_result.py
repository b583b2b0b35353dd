"""What the demo prints at its end: it must not say `equal` for anything else."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bridge.demo.compare import ComparedTable
from bridge.demo.result import DemoResult

GOOD = DemoResult(
    tables=(ComparedTable("ledger", 200, ""),),
    transactions=10,
    schema_changes=7,
    row_changes=1000,
    sending_seconds=2.0,
    kills=1,
    snapshots=5,
    violations=0,
    first_violations=(),
    latency=None,
    verified="equal after 1 s",
    seconds=60.0,
)
BAD = {
    "no table": replace(GOOD, tables=()),
    "a table": replace(GOOD, tables=(ComparedTable("ledger", 200, "1 rows are missing"),)),
    "no verify": replace(GOOD, verified=""),
    "no snapshot": replace(GOOD, snapshots=0),
    "a torn snapshot": replace(GOOD, violations=1, first_violations=("money was made",)),
}


def test_a_good_end(capsys: pytest.CaptureFixture[str]) -> None:
    """All facts, and nothing on stderr; the document holds the same."""
    GOOD.print()
    said = capsys.readouterr()
    assert ("result          equal" in said.out, said.err) == (True, "")
    assert "1,000, 500 a second" in said.out
    document = json.loads(json.dumps(GOOD.document()))
    assert (document["result"], document["tables"][0]["rows"], document["latency"]) == ("equal", 200, None)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_end(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Whatever was not as it should be."""
    BAD[name].print()
    said = capsys.readouterr()
    assert "result          NOT EQUAL" in said.out
    assert BAD[name].document()["result"] == "NOT EQUAL"
    assert bool(said.err) == (name in {"a table", "a torn snapshot"})
