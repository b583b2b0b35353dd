"""Expected rows in temporary tables beside the target's, without Spark: what each kind of row comes to."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from bridge.events import EVENT_SCHEMA, SEP, Kind
from bridge.target.catalog import TableName, load_tables
from bridge.target.session import Session, Target
from bridge.verify.definitions import load_definitions
from bridge.verify.drill_down import Comparison
from bridge.verify.last_states import LogPlan, balance, fold_steps, shapes, steps
from bridge.verify.lineage import LoggedChange, trace
from bridge.verify.log_tables import LoggedTable, logged_table
from bridge.verify.reader import Reader
from bridge.verify.scratch import POSITION
from bridge.verify.snapshots import begin_snapshot
from bridge.verify.throttle import Throttle
from bridge.verify.walk import Tally
from tests.verify.servers import execute

T = TableName("app", "t")


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
    """What differs, and how many rows are not covered.  statements: schema changes at ts 100, 200, ..."""
    session = Target(url).connect()
    try:
        logged, tally = compared(session, events, *statements)
        there = session.value("SELECT COUNT(*) FROM app.t")
        matched = session.value(f"SELECT COUNT(*) FROM {logged.matched}") if logged.place.key else there
        words = {
            f"{difference.finding.value} {','.join('NULL' if v is None else v.decode() for v in difference.key)}"
            for difference in tally.differences
        }
        return words, 0 if logged.is_whole else there - matched
    finally:
        session.close()


def compared(session: Session, events: list[dict[str, Any]], *statements: str) -> tuple[LoggedTable, Tally]:
    """The rows of the log against the target's."""
    changes = [LoggedChange(ts * 100, False, "app", text, {}) for ts, text in enumerate(statements, 1)]
    lineage = trace([T], changes)
    found = pa.Table.from_pylist(events, EVENT_SCHEMA)
    seen = sorted(s for s in shapes(LogPlan((), lineage.lives, 10_000, None), found) if s.table == "t")
    catalog, definition = load_tables(session, [T])[T], load_definitions(session, [T])[T]
    logged = logged_table(0, "app", catalog, definition, seen, lineage)
    begin_snapshot(session)
    session.execute(logged.scratch.create())
    folded = fold_steps(steps(LogPlan((logged.place,), lineage.lives, 10_000, None), found))
    for sql in logged.scratch.inserts(folded if logged.place.key else balance(folded)):
        session.execute(sql)
    reader = Reader(session, is_snapshot=True, place="target")
    with ThreadPoolExecutor(1) as pool:
        comparison = Comparison(
            logged.shape, *logged.sides(reader), pool=pool, throttle=Throttle({}, {}, print), seconds=0.5,
        )  # fmt: skip
        return logged, comparison.run(Tally())


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
        found = session.rows(f"SELECT `{POSITION}` FROM {logged.scratch.name}")
    finally:
        session.close()
    assert (tally.differences, found) == ([], [(f"{topic}/0/1",)])


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
        assert compared(session, [event])[0].place.key == ("a",)
    finally:
        session.close()


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
