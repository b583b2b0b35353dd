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
from bridge.ddl.by_table.table_settings import EventFilterTable
from bridge.errors import UsageError
from bridge.events import Event, Kind
from bridge.model import TableName
from bridge.mysql.state.routes_record import FilterEra, read_filters
from bridge.protocols.ruled_rows import ruled
from bridge.verify.log import verification
from bridge.verify.log.filter_eras import FilterHistory
from bridge.verify.log.notes import era_notes
from tests.generated.verifying import InProcess, OfEvents, verify_events
from tests.support.clients import run_file
from tests.support.pipelines import admin, run_all, sql
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


def verified(target: str, *kinds: str, fixes: Path | None = None, by_partition: bool = False) -> bool:
    """Whether verify calls the target equal."""
    events = in_one_partition([*EARLY, *LATE])
    with decoding():
        report = verify_events(
            target, by_time(events) if by_partition else events, "canal-json", fixes, filtering(*kinds)
        )
    return report.is_equal


def by_time(events: pa.Table) -> pa.Table:
    """The events of a format without commit ts and boundaries."""
    events = events.filter(pc.not_equal(events["kind"], int(Kind.BOUNDARY)))
    made = {
        "commit_ts": pc.multiply(events["commit_ts"], UNIT),
        "by_time": pa.array([True] * events.num_rows),
    }
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
    assert verified(target, kind, fixes=fixes, by_partition=by_partition)
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
    assert verified(target, kind, fixes=fixes, by_partition=by_partition)
    run_file(target, fixes)
    assert sql(target, "SELECT * FROM m.t ORDER BY id") == rows


@pytest.mark.parametrize("kind", ALL)
def test_rows_that_a_filter_has_left_out_are_missing(target: str, tmp_path: Path, kind: str) -> None:
    """Without the filter again, verify finds what it left out, and the file fixes it."""
    sql(target, "CREATE DATABASE m")
    run(target, EARLY, kind)
    assert verified(target, kind)
    run(target, [*EARLY, *LATE])
    fixes = tmp_path / "fix.sql"
    assert not verified(target, fixes=fixes)
    run_file(target, fixes)
    assert sql(target, "SELECT * FROM m.t ORDER BY id") == [(1, 1), (3, 1), (4, 0), (5, 0), (9, 0)]
    assert verified(target)


def test_a_filter_that_is_set_again(target: str) -> None:
    """What it left out the first time counts as left out again."""
    sql(target, "CREATE DATABASE m")
    run(target, EARLY[:-2], "insert", "update", "delete")
    run(target, [*EARLY[:-1], boundary(20)])
    run(target, [*EARLY, *LATE], "insert", "delete")
    assert verified(target, "insert", "delete")
    assert not verified(target)


@pytest.mark.parametrize("by_partition", [False, True])
def test_a_filter_that_is_set_again_behind_a_copy(target: str, tmp_path: Path, by_partition: bool) -> None:
    """The log does not tell of the copy, but the table is what it was copied to be: it is equal, and no fix file would
    undo it.  Where only some rows came, they are called different, and the report says why that may be wrong."""
    sql(target, "CREATE DATABASE m")
    run(target, EARLY, "delete", by_partition=by_partition)
    sql(target, "DELETE FROM m.t WHERE id = 0")
    early = [*EARLY, row_change(20, "t", COLUMNS, ["id"], before=[5, 0]), boundary(21)]
    run(target, early, by_partition=by_partition)
    run(target, [*early, *LATE], "delete", by_partition=by_partition)
    rows, fixes = sql(target, "SELECT * FROM m.t ORDER BY id"), tmp_path / "fix.sql"
    assert 0 not in [id_ for id_, _ in rows]
    events = in_one_partition([*early, *LATE])
    events = by_time(events) if by_partition else events
    for damage, words in ((None, "what it was copied or fixed to be"), ("(0, 7)", "do not run a fix file for it")):
        if damage:
            sql(target, f"INSERT INTO m.t VALUES {damage}")
        with decoding():
            report = verify_events(target, events, "canal-json", fixes, filtering("delete"))
        [table] = report.tables
        assert table.is_equal is not bool(damage), table
        [note] = [
            note for note in table.notes if "its delete row changes were left out, then not, and are again" in note
        ]
        assert words in note
        if not damage:
            run_file(target, fixes)
            assert sql(target, "SELECT * FROM m.t ORDER BY id") == rows


@pytest.mark.parametrize(
    ("eras", "again"),
    [
        ([("delete",), (), ("delete",)], {Kind.DELETE}),
        ([("delete", "update"), ("update",), ("delete", "update")], {Kind.DELETE}),
        ([("delete", "update"), (), ("delete",)], {Kind.DELETE}),
        ([("delete",), ("insert",), (), ("delete",)], {Kind.DELETE}),
        ([(), ("delete",)], set()),
        ([("delete",), ()], set()),
        ([("delete",), ("update",)], set()),
        ([("delete",)], set()),
    ],
)
def test_filters_that_are_set_again_are_told(eras: list[tuple[str, ...]], again: set[Kind]) -> None:
    """Nobody but people knows whether what was left out the first time has come since, by a copy or a fix."""
    ended = tuple(FilterEra(filtering(*kinds).row_rules, 10, None) for kinds in eras[:-1])
    history = FilterHistory(0, {}, ended, filtering(*eras[-1], tables="[m].t").row_rules)
    assert history.set_again(TableName("m", "t")) == again
    assert history.set_again(TableName("m", "u")) == set()
    assert len([*era_notes(history)]) == bool(ended)


def test_another_filter_waits_for_the_end_of_a_step(target: str) -> None:
    """Parts of a step are on the target, as the filters were when it began."""
    sql(target, "CREATE DATABASE m")
    run(target, EARLY)
    sql(target, "UPDATE _bridge.progress SET applying_ts = 25")
    with pytest.raises(UsageError, match="not those with which the pipeline began to write a step") as refused:
        run(target, [*EARLY, *LATE], "delete")
    assert "at least 25" in refused.value.fix
    run(target, [*EARLY, *LATE])


def test_what_is_kept_of_filters(target: str) -> None:
    """A filter with which nothing was applied is not kept; the last one is not over."""
    sql(target, "CREATE DATABASE m")
    with admin(target) as session:

        def kept() -> list[int]:
            found = read_filters(session, "_bridge", "bridge")
            assert found is not None
            return [era.applied_ts for era in found.eras]

        for kinds, events, eras in (
            ([], EARLY, []), (["insert"], EARLY, [20]), (["update"], EARLY, [20]),
            (["update"], [*EARLY, *LATE], [20]), ([], [*EARLY, *LATE], [20, 30]),
        ):  # fmt: skip
            run(target, [*events], *kinds)
            assert kept() == eras


def test_an_earlier_version_kept_nothing_of_filters(target: str) -> None:
    """The filters that are given now count for what it applied: it may have run with them."""
    sql(target, "CREATE DATABASE m")
    run(target, EARLY, "delete")
    sql(target, "UPDATE _bridge.routes SET routes = JSON_REMOVE(routes, '$.ignored')")
    assert verified(target, "delete")
    run(target, [*EARLY, *LATE], "delete")
    assert verified(target, "delete")
