"""Expected rows in temporary tables beside the target's, without Spark: what each kind of row comes to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bridge.events import EVENT_SCHEMA, SEP, Kind
from bridge.model import TableName
from bridge.mysql.catalog import load_tables
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.table_definition import load_definitions
from bridge.rows.grouping import linked
from bridge.verify.checkpoint import Checkpoint
from bridge.verify.compare.bisect import TableComparison
from bridge.verify.compare.checksums import Fingerprint
from bridge.verify.compare.key_ranges import Tally
from bridge.verify.fix_sql import FixFile
from bridge.verify.load_throttle import Throttle
from bridge.verify.log.changes.lineage import LoggedChange, trace
from bridge.verify.log.folded_steps import balance, completed, fold_steps
from bridge.verify.log.hashes import hashed_steps
from bridge.verify.log.hashes.hash_comparison import (
    HashComparison,
    HashedRange,
    HashedResult,
    Recomputed,
    spans,
)
from bridge.verify.log.hashes.literal_hashes import fingerprints
from bridge.verify.log.keys import key_cuts
from bridge.verify.log.keys.key_cuts import can_be_cut, find_cuts, ranges_of
from bridge.verify.log.keys.key_eras import eras_of, spelled_by_next_key
from bridge.verify.log.loaded.expected_tables import TOPIC
from bridge.verify.log.loaded.loading import LoadedPart
from bridge.verify.log.log_tables import LoggedTable, logged_table
from bridge.verify.log.logged_shapes import shapes
from bridge.verify.log.row_groups import LogPlan
from bridge.verify.log.row_steps import links, steps
from bridge.verify.snapshot_reader import SnapshotReader
from bridge.verify.snapshots import begin_snapshot
from tests.support.clients import run_file
from tests.support.verify_servers import execute

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
    for logged, part, tally in compared_parts(session, events, *statements, cuts=cuts):
        within = logged.within(part)
        there = session.value(f"SELECT COUNT(*) FROM {logged.actual} WHERE {within}")
        matched = there
        if logged.replicated.key:
            matched = session.value(f"SELECT COUNT(*) FROM {logged.matched} WHERE {within}")
        left += 0 if logged.is_whole else there - matched
        words = {
            f"{difference.finding.value} {','.join('NULL' if v is None else v.decode() for v in difference.key)}"
            for difference in tally.differences
        }
        assert found.isdisjoint(words)
        found |= words
    return found, left


def compared(session: Session, events: list[dict[str, Any]], *statements: str) -> tuple[LoggedTable, Tally]:
    """The rows of the log against the target's."""
    [(logged, _, tally)] = compared_parts(session, events, *statements)
    return logged, tally


def compared_parts(
    session: Session, events: list[dict[str, Any]], *statements: str, cuts: tuple[int, ...] = ()
) -> Iterator[tuple[LoggedTable, int, Tally]]:
    """The same part by part, while the expected rows of that part are there.  cuts: used where the key allows it."""
    changes = [LoggedChange(ts * 100, False, "app", text, {}) for ts, text in enumerate(statements, 1)]
    lineage = trace([T], changes)
    found = pa.Table.from_pylist(events, EVENT_SCHEMA)
    seen = sorted(s for s in shapes(LogPlan((), lineage.histories, 10_000, None), found) if s.table == "t")
    catalog, definition = load_tables(session, [T])[T], load_definitions(session, [T])[T]
    logged = logged_table(0, "app", catalog, definition, seen, lineage)
    logged = logged.divided(ranges_of(cuts if can_be_cut(definition, logged.replicated.key) else ()))
    begin_snapshot(session)
    plan = LogPlan((logged.replicated,), lineage.histories, 10_000, None)
    plan = replace(plan, units={key: root for key, (_, root) in linked(links(plan, found)).items()})
    made_steps = steps(plan, found)
    for number in range(eras_of(plan), 0, -1):
        made_steps = spelled_by_next_key(plan, made_steps, number)
    folded = completed(fold_steps(made_steps))
    inserts = list(logged.expected_table.inserts(folded if logged.replicated.key else balance(folded)))
    for part in range(len(logged.ranges)):
        session.execute(f"DROP TEMPORARY TABLE IF EXISTS {logged.expected_table.name}")
        loaded = LoadedPart(logged, part, session)
        loaded.create()
        for _, insert in (one for one in inserts if one[0] == part):
            loaded.load(insert)
        assert loaded.refused == ""
        reader = SnapshotReader(session, is_snapshot=True, place="target")
        is_equal = bool(logged.literals) and hashed(logged, folded, reader)[part].tally is not None
        with ThreadPoolExecutor(1) as pool:
            comparison = TableComparison(
                logged.shape, *logged.sides(reader, part), pool=pool, throttle=Throttle({}, {}, print), seconds=0.5,
            )  # fmt: skip
            tally = comparison.run(Tally())
        assert not (is_equal and (tally.differences or unmatched(logged, part, reader))), "hashes call it equal"
        yield logged, part, tally


def unmatched(logged: LoggedTable, part: int, reader: SnapshotReader) -> int:
    """How many rows of the target the log does not name."""
    within = logged.within(part)
    there, named = (f"SELECT COUNT(*) FROM {rows} WHERE {within}" for rows in (logged.actual, logged.matched))
    return int(reader.rows(there)[0][0]) - int(reader.rows(named)[0][0])


def hashed(logged: LoggedTable, folded: pa.Table, reader: SnapshotReader) -> list[HashedResult]:
    """What the comparison of hashes says of each part."""
    ranges = logged.expected_table.ranges
    cuts = [high for _, high in ranges if high is not None]
    nothing = [Fingerprint(0, 0, 0)] * len(ranges)
    expected = dict(fingerprints(hashed_steps.hashed(folded), {logged.number: cuts})).get(logged.number, nothing)
    comparison = HashComparison(Throttle({}, {}, print), 0.5, Checkpoint({}, resume=False), lambda *_: None)
    recomputed = Recomputed()
    recomputed.set_result({logged.number: expected})
    parts = (HashedRange(logged, numbers, place, recomputed) for place, numbers in enumerate(ranges))
    return [comparison.result(part, reader) for part in parts]


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
    """They are numbers in other forms, and count once, also beside the same key as a plain number."""
    made(target, "id INT PRIMARY KEY, v INT", "-2,1", "1,1", "2,9", "3,3", "4,4", "5,6")
    log = [put(1, "id,v", "-2,1"), put(2, "id,v", "1.4,1"), put(3, "id,v", "'2',2"), put(4, "id,v", "3,8"),
           put(5, "id,v", "3e0,3"), put(6, "id,v", "'4',8"), put(7, "id,v", "4,4"), put(8, "id,v", "0x05,5"),
           gone(9, "id,v", "'2',2"), put(10, "id,v", "'9',9")]  # fmt: skip
    assert said(target, log) == ({"extra 2", "different 5", "missing 9"}, 0)


def test_a_large_table_is_cut_where_its_rows_are(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part has as many rows, whatever the keys are; a small table is not cut."""
    rows = ("-9,1", "-9,2", "0,3", "7,4", "8,5", "99,6", "1000,7", "1001,8")
    made(target, "id BIGINT, v INT, PRIMARY KEY (id, v)", *rows)
    with closing(Target(target).connect()) as session:
        definition = replace(load_definitions(session, [T])[T], rows=8)
        assert find_cuts(session, definition, ("id", "v")) == ()
        monkeypatch.setattr(key_cuts, "_PART_ROWS", 2)
        assert find_cuts(session, definition, ("id", "v")) == (-9, 7, 99, 1001)
        assert find_cuts(session, definition, ("id", "v"), 2) == (7,)
        assert find_cuts(session, replace(definition, rows=1000), ("id", "v"), 2) == ()
        assert find_cuts(session, definition, (), 2) == ()


def test_hashes_tell_which_parts_need_not_be_loaded(target: str) -> None:
    """Those that are equal, row for row; others are compared by value."""
    made(target, "id INT PRIMARY KEY, v VARCHAR(9), d DECIMAL(9,2)", *(f"{n},'it''s',{n}" for n in range(1, 9)))
    log = [put(n, "id,v,d", rf"{n},'it\'s',{n}.00") for n in (1, 2, 4, 5, 6, 7, 8)]
    log += [put(9, "id,v,d", r"6,'it\'s',6.0"), put(10, "id,v,d", r"9,'it\'s',9.00"), gone(11, "id,v,d", "9,'',0.00")]
    with closing(Target(target).connect()) as session:
        lineage = trace([T], [])
        found = pa.Table.from_pylist(log, EVENT_SCHEMA)
        seen = sorted(shapes(LogPlan((), lineage.histories, 10_000, None), found))
        catalog, definition = load_tables(session, [T])[T], load_definitions(session, [T])[T]
        logged = logged_table(0, "app", catalog, definition, seen, lineage).divided(ranges_of((2, 4, 5, 6)))
        folded = fold_steps(steps(LogPlan((logged.replicated,), lineage.histories, 10_000, None), found))
        begin_snapshot(session)
        results = hashed(logged, folded, SnapshotReader(session, is_snapshot=True, place="target"))
    told = [one.tally and one.tally.rows for one in results]
    assert told == [2, None, 1, None, 2], "3 is extra, and 6.0 is another spelling of 6.00"
    differ = [one.range.numbers for one in results if one.tally is None]
    assert spans(differ, 2) == [(2, 4), (5, 6)]
    assert spans(differ, 1) == [(2, 6)]


def test_a_table_that_the_log_saw_made_holds_nothing_else(target: str) -> None:
    """Then a row that no message put there is extra, also when columns were added later."""
    made(target, "id INT PRIMARY KEY, v INT, w INT", "1,1,5", "2,2,2", "9,9,9")
    log = [put(150, "id,v", "1,1"), put(250, "id,v,w", "2,2,2")]
    create = "CREATE TABLE t (id INT PRIMARY KEY, v INT)"
    assert said(target, log, create, "ALTER TABLE t ADD COLUMN w INT") == ({"extra 9"}, 0)


def test_values_that_no_message_of_the_row_holds_are_not_compared(target: str) -> None:
    """A column added later, or of another type since, until the row's next message."""
    made(target, "id INT PRIMARY KEY, v BIGINT, w INT", "1,7,7", "2,7,7", "3,3,7")
    log = [put(50, "id,v", "1,1"), put(150, "id,v", "2,7"), put(250, "id,v,w", "3,3,8")]
    found, _ = said(target, log, "ALTER TABLE t MODIFY v BIGINT", "ALTER TABLE t ADD COLUMN w INT")
    assert found == {"different 3"}


@pytest.mark.parametrize(
    ("key", "told", "is_known"),
    [
        ("ENUM('b','a','7')", "1", False), ("SET('b','a','7')", "1", False), ("VARCHAR(9)", "1", False),
        ("ENUM('b','a','7')", "'a'", True), ("VARCHAR(9)", "'a'", True), ("BIGINT", "1", True),
    ],
)  # fmt: skip
def test_keys_told_by_the_numbers_of_their_names(target: str, key: str, told: str, is_known: bool) -> None:
    """Once the type of the key was changed, nobody knows which names the numbers of an ENUM or a SET stood for."""
    first = "1" if key == "BIGINT" else "'a'"
    made(target, f"id {key} PRIMARY KEY, v INT", f"{first},1", "'7',1")
    log = [put(50, "id,v", f"{told},2"), put(150, "id,v", "'7',2")]
    found, left = said(target, log, f"ALTER TABLE t MODIFY id {key}")
    assert (len(found), left) == ((2, 0) if is_known else (1, 1))


@pytest.mark.parametrize(
    ("key", "had", "statement"),
    [
        ("INT NOT NULL UNIQUE", "NULL", "MODIFY id INT NOT NULL"),
        ("INT PRIMARY KEY", "NULL", "ADD PRIMARY KEY (id)"),
        ("VARCHAR(2) PRIMARY KEY", "'long'", "MODIFY id VARCHAR(2) NOT NULL"),
        ("INT PRIMARY KEY", "'long'", "MODIFY id INT NOT NULL"),
        ("TINYINT PRIMARY KEY", "999", "MODIFY id TINYINT NOT NULL"),
        ("VARCHAR(9) CHARACTER SET latin1 PRIMARY KEY", "'Ж'", "MODIFY id VARCHAR(9) CHARACTER SET latin1 NOT NULL"),
    ],
)
def test_keys_that_the_table_held_once(target: str, key: str, had: str, statement: str) -> None:
    """Rows whose key it could not hold now were deleted, or had another key, before it was changed.  A row that went as
    a text, or without a key, may be another one than that of this number now, which may be older than the log."""
    made(target, f"id {key}, v INT", "'1',1", "'3',1")
    one, two, three = ("1", "2", "3") if had in {"NULL", "999"} else ("'1'", "'2'", "'3'")
    log = [put(1, "id,v", f"{had},1"), put(2, "id,v", f"{two},2"), put(3, "id,v", f"{three},1"),
           gone(4, "id,v", f"{three},1"), _change(5, Kind.UPDATE, "id,v", f"{had},1", f"{one},1")]  # fmt: skip
    is_other = (key, had) == ("INT PRIMARY KEY", "'long'") or statement.startswith("ADD")
    assert said(target, log, f"ALTER TABLE t {statement}") == (
        ({"missing 2"}, 1) if is_other else ({"missing 2", "extra 3"}, 0)
    )


@pytest.mark.parametrize(
    ("key", "there", "other", "now", "change"),
    [
        ("VARCHAR(9) CHARACTER SET latin1", "'a'", "'A'", "'a'", "MODIFY id VARCHAR(9) COLLATE latin1_swedish_ci"),
        ("VARCHAR(9) CHARACTER SET latin1", "'a'", "'A'", "'a'", "CONVERT TO CHARACTER SET latin1"),
        ("INT", "'01'", "'1'", "1", "MODIFY id INT"),
        ("INT", "'01'", "'1'", "1", "CONVERT TO CHARACTER SET latin1, CHANGE id id INT"),
        ("DATETIME", "'2020-01-01 00:00:00.400000'", "'2020-01-01 00:00:00.300000'", "'2020-01-01 00:00:00'",
         "MODIFY id DATETIME"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("has_created", [True, False])
def test_keys_that_became_one(
    target: str, key: str, there: str, other: str, now: str, change: str, has_created: bool
) -> None:
    """What went before the key was changed was not the other row; what goes since is."""
    begin = "CREATE TABLE t (id BLOB, v INT, PRIMARY KEY (id(9)))" if has_created else "DO 0"
    log = [put(110, "id,v", f"{there},1"), put(120, "id,v", f"{other},2"), gone(130, "id,v", f"{other},2")]
    changes = (begin, f"ALTER TABLE t {change}")
    made(target, f"id {key} PRIMARY KEY, v INT", f"{now},1")
    assert said(target, log, *changes) == (set(), 0)
    [lost] = said(target, [*log, gone(210, "id,v", f"{now},1")], *changes)[0]
    assert lost.startswith("extra")
    assert said(target, [*log, put(210, "id,v", f"{now},1"), gone(220, "id,v", f"{other},1")], *changes)[0] == {lost}
    assert said(target, [*log, put(210, "id,v", f"{now},1")], *changes) == (set(), 0)
    found, left = said(target, log[1:], *changes)
    assert (found, left) == (({lost}, 0) if has_created else (set(), 1)), "another row, which is older than the log?"
    execute(target, "UPDATE app.t SET v = 9")
    assert {words.split()[0] for words in said(target, log, *changes)[0]} == {"different"}
    execute(target, "DELETE FROM app.t")
    assert {words.split()[0] for words in said(target, log, *changes)[0]} == {"missing"}
    respelled = _change(115, Kind.UPDATE, "id,v", None, f"{other},2")
    assert said(target, [log[0], respelled, log[2]], *changes) == (set(), 0), "the same row, or another one?"


def test_a_number_that_became_a_text(target: str) -> None:
    """The number may have been that of an ENUM's name, so these rows are not covered; those of later messages are."""
    made(target, "id VARCHAR(9) PRIMARY KEY, v INT", "'3',1", "'03',2", "'4',1", "'5',1")
    log = [put(110, "id,v", "3,1"), put(120, "id,v", "4,1"), gone(130, "id,v", "4,1"), put(140, "id,v", "5,1"),
           put(210, "id,v", "'03',2"), put(220, "id,v", "'4',2"), gone(230, "id,v", "'5',1")]  # fmt: skip
    changes = ("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "ALTER TABLE t MODIFY id VARCHAR(9)")
    assert said(target, log, *changes) == ({"different 4", "extra 5"}, 1)


def test_a_row_that_went_before_its_key_was_changed(target: str) -> None:
    """It is extra if it is there under the same spelling, however old the table is."""
    made(target, "id BIGINT PRIMARY KEY, v INT", "3,1")
    assert said(target, [gone(10, "id,v", "3,1")], "ALTER TABLE t MODIFY id BIGINT") == ({"extra 3"}, 0)


def test_a_key_that_was_changed_twice(target: str) -> None:
    """In the form between, a row that went may have been the same or another one: only the target tells."""
    changes = ("ALTER TABLE t MODIFY id INT", "ALTER TABLE t MODIFY id VARCHAR(9)")
    log = [put(10, "id,v", "'1',1"), gone(150, "id,v", "'1.0',1")]
    made(target, "id INT PRIMARY KEY, v INT", "1,1")
    assert said(target, log, *changes) == (set(), 0)
    execute(target, "UPDATE app.t SET v = 9")
    assert said(target, log, *changes) == ({"different 1"}, 0)
    execute(target, "DELETE FROM app.t")
    assert said(target, log, *changes) == (set(), 0)
    assert said(target, [*log, put(250, "id,v", "'1.0',1")], *changes) == ({"missing 1"}, 0)


def test_texts_that_were_converted_twice_look_the_same(target: str) -> None:
    """CONVERT TO changes which keys are equal, not what values are; keys of numbers stay as they are."""
    changes = ("ALTER TABLE t CONVERT TO CHARACTER SET latin1", "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4")
    made(target, "id INT PRIMARY KEY, v VARCHAR(9)", "1,'a'", "2,'b'")
    log = [put(10, "id,v", "1,'a'"), put(20, "id,v", "2,'c'"), put(30, "id,v", "3,'c'"), gone(40, "id,v", "3,'c'")]
    assert said(target, log, *changes) == ({"different 2"}, 0)


def test_a_row_that_the_table_cannot_hold_is_told(target: str) -> None:
    """If nothing says that it is gone."""
    made(target, "id VARCHAR(2) PRIMARY KEY, v INT")
    with pytest.raises(AssertionError, match="too long"):
        said(target, [put(1, "id,v", "'long',1")], "ALTER TABLE t MODIFY id VARCHAR(2) NOT NULL")


@pytest.mark.parametrize(
    ("kinds", "columns", "is_lost"),
    [
        ([Kind.INSERT, Kind.UPDATE], ["id,v", "id"], True),
        ([Kind.UPDATE, Kind.UPDATE], ["id,v", "id"], True),
        ([Kind.INSERT, Kind.INSERT], ["id,v", "id"], False),
        ([Kind.INSERT, Kind.UPDATE], ["id,v", "id,v"], False),
    ],
)
@pytest.mark.parametrize("key", ["", "PRIMARY KEY"])
def test_parts_of_rows_without_a_key(
    target: str, kinds: list[Kind], columns: list[str], is_lost: bool, key: str
) -> None:
    """Nobody knows which rows they mean; what lacks a column that was added later is whole, and keys tell rows."""
    made(target, f"id INT {key}, v INT, w INT")
    log = [
        _change(
            ts,
            kind,
            names,
            None if kind is Kind.INSERT else "1" + ",1" * names.count(","),
            "2" + ",2" * names.count(","),
        )
        | {"by_time": True}
        for ts, (kind, names) in enumerate(zip(kinds, columns, strict=True), 1)
    ]
    session = Target(target).connect()
    later = {**put(150, "id,v,w", "3,3,3"), "by_time": True}
    logged, _ = compared(session, [*log, later], "ALTER TABLE t ADD COLUMN w INT")
    session.close()
    assert bool(logged.lost) is (is_lost and not key)


def test_rows_of_a_dropped_partition_may_be_gone(target: str) -> None:
    """One that is still there must be right; later ones must be there."""
    made(target, "id INT PRIMARY KEY, v INT", "2,2", "3,9")
    log = [put(50, "id,v", "1,1"), put(51, "id,v", "2,2"), put(52, "id,v", "3,3"), put(150, "id,v", "4,4")]
    assert said(target, log, "ALTER TABLE t DROP PARTITION p0") == ({"different 3", "missing 4"}, 0)


def test_keys_that_are_one_to_the_target(target: str) -> None:
    """The last of them counts, whatever its case, and a row written under another case is different."""
    made(target, "k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT", "'A',2", "'b',1", "'C',3")
    log = [put(1, "k,v", "'a',1"), gone(2, "k,v", "'a',1"), put(2, "k,v", "'A',2"), put(3, "k,v", "'B',1"),
           put(4, "k,v", "'c',3"), gone(5, "k,v", "'C',3")]  # fmt: skip
    assert said(target, log) == ({"different B", "extra C"}, 0)


@pytest.mark.parametrize(
    "topic", ["x'),(9,9,0,0,0,1,'x", "a\\", "it's", "%s {0} `", "caf\u00e9 \U0001f600", "a\0b", "a\r\nb"]
)
def test_topics_of_any_name(target: str, topic: str) -> None:
    """A capture file may call its topic anything: the name is a value among others, and comes back as it is."""
    made(target, "id INT PRIMARY KEY, v INT", "1,1")
    session = Target(target).connect()
    try:
        logged, tally = compared(session, [{**put(1, "id,v", "1,1"), "topic": topic}])
        found = session.rows(f"SELECT CONVERT(`{TOPIC}` USING utf8mb4) FROM {logged.expected_table.name}")
    finally:
        session.close()
    assert (tally.differences, found) == ([], [(topic,)])


def timed(offset: int, names: str, before: str | None, after: str | None, **more: Any) -> dict[str, Any]:
    """A change of a format without commit_ts, all of one millisecond unless `commit_ts` is given."""
    kind = Kind.INSERT if before is None else Kind.DELETE if after is None else Kind.UPDATE
    return _change(1, kind, names, before, after) | {"offset": offset, "by_time": True} | more


SPELLINGS: list[tuple[str, list[dict[str, Any]], set[str]]] = [
    ("inserted and deleted", [timed(1, "k,v", None, "'A',1"), timed(2, "k,v", "'a',1", None)], {"extra A"}),
    ("deleted and inserted", [timed(1, "k,v", "'a',1", None), timed(2, "k,v", None, "'A',1")], set()),
    ("respelled", [timed(1, "k,v", None, "'a',1"), timed(2, "k,v", "'a',1", "'A',1")], set()),
    ("and deleted", [timed(1, "k,v", None, "'a',1"), timed(2, "k,v", "'a',1", "'A',1"),
      timed(3, "k,v", "'a ',1", None)], {"extra A"}),
    ("in a clock that goes back", [timed(1, "k,v", None, "'a',1", commit_ts=9), timed(2, "k,v", "'A',1", None),
      timed(3, "k,v", None, "'A ',2", commit_ts=5)], {"different A "}),
    ("in one message", [timed(1, "k,v", None, "'a',1"), timed(1, "k,v", "'A',1", None, index=1)], {"extra A"}),
    ("over partitions", [timed(9, "k,v", None, "'a',1", commit_ts=4),
      timed(1, "k,v", "'A',1", None, commit_ts=5, partition=1)], {"extra A"}),
]  # fmt: skip


@pytest.mark.parametrize("case", SPELLINGS, ids=[case[0] for case in SPELLINGS])
def test_the_order_of_spellings(target: str, case: tuple[str, list[dict[str, Any]], set[str]]) -> None:
    """Where nothing but the order of a partition tells, it tells for all spellings of a key, whoever loads them first;
    between partitions event times tell."""
    for log in (case[1], case[1][::-1]):
        made(target, "k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT", "'A',1")
        assert said(target, log)[0] == case[2]


def test_updates_that_hold_a_part_of_their_rows(target: str) -> None:
    """What they lack is what the log had before, through moved and respelled keys; where it had nothing the value is
    not covered, and a row that is lost is not written without it."""
    columns = "k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, n INT, doc TEXT NOT NULL, own INT DEFAULT 7"
    rows = ("'a',2,'', 1", "'B',2,'dear', 2", "'c',2,'any', 3", "'e',3,'dear', 4")
    log = [timed(i, "k,n,doc", None, f"'{key}',1,'dear'") for i, key in enumerate("abd")]
    log += [timed(10, "k,n", "'a',1", "'a',2"), timed(11, "k,n", "'b',1", "'B',2"), timed(12, "k,n", "'c',1", "'c',2")]
    log += [timed(13, "k,n", "'d',1", "'e',2"), timed(14, "k,n", "'f',1", "'f',2")]
    made(target, columns, *rows)
    assert said(target, log)[0] == {"different a", "different e", "missing f"}
    assert said(target, log[::-1])[0] == {"different a", "different e", "missing f"}


def test_the_fix_of_rows_of_which_a_part_is_known(target: str, tmp_path: Path) -> None:
    """Known values are written over the row that is there; of a row that is not, the file says that it cannot."""
    made(target, "id INT PRIMARY KEY, n INT, doc TEXT NOT NULL", "1,1,'dear'")
    log = [timed(1, "id,n", "1,1", "1,2"), timed(2, "id,n", "2,1", "2,2"), timed(3, "id,n,doc", None, "3,3,'new'")]
    session = Target(target).connect()
    try:
        logged, tally = compared(session, log)
    finally:
        session.close()
    fix = FixFile(tmp_path / "fix.sql")
    fix.add_rows(logged.replicated.table, logged.shape, tally.differences)
    fix.write("")
    assert "-- app.t lacks the row 2, of which the log holds only a part" in (tmp_path / "fix.sql").read_text()
    assert run_file(target, tmp_path / "fix.sql").returncode == 0
    assert execute(target, "SELECT * FROM app.t") == [(1, 2, "dear"), (3, 3, "new")]


def test_tables_without_a_key(target: str) -> None:
    """Of a table that the log saw made, every copy counts; of another one, those that the log put there."""
    made(target, "v INT, w VARCHAR(9)", "1,'x'", "1,'x'", "3,NULL", "9,'y'")
    log = [put(150, "v,w", "1,'x'"), put(151, "v,w", "2,''"), put(152, "v,w", "3,NULL")]
    wanted = {"missing 2,", "extra 1,x", "extra 9,y"}
    assert said(target, log, "CREATE TABLE t (v INT, w VARCHAR(9))")[0] == wanted
    session = Target(target).connect()
    try:
        found = {d.finding.value for d in compared(session, log)[1].differences if d.finding.value != "extra"}
    finally:
        session.close()
    assert found == {"missing"}


def test_rows_without_a_key_of_a_dropped_partition_may_be_gone(target: str) -> None:
    """Nothing tells which; those that came later must be there."""
    made(target, "v INT, w INT", "11,1")
    log = [put(150, "v,w", "1,1"), put(151, "v,w", "11,1"), put(250, "v,w", "12,2")]
    assert said(target, log, "CREATE TABLE t (v INT, w INT)", "ALTER TABLE t DROP PARTITION p0")[0] == {"missing 12,2"}


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
        assert compared(session, [event])[0].replicated.key == ("a",)
    finally:
        session.close()


def test_rows_without_a_key_go_with_more_columns_than_they_came_with(target: str) -> None:
    """A column was added, or its type was changed, in between; in a message columns may have another order."""
    made(target, "v INT, w INT, x BIGINT", "1,5,9", "2,7,9")
    changes = (
        "CREATE TABLE t (v INT, x INT)",
        "ALTER TABLE t ADD COLUMN w INT DEFAULT 5 AFTER v",
        "ALTER TABLE t MODIFY COLUMN x BIGINT",
    )
    came = [put(150, "v,x", "1,9"), put(151, "v,x", "1,9"), put(152, "x,v", "9,3"), put(250, "v,w,x", "2,7,9")]
    went = [gone(350, "v,w,x", "1,5,9"), gone(351, "x,w,v", "9,5,3")]
    assert said(target, came + went, *changes) == (set(), 0)
    assert said(target, came + went[:1], *changes)[0] == {"missing 3,NULL,NULL"}
    execute(target, "DELETE FROM app.t WHERE v = 2")
    assert said(target, came + went, *changes)[0] == {"missing 2,7,NULL"}


@pytest.mark.parametrize("change", ["MODIFY COLUMN w BIGINT", "DROP COLUMN w"])
def test_rows_without_a_key_that_came_for_older_ones_are_not_covered(target: str, change: str) -> None:
    """Without a column whose type was changed, or which is gone, a row is the older one that went: the log counts
    neither.  What came for a row that the log had put there is missing."""
    is_left = change.startswith("MODIFY")
    made(target, "v INT, w BIGINT" if is_left else "v INT")
    older = [gone(150, "v,w", "1,5"), put(150, "v,w", "1,6")]
    alter = f"ALTER TABLE t {change}"
    assert said(target, [*older, put(151, "v,w", "2,5")], "DO 0", alter)[0] == {"missing 2"}
    assert said(target, [put(149, "v,w", "1,5"), *older], "DO 0", alter)[0] == {"missing 1"}


def test_rows_without_a_key_of_which_no_column_is_left(target: str) -> None:
    """Nothing tells them from each other, so none of them is missing, nor any column."""
    made(target, "w INT", "7", "7", "1")
    log = [put(50, "v", "1"), put(51, "v", "2"), put(250, "w", "1")]
    changes = "ALTER TABLE t ADD COLUMN w INT DEFAULT 7", "ALTER TABLE t DROP COLUMN v"
    assert said(target, log, *changes)[0] == set()
    session = Target(target).connect()
    try:
        assert compared(session, log, *changes)[0].missing == ()
    finally:
        session.close()
    execute(target, "DELETE FROM app.t WHERE w = 1")
    assert said(target, log, *changes)[0] == {"missing 1"}


def test_rows_without_a_key_whose_columns_are_not_all_known(target: str) -> None:
    """A column that was added after a row's message may hold anything; what is known must be there as often as the
    log says."""
    made(target, "v INT, w INT, KEY (v)", "1,5", "1,5", "2,7", "3,6")
    log = [put(150, "v", "1"), put(151, "v", "1"), put(250, "v,w", "2,7"), put(251, "v,w", "3,6")]
    create = "CREATE TABLE t (v INT)", "ALTER TABLE t ADD COLUMN w INT DEFAULT 5"
    assert said(target, log, *create)[0] == set()
    execute(target, "UPDATE app.t SET v = 4 WHERE v = 1 LIMIT 1; UPDATE app.t SET w = 8 WHERE v = 2")
    assert said(target, log, *create)[0] == {"missing 1,NULL", "extra 4,5", "missing 2,7", "extra 2,8"}
    assert {word for word in said(target, log, "DO 0", create[1])[0] if "missing" in word} == {
        "missing 1,NULL",
        "missing 2,7",
    }
