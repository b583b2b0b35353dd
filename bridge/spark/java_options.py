"""Makes the options with which the driver's JVM is started."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Final

import pyspark

from bridge.cache.folders import cache_folder, cached

_ALWAYS: Final = "-XX:TieredStopAtLevel=1 -Dsun.reflect.inflationThreshold=2147483647 -XX:+ExitOnOutOfMemoryError"
"""The JVM only plans and passes values on.  Its optimising compiler took a third of its processor time and made a
catch-up no faster; to compile the few calls by reflection cost more than to interpret them.  The JVM exits when it is
out of memory, since the thread that failed may be one that all others wait for."""
_SPARK: Final = Path(pyspark.__file__).parent
ARCHIVE: Final = "classes.jsa"
_LIGHT: Final = "spark-home-"
PREFIX: Final = "classes-2-"
"""Of the names of archives."""
QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"


def driver_java_options(given: str = "") -> str:
    """Returns all options of the driver's JVM.  given: the operator's options, which come last and so override the
    others."""
    return " ".join(filter(None, (_ALWAYS, java_options(), given)))


def java_options() -> str:
    """Returns the JVM options that use the class archive; "" while there is no archive."""
    archive = cache_folder() / archive_name() / ARCHIVE
    if " " in str(archive):  # JVM options are separated by spaces
        return ""
    return f"-XX:SharedArchiveFile={archive} -Xshare:auto {QUIET}" if archive.is_file() else ""


def spark_home() -> Path:
    """Makes a folder with all that the JVM needs of Spark, without PySpark, and returns it."""
    return cached(f"{_LIGHT}{_identity()}", _link_home)


def _link_home(folder: Path) -> None:
    for name in ("bin", "conf", "jars"):
        if (_SPARK / name).exists():
            (folder / name).symlink_to(_SPARK / name)


def archive_name() -> str:
    """Returns the name of the archive, which depends on Java, Spark, and the times of Spark's jars: the JVM accepts no
    archive that is older than its jars."""
    return f"{PREFIX}{_identity()}"


def _identity() -> str:
    java = str(Path(shutil.which("java") or "java").resolve())
    identity = "\0".join([java, os.environ.get("JAVA_HOME", ""), pyspark.__version__, str(_SPARK)])
    identity += f"\0{max((jar.stat().st_mtime_ns for jar in (_SPARK / 'jars').glob('*.jar')), default=0)}"
    return hashlib.sha256(identity.encode()).hexdigest()[:16]
