"""Rows of which the log holds only a part: the fix file never writes them as if it were the whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bridge.events import Event
from tests.generated.verifying import verify_events
from tests.support.clients import run_file
from tests.support.pipelines import run_all
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change
from tests.support.verify_servers import execute

COLUMNS = ("id", "n", "v")


def inserts(key: Sequence[str], *ids: int, first: int = 10) -> list[Event]:
    """Rows whose n is 5."""
    return [row_change(first + i, "t", COLUMNS, key, after=[one, 5, 1]) for i, one in enumerate(ids)]


RETYPED: dict[str, tuple[str, list[str], Sequence[int], str]] = {
    "all rows are older": ("PRIMARY KEY", ["id"], (), "DELETE FROM m.t WHERE id = 1"),
    "some rows are": ("PRIMARY KEY", ["id"], (3, 4), "DELETE FROM m.t WHERE id IN (1, 3)"),
    "without a key": ("", [], (3, 4), "DELETE FROM m.t WHERE id IN (1, 3)"),
    "one of two equal ones": ("", [], (), "DELETE FROM m.t WHERE id = 2 LIMIT 1"),
}
"""The key, the rows that come behind the change of a column's type, and the damage."""


@pytest.mark.parametrize("case", RETYPED)
def test_a_column_whose_type_was_changed(target: str, tmp_path: Path, case: str) -> None:
    """What became of its values the messages do not tell: a lost row is not written without it."""
    made, key, later, damage = RETYPED[case]
    log = [schema_change(5, f"CREATE TABLE t (id INT NOT NULL {made}, n INT, v INT)")]
    log += inserts(key, 1, 2, *((2,) if not key else ()))
    log += [schema_change(20, "ALTER TABLE t MODIFY n BIGINT"), *inserts(key, *later, first=30), boundary(91)]
    events = in_one_partition(log)
    execute(target, "CREATE DATABASE m")
    run_all(target, events)
    assert verify_events(target, events).is_equal
    execute(target, damage)
    assert verify_events(target, events, fixes=tmp_path / "fix.sql").tables[0].missing == 1 + bool(later)
    assert "copy it by hand" in (tmp_path / "fix.sql").read_text()
    run_file(target, tmp_path / "fix.sql")
    assert execute(target, "SELECT COUNT(*) FROM m.t WHERE n IS NULL") == [(0,)]
    assert verify_events(target, events).tables[0].missing == 1
