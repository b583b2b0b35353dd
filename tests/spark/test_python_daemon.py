"""What Spark's parent of Python workers loads, and from where."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import numpy as np
import pytest

from bridge.spark.process_memory import keep_freed_memory
from bridge.spark.python_daemon import without_zipped_pyspark

INSTALLED = "/env/lib/site-packages"
ARCHIVES = [f"{INSTALLED}/pyspark/python/lib/pyspark.zip", f"{INSTALLED}/pyspark/python/lib/py4j-0.10.9.9-src.zip"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ([*ARCHIVES, "/code", INSTALLED], ["/code", INSTALLED]),
        ([*ARCHIVES, "/code"], [*ARCHIVES, "/code"]),
        (["/opt/spark/python/lib/pyspark.zip", INSTALLED], ["/opt/spark/python/lib/pyspark.zip", INSTALLED]),
        (["/code/of/mine.zip", INSTALLED], ["/code/of/mine.zip", INSTALLED]),
    ],
)
def test_archives_of_what_is_installed_are_left_out(path: list[str], expected: list[str]) -> None:
    """Only those: a Spark of its own, or a job's own archive, is all there is of its modules."""
    assert without_zipped_pyspark(path) == expected


def test_freed_memory_is_kept() -> None:
    """A large block that is wanted again and again costs no more page faults than the first time."""
    keep_freed_memory()

    def faults(times: int) -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(times):
            np.ones(3 << 20, np.uint8)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    faults(3)
    assert faults(20) < 20 * 100


def test_numpy_starts_no_threads() -> None:
    """They belong to its BLAS, one for each core, and took most of the time to import it."""
    code = "import bridge, numpy, os; print(len(os.listdir('/proc/self/task')))"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout == "1\n"


def test_small_pages() -> None:
    """The kernel says whether a process may have large ones (proc(5), THP_enabled); one inherits that from its parent,
    in which a bridge may have run before."""
    large = "import ctypes; ctypes.CDLL(None).prctl(41, 0, 0, 0, 0); "
    code = "from bridge.spark.process_memory import use_small_pages as t; {}; print(open('/proc/self/status').read())"
    code = large + code
    said = [
        subprocess.run([sys.executable, "-c", code.format(call)], capture_output=True, text=True, check=True).stdout
        for call in ("pass", "t()")
    ]
    assert ["THP_enabled:\t1" in said[0], "THP_enabled:\t0" in said[1]] == [True, True]
