"""A real TiDB for the tests: its SQL layer over its embedded storage, in one process (`main.go`).

It is built once per user, as an ordinary Go program that requires TiDB as a module, and kept where the embedded servers
are kept, by what it is made of.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import ClassVar, Final

import pymysql

from bridge.cache import cache_folder, cached
from bridge.local import LocalError
from bridge.local.server import HOST, free_port, run_tool
from bridge.local.sql_server import SqlServer

BUILD_COMMAND: Final = "uv run python -m tests.support.tidb"
NEEDS: Final = "it needs Go 1.23.6 or later, which fetches 1.8 GB of TiDB's modules"
_SOURCES: Final = ("go.mod", "go.sum", "main.go")
_HERE: Final = Path(__file__).parent
_SAFE_POINT: Final = "INSERT INTO mysql.tidb VALUES ('tikv_gc_safe_point', '20060102-15:04:05 -0700', '')"
"""No worker collects garbage here, and without a safe point `tidb_snapshot` cannot be set."""


class TiDB(SqlServer):
    """TiDB on 127.0.0.1. `root` has all privileges and no password."""

    name: ClassVar[str] = "TiDB"
    needs: ClassVar[str] = NEEDS

    def __init__(self) -> None:
        super().__init__()
        self._status_port = 0

    def start(self) -> TiDB:
        """Starts with fresh data; `tidb_snapshot` works.  Raises LocalError where it was not built and cannot be."""
        super().start()
        with pymysql.connect(host=HOST, port=self.port, user="root", autocommit=True) as connection:
            connection.cursor().execute(_SAFE_POINT)
        return self

    def _prepare(self, folder: Path) -> None:
        (folder / "data").mkdir()
        self.port = free_port()
        self._status_port = free_port(self.port)

    def _command(self, folder: Path) -> list[str]:
        ports = ("-P", str(self.port), "-status", str(self._status_port))
        temporary = ("/usr/bin/env", f"TMPDIR={folder}")  # what it leaves there when it is killed goes with the folder
        return [*temporary, str(build() / "tidb"), *ports, "-path", str(folder / "data")]


def is_built() -> bool:
    """Whether the program is there, so that a start takes seconds."""
    return (cache_folder() / versioned("tidb")).is_dir()


def build() -> Path:
    """The folder with the program `tidb`.  Where it is absent it is built, which takes ten minutes on two busy cores.

    Raises LocalError without Go, and with the compiler's last words.
    """
    return cached(versioned("tidb"), _build)


def versioned(program: str) -> str:
    """The name of a program's folder, which changes with what the program is made of."""
    digest = hashlib.sha256(b"\0".join((_HERE / source).read_bytes() for source in _SOURCES))
    return f"{program}-{digest.hexdigest()[:16]}"


def _build(folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise LocalError("TiDB cannot be built: there is no Go on this machine", fix=NEEDS)
    for source in _SOURCES:
        shutil.copy(_HERE / source, folder)
    build = ["nice", "-n", "5", go, "build", "-mod=readonly", "-ldflags=-s -w", "-o", "tidb", "."]
    run_tool(["env", "GOTOOLCHAIN=local", *build], folder, failed="TiDB cannot be built", needs=NEEDS)
