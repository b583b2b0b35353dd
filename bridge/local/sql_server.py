"""Holds what the embedded MariaDB and MySQL have in common."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pymysql

from bridge.local.errors import LocalError
from bridge.local.server import HOST, Server


class SqlServer(Server):
    """A server on 127.0.0.1 where `root` has all privileges and no password."""

    def __init__(self) -> None:
        super().__init__()
        self.port = 0
        """The TCP port; 0 before start."""

    @property
    def url(self) -> str:
        """The target URL, as `--target` takes it."""
        return f"mysql://root@{HOST}:{self.port}/"

    def _answers(self) -> bool:
        try:
            pymysql.connect(host=HOST, port=self.port, user="root", connect_timeout=5).close()
        except pymysql.Error:
            return False
        return True


def require_linux(server: str, needs: str) -> None:
    """Raises LocalError where the binaries in the jars do not run."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise LocalError(f"the embedded {server} does not run on {platform.platform()}", fix=needs)


def common_options(server: Path, data: Path) -> list[str]:
    """Gives the options that both servers get. They ignore the machine's option files, and accept being run by root,
    which they refuse by default."""
    options = ["--no-defaults", f"--basedir={server}", f"--datadir={data}"]
    return [*options, "--user=root"] if os.geteuid() == 0 else options
