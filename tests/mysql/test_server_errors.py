"""The type of a server's error says whether a retry may help."""

from __future__ import annotations

import pymysql
import pytest
from pymysql.err import InterfaceError, MySQLError, OperationalError, ProgrammingError

from bridge.errors import ApplyError, RefusedRowsError
from bridge.events import RowChange
from bridge.local import MariaDB
from bridge.model import Advance
from bridge.mysql.apply.run_statement import Volume, refused_transaction
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import (
    LOST,
    TOO_LARGE_TRANSACTION,
    TRANSIENT,
    LockConflictError,
    LostConnectionError,
    NoRoomError,
    ReadOnlyError,
    TooLargeError,
    UnavailableError,
    typed_errors,
)
from tests.support.pipelines import admin, opened, sql
from tests.support.upstreams import boundary, in_one_partition, row_change


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (OperationalError(2013, "Lost connection"), LostConnectionError),
        (OperationalError(2003, "Can't connect"), LostConnectionError),
        (pymysql.err.InternalError(1927, "Connection was killed"), LostConnectionError),
        (InterfaceError(0, ""), LostConnectionError),
        (pymysql.err.InternalError("Packet sequence number wrong - got 2 expected 1"), LostConnectionError),
        (OperationalError(1205, "Lock wait timeout"), LockConflictError),
        (OperationalError(1213, "Deadlock"), LockConflictError),
        (OperationalError(2003, "Can't connect ([Errno -2] Name or service not known)"), LostConnectionError),
        (OperationalError(1053, "Server shutdown in progress"), LostConnectionError),
        (OperationalError(1040, "Too many connections"), UnavailableError),
        (OperationalError(1203, "User u already has more than 'max_user_connections'"), UnavailableError),
        (OperationalError(1226, "User 'u' has exceeded the 'max_connections_per_hour' resource"), UnavailableError),
        (OperationalError(1290, "The MariaDB server is running with the --read-only option"), ReadOnlyError),
        (OperationalError(1290, "running with the --super-read-only option"), ReadOnlyError),
        (OperationalError(1290, "running with the --innodb_read_only option"), ReadOnlyError),
        (OperationalError(1290, "running with the --secure-file-priv option"), OperationalError),
        (OperationalError(1792, "Cannot execute statement in a READ ONLY transaction"), ReadOnlyError),
        (OperationalError(1836, "Running in read-only mode"), ReadOnlyError),
        (OperationalError(1047, "WSREP has not yet prepared node for application use"), UnavailableError),
        (OperationalError(1047, "Unknown command"), OperationalError),
        (OperationalError(3032, "The server is currently in offline mode"), UnavailableError),
        *((OperationalError(code, "of TiDB"), LockConflictError) for code in (8002, 8005, 8022, 8028, 9007)),
        *((OperationalError(code, "of TiDB"), UnavailableError) for code in (8027, 8229, *range(9001, 9007), 9010)),
        *((OperationalError(code, "of TiDB"), TooLargeError) for code in (8004, 8025, 8175)),
        *((OperationalError(code, "too large"), TooLargeError) for code in (1153, 1197, 1206, 1301, 1713, 3019)),
        (OperationalError(1114, "The table 'a' is full"), NoRoomError),
        (OperationalError(1021, "Disk full (/tmp/x); waiting for someone to free some space"), NoRoomError),
        (OperationalError(1030, 'Got error 28 "No space left on device" from storage engine InnoDB'), NoRoomError),
        (OperationalError(1030, "Got error 168 from storage engine"), OperationalError),
        (pymysql.err.InternalError(3, "Error writing file '/tmp/MYx' (Errcode: 28 - No space left)"), NoRoomError),
        (pymysql.err.DataError(1366, "Incorrect integer value: 'No space left on device'"), pymysql.err.DataError),
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
    assert isinstance(found.value, TRANSIENT) == issubclass(
        expected, (LostConnectionError, LockConflictError, NoRoomError)
    )


@pytest.mark.parametrize("code", sorted(TOO_LARGE_TRANSACTION))
def test_a_transaction_over_a_limit(code: int) -> None:
    """By each number: its size, where it is, and the limit by name; --on-bad-message quarantine is no way out, since
    the quarantine would have to take in one transaction what is too large for one."""
    limit = {
        1197: "max_binlog_cache_size",
        1206: "innodb_buffer_pool_size",
        3019: "undo tablespaces",
    }
    error = refused_transaction(Advance(10, 20, {}), TooLargeError(code, "too large"), Volume(3, 70_000_000))
    assert not isinstance(error, RefusedRowsError)
    assert f"a transaction of 3 statements, 70,000,000 bytes, is too large for the target: {code}" in error.what
    assert error.where == "commit ts 10 to 20"
    assert limit.get(code, "tidb_mem_quota_query") in error.fix
    assert "--on-bad-message" not in error.fix


@pytest.mark.soak
def test_the_cache_of_the_binary_log() -> None:
    """A transaction of more bytes is refused by a real server, at once, and nothing of it is written."""
    rows = [row_change(10, table, ["id", "v"], ["id"], after=[1, "x" * 200_000]) for table in ("t", "u")]
    with MariaDB(options=["--log-bin=binlog", "--binlog-format=ROW", "--max-binlog-cache-size=65536"]) as server:
        sql(
            server.url,
            "CREATE DATABASE m",
            *(f"CREATE TABLE m.{name} (id INT PRIMARY KEY, v LONGTEXT)" for name in "tu"),
        )
        with opened(server.url, [("cdc", 0)]) as pipeline, pytest.raises(ApplyError) as raised:
            pipeline.take(in_one_partition([*rows, boundary(20)]))
        assert pipeline.writer.end.retries == 0
        assert "is too large for the target: 1197" in raised.value.what
        assert sql(server.url, "SELECT (SELECT COUNT(*) FROM m.t) + (SELECT COUNT(*) FROM m.u)") == [(0,)]


@pytest.mark.server
@pytest.mark.parametrize("fixture", ["target", "old_target", "mysql_target", "old_mysql_target"])
@pytest.mark.parametrize("quarantine", [False, True])
def test_a_row_too_large_for_an_undo_record(fixture: str, quarantine: bool, request: pytest.FixtureRequest) -> None:
    """It is named with its table, at once, and quarantined where told so; the rows beside it are written."""
    url, names = request.getfixturevalue(fixture), [f"c{n}" for n in range(60)]

    def change(ts: int, id_: int, letter: str) -> RowChange:
        return row_change(ts, "t", ["id", *names], ["id"], after=[id_, *[letter * 767 if id_ == 1 else letter] * 60])

    with admin(url) as session:
        session.execute("CREATE DATABASE m")
        columns = ",".join(f"{name} TEXT, KEY ({name}(190))" for name in names)
        session.execute(f"CREATE TABLE m.t (id INT PRIMARY KEY, {columns}) ROW_FORMAT=DYNAMIC CHARSET=latin1")
        with opened(url, [("cdc", 0)], quarantine=quarantine) as pipeline:
            pipeline.take(in_one_partition([change(10, 1, "a"), boundary(11)]))
            events = in_one_partition([change(20, 1, "b"), change(20, 2, "b"), boundary(21)], start=2)
            if quarantine:
                pipeline.take(events)
            else:
                with pytest.raises(RefusedRowsError) as raised:
                    pipeline.take(events)
                assert "a row of m.t is too large for the target: 1713" in raised.value.what
                assert "fewer indexes" in raised.value.fix
        assert pipeline.writer.end.retries == 0
        assert session.rows("SELECT id, LEFT(c0, 1) FROM m.t") == [(1, "a"), *[(2, "b")] * quarantine]


def test_what_a_connection_raises(target: str) -> None:
    """The driver's errors have their type whatever was asked of the session; so has a server that is not there."""
    with admin(target) as other:
        asks = [
            lambda session: session.execute("DO 1"),
            lambda session: session.write("DO 1"),
            lambda session: session.rows("SELECT 1"),
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
