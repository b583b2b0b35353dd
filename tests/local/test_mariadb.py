"""The embedded MariaDB."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from bridge.cache import cache_folder
from bridge.local import LocalError, MariaDB

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDB]:
    """A server of this module's own, as its tests kill it."""
    with MariaDB(options=["--innodb-flush-log-at-trx-commit=2"]) as server:
        yield server


def query(server: MariaDB, *statements: str) -> tuple[Any, ...]:
    """Runs the statements in one committed transaction; the last one's first row."""
    with pymysql.connect(host=server.host, port=server.port, user="root") as connection:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            row = cursor.fetchone()
        connection.commit()
    return row or ()


def test_temporary_tables_are_its_own(server: MariaDB) -> None:
    """In a folder that they share, a server that starts removes those of one that runs."""
    assert query(server, "SELECT @@tmpdir") == (str(server.folder),)


def test_killed_server_keeps_data_and_port(server: MariaDB) -> None:
    """`kill` then `restart` is a power cut: what was committed is there, at the same address, in a new process."""
    query(server, "CREATE DATABASE kept", "CREATE TABLE kept.t (a INT)", "INSERT INTO kept.t VALUES (7)")
    url, pid = server.url, server.pid
    server.kill()
    with pytest.raises(pymysql.OperationalError):
        query(server, "SELECT 1")
    server.restart()
    assert query(server, "SELECT a FROM kept.t") == (7,)
    assert (server.url, server.pid != pid) == (url, True)


def test_restart_of_a_running_server_is_orderly(server: MariaDB) -> None:
    """`restart` lets the running server shut down, so the next one has nothing to recover."""
    server.restart()
    log = (server.folder / "server.log").read_text()
    assert "Shutdown complete" in log
    assert "crash recovery" not in log.rpartition("Shutdown complete")[2]


def test_second_start_uses_the_cache(server: MariaDB, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first start on a machine fetches and installs; the others take seconds and need no network."""
    del server  # it has filled the cache
    monkeypatch.setattr("bridge.local.mariadb.retrieve", lambda *_: pytest.fail("it was fetched again"))
    begin = time.monotonic()
    with MariaDB() as second:
        assert query(second, "SELECT COUNT(*) FROM information_schema.schemata") == (4,)
    assert time.monotonic() - begin < 30


def test_stop_leaves_nothing() -> None:
    """After `stop` the process, the temp folder and the address are gone; a second `stop` is allowed."""
    server = MariaDB().start()
    folder, pid = server.folder, server.pid
    server.stop()
    server.stop()
    assert not folder.exists()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(LocalError, match="not running"):
        _ = server.pid


def test_a_refused_option_is_told_with_the_servers_words() -> None:
    """A server that does not come up is an error that quotes its log, and leaves nothing behind."""
    server = MariaDB(options=["--no-such-option"])
    with pytest.raises(LocalError, match="no-such-option"):
        server.start()
    with pytest.raises(LocalError, match="not started"):
        _ = server.folder


def test_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    """XDG_CACHE_HOME names the cache; unset, empty or relative it is ~/.cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/bridge")
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert cache_folder() == Path.home() / ".cache" / "bridge"
