"""Rows of which the log holds only a part: the fix file never writes them as if it were the whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bridge.events import SEP, Event
from tests.generated.verifying import verify_events
from tests.support.clients import run_file
from tests.support.pipelines import run_all
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change
from tests.support.verify_servers import execute

COLUMNS = ("id", "n", "v")


def inserts(key: Sequence[str], *ids: int, first: int = 10) -> list[Event]:
    """Rows whose n is 5."""
    return [row_change(first + i, "t", COLUMNS, key, after=[one, 5, 1]) for i, one in enumerate(ids)]


def untold(ts: int, before: Sequence[object] | None, after: Sequence[object] | None) -> Event:
    """A row change by event time, of a table whose column v no message has."""
    return row_change(ts, "t", ["id", "n"], ["id"], before=before, after=after)._replace(by_time=True)


def test_a_column_that_no_message_has(target: str, tmp_path: Path) -> None:
    """Updates may have left it out: a lost row whose last change is one is not written without it.  One that was
    inserted never had it upstream."""
    log = [untold(10, [1, 5], [1, 6]), untold(12, None, [2, 6]), untold(14, [5, 5], [6, 5]), untold(15, None, [7, 7])]
    events = in_one_partition(log)
    execute(target, "CREATE DATABASE m; CREATE TABLE m.t (id INT PRIMARY KEY, n INT, v INT DEFAULT 9)")
    execute(target, "INSERT INTO m.t VALUES (1, 5, 1), (5, 5, 1), (8, 5, 1)")
    run_all(target, events, boundary_seconds=None)
    assert verify_events(target, events).is_equal
    execute(target, "DELETE FROM m.t")
    [table] = verify_events(target, events, fixes=tmp_path / "fix.sql").tables
    assert table.missing == 4
    text = (tmp_path / "fix.sql").read_text()
    assert [one in text for one in ("lacks the row 1,", "lacks the row 6,")] == [True, True]
    run_file(target, tmp_path / "fix.sql")
    assert execute(target, "SELECT id, n, v FROM m.t ORDER BY id") == [(2, 6, 9), (7, 7, 9)]
    assert verify_events(target, events).tables[0].missing == 2


ADDED = {
    "a constant": (["ADD COLUMN c INT NOT NULL DEFAULT 4"], True),
    "nothing": (["ADD COLUMN c INT"], True),
    "another default since": (["ADD COLUMN c INT DEFAULT 4", "ALTER COLUMN c SET DEFAULT 5"], False),
    "the time of the change": (["ADD COLUMN c DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)"], False),
    "no default": (["ADD COLUMN c INT NOT NULL"], False),
}
"""What older rows got, and whether a new row gets the same."""


@pytest.mark.parametrize("key", [["id"], []])
@pytest.mark.parametrize("case", ADDED)
def test_a_column_that_was_added_since(target: str, tmp_path: Path, case: str, key: list[str]) -> None:
    """A lost row that is older is written where the column's default gives it what it had; otherwise it is not
    covered."""
    alters, is_sure = ADDED[case]
    made = schema_change(5, f"CREATE TABLE t (id INT {'PRIMARY KEY' if key else ''}, n INT, v INT)")
    log = [made, *inserts(key, 1, 2), *(schema_change(20 + i, f"ALTER TABLE t {one}") for i, one in enumerate(alters))]
    events = in_one_partition([*log, boundary(91)])
    execute(target, "CREATE DATABASE m")
    run_all(target, events)
    rows = execute(target, "SELECT * FROM m.t ORDER BY id")
    assert verify_events(target, events).is_equal
    execute(target, "DELETE FROM m.t WHERE id = 2")
    [table] = verify_events(target, events, fixes=tmp_path / "fix.sql").tables
    assert (table.missing, table.not_covered) == ((1, 0) if is_sure else (0, 1))
    run_file(target, tmp_path / "fix.sql")
    assert execute(target, "SELECT * FROM m.t ORDER BY id") == (rows if is_sure else rows[:1])


def untold_log(made: str, key: Sequence[str]) -> list[Event]:
    """Three rows by event time, of which no message has v: each came by an update of its key."""
    log = [schema_change(5, f"CREATE TABLE t ({made})")._replace(by_time=True)]
    return log + [untold(10 + one, [one + 10, 5], [one, 5])._replace(key=SEP.join(key)) for one in (1, 2, 3)]


def test_a_damaged_row_is_not_deleted_where_its_right_form_is_not_written(target: str, tmp_path: Path) -> None:
    """It may be the last copy of the values that the log does not hold.  Both are named, and once the right row is
    there, the next file deletes the other."""
    events = in_one_partition(untold_log("id INT PRIMARY KEY, n INT, v INT", ["id"]))
    execute(target, "CREATE DATABASE m")
    run_all(target, events.slice(0, 1), boundary_seconds=None)
    execute(target, "INSERT INTO m.t VALUES (11, 5, 7), (12, 5, 7), (13, 5, 7)")
    run_all(target, events, boundary_seconds=None)
    assert verify_events(target, events).is_equal
    rows = execute(target, "SELECT * FROM m.t ORDER BY id")
    execute(target, "UPDATE m.t SET id = 77 WHERE id = 2")
    damaged = execute(target, "SELECT * FROM m.t ORDER BY id")
    table = verify_events(target, events, fixes=tmp_path / "fix.sql").tables[0]
    assert (table.missing, table.extra) == (1, 1)
    text = (tmp_path / "fix.sql").read_text()
    assert "lacks the row 2" in text
    assert "may be a damaged form" in text
    run_file(target, tmp_path / "fix.sql")
    assert execute(target, "SELECT * FROM m.t ORDER BY id") == damaged
    execute(target, "INSERT INTO m.t SELECT 2, n, v FROM m.t WHERE id = 77")
    assert verify_events(target, events, fixes=tmp_path / "fix.sql").tables[0].extra == 1
    run_file(target, tmp_path / "fix.sql")
    assert execute(target, "SELECT * FROM m.t ORDER BY id") == rows
    assert verify_events(target, events).is_equal


HELD: dict[str, tuple[str, str, list[str]]] = {
    "lost": ("id INT PRIMARY KEY, n INT, v INT UNIQUE", "DELETE FROM m.t WHERE id = 5", ["id"]),
    "changed": ("id INT PRIMARY KEY, n INT, v INT UNIQUE", "UPDATE m.t SET v = 66 WHERE id = 5", ["id"]),
    "of a text": ("id INT PRIMARY KEY, n INT, v VARCHAR(9) UNIQUE", "DELETE FROM m.t WHERE id = 5", ["id"]),
    "of a known part": ("id INT PRIMARY KEY, n INT, v INT UNIQUE", "UPDATE m.t SET v = 66 WHERE id = 1", ["id"]),
}
"""The table's columns, the damage to the row whose value of v the extra row has now, and the key."""


@pytest.mark.parametrize("case", HELD)
def test_an_extra_row_that_stays_may_have_a_unique_value_of_another_row(target: str, tmp_path: Path, case: str) -> None:
    """That row is not written, and the others are: the file ends without an error.  Once the extra row is gone, the
    next file writes that row."""
    made, damage, key = HELD[case]
    values: dict[int, object] = {one: f"é{one}" if "CHAR" in made else 10 * one for one in (1, 2, 5, 6, 7)}
    create = schema_change(5, f"CREATE TABLE t ({made}) CHARSET utf8mb4 COLLATE utf8mb4_general_ci")
    log = [row_change(10 + one, "t", COLUMNS, key, after=[one, 5, values[one]]) for one in values]
    part = ["id", "v"]
    log += [row_change(30 + i, "t", part, key, before=[i, values[i]], after=[i, values[i]]) for i in (1, 2)]
    events = in_one_partition([one._replace(by_time=True) for one in (create, *log)])
    execute(target, "CREATE DATABASE m")
    run_all(target, events, boundary_seconds=None)
    right = execute(target, "SELECT * FROM m.t ORDER BY id")
    taken, seventh = (f"'{str(values[one]).upper()}'" for one in (1 if "id = 1" in damage else 5, 7))
    execute(target, f"{damage}; DELETE FROM m.t WHERE id IN (2, 7); INSERT INTO m.t VALUES (77, 9, {taken})")
    if key:
        execute(target, f"UPDATE m.t SET v = {seventh} WHERE id = 6")
    verify_events(target, events, fixes=tmp_path / "fix.sql")
    assert (tmp_path / "fix.sql").read_text().count("is not written") == 1
    assert run_file(target, tmp_path / "fix.sql").returncode == 0
    assert execute(target, "SELECT n FROM m.t WHERE id = 77") == [(9,)]
    assert execute(target, "SELECT * FROM m.t WHERE id IN (6, 7) ORDER BY id") == right[-2:]
    execute(target, f"DELETE FROM m.t WHERE id = 77; INSERT INTO m.t VALUES (2, 5, '{values[2]}')")
    verify_events(target, events, fixes=tmp_path / "fix.sql")
    assert run_file(target, tmp_path / "fix.sql").returncode == 0
    assert execute(target, "SELECT * FROM m.t ORDER BY id") == right
    assert verify_events(target, events).is_equal
