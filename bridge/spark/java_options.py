"""The options with which the driver's JVM is started."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Final

import pyspark

from bridge.local.cache import cache_folder
from bridge.spark.kafka_source_api import jars_in

_ALWAYS: Final = "-XX:TieredStopAtLevel=1 -Dsun.reflect.inflationThreshold=2147483647 -XX:+ExitOnOutOfMemoryError"
"""The JVM only plans and hands values over: the optimising compiler took a third of its processor time and a catch-up
was no faster for it; to compile what it calls by reflection cost more than those few calls.  Out of memory it ends: the
thread that failed may be one that everybody else waits for."""
_SPARK: Final = Path(pyspark.__file__).parent
ARCHIVE: Final = "classes.jsa"
QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"


def driver_java_options(given: str = "") -> str:
    """All options of the driver's JVM.  given: the operator's own; they stand last, and so win."""
    return " ".join(filter(None, (_ALWAYS, java_options(), given)))


def java_options() -> str:
    """The options of the archive for the driver's JVM; "" while there is no archive."""
    archive = cache_folder() / archive_name() / ARCHIVE
    if " " in str(archive):  # the options of a JVM are parted by blanks
        return ""
    return f"-XX:SharedArchiveFile={archive} -Xshare:auto {QUIET}" if archive.is_file() else ""


def archive_name() -> str:
    """The name of the archive: another one for each Java, Spark and class path.  The JVM takes no archive of jars that
    were installed anew since."""
    java = str(Path(shutil.which("java") or "java").resolve())
    told = "\0".join([java, os.environ.get("JAVA_HOME", ""), pyspark.__version__, str(_SPARK)])
    told += "\0" + "\0".join(map(str, jars_in()))
    told += f"\0{max((jar.stat().st_mtime_ns for jar in (_SPARK / 'jars').glob('*.jar')), default=0)}"
    return f"classes-{hashlib.sha256(told.encode()).hexdigest()[:16]}"
