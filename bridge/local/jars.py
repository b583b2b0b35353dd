"""Fetches jars from Maven with the Ivy that PySpark ships, so that neither Maven nor a JDK is needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bridge.local.errors import LocalError

ATTEMPTS = 3
PAUSE_SECONDS = 2.0
ATTEMPT_SECONDS = 900.0
# Ivy draws its download progress as lines of dots.
PROGRESS = re.compile(r"^\.+( \(\d+kB\))?$")


@dataclass(frozen=True)
class Artifact:
    """A jar in a Maven repository.  is_alone: whether it is fetched without its dependencies."""

    group: str
    name: str
    version: str
    is_alone: bool = False

    def __str__(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"


def java() -> str:
    """Gives the path of the java program: JAVA_HOME's, else the one on PATH. Raises LocalError when there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise LocalError("there is no java program", fix="install Java 17 and put it on PATH, or set JAVA_HOME")
    return found


def retrieve(artifact: Artifact, folder: Path) -> None:
    """Puts the jars of `artifact` and, unless it is alone, of its dependencies into `folder`.

    Raises LocalError, with Ivy's last lines, when the last of several attempts fails too.
    """
    for _ in range(ATTEMPTS - 1):
        if _ivy(artifact, folder).returncode == 0:
            return
        time.sleep(PAUSE_SECONDS)
    last = _ivy(artifact, folder)
    if last.returncode != 0:
        raise _failure(artifact, last.stdout)


def _ivy(artifact: Artifact, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs Ivy once. It has a cache folder of its own, since ~/.ivy2 may hold a broken entry: Ivy takes no lock."""
    ivy_cache = folder / ".ivy"
    command = [java(), "-jar", str(_ivy_jar()), "-cache", str(ivy_cache), "-confs", "default"]
    command += ["-notransitive"] if artifact.is_alone else []
    command += ["-dependency", artifact.group, artifact.name, artifact.version]
    command += ["-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    try:
        return subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=ATTEMPT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, f"not done within {ATTEMPT_SECONDS:.0f} s")
    finally:
        shutil.rmtree(ivy_cache, ignore_errors=True)


def _ivy_jar() -> Path:
    """Finds Ivy's jar. PySpark is looked up, not imported, since importing it takes a second."""
    spec = find_spec("pyspark")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    jars = [jar for folder in folders for jar in (Path(folder) / "jars").glob("ivy-*.jar")]
    if not jars:
        raise LocalError("PySpark with its jars/ivy-*.jar is not installed", fix="pip install pyspark")
    return jars[0]


def _failure(artifact: Artifact, output: str) -> LocalError:
    lines = [line.strip() for line in output.splitlines()]
    telling = [line for line in lines if line and not PROGRESS.match(line)]
    return LocalError(
        f"Ivy could not fetch {artifact}: " + " | ".join(telling[-12:]),
        fix="make sure that Maven Central can be reached (JAVA_TOOL_OPTIONS takes -Dhttps.proxyHost=... for a proxy)",
    )
