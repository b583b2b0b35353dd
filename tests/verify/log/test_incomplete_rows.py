"""Rows of which the log holds only a part: the fix file never writes them as if it were the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bridge.events import SEP, Event
from bridge.verify.log import recompute
from tests.generated.verifying import verify_events
from tests.support.clients import run_file
from tests.support.pipelines import run_all
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change
from tests.support.verify_servers import execute

COLUMNS = ("id", "n", "v")


def inserts(key: Sequence[str], *ids: int, first: int = 10) -> list[Event]:
    """Rows whose n is 5."""
    return [row_change(first + i, "t", COLUMNS, key, after=[one, 5, 1]) for i, one in enumerate(ids)]


RETYPED: dict[str, tuple[str, list[str], Sequence[int], str]] = {
    "all rows are older": ("PRIMARY KEY", ["id"], (), "DELETE FROM m.t WHERE id = 1"),
    "some rows are": ("PRIMARY KEY", ["id"], (3, 4), "DELETE FROM m.t WHERE id IN (1, 3)"),
    "without a key": ("", [], (3, 4), "DELETE FROM m.t WHERE id IN (1, 3)"),
    "one of two equal ones": ("", [], (), "DELETE FROM m.t WHERE id = 2 LIMIT 1"),
}
"""The key, the rows that come behind the change of a column's type, and the damage."""


@pytest.mark.parametrize("case", RETYPED)
def test_a_column_whose_type_was_changed(target: str, tmp_path: Path, case: str) -> None:
    """What became of its values the messages do not tell: a lost row is not written without it."""
    made, key, later, damage = RETYPED[case]
    log = [schema_change(5, f"CREATE TABLE t (id INT NOT NULL {made}, n INT, v INT)")]
    log += inserts(key, 1, 2, *((2,) if not key else ()))
    log += [schema_change(20, "ALTER TABLE t MODIFY n BIGINT"), *inserts(key, *later, first=30), boundary(91)]
    events = in_one_partition(log)
    execute(target, "CREATE DATABASE m")
    run_all(target, events)
    assert verify_events(target, events).is_equal
    execute(target, damage)
    assert verify_events(target, events, fixes=tmp_path / "fix.sql").tables[0].missing == 1 + bool(later)
    assert "copy it by hand" in (tmp_path / "fix.sql").read_text()
    run_file(target, tmp_path / "fix.sql")
    assert execute(target, "SELECT COUNT(*) FROM m.t WHERE n IS NULL") == [(0,)]
    assert verify_events(target, events).tables[0].missing == 1


def untold(ts: int, before: Sequence[object] | None, after: Sequence[object] | None) -> Event:
    """A row change by event time, of a table whose column v no message has."""
    return row_change(ts, "t", ["id", "n"], ["id"], before=before, after=after)._replace(by_time=True)


def test_a_column_that_no_message_has(target: str, tmp_path: Path) -> None:
    """Updates may have left it out: a lost row of which the log has no insert is not written without it.  One that was
    inserted never had it upstream, whatever key it has since."""
    log = [untold(10, [1, 5], [1, 6]), untold(11, None, [2, 5]), untold(12, [2, 5], [2, 6]), untold(13, None, [3, 5])]
    log += [
        untold(14, [3, 5], [4, 6]),
        untold(15, [5, 5], [6, 5]),
        untold(16, [7, 5], [7, 6]),
        untold(17, [7, 6], None),
    ]
    events = in_one_partition([*log, untold(18, None, [7, 7])])
    execute(target, "CREATE DATABASE m; CREATE TABLE m.t (id INT PRIMARY KEY, n INT, v INT DEFAULT 9)")
    execute(target, "INSERT INTO m.t VALUES (1, 5, 1), (5, 5, 1), (7, 5, 1), (8, 5, 1)")
    run_all(target, events, boundary_seconds=None)
    assert verify_events(target, events).is_equal
    execute(target, "DELETE FROM m.t")
    [table] = verify_events(target, events, fixes=tmp_path / "fix.sql").tables
    assert table.missing == 5
    text = (tmp_path / "fix.sql").read_text()
    assert [one in text for one in ("lacks the row 1,", "lacks the row 6,")] == [True, True]
    run_file(target, tmp_path / "fix.sql")
    assert execute(target, "SELECT id, n, v FROM m.t ORDER BY id") == [(2, 6, 9), (4, 6, 9), (7, 7, 9)]
    assert verify_events(target, events).tables[0].missing == 2


def test_rows_stay_whole_when_their_key_becomes_another_one(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those whose key has moved since, and whatever executor has them."""
    monkeypatch.setattr(recompute, "_EVENTS_PER_BUCKET", 1)
    changed = schema_change(20, "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (n)")._replace(by_time=True)
    log = [untold(10 + n, None, [n, n]) for n in range(1, 9)]
    moves = [untold(30 + n, [n, n], [n, n + 50])._replace(key="n") for n in range(1, 5)]
    events = in_one_partition([*log, changed, *moves])
    made = "CREATE TABLE m.t (id INT NOT NULL PRIMARY KEY, n INT NOT NULL, v INT DEFAULT 9)"
    execute(target, f"CREATE DATABASE m; {made}")
    run_all(target, events, boundary_seconds=None)
    assert verify_events(target, events).is_equal
    execute(target, "DELETE FROM m.t")
    assert verify_events(target, events, fixes=tmp_path / "fix.sql").tables[0].missing == 8
    run_file(target, tmp_path / "fix.sql")
    assert verify_events(target, events).is_equal


ADDED = {
    "a constant": (["ADD COLUMN c INT NOT NULL DEFAULT 4"], True),
    "nothing": (["ADD COLUMN c INT"], True),
    "another default since": (["ADD COLUMN c INT DEFAULT 4", "ALTER COLUMN c SET DEFAULT 5"], False),
    "another default and name since": (
        ["ADD COLUMN c INT DEFAULT 4", "ALTER c SET DEFAULT 5", "CHANGE COLUMN c d INT DEFAULT 5"],
        False,
    ),
    "another column of that name": (
        ["ADD COLUMN c INT DEFAULT 4", "ALTER c SET DEFAULT 5", "DROP COLUMN c", "ADD COLUMN c INT DEFAULT 6"],
        True,
    ),
    "the time of the change": (["ADD COLUMN c DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)"], False),
    "no default": (["ADD COLUMN c INT NOT NULL"], False),
}
"""What older rows got, and whether a new row gets the same."""


@pytest.mark.parametrize("key", [["id"], []])
@pytest.mark.parametrize("case", ADDED)
def test_a_column_that_was_added_since(target: str, tmp_path: Path, case: str, key: list[str]) -> None:
    """A lost row that is older is only written where the column's default gives it what it had."""
    alters, is_sure = ADDED[case]
    made = schema_change(5, f"CREATE TABLE t (id INT {'PRIMARY KEY' if key else ''}, n INT, v INT)")
    log = [made, *inserts(key, 1, 2), *(schema_change(20 + i, f"ALTER TABLE t {one}") for i, one in enumerate(alters))]
    events = in_one_partition([*log, boundary(91)])
    execute(target, "CREATE DATABASE m")
    run_all(target, events)
    rows = execute(target, "SELECT * FROM m.t ORDER BY id")
    assert verify_events(target, events).is_equal
    execute(target, "DELETE FROM m.t WHERE id = 2")
    assert verify_events(target, events, fixes=tmp_path / "fix.sql").tables[0].missing == 1
    assert ("copy it by hand" in (tmp_path / "fix.sql").read_text()) == (not is_sure)
    run_file(target, tmp_path / "fix.sql")
    assert execute(target, "SELECT * FROM m.t ORDER BY id") == (rows if is_sure else rows[:1])


@pytest.mark.parametrize("is_key_last", [True, False])
def test_a_column_that_was_added_and_a_key_that_was_changed(target: str, tmp_path: Path, is_key_last: bool) -> None:
    """That a row lacks a value is known also after it is spelled by another key."""
    added, key = ["ADD COLUMN c INT DEFAULT 4", "ALTER c SET DEFAULT 5"], ["DROP PRIMARY KEY, ADD PRIMARY KEY (v)"]
    log = [schema_change(5, "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, n INT, v INT NOT NULL)")]
    log += [row_change(10 + one, "t", COLUMNS, ["id"], after=[one, 5, 10 * one]) for one in (1, 2)]
    alters = [*added, *key] if is_key_last else [*key, *added]
    log += [schema_change(20 + number, f"ALTER TABLE t {one}") for number, one in enumerate(alters)]
    log.append(row_change(60, "t", [*COLUMNS, "c"], ["v"], after=[7, 5, 77, 8]))
    events = in_one_partition([*log, boundary(91)])
    execute(target, "CREATE DATABASE m")
    run_all(target, events)
    assert verify_events(target, events).is_equal
    execute(target, "DELETE FROM m.t WHERE id IN (2, 7)")
    assert verify_events(target, events, fixes=tmp_path / "fix.sql").tables[0].missing == 2
    assert "copy it by hand" in (tmp_path / "fix.sql").read_text()
    run_file(target, tmp_path / "fix.sql")
    assert execute(target, "SELECT * FROM m.t ORDER BY id") == [(1, 5, 10, 4), (7, 5, 77, 8)]


def retyped_log(made: str, key: Sequence[str]) -> list[Event]:
    """Three rows, whose n has another type since."""
    log = [schema_change(5, f"CREATE TABLE t ({made})"), *inserts(key, 1, 2, 3)]
    return [*log, schema_change(20, "ALTER TABLE t MODIFY n BIGINT"), boundary(91)]


def added_log(made: str, key: Sequence[str]) -> list[Event]:
    """Three rows, that have one more column since."""
    log = [schema_change(5, f"CREATE TABLE t ({made})"), *inserts(key, 1, 2, 3)]
    return [*log, schema_change(20, "ALTER TABLE t ADD COLUMN c DATETIME(6) DEFAULT NOW(6)"), boundary(91)]


def untold_log(made: str, key: Sequence[str]) -> list[Event]:
    """Three rows by event time, of which no message has v: each came by an update of its key."""
    log = [schema_change(5, f"CREATE TABLE t ({made})")._replace(by_time=True)]
    return log + [untold(10 + one, [one + 10, 5], [one, 5])._replace(key=SEP.join(key)) for one in (1, 2, 3)]


DAMAGED: dict[str, tuple[Callable[[str, Sequence[str]], list[Event]], str, list[str]]] = {
    "retyped, without a key": (retyped_log, "id INT, n INT, v INT", []),
    "retyped, without a key but with an index": (retyped_log, "id INT, n INT, v INT, KEY (id)", []),
    "retyped": (retyped_log, "id INT PRIMARY KEY, n INT, v INT", ["id"]),
    "retyped, with another unique key": (retyped_log, "id INT PRIMARY KEY, n INT, v INT, UNIQUE (id, v)", ["id"]),
    "added, without a key": (added_log, "id INT, n INT, v INT", []),
    "added": (added_log, "id INT PRIMARY KEY, n INT, v INT", ["id"]),
    "in no message": (untold_log, "id INT PRIMARY KEY, n INT, v INT", ["id"]),
}
"""The log, and the table's columns and key."""


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_row_is_not_deleted_where_its_right_form_is_not_written(
    target: str, tmp_path: Path, case: str
) -> None:
    """It may be the last copy of the values that the log does not hold.  Both are named, and once the right row is
    there, the next file deletes the other."""
    log, made, key = DAMAGED[case]
    events = in_one_partition(log(made, key))
    boundary_seconds = None if log is untold_log else 30
    execute(target, "CREATE DATABASE m")
    if log is untold_log:
        run_all(target, events.slice(0, 1), boundary_seconds=None)
        execute(target, "INSERT INTO m.t VALUES (11, 5, 7), (12, 5, 7), (13, 5, 7)")
    run_all(target, events, boundary_seconds=boundary_seconds)
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
    execute(
        target, f"INSERT INTO m.t SELECT 2, {', '.join(('n', 'v', 'c')[: len(rows[0]) - 1])} FROM m.t WHERE id = 77"
    )
    assert verify_events(target, events, fixes=tmp_path / "fix.sql").tables[0].extra == 1
    run_file(target, tmp_path / "fix.sql")
    assert execute(target, "SELECT * FROM m.t ORDER BY id") == rows
    assert verify_events(target, events).is_equal


HELD: dict[str, tuple[str, str, list[str]]] = {
    "lost": ("id INT PRIMARY KEY, n INT, v INT UNIQUE", "DELETE FROM m.t WHERE id = 5", ["id"]),
    "changed": ("id INT PRIMARY KEY, n INT, v INT UNIQUE", "UPDATE m.t SET v = 66 WHERE id = 5", ["id"]),
    "of a text": ("id INT PRIMARY KEY, n INT, v VARCHAR(9) UNIQUE", "DELETE FROM m.t WHERE id = 5", ["id"]),
    "of a known part": ("id INT PRIMARY KEY, n INT, v INT UNIQUE", "UPDATE m.t SET v = 66 WHERE id = 1", ["id"]),
    "without a key": ("id INT, n INT, v INT UNIQUE", "DELETE FROM m.t WHERE id = 5", []),
}
"""The table's columns, the damage to the row whose value of v the extra row has now, and the key."""


@pytest.mark.parametrize("case", HELD)
def test_an_extra_row_that_stays_may_have_a_unique_value_of_another_row(target: str, tmp_path: Path, case: str) -> None:
    """That row is not written, and the others are: the file ends without an error.  Once the extra row is gone, the
    next file writes that row."""
    made, damage, key = HELD[case]
    values: dict[int, object] = {one: f"é{one}" if "CHAR" in made else 10 * one for one in (1, 2, 5, 6, 7)}
    log = [schema_change(5, f"CREATE TABLE t ({made}) CHARSET utf8mb4 COLLATE utf8mb4_general_ci")]
    log += [row_change(10 + one, "t", COLUMNS, key, after=[one, 5, values[one]]) for one in (1, 2)]
    log.append(schema_change(20, "ALTER TABLE t MODIFY n BIGINT"))
    log += [row_change(30 + one, "t", COLUMNS, key, after=[one, 5, values[one]]) for one in (5, 6, 7)]
    events = in_one_partition([*log, boundary(91)])
    execute(target, "CREATE DATABASE m")
    run_all(target, events)
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
