"""Which rows of the log are in a table now, after schema changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bridge.model import Column, Table, TableName
from bridge.protocols.values.event_time import place_in_gtid_set
from bridge.tso import ms_tso, tso_ms
from bridge.verify.log.coverage import WAITS_MS, Coverage, Cut, LoggedChange, ambiguous, coverage_of
from bridge.verify.log.logged_rows import LogPlan, row_groups, steps
from bridge.verify.log.recompute import logged_changes
from tests.generated.verifying import expected_table
from tests.support.upstreams import events_table, row_change, schema_change

T = TableName("app", "t")


def told(*statements: str, names: tuple[TableName, ...] = (), **known: Any) -> Coverage:
    """What the log tells after statements, the first of which comes at 1."""
    changes = [LoggedChange(ts, False, "app", text, {}) for ts, text in enumerate(statements, start=1)]
    return coverage_of(names, changes, **known)


CUTS = [
    (["ALTER TABLE t ADD COLUMN a INT"], 1),
    (["ALTER TABLE t ADD INDEX (a)"], 1),
    (["ALTER TABLE t DEFAULT CHARSET latin1"], 1),
    (["ALTER TABLE t COMMENT 'x', ADD PARTITION (PARTITION p VALUES IN (1))"], 0),
    *((["TRUNCATE TABLE t"], 1), (["DROP TABLE t"], 1), (["DROP TABLE app.x, app.t"], 1), (["DROP DATABASE app"], 1)),
    *((["RENAME TABLE t TO u"], 1), (["RENAME TABLE u TO t"], 1), (["ALTER TABLE t RENAME TO u"], 1)),
    (["RENAME TABLE t TO u", "DROP TABLE u"], 1),
    (["RENAME TABLE t TO u", "CREATE TABLE t (a INT)"], 2),
    (["TRUNCATE t", "RENAME TABLE t TO x, u TO t, x TO u"], 2),
    (["CREATE TABLE t (a INT)"], 1),
    (["CREATE TABLE IF NOT EXISTS t (a INT)"], 0),
    (["ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u"], 1),
    (["ALTER TABLE T DROP COLUMN a"], 1),
    (["DROP TABLE other.t"], 0),
]


@pytest.mark.parametrize("case", CUTS, ids=[" ; ".join(case[0]) for case in CUTS])
def test_rows_count_behind_the_last_statement_that_touched_their_table(case: tuple[list[str], int]) -> None:
    """What rows from before it have become, and where they are, only the upstream tells."""
    statements, last = case
    cut = told(*statements, names=(T,)).of(T).cut
    assert (cut.moment.last if cut else 0) == last


@pytest.mark.parametrize(
    ("statement", "is_cut"),
    [
        ("ALTER TABLE t ADD UNIQUE (a), DROP KEY b, DROP CONSTRAINT c", False),
        ("CREATE UNIQUE INDEX a ON t (a)", False),
        ("ALTER TABLE t DROP PRIMARY KEY", True),
        ("ALTER TABLE t ADD PRIMARY KEY (a)", True),
        ("ALTER TABLE t ADD COLUMN b INT UNIQUE", True),
    ],
)
def test_other_keys_than_the_primary_one_tell_no_rows_apart(statement: str, is_cut: bool) -> None:
    """Where a table has a primary key, indexes come and go without a cut."""
    assert (told(statement, names=(T,), primary={("app", "t")}).of(T).cut is not None) is is_cut


WHOLE = [
    (["CREATE TABLE t (a INT)"], {"t"}, set()),
    (["CREATE TABLE IF NOT EXISTS t (a INT)"], set(), set()),
    (["DROP TABLE t", "CREATE TABLE IF NOT EXISTS t (a INT)"], {"t"}, set()),
    (["TRUNCATE t"], {"t"}, set()),
    (["CREATE TABLE t (a INT)", "RENAME TABLE t TO u"], set(), {"t"}),
    (["CREATE TABLE t (a INT)", "DROP TABLE t"], set(), {"t"}),
    (["DROP TABLE t", "CREATE TABLE t (a INT)"], {"t"}, set()),
    (["CREATE TABLE t (a INT)", "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u"], set(), set()),
    (["CREATE TABLE t (a INT)", "DROP DATABASE app"], set(), {"t"}),
    (["CREATE TABLE t (a INT)", "ALTER TABLE t DROP COLUMN a"], set(), set()),
    (["ALTER TABLE t DROP COLUMN a", "TRUNCATE t"], {"t"}, set()),
]


@pytest.mark.parametrize("case", WHOLE, ids=[" ; ".join(case[0]) for case in WHOLE])
def test_tables_that_the_log_holds_wholly(case: tuple[list[str], set[str], set[str]]) -> None:
    """A table that the log saw made or emptied holds nothing else; one that it saw dropped is not there."""
    statements, whole, dropped = case
    tables = told(*statements).tables.values()
    assert {one.name.table for one in tables if one.is_whole(has_earlier_rows=True)} == whole
    assert {one.name.table for one in tables if one.is_there is False} == dropped


def test_a_table_that_is_altered_before_its_first_row_is_still_held_wholly() -> None:
    """As by a script that makes a table in several steps: it has no rows from before the last of them."""
    texts = ["CREATE TABLE t (a INT)", "ALTER TABLE t ADD PRIMARY KEY (a)", "ALTER TABLE t MODIFY a BIGINT"]
    coverage = told(*texts, names=(T,))
    assert [coverage.of(T).is_whole(has_earlier_rows=one) for one in (False, True)] == [True, False]
    plan = LogPlan((), coverage.tables, 1 << 62)
    for ts, is_covered in ((4, True), (3, False), (1, False)):
        row = row_change(ts, "t", ["id"], ["id"], after=[1])._replace(schema="app")
        assert [group.is_covered for group in row_groups(plan, events_table([(0, 1, row)]))] == [is_covered]
    exchanged = "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u"
    assert not told(*texts[:2], exchanged, texts[2]).of(T).is_whole(has_earlier_rows=False)


def test_a_log_that_has_lost_its_beginning_holds_no_table_wholly() -> None:
    """Of tables made behind what was lost it does."""
    texts = ["CREATE TABLE t (a INT)", "CREATE TABLE u (a INT)", "CREATE TABLE v (a INT)", "TRUNCATE u"]
    for since, whole in ((0, {"t", "u", "v"}), (2, {"u", "v"}), (4, set())):
        tables = told(*texts, since=since).tables.values()
        assert {one.name.table for one in tables if one.is_whole(has_earlier_rows=True)} == whole


@pytest.mark.parametrize("statement", ["TRUNCATE TABLE t", "ALTER TABLE t ADD COLUMN a INT", "CREATE TABLE t (a INT)"])
@pytest.mark.parametrize(("ms", "last"), [(4001, 9000), (9001, 9001)])
def test_rows_behind_a_schema_change_from_before_what_is_lost(statement: str, ms: int, last: int) -> None:
    """Also those of its own partition count behind what is lost: another partition may have told more of them."""
    change = LoggedChange(ms_tso(ms), True, "app", statement, {("x", 0): 7})
    cut = coverage_of([T], [change], ms_tso(9000)).of(T).cut
    assert cut is not None
    assert (tso_ms(cut.moment.last), bool(cut.offsets)) == (last, last > 9000)


@pytest.mark.parametrize(
    ("statement", "begin", "last", "is_whole", "is_there"),
    [
        ("CREATE TABLE t (a INT)", 9, 8, False, True),
        ("CREATE TABLE t (a INT)", 1, 1, True, True),
        ("ALTER TABLE t ADD COLUMN a INT", 9, 8, False, True),
        ("DROP TABLE t", 9, 1, False, False),
    ],
)
def test_rows_of_a_filtered_table_count_behind_its_copy(
    statement: str, begin: int, last: int, is_whole: bool, is_there: bool
) -> None:
    """The copy had no filter.  What was made or emptied later holds nothing of it, and what was dropped is gone."""
    coverage = told(statement, names=(T,))
    coverage.begin_filtered(T, begin)
    of_table = coverage.of(T)
    assert of_table.cut is not None
    found = of_table.cut.moment.last, of_table.is_whole(has_earlier_rows=False), of_table.is_there
    assert found == (last, is_whole, is_there)


def test_event_times_in_whole_seconds_stand_for_their_second() -> None:
    """Equal times count as earlier than the schema change."""
    whole = LoggedChange(ms_tso(5000), True, "app", "TRUNCATE t", {("x", 0): 7})
    assert Cut.of(whole).moment.last == ms_tso(6000) - 1
    exact = LoggedChange(ms_tso(5001), True, "app", "TRUNCATE t", {("x", 0): 7})
    assert Cut.of(exact).moment.last == ms_tso(5002) - 1


@pytest.mark.parametrize(
    "statement", ["TRUNCATE t", "RENAME TABLE t TO x, u TO t, x TO u", "ALTER TABLE t DROP COLUMN a", "DROP TABLE t"]
)
def test_rows_beside_a_statement_that_may_have_waited(statement: str) -> None:
    """Only its place tells its end, as it is dated by its start in whole seconds: nothing tells of rows of other
    partitions for as long as it may have waited; those of its own partition stand behind it."""
    dated = LoggedChange(ms_tso(5000), True, "app", statement, {("cdc", 0): 7})
    row = row_change(0, "t", ["id"], ["id"], after=[1])._replace(schema="app", by_time=True)
    for partition, ms, is_covered, is_unclear in (
        *((0, 5000, True, False), (1, 4999, False, False), (1, 5001 + WAITS_MS, True, False)),
        *((1, 5000, False, True), (1, 5000 + WAITS_MS, False, True)),
    ):
        plan = LogPlan((), coverage_of([T], [dated]).tables, 1 << 62)
        [group] = row_groups(plan, events_table([(partition, 9, row._replace(commit_ts=ms_tso(ms)))]))
        assert (group.is_covered, group.is_unclear) == (is_covered, is_unclear)
    of_table = coverage_of([T], [dated]).of(T)
    assert of_table.is_there is False or statement in of_table.since, "a note says why rows are not covered"
    for certain in (
        replace(dated, by_time=False),
        replace(dated, commit_ts=ms_tso(5001)),
        replace(dated, place=place_in_gtid_set("a:1-5")),
    ):
        of_table = coverage_of([T], [certain]).of(T)
        assert of_table.is_whole(has_earlier_rows=True) is ("TRUNCATE" in statement)
    assert not coverage_of([T], [dated]).of(T).is_whole(has_earlier_rows=False)


def test_rows_of_other_partitions_in_the_second_of_their_tables_creation() -> None:
    """They are its own; beside those that may be of a table dropped before, no row is called extra."""
    create = LoggedChange(ms_tso(5000), True, "app", "CREATE TABLE t (id INT PRIMARY KEY)", {("cdc", 0): 7})
    row = row_change(ms_tso(5000), "t", ["id"], ["id"], after=[1])._replace(schema="app", by_time=True)
    for before, is_covered, is_whole in (([], True, True), ([replace(create, text="DROP TABLE t")], False, False)):
        coverage = coverage_of([T], [*before, create])
        plan = LogPlan((), coverage.tables, ms_tso(9000))
        assert [group.is_covered for group in row_groups(plan, events_table([(1, 1, row)]))] == [is_covered]
        assert coverage.of(T).is_whole(has_earlier_rows=False) is is_whole


@pytest.mark.parametrize("by_time", [True, False])
def test_the_same_statement_twice_in_one_second(by_time: bool) -> None:
    """Without a commit ts it ran twice, so a row between the two is gone; copies in other partitions, and in any
    partition with a commit ts, are the same change."""
    told = schema_change(ms_tso(5000), "TRUNCATE t", schema="app")._replace(by_time=by_time)
    placed = [(0, 1, told), (0, 3, told), (1, 7, told), (1, 8, told)]
    found = logged_changes(events_table(placed))
    assert [dict(one.offsets) for one in found] == [{("cdc", 0): 1, ("cdc", 1): 7}, {("cdc", 0): 3, ("cdc", 1): 8}][
        : 2 if by_time else 1
    ]
    assert [one.commit_ts - ms_tso(5000) for one in found] == [0, 1][: len(found)]


@pytest.mark.parametrize(
    ("ms", "places", "count"),
    [
        *((5000, [None, None], 2), (5001, [None, None], 1), (5000, ["a:1-5", "a:1-5"], 1)),
        *((5001, ["a:1-5", "a:1-6"], 2), (5000, ["a:1-5", "b:1-5"], 2)),
    ],
)
def test_a_schema_change_that_was_sent_again_is_one(ms: int, places: list[str | None], count: int) -> None:
    """By its place, or else by its millisecond; its first copy is where rows are cut."""
    told = schema_change(ms_tso(ms), "TRUNCATE t", schema="app")._replace(by_time=True)
    copies = [told._replace(place=place_in_gtid_set(place) if place else None) for place in places]
    found = logged_changes(events_table([(0, 1 + 2 * number, copy) for number, copy in enumerate(copies)]))
    assert len(found) == count
    assert dict(found[0].offsets) == {("cdc", 0): 1}


@pytest.mark.parametrize(
    ("ms", "place", "offset", "span"),
    [
        *((6000, None, 9, 1), (5000, None, 9, 1), (5000, None, 1, 0), (4000, None, 9, 0), (4000, "a:1-9", 9, 1)),
        *((5000, "a:1-4", 9, 0), (9000, "a:1-4", 9, 0)),
    ],
)
def test_rows_that_were_sent_again_come_before_the_schema_change(
    ms: int, place: str | None, offset: int, span: int
) -> None:
    """Though they stand behind it in its partition: by their time, and by their place where both tell theirs."""
    told = place_in_gtid_set("a:1-5") if place else None
    change = LoggedChange(ms_tso(5000), True, "app", "TRUNCATE TABLE t", {("cdc", 0): 5}, told)
    row = row_change(ms_tso(ms), "t", ["id"], ["id"], after=[1])._replace(
        schema="app", by_time=True, place=place_in_gtid_set(place) if place else None
    )
    table = Table(T, {"id": Column("id", "int", None, False)}, (("id",),), (("id",),))
    plan = LogPlan((expected_table(table),), coverage_of([T], [change]).tables, 1 << 62)
    events = events_table([(0, offset, row)])
    assert steps(plan, events).num_rows == span
    [group] = row_groups(plan, events)
    assert group.is_unclear == (place == "a:1-4" and ms == 9000)  # a copy, if the statement had waited


def test_rows_are_behind_what_was_dropped_on_the_server_before() -> None:
    """Whatever the time of the CREATE TABLE on the next server, which may be an earlier one."""
    texts = {
        "CREATE TABLE t (id INT PRIMARY KEY)": 1,
        "DROP TABLE t": 10,
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)": 8,
    }
    places = (place_in_gtid_set(gtids) for gtids in ("a:1-2", "a:1-5", "b:1-3"))
    changes = [
        LoggedChange(ms_tso(1000 * second), True, "app", text, {("cdc", 0): at}, place)
        for at, ((text, second), place) in enumerate(zip(texts.items(), places, strict=True))
    ]
    rows = [
        row_change(ms_tso(10_000), "t", ["id"], ["id"], after=[at])._replace(
            schema="app", by_time=True, place=place_in_gtid_set(gtids)
        )
        for at, gtids in enumerate(("a:1-4", "b:1-4"))
    ]
    table = Table(T, {"id": Column("id", "int", None, False)}, (("id",),), (("id",),))
    plan = LogPlan((expected_table(table),), coverage_of([T], changes).tables, 1 << 62)
    found = steps(plan, events_table([(1, at, row) for at, row in enumerate(rows)]))
    assert found["key"].to_pylist() == ["1"]


def test_schema_changes_of_a_partition_have_its_order() -> None:
    """A TRUNCATE that waited for a lock is dated by its start, here before the table was made."""
    texts = ["CREATE TABLE t (id INT PRIMARY KEY)", "TRUNCATE TABLE t"]
    told = [
        schema_change(ms_tso(ms), text)._replace(by_time=True) for ms, text in zip((9000, 7000), texts, strict=True)
    ]
    found = logged_changes(events_table([(0, number, change) for number, change in enumerate(told)]))
    assert [change.text for change in found] == texts


def test_names_that_differ_in_case_only() -> None:
    """They mean one table, as in TiDB; where two are there, of the tables or of their databases, both are ambiguous."""
    orders, capital, lines = (TableName("app", name) for name in ("orders", "Orders", "Lines"))
    assert told("DROP TABLE Orders", names=(orders,)).of(orders).cut is not None
    assert ambiguous([orders, capital, lines, lines]) == {("app", "orders")}
    assert ambiguous([TableName("shop", "t"), TableName("Shop", "u"), lines]) == {("shop", "t"), ("shop", "u")}
