"""Formats without boundaries on a real target: whatever step a process dies at, the next one goes on from there."""

from __future__ import annotations

import pyarrow as pa

from bridge.events import Event
from bridge.model import goes_by_partition
from bridge.mysql.state.progress import ProgressTable
from bridge.tso import ms_tso
from tests.support.pipelines import admin, contents, journal
from tests.support.scenarios import K, T, begin, k_row, t_row
from tests.support.sweeps import die_everywhere
from tests.support.upstreams import events_table, schema_change
from tests.support.victims import Victims


def _at(ms: int, event: Event) -> Event:
    return event._replace(commit_ts=ms_tso(ms), by_time=True)


def _events() -> pa.Table:
    """Two partitions, keyless rows in both; a schema change that both carry, and one that only the first does, twice in
    one second."""
    added = schema_change(1, "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 7")
    truncated = schema_change(1, "TRUNCATE TABLE k", table="k")
    first = [
        _at(1100, t_row(1, 1, 1)), _at(1200, k_row(1, 1)), _at(1200, k_row(1, 1)), _at(3000, added),
        _at(3100, t_row(1, 2, 2, c=5)), _at(5000, truncated), _at(5000, k_row(1, 2)), _at(5000, truncated),
        _at(5000, k_row(1, 4)), _at(9000, t_row(1, 1, 9, c=1)),
    ]  # fmt: skip
    second = [
        _at(1000, k_row(1, 3)), _at(2900, t_row(1, 11, 1)), _at(2999, t_row(1, 12, 1)), _at(3000, added),
        _at(3100, t_row(1, 13, 1, c=3)), _at(7000, k_row(1, 5)), _at(7100, k_row(1, 5)),
        _at(8000, t_row(1, 11, 5, c=4)),
    ]  # fmt: skip
    placed = [(p, offset, event) for p, events in enumerate((first, second)) for offset, event in enumerate(events)]
    return events_table(sorted(placed, key=lambda one: (one[2].commit_ts, one[0], one[1])))


def test_crash_at_every_step(target: str, victims: Victims) -> None:
    """Rows of a keyless table are there as often as the upstream has them, each schema change has one effect."""
    events = _events()
    died_at = die_everywhere(
        target, victims, events, lambda session: begin(session, [T, K]), batch=6, rows_per_transaction=3
    )
    assert {"advanced", "before commit", "committed", "ddl intent", "ddl executed", "ddl taken off"} <= died_at
    with admin(target) as session:
        tables = {name: sorted(rows) for name, (_, rows) in contents(session).items()}
        assert tables["m.k"] == [(4,), (5,), (5,)]
        assert tables["m.t"] == [(1, 9, 1), (2, 2, 5), (11, 5, 4), (12, 1, 7), (13, 1, 3)]
        assert [state for *_, state in journal(session)[:-1]] == ["done"] * 3
        progress = ProgressTable("bridge").read(session)
    assert progress is not None
    assert goes_by_partition(progress.positions)


def _sent_again() -> pa.Table:
    """A table that gets a column and is emptied; then all of it comes again, and something new."""
    added = schema_change(1, "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 7")
    truncated = schema_change(1, "TRUNCATE TABLE t")
    first = [_at(1100, t_row(1, 1, 1)), _at(2001, added), _at(2500, t_row(1, 2, 2, c=5)), _at(3001, truncated)]
    second = [_at(1500, t_row(1, 11, 1)), _at(2600, t_row(1, 12, 2, c=3)), _at(3500, t_row(1, 13, 3, c=4))]
    streams = [*first, *first, _at(4000, t_row(1, 3, 3, c=6))], [*second, *second, _at(4500, t_row(1, 13, 9, c=4))]
    return events_table((p, offset, event) for p, events in enumerate(streams) for offset, event in enumerate(events))


def test_crash_at_every_step_of_what_is_sent_again(target: str, victims: Victims) -> None:
    """The schema changes run once, and no row of before the last one comes back."""
    died_at = die_everywhere(
        target, victims, _sent_again(), lambda session: begin(session, [T]), batch=6, rows_per_transaction=3
    )
    assert {"advanced", "before commit", "committed", "ddl intent", "ddl executed", "ddl taken off"} <= died_at
    with admin(target) as session:
        assert sorted(contents(session)["m.t"][1]) == [(3, 3, 6), (13, 9, 4)]
        assert [state for *_, state in journal(session)[:-1]] == ["done"] * 2
