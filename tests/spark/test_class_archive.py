"""The archive of Spark's classes is used where it is there, and only there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bridge.spark import java_options


def test_without_an_archive_nothing_is_said_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java would print a warning."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert java_options.java_options() == ""


def test_an_archive_of_another_kind_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is cut short, or another Java's: the JVM starts without it, and without a word."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(java_options, "archive_name", lambda: "classes")
    archive = tmp_path / "bridge" / "classes" / "classes.jsa"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"no archive at all")
    done = subprocess.run(
        ["java", *java_options.java_options().split(), "-version"], capture_output=True, text=True, check=True
    )
    assert "warning" not in done.stdout + done.stderr


@pytest.mark.usefixtures("kafka")
def test_the_archive_is_there_once_it_was_made() -> None:
    """The fixture has made it, as everything that starts bridges here does."""
    assert java_options.java_options()
