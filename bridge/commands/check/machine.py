"""Checks of this machine: Java, memory, the folder for temporary files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.commands.check.finding import Finding, fail, ok, warn
from bridge.config import Settings
from bridge.spark.process_memory import machine_memory
from bridge.spark.session import spill_folder

JAVA: Final = 17
_SPILL_BYTES: Final = 2 << 30
_BESIDE_BYTES: Final = 1 << 30
"""What Python workers, the driver's own code and the JVM beside its heap take."""
_JAVA_SECONDS: Final = 10
_UNITS: Final = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}


@dataclass(frozen=True)
class Folder:
    """A folder, and the bytes that are free in it; None where nothing can be written there."""

    path: str
    free: int | None


@dataclass(frozen=True)
class MachineFacts:
    """This machine.

    java: what `java -version` prints first; "" when it cannot be run.
    memory: bytes that this process and its children may have; None where that is not known.
    """

    java: str
    memory: int | None
    spill: Folder


def gather(settings: Settings) -> MachineFacts:
    """Looks at this machine."""
    return MachineFacts(
        _java(os.environ),
        machine_memory(),
        _folder(spill_folder(settings.spark)),
    )


def judge(facts: MachineFacts, settings: Settings) -> Iterator[Finding]:
    """Judges this machine by what the settings make of it."""
    yield _judge_java(facts.java)
    yield _judge_memory(facts.memory, settings)
    yield _judge_spill(facts.spill)


def _judge_java(said: str) -> Finding:
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if not found:
        return fail("java", "Java cannot be run", f"install Java {JAVA}, and set JAVA_HOME or put it on the PATH")
    if int(found[1]) < JAVA:
        return fail("java", f"Java {found[1]} is too old for Spark 4", f"install Java {JAVA}, and set JAVA_HOME")
    if int(found[1]) > JAVA:
        return warn("java", f"Java {found[1]} was not tested with the bridge", f"take Java {JAVA}")
    return ok("java", f"Java {found[1]}")


def _judge_memory(memory: int | None, settings: Settings) -> Finding:
    heap = size_of(settings.spark.get("spark.driver.memory", "1g"))
    least, good = heap + _BESIDE_BYTES // 2, heap + _BESIDE_BYTES + 2 * settings.stream.driver_bytes
    if memory is None:
        return ok("memory", "how much memory there is is not known here")
    fix = "give it more, or lower stream.driver_bytes and spark.driver.memory"
    if memory < least:
        return fail("memory", f"{_mib(memory)} of memory; with these settings at least {_mib(least)} are needed", fix)
    if memory < good:
        return warn("memory", f"{_mib(memory)} of memory; a long catch-up may take {_mib(good)}", fix)
    return ok("memory", f"{_mib(memory)} of memory")


def _judge_spill(spill: Folder) -> Finding:
    fix = "set spark.local.dir in [spark], or TMPDIR, to a folder with room"
    if spill.free is None:
        return fail("spill", f"nothing can be written to the folder for temporary files, {spill.path}", fix)
    said = f"{_mib(spill.free)} are free in {spill.path}, where decoded messages lie until they are applied"
    return warn("spill", said, fix) if spill.free < _SPILL_BYTES else ok("spill", said)


def size_of(text: str) -> int:
    """Reads a size of Spark's, such as `512m`, in bytes; 0 for what is none."""
    found = re.fullmatch(r"\s*(\d+)\s*([bkmgt]?)b?\s*", text.lower())
    return int(found[1]) << _UNITS[found[2]] if found else 0


def _mib(size: int) -> str:
    return f"{size >> 20:,} MiB"


def _java(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    if not program:
        return ""
    try:
        ran = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stderr + ran.stdout


def _folder(path: str) -> Folder:
    try:
        with tempfile.TemporaryFile(dir=path):
            return Folder(path, shutil.disk_usage(path).free)
    except OSError:
        return Folder(path, None)
