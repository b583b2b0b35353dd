"""Spark starts while the rest is put together."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyspark
import pytest
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from bridge.ends import Abandoned
from bridge.errors import SourceError, UsageError
from bridge.spark import session
from bridge.spark.process_memory import driver_java_options, keep_freed_memory
from bridge.spark.session import StartingSession, checkpoint_folder


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Set when Spark may have started."""
    may_answer = threading.Event()

    def start(settings: Any, **_: str) -> Any:
        may_answer.wait(60)
        if settings:
            raise UsageError("no such property")
        return "the session"

    monkeypatch.setattr(session, "start_session", start)
    yield may_answer
    may_answer.set()


def test_it_is_waited_for(answers: threading.Event) -> None:
    """By whoever needs it first."""
    starting = StartingSession({}, "off")
    threading.Timer(0.1, answers.set).start()
    assert starting.get() == "the session"


def test_a_stop_does_not_wait_for_it(answers: threading.Event) -> None:
    """The JVM ends with the process."""
    assert not answers.is_set()
    with pytest.raises(Abandoned):
        StartingSession({}, "off").get(lambda: True)


def test_what_keeps_spark_from_starting_is_raised_where_it_is_needed(answers: threading.Event) -> None:
    """Not in a thread whose errors nobody reads."""
    starting = StartingSession({"spark.none": "1"}, "off")
    answers.set()
    with pytest.raises(UsageError, match="no such property"):
        starting.get()


def test_a_start_that_never_ends_is_given_up(answers: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark waits for ever for a JVM that has failed and stays.  The log has said before that Spark is late."""
    assert not answers.is_set()
    monkeypatch.setattr(session, "_LATE_SECONDS", 0.1)
    monkeypatch.setattr(session, "_MOST_SECONDS", 0.5)
    starting = StartingSession({}, "off")
    with capture_logs() as said, pytest.raises(SourceError, match="Spark has not started within"):
        starting.get()
    assert {line["event"] for line in said} == {"spark_is_late"}
    assert len(said) >= 2


def test_options_of_the_operator_stand_behind_the_bridges_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trust store of their own must not cost them the archive of classes, or the end on lack of memory."""
    started: list[Mapping[str, str]] = []

    def refuse(properties: Mapping[str, str], _: object) -> None:
        started.append(properties)
        raise OSError("no Java")

    monkeypatch.setattr(session, "_start_jvm", refuse)
    name, given = "spark.driver.extraJavaOptions", "-Djavax.net.ssl.trustStore=/etc/trust"
    for settings in ({}, {name: given}):
        with pytest.raises(UsageError, match="no Java"):
            session.start_session(settings)
    assert "-XX:+ExitOnOutOfMemoryError" in started[0][name]
    assert started[1][name] == driver_java_options(given) == f"{started[0][name]} {given}"


@pytest.mark.parametrize("given", ["", None, "/usr/bin/other"])
def test_an_empty_name_of_sparks_python_is_none(monkeypatch: pytest.MonkeyPatch, given: str | None) -> None:
    """As of a variable that a compose file passes on: Spark could start no worker, and the error spoke of Kafka."""

    def refuse(*_: object) -> None:
        raise OSError("no Java")

    monkeypatch.setattr(session, "_start_jvm", refuse)
    monkeypatch.setenv("PYSPARK_PYTHON", given or "")
    if given is None:
        monkeypatch.delenv("PYSPARK_PYTHON")
    with pytest.raises(UsageError, match="no Java"):
        session.start_session({})
    assert os.environ["PYSPARK_PYTHON"] == (given or sys.executable)


def test_a_jvm_that_is_killed_while_it_starts_is_no_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3, after which a service manager starts the bridge again; 2 would say that it never can."""

    def end(*_: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(session, "_start_jvm", end)
    with pytest.raises(SourceError, match="Spark's JVM has ended"):
        session.start_session({})


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


def test_workers_take_pyspark_from_the_installed_files(spark: SparkSession) -> None:
    """Modules from its zip would be compiled again in every process."""

    def of_worker(_: int) -> str:
        return str(sys.modules["pyspark"].__file__)

    assert spark.sparkContext.parallelize([0], 1).map(of_worker).collect() == [pyspark.__file__]


@pytest.mark.system
def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    """A container may have no home, and a root that is read-only."""
    (tmp_path / "file").touch()
    program = (
        "from bridge.spark.session import start_session\n"
        "print(start_session({}).sparkContext.parallelize([1, 2], 1).sum())"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "file" / "cache")}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "3\n"), ran.stderr


def test_freed_memory_is_kept() -> None:
    """A large block that is wanted again and again costs no more page faults than the first time."""
    keep_freed_memory()

    def faults(times: int) -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(times):
            np.ones(3 << 20, np.uint8)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    faults(3)
    assert faults(20) < 20 * 100


def test_numpy_starts_no_threads() -> None:
    """They belong to its BLAS, one for each core, and took most of the time to import it."""
    code = "import bridge, numpy, os; print(len(os.listdir('/proc/self/task')))"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout == "1\n"


def test_small_pages() -> None:
    """The kernel says whether a process may have large ones (proc(5), THP_enabled); one inherits that from its parent,
    in which a bridge may have run before."""
    large = "import ctypes; ctypes.CDLL(None).prctl(41, 0, 0, 0, 0); "
    code = "from bridge.spark.process_memory import use_small_pages as t; {}; print(open('/proc/self/status').read())"
    code = large + code
    said = [
        subprocess.run([sys.executable, "-c", code.format(call)], capture_output=True, text=True, check=True).stdout
        for call in ("pass", "t()")
    ]
    assert ["THP_enabled:\t1" in said[0], "THP_enabled:\t0" in said[1]] == [True, True]
