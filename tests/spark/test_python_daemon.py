"""What Spark's parent of Python workers loads, and from where."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import numpy as np
import pyspark
from pyspark.sql import SparkSession

from bridge.spark.process_memory import keep_freed_memory


def test_workers_take_pyspark_from_the_installed_files(spark: SparkSession) -> None:
    """Modules from its zip would be compiled again in every process."""

    def of_worker(_: int) -> str:
        return str(sys.modules["pyspark"].__file__)

    assert spark.sparkContext.parallelize([0], 1).map(of_worker).collect() == [pyspark.__file__]


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
