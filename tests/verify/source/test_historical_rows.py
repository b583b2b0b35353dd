"""Rows read back from an upstream.  A MariaDB stands in for TiDB; it has no tidb_snapshot, so that one statement is
replaced, and the moments that were asked for are noted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pymysql.err import OperationalError

from bridge.errors import SourceError, TargetError
from bridge.model import TableName
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.table_definition import ColumnInfo, Definition
from bridge.pipeline.truncated_rows import RowsGoneError
from bridge.verify.source import historical_rows
from bridge.verify.source.historical_rows import UpstreamRows
from tests.support.pipelines import session_after

T = TableName("u", "t")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The moments that were entered."""
    moments: list[int] = []
    monkeypatch.setattr(historical_rows, "enter_moment", lambda _, commit_ts: moments.append(commit_ts))
    return moments


session = session_after("CREATE DATABASE u")


@pytest.fixture
def upstream(target: str) -> Iterator[UpstreamRows]:
    upstream = UpstreamRows(Target(target, role="upstream"), retry_seconds=5)
    yield upstream
    upstream.close()


VALUES = {
    "a BIGINT UNSIGNED": "18446744073709551615",
    "b BIT(64)": "18446744073709551615",
    "c DECIMAL(30,10)": "1.5000000000",
    "d FLOAT": "3.4028234663852886e+38",
    "e DOUBLE": "0.1e0",
    "f VARCHAR(20)": "'O\\'Neil \\\\ 😀'",
    "g VARBINARY(10)": "x'00ff27'",
    "h LONGBLOB": "x'" + "fe" * 70000 + "'",
    "i DATETIME(6)": "'2024-01-01 00:00:00.123456'",
    "j TIMESTAMP(3) NULL": "'2024-01-01 00:00:00.500'",
    "k TIME(2)": "'-838:59:58.99'",
    "l YEAR": "0",
    "m ENUM('x','y z')": "'y z'",
    "n SET('p','q')": "'p,q'",
    "o JSON": "'{\"a\": 1}'",
    "p VARCHAR(9) CHARACTER SET gbk": "'中'",
    "q DATE": "'0000-00-00'",
    "r INT ZEROFILL": "42",
    "s TEXT": "NULL",
}


def test_every_type(session: Session, upstream: UpstreamRows, asked: list[int]) -> None:
    """Each value comes as the literal that writes it again; generated columns are left out."""
    names = [column.split()[0] for column in VALUES]
    for table in ("t", "copy"):
        session.execute(f"CREATE TABLE u.{table} (id INT PRIMARY KEY, {', '.join(VALUES)}, z INT AS (id) VIRTUAL)")
    session.execute(f"INSERT INTO u.t (id, {', '.join(names)}) VALUES (1, {', '.join(VALUES.values())})")
    [row] = upstream.rows_at(77, T, [{"id": "1"}])
    assert row is not None
    assert row == {"id": "1", **dict(zip(names, VALUES.values(), strict=True))}
    assert asked == [77]
    session.execute(f"INSERT INTO u.copy ({', '.join(row)}) VALUES ({', '.join(row.values())})")
    assert session.rows("SELECT * FROM u.t EXCEPT SELECT * FROM u.copy") == []


@pytest.mark.usefixtures("asked")
def test_many_keys(session: Session, upstream: UpstreamRows) -> None:
    """Rows come in the order of their keys, None where there is none, however many are asked for."""
    session.execute("CREATE TABLE u.t (a INT, b VARCHAR(9), v INT, PRIMARY KEY (a, b))")
    session.execute("INSERT INTO u.t SELECT seq, 'x', seq * 10 FROM u.seq_1_to_40")
    keys = [{"A": str(i), "b": "'x'"} for i in range(50, 0, -1)]
    found = upstream.rows_at(5, T, keys)
    assert found == [None] * 10 + [{"a": str(i), "b": "'x'", "v": str(i * 10)} for i in range(40, 0, -1)]


@pytest.mark.usefixtures("asked", "session")
def test_a_table_that_is_not_there(upstream: UpstreamRows) -> None:
    """A table that did not exist at that moment has no rows to show."""
    with pytest.raises(RowsGoneError, match=r"no table u\.t at commit ts 5"):
        upstream.rows_at(5, T, [{"id": "1"}])


@pytest.mark.parametrize("code", [8055, 9006])
def test_a_moment_that_is_gone(session: Session, monkeypatch: pytest.MonkeyPatch, target: str, code: int) -> None:
    """TiDB refuses moments before its GC safe point."""

    def enter(_: Session, __: int) -> None:
        raise OperationalError(code, "GC life time is shorter than transaction duration")

    monkeypatch.setattr(historical_rows, "enter_moment", enter)
    session.execute("CREATE TABLE u.t (id INT PRIMARY KEY)")
    with pytest.raises(RowsGoneError, match="tidb_gc_life_time"):
        UpstreamRows(Target(target), retry_seconds=5).rows_at(5, T, [{"id": "1"}])


@pytest.mark.usefixtures("session")
def test_a_source_that_is_no_tidb(upstream: UpstreamRows) -> None:
    """A server without snapshots cannot show a moment, and what it holds now is not taken instead."""
    with pytest.raises(SourceError, match="the upstream is not TiDB"):
        upstream.rows_at(5, T, [{"id": "1"}])


def test_a_source_that_does_not_answer() -> None:
    """It is asked again for a while, then the error names it, without its password."""
    nowhere = UpstreamRows(Target("mysql://root:secret@127.0.0.1:1/", role="upstream"), retry_seconds=0.3)
    with pytest.raises(SourceError, match="does not answer") as raised:
        nowhere.rows_at(5, T, [{"id": "1"}])
    assert "secret" not in str(raised.value)


def test_a_refused_login(target: str) -> None:
    """A wrong password is no reason to wait."""
    with pytest.raises(TargetError, match="the upstream refused the login"):
        UpstreamRows(Target(target, password="wrong", role="upstream"), retry_seconds=60).rows_at(5, T, [{"id": "1"}])


@pytest.mark.usefixtures("asked")
def test_a_lost_connection(session: Session, upstream: UpstreamRows) -> None:
    """A connection that was cut between two reads is opened again."""
    session.execute("CREATE TABLE u.t (id INT PRIMARY KEY)")
    session.execute("INSERT INTO u.t VALUES (1)")
    assert upstream.rows_at(5, T, [{"id": "1"}]) == [{"id": "1"}]
    for (other,) in session.rows("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID()"):
        session.execute(f"KILL {other}")
    assert upstream.rows_at(5, T, [{"id": "1"}]) == [{"id": "1"}]


def test_a_value_larger_than_the_server_sends() -> None:
    """What TiDB's CONCAT gives as NULL, for want of room in a packet, is not taken for NULL."""
    column = ColumnInfo("v", "longtext", "longtext", "utf8mb4", "", nullable=True, generated=False, is_json=False)
    table = Definition(T, {"v": column})
    assert historical_rows.row_of(table, [column], "1", [None]) == {"v": "NULL"}
    with pytest.raises(SourceError, match=r"column v, is larger than the source's max_allowed_packet"):
        historical_rows.row_of(table, [column], "0", [None])
