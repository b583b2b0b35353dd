"""Where rows of earlier messages are, after schema changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.model import TableName
from bridge.protocols.values.event_time import place_in_gtid_set
from bridge.tso import ms_tso, tso_ms
from bridge.verify.log.changes.lineage import WAITS_MS, Cut, LoggedChange, NameIdentity, Span, trace
from bridge.verify.log.recompute import logged_changes
from bridge.verify.log.row_groups import LogPlan, row_groups
from tests.support.upstreams import events_table, row_change, schema_change

T, U = TableName("app", "t"), TableName("app", "u")


def spans(*statements: str, name: TableName = T) -> list[Span]:
    """The spans of a name's rows: before the first statement that touches it, ..., behind the last."""
    changes = [LoggedChange(ts, False, "app", text, {}) for ts, text in enumerate(statements, start=1)]
    return trace([name], changes).history(name).spans


PLACES = [
    (["ALTER TABLE t ADD COLUMN a INT"], [T]),
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
    (["ALTER TABLE T DROP COLUMN a"], [T, T]),
    (["DROP TABLE other.t"], [T]),
]


@pytest.mark.parametrize("case", PLACES, ids=[" ; ".join(case[0]) for case in PLACES])
def test_rows_follow_their_table(case: tuple[list[str], list[TableName | None]]) -> None:
    """Rows go where their table goes; behind a drop or a truncation they are of no account."""
    statements, places = case
    wanted = [place and NameIdentity().key_of(place) for place in places]
    assert [span.table and NameIdentity().key_of(span.table) for span in spans(*statements)] == wanted


COLUMNS = [
    (["ALTER TABLE t RENAME COLUMN a TO b"], "a", "b"),
    (["ALTER TABLE t RENAME COLUMN a TO b", "ALTER TABLE t RENAME COLUMN b TO c"], "A", "c"),
    (["ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"], "b", "a"),
    (["ALTER TABLE t DROP COLUMN a"], "a", None),
    (["ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD COLUMN a INT"], "a", None),
    (["ALTER TABLE t DROP COLUMN a", "ALTER TABLE t RENAME COLUMN b TO a"], "a", None),
    (["ALTER TABLE t DROP COLUMN a", "ALTER TABLE t RENAME COLUMN b TO a"], "b", "a"),
    (["ALTER TABLE t ADD COLUMN x INT"], "a", "a"),
]


@pytest.mark.parametrize("case", COLUMNS, ids=[f"{' ; '.join(case[0])}: {case[1]}" for case in COLUMNS])
def test_columns_of_earlier_rows(case: tuple[list[str], str, str | None]) -> None:
    """What a column of the first rows is called at the end."""
    statements, name, now = case
    assert spans(*statements)[0].now(name) == now


def test_retyped_columns_follow_their_names() -> None:
    """A value of another type is told apart under the column's later name too."""
    first = spans("ALTER TABLE t MODIFY a BIGINT", "ALTER TABLE t RENAME COLUMN a TO b")[0]
    assert (first.now("a"), first.retyped) == ("b", {"b": 1})


WHOLE = [
    (["CREATE TABLE t (a INT)"], {"t"}, set()),
    (["CREATE TABLE IF NOT EXISTS t (a INT)"], set(), set()),
    (["TRUNCATE t"], {"t"}, set()),
    (["CREATE TABLE t (a INT)", "RENAME TABLE t TO u"], {"u"}, {"t"}),
    (["CREATE TABLE t (a INT)", "DROP TABLE t"], set(), {"t"}),
    (["DROP TABLE t", "CREATE TABLE t (a INT)"], {"t"}, set()),
    (["CREATE TABLE t (a INT)", "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u"], set(), set()),
    (["CREATE TABLE t (a INT)", "DROP DATABASE app"], set(), {"t"}),
]


@pytest.mark.parametrize("case", WHOLE, ids=[" ; ".join(case[0]) for case in WHOLE])
def test_tables_that_the_log_holds_wholly(case: tuple[list[str], set[str], set[str]]) -> None:
    """A table that the log saw made or emptied holds nothing else; one that it saw dropped is not there."""
    statements, whole, dropped = case
    changes = [LoggedChange(ts, False, "app", text, {}) for ts, text in enumerate(statements, start=1)]
    lineage = trace([], changes)
    assert {table for _, table in lineage.whole} == whole
    assert {table for _, table in lineage.dropped} == dropped


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
    ("statement", "doubts"),
    [
        ("TRUNCATE t", [False, True, False]),
        ("RENAME TABLE t TO x, u TO t, x TO u", [False, False, True, False]),
        ("DROP TABLE t", [False, False]),
        ("ALTER TABLE t ADD COLUMN a INT", [False]),
    ],
)
def test_rows_behind_a_statement_that_waited_may_be_gone(statement: str, doubts: list[bool]) -> None:
    """Only its place tells its end, as it is dated by its start in whole seconds: rows of other partitions may come
    before it for as long as it may have waited; those of its own partition stand behind it."""
    dated = LoggedChange(ms_tso(5000), True, "app", statement, {("x", 0): 7})
    history = trace([T], [dated]).history(T)
    assert [span.may_be_gone for span in history.spans] == doubts
    assert all(cut.offsets == {("x", 0): 7} for cut in history.cuts)
    if any(doubts):
        assert tso_ms(history.cuts[-1].moment.last) == 5000 + WAITS_MS
        assert history.cuts[-1].own == history.cuts[0].moment
    for certain in (
        replace(dated, by_time=False),
        replace(dated, commit_ts=ms_tso(5001)),
        replace(dated, place=place_in_gtid_set("a:1-5")),
    ):
        assert not any(span.may_be_gone for span in trace([T], [certain]).history(T).spans)


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
    change = LoggedChange(ms_tso(5000), True, "app", "ALTER TABLE t DROP COLUMN a", {("cdc", 0): 5}, told)
    history = trace([T], [change]).history(T)
    row = row_change(ms_tso(ms), "t", ["id"], ["id"], after=[1])._replace(
        schema="app", by_time=True, place=place_in_gtid_set(place) if place else None
    )
    plan = LogPlan((), {("app", "t"): history}, 1 << 62, None)
    [group], _ = row_groups(plan, events_table([(0, offset, row)]))
    assert group.span is history.spans[span]


def test_names_that_differ_in_case_only() -> None:
    """They mean one table, as in TiDB, unless both are there; so do databases."""
    orders, capital = TableName("app", "orders"), TableName("app", "Orders")
    dropped = [LoggedChange(5, False, "app", "DROP TABLE Orders", {})]
    assert trace([orders], dropped).history(orders).spans[0].table is None
    identity = NameIdentity.among([orders, capital, TableName("app", "Lines")])
    found = trace([orders, capital], dropped, identity=identity)
    assert found.history(orders).spans == [Span(orders)]
    assert found.history(capital).spans[0].table is None
    assert identity.key_of(TableName("APP", "lines")) == identity.key_of(TableName("app", "Lines"))

    shop, other = TableName("shop", "t"), TableName("Shop", "u")
    gone = [LoggedChange(5, False, "", "DROP DATABASE Shop", {})]
    found = trace([shop, other], gone, identity=NameIdentity.among([shop, other]))
    assert [found.history(name).spans[0].table for name in (shop, other)] == [shop, None]
