"""Names of tables that differ in case or accents only, on targets that tell them apart and on one that does not."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.config import Settings
from bridge.ddl.policy import ddl_rules
from bridge.errors import ApplyError, HeldError
from bridge.events import RowChange
from bridge.local.mariadb import MariaDB
from bridge.mysql.connection.session import Session
from bridge.protocols.batch_decode import ruled
from tests.generated.verifying import verify_events
from tests.support.pipelines import admin, drop_all, run_all, session_after, sql
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change

session = session_after("CREATE DATABASE m")


def insert(ts: int, table: str, value: int = 1) -> RowChange:
    return row_change(ts, table, ["id"], ["id"], after=[value])


def created(ts: int, table: str) -> Any:
    return schema_change(ts, f"CREATE TABLE `{table}` (id INT PRIMARY KEY)")


@pytest.mark.parametrize("names", [("T", "t"), ("cafe", "café")])
def test_a_target_that_tells_names_apart(target: str, session: Session, names: tuple[str, str]) -> None:
    """Rows of one transaction go to each of them; MariaDB takes such names in a list for one."""
    events = [*(created(10 + i, name) for i, name in enumerate(names)), *(insert(20, name) for name in names)]
    run_all(target, in_one_partition([*events, boundary(30)]))
    assert [session.rows(f"SELECT id FROM m.`{name}`") for name in names] == [[(1,)], [(1,)]]


@pytest.mark.server
def test_a_target_that_does_not() -> None:
    """A table is found by the upstream's name, also by verify; rows of two tables are never mixed in one."""
    with MariaDB(options=["--lower-case-table-names=1"]) as server, admin(server.url) as session:
        alter = schema_change(12, "ALTER TABLE Orders ADD COLUMN c INT")
        made = [schema_change(9, "CREATE DATABASE m"), created(10, "Orders")]
        events = [*made, insert(11, "Orders"), alter, insert(13, "Orders", 2), insert(14, "Orders", 7), boundary(20)]
        run_all(server.url, in_one_partition(events), writers=2)
        assert session.rows("SELECT id, c FROM m.orders") == [(1, None), (2, None), (7, None)]
        assert verify_events(server.url, in_one_partition(events)).is_equal
        session.execute("DELETE FROM m.orders WHERE id = 2")
        assert [table.missing for table in verify_events(server.url, in_one_partition(events)).tables] == [1]
        drop_all(session)
        two = [schema_change(9, "CREATE DATABASE m"), created(10, "T"), created(11, "t")]
        events = [*two, insert(12, "T"), boundary(13), insert(14, "t"), boundary(20)]
        with pytest.raises(ApplyError, match=r"m\.T and m\.t are one table on the target"):
            run_all(server.url, in_one_partition(events), batch=5)
        assert session.rows("SELECT id FROM m.t") == [(1,)]


@pytest.mark.parametrize("statement", ["DROP TABLE IF EXISTS orders", "DROP TABLE IF EXISTS gone, ORDERS"])
@pytest.mark.parametrize("source", ["tidb", "mysql-8"])
def test_a_drop_of_a_table_that_may_not_have_been_there(
    target: str, session: Session, statement: str, source: str
) -> None:
    """TiDB means the table whatever its case.  MySQL may have meant none: its statement waits for the operator."""
    session.execute("CREATE TABLE m.Orders (id INT PRIMARY KEY)")
    rules = ddl_rules(source=source)
    events = in_one_partition([schema_change(10, statement), boundary(20)])
    if source == "tidb":
        run_all(target, events, ddl=rules)
        assert session.rows("SHOW TABLES FROM m") == []
    else:
        with pytest.raises(HeldError, match=r"only m\.Orders, and the statement does not tell"):
            run_all(target, events, ddl=rules)
        assert session.rows("SHOW TABLES FROM m") == [("Orders",)]


def test_accents_are_not_case(target: str, session: Session) -> None:
    """MariaDB's own comparison of names would find another table."""
    session.execute("CREATE TABLE m.café (id INT PRIMARY KEY)")
    run_all(target, in_one_partition([schema_change(10, "DROP TABLE IF EXISTS cafe"), boundary(20)]))
    assert session.rows("SHOW TABLES FROM m") == [("café",)]


def test_names_that_only_tidb_takes(target: str, session: Session) -> None:
    """They are held, and their rows find no table; another name on the target helps."""
    events = [created(10, "😀"), insert(11, "😀"), boundary(20)]
    with pytest.raises(HeldError, match="no name with such characters as '😀': give a table another one with --route"):
        run_all(target, in_one_partition(events))
    settings = Settings(route=("m.`😀` -> m.smile",))
    run_all(target, ruled(in_one_partition(events), settings.row_rules), ddl=settings.ddl_rules())
    assert session.rows("SELECT id FROM m.smile") == [(1,)]
    with pytest.raises(ApplyError, match=r"the target has no table m\.😀"):
        run_all(target, in_one_partition([insert(30, "😀"), insert(30, "smile"), boundary(40)], start=9))


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (id INT PRIMARY KEY, `a😀` INT)",
        "ALTER TABLE o ADD COLUMN `a😀` INT",
        "ALTER TABLE o DROP COLUMN `a😀`",
        "ALTER TABLE o ADD INDEX `a😀` (id)",
    ],
)
def test_names_within_a_table_that_only_tidb_takes(mysql_target: str, text: str) -> None:
    """MySQL would make a question mark of them without a word, and drop the column whose name that is."""
    sql(mysql_target, "CREATE DATABASE m", "CREATE TABLE m.o (id INT PRIMARY KEY, `a?` INT)", "DO 0")
    with pytest.raises(HeldError, match=r"no name with such characters as 'a😀': .* rename a column upstream"):
        run_all(mysql_target, in_one_partition([schema_change(10, text), boundary(20)]))
    columns = "SELECT column_name FROM information_schema.columns WHERE table_schema = 'm' ORDER BY ordinal_position"
    assert sql(mysql_target, columns) == [("id",), ("a?",)]


OWN = ("Key Number", "kept number", "KEPT KEY 0", "bridge state", "Bridge Place", "bridge commit_ts", "bridge topic")
"""Columns of the bridge's temporary tables."""


def test_columns_that_are_called_as_the_bridges_own(target: str, session: Session) -> None:
    """A table may have them, in any case: where keys are asked for, rows are kept or come in parts, and in verify.
    These ended in error 1060."""
    columns = ", ".join(f"`{name}` INT" for name in OWN[1:])
    made = f"CREATE TABLE t (`{OWN[0]}` VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, {columns}, u INT UNIQUE)"
    names, part = [*OWN, "u"], [OWN[0], OWN[2], "u"]
    rows = [[key, *range(6), number] for number, key in enumerate("abc")]
    changes = [
        *(row_change(11, "t", names, [OWN[0]], after=row) for row in rows),
        row_change(12, "t", part, [OWN[0]], before=["a", 1, 0], after=["A", 9, 7]),
        row_change(13, "t", part, [OWN[0]], before=["b", 1, 1], after=["b", 9, 1]),
    ]
    events = in_one_partition([schema_change(10, made), *(change._replace(by_time=True) for change in changes)])
    run_all(target, events.slice(0, 4), boundary_seconds=0)
    assert verify_events(target, events.slice(0, 4)).is_equal
    session.execute("UPDATE m.t SET u = 8 WHERE u = 2")
    [found] = verify_events(target, events.slice(0, 4)).tables
    assert found.different == 1
    session.execute("UPDATE m.t SET u = 2 WHERE u = 8")
    session.execute("ALTER TABLE m.t ADD COLUMN `mine` INT DEFAULT 4")
    run_all(target, events, boundary_seconds=0)
    wanted = [("A", 0, 9, 2, 3, 4, 5, 7, 4), ("b", 0, 9, 2, 3, 4, 5, 1, 4), ("c", *range(6), 2, 4)]
    assert session.rows("SELECT * FROM m.t") == wanted
    [found] = verify_events(target, events).tables
    assert (found.is_equal, found.not_covered) == (True, 3)
