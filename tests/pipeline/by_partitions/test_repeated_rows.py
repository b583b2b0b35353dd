"""Rows that the producer sends again, as their places in the binlog show it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from bridge.errors import SourceError
from bridge.events import NO_PRIMARY_KEY, Event, RowChange
from bridge.filters.routes import Routes
from bridge.model import SchemaChange
from bridge.pipeline.by_partitions.merge import Rows
from bridge.pipeline.by_partitions.partition_queue import NO_ROW, AppliedRow
from bridge.pipeline.by_partitions.repeated_rows import (
    MAY_UNDO,
    NO_VERDICT,
    REPEATED,
    RepeatedRows,
    are_of_other_server,
    follow_binlog,
    is_older,
)
from bridge.protocols import DecodeOptions, make_decoder
from bridge.protocols.values.event_time import place_in_binlog, place_in_gtid_set
from bridge.tso import ms_tso
from tests.support.upstreams import in_one_partition, row_change


def at(position: int, file: int = 3, server: int = 1) -> str:
    return place_in_binlog("up", f"binlog.{file:06}", position, server) or ""


def gtids(last: int, more: str = "") -> str:
    return place_in_gtid_set(f"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-{last}{more}") or ""


OTHER = place_in_binlog("other", "binlog.000003", 20, 2)


def rows_of(told: list[tuple[int, str | None]], *key: str) -> Rows:
    events: list[Event] = [
        row_change(ms_tso(ms), "k", ["id"], key, after=[1])._replace(by_time=True, place=place) for ms, place in told
    ]
    table = in_one_partition(events)
    return Rows(table)


CASES = [
    ("ascending", "", [(5, at(10)), (5, at(20))], []),
    ("behind what is in the target", at(10), [(5, at(20))], []),
    ("sent again", at(30), [(5, at(10)), (5, at(20)), (5, at(30)), (6, at(40))], [0, 1, 2]),
    ("in one go", "", [(5, at(10)), (5, at(20)), (5, at(10)), (5, at(20)), (6, at(30))], [2, 3]),
    ("twice", "", [(5, at(20)), (5, at(10)), (5, at(20)), (5, at(10)), (5, at(30))], [1, 2, 3]),
    ("from the file before", at(4, file=4), [(5, at(900)), (5, at(5, file=4))], [0]),
    ("rows of one event", at(10), [(5, at(10)), (5, at(10))], []),
    ("behind earlier ones, as many as there were", at(20), [(5, at(10)), (5, at(20)), (5, at(20))], [0, 1]),
    ("each time", at(20), [(5, at(10)), (5, at(20)), (5, at(10)), (5, at(20)), (5, at(20))], [0, 1, 2, 3]),
    ("what names no place", at(30), [(5, None), (5, at(20)), (5, None)], [1]),
    ("another server", at(30), [(5, at(20, server=2))], []),
    ("those of another connector beside them", at(30), [(5, OTHER), (5, at(20)), (5, OTHER), (5, at(30))], [1, 3]),
    ("a binlog that begins anew", at(30), [(9, at(4)), (9, at(6)), (9, at(5))], [2]),
    ("and again", at(30), [(9, at(4)), (9, at(6)), (12, at(3)), (12, at(7))], []),
    ("GTIDs", gtids(30), [(5, gtids(10)), (5, gtids(20)), (5, gtids(30)), (6, gtids(40))], [0, 1, 2]),
    ("messages of one transaction", gtids(10), [(5, gtids(10)), (5, gtids(10)), (5, gtids(11))], []),
    ("GTIDs of two servers do not tell", gtids(30), [(5, gtids(9, ",4e11fa47-71ca-11e1-9e33-c80aa9429562:1"))], []),
    ("a statement that began before", at(10), [(1, at(20))], []),
]


@pytest.mark.parametrize(("what", "mark", "told", "copies"), CASES, ids=[case[0] for case in CASES])
def test_copies_by_place(what: str, mark: str, told: list[tuple[int, str | None]], copies: list[int]) -> None:
    """A place before one that was shown tells a copy, unless its time is a later one."""
    rows = rows_of(told)
    applied = AppliedRow(ms_tso(5), mark, 1) if mark else NO_ROW
    shown = np.maximum.accumulate(np.concatenate([[ms_tso(5)], rows.times]))[:-1]
    found, gone, _ = follow_binlog(rows, applied, lambda: shown)
    assert (found == gone).all()
    assert np.flatnonzero(found).tolist() == copies, what


@pytest.mark.parametrize(("ms", "left_out"), [(8_000, []), (9_000, []), (10_000, [1, 2])])
def test_rows_of_a_former_server_are_applied_again_with_what_follows_them(ms: int, left_out: list[int]) -> None:
    """Behind a failover: alone, they would take back what was written on the next server.  In one binlog rows of other
    servers may stand between, as of Galera."""
    last, seen = AppliedRow(ms_tso(9_000), at(30), 1), np.full(3, ms_tso(9_000))
    for key, left in (("id", left_out), (NO_PRIMARY_KEY, [1, 2])):  # a row without a key would be there twice
        rows = rows_of([(ms, at(40, server=2)), (9_000, at(20)), (9_000, at(30))], key)
        found, gone, _ = follow_binlog(rows, last, lambda: seen)
        assert (np.flatnonzero(found).tolist(), np.flatnonzero(gone).tolist()) == ([1, 2], left)
        assert are_of_other_server(rows, last, seen).tolist() == [ms <= 9_000, False, False]


def test_behind_a_failover_the_next_server_is_the_last_one() -> None:
    """From its first row on: others of that second are no rows of a former server, so that copies of its own are left
    out."""
    rows = rows_of([(10_000, at(20, server=2)), (10_000, at(30, server=2)), (10_000, at(20, server=2))], "id")
    seen = np.array([ms_tso(ms) for ms in (9_000, 10_000, 10_000)])
    last = AppliedRow(ms_tso(9_000), at(30), 1)
    assert not are_of_other_server(rows, last, seen).any()
    found, gone, _ = follow_binlog(rows, last, lambda: seen)
    assert (found.tolist(), gone.tolist()) == ([False, False, True], [False, False, True])


def test_what_follows_a_snapshot_is_of_no_other_server() -> None:
    """A snapshot's rows name none; the first rows behind it may be of its last second."""
    rows, seen = rows_of([(9_000, at(20))], NO_PRIMARY_KEY), np.full(1, ms_tso(9_000))
    assert not are_of_other_server(rows, AppliedRow(ms_tso(9_000), at(10, server=0), 1), seen).any()


FORMER, NEXT = "3e11fa47-71ca-11e1-9e33-c80aa9429562:", "00" + "11fa47-71ca-11e1-9e33-c80aa9429562:"
"""The UUIDs of two servers; the second one has a text before that of the first."""


@pytest.mark.parametrize(
    ("file", "last", "copies", "of_other"),
    [(1, 5, [0], [0, 1, 2]), (1, 6, [0, 1], [1, 2]), (9, 5, [], [0, 2]), (9, 6, [], [0, 2])],
)
@pytest.mark.parametrize("key", ["id", NO_PRIMARY_KEY])
def test_a_promoted_server_has_the_former_ones_id(
    file: int, last: int, copies: list[int], of_other: list[int], key: str
) -> None:
    """What the former server wrote has its id in the binlog of the next one, at files and positions of that: GTIDs tell
    which rows come for the first time, in the second of the last one, and which come again.  Those of the last
    transaction may be more of it."""
    told = [(1, FORMER + "5"), (1, FORMER + "6"), (2, NEXT + "1")]
    places = [place_in_binlog("up", f"binlog.{file:06}", at, server, gtid) for at, (server, gtid) in enumerate(told, 1)]
    applied = AppliedRow(ms_tso(9_000), place_in_binlog("up", "binlog.000003", 4, 1, f"{FORMER}{last}") or "", 1)
    rows, seen = rows_of([(9_000, place) for place in places], key), np.full(3, ms_tso(9_000))
    found, gone, _ = follow_binlog(rows, applied, lambda: seen)
    left_out = [row for row in copies if key == NO_PRIMARY_KEY or row < min(of_other)]
    assert (np.flatnonzero(found).tolist(), np.flatnonzero(gone).tolist()) == (copies, left_out)
    assert np.flatnonzero(are_of_other_server(rows, applied, seen)).tolist() == of_other


@pytest.mark.parametrize(
    ("mark", "last", "told", "copies"),
    [
        (10, 2, [(10, 2)], [0]),  # nothing but the very last row is sent again
        (10, 2, [(10, 4), (20, 2)], []),
        (10, 6, [(10, 2), (10, 4), (10, 6), (10, 8)], [0, 1, 2]),
        (10, 6, [(10, 4), (10, 6), (20, 2), (20, 2), (20, 4)], [0, 1, 3]),
        (10, 1, [(10, 2)], []),  # a changed key: a delete and a create of one row
        (10, 2, [(10, 1), (10, 2), (20, 2)], [0, 1]),
        (10, 0, [(10, 2), (10, 2)], [1]),
        (10, 2, [(10, 0), (10, 0)], []),  # a message that does not tell its row
        (20, 4, [(10, 2), (20, 2), (20, 4), (20, 6)], [0, 1, 2]),
    ],
)
def test_rows_of_an_event_that_are_told_apart(
    mark: int, last: int, told: list[tuple[int, int]], copies: list[int]
) -> None:
    """Which row of its event a row is tells a copy of the very last row, of tables without a key too."""
    rows = rows_of([(5, at(position)) for position, _ in told])
    indexes = pa.array([index for _, index in told], pa.int32())
    field = rows.table.schema.get_field_index("index")
    rows = replace(rows, table=rows.table.set_column(field, rows.table.schema.field(field), indexes))
    applied, seen = AppliedRow(ms_tso(5), at(mark), last), np.full(len(told), ms_tso(5))
    found, _, kept = follow_binlog(rows, applied, lambda: seen)
    assert np.flatnonzero(found).tolist() == copies
    rest = max(number for number in range(len(told)) if number not in copies) if len(copies) < len(told) else None
    assert kept.place == at(mark if rest is None else told[rest][0])
    assert kept.rows == last if rest is None else told[rest][1] in {0, kept.rows}


@pytest.mark.parametrize("cut", range(8))
def test_a_restart_in_the_middle(cut: int) -> None:
    """What is kept of the rows before tells the same of those after it."""
    told = [at(10), at(20), at(20), at(10), at(20), at(20), at(20), at(30)]
    rows = rows_of([(5, place) for place in told])

    def shown(of: Rows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.full(len(of.times), ms_tso(5))

    first = rows_of([(5, place) for place in told[:cut]])
    *_, kept = follow_binlog(first, NO_ROW, lambda: shown(first))
    rest = rows_of([(5, place) for place in told[cut:]])
    found, _, last = follow_binlog(rest, kept, lambda: shown(rest))
    left = (np.flatnonzero(found) + cut).tolist()
    assert left == [number for number in (3, 4, 5) if number >= cut]
    assert last == follow_binlog(rows, NO_ROW, lambda: shown(rows))[2]


EARLY, MOVED, LATE = (ms_tso(1_000_000 + ms) for ms in (0, 5_000, 9_000))


@pytest.mark.parametrize(("table", "is_repeated"), [("orders", True), ("orders_2024", True), ("other", False)])
def test_of_a_statement_that_does_not_tell_its_databases(table: str, is_repeated: bool) -> None:
    """The operator ran it with the databases of all names; the journal has it as it came."""
    text = "RENAME TABLE orders TO archive.orders_2024"
    ran = SchemaChange(MOVED, "archive", "", text, "cdc/0/5")
    repeated = RepeatedRows(lambda low, high: [ran] if low <= MOVED < high else [], Routes())
    schema = "archive" if table == "orders_2024" else "shop"
    rows = in_one_partition([row_change(EARLY, table, ["id"], ["id"], after=[1], schema=schema)])
    found = repeated.among(rows, np.array([EARLY]), lambda: np.array([LATE]), lambda: np.array([NO_VERDICT]))
    assert (found is not None and bool(found.all())) == is_repeated


def test_a_statement_that_was_sent_again_is_not_the_last_one() -> None:
    """The operator has skipped it behind a later one, whose rows of before are sent again too: it told no place."""
    texts = ("CREATE TABLE t (id INT PRIMARY KEY)", "TRUNCATE TABLE t", "CREATE TABLE t (id INT PRIMARY KEY)")
    times = (EARLY, MOVED + ms_tso(1000), EARLY + 1)
    changes = [SchemaChange(ts, "m", "", text, "cdc/0/5") for ts, text in zip(times, texts, strict=True)]
    repeated = RepeatedRows(lambda low, high: [one for one in changes if low <= one.commit_ts < high], Routes())
    rows = in_one_partition([row_change(MOVED, "t", ["id"], ["id"], after=[1])._replace(by_time=True)])
    found = repeated.among(rows, np.array([MOVED]), lambda: np.array([LATE]), lambda: np.array([NO_VERDICT]))
    assert found is not None
    assert found.all()


@pytest.mark.parametrize(("text", "is_repeated"), [("TRUNCATE TABLE t", True), ("ALTER TABLE t ADD c INT", False)])
def test_rows_dated_later_that_stand_before_a_schema_change(text: str, is_repeated: bool) -> None:
    """It had waited for them, and is dated by its start.  They come again behind a failover, where the last row of the
    partition, which another server wrote, does not tell that they were there."""
    ran = SchemaChange(MOVED, "m", "", text, "cdc/0/5", at(30))
    repeated = RepeatedRows(lambda low, high: [ran] if low <= MOVED < high else [], Routes())
    rows = in_one_partition([row_change(LATE, "t", ["id"], ["id"], after=[1])._replace(by_time=True, place=at(20))])
    found = repeated.among(rows, np.array([LATE]), lambda: np.array([LATE]), lambda: np.array([NO_VERDICT]))
    assert (found is not None and bool(found.all())) == is_repeated


@pytest.mark.parametrize(
    ("told", "text", "ms", "is_left_out", "is_unclear"),
    [
        (REPEATED, "TRUNCATE TABLE k", 9_000, True, False),
        (MAY_UNDO, "TRUNCATE TABLE k", 9_000, False, True),
        (MAY_UNDO, "ALTER TABLE k ADD c INT", 9_000, False, True),
        (MAY_UNDO, "TRUNCATE TABLE k", 8_000, True, False),
        (MAY_UNDO, "TRUNCATE TABLE k", 10_000, False, False),
    ],
)
def test_a_copy_that_may_undo_another_is_not_left_out_alone(
    told: int, text: str, ms: int, is_left_out: bool, is_unclear: bool
) -> None:
    """A row of a former server that came again is applied, and so is what follows it: what the server that follows it
    wrote in the second of a schema change may be on either side."""
    rows = rows_of([(ms, at(20, server=2))], "id")
    change = SchemaChange(ms_tso(9_000), "shop", "k", text, "t/0/0", at(10))
    shown = np.array([ms_tso(9_000)])
    older, first = is_older(rows.table, rows.times, shown, np.array([told]), change)
    assert (older.tolist(), first.tolist()) == ([is_left_out], [is_unclear])


COMPRESSED = (
    '{"before":%s,"after":%s,"source":{"version":"3.6.1.Final","connector":"mysql","name":"up","ts_ms":1796045093494,'
    '"snapshot":null,"db":"shop","table":"a","server_id":1,"gtid":"d26b3b23-ecbe-11f1-baa4-02fc00000001:7",'
    '"file":"binlog.000001","pos":1696,"row":%d,"thread":11,"query":null},"transaction":null,"op":"%s"}'
)
"""What Debezium 3.6.1 wrote of MySQL 8.0.31 with binlog_transaction_compression=ON: one position for all events."""
OF_TWO_EVENTS = (
    ('{"id":1,"v":3}', '{"id":1,"v":4}', 0, "u"),
    ('{"id":2,"v":4}', '{"id":2,"v":5}', 1, "u"),
    ('{"id":10,"v":0}', "null", 0, "d"),
)


def test_rows_of_a_compressed_transaction_are_not_taken_for_copies() -> None:
    """A row with the place of another one, and other values, was not sent again: nothing tells what was."""
    decode = make_decoder("debezium", DecodeOptions("UTC")).decode
    events = [decode(b'{"id":1}', (COMPRESSED % told).encode())[0] for told in OF_TWO_EVENTS]
    again = Rows(in_one_partition([*events[:2], *events[:2]]))
    assert np.flatnonzero(follow_binlog(again, NO_ROW, lambda: again.times)[0]).tolist() == [2, 3]
    first = events[0]
    assert isinstance(first, RowChange)
    former = first._replace(place=at(9, server=2), after="9")  # behind a failover, copies of two servers
    last, both = AppliedRow(ms_tso(1), first.place or "", first.index), Rows(in_one_partition([former, first]))
    assert follow_binlog(both, last, lambda: both.times)[0][1]
    rows = Rows(in_one_partition(events))
    with pytest.raises(SourceError, match=r"another one's place in the binlog.*at cdc/0/2"):
        follow_binlog(rows, NO_ROW, lambda: rows.times)
