"""Queues of partitions, of which prefixes are applied."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import ApplyError
from bridge.events import EVENT_SCHEMA, NO_PRIMARY_KEY, Code, RowChange, Undecodable
from bridge.model import PartitionStart
from bridge.mysql.state.progress import dump_positions, load_positions
from bridge.pipeline.applier import TRANSACTION
from bridge.pipeline.bad_input import OnBadMessage
from bridge.pipeline.by_partitions.partition_backlog import PartitionBacklog, Step
from bridge.pipeline.order import Starts
from bridge.protocols.values.event_time import place_in_binlog, place_in_gtid_set
from bridge.rows.gathering import Amount
from bridge.tso import ms_tso
from tests.support.models import partition_backlog, prefixes, run_it, steps_of, take_in
from tests.support.upstreams import TOPIC, Change, boundary, events_table, row_change, schema_change

SECOND = 1000


def row(ms: int, id_: int = 1) -> RowChange:
    return row_change(ms_tso(ms), "t", ["id"], ["id"], after=[id_])._replace(by_time=True)


def change(ms: int, text: str = "ALTER") -> Any:
    return schema_change(ms_tso(ms), text)._replace(by_time=True)


BAD = Undecodable(Code.MALFORMED, "broken")
ONE_ROW = Amount(1, 1 << 20)


def shown(found: list[Step]) -> list[object]:
    """Partition and offset of rows, text of schema changes."""
    out: list[object] = []
    for step in found:
        out += zip(step.rows["partition"].to_pylist(), step.rows["offset"].to_pylist(), strict=True)
        out += [c.text for c in step.changes]
    return out


def offsets(held: PartitionBacklog) -> list[int]:
    return [start.offset for start in held.restart_positions.values()]


@given(
    st.lists(
        st.tuples(st.text(st.sampled_from("ab1._-"), min_size=1, max_size=4), st.integers(0, 63), st.integers(1, 3)),
        min_size=1,
        max_size=70,
        unique_by=lambda drawn: drawn[:2],
    ),
    st.randoms(use_true_random=False),
)
def test_each_partition_has_its_own_events(drawn: list[tuple[str, int, int]], chance: random.Random) -> None:
    """Any number of topics and partitions, any number of messages in each, read in any order: each queue has the
    messages of its partition, in their order.  Arrow does not promise in which order it gives groups."""
    wheres = [(topic, partition) for topic, partition, _ in drawn]
    placed = [(where, offset) for where, (_, _, count) in zip(wheres, drawn, strict=True) for offset in range(count)]
    chance.shuffle(placed)
    held = partition_backlog({where: PartitionStart(0, 0, 0, 0) for where in wheres})
    events = [
        dict(zip(EVENT_SCHEMA.names, (*where, offset, *row(5000 + offset)), strict=True)) for where, offset in placed
    ]
    read = {(topic, partition): count for topic, partition, count in drawn}
    held.take_in(pa.Table.from_pylist(events, EVENT_SCHEMA), read, 0.0)
    rows = pa.concat_tables([step.rows for step in steps_of(held)]).select(["topic", "partition", "offset"]).to_pylist()
    for topic, partition, count in drawn:
        offsets_of = [r["offset"] for r in rows if (r["topic"], r["partition"]) == (topic, partition)]
        assert offsets_of == list(range(count))


LATER: list[tuple[str, int, int, bool]] = [
    ("the same millisecond is earlier", 5300, 5300, False),
    ("the next one is later", 5300, 5301, True),
    ("a whole second stands for its second", 5000, 5999, False),
    ("so the next one is later", 5000, 6000, True),
    ("a row of a whole second is earlier than a change in it", 5300, 5000, False),
]


@pytest.mark.parametrize(("what", "changed", "came", "waits"), LATER)
def test_rows_that_are_not_later_come_first(what: str, changed: int, came: int, waits: bool) -> None:
    """Beside a waiting schema change: equal counts as earlier."""
    held = prefixes(2, (0, 0, change(changed)), (1, 0, row(came)))
    assert shown(steps_of(held)) == (["ALTER", (1, 0)] if waits else [(1, 0)]), what


def at(event: Change, position: int, number: int = 3, server: int = 1, reader: str = "up") -> Any:
    return event._replace(place=place_in_binlog(reader, f"binlog.{number:06}", position, server))


def test_places_in_the_binlog_order_what_times_do_not() -> None:
    """A TRUNCATE that waited for its lock while a row was written, and another row behind it in the same second."""
    rows = [(1, 0, at(row(8000), 100)), (1, 1, at(row(9000), 200)), (1, 2, at(row(9000), 400))]
    held = prefixes(2, (0, 0, at(change(8000, "TRUNCATE"), 300)), *rows)
    assert shown(steps_of(held)) == [(1, 0), (1, 1), "TRUNCATE", (1, 2)]


def test_schema_changes_of_two_partitions_run_in_the_order_of_their_places() -> None:
    """Whatever their times are."""
    held = prefixes(2, (0, 0, at(change(8000, "second"), 300)), (1, 0, at(change(9000, "first"), 200)))
    assert shown(steps_of(held, at_end=True)) == ["first", "second"]


def restarted(held: PartitionBacklog) -> PartitionBacklog:
    """What another process makes of the positions."""
    return partition_backlog(load_positions(dump_positions(held.restart_positions)), ms_tso(10_000))


LATE: list[tuple[str, Change, bool]] = [
    ("rows behind it are in the target", at(change(9000, "TRUNCATE TABLE t"), 300), True),
    ("rows before it are", at(change(9000, "TRUNCATE TABLE t"), 500), False),
    ("what makes a table cannot be late", at(change(9000, "CREATE TABLE u (id INT)"), 300), False),
    ("unless it takes another one's place", at(change(9000, "CREATE OR REPLACE TABLE t (id INT)"), 300), True),
    ("a binlog that began anew looks like it", at(change(9000, "DROP TABLE t"), 3), True),
    ("without a place it may be dated by its start", change(8000, "TRUNCATE TABLE t"), False),
    ("of another server by its time", at(change(10_000, "TRUNCATE TABLE t"), 3, server=2), False),
    ("which does not tell within a second", at(change(9000, "TRUNCATE TABLE t"), 3, server=2), True),
    ("which is earlier", at(change(8000, "TRUNCATE TABLE t"), 3, server=2), True),
    ("of another reader it tells nothing", at(change(8000, "TRUNCATE TABLE t"), 3, reader="other"), False),
]


@pytest.mark.parametrize(("what", "event", "is_late"), LATE, ids=[case[0] for case in LATE])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_schema_change_that_comes_too_late(what: str, event: Change, is_late: bool, is_restarted: bool) -> None:
    """It says so, also when the rows were applied before a restart.  Places that cannot be compared make it late only
    where one reader went from server to server."""
    held = prefixes(2, (1, 0, at(row(9000), 400)))
    assert shown(steps_of(held)) == [(1, 0)]
    held = restarted(held) if is_restarted else held
    take_in(held, (0, 0, event))
    [step] = steps_of(held, at_end=True)
    assert bool(step.changes[0].doubt) is is_late, what
    assert not is_late or "rows of cdc/1" in step.changes[0].doubt


ALTERS = "ALTER TABLE t ADD COLUMN v INT"


@pytest.mark.parametrize(
    ("of_t", "of_u", "text", "is_restarted", "is_late"),
    [
        *((100, 300, ALTERS, False, False), (300, 100, ALTERS, False, True), (300, 100, ALTERS.upper(), False, True)),
        (100, 300, "DROP DATABASE m", False, True),
        (100, 300, ALTERS, True, True),  # progress keeps the last row of each partition, of whichever table
    ],
)
def test_only_rows_of_its_tables_make_one_late(
    of_t: int, of_u: int, text: str, is_restarted: bool, is_late: bool
) -> None:
    """Rows of another table that stand behind it do not hold it."""
    held = prefixes(3, (1, 0, at(row(9000), of_t)), (2, 0, at(row(9000)._replace(table="u"), of_u)))
    assert len(steps_of(held)) == 1
    held = restarted(held) if is_restarted else held
    take_in(held, (0, 0, at(change(9000, text), 200)))
    [step] = steps_of(held, at_end=True)
    assert ("it came too late: rows of cdc/" in step.changes[0].doubt) is is_late


@pytest.mark.parametrize(
    ("text", "server", "reader", "is_held"),
    [
        ("TRUNCATE TABLE t", 2, "up", True), ("RENAME TABLE t TO u", 2, "up", True), ("DROP TABLE v", 2, "up", False),
        ("ALTER TABLE t ADD COLUMN x INT", 2, "up", False), ("TRUNCATE TABLE t", 1, "up", False),
        ("TRUNCATE TABLE t", 2, "other", False),
    ],
)  # fmt: skip
def test_rows_of_another_server_in_its_second(text: str, server: int, reader: str, is_held: bool) -> None:
    """Nothing tells whether they come before or behind what takes rows away: they wait, and it is held.  One reader
    goes from server to server; another one reads an upstream of its own."""
    held = prefixes(2, (0, 0, at(change(9000, text), 100)), (1, 0, at(row(9000), 900, server=server, reader=reader)))
    [first, *_] = [step for step in steps_of(held, at_end=True) if step.changes]
    assert ("by another server" in first.changes[0].doubt) is is_held
    assert first.rows.num_rows == (0 if is_held or server == 1 else 1)


@pytest.mark.parametrize(("ms", "rows"), [(8000, 0), (9000, 0), (11_000, 1)])
def test_rows_of_another_server_wait_for_the_next_schema_change_of_a_second(ms: int, rows: int) -> None:
    """A statement of another table, behind which one stands that takes these rows away; it is dated by its start."""
    first, second = at(change(9000, "ALTER TABLE v ADD COLUMN x INT"), 100), at(change(ms, "RENAME TABLE t TO u"), 200)
    held = prefixes(2, (0, 0, first), (0, 1, second), (1, 0, at(row(9000), 900, server=2)))
    [step, *_] = [step for step in steps_of(held, at_end=True) if step.changes]
    assert (step.rows.num_rows, step.changes[0].doubt) == (rows, "")


def test_a_binlog_that_begins_anew_is_not_compared_with_the_one_before() -> None:
    """RESET MASTER: in one partition places go back while times go on, which nothing that is sent again does."""
    hour = 3_600_000
    rows = [at(row(hour), 500, 120), at(row(2 * hour), 700, 120), at(row(30 * hour), 900)]
    reset = at(change(20 * hour, "TRUNCATE"), 300)
    held = prefixes(3, (0, 0, reset), *((1, offset, event) for offset, event in enumerate(rows)), (2, 0, rows[0]))
    assert shown(steps_of(held, at_end=True)) == [(1, 0), (2, 0), (1, 1), "TRUNCATE", (1, 2)]
    held = prefixes(
        2, (0, 0, at(change(50 * hour, "TRUNCATE"), 300)), *((1, n, event) for n, event in enumerate(rows[:2]))
    )
    assert shown(steps_of(held, at_end=True)) == [(1, 0), (1, 1), "TRUNCATE"], "a day earlier, without a row behind it"
    again = [at(row(9000), 400), at(row(7000), 500), at(row(9000), 400), at(row(7000), 500)]
    held = prefixes(2, (0, 0, at(change(8000, "TRUNCATE"), 450)), *((1, n, event) for n, event in enumerate(again)))
    assert shown(steps_of(held, at_end=True))[:2] == [(1, 0), "TRUNCATE"], "what is sent again"


def test_positions_have_the_last_place_in_the_target() -> None:
    """That of the rows of a step; rows without a place leave it as it was."""
    held = prefixes(2, (1, 0, at(row(1000), 100)), (1, 1, at(row(2000), 200)), (1, 2, row(3000)), (0, 0, row(9000)))
    places = [held.restart_positions[TOPIC, 1].place]
    while held.next_step(run_it, ONE_ROW):
        places.append(held.restart_positions[TOPIC, 1].place)
        held.release()
    assert places == ["", *[at(row(1), position).place for position in (100, 200, 200, 200)]]
    assert held.restart_positions[TOPIC, 0].place == ""


def wide(ms: int, *columns: str, table: str = "t", gone: bool = False) -> RowChange:
    """A row with these columns beside its key; gone: a delete that holds the key alone."""
    if gone:
        return row_change(ms_tso(ms), table, ["id"], ["id"], before=[1])._replace(by_time=True)
    return row_change(ms_tso(ms), table, ["id", *columns], ["id"], after=[1, *columns])._replace(by_time=True)


DROP = "ALTER TABLE t DROP COLUMN a"
ADD = "ALTER TABLE t ADD COLUMN b INT NOT NULL"
BY_COLUMNS: list[tuple[str, str, list[Change], int]] = [
    ("with the column: before, though written later", DROP, [wide(60_000, "a")], 1),
    ("without it: behind, though in its second", DROP, [wide(9000)], 0),
    ("without it, before one that still has it: of before the column", DROP, [wide(60_000), wide(60_001, "a")], 2),
    ("each for itself", DROP, [wide(60_000, "a"), wide(60_000)], 1),
    ("what comes before a row that is before, too", DROP, [wide(60_000, table="u"), wide(60_000, "a")], 2),
    ("rows of other tables go by time", DROP, [wide(60_000, "a", table="u")], 0),
    ("a delete may hold the key alone", DROP, [wide(9000, gone=True), wide(60_000, "a")], 2),
    ("names in any case", "ALTER TABLE M.T DROP COLUMN A", [wide(60_000, "a")], 1),
    ("a renamed column", "ALTER TABLE t RENAME COLUMN a TO b", [wide(60_000, "a"), wide(60_000, "b")], 1),
    ("a changed one", "ALTER TABLE t CHANGE a b INT", [wide(60_000, "a"), wide(9000, "b")], 1),
    ("one that changes its type keeps its name", "ALTER TABLE t CHANGE a a INT", [wide(60_000, "a")], 0),
    ("one that comes again at once, too", "ALTER TABLE t DROP a, ADD a INT", [wide(60_000, "a")], 0),
    ("with one that comes: behind, though in its second", ADD, [wide(9000, "b")], 0),
    ("and before such a row: before, though written later", ADD, [wide(60_000), wide(60_001), wide(60_001, "b")], 2),
    ("other tables between them go by time", ADD, [wide(60_000), wide(60_001, table="u"), wide(60_001, "b")], 1),
    ("without such a row by time", ADD, [wide(9000), wide(60_000)], 1),
    ("a TRUNCATE tells nothing", "TRUNCATE TABLE t", [wide(60_000, "a")], 0),
]


@pytest.mark.parametrize(("what", "text", "rows", "before"), BY_COLUMNS, ids=[case[0] for case in BY_COLUMNS])
def test_columns_tell_on_which_side_a_row_is(what: str, text: str, rows: list[Change], before: int) -> None:
    """Of a schema change that is dated by the second in which it began, whatever the clock says."""
    later = wide(99_000, table="u")
    held = prefixes(2, (0, 0, change(9000, text)), *((1, offset, row) for offset, row in enumerate([*rows, later])))
    assert shown(steps_of(held))[: before + 1] == [*((1, offset) for offset in range(before)), text], what


def test_columns_tell_nothing_where_they_may_have_come_again() -> None:
    """Behind the next schema change of the table; nor where the time is exact, or the place tells."""
    again = [(0, 0, change(9000, DROP)), (0, 1, change(20_000, "ALTER TABLE t ADD COLUMN a INT"))]
    rows = [(1, 0, wide(10_000, "a")), (1, 1, wide(30_000, "a"))]
    held = prefixes(2, *again, *rows)
    assert shown(steps_of(held))[:2] == [(1, 0), DROP]
    held = prefixes(2, (0, 0, change(9001, DROP)), *rows)
    assert shown(steps_of(held))[:1] == [DROP]
    held = prefixes(2, (0, 0, at(change(9000, DROP), 300)), (1, 0, at(wide(9000, "a"), 400)))
    assert shown(steps_of(held))[:1] == [DROP]


UNREADABLE = Undecodable(Code.SCHEMA_CHANGE, "no statement")


def test_a_schema_change_that_cannot_be_read_holds_back_all_partitions() -> None:
    """Nobody knows what it changes, nor when; what came before it in its partition is applied."""
    rows = [(1, 0, at(row(9000), 50)), (1, 1, at(row(9000), 200)), (2, 0, row(1000)), (2, 1, row(7000))]
    held = prefixes(3, (0, 0, at(row(5000), 100)), (0, 1, UNREADABLE), *rows)
    assert shown(steps_of(held)) == [(0, 0)]
    assert offsets(held) == [1, 0, 0]
    held = partition_backlog(held.restart_positions, ms_tso(10_000))
    take_in(held, (0, 1, UNREADABLE), *rows)
    assert steps_of(held, at_end=True) == [], "after a restart as well"
    assert [bad.entry.position.offset for bad in held.bad()] == [1]


def test_schema_changes_before_an_unreadable_one_run() -> None:
    """With the rows before them, of a former server and of a newer one; then the bridge stops."""
    changes = [(0, 0, at(change(5000, "A"), 100, 1)), (0, 1, at(change(8000, "B"), 100, 1, 2)), (0, 2, UNREADABLE)]
    held = prefixes(2, *changes, (1, 0, at(row(6000), 200, 1)), (1, 1, at(row(9000), 200, 1, 2)))
    assert shown(steps_of(held)) == ["A", (1, 0), "B"]
    assert [bad.entry.position.offset for bad in held.bad()] == [2]


def test_a_bad_message_behind_the_end_of_a_replay_is_nobodys_matter() -> None:
    """What it holds back comes behind `until`, too."""
    held = prefixes(2, until=ms_tso(5000))
    bad = Undecodable(Code.MALFORMED, "it is no JSON", message_value="")
    take_in(held, (0, 0, row(1000)), (0, 1, row(6000)), (0, 2, bad), (0, 3, change(7000, "LATER")))
    take_in(held, (1, 0, row(2000)), (1, 1, row(8000)))
    assert shown(steps_of(held)) == [(0, 0), (1, 0)]
    assert held.bad() == []
    assert held.is_at_bound


def test_a_partition_that_is_still_read_holds_back_by_places() -> None:
    """What is unread of it is behind its last place, though its times may go back."""
    held = prefixes(2, (0, 0, at(change(9000, "A"), 100)), (1, 0, at(row(8500), 99)), (1, 1, at(row(8500), 400)))
    held.hold_for({(TOPIC, 0): 2})
    assert shown(steps_of(held)) == [(1, 0), "A"]
    take_in(held, (0, 1, at(change(8000, "B"), 300)))
    held.hold_for({})
    assert shown(steps_of(held)) == ["B", (1, 1)]


def test_a_schema_change_waits_for_every_partition() -> None:
    """It runs when each has a later row, and what comes behind it comes behind it."""
    held = prefixes(3, (0, 0, row(1)), (0, 1, change(5)), (0, 2, row(6)), (1, 0, row(4)), (1, 1, row(7)))
    assert shown(steps_of(held)) == [(0, 0), (1, 0)]
    assert held.held_by() == [(TOPIC, 2)]
    assert offsets(held) == [1, 1, 0]
    take_in(held, (2, 0, row(2)), (2, 1, row(SECOND)))
    assert shown(steps_of(held)) == [(2, 0), "ALTER", (0, 2), (1, 1), (2, 1)]
    assert offsets(held) == [3, 2, 2]


def test_a_partition_counts_as_idle_from_when_the_change_was_read() -> None:
    """Not from its own last message; what it brings before it is excused starts the time anew."""
    held = prefixes(2, (1, 0, row(1)))
    assert shown(steps_of(held)) == [(1, 0)]
    take_in(held, (0, 0, change(SECOND)), now=100)
    assert steps_of(held) == []
    assert held.silent(104.9, 5) == {}
    take_in(held, (1, 1, row(2)), now=104)
    assert shown(steps_of(held)) == [(1, 1)]
    assert held.silent(108.9, 5) == {}
    assert held.silent(109, 5) == {(TOPIC, 1): 2}
    held.count_as_passed((TOPIC, 1))
    assert shown(steps_of(held)) == ["ALTER"]


def test_an_excuse_ends_when_the_partition_brings_something() -> None:
    """A partition that was idle, and is not any more, is waited for again."""
    held = prefixes(3, (0, 0, change(SECOND)))
    assert steps_of(held) == []
    held.count_as_passed((TOPIC, 1))
    take_in(held, (1, 0, row(2)))
    held.count_as_passed((TOPIC, 2))
    assert shown(steps_of(held)) == [(1, 0)]
    assert held.held_by() == [(TOPIC, 1)]


def test_the_earliest_schema_change_comes_first() -> None:
    """By time, then by partition; later ones of other partitions are passed."""
    held = prefixes(3, (0, 0, change(9, "late")), (1, 0, change(3, "early")), (2, 0, row(4)), (2, 1, row(10)))
    assert shown(steps_of(held)) == ["early", (2, 0)]
    assert shown(steps_of(held, at_end=True)) == ["late", (2, 1)]


def test_a_change_that_must_not_run_is_taken_out() -> None:
    """A copy, or one the filter leaves out, holds nobody back."""
    held = prefixes(2, (0, 0, change(3, "copy")), (0, 1, row(4)), (1, 0, row(5)), (1, 1, row(2)))
    step = held.next_step(lambda *_: None, TRANSACTION)
    assert step is not None
    assert shown([step]) == [(0, 1), (1, 0), (1, 1)]
    assert offsets(held) == [2, 2]


def test_until_stops_each_partition_at_its_first_row_at_or_above() -> None:
    """A prefix stays one; a schema change above it is not run; below it nobody is waited for that stands there."""
    held = prefixes(
        2, (0, 0, row(1)), (0, 1, row(5)), (0, 2, row(2)), (1, 0, change(3)), (1, 1, change(5, "no")), until=ms_tso(5)
    )
    assert not held.is_at_bound
    assert shown(steps_of(held)) == [(0, 0), "ALTER"]
    assert offsets(held) == [1, 1]
    assert held.is_at_bound


def test_what_lies_below_the_start_counts_as_applied() -> None:
    """With --from: everything below it; with a floor: only what has a TSO below it."""
    starts: Starts = {(TOPIC, 0): PartitionStart(0, 0, 0, ms_tso(9))}
    held = partition_backlog(starts, start_ts=ms_tso(5))
    with_tso = row(8)._replace(by_time=False)
    dropped = held.take_in(
        events_table(
            [(0, 0, row(4)), (0, 1, row(8)), (0, 2, with_tso), (0, 3, with_tso._replace(commit_ts=ms_tso(9)))]
        ),
        {(TOPIC, 0): 4},
        0.0,
    )
    assert dropped == 2
    assert shown(steps_of(held)) == [(0, 1), (0, 3)]


@pytest.mark.parametrize(
    ("event_ms", "begin", "is_dropped"),
    [
        (2_345, ms_tso(2_345), False),
        (2_345, ms_tso(2_345) + 77, False),  # a TSO in this millisecond: the row may be behind it
        (2_345, ms_tso(2_346), True),
        (2_000, ms_tso(2_345), False),  # whole seconds mean all of the second
        (2_000, ms_tso(2_999) + 77, False),
        (2_000, ms_tso(3_000), True),
    ],
)
def test_what_may_lie_behind_the_start_is_applied(event_ms: int, begin: int, *, is_dropped: bool) -> None:
    """An event time tells less than a commit ts: a row is dropped only where it surely lies below --from."""
    held = partition_backlog({(TOPIC, 0): PartitionStart(0, 0, 0, 0)}, start_ts=begin)
    dropped = held.take_in(events_table([(0, 0, row(event_ms))]), {(TOPIC, 0): 1}, 0.0)
    assert dropped == int(is_dropped)


def test_positions_are_exact() -> None:
    """Each transaction's: behind the last message of each partition whose rows it holds; a message is one."""
    many = [(0, 1, row(3, i)._replace(index=i)) for i in range(3)]
    held = prefixes(2, (0, 0, row(1)), *many, (0, 5, row(9)), (1, 7, row(2)))
    numbers, found = list[int](), [offsets(held)]
    while step := held.next_step(run_it, ONE_ROW):
        numbers += step.rows["commit_ts"].to_pylist()
        found.append(offsets(held))
        held.release()
    assert [n - numbers[0] for n in numbers] == [ms_tso(ms - 1) for ms in (1, 2, 3, 3, 3, 9)]
    assert found == [[0, 7], [1, 7], [1, 8], [5, 8], [6, 8]]


def test_a_bad_message_stops_all_partitions() -> None:
    """Under `stop`: a schema change of whatever time may be behind it."""
    held = prefixes(2, (0, 0, row(1)), (0, 1, BAD), (0, 2, row(2)), (1, 0, row(3)), (1, 1, change(4)), (1, 2, row(5)))
    assert shown(steps_of(held, at_end=True)) == [(0, 0)]
    assert [bad.entry.position.offset for bad in held.bad()] == [1]
    assert offsets(held) == [1, 0]


def test_a_bad_message_is_put_aside_by_the_transaction_that_passes_it() -> None:
    """Under `quarantine`: once, with the first positions behind it."""
    held = prefixes(
        2,
        (0, 0, row(1)),
        (0, 1, BAD),
        (0, 2, row(5)),
        (1, 0, row(3)),
        on_bad_message=OnBadMessage(quarantine=True, protocol="ckafka"),
    )
    assert held.quarantined == ()
    found = []
    while held.next_step(run_it, ONE_ROW):
        found.append([entry.position.offset for entry in held.quarantined])
        held.release()
    assert found == [[1], [], []]
    assert held.quarantined == ()


def test_what_waits_is_counted_in_bytes_too() -> None:
    """A few rows may be all that the memory holds, and more than one step has."""
    held = partition_backlog({(TOPIC, 0): PartitionStart(0, 0, 0, 0)}, most=Amount(1000, 2000))
    rows = [row_change(ms_tso(n), "t", ["id"], ["id"], after=[f"{n}" * 1000])._replace(by_time=True) for n in (1, 2, 3)]
    held.take_in(events_table((0, n, row) for n, row in enumerate(rows)), {(TOPIC, 0): 3}, 0.0)
    assert held.queues[TOPIC, 0].bytes_in_memory > 2000
    held.spill()
    assert held.queues[TOPIC, 0].bytes_in_memory == 0
    steps = [held.next_step(run_it, Amount(1000, 2000)) for _ in range(3)]
    assert [step and step.rows["offset"].to_pylist() for step in steps] == [[0], [1], [2]]


def test_what_waits_beyond_the_memory_goes_to_disk() -> None:
    """And comes back the same."""
    placed = [(1, offset, row(10 + offset, offset)) for offset in range(9)]
    held = prefixes(2, (0, 0, change(5)), *placed, most=Amount(2, 1 << 20))
    assert steps_of(held) != []
    held = prefixes(3, (0, 0, change(5)), *placed, most=Amount(2, 1 << 20))
    assert steps_of(held) == []
    held.spill()
    take_in(held, (2, 0, row(99)))
    found = steps_of(held, Amount(2, 1 << 20))
    assert shown(found) == ["ALTER", *((1, offset) for offset in range(9)), (2, 0)]
    assert max(step.rows.num_rows for step in found) <= 2
    assert [literal for step in found for literal in step.rows["after"].to_pylist()][:9] == [str(i) for i in range(9)]


def test_boundaries_take_over_where_all_have_reached_the_same_moment() -> None:
    """Rows at or above it wait meanwhile; progress then stands at that moment, the frontier where boundaries were."""
    with_tso = row(50)._replace(by_time=False)
    held = prefixes(2, (0, 0, row(3)), (0, 1, boundary(ms_tso(4))), (1, 0, row(9)))
    assert len(steps_of(held)) == 1
    assert held.settle() is None, "partition 1 has no boundary behind its last change without a TSO"
    take_in(held, (1, 1, boundary(ms_tso(4))))
    assert held.settle() is None
    assert held.settling is not None
    take_in(held, (0, 2, with_tso), (0, 3, boundary(ms_tso(60))), (1, 2, boundary(ms_tso(70))))
    assert steps_of(held) == []
    ts = held.settle()
    assert ts == ms_tso(9) + 1
    assert held.settled_positions(ts) == {
        (TOPIC, 0): PartitionStart(2, ts, 4),
        (TOPIC, 1): PartitionStart(3, ms_tso(70), 3),
    }
    held.end()
    assert held.settle() is None
    assert shown(steps_of(held)) == [(0, 2)]


def test_nothing_overtakes_what_is_still_being_read() -> None:
    """A partition that is not read to its end may hold a schema change: rows with a later time than its last one wait,
    as after a start far behind."""
    held = prefixes(3, (0, 0, row(1)), (0, 1, row(4)), (1, 0, row(2)), (1, 1, row(5)), (2, 0, row(9)))
    held.hold_for({(TOPIC, 0): 4, (TOPIC, 1): 2, (TOPIC, 2): 1})
    assert shown(steps_of(held)) == [(0, 0), (1, 0), (0, 1)]
    assert held.slowest() == (TOPIC, 0)
    take_in(held, (0, 2, change(4)), (0, 3, row(9)))
    held.hold_for({(TOPIC, 0): 4, (TOPIC, 1): 2, (TOPIC, 2): 1})
    assert held.slowest() is None
    assert shown(steps_of(held)) == ["ALTER", (1, 1), (0, 3), (2, 0)]


def test_a_waiting_schema_change_is_not_passed_by_what_is_held_for_another_reason() -> None:
    """A row that waits for a slower partition, and is not later than the schema change, comes before it."""
    held = prefixes(3, (0, 0, change(SECOND + 8)), (1, 0, row(6)), (1, 1, row(SECOND + 9)), (2, 0, row(3)))
    held.hold_for({(TOPIC, 2): 2})
    assert shown(steps_of(held)) == [(2, 0)]
    take_in(held, (2, 1, row(SECOND + 10)))
    held.hold_for({})
    assert shown(steps_of(held)) == [(1, 0), "ALTER", (1, 1), (2, 1)]


@pytest.mark.parametrize("ms", [(1000, 1000, 1000, 1000), (1200, 1250, 1310, 1400)], ids=["of a second", "exact"])
def test_a_copy_behind_later_rows_of_its_partition_waits_for_them(ms: tuple[int, int, int, int]) -> None:
    """A TRUNCATE that comes again in another partition than at first, behind rows of its partition that were written
    later, is run where it came first.  Where it came so alone it is held, as it would take those rows away."""
    truncate, rename = at(change(ms[1], "TRUNCATE TABLE t"), 200), at(change(ms[3], "RENAME TABLE t TO u"), 400)
    early, late = at(row(ms[0], 1), 100), at(row(ms[2], 2), 300)
    copies = [(1, 0, early), (1, 1, late), (1, 2, truncate)]
    found = steps_of(prefixes(3, (2, 0, truncate), (0, 0, rename), *copies), at_end=True)
    assert shown(found)[:5] == [(1, 0), truncate.statement, (1, 1), truncate.statement, rename.statement]
    assert [bool(one.doubt) for step in found for one in step.changes] == [False, True, False]
    alone = steps_of(prefixes(2, *copies), at_end=True)
    assert shown(alone) == [(1, 0), (1, 1), truncate.statement]
    assert alone[-1].changes[0].doubt


def test_its_own_partition_tells_what_came_before_a_failover() -> None:
    """A new server's clock is behind: what its partition holds before a schema change is before it all the same."""
    held = prefixes(1, (0, 0, at(row(3000), 500)))
    assert steps_of(held)
    take_in(held, (0, 1, at(change(1000, "TRUNCATE TABLE t"), 4, server=2)))
    assert [one.doubt for step in steps_of(held, at_end=True) for one in step.changes] == [""]


def test_a_row_passes_no_schema_change_of_its_upstream() -> None:
    """Also where one of another upstream, of the same second, is the earliest."""
    other, own = at(change(1000, "CREATE TABLE o"), 100, reader="a"), at(change(1000, "CREATE TABLE t"), 100)
    held = prefixes(3, (0, 0, other), (1, 0, own), (2, 0, at(row(1000), 200)))
    assert shown(steps_of(held, at_end=True)) == [other.statement, own.statement, (2, 0)]


BINLOG = place_in_binlog("up", "binlog.000001", 4, "1")


@pytest.mark.parametrize(
    ("partitions", "key", "place", "stops"),
    [
        (2, NO_PRIMARY_KEY, BINLOG, True),
        (
            2,
            NO_PRIMARY_KEY,
            place_in_binlog("up", "binlog.000001", 4, "1", "3e11fa47-71ca-11e1-9e33-c80aa9429562:7"),
            True,
        ),
        (1, NO_PRIMARY_KEY, BINLOG, False),
        (2, "id", BINLOG, False),
        (2, NO_PRIMARY_KEY, place_in_gtid_set("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7"), False),  # Canal: partition 0
        (2, NO_PRIMARY_KEY, None, False),
    ],
)
def test_debeziums_rows_without_a_key_stop_in_a_topic_of_several_partitions(
    partitions: int, key: str, place: str | None, stops: bool
) -> None:
    """The producer gives them to any partition, also when it sends them again: nothing tells a copy there, so that the
    bridge stops before the first of them instead of doubling rows in silence."""
    held, one = prefixes(partitions), row(5)._replace(key=key, place=place)
    if stops:
        with pytest.raises(ApplyError, match=rf"rows of m\.t have no key in a topic of 2 partitions.*at {TOPIC}/1/0"):
            take_in(held, (0, 0, row(4)), (1, 0, one))
    else:
        take_in(held, (partitions - 1, 0, one))
        assert shown(steps_of(held)) == [(partitions - 1, 0)]
