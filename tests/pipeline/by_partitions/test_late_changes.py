"""Which schema changes came behind rows of their tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bridge.model import SchemaChange
from bridge.mysql.state.ddl_journal import DONE_BY_HAND
from bridge.pipeline.by_partitions.late_changes import AppliedPlaces, second_run
from bridge.pipeline.by_partitions.partition_queue import NO_ROW, AppliedRow
from bridge.protocols.values.event_time import place_in_binlog, place_in_gtid_set, place_of_sending
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
    found = AppliedPlaces({ONE: (NO_ROW, 0), TWO: (NO_ROW, 0)})
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
    applied = {ONE: (AppliedRow(TS, place(300)), TS), TWO: (NO_ROW, 0)}
    return bool(places.lateness(CHANGES, moment(200), change, names, applied))


@pytest.mark.parametrize(
    ("rows", "names", "expected"),
    [
        ([(1, "t", 100), (2, "u", 300)], {T}, False),
        ([(1, "T", 300), (2, "u", 100)], {T}, True),
        ([(1, "t", 100), (2, "t", 300)], {T}, True),
        ([(1, "t", 300), (1, "u", 310), (1, "t", None)], {T}, True),
        ([(1, "t", 100), (1, "t", 300)], {T, U}, True),
        ([(0, "t", 300)], {T}, True),
        ([(1, "u", 300)], None, True),
    ],
)
def test_rows_of_its_tables(
    rows: list[tuple[int, str, int | None]], names: set[tuple[str, str]] | None, *, expected: bool
) -> None:
    """The last place of each partition counts, of its own too, where a killed sender may have sent later rows first.
    Where its tables are not certain, rows of any do."""
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
    places = AppliedPlaces({ONE: (AppliedRow(TS, place(300)), TS), TWO: (NO_ROW, 0)})
    assert is_late(places, {T})
    assert not is_late(places, {T}, "CREATE TABLE t (id INT)")


@pytest.mark.parametrize(("later", "expected"), [(1, True), (0, True), (-1, False)])
def test_rows_of_a_former_server_that_came_again(later: int, *, expected: bool) -> None:
    """Behind them nothing tells of the rows of another server that came before them but the time that these had."""
    again = AppliedRow(TS - ms_tso(5000), place_in_binlog("up", "binlog.000001", 900, 7) or "")
    places = AppliedPlaces({ONE: (again, TS + later * ms_tso(1000)), TWO: (NO_ROW, 0)})
    assert is_late(places, {T}) == expected


ADD, TRUNCATE, CREATE = "ALTER TABLE t ADD c INT", "TRUNCATE TABLE t", "CREATE TABLE t (id INT)"
SWAP = "RENAME TABLE t TO tmp, u TO t, tmp TO u"
EXCHANGE = "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE u"
GTID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
OTHER = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
SECOND, MILLIS = 5000, 5137


def binlog(position: int, server: int = 1, gtid: str | None = None) -> str:
    return place_in_binlog("up", "binlog.000003", position, server, gtid) or ""


def gtids(text: str) -> str:
    return place_in_gtid_set(text) or ""


def sent(batch: int, ms: int = 0) -> str:
    return place_of_sending(1_790_000_000_000 + ms, batch) or ""


def change(text: str, ms: int = SECOND, place: str = "", position: str = "x/0/9") -> SchemaChange:
    return SchemaChange(ms_tso(ms), "m", "t", text, position, place)


BY_HAND = replace(change(SWAP, place=sent(4)), doubt=DONE_BY_HAND)
RUNS, AGAIN, PASSED_OVER, HELD = "it runs", "it runs as another one", "passed over", "held"
ANEW = "ALTER TABLE t DROP COLUMN c, ADD COLUMN c INT"
RULES = [
    ("the first one", change(ADD), [], 0, RUNS),
    ("another statement of that time", change(ADD), [change(TRUNCATE)], 0, RUNS),
    ("the same place", change(ADD, place=binlog(7)), [change(ADD, place=binlog(7))], 0, PASSED_OVER),
    ("another place", change(TRUNCATE, place=binlog(9)), [change(TRUNCATE, place=binlog(7))], 0, AGAIN),
    ("in one batch", change(CREATE, place=sent(4)), [change(CREATE, place=sent(4, ms=5))], SECOND + 9000, AGAIN),
    ("in the next batch", change(CREATE, place=sent(5)), [change(CREATE, place=sent(4))], SECOND + 9000, PASSED_OVER),
    ("in a later batch", change(TRUNCATE, place=sent(5)), [change(TRUNCATE, place=sent(4))], SECOND + 9000, HELD),
    (
        "in a later batch, with something in between",
        change(CREATE, place=sent(9)),
        [change(CREATE, place=sent(4)), change("DROP TABLE t", place=sent(5))],
        SECOND + 9000,
        HELD,
    ),
    (
        "in a lower batch after a restart",
        change(TRUNCATE, place=sent(2, ms=5000)),
        [change(TRUNCATE, place=sent(4))],
        SECOND + 9000,
        HELD,
    ),
    (
        "a DROP after a restart, with a CREATE in between",
        change("DROP TABLE t", place=sent(2, ms=5000)),
        [change("DROP TABLE t", place=sent(4)), change(CREATE, place=sent(5))],
        SECOND + 9000,
        HELD,
    ),
    (
        "a DROP after a restart, with nothing in between",
        change("DROP TABLE t", place=sent(2, ms=5000)),
        [change("DROP TABLE t", place=sent(4))],
        SECOND + 9000,
        PASSED_OVER,
    ),
    (
        "in a batch of that number after a restart",
        change(CREATE, place=sent(4, ms=5000)),
        [change(CREATE, place=sent(4))],
        SECOND + 9000,
        PASSED_OVER,
    ),
    ("another place of a swap, too", change(SWAP, place=binlog(9)), [change(SWAP, place=binlog(7))], 0, AGAIN),
    (
        "one GTID, on the next server as well",
        change(SWAP, place=binlog(4, 2, f"{GTID}:8")),
        [change(SWAP, place=binlog(900, 1, f"{GTID}:8"))],
        0,
        PASSED_OVER,
    ),
    (
        "another GTID at the same place of another server",
        change(TRUNCATE, place=binlog(7, 2, f"{GTID}:9")),
        [change(TRUNCATE, place=binlog(7, 1, f"{GTID}:8"))],
        0,
        AGAIN,
    ),
    ("Canal's set", change(SWAP, place=gtids(f"{GTID}:8")), [change(SWAP, place=gtids(f"{GTID}:8"))], 0, PASSED_OVER),
    ("and a later one", change(SWAP, place=gtids(f"{GTID}:1-9")), [change(SWAP, place=gtids(f"{GTID}:1-8"))], 0, AGAIN),
    (
        "and one of another server",
        change(SWAP, place=gtids(f"{GTID}:1-8,{OTHER}:1")),
        [change(SWAP, place=gtids(f"{GTID}:1-8"))],
        0,
        AGAIN,
    ),
    ("one millisecond and text", change(TRUNCATE, MILLIS), [change(TRUNCATE, MILLIS)], 0, PASSED_OVER),
    ("a copy of another partition", change(TRUNCATE), [change(TRUNCATE, position="x/1/4")], 0, PASSED_OVER),
    ("a second, and later ones have come", change(TRUNCATE), [change(TRUNCATE)], 6000, HELD),
    ("that no server runs twice, and later ones", change(ADD), [change(ADD)], 6000, PASSED_OVER),
    ("one that empties, within the second", change(TRUNCATE), [change(TRUNCATE)], 5999, AGAIN),
    ("one that no server runs twice", change(ADD), [change(ADD)], 5000, PASSED_OVER),
    ("with something in between", change(CREATE), [change(CREATE), change("DROP TABLE t")], 5000, AGAIN),
    ("that waited", change(CREATE), [change(CREATE), change("DROP TABLE t", 2000)], 5000, AGAIN),
    ("before it", change(CREATE), [change("DROP TABLE t", 2000), change(CREATE)], 5000, PASSED_OVER),
    ("of that table", change(CREATE), [change(CREATE), change("DROP TABLE u")], 5000, PASSED_OVER),
    ("with its database dropped", change(CREATE), [change(CREATE), change("DROP DATABASE m")], 5000, AGAIN),
    ("a swap", change(SWAP), [change(SWAP)], 5000, HELD),
    ("a swap, with a copy in between", change(SWAP), [change(SWAP), change(CREATE)], 5000, HELD),
    ("of a column that is made anew", change(ANEW), [change(ANEW)], 5000, AGAIN),
    ("of contents", change(EXCHANGE), [change(EXCHANGE)], 5000, HELD),
    ("beside one made by hand", change(TRUNCATE, place=sent(4), position="y/0/1"), [BY_HAND], 0, HELD),
    ("in the next batch to that", change(TRUNCATE, place=sent(5), position="y/0/1"), [BY_HAND], 0, RUNS),
    ("in the topic of that", change(TRUNCATE, place=sent(4)), [BY_HAND], 0, RUNS),
    ("beside one that ran", change(TRUNCATE, place=sent(4), position="y/0/1"), [replace(BY_HAND, doubt="")], 0, RUNS),
    ("a swap in milliseconds", change(EXCHANGE, MILLIS), [change(EXCHANGE, MILLIS)], 5000, PASSED_OVER),
]  # fmt: skip


@pytest.mark.parametrize(("what", "came", "before", "applied_ms", "fate"), RULES, ids=[rule[0] for rule in RULES])
def test_the_second_one(what: str, came: SchemaChange, before: list[SchemaChange], applied_ms: int, fate: str) -> None:
    """Identity decides where the message tells one; nothing that could swap back runs on a guess."""
    found = second_run(came, before, ms_tso(applied_ms))
    told = PASSED_OVER if found is None else HELD if found.doubt else RUNS if found == came else AGAIN
    assert told == fate, what
    assert found is None or found.id not in {one.id for one in before}


@pytest.mark.parametrize("text", [TRUNCATE, SWAP])
def test_one_that_meets_later_rows_is_held(text: str) -> None:
    """It may be a second one, which has waited for a lock; and rows behind it would be lost if it is not."""
    found = second_run(change(text), [change(text)], ms_tso(6000))
    assert found is not None
    assert "rows that are in the target already" in found.doubt
