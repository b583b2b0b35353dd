"""What is later than a schema change, by event times and by places in the binlog."""

from __future__ import annotations

import pytest

from bridge.protocols.values.event_time import place_in_binlog
from bridge.rows.moments import Moment, in_order, newest_places
from bridge.tso import ms_tso
from tests.support.upstreams import events_table, row_change


def place(position: int, number: int = 3, reader: str = "up", base: str = "binlog") -> str:
    found = place_in_binlog(reader, f"{base}.{number:06}", position)
    assert found is not None
    return found


def later(moment: Moment, rows: list[tuple[int, str | None]]) -> list[bool]:
    """Which rows, each with its time in ms and its place, are later."""
    change = row_change(1, "t", ["id"], ["id"], after=[1])
    events = [change._replace(commit_ts=ms_tso(ms), place=where, by_time=True) for ms, where in rows]
    return [bool(one) for one in moment.is_before(events_table([(0, n, event) for n, event in enumerate(events)]))]


def changed(ms: int, where: str | None) -> Moment:
    return Moment.of_change(ms_tso(ms), True, where)


LATER: list[tuple[str, int, str | None, int, str | None, bool]] = [
    ("in one second the places tell: behind", 5000, place(500), 5000, place(501), True),
    ("and before", 5000, place(500), 5000, place(499), False),
    ("a schema change that waited is dated earlier than rows before it", 5000, place(500), 9000, place(499), False),
    ("a row that waited is dated earlier than a schema change before it", 9000, place(500), 5000, place(501), True),
    ("the number of the file counts more", 5000, place(500, 3), 5000, place(4, 4), True),
    ("as a number, not as text", 5000, place(500, 999999), 5000, place(4, 1000000), True),
    ("positions too", 5000, place(999), 5000, place(1000), True),
    ("commit times that differ are exact, also on another server", 5001, place(500, 9), 5002, place(4, 1), True),
    ("and in the other direction", 5002, place(4, 1), 5001, place(500, 9), False),
    ("equal commit times are not", 5001, place(500), 5001, place(501), True),
    ("what is of another reader goes by time", 5000, place(500), 5999, place(501, reader="other"), False),
    ("what is of another binlog, too", 5000, place(500), 6000, place(1, base="mysql-bin"), True),
    ("and what has no place", 5000, place(500), 5999, None, False),
    ("and a change without one", 5000, None, 6000, place(1), True),
]


@pytest.mark.parametrize(("what", "ms", "where", "row_ms", "row_where", "is_later"), LATER)
def test_later_rows(what: str, ms: int, where: str | None, row_ms: int, row_where: str | None, is_later: bool) -> None:
    """One row each; beside one without a place, so that columns are mixed."""
    assert later(changed(ms, where), [(row_ms, row_where), (1, None)]) == [is_later, False], what


def test_a_change_with_a_commit_ts_is_exact() -> None:
    """Rows at its commit ts come before it."""
    assert later(Moment.of_change(ms_tso(5000), False, None), [(5000, None), (5001, None)]) == [False, True]


def test_schema_changes_in_order() -> None:
    """By time; those that are dated by seconds and stand in one binlog by their places."""
    moments = [
        changed(7000, place(300)),
        changed(8000, place(100)),
        changed(7000, None),
        changed(9000, place(200)),
        changed(7500, place(1, reader="other")),
    ]
    assert in_order(moments) == [2, 1, 4, 3, 0]
    assert in_order([]) == []


def test_places_of_several_binlogs() -> None:
    """The last of each counts: a connector that sends something again goes back."""
    change = row_change(1, "t", ["id"], ["id"], after=[1])
    places = [place(7), place(9), place(8), None, place(3, reader="other")]
    events = events_table([(0, n, change._replace(place=one)) for n, one in enumerate(places)])
    assert set(newest_places(events).values()) == {place(8), place(3, reader="other")}


@pytest.mark.parametrize("file", ["", "binlog", "binlog.", "binlog.12345678901", ".000003"])
def test_files_without_a_number(file: str) -> None:
    """TiCDC's are empty; what cannot be compared has no place."""
    assert place_in_binlog("up", file, 4) is None
