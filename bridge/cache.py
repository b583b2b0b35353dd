"""Keeps folders that are made once per user; each is complete or absent."""

from __future__ import annotations

import fcntl
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PARTIAL: Final = ".partial-"
_LOCK: Final = ".lock"


def cache_folder() -> Path:
    """Tells where everything fetched is kept. A relative XDG_CACHE_HOME is ignored, as its specification says."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (configured if configured.is_absolute() else Path.home() / ".cache") / "bridge"


def cached(name: str, build: Callable[[Path], None]) -> Path:
    """Gives the cached folder `name`; `build` fills it when it is absent.

    Two processes may ask at once: one builds, the other waits. What a killed process left half-done is removed.
    """
    folder = cache_folder() / name
    mark_used(name)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(name):
        if not folder.is_dir():
            _build(folder, build)
    return folder


def mark_used(name: str) -> None:
    """Notes that the cached folder `name`, if there is one, is used now."""
    with suppress(OSError):  # not there, or another user's
        os.utime(cache_folder() / name)


def remove_unused(prefix: str, seconds: float) -> None:
    """Removes the cached folders whose names begin with `prefix` and that nobody has used for so long, with their locks
    and what killed processes left half-done.

    A process that has opened or mapped a file of one keeps it.  What another process builds meanwhile is left alone.
    """
    names = [path.name.removesuffix(_LOCK).partition(_PARTIAL)[0] for path in cache_folder().glob(f"{prefix}*")]
    for name in {name for name in names if _unused_seconds(name) > seconds}:
        with suppress(OSError), _locked(name, fcntl.LOCK_EX | fcntl.LOCK_NB):
            if _unused_seconds(name) > seconds:
                _remove(name)


def _unused_seconds(name: str) -> float:
    """The time since anything of this name was marked or made."""
    folder, times = cache_folder(), list[float]()
    for path in (folder / name, folder / f"{name}{_LOCK}", *folder.glob(f"{name}{_PARTIAL}*")):
        with suppress(FileNotFoundError):
            times.append(path.stat().st_mtime)
    return time.time() - max(times, default=math.inf)


def _remove(name: str) -> None:
    """Renames first, so that the folder is complete or absent.  Only the holder of the lock gets here; the lock goes
    last."""
    folder = cache_folder() / name
    if folder.exists():
        folder.rename(Path(tempfile.mkdtemp(prefix=f"{name}{_PARTIAL}", dir=folder.parent)))
    for abandoned in folder.parent.glob(f"{name}{_PARTIAL}*"):
        shutil.rmtree(abandoned)
    (folder.parent / f"{name}{_LOCK}").unlink()


@contextmanager
def _locked(name: str, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Holds the lock of the folder `name`.  A lock that was removed while this process waited for it locks nobody out:
    then the one that has come in its place is taken."""
    path = cache_folder() / f"{name}{_LOCK}"
    while True:
        with path.open("a") as file:
            fcntl.flock(file, how)
            if _is_at(path, file.fileno()):
                yield
                return


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _build(folder: Path, build: Callable[[Path], None]) -> None:
    """Builds beside the final place and renames. Only the holder of the lock gets here."""
    for abandoned in folder.parent.glob(f"{folder.name}{_PARTIAL}*"):
        shutil.rmtree(abandoned)
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}{_PARTIAL}", dir=folder.parent))
    try:
        build(partial)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
