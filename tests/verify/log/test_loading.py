"""What a target says while temporary tables are filled."""

from __future__ import annotations

from typing import cast

import pytest
from pymysql.err import DataError, MySQLError, OperationalError

from bridge.mysql.connection.session import Session
from bridge.verify.log.loaded_comparison import LoadedTable
from bridge.verify.log.log_tables import LoggedTable

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
    assert (table.refused, session.asked) == (f"{code} (words)", 1)


@pytest.mark.parametrize("code", [1021, 1114, 1205, 1969, 3024, 8004, 8175])
def test_a_server_that_can_not_is_no_difference(code: int) -> None:
    """It has no room, or no time."""
    with pytest.raises(OperationalError):
        table_of(Refusing(OperationalError(code, "words"))).run(INSERT)
