"""The parent of Spark's Python workers.  It loads all that decoding needs before the first worker is forked; otherwise
each worker would load it anew, which takes as long as decoding a hundred thousand rows."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from bridge.spark.process_memory import keep_freed_memory
from bridge.spark.tuning import is_on

_NICENESS: Final = 10
"""Where all cores are busy, the applier comes first, and so does a target on the same machine: everything else waits
for them."""


def without_zipped_pyspark(path: list[str]) -> list[str]:
    """A module path without the archives of a PySpark whose files are installed as well: what comes from an archive is
    compiled anew in every process."""

    def is_installed(entry: str) -> bool:
        lib = Path(entry).parent  # .../site-packages/pyspark/python/lib
        return entry.endswith(".zip") and lib.parts[-3:] == ("pyspark", "python", "lib") and str(lib.parents[2]) in path

    return [entry for entry in path if not is_installed(entry)]


if is_on("installed-modules"):
    sys.path[:] = without_zipped_pyspark(sys.path)

from pyspark import daemon  # noqa: E402


class WithoutPandas:
    """Hides pandas from PyArrow, which looks for it when it makes its first array; loading pandas takes longer than
    everything else together."""

    def find_spec(self, name: str, *_: object) -> None:
        """Says that there is no pandas."""
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


if __name__ == "__main__":
    if is_on("no-pandas"):
        sys.meta_path.insert(0, WithoutPandas())
    keep_freed_memory()
    if is_on("niceness"):
        os.nice(_NICENESS)
    daemon.manager()  # type: ignore[no-untyped-call]
