"""Verify against the log, where the event filters of the bridge were not always the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bridge.config import Settings
from bridge.ddl.by_table.event_filters import EventFilterTable
from bridge.errors import UsageError
from bridge.events import Event, Kind
from bridge.protocols.batch_decode import ruled
from bridge.verify.log import verification
from bridge.verify.report import TableResult
from tests.generated.verifying import InProcess, OfEvents, verify_events
from tests.support.clients import run_file
from tests.support.pipelines import run_all, sql
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change

COLUMNS = ["id", "v"]
EARLY = [
    schema_change(10, "CREATE TABLE t (id INT PRIMARY KEY, v INT)"),
    *(row_change(11, "t", COLUMNS, ["id"], after=[n, 0]) for n in range(6)),
    row_change(12, "t", COLUMNS, ["id"], before=[0, 0]),
    row_change(12, "t", COLUMNS, ["id"], before=[1, 0], after=[1, 1]),
    boundary(20),
]
LATE = [
    row_change(21, "t", COLUMNS, ["id"], before=[2, 0]),
    row_change(21, "t", COLUMNS, ["id"], before=[3, 0], after=[3, 1]),
    row_change(21, "t", COLUMNS, ["id"], after=[9, 0]),
    boundary(30),
]
ALL = ("insert", "update", "delete")
UNIT = 1000 << 18
"""A second, as a TSO."""


def filtering(*kinds: str, tables: str = "m.t") -> Settings:
    """Settings by which these kinds of row changes are left out."""
    rules = [EventFilterTable.model_validate({"matcher": [tables], "ignore-event": kinds})] if kinds else []
    return Settings(timezone="UTC", event_filters=tuple(rules))


def run(target: str, events: list[Event], *kinds: str, by_partition: bool = False, begin: int = 0) -> None:
    """A bridge that leaves out these kinds of row changes.  begin: the time at which it begins."""
    rules, made = filtering(*kinds).row_rules, in_one_partition(events)
    options: dict[str, Any] = {"boundary_seconds": 0.0} if by_partition else {}
    options["start_ts"] = begin * UNIT if by_partition else begin
    run_all(target, ruled(by_time(made) if by_partition else made, rules), rules=rules, **options)


@contextmanager
def decoding() -> Iterator[None]:
    """Events count as messages, and decoding them is to apply the rules."""

    def decoder(protocol: str, options: Any) -> Any:
        del protocol
        return lambda given: (ruled(events, options.row_rules) for events in given)

    def decoded(self: OfEvents, decode: Any, export: Any) -> InProcess:
        return InProcess([list(export(decode(iter([self.events]))))])

    with patch.object(verification, "event_decoder", decoder), patch.object(OfEvents, "decoded", decoded):
        yield


def verified(target: str, *kinds: str, fixes: Path | None = None, by_partition: bool = False) -> TableResult:
    """What verify says of the table."""
    events = in_one_partition([*EARLY, *LATE])
    with decoding():
        report = verify_events(
            target, by_time(events) if by_partition else events, "canal-json", fixes, filtering(*kinds)
        )
    [table] = report.tables
    return table


def by_time(events: pa.Table) -> pa.Table:
    """The events of a format without commit ts and boundaries."""
    events = events.filter(pc.not_equal(events["kind"], int(Kind.BOUNDARY)))
    made = {"commit_ts": pc.multiply(events["commit_ts"], UNIT), "by_time": pa.array([True] * events.num_rows)}
    for name, values in made.items():
        at = events.schema.get_field_index(name)
        events = events.set_column(at, events.schema.field(at), values)
    return events


@pytest.mark.parametrize("by_partition", [False, True])
@pytest.mark.parametrize("kind", [*ALL, "all dml"])
def test_rows_from_before_a_filter_are_right(target: str, tmp_path: Path, kind: str, by_partition: bool) -> None:
    """A filter is set while the bridge stands: what came before is on the target, and deleted there.  Verify called it
    different, and its fix file took it back: rows that were deleted came again, values became old ones, and rows that
    were inserted went."""
    sql(target, "CREATE DATABASE m")
    run(target, EARLY, by_partition=by_partition)
    run(target, [*EARLY, *LATE], kind, by_partition=by_partition)
    rows = sql(target, "SELECT * FROM m.t ORDER BY id")
    fixes = tmp_path / "fix.sql"
    assert verified(target, kind, fixes=fixes, by_partition=by_partition).is_equal
    run_file(target, fixes)
    assert sql(target, "SELECT * FROM m.t ORDER BY id") == rows


@pytest.mark.parametrize("by_partition", [False, True])
@pytest.mark.parametrize("kind", ALL)
def test_rows_of_the_copy_are_right(target: str, tmp_path: Path, kind: str, by_partition: bool) -> None:
    """What is below the beginning of a pipeline came with a copy, whatever it leaves out since."""
    sql(
        target,
        "CREATE DATABASE m",
        "CREATE TABLE m.t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO m.t VALUES (1, 1), (2, 0), (3, 0), (4, 0), (5, 0)",
    )
    run(target, [*EARLY, *LATE], kind, by_partition=by_partition, begin=20)
    rows = sql(target, "SELECT * FROM m.t ORDER BY id")
    fixes = tmp_path / "fix.sql"
    assert verified(target, kind, fixes=fixes, by_partition=by_partition).is_equal
    run_file(target, fixes)
    assert sql(target, "SELECT * FROM m.t ORDER BY id") == rows


@pytest.mark.parametrize("kind", ALL)
def test_what_came_before_a_filter_was_changed_is_not_covered(target: str, tmp_path: Path, kind: str) -> None:
    """Nor is what came since: nothing tells whether what was left out has come since, by a copy or by a fix file."""
    sql(target, "CREATE DATABASE m")
    run(target, EARLY, kind)
    assert verified(target, kind).not_covered == 0
    run(target, [*EARLY, *LATE])
    sql(target, "UPDATE m.t SET v = 7")
    rows = sql(target, "SELECT * FROM m.t")
    fixes = tmp_path / "fix.sql"
    table = verified(target, fixes=fixes)
    assert (table.is_equal, table.rows, table.not_covered) == (True, 0, len(rows))
    assert "event filters leave out some of its changes, and were others before" in table.notes[0]
    run_file(target, fixes)
    assert sql(target, "SELECT * FROM m.t") == rows


def test_other_filters_than_those_of_the_pipeline_cover_nothing(target: str) -> None:
    """Right rows are not called different where verify is given other event filters than the bridge."""
    sql(target, "CREATE DATABASE m")
    run(target, EARLY, "delete")
    table = verified(target)
    assert (table.is_equal, table.rows, table.not_covered) == (True, 0, 6)


def test_another_filter_waits_for_the_end_of_a_step(target: str) -> None:
    """Parts of a step are on the target, as the filters were when it began."""
    sql(target, "CREATE DATABASE m")
    run(target, EARLY)
    sql(target, "UPDATE _bridge.progress SET applying_ts = 25")
    with pytest.raises(UsageError, match="not those with which the pipeline began to write a step") as refused:
        run(target, [*EARLY, *LATE], "delete")
    assert "at least 25" in refused.value.fix
    run(target, [*EARLY, *LATE])
