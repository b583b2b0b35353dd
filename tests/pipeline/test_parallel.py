"""`parallel` consistency: parts commit by themselves, the end is the same, and nothing may not be is written twice."""

from __future__ import annotations

import os
import signal
from typing import Any

import pyarrow as pa
import pytest

from bridge.errors import BadMessageError, UsageError
from bridge.events import Code, Undecodable
from bridge.model import Advance, ProgressOrderError
from bridge.mysql.connection.session import Session
from bridge.mysql.state.progress import ProgressTable
from bridge.pipeline.by_boundaries import BoundaryOrder
from bridge.pipeline.order import Due, Segment
from bridge.pipeline.pipeline import check_until
from bridge.rows.order_and_slices import RowChanges
from tests.support.dying import Died, dying_at
from tests.support.pipelines import admin, contents, journal, opened, run_all
from tests.support.scenarios import K, T, begin, k_row, setup_and_events, t_row
from tests.support.sweeps import BANK_OPTIONS, die_again_and_again, die_everywhere
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change
from tests.support.victims import Victims

MARKED = "SELECT applying_ts > applied_ts FROM _bridge.progress"


@pytest.mark.parametrize(
    "scenario",
    [
        "swap by three renames of one commit_ts",
        pytest.param("add column", marks=pytest.mark.soak),
    ],
)
def test_crash_at_every_step_around_schema_changes(target: str, victims: Victims, scenario: str) -> None:
    """Wherever a process dies among parts, progress and schema changes, the next one ends where an uninterrupted run
    does, also with rows of a table without a key."""
    setup, events = setup_and_events(scenario)
    died_at = die_everywhere(target, victims, events, lambda session: begin(session, setup), writers=2)
    assert {"marked", "part begun", "before part commit", "part committed", "committed"} <= died_at


def test_crash_after_crash(target: str, victims: Victims, bank: pa.Table) -> None:
    """A process after the other dies a step further; the last one ends where an uninterrupted atomic run does."""
    marked = []

    def look(session: Session) -> None:
        marked.append(session.value(MARKED))

    die_again_and_again(target, victims, bank, look, writers=3, **{**BANK_OPTIONS, "rows_per_transaction": 90})
    assert sum(marked) > 10, "parts were there without their progress"


@pytest.mark.parametrize("writers", [0, 2], ids=["atomic", "parallel"])
def test_an_interrupted_step_is_there_as_a_whole_before_anything_is_said_to_be(target: str, writers: int) -> None:
    """The next bridge may read in smaller micro-batches, and write smaller transactions: what progress tells is a state
    of the upstream from its first transaction on."""
    events = in_one_partition(
        [event for i in range(10) for event in (t_row(10 + i, i, i), boundary(11 + i))] + [boundary(50)]
    )

    def look(step: str) -> None:
        if step == "committed":
            seen.append(session.rows("SELECT applied_ts, (SELECT COUNT(*) FROM m.t) FROM _bridge.progress")[0])

    seen: list[tuple[int, int]] = []
    with admin(target) as session:
        begin(session, [T])
        with pytest.raises(Died), opened(target, [("cdc", 0)], writers=2, trace=dying_at("part committed")) as pipeline:
            pipeline.take(events.slice(0, 14))
        assert session.value(MARKED) == 1
        run_all(target, events, batch=1, rows_per_transaction=1, writers=writers, trace=look)
    assert [(ts, min(10, ts - 10)) for ts, _ in seen] == seen
    assert [ts for ts, _ in seen] == [17, 18, 19, 20, 50]


@pytest.mark.parametrize("writers", [0, 2], ids=["atomic", "parallel"])
def test_an_interrupted_step_stays_one_though_a_schema_change_cuts_it_now(
    target: str, victims: Victims, writers: int
) -> None:
    """The next bridge may run a schema change in its midst that the filter left out before: what was written behind it
    stays noted, so that a crash after the change is no moment at which the target would be a state of the upstream."""
    events = [t_row(10, 1, 1), boundary(11), schema_change(12, "ALTER TABLE u ADD c INT", table="u"), boundary(13)]
    events += [event for ts in (14, 16, 18) for event in (t_row(ts, ts, ts), boundary(ts + 1))] + [boundary(20)]
    kept, progress = victims.keep(in_one_partition(events)), ProgressTable("bridge")
    seen: list[tuple[int, int]] = []

    def look(step: str) -> None:
        if step == "committed":
            seen.append(session.rows("SELECT applied_ts, (SELECT COUNT(*) FROM m.t) FROM _bridge.progress")[0])

    def killed_at(step: str, writers: int, **options: Any) -> None:
        os.kill(victims.stop_at(target, kept, step, take_over=True, writers=writers, **options), signal.SIGKILL)
        assert victims.exit_code() == -signal.SIGKILL

    with admin(target) as session:
        begin(session, [T, "CREATE TABLE m.u (id INT PRIMARY KEY)"])
        killed_at("before commit", 2, tables=["*.*", "!m.u"])
        killed_at("part committed" if writers else "committed", writers)
        killed_at("ddl taken off", writers)
        found = progress.read(session)
        assert found is not None
        assert (found.applied_ts, found.applying_ts) == (13, 20)
        assert (found.in_parts, session.value("SELECT COUNT(*) FROM m.t")) == (True, 4)
        with pytest.raises(UsageError, match="may hold parts of what comes up to commit ts 20, beyond --until 15"):
            check_until(found, 15)
        run_all(target, in_one_partition(events), take_over=True, batch=2, writers=writers, trace=look)
        assert set(seen) == {(20, 4)}
        assert session.rows("SELECT applied_ts, applying_ts FROM _bridge.progress") == [(20, 20)]


def test_a_step_that_lacks_a_boundary_now_is_waited_for(target: str) -> None:
    """The end of the input is no end of the step: nothing is applied, and nothing is passed over.  Nor can it end at an
    earlier moment, whose state the target cannot show any more."""
    events = in_one_partition([t_row(10, 1, 1), boundary(11), t_row(12, 2, 2), boundary(20)])

    with admin(target) as session:
        begin(session, [T])
        with pytest.raises(Died):
            run_all(target, events, writers=2, trace=dying_at("part committed"))
        run_all(target, events.slice(0, 3))
        assert session.rows("SELECT applied_ts, applying_ts FROM _bridge.progress") == [(0, 20)]
        progress = ProgressTable("bridge").read(session)
        assert progress is not None
        check_until(progress, 20)
        with pytest.raises(UsageError, match="may hold parts of what comes up to commit ts 20, beyond --until 12"):
            check_until(progress, 12)
        run_all(target, events)
        assert session.rows("SELECT applied_ts, applying_ts FROM _bridge.progress") == [(20, 20)]
        assert session.rows("SELECT id FROM m.t") == [(1,), (2,)]


def test_a_bad_message_in_an_interrupted_step_stops_the_bridge(target: str) -> None:
    """When the next bridge does not quarantine it any more: the step cannot become whole."""
    bad = Undecodable(Code.MALFORMED, "broken")
    events = in_one_partition([t_row(10, 1, 1), boundary(11), bad, t_row(12, 2, 2), boundary(20)])

    with admin(target) as session:
        begin(session, [T])
        with pytest.raises(Died):
            run_all(target, events, quarantine=True, writers=2, trace=dying_at("part committed"))
        with pytest.raises(BadMessageError):
            run_all(target, events)
        run_all(target, events, quarantine=True)
        assert session.rows("SELECT id FROM m.t") == [(1,), (2,)]
        assert session.rows("SELECT `offset` FROM _bridge.quarantine") == [(2,)]


def test_parts_that_a_failover_lost_are_written_again(target: str) -> None:
    """The connection is cut before progress moves, and the server that answers then lacks what was committed in
    parts: progress says the same there, so the whole step is written again."""
    rows = [t_row(10 + i, i, i) for i in range(3)]
    lost = []

    def trace(step: str) -> None:
        if step == "before commit" and not lost:
            with admin(target) as old:
                lost.append(old.rows("SELECT COUNT(*) FROM m.t"))
                old.execute("DELETE FROM m.t")
                old.execute(f"KILL {pipeline.writer.session().connection_id}")

    with admin(target) as session:
        begin(session, [T])
        with opened(target, [("cdc", 0)], writers=2, trace=trace) as pipeline:
            pipeline.take(in_one_partition([*rows, boundary(20)]))
        assert lost == [[(3,)]]
        assert session.rows("SELECT COUNT(*) FROM m.t") == [(3,)]


def test_an_owner_that_slept_in_a_part_cannot_commit_it(target: str, victims: Victims) -> None:
    """A take-over ends the parts of the one before; when that one wakes it stops, and the target is the new one's."""
    events = in_one_partition([t_row(10, 1, 1), k_row(10, 1), boundary(11)])
    with admin(target) as session:
        begin(session, [T, K])
        sleeper = victims.stop_at(target, victims.keep(events), "before part commit", writers=2)
        try:
            run_all(target, events, take_over=True)
            expected = contents(session)
        finally:
            os.kill(sleeper, signal.SIGCONT)
            code = victims.exit_code()
        assert code == 5
        assert contents(session) == expected


def _rows(session: Session) -> list[tuple[object, ...]]:
    return session.rows("SELECT id, u FROM m.t ORDER BY id")


def test_what_a_part_cannot_write_is_left_to_one_transaction(target: str) -> None:
    """A target ahead of the log makes a part fail on a unique value: the whole step is written again, in safe mode."""
    update = row_change(10, "t", ["id", "u"], ["id"], before=[1, 1], after=[1, 2])
    with admin(target) as session:
        begin(session, ["CREATE TABLE m.t (id INT PRIMARY KEY, u INT UNIQUE)", "INSERT INTO m.t VALUES (1, 1), (2, 2)"])
        with opened(target, [("cdc", 0)], writers=2) as pipeline:
            pipeline.take(in_one_partition([update, boundary(11)]))
            assert pipeline.writer.counts.safe_mode == 1
        assert _rows(session) == [(1, 2)]


def test_a_step_is_written_in_parts(target: str) -> None:
    """Rows of one table go in several transactions, by their keys; afterwards nothing is marked as being written."""
    steps: list[str] = []
    rows = [t_row(10 + i, i, i) for i in range(3)] + [
        row_change(20, "u", ["id", "v"], ["id"], after=[i, i]) for i in range(3)
    ]
    with admin(target) as session:
        begin(session, [T, "CREATE TABLE m.u LIKE m.t"])
        with opened(target, [("cdc", 0)], writers=2, trace=steps.append) as pipeline:
            pipeline.take(in_one_partition([*rows, boundary(30)]))
        assert session.value("SELECT (SELECT COUNT(*) FROM m.t) + (SELECT COUNT(*) FROM m.u)") == 6
        assert session.value(MARKED) == 0
    assert steps.count("part committed") == 2
    assert steps.index("before commit") > max(i for i, step in enumerate(steps) if step == "part committed")


EVENTS = in_one_partition(
    [*(row_change(ts, "t", ["id"], ["id"], after=[ts]) for ts in (10, 11, 12, 13)), boundary(12), boundary(14)]
)


@pytest.mark.parametrize("writers", [0, 2])
@pytest.mark.parametrize("cut", [9, 15])
def test_a_cut_outside_of_the_segment_stops_the_bridge(
    target: str, monkeypatch: pytest.MonkeyPatch, cut: int, writers: int
) -> None:
    """Wherever a piece of a window is said to end: nothing of it is written, by one connection or by several."""
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY)")
        with opened(target, [("cdc", 0)], start_ts=10, writers=writers) as pipeline:
            before = contents(session), journal(session)
            monkeypatch.setattr(RowChanges, "pieces", lambda rows, _: iter([(cut, rows), (None, rows)]))
            with pytest.raises(ProgressOrderError, match=f"from commit ts 10 to {cut}"):
                pipeline.take(EVENTS)
            assert (contents(session), journal(session)) == before


def test_a_segment_beyond_the_resolved_ts_stops_the_bridge(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window may not be larger than what is complete."""
    monkeypatch.setattr(BoundaryOrder, "due", lambda _: iter([Due(Segment(10, 13), None)]))
    with opened(target, [("cdc", 0)], start_ts=10) as pipeline, pytest.raises(ProgressOrderError):
        pipeline.take(EVENTS.slice(4, 1))


@pytest.mark.parametrize(
    ("step", "is_right"),
    [
        *((Advance(10, 10, {}), True), (Advance(10, 12, {}, bounds=(12, 12)), True)),
        *((Advance(10, 11, {}, bounds=(12, 13)), True), (Advance(10, 9, {}), False)),
        *((Advance(10, 13, {}, bounds=(12, 14)), False), (Advance(10, 11, {}, bounds=(13, 12)), False)),
    ],
)
def test_the_order(step: Advance, is_right: bool) -> None:
    """Each not beyond the next."""
    if is_right:
        step.check()
        return
    with pytest.raises(ProgressOrderError):
        step.check()
