"""The embedded MySQL. Elsewhere tests are skipped where it cannot be had; these fail."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path
from typing import Any

import pymysql
import pytest

from bridge.local import MySQL
from bridge.local.libaio import write_libaio
from bridge.local.mysql import OLD_VERSION, VERSION

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        (platform.system(), platform.machine()) != ("Linux", "x86_64"),
        reason="the jars hold binaries for Linux on x86-64",
    ),
]


def test_an_empty_library_is_loaded(tmp_path: Path) -> None:
    """The stand-in for libaio is taken by the dynamic linker, and has nothing to call."""
    write_libaio(tmp_path)
    library = ctypes.CDLL(str(tmp_path / "libaio.so.1"))
    with pytest.raises(AttributeError):
        _ = library.io_setup


@pytest.mark.parametrize("version", [VERSION, OLD_VERSION])
def test_answers_at_its_url(version: str, request: pytest.FixtureRequest) -> None:
    """It can be had, and root can use it over TCP; settings that tests rely on are MariaDB's."""
    fixture = "mysql" if version == VERSION else "old_mysql"
    try:
        server: MySQL = request.getfixturevalue(fixture)
    except pytest.skip.Exception as skipped:
        pytest.fail(str(skipped))
    settings = "@@version, @@max_allowed_packet, @@innodb_flush_log_at_trx_commit, @@character_set_server"
    assert query(server, f"SELECT {settings}") == (version, 64 << 20, 1, "utf8mb4")
    assert query(server, "SELECT @@tmpdir") == (str(server.folder),)
    assert server.url == f"mysql://root@127.0.0.1:{server.port}/"


def test_killed_server_keeps_data_and_port() -> None:
    """`kill` then `restart` is a power cut, also to the server itself and not to a shell around it."""
    with MySQL(version=OLD_VERSION) as server:
        query(server, "CREATE DATABASE kept")
        query(server, "CREATE TABLE kept.t AS SELECT 7 AS a")
        server.kill()
        server.restart()
        assert query(server, "SELECT a FROM kept.t") == (7,)
        server.stop(0)


def query(server: MySQL, statement: str) -> tuple[Any, ...]:
    """The first row."""
    with pymysql.connect(host=server.host, port=server.port, user="root", autocommit=True) as connection:
        cursor = connection.cursor()
        cursor.execute(statement)
        return cursor.fetchone() or ()
