"""Sets how this process takes memory from the system and returns it."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import shutil
from pathlib import Path
from typing import Final

import pyspark

from bridge.cache import cache_folder

_PR_SET_THP_DISABLE: Final = 41
"""An option of prctl (linux/prctl.h)."""
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Parameters of mallopt (malloc.h of glibc)."""
_KEPT_BYTES: Final = 128 << 20
_LARGEST_ON_THE_HEAP: Final = 32 << 20


def keep_freed_memory() -> None:
    """Makes the C library keep up to 128 MiB of freed memory for the next allocation.  Otherwise it returns large
    blocks to the kernel at once, and every page of the next block costs a page fault.

    Has no effect when the C library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_ON_THE_HEAP)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def return_freed_memory() -> None:
    """Makes the C library return freed memory that lies between used memory.  After large texts, the process would
    otherwise hold several times the memory that it uses.

    Has no effect when the C library is not glibc.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(_KEPT_BYTES))


def use_small_pages() -> None:
    """Makes the system give memory in pages of 4 KiB to this process and to those that it starts.

    A process whose memory grows and shrinks asks for many pages.  On a virtual machine the host may have to find each
    page of 2 MiB first, which takes ten times as long as to clear it: 2.6 s for a GiB, and 0.4 s with small pages.
    Has no effect when the system is not Linux.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_THP_DISABLE, *map(ctypes.c_ulong, (1, 0, 0, 0)))


def freeze_loaded_modules() -> None:
    """Makes the garbage collector skip all objects that exist now.  Modules are never garbage and take 60 ms to check,
    and PySpark's workers collect garbage after every task."""
    gc.freeze()


_ALWAYS: Final = "-XX:TieredStopAtLevel=1 -Dsun.reflect.inflationThreshold=2147483647 -XX:+ExitOnOutOfMemoryError"
"""The JVM only plans and passes values on.  Its optimising compiler took a third of its processor time and made a
catch-up no faster; to compile the few calls by reflection cost more than to interpret them.  The JVM exits when it is
out of memory, since the thread that failed may be one that all others wait for."""
_SPARK: Final = Path(pyspark.__file__).parent
ARCHIVE: Final = "classes.jsa"
PREFIX: Final = "classes-2-"
"""Of the names of archives."""
QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"


def driver_java_options(options: str = "") -> str:
    """Returns all options of the driver's JVM.  options: the operator's options, which come last and so override the
    others."""
    return " ".join(filter(None, (_ALWAYS, java_options(), options)))


def java_options() -> str:
    """Returns the JVM options that use the class archive; "" while there is no archive."""
    archive = cache_folder() / archive_name() / ARCHIVE
    if " " in str(archive):  # JVM options are separated by spaces
        return ""
    return f"-XX:SharedArchiveFile={archive} -Xshare:auto {QUIET}" if archive.is_file() else ""


def archive_name() -> str:
    """Returns the name of the archive, which depends on Java, Spark, and the times of Spark's jars: the JVM accepts no
    archive that is older than its jars."""
    return f"{PREFIX}{_identity()}"


def _identity() -> str:
    java = str(Path(shutil.which("java") or "java").resolve())
    identity = "\0".join([java, os.environ.get("JAVA_HOME", ""), pyspark.__version__, str(_SPARK)])
    identity += f"\0{max((jar.stat().st_mtime_ns for jar in (_SPARK / 'jars').glob('*.jar')), default=0)}"
    return hashlib.sha256(identity.encode()).hexdigest()[:16]
