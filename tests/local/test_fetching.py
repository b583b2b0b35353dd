"""The cache and the fetching of jars, without a network."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import pytest

from bridge.cache import cached, mark_used, remove_unused
from bridge.local import LocalError, jars

ARTIFACT = jars.Artifact("org.example", "thing", "1.0")


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "bridge"


@pytest.fixture
def fake_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """`fake_java(script)` makes `java` that shell script, run in an empty folder of its own."""
    (tmp_path / "home" / "bin").mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(jars, "PAUSE_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path / "home")

    def install(script: str) -> None:
        program = tmp_path / "home" / "bin" / "java"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    return install


def _write_x(folder: Path) -> None:
    (folder / "x").write_text("1")


def test_built_once(cache: Path) -> None:
    """A cached folder is built at the first request and taken as it is afterwards."""
    assert cached("a", _write_x) == cache / "a"
    assert cached("a", lambda _: pytest.fail("built again")) == cache / "a"
    assert (cache / "a" / "x").read_text() == "1"


def test_failed_build_is_absent(cache: Path) -> None:
    """A failed build leaves neither the folder nor its half, and the next request builds again."""

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise LocalError("no network")

    with pytest.raises(LocalError, match="no network"):
        cached("a", fail)
    assert [path.name for path in cache.iterdir()] == ["a.lock"]
    assert cached("a", lambda folder: (folder / "whole").touch()).is_dir()


def test_half_left_by_a_killed_process_is_removed(cache: Path) -> None:
    """What a killed process left half-done is neither used nor kept."""
    (cache / "a.partial-dead").mkdir(parents=True)
    (cache / "a.partial-dead" / "half").touch()
    cached("a", lambda folder: (folder / "whole").touch())
    assert sorted(path.name for path in cache.iterdir()) == ["a", "a.lock"]
    assert [path.name for path in (cache / "a").iterdir()] == ["whole"]


def test_two_at_once_build_once() -> None:
    """Of several that ask at the same time one builds and the others wait for it."""
    built: list[Path] = []
    found: list[bool] = []

    def build(folder: Path) -> None:
        built.append(folder)
        time.sleep(0.3)
        (folder / "whole").touch()

    def ask() -> None:
        found.append((cached("a", build) / "whole").exists())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(built), found) == (1, [True] * 4)


def _age(cache: Path, *names: str, days: float) -> None:
    """Makes them look as if nobody had touched them for so long."""
    for name in names:
        os.utime(cache / name, (time.time() - days * 86_400,) * 2)


def test_what_nobody_uses_is_removed(cache: Path) -> None:
    """With its lock, and what a killed process left; what was used lately, by whatever way, and others' stay."""
    for name in ("classes-old", "classes-asked", "classes-marked", "classes-new", "kafka-1"):
        cached(name, _write_x)
    (cache / "classes-dead.partial-x").mkdir()
    (cache / "classes-dead.lock").touch()
    _age(cache, *(path.name for path in cache.iterdir() if "new" not in path.name), days=31)
    cached("classes-asked", _write_x)
    mark_used("classes-marked")
    remove_unused("classes-", 30 * 86_400)
    kept = ("classes-asked", "classes-marked", "classes-new", "kafka-1")
    assert {path.name for path in cache.iterdir()} == {*kept, *(f"{name}.lock" for name in kept)}


def test_what_another_process_builds_is_not_removed(cache: Path) -> None:
    """Who holds the lock has it to itself, however old what is there looks."""
    removed: list[set[str]] = []

    def build(folder: Path) -> None:
        _age(cache, folder.name, "classes-a.lock", days=31)
        remove_unused("classes-", 30 * 86_400)
        removed.append({path.name for path in cache.iterdir()})
        _write_x(folder)

    assert (cached("classes-a", build) / "x").read_text() == "1"
    assert len(removed[0]) == 2


def test_a_lock_that_was_removed_meanwhile_is_taken_anew(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a lock that is removed takes the one in its place: two never build at once."""
    lock, flock, taken = cache / "a.lock", fcntl.flock, list[int]()

    def removed_meanwhile(file: TextIO, how: int) -> None:
        if not taken:
            lock.unlink()
        taken.append(how)
        flock(file, how)

    def build(folder: Path) -> None:
        with lock.open() as other, pytest.raises(BlockingIOError):
            flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_x(folder)

    monkeypatch.setattr(fcntl, "flock", removed_meanwhile)
    assert cached("a", build).is_dir()
    assert len(taken) == 2


def test_java_of_java_home_wins(fake_java: Callable[[str], None], tmp_path: Path) -> None:
    """JAVA_HOME says which java, as for Spark."""
    fake_java("exit 0")
    assert jars.java() == str(tmp_path / "home" / "bin" / "java")


def test_missing_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without Java the error says what to install."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalError, match="install Java 17"):
        jars.retrieve(ARTIFACT, tmp_path)


def test_download_is_retried(fake_java: Callable[[str], None], tmp_path: Path) -> None:
    """A download that fails twice is tried a third time, each time whole."""
    fake_java('echo "$@" >> calls; [ $(wc -l < calls) -ge 3 ]')
    jars.retrieve(ARTIFACT, tmp_path)
    calls = (tmp_path / "home" / "calls").read_text().splitlines()
    assert len(calls) == 3
    assert "-dependency org.example thing 1.0 -retrieve" in calls[2]


def test_a_jar_alone(fake_java: Callable[[str], None], tmp_path: Path) -> None:
    """Of a jar that only carries a program the dependencies stay where they are."""
    fake_java('echo "$@" >> calls')
    jars.retrieve(jars.Artifact("o", "t", "1", is_alone=True), tmp_path)
    assert "-notransitive" in (tmp_path / "home" / "calls").read_text()


def test_failed_download_quotes_ivy(fake_java: Callable[[str], None], tmp_path: Path) -> None:
    """When every attempt fails, Ivy's last lines are told, without its progress dots."""
    fake_java('echo "...... (12kB)"; echo "......"; echo "thing;1.0: not found" >&2; exit 1')
    with pytest.raises(LocalError, match=r"org.example:thing:1.0: thing;1.0: not found; fix: .*Maven Central"):
        jars.retrieve(ARTIFACT, tmp_path)
