"""Whole logs, as events, against real targets: hashes first, then values."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from bridge.config import Settings
from bridge.errors import SourceError
from bridge.protocols import DecodeOptions, make_decoder
from bridge.protocols.batch_decode import Messages, decode_messages
from bridge.sources.source import TopicNow
from bridge.verify.checkpoint import Checkpoint
from tests.generated.verifying import InMemory, verify, verify_events
from tests.support.clients import run_file
from tests.support.pipelines import run_all
from tests.support.upstreams import Literal, boundary, events_table, in_one_partition, row_change, schema_change
from tests.support.verify_servers import execute
from tests.support.wire import TSO, canal


def test_rows_count_once(target: str) -> None:
    """Also those that hashes call equal and that lie between others that have to be loaded."""
    spelled = ["1.00", "2.0", "3.00", "4.00", "5.00", "6.0", "7.0", "8.00", "9.0"]
    log = [schema_change(5, "CREATE TABLE t (id INT PRIMARY KEY, v DECIMAL(9,2))")]
    log += [row_change(10, "t", ["id", "v"], ["id"], after=[n, Literal(v)]) for n, v in enumerate(spelled)]
    events = in_one_partition([*log, boundary(11)])
    execute(target, "CREATE DATABASE m")
    run_all(target, events)
    [table] = verify_events(target, events).tables
    assert (table.is_equal, table.rows) == (True, len(spelled))


CONVERT = "CONVERT TO CHARACTER SET latin1 COLLATE latin1_swedish_ci"


@pytest.mark.parametrize(
    ("was", "becomes", "rows", "gone"),
    [
        ("VARCHAR(9) COLLATE latin1_bin", CONVERT, ["a", "A", "c", "b", "B"], ["A", "b"]),
        (
            "VARCHAR(9) COLLATE latin1_bin",
            "MODIFY id VARCHAR(9) COLLATE latin1_german1_ci",
            ["a", "A", "ä"],
            ["A", "a"],
        ),
        ("VARCHAR(9)", "MODIFY id INT NOT NULL", ["01", "1", "2", "02"], ["1", "2"]),
        ("INT", "MODIFY id VARCHAR(9) NOT NULL", [1, 10, 2], [10]),
        (
            "DATETIME(6)",
            "MODIFY id DATETIME NOT NULL",
            ["2020-01-01 00:00:00.4", "2020-01-01 00:00:00.3", "2020-01-01 00:00:00.7"],
            ["2020-01-01 00:00:00.3"],
        ),
    ],
)
def test_keys_that_became_one(target: str, was: str, becomes: str, rows: list[str], gone: list[str]) -> None:
    """What went before the key was changed was another row: nothing is extra.  What is lost or too much is found."""
    log = [schema_change(5, f"CREATE TABLE t (id {was} PRIMARY KEY, v INT) DEFAULT CHARSET latin1")]
    log += [row_change(10 + n, "t", ["id", "v"], ["id"], after=[one, n]) for n, one in enumerate(rows)]
    log += [row_change(50 + n, "t", ["id", "v"], ["id"], before=[one, 0]) for n, one in enumerate(gone)]
    log.append(schema_change(90, f"ALTER TABLE t {becomes}"))
    events = in_one_partition([*log, boundary(91)])
    execute(target, "CREATE DATABASE m")
    run_all(target, events)
    [table] = verify_events(target, events).tables
    assert table.is_equal
    if was != "INT":  # the number may have been that of an ENUM's name
        lost = next(n for n, one in enumerate(rows) if one not in gone)
        execute(target, f"DELETE FROM m.t WHERE v = {lost}")
        assert verify_events(target, events).tables[0].missing == 1
        execute(target, f"INSERT INTO m.t VALUES ('{'2030-01-01' if 'DATE' in was else '7'}', 9)")
        assert verify_events(target, events).tables[0].extra == 1


def test_updates_that_look_like_inserts(target: str) -> None:
    """Open Protocol without old values calls an update of a key's letters an insert, and both spellings were one row:
    when one goes, the other is not missing.  With old values they were two rows.  (The bridge refuses a second spelling
    whose first one did not go: it is given the log without that.)"""
    execute(target, "CREATE DATABASE m")
    log = [schema_change(5, "CREATE TABLE t (id VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT)")]
    log += [row_change(ts, "t", ["id", "v"], ["id"], after=[one, ts]) for ts, one in enumerate(["a", "A"], 10)]
    log.append(row_change(20, "t", ["id", "v"], ["id"], before=["A", 11]))
    log.append(schema_change(30, "ALTER TABLE t MODIFY id VARCHAR(9) COLLATE utf8mb4_unicode_ci"))
    events = in_one_partition([*log, boundary(91)])
    run_all(target, in_one_partition([log[0], *log[2:], boundary(91)]))
    assert verify_events(target, events, "open-protocol").is_equal
    update = row_change(15, "t", ["id", "v"], ["id"], before=["b", 1], after=["b", 2])
    events = in_one_partition([*log, update, boundary(91)])
    assert verify_events(target, events, "open-protocol").tables[0].missing == 2


def test_executors_do_without_clients_of_databases() -> None:
    """To load SQLAlchemy took half of the time in which an executor gets ready."""
    code = "import sys, bridge.verify.log.recompute; print('sqlalchemy' in sys.modules, 'numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout == "False True\n"


def test_a_topic_that_was_made_anew(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages tell of another history, by which verify would call right rows different, and put others in their
    place: it says so instead."""
    execute(target, "CREATE DATABASE m; CREATE TABLE m.t (id INT PRIMARY KEY)")
    old = in_one_partition([row_change(10, "t", ["id"], ["id"], after=[1]), boundary(11)])
    new = in_one_partition([row_change(9, "t", ["id"], ["id"], before=[1]), boundary(11)])
    run_all(target, old)
    execute(target, """UPDATE _bridge.progress SET topics = '{"cdc": "one", "gone": "two"}'""")
    for now in ({}, {"cdc": TopicNow("one", 1)}, {"cdc": TopicNow("", 1)}):
        monkeypatch.setattr(InMemory, "topics", lambda _, now=now: now)
        assert verify_events(target, old).is_equal
    monkeypatch.setattr(InMemory, "topics", lambda _: {"cdc": TopicNow("another", 1)})
    with pytest.raises(SourceError, match=r"whose id was one and is now another; fix: .* --against upstream"):
        verify_events(target, new)


def test_fixes_of_parts_of_a_table(target: str, tmp_path: Path) -> None:
    """A table that was compared in parts is fixed as one: its own column stays in rows of all of them."""
    log = [row_change(10 + n, "t", ["id", "u"], ["id"], after=[n, n]) for n in range(9)]
    events = in_one_partition([*log, boundary(91)])
    execute(target, "CREATE DATABASE m; CREATE TABLE m.t (id INT PRIMARY KEY, u INT UNIQUE, own INT DEFAULT 5)")
    run_all(target, events)
    execute(target, "UPDATE m.t SET u = u + 100, own = id WHERE id IN (1, 7)")
    assert verify_events(target, events, fixes=tmp_path / "fix.sql").tables[0].different == 2
    run_file(target, tmp_path / "fix.sql")
    assert verify_events(target, events).is_equal
    assert execute(target, "SELECT id, own FROM m.t WHERE own <> 5") == [(1, 1), (7, 7)]


@pytest.mark.parametrize("columns", [{"d": "timestamp"}, {"d": "timestamp", "j": "json"}])
def test_what_was_equal_by_other_settings_is_read_again(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: dict[str, str]
) -> None:
    """After an interruption: rows that are right in one zone are not in another, and --resume does not skip them.
    Compared by hashes, and by value."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(Checkpoint, "forget", lambda _: None)
    values = {"d": "2026-01-01 00:00:00", "j": "{}"}
    row = canal("INSERT", {"id": ("int", "1"), **{name: (of, values[name]) for name, of in columns.items()}})
    end = canal("TIDB_WATERMARK", {}, database="", table="", data=None, _tidb={"watermarkTs": TSO + 9})
    messages = Messages(["cdc"] * 2, [0, 0], [0, 1], [None, None], [row, end])
    others = ", j JSON" * ("j" in columns)
    execute(target, f"CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, d TIMESTAMP NULL{others})")
    run_all(target, decode_messages(make_decoder("canal-json", DecodeOptions("UTC")), messages))

    def found(timezone: str) -> int:
        settings = Settings.model_validate({"name": "bridge", "timezone": timezone})
        report = verify(target, settings, "canal-json", [messages], {("cdc", 0): 2}, resume=True)
        return sum(table.different for table in report.tables)

    assert (found("UTC"), found("+08:00"), found("UTC")) == (0, 1, 0)


PLACED: dict[str, tuple[tuple[str, int], tuple[str, int]]] = {
    "partitions by number": (("cdc", 2), ("cdc", 10)),
    "topics by name": (("cdc", 0), ("cdc-b", 0)),
    "topics before partitions": (("cdc", 3), ("cdd", 1)),
    "names that end with a blank": (("cdc", 0), ("cdc ", 0)),
}
"""Two places in the order in which the bridge merges them."""


@pytest.mark.parametrize("case", PLACED)
def test_spellings_of_a_key_at_one_event_time(target: str, case: str) -> None:
    """In several partitions they are in the order in which the bridge applies them, whatever their offsets are."""
    first, second = PLACED[case]
    named = partial(row_change, table="t", columns=["id", "v"], key=["id"])
    rows = [(first, 5, named(9, after=["a", 1])), (first, 7, named(10, before=["a", 1]))]
    rows.append((second, 3, named(10, after=["A", 2])))
    events = pa.concat_tables(
        events_table([(partition, offset, row._replace(by_time=True))], topic)
        for (topic, partition), offset, row in rows
    )
    execute(target, "CREATE DATABASE m")
    execute(target, "CREATE TABLE m.t (id VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT)")
    run_all(target, events, boundary_seconds=None)
    assert execute(target, "SELECT * FROM m.t") == [("A", 2)]
    assert verify_events(target, events).is_equal
    execute(target, "UPDATE m.t SET v = 3")
    [shown] = verify_events(target, events).tables[0].shown
    assert shown.position == f"{second[0]}/{second[1]}/3"


@pytest.mark.parametrize("key", ["PRIMARY KEY (g)", "PRIMARY KEY (g, w)", "UNIQUE KEY (g)"])
def test_keys_of_generated_columns(mysql_target: str, tmp_path: Path, key: str) -> None:
    """They tell rows apart as the messages have them; a fix file does not write them."""
    table = f"CREATE TABLE t (v INT, g INT AS (v * 2) STORED NOT NULL, w INT NOT NULL, {key})"
    handle = ["g", "w"] if "w" in key else ["g"]
    log = [schema_change(5, table)]
    log += [row_change(10 + n, "t", ["v", "g", "w"], handle, after=[n, 2 * n, n]) for n in range(5)]
    log.append(row_change(20, "t", ["v", "g", "w"], handle, before=[1, 2, 1]))
    log.append(row_change(21, "t", ["v", "g", "w"], handle, before=[2, 4, 2], after=[7, 14, 2]))
    events = in_one_partition([*log, boundary(91)])
    execute(mysql_target, "CREATE DATABASE m")
    run_all(mysql_target, events)
    assert execute(mysql_target, "SELECT v, g FROM m.t ORDER BY v") == [(0, 0), (3, 6), (4, 8), (7, 14)]
    assert verify_events(mysql_target, events).is_equal
    execute(
        mysql_target, "UPDATE m.t SET w = 9 WHERE v = 3; DELETE FROM m.t WHERE v = 7; INSERT m.t (v, w) VALUES (1, 1)"
    )
    [found] = verify_events(mysql_target, events, fixes=tmp_path / "fix.sql").tables
    assert found.different + found.missing + found.extra == (4 if "w" in key else 3)
    run_file(mysql_target, tmp_path / "fix.sql")
    assert verify_events(mysql_target, events).is_equal


@pytest.mark.parametrize(
    "change", ["MODIFY k VARBINARY(9) NOT NULL, MODIFY w VARBINARY(9)", "CONVERT TO CHARACTER SET binary"]
)
def test_texts_that_became_bytes(target: str, tmp_path: Path, change: str) -> None:
    """The messages do not tell which bytes: such keys are not covered, nor are such values, and a fix file leaves
    them.  What came since is compared."""
    columns = ["k", "w", "id"]
    log = [
        schema_change(5, "CREATE TABLE t (k VARCHAR(9) PRIMARY KEY, w VARCHAR(9), id INT) DEFAULT CHARSET=latin1"),
        schema_change(5, "CREATE TABLE u (id INT PRIMARY KEY, w VARCHAR(9)) DEFAULT CHARSET=latin1"),
        row_change(10, "t", columns, ["k"], after=["É", "é", 1]),
        row_change(11, "u", ["id", "w"], ["id"], after=[1, "É"]),
        schema_change(20, f"ALTER TABLE t {change}"),
        schema_change(20, f"ALTER TABLE u {change.replace('MODIFY k VARBINARY(9) NOT NULL, ', '')}"),
        row_change(21, "t", columns, ["k"], after=[Literal("x'62'"), Literal("x'c9'"), 2]),
        row_change(22, "u", ["id", "w"], ["id"], after=[2, Literal("x'c9'")]),
    ]
    events = in_one_partition([*log, boundary(91)])
    settings = Settings.model_validate({"timezone": "UTC", "ddl": {"source": "mariadb"}})
    execute(target, "CREATE DATABASE m")
    run_all(target, events, ddl=settings.ddl_rules())
    rows = [(b"b", b"\xc9", 2), (b"\xc9", b"\xe9", 1)]
    assert execute(target, "SELECT k, w, id FROM m.t ORDER BY k") == rows
    by_key, by_id = verify_events(target, events, settings=settings).tables
    assert (by_key.is_equal, by_key.not_covered, by_id.is_equal, by_id.not_covered) == (True, 1, True, 0)
    execute(
        target, "UPDATE m.t SET w = 'x' WHERE id = 2; UPDATE m.u SET w = 'x' WHERE id = 2; DELETE FROM m.u WHERE id = 1"
    )
    by_key, by_id = verify_events(target, events, fixes=tmp_path / "fix.sql", settings=settings).tables
    assert (by_key.different, by_id.different, by_id.missing) == (1, 1, 1)
    run_file(target, tmp_path / "fix.sql")
    assert execute(target, "SELECT k, w, id FROM m.t ORDER BY k") == rows
    assert execute(target, "SELECT id, w FROM m.u") == [(2, b"\xc9")]


def test_members_that_became_bytes(target: str) -> None:
    """The same of the number of an ENUM's member: as bytes it is the member's name, which no message tells."""
    log = [
        schema_change(5, "CREATE TABLE t (k ENUM('a','b') PRIMARY KEY)"),
        row_change(10, "t", ["k"], ["k"], after=[Literal("2")]),
        schema_change(20, "ALTER TABLE t MODIFY k VARBINARY(9) NOT NULL"),
        row_change(21, "t", ["k"], ["k"], after=[Literal("x'63'")]),
    ]
    events = in_one_partition([*log, boundary(91)])
    execute(target, "CREATE DATABASE m")
    run_all(target, events)
    assert execute(target, "SELECT k FROM m.t ORDER BY k") == [(b"b",), (b"c",)]
    [found] = verify_events(target, events).tables
    assert (found.is_equal, found.rows, found.not_covered) == (True, 1, 1)


@pytest.mark.parametrize(("timezone", "covered"), [("+08:00", 0), ("UTC", 1)])
def test_moments_that_became_local_times(mysql_target: str, timezone: str, covered: int) -> None:
    """A key that was a TIMESTAMP is a time of the upstream's zone since it is a DATETIME: such rows are compared only
    where the two are the same."""
    settings = Settings.model_validate({"timezone": timezone, "ddl": {"source": "mysql-8"}})
    log = [
        schema_change(5, "CREATE TABLE t (k TIMESTAMP NOT NULL PRIMARY KEY)"),
        row_change(10, "t", ["k"], ["k"], after=["2024-01-01 00:00:00"]),
        schema_change(20, "ALTER TABLE t MODIFY k DATETIME NOT NULL"),
        row_change(21, "t", ["k"], ["k"], after=["2024-01-02 00:00:00"]),
    ]
    events = in_one_partition([*log, boundary(91)])
    execute(mysql_target, "CREATE DATABASE m")
    run_all(mysql_target, events, ddl=settings.ddl_rules())
    [found] = verify_events(mysql_target, events, settings=settings).tables
    assert (found.is_equal, found.rows, found.not_covered) == (True, 1 + covered, 1 - covered)
