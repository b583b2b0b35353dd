"""Expected rows in temporary tables beside the target's, without Spark: what each kind of row comes to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from bridge.events import EVENT_SCHEMA, SEP, Kind
from bridge.model import TableName
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.table_definition import ValueClass, load_definitions
from bridge.verify.compare.bisect import TableComparison
from bridge.verify.compare.checksums import Fingerprint
from bridge.verify.compare.key_ranges import Tally
from bridge.verify.log import log_tables
from bridge.verify.log.coverage import LoggedChange, coverage_of
from bridge.verify.log.loaded_comparison import HashedRange, LoadedTable, hash_ranges, sides
from bridge.verify.log.log_tables import (
    PLACE,
    WHOLE,
    KeyNumbers,
    LoggedTable,
    find_cuts,
    join_ranges,
    logged_table,
    ranges_of,
)
from bridge.verify.log.logged_rows import LogPlan, last_steps, row_groups, steps
from bridge.verify.log.recompute import fingerprints, literals_of
from bridge.verify.log.recompute import hashed as with_hashes
from bridge.verify.snapshots import SnapshotReader, Throttle, begin_snapshot
from tests.support.verify_servers import execute

INTEGER = ValueClass.INTEGER
T = TableName("app", "t")
CUTS = (1, 3)


def put(ts: int, names: str, image: str) -> dict[str, Any]:
    """An insert; values are literals."""
    return _change(ts, Kind.INSERT, names, None, image)


def gone(ts: int, names: str, image: str) -> dict[str, Any]:
    """A delete."""
    return _change(ts, Kind.DELETE, names, image, None)


def _change(ts: int, kind: Kind, names: str, before: str | None, after: str | None) -> dict[str, Any]:
    images = {"before": before and before.replace(",", SEP), "after": after and after.replace(",", SEP)}
    return {
        "topic": "x", "partition": 0, "offset": ts, "index": 0, "kind": int(kind), "commit_ts": ts, "schema": "app",
        "table": "t", "columns": names.replace(",", SEP), "key": "", "text": None, "by_time": False, **images,
    }  # fmt: skip


def said(url: str, events: list[dict[str, Any]], *statements: str) -> tuple[set[str], int]:
    """What differs, and how many rows are not covered; the same whether the table is cut into parts or not.
    statements: schema changes at ts 100, 200, ..."""
    session = Target(url).connect()
    try:
        whole, in_parts = (_said(session, events, statements, cuts) for cuts in ((), CUTS))
        assert whole == in_parts
        return whole
    finally:
        session.close()


def _said(
    session: Session, events: list[dict[str, Any]], statements: Sequence[str], cuts: tuple[int, ...]
) -> tuple[set[str], int]:
    found, left = set[str](), 0
    for logged, tally in compared_ranges(session, events, *statements, cuts=cuts):
        left += 0 if logged.is_whole else session.value(logged.uncovered_query())
        words = {
            f"{difference.finding.value} {','.join('NULL' if v is None else v.decode() for v in difference.key)}"
            for difference in tally.differences
        }
        assert found.isdisjoint(words)
        found |= words
    return found, left


def compared(session: Session, events: list[dict[str, Any]], *statements: str) -> tuple[LoggedTable, Tally]:
    """The rows of the log against the target's."""
    [found] = compared_ranges(session, events, *statements)
    return found


def compared_ranges(
    session: Session, events: list[dict[str, Any]], *statements: str, cuts: tuple[int, ...] = ()
) -> Iterator[tuple[LoggedTable, Tally]]:
    """The same range by range, while the expected rows of that range are there; the first and the last are one.  cuts:
    used where the key allows it."""
    changes = [LoggedChange(ts * 100, False, "app", text, {}) for ts, text in enumerate(statements, 1)]
    found = pa.Table.from_pylist(events, EVENT_SCHEMA)
    definition = load_definitions(session, [T])[T]
    coverage = coverage_of([T], changes, primary={T.folded} if definition.table.primary else set())
    plan = LogPlan((), coverage.tables, 10_000)
    groups = row_groups(plan, found)
    seen = sorted(group for group in groups if group.is_covered and group.table.table == "t")
    has_earlier_rows = any(not group.is_covered for group in groups)
    logged = logged_table(
        0, "app", definition, seen, is_whole=coverage.of(T).is_whole(has_earlier_rows=has_earlier_rows)
    )
    begin_snapshot(session)
    plan = replace(plan, tables=(logged,))
    made_steps = steps(plan, found)
    folded = last_steps(plan.tables, made_steps)
    for numbers in apart(cuts) if definition.columns[logged.key[0]].value_class is INTEGER else [[WHOLE]]:
        some = replace(logged, ranges=join_ranges(numbers))
        session.execute(f"DROP TEMPORARY TABLE IF EXISTS {some.expected}")
        loaded = LoadedTable(some, session)
        loaded.run(loaded.table.create())
        for insert in some.inserts(folded):
            loaded.run(insert)
        assert loaded.refusal == ""
        reader = SnapshotReader(session, is_snapshot=True, place="target")
        is_equal = bool(literals_of(some)) and all(hashed(some, cuts, folded, reader)[0])
        with ThreadPoolExecutor(1) as pool:
            comparison = TableComparison(
                some.shape, *sides(some, reader), pool=pool, throttle=Throttle({}, {}, print), seconds=0.5
            )
            tally = comparison.run()
        unmatched = reader.rows(some.uncovered_query())[0][0]
        assert not (is_equal and (tally.differences or unmatched)), "hashes call it equal"
        yield some, tally


def apart(cuts: tuple[int, ...]) -> list[list[KeyNumbers]]:
    """The ranges between cuts, each by itself, but for the first and the last, which are loaded together."""
    ranges = ranges_of(cuts)
    return [[*{ranges[0], ranges[-1]}], *([one] for one in ranges[1:-1])]


def hashed(
    logged: LoggedTable, cuts: tuple[int, ...], folded: pa.Table, reader: SnapshotReader
) -> tuple[list[bool], list[HashedRange]]:
    """Which of the ranges that are to be loaded are equal by their hashes."""
    nothing = [Fingerprint(0, 0, 0)] * (len(cuts) + 1)
    expected = dict(fingerprints(with_hashes(folded), {logged.number: cuts})).get(logged.number, nothing)
    wanted = logged.ranges
    ranges = [
        (logged, place, numbers)
        for place, numbers in enumerate(ranges_of(cuts))
        if numbers in wanted or WHOLE in wanted
    ]
    found = hash_ranges(ranges, [reader], Throttle({}, {}, print), lambda: None)
    return [one.actual.is_surely(expected[one.place]) for one in found], found


def made(url: str, columns: str, *rows: str) -> None:
    """The target's table."""
    values = f"INSERT INTO app.t VALUES {', '.join(f'({row})' for row in rows)};" if rows else ""
    execute(url, f"DROP DATABASE IF EXISTS app; CREATE DATABASE app; CREATE TABLE app.t ({columns}); {values}")


def test_rows_of_the_log_and_others(target: str) -> None:
    """Missing, different and deleted rows are found; what the log never mentioned is not covered."""
    made(target, "id INT PRIMARY KEY, v INT", "1,1", "2,9", "4,4", "8,8", "9,9")
    log = [put(1, "id,v", "1,1"), put(2, "id,v", "2,2"), put(3, "id,v", "3,3"), put(4, "id,v", "4,4"),
           gone(5, "id,v", "4,4")]  # fmt: skip
    assert said(target, log) == ({"different 2", "missing 3", "extra 4"}, 2)


def test_keys_whose_place_only_the_target_can_tell(target: str) -> None:
    """They are numbers in other forms, and count once; beside the same key in another form they are not covered."""
    made(target, "id INT PRIMARY KEY, v INT", "-2,1", "1,1", "2,9", "3,3", "4,4", "5,6")
    log = [put(1, "id,v", "-2,1"), put(2, "id,v", "1.4,1"), put(3, "id,v", "'2',2"), put(4, "id,v", "3,8"),
           put(5, "id,v", "3e0,3"), put(6, "id,v", "'4',8"), put(7, "id,v", "4,4"), put(8, "id,v", "0x05,5"),
           gone(9, "id,v", "'2',2"), put(10, "id,v", "'9',9")]  # fmt: skip
    assert said(target, log) == ({"extra 2", "different 5", "missing 9"}, 2)


def test_a_large_table_is_cut_evenly(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its keys are; neither a small table is cut, nor one whose numbers are too large for it."""
    made(target, "id BIGINT, v INT, PRIMARY KEY (id, v)", "-9,1", "-9,2", "0,3", "7,4", "8,5", "20,6", "30,7", "31,8")
    with closing(Target(target).connect()) as session:
        definition = replace(load_definitions(session, [T])[T], rows=8)
        assert find_cuts(session, definition, ("id", "v")) == ()
        monkeypatch.setattr(log_tables, "_RANGE_ROWS", 2)
        assert find_cuts(session, definition, ("id", "v")) == (1, 12, 23)
        execute(target, "INSERT INTO app.t VALUES (1000000000000000000, 1)")
        session.rollback()
        assert find_cuts(session, definition, ("id", "v")) == ()


def test_hashes_tell_which_parts_need_not_be_loaded(target: str) -> None:
    """Those that are equal, row for row; others are compared by value."""
    made(target, "id INT PRIMARY KEY, v VARCHAR(9), d DECIMAL(9,2)", *(f"{n},'it''s',{n}" for n in range(1, 9)))
    log = [put(n, "id,v,d", rf"{n},'it\'s',{n}.00") for n in (1, 2, 4, 5, 6, 7, 8)]
    log += [put(9, "id,v,d", r"6,'it\'s',6.0"), put(10, "id,v,d", r"9,'it\'s',9.00"), gone(11, "id,v,d", "9,'',0.00")]
    with closing(Target(target).connect()) as session:
        plan = LogPlan((), {}, 10_000)
        found = pa.Table.from_pylist(log, EVENT_SCHEMA)
        definition = load_definitions(session, [T])[T]
        logged = logged_table(0, "app", definition, sorted(row_groups(plan, found)), is_whole=False)
        plan = replace(plan, tables=(logged,))
        folded = last_steps(plan.tables, steps(plan, found))
        begin_snapshot(session)
        reader = SnapshotReader(session, is_snapshot=True, place="target")
        are_equal, ranges = hashed(logged, (2, 4, 5, 6), folded, reader)
    assert are_equal == [True, False, True, False, True], "3 is extra, and 6.0 is another spelling of 6.00"
    assert [one.actual.rows for one in ranges] == [2, 2, 1, 1, 2]
    differ = [one.numbers for one, is_equal in zip(ranges, are_equal, strict=True) if not is_equal]
    assert join_ranges(differ) == ((2, 4), (5, 6))
    assert join_ranges([(4, 5), *differ]) == ((2, 6),)


def test_a_table_that_the_log_saw_made_holds_nothing_else(target: str) -> None:
    """Then a row that no message put there is extra."""
    made(target, "id INT PRIMARY KEY, v INT", "1,1", "2,2", "9,9")
    log = [put(150, "id,v", "1,1"), put(250, "id,v", "2,2")]
    assert said(target, log, "CREATE TABLE t (id INT PRIMARY KEY, v INT)") == ({"extra 9"}, 0)


def test_a_row_that_the_table_cannot_hold_is_told(target: str) -> None:
    """The target's key may be shorter than the upstream's."""
    made(target, "id VARCHAR(2) PRIMARY KEY, v INT")
    with pytest.raises(AssertionError, match="too long"):
        said(target, [put(1, "id,v", "'long',1")])


CREATE = "CREATE TABLE t (id INT PRIMARY KEY, v INT)"
TOUCHING = [
    *("ALTER TABLE t MODIFY v BIGINT", "ALTER TABLE t CHANGE v v BIGINT", "ALTER TABLE t DROP COLUMN x"),
    *("ALTER TABLE t RENAME COLUMN x TO v", "ALTER TABLE t ADD COLUMN w INT"),
    "ALTER TABLE t ADD COLUMN w DATETIME DEFAULT NOW()",
    "ALTER TABLE t CONVERT TO CHARACTER SET latin1",
    "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
    "ALTER TABLE t DROP PARTITION p0",
    "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u",
]
HARMLESS = [
    "ALTER TABLE t ADD UNIQUE (v)",
    "ALTER TABLE t ADD INDEX (v), COMMENT 'x'",
    "CREATE UNIQUE INDEX i ON t (v)",
]


@pytest.mark.parametrize("begin", ["DO 0", CREATE])
@pytest.mark.parametrize("change", [*TOUCHING, *HARMLESS])
def test_only_what_came_since_a_change_of_columns_is_compared(target: str, begin: str, change: str) -> None:
    """Or of types, or of the key.  Damage to such rows is found; older ones are not covered, and are counted.  An index
    beside the primary key changes nothing of them."""
    made(target, "id INT PRIMARY KEY, v INT", "1,7", "2,2", "4,4")
    log = [put(150, "id,v", "1,1"), put(151, "id,v", "2,2"), put(152, "id,v", "3,3"), put(153, "id,v", "4,4")]
    log += [put(250, "id,v", "2,9"), gone(251, "id,v", "4,4"), put(252, "id,v", "5,5")]
    since = {"different 2", "extra 4", "missing 5"}
    wanted = (since, 1) if change in TOUCHING else (since | {"different 1", "missing 3"}, 0)
    assert said(target, log, begin, change) == wanted


@pytest.mark.parametrize("change", ["CREATE INDEX i ON t (v)", "ALTER TABLE t ADD UNIQUE (v)", "DROP INDEX i ON t"])
def test_without_a_primary_key_an_index_may_be_the_key(target: str, change: str) -> None:
    """So what came before such an index is not compared."""
    made(target, "id INT NOT NULL UNIQUE, v INT", "1,7", "2,7")
    assert said(target, [put(50, "id,v", "1,1"), put(150, "id,v", "2,2")], change) == ({"different 2"}, 1)


@pytest.mark.parametrize("begin", [[CREATE], ["TRUNCATE TABLE t"], ["DROP TABLE t", CREATE]])
def test_a_table_that_begins_anew_is_covered_again(target: str, begin: list[str]) -> None:
    """Whatever happened to its columns before."""
    made(target, "id INT PRIMARY KEY, v INT", "1,7", "9,9")
    log = [put(50, "id,v", "9,9"), put(350, "id,v", "1,1"), put(351, "id,v", "2,2")]
    wanted = {"different 1", "missing 2", "extra 9"}, 0
    assert said(target, log, "ALTER TABLE t DROP COLUMN x", *begin) == wanted


def test_keys_that_are_one_to_the_target(target: str) -> None:
    """They are not covered, whichever of them is the last and whatever became of it."""
    made(target, "k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT", "'A',2", "'b',9", "'C',3", "'d',1")
    log = [put(1, "k,v", "'a',1"), gone(2, "k,v", "'a',1"), put(2, "k,v", "'A',2"), put(3, "k,v", "'B',1"),
           put(4, "k,v", "'c',3"), gone(5, "k,v", "'C',3"), put(6, "k,v", "'e',1"), gone(7, "k,v", "'E',1"),
           put(8, "k,v", "'d',2")]  # fmt: skip
    assert said(target, log) == ({"different B", "different d"}, 2)


@pytest.mark.parametrize(
    "topic", ["x'),(9,9,0,0,0,1,'x", "a\\", "it's", "%s {0} `", "caf\u00e9 \U0001f600", "a\0b", "a\r\nb"]
)
def test_topics_of_any_name(target: str, topic: str) -> None:
    """A capture file may call its topic anything: the name is a value among others, and comes back as it is."""
    made(target, "id INT PRIMARY KEY, v INT", "1,1")
    session = Target(target).connect()
    try:
        logged, tally = compared(session, [{**put(1, "id,v", "1,1"), "topic": topic}])
        [(place,)] = session.rows(f"SELECT HEX(`{PLACE}`) FROM {logged.expected}")
    finally:
        session.close()
    assert (tally.differences, bytes.fromhex(place).decode()) == ([], f"{topic}/0/1")


@pytest.mark.parametrize(
    ("lists", "is_covered"),
    [
        (["id,n,doc", "doc,id,n"], True),
        (["id,n", "id,n"], True),
        (["id,n,doc,new", "id,n,doc"], True),
        (["id,n,doc", "id,n"], False),
    ],
)
def test_a_table_of_which_messages_hold_other_columns_is_not_covered(
    target: str, lists: list[str], is_covered: bool
) -> None:
    """As by updates that leave out a part of their row: only the target, and the upstream, have the rest of it.
    Deletes need no more than the key."""
    made(target, "id INT PRIMARY KEY, n INT, doc INT")
    with closing(Target(target).connect()) as session:
        definition = load_definitions(session, [T])[T]
    log = [put(n, names, ",".join("1" for _ in names.split(","))) for n, names in enumerate(lists)]
    found = pa.Table.from_pylist([*log, gone(9, "id", "1")], EVENT_SCHEMA)
    seen = sorted(row_groups(LogPlan((), {}, 10_000), found))
    why = logged_table(0, "app", definition, seen, is_whole=True).uncovered
    assert (why == "") is is_covered
    assert is_covered or "some of its messages hold other columns than others" in why


def test_every_type_can_stand_in_a_temporary_table(target: str) -> None:
    """With generated columns, long text, a prefix index and defaults around it."""
    made(target, "id INT UNSIGNED ZEROFILL PRIMARY KEY, u INT UNIQUE, v VARCHAR(16000) CHARACTER SET utf8mb4,"
                 "g INT AS (u + 1) STORED, e ENUM('a','b'), s SET('x','y') NOT NULL DEFAULT 'x', j JSON, b BIT(5),"
                 "t TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), y YEAR,"
                 "x TEXT, KEY (x(3))")  # fmt: skip
    names = "id,u,v,e,s,j,b,t,y,x"
    image = "1,2,'long',2,3,'{}',7,'2024-01-01 00:00:00.000',2024,'text'"
    execute(target, f"SET time_zone = '+00:00'; INSERT INTO app.t ({names}) VALUES ({image})")
    assert said(target, [put(1, names, image)]) == (set(), 0)
    execute(target, "UPDATE app.t SET v = 'Long', t = t")
    assert said(target, [put(1, names, image)]) == ({"different 1"}, 0)


def test_the_key_that_the_messages_name_is_taken(target: str) -> None:
    """Where the target has several."""
    made(target, "id INT PRIMARY KEY, a INT NOT NULL UNIQUE", "1,10")
    session = Target(target).connect()
    try:
        event = {**put(1, "id,a", "1,10"), "key": "a"}
        assert compared(session, [event])[0].key == ("a",)
    finally:
        session.close()


@pytest.mark.parametrize(
    ("columns", "keys", "why"),
    [
        ("v INT, id INT", ["", ""], "it has no key that its messages hold"),
        ("v INT, id INT NOT NULL UNIQUE", ["id", ""], "some of its messages name another key than others, or none"),
        ("v INT NOT NULL UNIQUE, id INT PRIMARY KEY", ["id", "v"],
         "some of its messages name another key than others, or none"),
        ("v INT, id INT NOT NULL UNIQUE", ["", ""], ""),
    ],
)  # fmt: skip
def test_rows_that_no_one_key_tells_apart_are_not_covered(target: str, columns: str, keys: list[str], why: str) -> None:
    """Two equal rows, or two of one key, would be taken for one."""
    made(target, columns)
    with closing(Target(target).connect()) as session:
        definition = load_definitions(session, [T])[T]
    log = [{**put(n, "id,v", f"{n},1"), "key": key} for n, key in enumerate(keys)]
    found = pa.Table.from_pylist(log, EVENT_SCHEMA)
    seen = sorted(row_groups(LogPlan((), {}, 10_000), found))
    assert logged_table(0, "app", definition, seen, is_whole=True).uncovered == why
