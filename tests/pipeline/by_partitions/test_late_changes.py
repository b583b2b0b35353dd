"""Which schema changes came behind rows of their tables."""

from __future__ import annotations

import numpy as np
import pytest

from bridge.model import SchemaChange
from bridge.pipeline.by_partitions.late_changes import AppliedPlaces
from bridge.pipeline.by_partitions.partition_queue import NO_ROW, AppliedRow
from bridge.protocols.values.event_time import place_in_binlog
from bridge.rows.moments import Moment
from bridge.tso import ms_tso
from tests.support.upstreams import TOPIC, events_table, row_change

TS = ms_tso(1_790_000_000_000)
CHANGES, ONE, TWO = ((TOPIC, partition) for partition in range(3))
T, U, B = (("m", name) for name in "tub")


def place(position: int) -> str:
    found = place_in_binlog("up", "binlog.000003", position, 1)
    assert found is not None
    return found


def moment(position: int) -> Moment:
    return Moment.of_change(TS, True, place(position))


def noted(*rows: tuple[int, str, int | None]) -> AppliedPlaces:
    """What has seen rows, each with its partition, its table and its position."""
    found = AppliedPlaces({ONE: NO_ROW, TWO: NO_ROW})
    events = [
        (
            partition,
            n,
            row_change(TS, table, ["id"], ["id"], after=[n])._replace(place=None if at is None else place(at)),
        )
        for n, (partition, table, at) in enumerate(rows)
    ]
    found.note_rows(events_table(events), np.full(len(events), TS))
    return found


def is_late(places: AppliedPlaces, names: set[tuple[str, str]] | None, text: str = "TRUNCATE TABLE t") -> bool:
    """Whether a schema change of these tables at 200 comes too late, behind rows at 300 of some table."""
    change = SchemaChange(TS, "m", "", text, "cdc/0/5", place(200))
    applied = {ONE: AppliedRow(TS, place(300)), TWO: NO_ROW}
    return bool(places.lateness(CHANGES, moment(200), change, names, applied))


@pytest.mark.parametrize(
    ("rows", "names", "expected"),
    [
        ([(1, "t", 100), (2, "u", 300)], {T}, False),
        ([(1, "T", 300), (2, "u", 100)], {T}, True),
        ([(1, "t", 100), (2, "t", 300)], {T}, True),
        ([(1, "t", 300), (1, "u", 310), (1, "t", None)], {T}, True),
        ([(1, "t", 100), (1, "t", 300)], {T, U}, True),
        ([(0, "t", 300)], {T}, False),
        ([(1, "u", 300)], None, True),
    ],
)
def test_rows_of_its_tables(
    rows: list[tuple[int, str, int | None]], names: set[tuple[str, str]] | None, *, expected: bool
) -> None:
    """The last place of each partition counts, not that of its own.  Where its tables are not certain, rows of
    any do."""
    assert is_late(noted(*rows), names) == expected


def test_names_that_tables_had() -> None:
    """A rename takes the rows along that came before it, and another schema change of a table stands for rows of it."""
    places = noted((1, "t", 300))
    assert not is_late(places, {B})
    places.note_change(TWO, moment(310), {T, B})
    assert is_late(places, {B})
    places = noted((1, "t", 100))
    places.note_change(TWO, moment(310), {T, B})
    assert is_late(places, {T})


def test_rows_that_are_sent_again() -> None:
    """They leave the last place what it was."""
    places = noted((1, "t", 300))
    again = row_change(TS, "t", ["id"], ["id"], after=[1])._replace(place=place(100))
    places.note_rows(events_table([(1, 1, again)]), np.array([TS]))
    assert is_late(places, {T})
    places.note_rows(events_table([(1, 2, again)]), np.array([TS + ms_tso(90_000)]))
    assert not is_late(places, {T}), "a binlog that began anew"


def test_times_in_milliseconds() -> None:
    """Those of commits (GTIDs of MySQL 8): a place behind it is late where its time is, too."""
    change = Moment.of_change(TS + ms_tso(7), True, place(200))
    rows = [(TS + ms_tso(ms), place(at)) for ms, at in ((8, 300), (6, 300), (8, 100))]  # the last of another clock
    assert [change.shows_before(*row) for row in rows] == [True, False, False]


def test_rows_of_before_the_start() -> None:
    """Nothing tells of which table they were."""
    places = AppliedPlaces({ONE: AppliedRow(TS, place(300)), TWO: NO_ROW})
    assert is_late(places, {T})
    assert not is_late(places, {T}, "CREATE TABLE t (id INT)")
