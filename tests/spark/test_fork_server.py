"""What Spark starts as its Python is forked from one process that has loaded everything, and does without it."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.spark.fork_server import SERVER, start_server
from bridge.spark.session import launcher

TELLS = """
import json, os, sys
told = {"name": __name__, "arguments": sys.argv[1:], "parent": os.getppid(), "given": os.environ.get("GIVEN")}
print(json.dumps({**told, "loaded": "pyspark" in sys.modules, "read": sys.stdin.read(), "server": "%s" in os.environ}))
"""


@pytest.mark.parametrize("is_there", [True, False])
def test_it_does_what_another_process_was_started_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """With its arguments, environment and streams; a process that finds no server does it by itself."""
    (tmp_path / "tells.py").write_text(TELLS % SERVER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    started: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(atexit, "register", lambda end: started.append(end.__self__))
    address = start_server() if is_there else "nobody"
    assert all(os.getpgid(server.pid) != os.getpgid(0) for server in started), "Ctrl-C would end it with a traceback"
    command = [str(launcher()), "-m", "tells", "an argument"]
    environment = {**os.environ, SERVER: address, "GIVEN": "yes"}
    done = subprocess.run(command, input=b"text", capture_output=True, env=environment, timeout=60)
    for server in started[:1]:
        server.communicate(timeout=30)  # its standard input ends, and so does it
        assert server.returncode == 0
    told = json.loads(done.stdout)
    parent = started[0].pid if is_there else os.getpid()
    assert done.stderr == b""
    assert told == {
        **{"name": "__main__", "arguments": ["an argument"], "given": "yes", "read": "text", "server": False},
        **{"parent": parent, "loaded": True},
    }


def test_what_is_no_module_runs_as_ever() -> None:
    """Spark asks its Python other things, too."""
    command = [str(launcher()), "-c", "import sys; print(sys.executable, *sys.argv[1:])", "-m", "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [sys.executable, "-m", "x"]


def test_its_end_is_waited_for() -> None:
    """With this process, so that nothing is left for Python to warn of."""
    program = "from bridge.spark.fork_server import start_server; start_server()"
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
