"""Folders that killed bridges left behind, and those of bridges that live."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.spark.session import checkpoint_folder

KILLED = """
import os, signal
from bridge.spark.session import checkpoint_folder
with checkpoint_folder() as folder:
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_folder_of_a_bridge_in_another_container_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers may share the temporary folder and see none of each other's processes."""
    monkeypatch.setattr(os, "getpid", lambda: (1 << 22) + 1)  # no process has that one
    with checkpoint_folder() as theirs:
        monkeypatch.undo()
        with checkpoint_folder() as mine:
            assert Path(theirs).is_dir()
            assert mine != theirs
    assert not Path(theirs).exists()
    assert not Path(mine).exists()


def test_the_folder_of_a_killed_bridge_goes() -> None:
    """Whoever starts next removes it."""
    killed = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False, timeout=60)
    left = Path(killed.stdout.strip())
    assert left.is_dir()
    with checkpoint_folder():
        assert not left.exists()
