"""Schema changes on a real target: what counts as done, what stops, and how the operator goes on."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from bridge.commands.ddl import release
from bridge.errors import HeldError, SchemaChangeError
from bridge.model import SchemaChange
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.schema_changes.ddl_runner import COPIES_IN_A_PACKET
from bridge.mysql.state import ddl_journal
from bridge.mysql.state.ddl_journal import JournalState
from bridge.mysql.state.progress import ProgressTable
from tests.support.command import bridge
from tests.support.dying import Died, dying_at
from tests.support.pipelines import journal, run_all
from tests.support.schema_change_runs import TS, decide, outcome, run
from tests.support.upstreams import boundary, in_one_partition, schema_change

THERE_ALREADY = [
    ("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE t (id INT PRIMARY KEY, v INT)"),
    ("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY)", "CREATE TABLE t (id INT PRIMARY KEY, extra INT)"),
    (
        "CREATE TABLE t (id INT PRIMARY KEY) COLLATE utf8mb4_bin",
        "CREATE TABLE t (id INT PRIMARY KEY) COLLATE utf8mb4_bin",
    ),
    ("CREATE TABLE t LIKE s", "CREATE TABLE s (a INT, KEY (a)); CREATE TABLE t LIKE s"),
    ("CREATE VIEW v AS SELECT 1 AS x", "CREATE VIEW v AS SELECT 1 AS x"),
    ("CREATE DATABASE m", "DO 0"),
    ("ALTER TABLE t ADD COLUMN c INT", "CREATE TABLE t (id INT PRIMARY KEY, c INT)"),
    ("ALTER TABLE t ADD COLUMN c INT FIRST, ADD INDEX i (c)", "CREATE TABLE t (id INT PRIMARY KEY, c INT, KEY i (c))"),
    ("CREATE INDEX i ON t (a)", "CREATE TABLE t (a INT, KEY i (a))"),
    (
        "ALTER TABLE t ADD COLUMN c INT",
        "CREATE TABLE p (id INT PRIMARY KEY);"
        "CREATE TABLE t (id INT PRIMARY KEY, c INT, CONSTRAINT f FOREIGN KEY (id) REFERENCES p (id))",
    ),
]


SOMETHING_ELSE = [
    ("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE t (id INT PRIMARY KEY, v BIGINT)"),
    ("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE t (id INT)"),
    ("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY, v INT)", "CREATE TABLE t (id INT PRIMARY KEY)"),
    ("CREATE TABLE t (a VARCHAR(9)) COLLATE utf8mb4_bin", "CREATE TABLE t (a VARCHAR(9)) COLLATE utf8mb4_general_ci"),
    ("CREATE VIEW v AS SELECT 1 AS x", "CREATE VIEW v AS SELECT 2 AS x"),
    ("CREATE VIEW v AS SELECT 1 AS x", "CREATE TABLE v (x INT)"),
    ("ALTER TABLE t ADD COLUMN c INT", "CREATE TABLE t (id INT PRIMARY KEY, c BIGINT)"),
    ("ALTER TABLE t ADD COLUMN c INT, DROP COLUMN d", "CREATE TABLE t (id INT PRIMARY KEY, c INT, d INT)"),
    ("ALTER TABLE t ADD COLUMN c INT, ADD COLUMN d INT", "CREATE TABLE t (id INT PRIMARY KEY, c INT)"),
    ("ALTER TABLE t ADD COLUMN c INT, DROP PRIMARY KEY", "CREATE TABLE t (id INT PRIMARY KEY, c INT)"),
    ("CREATE UNIQUE INDEX i ON t (a)", "CREATE TABLE t (a INT, KEY i (a))"),
    ("DROP TABLE t", "DO 0"),
    ("ALTER TABLE t DROP COLUMN c", "CREATE TABLE t (id INT PRIMARY KEY)"),
    ("RENAME TABLE t TO u", "CREATE TABLE t (id INT PRIMARY KEY); CREATE TABLE u (id INT PRIMARY KEY)"),
]


@pytest.mark.parametrize(("statement", "setup"), THERE_ALREADY)
def test_what_is_there_already_counts_as_made(target: str, session: Session, statement: str, setup: str) -> None:
    """A statement whose whole effect is on the target already, as after an earlier replay, is done."""
    for made in setup.split(";"):
        session.execute(made)
    before = session.rows("SELECT * FROM information_schema.columns WHERE table_schema = 'm'")
    run(target, statement)
    assert outcome(session)[0] == "done"
    assert session.rows("SELECT * FROM information_schema.columns WHERE table_schema = 'm'") == before
    assert session.rows("SHOW TABLES FROM _bridge LIKE 'probe%'") == []


@pytest.mark.parametrize(("statement", "setup"), SOMETHING_ELSE)
def test_something_else_of_that_name_stops(target: str, session: Session, statement: str, setup: str) -> None:
    """Where the target holds something else, or part of the effect only, the bridge stops, naming statement and
    position, and the target is unchanged."""
    for made in setup.split(";"):
        session.execute(made)
    with pytest.raises(SchemaChangeError) as raised:
        run(target, statement)
    assert statement.removeprefix("CREATE ") in str(raised.value)  # as it was sent
    assert "cdc/0/0" in raised.value.where
    assert outcome(session)[0] == "refused"
    assert session.rows("SHOW TABLES FROM _bridge LIKE 'probe%'") == []


FIXES = [
    ("ALTER TABLE t DROP COLUMN a", ["CREATE TABLE t (a INT, b INT, CONSTRAINT own CHECK (a > b))"],
     ["ALTER TABLE t DROP CONSTRAINT own"]),
    ("ALTER TABLE t ADD UNIQUE (a)", ["CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1), (1)"],
     ["DELETE FROM t LIMIT 1", "ALTER TABLE t ADD UNIQUE (a)"]),
    ("DROP TABLE nosuch", [], []),
    ("RENAME TABLE t TO u", ["CREATE TABLE t (b INT)", "CREATE TABLE u (a INT)"], ["DROP TABLE u"]),
    ("ALTER TABLE nosuch.t ADD COLUMN c INT", [], ["CREATE DATABASE nosuch", "CREATE TABLE nosuch.t (a INT, c INT)"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("statement", "fix"),
    [
        ("CREATE TABLE nosuch.t (a INT)", "create the database on the target as it is upstream, then start"),
        ("ALTER TABLE nosuch ADD COLUMN c INT", "make the table on the target as it is upstream, then start"),
        ("CREATE TABLE there (b INT)", "take what is in its way from the target, then start"),
        ("ALTER TABLE there ADD UNIQUE (a)", "if mysql.tidb of the upstream says that new_collation_enabled is False"),
    ],
)
def test_a_refusal_says_what_to_do_first(target: str, session: Session, statement: str, fix: str) -> None:
    """TiCDC sends the tables of a database but not the database itself, which a first start most often lacks."""
    session.execute("CREATE TABLE there (a VARCHAR(9))")
    session.execute("INSERT INTO there VALUES ('a'), ('a ')")
    with pytest.raises(SchemaChangeError) as raised:
        run(target, statement)
    assert raised.value.fix.startswith(fix)


def test_a_refusal_for_want_of_a_right_says_so(target: str, session: Session) -> None:
    """Nothing is in the statement's way then."""
    session.execute("CREATE USER poor@'%'")
    try:
        session.execute("GRANT ALL ON _bridge.* TO poor@'%'")
        session.execute("GRANT SELECT ON m.* TO poor@'%'")
        with pytest.raises(SchemaChangeError) as raised:
            run(target.replace("root@", "poor@"), "CREATE TABLE denied (a INT)")
    finally:
        session.execute("DROP USER poor@'%'")
    assert raised.value.fix.startswith("grant the right that is missing, then start")


def test_a_refusal_says_a_statement_once(target: str, session: Session) -> None:
    """As it was sent, since the target's words are about that; the list has both."""
    session.execute("CREATE TABLE t (a INT)")
    with pytest.raises(SchemaChangeError) as raised:
        run(target, "ALTER TABLE t ADD INDEX i (missing) INVISIBLE")
    assert "the statement is: ALTER TABLE t ADD INDEX i (missing) IGNORED (`bridge ddl list` shows" in raised.value.what
    assert "INVISIBLE" not in raised.value.what
    assert "INVISIBLE" in bridge("ddl", "list", "--target", target).out
    shown = bridge("status", "--target", target).out.splitlines()
    assert len([line for line in shown if "INVISIBLE" in line]) == 1
    assert any(line.startswith("still to run") and line.endswith(": is refused") for line in shown)


@pytest.mark.parametrize(("statement", "setup", "fix"), FIXES)
def test_the_fix_of_a_refusal_works(
    target: str, session: Session, statement: str, setup: list[str], fix: list[str]
) -> None:
    """A statement that the target refuses stops the bridge at every start, until the operator has taken away what is in
    its way, or has made by hand what it adds; then what follows runs."""
    for made in setup:
        session.execute(made)
    follow = "CREATE TABLE afterwards (a INT)"
    with pytest.raises(SchemaChangeError, match="the target refused"):
        run(target, statement, follow)
    if fix:
        with pytest.raises(SchemaChangeError, match="the target refused"):
            run(target, statement, follow)
    for made in fix:
        session.execute(made)
    run(target, statement, follow)
    assert {row[2] for row in journal(session)[:-1]} == {"done"}
    assert session.rows("SHOW TABLES LIKE 'afterwards'")


ROW = ["CREATE TABLE t (id INT PRIMARY KEY, v INT, w INT)", "INSERT INTO t VALUES (1, 10, 20)"]


OWN = ["ALTER TABLE t ADD CONSTRAINT own CHECK (id < v), ADD CONSTRAINT too CHECK (v < w)"]


@pytest.mark.parametrize("released", [None, JournalState.APPROVED])
def test_a_statement_that_was_refused_is_not_taken_for_done(
    target: str, session: Session, released: JournalState | None
) -> None:
    """Whatever the operator changes in its table: it runs once nothing is in its way any more."""
    for made in (*ROW, *OWN):
        session.execute(made)
    statement = "ALTER TABLE t DROP COLUMN v, ADD COLUMN v INT DEFAULT 7"
    for constraint in ("own", "too"):
        with pytest.raises(SchemaChangeError, match="the target refused"):
            run(target, statement)
        session.execute(f"ALTER TABLE t DROP CONSTRAINT {constraint}")
        if released is not None:
            decide(target, session, released)
    run(target, statement)
    assert session.rows("SELECT id, v, w FROM t") == [(1, 7, 20)]
    assert {row[2] for row in journal(session)[:-1]} == {"done"}


def test_a_swap_that_was_refused_is_held(target: str, session: Session) -> None:
    """It may have been made by hand since then."""
    for made in (*ROW, *OWN):
        session.execute(made)
    statement = "ALTER TABLE t DROP COLUMN v, CHANGE w v INT, ADD COLUMN w INT"
    with pytest.raises(SchemaChangeError, match="the target refused"):
        run(target, statement)
    session.execute("ALTER TABLE t DROP CONSTRAINT own, DROP CONSTRAINT too")
    with pytest.raises(HeldError, match="the target refused it, and was changed by hand since then"):
        run(target, statement)
    decide(target, session, JournalState.APPROVED)
    run(target, statement)
    assert session.rows("SELECT id, v, w FROM t") == [(1, 20, None)]


@pytest.mark.parametrize(
    "statement",
    [
        "SET STATEMENT max_statement_time = 1 FOR DROP TABLE t",
        "DROP TABLE _bridge.progress",
        "TRUNCATE `_BRIDGE`.`owner`",
        "DROP TABLE `#mysql50#_bridge`.progress",
        "TRUNCATE `_br\u0130dge`.owner",
        "DROP TABLE `#mysql50#mysql`.global_priv",
        "DROP DATABASE `#mysql50#_bridge`",
        "CREATE TABLE k LIKE _bridge.owner",
        "ALTER TABLE t ADD FOREIGN KEY (v) REFERENCES _bridge.progress (name)",
    ],
)
def test_a_refused_statement_goes_on_once_skipped(target: str, session: Session, statement: str) -> None:
    """What the policy does not allow never runs; the statement that the error tells the operator lets the bridge go
    on."""
    follow = "CREATE TABLE afterwards (a INT)"
    with pytest.raises(SchemaChangeError, match="the bridge does not run this statement") as raised:
        run(target, statement, follow)
    with pytest.raises(SchemaChangeError):
        run(target, statement, follow)
    named = re.search(r"bridge ddl skip (\S+)", raised.value.fix)
    assert named
    release(Target(target), ProgressTable("bridge"), named[1], JournalState.SKIPPED)
    run(target, statement, follow)
    assert session.rows("SHOW TABLES LIKE 'afterwards'")


def test_a_new_table_costs_the_same_after_many_others(
    target: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ran before is not read again for each: the last of 10,000 would take a fifth of a second each."""
    session.execute("CREATE DATABASE n")
    made = [schema_change(TS, f"CREATE TABLE t{number} (k VARCHAR(9))", schema="n") for number in range(30)]
    read, entry = [], ddl_journal._entry
    monkeypatch.setattr(ddl_journal, "_entry", lambda row: read.append(row) or entry(row))
    run_all(target, in_one_partition([*made, boundary(TS + 1)]))
    assert len(session.rows("SELECT 1 FROM _bridge.schema_changes WHERE state = 'done'")) == 30
    assert len(read) < 30


def test_a_drop_of_tables_that_were_not_all_given(target: str, session: Session) -> None:
    """Of several tables those are dropped that the target was given."""
    run_all(
        target,
        in_one_partition(
            [
                schema_change(TS, "CREATE TABLE t (id INT)"),
                schema_change(TS + 1, "CREATE GLOBAL TEMPORARY TABLE g (id INT) ON COMMIT DELETE ROWS"),
                schema_change(TS + 2, "DROP TABLE m.g, m.t"),
                boundary(TS + 3),
            ]
        ),
    )
    assert session.rows("SHOW TABLES") == []
    assert session.rows("SELECT run_text FROM _bridge.schema_changes WHERE commit_ts = %s", (TS + 2,)) == [
        ("DROP TABLE m.t",)
    ]


NOTHING_LEFT = [
    "ALTER DATABASE m PLACEMENT POLICY=DEFAULT",
    "ALTER DATABASE PLACEMENT POLICY p",
    "ALTER DATABASE m SET TIFLASH REPLICA 1",
    "ALTER TABLE t PARTITION p PLACEMENT POLICY=`x`",
    "ALTER TABLE t ENCRYPTION='N' AUTO_ID_CACHE=3",
]


@pytest.mark.parametrize("statement", NOTHING_LEFT)
def test_nothing_of_it_is_for_this_target(target: str, session: Session, statement: str) -> None:
    """A statement of which nothing is left runs nothing, and is on record as done."""
    session.execute("CREATE TABLE t (id INT)")
    run(target, statement, "CREATE TABLE afterwards (a INT)")
    said = session.rows(
        "SELECT state, outcome, run_text FROM _bridge.schema_changes WHERE statement = %s", (statement,)
    )
    assert said == [("done", "nothing to run: nothing of it is for this target", "")]
    assert session.rows("SHOW TABLES LIKE 'afterwards'")


def test_a_drop_of_several_tables_cut_in_the_middle(target: str, session: Session) -> None:
    """A server that dies in DROP TABLE t, u may have dropped one of them: the restart drops the rest."""
    session.execute("CREATE TABLE t (id INT)")
    session.execute("CREATE TABLE u (id INT)")
    events = in_one_partition([schema_change(TS, "DROP TABLE `m`.`t`, `m`.`u`"), boundary(TS + 1)])

    with pytest.raises(Died):
        run_all(target, events, trace=dying_at("ddl intent"))
    session.execute("DROP TABLE t")
    run_all(target, events)
    assert session.rows("SHOW TABLES") == []
    assert outcome(session)[0] == "done"


@pytest.fixture
def packet(session: Session) -> Iterator[int]:
    """The server reads no more than this at once."""
    before = session.value("SELECT @@global.max_allowed_packet")
    session.execute("SET GLOBAL max_allowed_packet = 1048576")
    yield 1048576
    session.execute(f"SET GLOBAL max_allowed_packet = {before}")


def test_a_statement_longer_than_a_packet(target: str, session: Session, packet: int) -> None:
    """What the server would not read, with its record, stops the bridge with the size it needs, and nothing is written;
    what is just short enough runs, however much of it must be escaped.  The fix works."""
    session.execute("CREATE TABLE t (a INT)")
    longest = packet // COPIES_IN_A_PACKET
    escaped = "'\"\\" * 99_999
    fits = f"ALTER TABLE t /*! COMMENT 'x' */ /*{escaped}"[: longest - 2] + "*/"
    too_long = f"ALTER TABLE t COMMENT 'y' /*{'x' * longest}*/"
    events = in_one_partition([schema_change(TS, fits), schema_change(TS + 1, too_long), boundary(TS + 2)])
    with pytest.raises(SchemaChangeError, match=r"max_allowed_packet of 1,048,576") as raised:
        run_all(target, events)
    assert "cdc/0/1" in raised.value.where
    assert len(str(raised.value)) < 1000
    assert [row[2] for row in journal(session)[:-1]] == ["done"]
    session.execute("SET GLOBAL max_allowed_packet = 4194304")
    run_all(target, events)
    assert "'y'" in session.rows("SHOW CREATE TABLE t")[0][1]


def test_a_lock_that_is_held_too_long_is_waited_for_again(target: str, session: Session) -> None:
    """A lock wait that times out refuses nothing for good: the schema change runs once the lock is gone."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    before = session.value("SELECT @@GLOBAL.lock_wait_timeout")
    session.execute("SET GLOBAL lock_wait_timeout = 1")
    tries: list[str] = []

    def trace(step: str) -> None:
        tries.extend([step] if step == "ddl intent" else [])
        if len(tries) == 2:
            session.execute("UNLOCK TABLES")

    try:
        session.execute("LOCK TABLES t WRITE")
        events = in_one_partition([schema_change(TS, "ALTER TABLE t ADD COLUMN c INT"), boundary(TS + 1)])
        run_all(target, events, trace=trace)
    finally:
        session.execute("UNLOCK TABLES")
        session.execute(f"SET GLOBAL lock_wait_timeout = {before}")
    assert len(tries) >= 2
    assert outcome(session) == ("done", "ran")


def test_statements_of_one_moment_are_told_apart() -> None:
    """Text and schema tell schema changes of one commit_ts apart; a copy at another position is the same one."""
    one = SchemaChange(TS, "m", "t", "DROP TABLE t", "cdc/0/1")
    assert one.statement_hash == SchemaChange(TS, "m", "t", "DROP TABLE t", "cdc/3/9").statement_hash
    assert one.statement_hash != SchemaChange(TS, "n", "t", "DROP TABLE t", "cdc/0/1").statement_hash
    assert one.statement_hash != SchemaChange(TS, "m", "u", "DROP TABLE u", "cdc/0/1").statement_hash
