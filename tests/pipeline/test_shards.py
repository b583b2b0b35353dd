"""Shards that are merged into one table: their rows, and their schema changes, each with one effect."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from bridge.config import DdlSection, Settings
from bridge.errors import ApplyError, HeldError, UsageError
from bridge.events import Event, RowChange
from bridge.mysql.connection.session import Session
from bridge.protocols.batch_decode import ruled
from tests.support.command import bridge
from tests.support.dying import Died, DyingAtNumber
from tests.support.pipelines import contents, drop_all, journal, run_all, session_after
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change

SETTINGS = Settings(route=("s?.t => s.t",))
RULES, DDL = SETTINGS.row_rules, SETTINGS.ddl_rules()
MAKE = "CREATE TABLE t (id INT PRIMARY KEY, v INT)"
DEFAULT = 5
ADD = "ALTER TABLE t ADD COLUMN a INT DEFAULT 5, ADD INDEX (a)"


session = session_after("CREATE DATABASE s")


def run(target: str, *events: Any, **options: Any) -> None:
    placed: pa.Table = ruled(in_one_partition([*events, boundary(events[-1].commit_ts + 1)]), RULES)
    run_all(target, placed, ddl=DDL, **options)


def insert(ts: int, shard: str, *row: int) -> RowChange:
    columns = ["id", "v", "a"][: len(row)]
    return row_change(ts, "t", columns, ["id"], after=row, schema=shard)


def update(ts: int, shard: str, before: list[int], after: list[int]) -> RowChange:
    return row_change(ts, "t", ["id", "v", "a"][: len(after)], ["id"], before=before, after=after, schema=shard)


def ddl(ts: int, shard: str, text: str) -> Any:
    return schema_change(ts, text, schema=shard)


def states(session: Session) -> list[tuple[Any, ...]]:
    return session.rows("SELECT commit_ts, schema_name, state, outcome FROM _bridge.schema_changes ORDER BY 1")


HISTORY = (
    ddl(10, "s1", MAKE),
    ddl(11, "s2", MAKE),
    insert(12, "s1", 1, 1),
    insert(12, "s2", 101, 1),
    ddl(13, "s1", ADD),
    insert(14, "s1", 2, 2, 7),
    insert(14, "s2", 102, 2),
    update(15, "s2", [101, 1], [101, 9]),
    ddl(16, "s2", ADD),
    insert(17, "s2", 103, 3, 8),
    update(17, "s2", [102, 2, 5], [102, 2, 6]),
    ddl(18, "s3", MAKE),
    ddl(19, "s3", ADD),
    insert(20, "s3", 201, 1, 1),
)


def test_the_first_runs_and_the_others_confirm(target: str, session: Session) -> None:
    """Rows of a shard that does not have a column yet keep the column's default."""
    run(target, *HISTORY)
    rows = [(1, 1, 5), (2, 2, 7), (101, 9, 5), (102, 2, 6), (103, 3, 8), (201, 1, 1)]
    assert session.rows("SELECT id, v, a FROM s.t ORDER BY id") == rows
    assert states(session) == [
        (10, "s1", "done", "ran"),
        (11, "s2", "confirmed", "confirmed, as run for s1.t"),
        (13, "s1", "done", "ran"),
        (16, "s2", "confirmed", "confirmed, as run for s1.t"),
        (18, "s3", "confirmed", "confirmed, as run for s1.t"),
        (19, "s3", "confirmed", "confirmed, as run for s1.t"),
    ]
    assert "confirmed, as run for s1.t" in bridge("ddl", "list", "--target", target).out


def test_a_pipeline_that_dies_at_any_step(target: str, session: Session) -> None:
    """What ran or was confirmed is neither done again nor lost."""
    history = [HISTORY[i] for i in (0, 1, 3, 4, 6, 8)]
    run(target, *history)
    expected = contents(session), journal(session)
    for crash_at in count(1):
        drop_all(session)
        session.execute("CREATE DATABASE s")
        dying = DyingAtNumber(crash_at)
        try:
            run(target, *history, trace=dying)
        except Died:
            run(target, *history)
        assert (contents(session), journal(session)) == expected, f"after a crash at step {crash_at}"
        if dying.steps < crash_at:
            break
    assert dying.steps > 15


def test_a_shard_that_is_made_otherwise_is_held(target: str, session: Session) -> None:
    """What defines the same in other words is confirmed; an approved one runs nothing."""
    same = "CREATE TABLE IF NOT EXISTS t (id INT, v INT, PRIMARY KEY (id))"
    other = "CREATE TABLE t (id INT, v INT)"
    events = [ddl(10, "s1", MAKE), insert(11, "s1", 1, 1), ddl(12, "s2", same), ddl(13, "s3", other)]
    events += [insert(14, "s2", 2, 2)]
    with pytest.raises(HeldError, match=r"s3\.t is merged into s\.t, which has other columns, keys"):
        run(target, *events)
    assert bridge("ddl", "approve", "13", "--target", target).code == 0
    run(target, *events)
    assert session.rows("SELECT id FROM s.t") == [(1,), (2,)]
    assert states(session)[1:] == [
        (12, "s2", "confirmed", "confirmed: s.t is what it makes"),
        (13, "s3", "confirmed", "confirmed by the operator"),
    ]


def test_a_table_that_is_there_already(target: str, session: Session) -> None:
    """The first shard's statement is compared with it as well."""
    session.execute("CREATE TABLE s.t (id INT PRIMARY KEY, v INT) COLLATE utf8mb4_bin")
    run(target, ddl(10, "s1", MAKE), ddl(11, "s2", MAKE), ddl(12, "s1", ADD), ddl(13, "s2", ADD))
    assert [state for _, _, state, _ in states(session)] == ["confirmed", "confirmed", "done", "confirmed"]


@pytest.mark.parametrize(
    "text", ["DROP TABLE t", "TRUNCATE TABLE t", "RENAME TABLE t TO old", "CREATE OR REPLACE TABLE t (id INT KEY)"]
)
def test_what_one_shard_does_to_its_rows_is_not_done_to_all(target: str, session: Session, text: str) -> None:
    """Not even when it is approved."""
    events = [ddl(10, "s1", MAKE), ddl(11, "s2", MAKE), insert(12, "s1", 1, 1), insert(13, "s2", 2, 2)]
    events += [ddl(14, "s2", text), insert(15, "s1", 3, 3)]
    for decision in ("approve", "approve", "skip"):
        with pytest.raises(HeldError, match="the target has the rows of all shards in one table"):
            run(target, *events)
        assert session.rows("SELECT id FROM s.t") == [(1,), (2,)]
        assert bridge("ddl", decision, "14", "--target", target).code == 0
    run(target, *events)
    assert session.rows("SELECT id FROM s.t") == [(1,), (2,), (3,)]


def test_a_column_that_is_dropped_by_the_last_shard(target: str, session: Session) -> None:
    """Skipped for the others, whose rows go on without it."""
    drop, add = "ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD w INT"
    events = [ddl(10, "s1", MAKE), ddl(11, "s2", MAKE), ddl(12, "s1", drop), insert(13, "s1", 1)]
    events += [insert(14, "s2", 2, 2), ddl(15, "s2", drop), ddl(16, "s1", add), ddl(17, "s2", add)]
    with pytest.raises(HeldError, match="skip it for each shard but the last"):
        run(target, *events)
    assert bridge("ddl", "skip", "12", "--target", target).code == 0
    with pytest.raises(HeldError, match="skip it for each shard but the last"):
        run(target, *events)
    assert session.rows("SELECT * FROM s.t ORDER BY id") == [(1, None), (2, 2)]
    assert bridge("ddl", "approve", "15", "--target", target).code == 0
    run(target, *events)
    assert session.rows("SELECT * FROM s.t ORDER BY id") == [(1, None), (2, None)]
    wanted = ["done", "confirmed", "skipped", "done", "done", "confirmed"]
    assert [state for _, _, state, _ in states(session)] == wanted


def test_a_column_that_comes_again_where_it_was_kept(target: str, session: Session) -> None:
    """Two shards of three drop it, and one adds it anew; the third's drop is skipped, so that its rows keep what they
    held.  That its ADD COLUMN ran for another shard makes them no righter: it is held, and not skipped either, until
    they were put right by hand."""
    drop, add = "ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD COLUMN v INT DEFAULT 5"
    events = [*(ddl(10 + n, f"s{n}", MAKE) for n in (1, 2, 3)), insert(14, "s1", 1, 1), insert(14, "s2", 2, 2)]
    events += [ddl(15, "s3", drop), ddl(16, "s1", drop), ddl(17, "s1", add), insert(18, "s2", 12, 9)]
    events += [ddl(19, "s2", drop), ddl(20, "s2", add), insert(21, "s2", 22, 7)]
    for ts, decision in ((15, "skip"), (16, "approve"), (19, "skip")):
        with pytest.raises(HeldError):
            run(target, *events)
        assert bridge("ddl", decision, str(ts), "--target", target).code == 0
    with pytest.raises(HeldError, match=r"rows of s2\.t hold in s\.t what they held before, as 19-\w+ was skipped"):
        run(target, *events)
    refused = bridge("ddl", "skip", "20", "--target", target)
    assert (refused.code, "keep what they held before, as 19-" in refused.err) == (2, True)
    session.execute("UPDATE s.t SET v = 5 WHERE id = 12")
    assert bridge("ddl", "done", "20", "--target", target).code == 0
    run(target, *events)
    assert session.rows("SELECT id, v FROM s.t ORDER BY id") == [(1, 5), (2, 5), (12, 5), (22, 7)]


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize(
    ("drop", "make"),
    [("DROP TABLE t", MAKE), ("ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD COLUMN v INT DEFAULT 5")],
)
def test_what_comes_again_whose_drop_was_ignored(target: str, drop: str, make: str) -> None:
    """The shard's rows from before are there still, with what they held."""
    settings = Settings(route=("s?.t => s.t",), ddl=DdlSection(ignore=("drop table", "drop column")))
    events = [ddl(11, "s1", MAKE), ddl(12, "s2", MAKE), insert(13, "s1", 1, 1), insert(13, "s2", 2, 2)]
    events += [ddl(14, "s1", drop), ddl(15, "s1", make), insert(16, "s1", 3, 7)]
    rows = ruled(in_one_partition([*events, boundary(17)]), settings.row_rules)
    with pytest.raises(HeldError, match=r"rows of s1\.t hold in s\.t what they held before, as 14-\w+ was ignored"):
        run_all(target, rows, ddl=settings.ddl_rules())


def test_a_column_that_comes_again_with_another_default(target: str, session: Session) -> None:
    """Where its own drop was skipped, no other shard has run the same: it is held as well.  It ended in error 1060."""
    events = [*(ddl(10 + n, f"s{n}", MAKE) for n in (1, 2)), insert(13, "s1", 1, 1), insert(13, "s2", 2, 2)]
    events += [ddl(14, "s1", "ALTER TABLE t DROP COLUMN v"), ddl(15, "s1", "ALTER TABLE t ADD COLUMN v INT DEFAULT 5")]
    events += [insert(16, "s1", 3, 7)]
    with pytest.raises(HeldError):
        run(target, *events)
    assert bridge("ddl", "skip", "14", "--target", target).code == 0
    with pytest.raises(HeldError, match=r"rows of s1\.t hold in s\.t what they held before, as 14-\w+ was skipped"):
        run(target, *events)
    session.execute("ALTER TABLE s.t ALTER COLUMN v SET DEFAULT 5")
    session.execute("UPDATE s.t SET v = 5 WHERE id = 1")
    assert bridge("ddl", "done", "15", "--target", target).code == 0
    run(target, *events)
    assert session.rows("SELECT id, v FROM s.t ORDER BY id") == [(1, 5), (2, 2), (3, 7)]


def test_what_other_shards_have_skipped_is_no_matter(target: str, session: Session) -> None:
    """Nor is what was dropped since, by any of them: a column that a shard gets for the first time, or anew, is
    right."""
    drop, add = "ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD COLUMN a INT"
    events = [*(ddl(10 + n, f"s{n}", MAKE) for n in (1, 2)), ddl(13, "s1", add), insert(14, "s1", 1, 1, 8)]
    events += [ddl(15, "s1", drop), ddl(16, "s2", "ALTER TABLE t ADD COLUMN b INT NOT NULL"), ddl(17, "s2", add)]
    events += [row_change(18, "t", ["id", "a"], ["id"], after=[2, 9], schema="s2"), ddl(19, "s2", drop)]
    events += [ddl(20, "s1", add), insert(21, "s1", 11, 1, 6), ddl(22, "s2", add), insert(23, "s2", 12, 2, 7)]
    for ts, decision in ((15, "skip"), (16, "skip"), (19, "approve")):
        with pytest.raises(HeldError):
            run(target, *events)
        assert bridge("ddl", decision, str(ts), "--target", target).code == 0
    run(target, *events)
    assert session.rows("SELECT id, a FROM s.t ORDER BY id") == [(1, None), (2, None), (11, 6), (12, 7)]


def test_keys_that_meet_stop_it(target: str, session: Session) -> None:
    """Before the step is written."""
    with pytest.raises(ApplyError, match=r"two shards of s\.t have a row with the same key \(id = 1\)"):
        run(target, ddl(10, "s1", MAKE), ddl(11, "s2", MAKE), insert(12, "s1", 1, 1), insert(13, "s2", 1, 2))
    assert session.rows("SELECT * FROM s.t") == []


def test_keys_that_the_target_takes_for_one_meet(target: str, session: Session) -> None:
    """However each shard spells them."""
    session.execute("CREATE TABLE s.t (k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY)")
    rows = [row_change(10 + n, "t", ["k"], ["k"], after=[key], schema=f"s{n}") for n, key in enumerate(("b", "B"))]
    with pytest.raises(ApplyError, match=r"two shards of s\.t have a row with the same key \(k = 'B'\)"):
        run(target, *rows)
    assert session.rows("SELECT * FROM s.t") == []


def test_a_table_of_the_merged_name_is_no_shard(target: str, session: Session) -> None:
    """Unless a route merges it as well."""
    session.execute("CREATE TABLE s.t (id INT PRIMARY KEY, v INT)")
    with pytest.raises(UsageError, match=r"s\.t and the shards of the route 's\?\.t => s\.t' would both be written"):
        run(target, insert(10, "s1", 1, 1), insert(11, "s", 2, 2))
    assert session.rows("SELECT * FROM s.t") == []


class Shard:
    """An upstream table that is drawn: its keys are its own, its columns come when they come."""

    def __init__(self, number: int, random: Random) -> None:
        self.name, self._number, self._random = f"s{number}", number, random
        self.columns = ["id", "v"]
        self.rows: dict[int, list[int]] = {}

    def add(self, ts: int, column: str) -> Any:
        """A column that all rows get with its default."""
        self.columns.append(column)
        self.rows = {key: [*row, DEFAULT] for key, row in self.rows.items()}
        return ddl(ts, self.name, f"ALTER TABLE t ADD COLUMN {column} INT DEFAULT {DEFAULT}")

    def change(self, ts: int) -> RowChange:
        """An insert, update, change of the key, or delete."""
        key = 2 * self._random.randrange(6) + self._number
        before = self.rows.pop(key, None)
        after: list[int] | None = [key, *(self._random.randrange(9) for _ in self.columns[1:])]
        if before is not None and self._random.random() < 0.4:
            free = 2 * self._random.randrange(6, 9) + self._number
            after = None if free in self.rows or self._random.random() < 0.5 else [free, *before[1:]]
        if after is not None:
            self.rows[after[0]] = after
        return row_change(ts, "t", self.columns, ["id"], before=before, after=after, schema=self.name)


def drawn(random: Random) -> tuple[list[Event], list[tuple[int, ...]]]:
    """Two shards at work, and the rows that the merged table must end with."""
    shards = [Shard(1, random), Shard(2, random)]
    events = [ddl(1, "s1", MAKE), ddl(2, "s2", MAKE)]
    due = [[shard, column] for shard in shards for column in ("a", "b")]
    for ts in range(3, 40):
        shard = random.choice(shards)
        left = [column for one, column in due if one is shard]
        if left and random.random() < 0.2:
            due.remove([shard, left[0]])
            events.append(shard.add(ts, str(left[0])))
        else:
            events.append(shard.change(ts))
    width = max(len(shard.columns) for shard in shards)
    rows = [(*row, *[DEFAULT] * (width - len(row))) for shard in shards for row in shard.rows.values()]
    return events, sorted(rows)


@pytest.mark.parametrize("seed", range(3))
def test_any_history(target: str, session: Session, seed: int) -> None:
    """Whatever the steps, the writers and the crash: the merged table ends with the rows of both shards."""
    random = Random(seed)
    events, expected = drawn(random)
    options = {"batch": random.choice([None, 3, 7]), "rows_per_transaction": random.choice([1, 4, 1000])}
    options["writers"] = random.choice([0, 2])
    with suppress(Died):
        run(target, *events, trace=DyingAtNumber(random.randrange(60) + 1), **options)
    run(target, *events, **options)
    assert session.rows("SELECT * FROM s.t ORDER BY id") == expected
    found = [state for _, _, state, _ in states(session)]
    assert found.count("done") == 1 + len(session.rows("SHOW COLUMNS FROM s.t")) - 2


def test_whole_databases(target: str, session: Session) -> None:
    """Each table of them with its namesakes; the target's database is made once."""
    session.execute("DROP DATABASE s")
    settings = Settings(route=("s?.* => s.*",))
    events = [ddl(ts, shard, f"CREATE DATABASE {shard}") for ts, shard in ((1, "s1"), (2, "s2"))]
    events += [ddl(3, "s1", MAKE), ddl(4, "s2", MAKE), insert(5, "s1", 1, 1), insert(5, "s2", 2, 2), boundary(9)]
    run_all(target, ruled(in_one_partition(events), settings.row_rules), ddl=settings.ddl_rules())
    assert session.rows("SELECT id FROM s.t") == [(1,), (2,)]
    assert session.rows("SHOW DATABASES LIKE 's_'") == []


def test_shards_within_one_database(target: str, session: Session) -> None:
    """The table that they copy is a shard as well, and may have the name of the merged one."""
    session.execute("DROP DATABASE s")
    settings = Settings(route=("s.t_* => s.t", "s.t => s.t"))
    texts = [
        *("CREATE DATABASE s", MAKE, "CREATE TABLE t_1 LIKE t", "CREATE TABLE t_2 LIKE t_1"),
        *("ALTER TABLE t_1 ADD a INT", "ALTER TABLE s.t_2 ADD a INT"),
        *("CREATE TABLE other (id INT PRIMARY KEY)", "CREATE TABLE t_3 LIKE s.t_2"),
    ]
    events = [ddl(ts, "s", text) for ts, text in enumerate(texts, 1)]
    rows = [insert(20, "s", i, i)._replace(table=f"t_{i}" if i else "t") for i in range(4)]
    placed = in_one_partition([*events, *rows, boundary(30)])
    run_all(target, ruled(placed, settings.row_rules), ddl=settings.ddl_rules())
    assert session.rows("SELECT id, a FROM s.t ORDER BY id") == [(i, None) for i in range(4)]
    found = [state for _, _, state, _ in states(session)]
    assert found == ["done", "done", "confirmed", "confirmed", "done", "confirmed", "done", "confirmed"]
    assert session.rows("SHOW TABLES FROM s") == [("other",), ("t",)]
