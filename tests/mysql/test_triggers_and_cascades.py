"""Triggers and cascading foreign keys on the target are refused before they change a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.errors import TargetError
from bridge.filters.table_filter import TableFilter
from bridge.model import TableName, quote_name
from bridge.mysql.catalog import find_side_effects, refuse_side_effects
from bridge.mysql.connection.session import Session
from bridge.mysql.table_definition import load_definitions
from bridge.protocols import is_mysql_born
from tests.pipeline.test_bad_messages import capture
from tests.support.captures import row, watermark
from tests.support.pipelines import opened, run_all, session_after
from tests.support.wire import canal, compact, open_row

ID = {"id": ("int", "1")}


session = session_after(
    "CREATE DATABASE m",
    "CREATE TABLE m.t (id INT PRIMARY KEY)",
    "CREATE TABLE m.plain (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES m.t (id))",
)


def found(session: Session, *, cascades: bool) -> list[str]:
    return sorted(str(effect.table) for effect in find_side_effects(session, cascades=cascades))


def add_child(session: Session, rule: str) -> None:
    session.execute(
        f"CREATE TABLE m.child (id INT PRIMARY KEY, p INT, CONSTRAINT fk FOREIGN KEY (p) REFERENCES m.t (id) {rule})"
    )


def add_trigger(session: Session) -> None:
    session.execute("CREATE TRIGGER m.grow BEFORE INSERT ON m.t FOR EACH ROW SET NEW.id = NEW.id + 1")


@pytest.mark.parametrize(
    "rule", ["ON DELETE CASCADE", "ON DELETE SET NULL", "ON UPDATE CASCADE", "ON UPDATE SET NULL ON DELETE RESTRICT"]
)
def test_foreign_keys_that_cascade(session: Session, rule: str) -> None:
    """Only where the log lacks what they change; foreign keys that only refuse are no matter."""
    add_child(session, rule)
    assert found(session, cascades=True) == ["m.child"]
    assert found(session, cascades=False) == []
    assert find_side_effects(session, [TableName("m", "plain")], cascades=True) == []
    for name in ("child", "t"):  # a change of either row may change the child's upstream
        with pytest.raises(TargetError, match=r"foreign key fk of m\.child to t .*; fix: drop the foreign key"):
            refuse_side_effects(find_side_effects(session, [TableName("m", name)], cascades=True))


def test_triggers(session: Session) -> None:
    """Always, on tables that are replicated."""
    add_trigger(session)
    assert found(session, cascades=False) == ["m.t"]
    effects = find_side_effects(session, cascades=False)
    with pytest.raises(TargetError, match=r"trigger grow on m\.t"):
        refuse_side_effects(effects, TableFilter(("m.*",)))
    refuse_side_effects(effects, TableFilter(("m.*", "!m.t")))


def test_tables_that_are_alike_but_for_case_or_accents(session: Session) -> None:
    """MariaDB's information_schema gives one where no others are asked for; each has its trigger and columns."""
    names = [TableName("m", name) for name in ("orders", "Orders", "örders", "other")]
    for name in names:
        session.execute(f"CREATE TABLE {quote_name(*name)} (id INT)")
        session.execute(f"CREATE TRIGGER {quote_name('m', f'on {name.table}')} AFTER INSERT ON {quote_name(*name)}"
                        " FOR EACH ROW SET @a = 1")  # fmt: skip
    for asked in (names, names[:2], names[1:3]):
        assert {effect.table for effect in find_side_effects(session, asked, cascades=True)} == set(asked)
        assert load_definitions(session, asked).keys() == set(asked)


def test_a_trigger_made_while_the_bridge_runs(target: str, session: Session, tmp_path: Path) -> None:
    """A table is looked at again whenever its definition is read: before its first row, and after schema changes."""
    add_trigger(session)
    with pytest.raises(TargetError, match="trigger grow"):
        run_all(target, capture(tmp_path, [row(10, 1), watermark(20)]))
    assert session.rows("SELECT * FROM m.t") == []


@pytest.mark.parametrize("table", ["child", "t"])
def test_a_cascade_made_while_the_bridge_runs(target: str, session: Session, tmp_path: Path, table: str) -> None:
    """A log without cascades stops at the first row of such a table, or of the one that it refers to; TiCDC's goes
    on."""
    add_child(session, "ON DELETE CASCADE")
    events = capture(tmp_path, [{**row(10, 1), "table": table}, watermark(20)])
    with (
        opened(target, [("cdc", 0)], cascades_are_lost=True) as pipeline,
        pytest.raises(TargetError, match="foreign key fk"),
    ):
        pipeline.take(events)
    run_all(target, events)
    assert session.rows(f"SELECT id FROM m.{table}") == [(1,)]


DEBEZIUM = {"payload": {"op": "c", "source": {"connector": "mysql"}, "after": {}}}
TICDC_DEBEZIUM = {"payload": {"op": "c", "source": {"connector": "TiCDC"}, "after": {}}}


@pytest.mark.parametrize(
    ("message", "is_born"),
    [
        ((b"", canal("INSERT", ID)), False),
        ((b"", canal("INSERT", ID, _tidb=None)), False),
        ((b"", canal("INSERT", ID, _tidb=None, id=7)), True),
        (open_row({"u": {"id": {"t": 3, "h": True, "f": 11, "v": 1}}}), False),
        ((b"", compact({"BINLOG_NAME": "b.1", "BINLOG_POS": 4, "TYPE": "INSERT"})), True),
        ((b"", compact(DEBEZIUM)), True),
        ((b"", compact(TICDC_DEBEZIUM)), False),
        ((b"", b"?"), True),
    ],
)
def test_who_wrote_the_log(message: tuple[bytes, bytes], is_born: bool) -> None:
    """MySQL's own log is told from TiCDC's messages; what cannot be told counts as MySQL's."""
    assert is_mysql_born([message]) is is_born
    assert is_mysql_born([])
