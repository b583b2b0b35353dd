"""Whole verifications against the log, of what the bridge wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pymysql.err import DataError, MySQLError, OperationalError

from bridge.config import Settings
from bridge.ddl.policy import ddl_rules
from bridge.errors import StoppedError
from bridge.events import SEP, Event
from bridge.mysql.connection.session import Session
from bridge.protocols.values.row_image import with_forms
from bridge.tso import ms_tso
from bridge.verify.log.loaded_comparison import LoadedTable
from bridge.verify.log.log_tables import LoggedTable
from bridge.verify.report import TableResult
from tests.generated.verifying import verify_events
from tests.pipeline.by_partitions.test_sent_again import STAMPS, in_topic
from tests.support.pipelines import admin, run_all, sql
from tests.support.upstreams import boundary, events_table, in_one_partition, row_change, schema_change
from tests.support.verify_servers import execute


def log_of(*steps: str | tuple[int | None, int | None]) -> Iterator[Event]:
    """Statements, and row changes of a table `t` with the column `id`."""
    for ts, step in enumerate(steps, 10):
        if isinstance(step, str):
            yield schema_change(ts, step)
        else:
            before, after = ((image,) if image is not None else None for image in step)
            yield row_change(ts, "t", ["id"], ["id"], before=before, after=after)
    yield boundary(900)


MADE = "CREATE TABLE t (id INT PRIMARY KEY)"


@pytest.mark.parametrize(
    "steps",
    [
        (MADE, "CREATE VIEW v AS SELECT * FROM t", "RENAME TABLE v TO w"),
        (MADE, "CREATE VIEW v AS SELECT * FROM t", "RENAME TABLE v TO w", "DROP VIEW w"),
    ],
)
def test_what_has_no_rows_may_have_been_renamed(target: str, steps: tuple[str, ...]) -> None:
    """RENAME TABLE renames views too; they are no tables that must be there."""
    log = in_one_partition(list(log_of(*steps)))
    execute(target, "CREATE DATABASE m")
    run_all(target, log, ddl=ddl_rules(source="mariadb"))
    assert verify_events(target, log).is_equal


def test_a_renamed_table_must_be_there(target: str) -> None:
    """A view in its place holds no rows of its own."""
    log = in_one_partition(list(log_of(MADE, (None, 1), "RENAME TABLE t TO u")))
    execute(target, "CREATE DATABASE m")
    run_all(target, log)
    execute(target, "DROP TABLE m.u; CREATE VIEW m.u AS SELECT 1 AS id")
    [table] = verify_events(target, log).tables
    assert table.schema == ("the table is missing",)


def test_system_versioned_tables_are_compared(target: str) -> None:
    """By the rows that they hold now."""
    log = in_one_partition(list(log_of(f"{MADE} WITH SYSTEM VERSIONING", (None, 1), (None, 2), (1, None))))
    execute(target, "CREATE DATABASE m")
    run_all(target, log, ddl=ddl_rules(source="mariadb"))
    assert verify_events(target, log).is_equal
    execute(target, "DELETE FROM m.t")
    [table] = verify_events(target, log).tables
    assert table.missing == 1


def test_a_rule_for_a_table_of_schema_changes_alone_matches_it(target: str) -> None:
    """Of one that leaves rows as they are, and of one that the target has not come to."""
    execute(target, "CREATE DATABASE m; CREATE TABLE m.u (id INT PRIMARY KEY, v INT)")
    log = in_one_partition(
        [*log_of(MADE, (None, 1), "ALTER TABLE u ADD INDEX (v)"), schema_change(901, "DROP TABLE v")]
    )
    run_all(target, log)
    settings = Settings.model_validate({"filter": ["m.t", "m.u", "m.v", "m.none"], "timezone": "UTC"})
    assert verify_events(target, log, settings=settings).notes == [
        "the filter rule 'm.none' matches no table of the log"
    ]


def test_a_log_that_is_gone_proves_nothing(target: str) -> None:
    """Where no message is left of what is in the target, nothing is compared, which must not read as "equal"."""
    log = in_one_partition(list(log_of(MADE, (None, 1), (None, 2))))
    execute(target, "CREATE DATABASE m")
    run_all(target, log)
    assert verify_events(target, log).is_equal
    with pytest.raises(StoppedError, match="nothing can be compared") as raised:
        verify_events(target, log.slice(log.num_rows - 1), is_cut=True)
    assert "--against upstream" in raised.value.fix


def test_rows_from_before_what_kafka_has_lost_are_not_covered(target: str, tmp_path: Path) -> None:
    """A TRUNCATE may be among it that one partition alone held: verify called rows of another one missing, and its fix
    file would have put them back."""
    told = [
        *((0, schema_change(0, MADE), 1), (1, row_change(0, "t", ["id"], ["id"], after=[1]), 50)),
        *((0, schema_change(0, "TRUNCATE TABLE t"), 60), (0, row_change(0, "t", ["id"], ["id"], after=[9]), 1000)),
        (1, row_change(0, "t", ["id"], ["id"], after=[2]), 1001),
    ]
    placed = [
        (partition, at, event._replace(commit_ts=ms_tso(1_790_000_000_001 + 1000 * second), by_time=True))
        for at, (partition, event, second) in enumerate(told)
    ]
    execute(target, "CREATE DATABASE m")
    run_all(target, events_table(placed), boundary_seconds=0)
    rows = sql(target, "SELECT id FROM m.t ORDER BY id")
    assert rows == [(2,), (9,)]
    left = events_table([one for one in placed if one[1] not in {0, 2}])
    [table] = verify_events(target, left, fixes=tmp_path / "fix.sql", is_cut=True).tables
    assert (table.is_equal, table.rows, table.not_covered) == (True, 1, 1)
    assert "Kafka has lost" in table.notes[0]
    sql(target, "DELETE FROM m.t WHERE id = 2", "DO 0")
    assert not verify_events(target, left, is_cut=True).is_equal


SENT = ["_1st_id", "a_b"]


def test_rows_are_compared_under_the_names_of_the_table(target: str) -> None:
    """A column of the key, and one that is not: what was applied is equal, and damage is found."""
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (`1st-id` INT PRIMARY KEY, `a-b` INT)")
    rows = [row_change(10, "t", SENT, SENT[:1], after=[n, n]) for n in range(3)]
    rows += [row_change(11, "t", SENT, SENT[:1], before=[1, 1], after=[1, 5])]
    columns = with_forms(SEP.join(SENT), ["avro", "avro"])
    events = in_one_partition([*(one._replace(columns=columns) for one in rows), boundary(20)])
    run_all(target, events, protocol="debezium")
    assert sql(target, "SELECT * FROM m.t ORDER BY 1") == [(0, 0), (1, 5), (2, 2)]
    assert verify_events(target, events, "debezium").is_equal
    sql(target, "UPDATE m.t SET `a-b` = 7 WHERE `1st-id` = 2", "SELECT 1")
    assert [(one.rows, one.different) for one in verify_events(target, events, "debezium").tables] == [(3, 1)]


def test_copies_of_before_a_table_was_dropped_make_it_no_missing_one(target: str) -> None:
    """The DROP had waited for the row, so it is dated before it; then both come again."""
    since, stamp = 1_790_000_000_000, STAMPS["canal, gtids"]
    row = stamp(row_change(0, "t", ["id"], ["id"], after=[1]), 2, since + 3000)
    made, dropped = (
        stamp(schema_change(0, text), at, since)
        for text, at in (("CREATE TABLE t (id INT PRIMARY KEY)", 1), ("DROP TABLE t", 3))
    )
    events = in_topic([(0, event) for event in (made, row, dropped, row, dropped)])
    sql(target, "CREATE DATABASE m", "SELECT 1")
    run_all(target, events, boundary_seconds=0)
    assert verify_events(target, events).tables == []
    sql(target, "CREATE TABLE m.t (id INT PRIMARY KEY)", "SELECT 1")
    [table] = verify_events(target, events).tables
    assert table.schema == ("the table was dropped upstream",)


def test_a_table_of_a_key_alone_whose_row_changes_its_partition(target: str) -> None:
    """The key stands for an image that nobody knows, and is none; other rows are compared as ever."""
    moment = ms_tso(1_790_000_000_000)
    rows = [(1, 0, [1], None), (0, 0, [2], [1]), (1, 1, [7], None)]
    changes = [(p, at, row_change(moment, "t", ["a"], ["a"], before=old, after=new)) for p, at, new, old in rows]
    events = events_table([(p, at, one._replace(by_time=True)) for p, at, one in changes])
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.t (a INT PRIMARY KEY)", "DO 0")
    run_all(target, events, boundary_seconds=0)
    assert verify_events(target, events).is_equal
    sql(target, "REPLACE INTO m.t VALUES (1), (99)", "DELETE FROM m.t WHERE a = 7", "DO 0")
    [table] = verify_events(target, events).tables
    assert (table.missing, table.extra, table.not_covered) == (1, 0, 2)


SERVERS = ["target", "mysql_target"]


def verified(url: str, second: str, source: str) -> TableResult:
    """What verify finds where rows 'a' and `second` came, written as if the source were this one."""
    sql(url, "CREATE DATABASE m")
    log = [
        schema_change(5, "CREATE TABLE t (k VARCHAR(20) PRIMARY KEY, v INT) COLLATE utf8mb4_general_ci"),
        row_change(10, "t", ["k", "v"], ["k"], after=["a", 1]),
        row_change(11, "t", ["k", "v"], ["k"], after=[second, 2]),
        boundary(900),
    ]
    run_all(url, in_one_partition(log), ddl=ddl_rules(source=source))
    [table] = verify_events(url, in_one_partition(log)).tables
    return table


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("second", ["A", "a "])
def test_a_row_that_was_overwritten_is_not_covered(request: Any, server: str, second: str) -> None:
    """The target has one row for the two, and the order in which it loads them tells nothing."""
    table = verified(request.getfixturevalue(server), second, "mysql-8")
    assert (table.rows, table.not_covered, "spell" in table.notes[0]) == (0, 1, True)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("second", ["A", "a "])
def test_rows_that_are_two_on_the_target_are_equal(request: Any, server: str, second: str) -> None:
    """With collations that compare bytes."""
    assert verified(request.getfixturevalue(server), second, "tidb-old-collations").is_equal


INSERT = "INSERT INTO t VALUES (1)"


class Refusing:
    """A session whose server refuses everything."""

    def __init__(self, error: MySQLError) -> None:
        self.error, self.asked = error, 0

    def execute(self, sql: str) -> int:
        """Nothing."""
        del sql
        self.asked += 1
        raise self.error


def table_of(session: Refusing) -> LoadedTable:
    return LoadedTable(cast(LoggedTable, None), cast(Session, session))


@pytest.mark.parametrize("code", [1264, 1366, 1406, 3140])
def test_a_value_that_does_not_fit_is_a_difference(code: int) -> None:
    """Of this table, which is asked nothing more; others are compared."""
    session = Refusing(DataError(code, "words"))
    table = table_of(session)
    table.run(INSERT)
    table.run(INSERT)
    assert (table.refusal, session.asked) == (f"{code} (words)", 1)


@pytest.mark.parametrize("code", [1021, 1114, 1205, 1969, 3024, 8004, 8175])
def test_a_server_that_can_not_is_no_difference(code: int) -> None:
    """It has no room, or no time."""
    with pytest.raises(OperationalError):
        table_of(Refusing(OperationalError(code, "words"))).run(INSERT)
