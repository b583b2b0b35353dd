"""Where rows of earlier messages are, after schema changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.model import Column, Table, TableName
from bridge.protocols.values.event_time import place_in_gtid_set
from bridge.tso import ms_tso, tso_ms
from bridge.verify.log.lineage import WAITS_MS, Cut, LoggedChange, NameIdentity, trace
from bridge.verify.log.logged_rows import LogPlan, Reach, ReplicatedTable, shapes, steps
from bridge.verify.log.recompute import logged_changes
from tests.support.upstreams import events_table, row_change, schema_change

T, U = TableName("app", "t"), TableName("app", "u")


def spans(*statements: str, name: TableName = T) -> list[TableName | None]:
    """Where the rows of a name are now: before the first statement that touches it, ..., behind the last."""
    changes = [LoggedChange(ts, False, "app", text, {}) for ts, text in enumerate(statements, start=1)]
    return trace([name], changes).history(name).spans


PLACES = [
    (["ALTER TABLE t ADD COLUMN a INT"], [None, T]),
    (["ALTER TABLE t ADD INDEX (a)"], [T]),
    (["TRUNCATE TABLE t"], [None, T]),
    (["DROP TABLE t"], [None, T]),
    (["DROP TABLE app.x, app.t"], [None, T]),
    (["DROP DATABASE app"], [None, T]),
    (["RENAME TABLE t TO u"], [U, T]),
    (["ALTER TABLE t RENAME TO u"], [U, T]),
    (["RENAME TABLE t TO u", "DROP TABLE u"], [None, T]),
    (["RENAME TABLE t TO u", "CREATE TABLE t (a INT)"], [U, None, T]),
    (["RENAME TABLE t TO x, u TO t, x TO u"], [U, None, T]),
    (["CREATE TABLE t (a INT)"], [None, T]),
    (["CREATE TABLE IF NOT EXISTS t (a INT)"], [T]),
    (["ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u"], [None, T]),
    (["ALTER TABLE T DROP COLUMN a"], [None, T]),
    (["RENAME TABLE t TO u", "ALTER TABLE u MODIFY a INT"], [None, T]),
    (["DROP TABLE other.t"], [T]),
]


@pytest.mark.parametrize("case", PLACES, ids=[" ; ".join(case[0]) for case in PLACES])
def test_rows_follow_their_table(case: tuple[list[str], list[TableName | None]]) -> None:
    """Rows go where their table goes; behind a drop or a truncation they are of no account."""
    statements, places = case
    wanted = [place and NameIdentity().key_of(place) for place in places]
    assert [table and NameIdentity().key_of(table) for table in spans(*statements)] == wanted


WHOLE = [
    (["CREATE TABLE t (a INT)"], {"t"}, set()),
    (["CREATE TABLE IF NOT EXISTS t (a INT)"], set(), set()),
    (["TRUNCATE t"], {"t"}, set()),
    (["CREATE TABLE t (a INT)", "RENAME TABLE t TO u"], {"u"}, {"t"}),
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
    changes = [LoggedChange(ts, False, "app", text, {}) for ts, text in enumerate(statements, start=1)]
    lineage = trace([], changes)
    assert {table for _, table in lineage.whole} == whole
    assert {table for _, table in lineage.dropped} == dropped


def test_a_table_that_is_altered_before_its_first_row_is_still_held_wholly() -> None:
    """As by a script that makes a table in several steps: the spans that were ended are known, and have no rows."""
    texts = ["CREATE TABLE t (a INT)", "ALTER TABLE t ADD PRIMARY KEY (a)", "ALTER TABLE t MODIFY a BIGINT"]
    changes = [LoggedChange(10 * ts, False, "app", text, {}) for ts, text in enumerate(texts, start=1)]
    lineage = trace([T], changes)
    key = lineage.key_of(T)
    spans = lineage.starts[key].spans
    assert spans == {(key, 1), (key, 2)}
    plan = LogPlan((), lineage.histories, Reach(1 << 62, None))
    for ts, is_in_them in ((35, False), (25, True), (15, True), (5, False)):
        row = row_change(ts, "t", ["id"], ["id"], after=[1])._replace(schema="app")
        used = {shape.span for shape in shapes(plan, events_table([(0, 1, row)]))}
        assert bool(spans & used) is is_in_them
    exchanged = LoggedChange(25, False, "app", "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u", {})
    assert trace([T], [*changes[:2], exchanged, changes[2]]).starts[key].spans is None


def test_a_log_that_has_lost_its_beginning_holds_no_table_wholly() -> None:
    """Of tables made behind what was lost it does."""
    changes = [LoggedChange(ts, False, "app", f"CREATE TABLE t{ts} (a INT)", {}) for ts in (5, 7, 8)]
    truncated = LoggedChange(7, False, "app", "TRUNCATE t8", {})
    assert {table for _, table in trace([], [*changes, truncated], since=7).whole} == {"t8"}
    assert trace([], changes[:2], since=7).whole == set()


def test_event_times_in_whole_seconds_stand_for_their_second() -> None:
    """Equal times count as earlier than the schema change."""
    whole = LoggedChange(ms_tso(5000), True, "app", "TRUNCATE t", {("x", 0): 7})
    assert Cut.of(whole).moment.last == ms_tso(6000) - 1
    exact = LoggedChange(ms_tso(5001), True, "app", "TRUNCATE t", {("x", 0): 7})
    assert Cut.of(exact).moment.last == ms_tso(5002) - 1


@pytest.mark.parametrize(
    "statement", ["TRUNCATE t", "RENAME TABLE t TO x, u TO t, x TO u", "ALTER TABLE t DROP COLUMN a", "DROP TABLE t"]
)
def test_rows_behind_a_statement_that_waited_are_not_covered(statement: str) -> None:
    """Only its place tells its end, as it is dated by its start in whole seconds: rows of other partitions may come
    before it for as long as it may have waited; those of its own partition stand behind it."""
    dated = LoggedChange(ms_tso(5000), True, "app", statement, {("x", 0): 7})
    places = {T: {("x", 0), ("x", 1)}}
    history = trace([T], [dated], places=places).history(T)
    assert (history.spans[0], history.spans[-1]) == (None, T)
    assert all(cut.offsets == {("x", 0): 7} for cut in history.cuts)
    if "DROP" not in statement:
        assert tso_ms(history.cuts[-1].moment.last) == 5000 + WAITS_MS
        assert history.cuts[-1].own == Cut.of(dated).moment
    for certain in (
        replace(dated, by_time=False),
        replace(dated, commit_ts=ms_tso(5001)),
        replace(dated, place=place_in_gtid_set("a:1-5")),
        replace(dated, offsets={("x", 0): 7, ("x", 1): 3}),
    ):
        lineage = trace([T], [certain], places=places)
        assert {table for _, table in lineage.whole} == ({"t"} if "TRUNCATE" in statement else set())
    assert not trace([T], [dated], places=places).whole


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
        (5000, [None, None], 2),
        (5001, [None, None], 1),
        (5000, ["a:1-5", "a:1-5"], 1),
        (5001, ["a:1-5", "a:1-6"], 2),
        (5000, ["a:1-5", "b:1-5"], 2),
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
        (6000, None, 9, 1),
        (5000, None, 9, 1),
        (5000, None, 1, 0),
        (4000, None, 9, 0),
        (4000, "a:1-9", 9, 1),
        (5000, "a:1-4", 9, 0),
        (9000, "a:1-4", 9, 1),
    ],
)
def test_rows_that_were_sent_again_come_before_the_schema_change(
    ms: int, place: str | None, offset: int, span: int
) -> None:
    """Though they stand behind it in its partition: by their time, and by their place where both tell theirs."""
    told = place_in_gtid_set("a:1-5") if place else None
    change = LoggedChange(ms_tso(5000), True, "app", "TRUNCATE TABLE t", {("cdc", 0): 5}, told)
    history = trace([T], [change]).history(T)
    row = row_change(ms_tso(ms), "t", ["id"], ["id"], after=[1])._replace(
        schema="app", by_time=True, place=place_in_gtid_set(place) if place else None
    )
    table = Table(T, {"id": Column("id", "int", None, False)}, (("id",),), (("id",),))
    plan = LogPlan((ReplicatedTable(table, ("id",), frozenset({"id"})),), {("app", "t"): history}, Reach(1 << 62, None))
    assert steps(plan, events_table([(0, offset, row)])).num_rows == span


def test_names_that_differ_in_case_only() -> None:
    """They mean one table, as in TiDB, unless both are there; so do databases."""
    orders, capital = TableName("app", "orders"), TableName("app", "Orders")
    dropped = [LoggedChange(5, False, "app", "DROP TABLE Orders", {})]
    assert trace([orders], dropped).history(orders).spans[0] is None
    identity = NameIdentity.among([orders, capital, TableName("app", "Lines")])
    found = trace([orders, capital], dropped, identity=identity)
    assert found.history(orders).spans == [orders]
    assert found.history(capital).spans[0] is None
    assert identity.key_of(TableName("APP", "lines")) == identity.key_of(TableName("app", "Lines"))

    shop, other = TableName("shop", "t"), TableName("Shop", "u")
    gone = [LoggedChange(5, False, "", "DROP DATABASE Shop", {})]
    found = trace([shop, other], gone, identity=NameIdentity.among([shop, other]))
    assert [found.history(name).spans[0] for name in (shop, other)] == [shop, None]
