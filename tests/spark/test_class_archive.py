"""The archive of Spark's classes is used where it is there, and only there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bridge.errors import UsageError
from bridge.spark import class_archive, process_memory, session
from tests.support.waiting import wait_for


def test_without_an_archive_nothing_is_said_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java would print a warning."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert process_memory.java_options() == ""


def test_an_archive_of_another_kind_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is cut short, or another Java's: the JVM starts without it, and without a word."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(process_memory, "archive_name", lambda: "classes")
    archive = tmp_path / "bridge" / "classes" / "classes.jsa"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"no archive at all")
    done = subprocess.run(
        ["java", *process_memory.java_options().split(), "-version"], capture_output=True, text=True, check=True
    )
    assert "warning" not in done.stdout + done.stderr


def test_archives_that_no_bridge_starts_with_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`bridge setup` does it: each Java and each folder of jars that ever was had one of 70 MB."""

    def refuse(*_: object) -> None:
        raise OSError("no Java")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(class_archive, "_write_archive", lambda folder: (folder / "classes.jsa").touch())
    monkeypatch.setattr(session, "_start_jvm", refuse)
    for name in ("gone", "used"):
        monkeypatch.setenv("JAVA_HOME", name)
        class_archive.make_archive()
    for path in (tmp_path / "bridge").iterdir():
        os.utime(path, (0, 0))
    with pytest.raises(UsageError, match="no Java"):
        session.start_session({})
    kept = {process_memory.archive_name()}
    monkeypatch.setenv("JAVA_HOME", "new")
    class_archive.make_archive()
    kept.add(process_memory.archive_name())
    assert {path.name for path in (tmp_path / "bridge").iterdir() if path.is_dir()} == kept


@pytest.mark.usefixtures("kafka")
def test_the_archive_is_there_once_it_was_made() -> None:
    """The fixture has made it, as everything that starts bridges here does."""
    assert process_memory.java_options()


@pytest.fixture
def without_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the cache, in which there is no archive; a process that makes one says so there, and waits."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    making = f"import os, sys; open({str(tmp_path / 'making')!r}, 'w').write(str(os.getpid())); sys.stdin.read()"
    monkeypatch.setattr(class_archive, "_MAKE", (sys.executable, "-c", making))
    return tmp_path


def appeared(file: Path) -> str:
    """What is in a file, once something is."""
    wait_for(lambda: file.is_file() and file.read_text(), f"no {file}")
    return file.read_text()


def test_it_is_made_beside_a_bridge_and_ends_with_it(without_archive: Path) -> None:
    """Neither a process nor its reason to live is left behind."""
    with class_archive.made_beside(0.0):
        process = Path("/proc", appeared(without_archive / "making"))
    assert not process.exists()


@pytest.mark.parametrize("why_not", ["archive", "memory", "spark-submit"])
def test_it_is_not_made_beside_every_bridge(
    without_archive: Path, monkeypatch: pytest.MonkeyPatch, why_not: str
) -> None:
    """Where it is there, where a second JVM could take the bridge's memory, and where the JVM is not the bridge's."""
    if why_not == "archive":
        monkeypatch.setattr(class_archive, "java_options", lambda: "-XX:SharedArchiveFile=x")
    elif why_not == "memory":
        monkeypatch.setattr(class_archive, "machine_memory", lambda: 2 << 30)
    else:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    threads = threading.active_count()
    with class_archive.made_beside(0.0):
        assert threading.active_count() == threads
    assert list(without_archive.iterdir()) == []


def test_who_makes_it_ends_with_a_bridge_that_was_killed(tmp_path: Path) -> None:
    """It reads a pipe of the bridge, which closes however the bridge ends."""
    code = "import time; from bridge.spark.class_archive import _end_with_parent as end; end(); time.sleep(100)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, start_new_session=True, cwd=tmp_path
    ) as making:
        assert making.stdin is not None
        making.stdin.close()
        assert making.wait(60) == -signal.SIGKILL
