"""A Spark that does not start: who is to blame."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

START = """
from bridge.errors import BridgeError
from bridge.spark.session import start_session
try:
    start_session({})
except BridgeError as error:
    print(error.exit_code, error)
"""


@pytest.mark.parametrize(
    ("jvm", "said"),
    [
        ("kill -9 $$", "3 Spark's JVM ended before it answered, and gave no reason"),
        ("echo WARNING: Using incubator modules >&2; kill -9 $$", "3 Spark's JVM ended before it answered"),
        ("echo Unrecognized option: -XX:Old >&2; exit 1", "2 Spark did not start: [JAVA_GATEWAY_EXITED]"),
    ],
)
def test_a_killed_jvm_is_told_from_one_that_cannot_start(tmp_path: Path, jvm: str, said: str) -> None:
    """Spark's script asks Java first for the command line of the JVM, and then starts that."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f'#!/bin/bash\n[[ "$*" == *spark.launcher.Main* ]] && exec {shutil.which("java")} "$@"\n{jvm}\n')
    java.chmod(0o755)
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    found = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, timeout=100, env=environment)
    assert found.stdout.startswith(said), found.stderr
