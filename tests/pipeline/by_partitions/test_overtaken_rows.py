"""Rows of one key in several partitions end as upstream, however late one of these is read."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from bridge.events import RowChange
from bridge.pipeline.by_partitions.overtaken_rows import OvertakenRows
from bridge.pipeline.by_partitions.partition_queue import NO_ROW, AppliedRow
from bridge.pipeline.order import OrderChanged
from bridge.protocols.values.event_time import place_in_gtid_set, place_of_sending
from bridge.rows.moments import Places
from bridge.tso import ms_tso
from tests.pipeline.by_partitions.test_sent_again import in_topic
from tests.support.pipelines import opened, sql
from tests.support.upstreams import TOPIC, Change, events_table, row_change

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
SECOND = ms_tso(1_790_000_000_000)
Row = list[int] | None


def told(number: int, before: Row, after: Row, second: int = 0) -> RowChange:
    """A row change of Canal: the transaction's number in the set, and its time in whole seconds."""
    event = row_change(SECOND + ms_tso(1000 * second), "t", ["id", "v"], ["id"], before=before, after=after)
    return event._replace(by_time=True, place=place_in_gtid_set(f"{UUID}:1-{number}"))


def table_of(url: str, *batches: list[tuple[int, Change]], partitions: int = 3) -> list[tuple[Any, ...]]:
    """What the target has in the end.  batches: the micro-batches, each with partitions and events."""
    sql(url, "DROP DATABASE IF EXISTS _bridge", "DROP DATABASE IF EXISTS m", "CREATE DATABASE m")
    sql(url, "CREATE TABLE m.t (id INT PRIMARY KEY, v INT)")
    events = in_topic([one for batch in batches for one in batch])
    where = [(TOPIC, p) for p in range(partitions)]
    with opened(url, where) as pipeline, suppress(OrderChanged):
        pipeline.take(events.slice(0, 1))
    with opened(url, where) as pipeline:
        start = 0
        for batch in batches:
            pipeline.take(events.slice(start, len(batch)))
            start += len(batch)
        pipeline.applier.finish()
    return sql(url, "SELECT * FROM m.t ORDER BY id")


MADE = (2, told(1380, None, [61, 1]))
UPDATED = (2, told(1390, [61, 1], [61, 2]))
MOVED = (0, told(1394, [61, 2], [1061, 2]))
MADE_ANEW = (2, told(1396, None, [61, 3]))
MOVED_BACK = (2, told(1397, [1061, 2], [61, 2]))


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([[MADE, UPDATED, MOVED]], [(1061, 2)]),
        ([[MADE], [MOVED], [UPDATED]], [(1061, 2)]),
        ([[MOVED], [MADE, UPDATED]], [(1061, 2)]),
        ([[MADE, UPDATED, MADE_ANEW], [MOVED]], [(61, 3), (1061, 2)]),
        ([[MOVED], [MADE, UPDATED, MADE_ANEW]], [(61, 3), (1061, 2)]),
        ([[MADE, UPDATED, MOVED_BACK], [MOVED]], [(61, 2)]),
        ([[MADE], [(0, told(1391, [61, 1], None))], [(2, told(1390, [61, 1], [61, 2]))]], []),
    ],
)
def test_a_key_that_moves(
    target: str, batches: list[list[tuple[int, Change]]], expected: list[tuple[int, int]]
) -> None:
    """Within a second, read in one micro-batch or in several, of which any may come first: the row is where upstream
    has it, and what is made anew stays; also where another upstream's rows stand between."""
    assert table_of(target, *batches) == expected
    place = place_in_gtid_set(f"00{UUID[2:]}:1-7")
    beside = [(1, told(7, None, [5000 + n, n])._replace(place=place)) for n in range(len(batches))]
    rows = table_of(target, *([other, *batch] for other, batch in zip(beside, batches, strict=True)))
    assert rows == [*expected, *((5000 + n, n) for n in range(len(batches)))]


def untold(event: tuple[int, Change]) -> tuple[int, Change]:
    """The same without GTIDs."""
    return event[0], event[1]._replace(place=place_of_sending(1_700_000_000_000, 1))


INSERTED = (2, told(1390, None, [61, 2]))
MADE_AT_ONCE = (2, told(1394, None, [61, 3]))
UPDATED_AT_ONCE = (2, told(1394, [61, 1], [61, 2]))
BACK_AT_ONCE = (2, told(1394, [1061, 2], [61, 2]))
FAR = (1, told(1394, [1061, 2], [2061, 2]))
OTHER = (0, told(1394, None, [1062, 5]))


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([[MADE], [UPDATED_AT_ONCE, MOVED]], [(1061, 2)]),
        ([[MADE], [MOVED], [UPDATED_AT_ONCE]], [(1061, 2)]),
        ([[INSERTED], [MOVED, MADE_AT_ONCE]], [(61, 3), (1061, 2)]),
        ([[INSERTED], [MADE_AT_ONCE], [MOVED]], [(61, 3), (1061, 2)]),
        ([[MOVED], [FAR]], [(2061, 2)]),
        ([[FAR], [MOVED]], [(2061, 2)]),
        ([[MOVED, FAR]], [(2061, 2)]),
        ([[MADE, UPDATED_AT_ONCE], [BACK_AT_ONCE], [MOVED]], [(61, 2)]),
    ],
)
def test_a_key_that_moves_in_one_transaction(
    target: str, batches: list[list[tuple[int, Change]]], expected: list[tuple[int, int]]
) -> None:
    """All rows of a transaction have one GTID: the rows themselves tell which of two comes first."""
    assert table_of(target, *batches) == expected


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ([MADE, UPDATED, MOVED], [(1061, 2)]),
        ([INSERTED, MOVED, MADE_ANEW], [(61, 3), (1061, 2)]),
        ([MADE, UPDATED, MOVED, FAR], [(2061, 2)]),
        ([MADE, UPDATED, MOVED, MADE, UPDATED, MOVED], [(1061, 2)]),
    ],
)
def test_a_key_that_moves_without_gtids(
    target: str, batch: list[tuple[int, Change]], expected: list[tuple[int, int]]
) -> None:
    """Within a second that is read at once, the rows themselves tell it, too."""
    assert table_of(target, [untold(one) for one in batch]) == expected


def test_a_late_row_that_nothing_is_compared_with_any_more_is_named() -> None:
    """It is applied, and may bring an earlier row back: the log says so, once for each table in several partitions."""
    overtaken, where = OvertakenRows(most=1), {0: NO_ROW, 1: NO_ROW}

    def without(*placed: tuple[int, Change]) -> int:
        rows = events_table((partition, n, event) for n, (partition, event) in enumerate(placed))
        partitions = np.array([partition for partition, _ in placed])
        places, times = Places.of(rows["place"]), rows["commit_ts"].to_numpy()
        kept, lost = overtaken.without(rows, places, times, partitions, list(where.values()), 0)
        for partition, event in placed:
            where[partition] = AppliedRow(event.commit_ts, event.place or "")
        return kept.num_rows if lost is None else int((~lost).sum())

    with capture_logs() as said:
        assert without((0, told(1394, [61, 2], [1061, 2])), (0, told(1395, None, [5, 1]))) == 2
        assert without((1, told(1390, [61, 1], [61, 2])), (0, told(1396, None, [6, 1]))) == 2
        assert without((1, told(1391, [62, 1], [62, 2])), (0, told(1397, None, [7, 1]))) == 2
    assert [(one["event"], one["table"]) for one in said] == [("late_rows", "m.t")]


@pytest.mark.parametrize(("second", "is_named"), [(0, True), (1, False)])
def test_a_row_that_comes_later_than_the_change_of_its_key_is_named(
    target: str, second: int, *, is_named: bool
) -> None:
    """Without GTIDs nothing tells it from a new one: it is applied, and the log names the table."""
    late = untold((2, told(1390, [61, 1], [61, 2], second)))
    with capture_logs() as said:
        table_of(target, [untold(MADE)], [untold(MOVED)], [late])
    assert [one["table"] for one in said if one["event"] == "late_rows"] == ["m.t"] * is_named
