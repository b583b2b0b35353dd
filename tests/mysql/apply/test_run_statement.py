"""Statements that are sent while the next one is made, or together."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic

import pytest

from bridge.errors import ApplyError, RefusedRowsError
from bridge.model import Advance, TableName
from bridge.mysql.apply.run_statement import Ahead, execute_statement
from bridge.mysql.connection.session import Session
from bridge.mysql.server_errors import LOST
from bridge.rows.sql.statement import Rendering, Stage, Statement
from tests.support.pipelines import opened, session_after, sql

TABLE = TableName("m", "t")
SECONDS = 30.0


session = session_after("CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY)")


def statement(text: str) -> Statement:
    return Statement(Stage.WRITE, TABLE, text.encode())


def test_the_server_works_meanwhile(target: str, session: Session) -> None:
    """What is to be done meanwhile is done once the statement is at work, and before its answer is waited for."""
    slow = statement("INSERT INTO m.t SELECT 1 + SLEEP(1)")
    seen = []

    def look() -> None:
        until = monotonic() + SECONDS
        while monotonic() < until and not seen:
            seen.extend(sql(target, f"SELECT info FROM information_schema.processlist WHERE id={session.connection_id}"
                                    " AND info LIKE '%SLEEP%'"))  # fmt: skip
            if sql(target, "SELECT id FROM m.t"):
                return

    execute_statement(session, slow, safe_mode=False, meanwhile=look)
    assert len(seen) == 1
    assert session.rows("SELECT id FROM m.t") == [(1,)]


def test_a_refusal_comes_after_what_was_done_meanwhile(session: Session) -> None:
    """The next statement is made, and the session goes on."""
    statements = Ahead(iter([statement("INSERT INTO m.t VALUES ('x')"), statement("INSERT INTO m.t VALUES (2)")]))
    each = iter(statements)
    with pytest.raises(ApplyError, match="the target refused rows"):
        execute_statement(session, next(each), safe_mode=False, meanwhile=statements.make)
    execute_statement(session, next(each), safe_mode=False, meanwhile=statements.make)
    assert next(each, None) is None
    assert session.rows("SELECT id FROM m.t") == [(2,)]


def test_what_fails_meanwhile_ends_the_session(session: Session) -> None:
    """Its answer was not read: whoever used it next would take that for their own."""

    def fail() -> None:
        raise ApplyError("the next one cannot be made", where="here")

    with pytest.raises(ApplyError, match="cannot be made"):
        session.write(b"INSERT INTO m.t VALUES (1)", fail)
    with pytest.raises(LOST):
        session.write(b"INSERT INTO m.t VALUES (2)")


def test_a_transaction_whose_next_statement_cannot_be_made(target: str, session: Session) -> None:
    """Nothing of it is on the target, and the next transaction is written."""

    def broken(_: Rendering) -> Iterable[Statement]:
        yield statement("INSERT INTO m.t VALUES (1)")
        raise ApplyError("the next one cannot be made", where="here")

    with opened(target, [("cdc", 0)]) as pipeline:
        with pytest.raises(ApplyError, match="cannot be made"):
            pipeline.writer.apply(Advance(0, 5, {}), broken)
        assert session.rows("SELECT id, (SELECT applied_ts FROM _bridge.progress) FROM m.t") == []
        pipeline.writer.apply(Advance(0, 5, {}), lambda _: [statement(f"INSERT INTO m.t VALUES ({n})") for n in (2, 3)])
    assert session.rows("SELECT id, (SELECT applied_ts FROM _bridge.progress) FROM m.t ORDER BY 1") == [(2, 5), (3, 5)]


def test_a_warning_of_statements_that_are_sent_together(target: str, session: Session) -> None:
    """It cannot be asked for any more: the transaction is written again, statement by statement.  What the server has
    cut is refused then, as of a statement alone, and is not taken for a value that was there already."""

    def joined(*texts: str) -> list[Statement]:
        return [statement(text)._replace(joins=True) for text in texts]

    session.execute("CREATE TABLE m.w (id INT PRIMARY KEY, c VARCHAR(3))")
    with opened(target, [("cdc", 0)]) as pipeline:
        noted = joined("INSERT INTO m.w VALUES (1, 'a')", "DELETE IGNORE FROM m.w WHERE id = 1 AND c = 2")
        pipeline.writer.apply(Advance(0, 5, {}), lambda _: noted)
        cut = joined("DELETE FROM m.w WHERE id = 2", "INSERT INTO m.w VALUES (2, 'abc ')")
        with pytest.raises(RefusedRowsError, match="truncated"):
            pipeline.writer.apply(Advance(5, 6, {}), lambda _: cut)
        assert pipeline.writer.counts.safe_mode == 0
    assert session.rows("SELECT id FROM m.w") == [(1,)]
