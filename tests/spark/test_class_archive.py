"""The archive of Spark's classes is used where it is there, and only there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bridge.errors import UsageError
from bridge.spark import class_archive, process_memory, session


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
