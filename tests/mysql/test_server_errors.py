"""The type of a server's error says whether a retry may help."""

from __future__ import annotations

import pymysql
import pytest
from pymysql.err import InterfaceError, MySQLError, OperationalError, ProgrammingError

from bridge.mysql.connection import Target
from bridge.mysql.server_errors import LOST, TRANSIENT, LockConflictError, LostConnectionError, typed_errors
from tests.support.pipelines import admin


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (OperationalError(2013, "Lost connection"), LostConnectionError),
        (OperationalError(2003, "Can't connect"), LostConnectionError),
        (pymysql.err.InternalError(1927, "Connection was killed"), LostConnectionError),
        (InterfaceError(0, ""), LostConnectionError),
        (OperationalError(1205, "Lock wait timeout"), LockConflictError),
        (OperationalError(1213, "Deadlock"), LockConflictError),
        (ProgrammingError(1146, "Table doesn't exist"), ProgrammingError),
        (MySQLError("no number"), MySQLError),
    ],
)
def test_the_type_of_an_error(raised: MySQLError, expected: type[MySQLError]) -> None:
    """Numbers and words stay; what is terminal is the driver's own error."""
    with pytest.raises(MySQLError) as found, typed_errors():
        raise raised
    assert type(found.value) is expected
    assert found.value.args == raised.args
    assert isinstance(found.value, TRANSIENT) == (expected in {LostConnectionError, LockConflictError})


def test_what_a_connection_raises(target: str) -> None:
    """The driver's errors have their type whatever was asked of the session; so has a server that is not there."""
    with admin(target) as other:
        asks = [
            lambda session: session.execute("DO 1"),
            lambda session: session.write("DO 1"),
            lambda session: session.rows("SELECT 1"),
            lambda session: list(session.stream("SELECT 1", 1)),
            lambda session: session.begin(),
            lambda session: session.commit(),
            lambda session: session.rollback(),
            lambda session: session.load("LOAD DATA LOCAL INFILE 'rows' INTO TABLE m.t", memoryview(b"")),
        ]
        for ask in asks:
            session = Target(target).connect()
            other.execute(f"KILL {session.connection_id}")
            with pytest.raises(LOST):
                ask(session)
            session.close()
    with pytest.raises(LostConnectionError):
        Target("mysql://root@127.0.0.1:1/").connect()
