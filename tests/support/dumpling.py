"""dumpling, built from TiDB's modules as the TiDB of the tests is."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from bridge.cache import cached
from bridge.local import LocalError
from bridge.local.server import run_tool
from tests.support import tidb

_PACKAGE: Final = "github.com/pingcap/tidb/dumpling/cmd/dumpling"


def build() -> Path:
    """The program.  Where it is absent it is built, which takes a minute after TiDB was built.

    Raises LocalError without Go, and with the compiler's last words.
    """
    return cached(tidb.versioned("dumpling"), _build) / "dumpling"


def _build(folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise LocalError("dumpling cannot be built: there is no Go on this machine", fix=tidb.NEEDS)
    for source in ("go.mod", "go.sum"):
        shutil.copy(Path(tidb.__file__).parent / source, folder)
    command = ["nice", "-n", "5", go, "build", "-mod=readonly", "-ldflags=-s -w", "-o", "dumpling", _PACKAGE]
    run_tool(["env", "GOTOOLCHAIN=local", *command], folder, failed="dumpling cannot be built", needs=tidb.NEEDS)
