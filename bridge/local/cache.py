"""Keeps folders that are made once per user; each is complete or absent."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """Tells where everything fetched is kept. A relative XDG_CACHE_HOME is ignored, as its specification says."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (configured if configured.is_absolute() else Path.home() / ".cache") / "bridge"


def cached(name: str, build: Callable[[Path], None]) -> Path:
    """Gives the cached folder `name`; `build` fills it when it is absent.

    Two processes may ask at once: one builds, the other waits. What a killed process left half-done is removed.
    """
    folder = cache_folder() / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f"{name}.lock")):
        if not folder.is_dir():
            _build(folder, build)
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(folder: Path, build: Callable[[Path], None]) -> None:
    """Builds beside the final place and renames. Only the holder of the lock gets here."""
    for abandoned in folder.parent.glob(f"{folder.name}.partial-*"):
        shutil.rmtree(abandoned)
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.partial-", dir=folder.parent))
    try:
        build(partial)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
