"""Starts the Spark session of the bridge, in classic mode and without output, while a pipeline is put together: the JVM
takes most of a start, and works by itself."""

from __future__ import annotations

import atexit
import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import IO, Any, ClassVar, Final

import structlog
from pyspark import SparkConf, SparkContext
from pyspark.accumulators import AccumulatorTCPServer
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started, launch_gateway
from pyspark.sql import SparkSession

from bridge.cache import cached, mark_used
from bridge.ends import Abandoned
from bridge.errors import SourceError, UsageError
from bridge.secret_settings import SECRET_NAMES, is_secret
from bridge.spark.errors import SPARK_ENDED, source_error, start_error
from bridge.spark.fork_server import SERVER, start_server
from bridge.spark.process_memory import (
    archive_name,
    driver_java_options,
    freeze_loaded_modules,
    keep_freed_memory,
    use_small_pages,
)

_CHECKPOINT: Final = "bridge-stream-"
_MADE: Final[set[Path]] = set()
_DEFAULTS: Final = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "2",
    # The default manager starts a process for every file, to resolve links.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # The plan of a micro-batch only passes chunks on: it is neither compiled nor described.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.session.timeZone": "UTC",
    # True, which Spark sets, gives the tasks of queries workers of their own, beside those of other jobs.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.redaction.regex": SECRET_NAMES,
    # Java's serializer keeps the last hundred rows that it wrote to the disk: a gigabyte, if they are large.
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryoserializer.buffer.max": "1024m",
}

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_END_SECONDS: Final = 3.0
"""How long tasks may take to end; Spark checks every two seconds whether a task was killed."""
_JVM_SECONDS: Final = 1.5
"""For a JVM that is told to end to remove what it has written."""
_LAUNCHER: Final = "python"
_LAUNCH: Final = """#!/bin/sh
[ "$1" = -m ] && shift && set -- -m bridge.spark.python_main "$@"
exec {python} "$@"
"""


def start_session(settings: Mapping[str, str], *, log_level: str = "off") -> SparkSession:
    """Starts a session with `settings` (Spark properties), which override the properties of spark-submit, which
    override the bridge's defaults.

    log_level: from which level on Spark prints what it does; `off`: what the JVM prints is shown only in the error,
    when the start fails.
    Raises UsageError for Spark Connect, a missing Java, or settings that Spark refuses; SourceError when the JVM ends
    meanwhile.
    """
    if settings.get("spark.remote") or os.environ.get("SPARK_REMOTE"):
        raise UsageError("the bridge needs Spark in classic mode", fix="unset spark.remote and SPARK_REMOTE")
    if not os.environ.get("PYSPARK_PYTHON"):  # not set, or empty
        os.environ["PYSPARK_PYTHON"] = settings.get("spark.pyspark.python", sys.executable)
    # It would print a traceback when the JVM ends first.  The bridge uses no accumulators.
    AccumulatorTCPServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    builder = SparkSession.builder.appName("bridge")
    if is_submitted():
        SparkContext._ensure_initialized()
        _forward_signals(SparkContext._gateway)
    submitted = dict(SparkConf().getAll()) if is_submitted() else {}
    overrides = {**submitted, **settings}
    mark_used(archive_name())
    java = {_JAVA_OPTIONS: driver_java_options(overrides.get(_JAVA_OPTIONS, ""))}
    noise = {} if log_level == "off" else {"spark.log.level": log_level.upper()}
    properties = {**_DEFAULTS, **noise, **overrides, **java}
    for key, value in properties.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile("w+") as jvm_output:
        try:
            with _kept_interrupt_handler():
                # what PySpark imports at its first call of the JVM, where it looks for NumPy (0.2 s)
                importing = threading.Thread(target=import_module, args=("pyspark.testing.utils",), daemon=True)
                importing.start()
                _start_jvm(properties, jvm_output if log_level == "off" else None)
                importing.join()
                session: SparkSession = builder.getOrCreate()
        except ConnectionError as error:
            raise source_error(error) from error  # the JVM was there, and has ended
        except (PySparkException, OSError, RuntimeError) as error:
            jvm_output.seek(0)
            raise start_error(error, jvm_output.read()) from error
    with suppress(OSError, RuntimeError):  # no home, or a full disk: each process loads what it needs
        if _has_own_python(properties) and os.access(launcher(), os.X_OK):
            session.sparkContext.pythonExec = str(launcher())
    _leave_data_sources_alone(session)
    if log_level != "off":
        _show_log(session, log_level)
    return session


def _leave_data_sources_alone(session: SparkSession) -> None:
    """Keeps Spark from starting a Python process that looks for data sources in all installed packages (0.3 s)."""
    jvm: Any = session.sparkContext._gateway.jvm  # type: ignore[union-attr]
    none = getattr(jvm.scala.collection.immutable, "Map$EmptyMap$")
    manager = getattr(jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager$")
    getattr(getattr(manager, "MODULE$"), "dataSourceBuilders_$eq")(jvm.scala.Some(getattr(none, "MODULE$")))


def _is_local(properties: Mapping[str, str]) -> bool:
    """Tells whether Spark runs on this machine alone, which is the default."""
    return properties.get("spark.master", "local").startswith("local")


def _show_log(session: SparkSession, level: str) -> None:
    """Shows Spark's log from a level on.  In a JVM that serves Python, Spark drops what is below WARN unless a logger
    has a level of its own, whatever `spark.log.level` says."""
    log4j: Any = session.sparkContext._gateway.jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    log4j.core.config.Configurator.setLevel("org.apache.spark", log4j.Level.toLevel(level.upper()))


def _start_jvm(properties: Mapping[str, str], output: IO[str] | None) -> None:
    """Starts the JVM, unless it is there.  Its command line, which every user of the machine can read, holds all
    properties but the secret ones; those are set on the session.

    output: what the JVM writes its standard error to; None for that of this process.
    """
    if SparkContext._gateway is not None:
        return
    public = SparkConf(loadDefaults=False)
    public.setAll([(name, value) for name, value in properties.items() if not is_secret(name)])
    os.environ[SERVER] = start_server() if _has_own_python(properties) else ""
    gateway = launch_gateway(public, {"stderr": output})  # type: ignore[no-untyped-call]
    del os.environ[SERVER]
    SparkContext._ensure_initialized(gateway=gateway)


def _has_own_python(properties: Mapping[str, str]) -> bool:
    """Tells whether Spark's Python is the one of this process: not on a cluster, and not another one, which may lack
    PySpark."""
    python = shutil.which(properties.get("spark.pyspark.python") or os.environ["PYSPARK_PYTHON"])
    return (
        _is_local(properties)
        and python is not None
        and Path(python).samefile(sys.executable)
        and Path(python).parent == Path(sys.executable).parent
    )


def launcher() -> Path:
    """Makes what Spark starts as its Python, and returns it: it runs modules by `python_main`."""
    return cached(f"python-{sha256(sys.executable.encode()).hexdigest()[:16]}", _write_launcher) / _LAUNCHER


def _write_launcher(folder: Path) -> None:
    (folder / _LAUNCHER).write_text(_LAUNCH.format(python=shlex.quote(sys.executable)))
    (folder / _LAUNCHER).chmod(0o700)


def is_submitted() -> bool:
    """Tells whether spark-submit started the JVM, and the JVM this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


class _ForwardedSignal:
    """Sends a signal that the JVM received to this process (sun.misc.SignalHandler, which Spark uses as well)."""

    class Java:
        implements: ClassVar = ["sun.misc.SignalHandler"]

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def handle(self, _: object) -> None:
        """Sends the signal; called by the JVM."""
        os.kill(os.getpid(), self._number)


def _forward_signals(gateway: Any) -> None:
    """Makes the JVM forward SIGTERM and SIGINT to this process.  Stopping spark-submit signals the JVM, which would
    otherwise end at once, in the middle of reading.  The driver reads before Spark's session is there."""
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    sun = gateway.jvm.sun.misc
    for name, number in (("TERM", signal.SIGTERM), ("INT", signal.SIGINT)):
        sun.Signal.handle(sun.Signal(name), _ForwardedSignal(number))


def end_tasks(session: SparkSession) -> None:
    """Cancels the jobs that still run, and waits up to 3 s until their tasks have ended.  A task that is still running
    when the JVM ends would print a failure after the bridge's last line.  Does nothing when the JVM has ended."""
    context: Any = session.sparkContext
    deadline = time.monotonic() + _END_SECONDS
    with suppress(*SPARK_ENDED):
        context.cancelAllJobs()
        tracker = context._jsc.sc().statusTracker()
        while any(one.numRunningTasks() for one in tracker.getExecutorInfos()) and time.monotonic() < deadline:
            time.sleep(0.05)


def driver_folder(spark: SparkSession) -> str:
    """Returns the folder of this machine for what a query of the session leaves: where executors work here, the one
    for what they spill."""
    properties = dict(spark.sparkContext.getConf().getAll())
    if not _is_local(properties):
        return tempfile.gettempdir()
    places = properties.get("spark.local.dir") or os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    return places.split(",")[0]


@contextmanager
def checkpoint_folder(base: str | None = None) -> Iterator[str]:
    """Makes a folder for the query's checkpoint, and for what executors on this machine leave there; it is removed at
    the end, since the target holds the progress.  base: where it is made (`driver_folder`).

    Also removes the folders of processes that were killed.  A living process holds a lock on its folder.  Process ids
    would not do, since processes in other containers may share the temporary folder.
    """
    folders = Path(base or tempfile.gettempdir())
    for old in folders.glob(f"{_CHECKPOINT}*"):
        with suppress(OSError), _locked(old):
            shutil.rmtree(old, ignore_errors=True)
    with ExitStack() as stack:
        created = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folders, ignore_cleanup_errors=True)))
        stack.enter_context(_locked(created))
        folder = created.rename(
            created.with_name(_CHECKPOINT + created.name)
        )  # the name that others look for, only now that it is locked
        _MADE.add(folder)
        stack.callback(_MADE.discard, folder)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield str(folder)


def end_by_force() -> None:
    """Ends the JVM that this process has started, and removes the folders of its queries."""
    jvm = getattr(SparkContext._gateway, "proc", None)
    if jvm is not None:
        jvm.terminate()
        with suppress(subprocess.TimeoutExpired):
            jvm.wait(_JVM_SECONDS)
        jvm.kill()
    for folder in tuple(_MADE):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locks a folder; OSError when another process has locked it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _kept_interrupt_handler() -> Iterator[None]:
    """Restores the handler of SIGINT, which PySpark replaces when it starts: Ctrl-C has to stop the bridge cleanly."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


_TICK_SECONDS: Final = 0.05
_LATE_SECONDS: Final = 60.0
"""After so long, and again and again, the log says that Spark is not there."""
_MOST_SECONDS: Final = 600.0
"""How long Spark may take: a cluster may let it wait for a place."""
_EXIT_SECONDS: Final = 5.0
"""How long the end of the process waits for a start: PySpark removes a temporary folder then."""
_WHY_LATE: Final = (
    "look whether the disk of spark.local.dir or TMPDIR is full, and whether the cluster has room; `--set"
    " log.spark=warn` shows what Spark says"
)

log = structlog.get_logger()


class StartingSession:
    """A Spark session that a thread starts.  If nobody waits for it, it ends with the process.

    settings: properties of Spark.  log_level: see start_session.
    started_at: when it was there, by the monotonic clock; None before.
    """

    def __init__(self, settings: Mapping[str, str], log_level: str) -> None:
        self._settings, self._log_level = settings, log_level
        self._session: SparkSession | None = None
        self._failure: BaseException | None = None
        self.started_at: float | None = None
        self._is_over = threading.Event()
        self._began, self._late = time.monotonic(), 0.0
        self._is_logged = False
        keep_freed_memory()
        self._thread = threading.Thread(target=self._start, name="spark-start", daemon=True)
        self._thread.start()
        atexit.register(self._thread.join, _EXIT_SECONDS)

    def wait(self, abandoned: Callable[[], bool]) -> None:
        """Waits until the session is there or has failed to start, or until `abandoned` says that nobody waits."""
        while not self._is_over.is_set() and not abandoned():
            self._look_at_the_time()
            self._is_over.wait(_TICK_SECONDS)

    def get(self, abandoned: Callable[[], bool] = lambda: False) -> SparkSession:
        """Waits for the session, and returns it.

        Raises what `start_session` raises, and Abandoned when `abandoned` said so before.
        """
        self.wait(abandoned)
        if self._failure is not None:
            raise self._failure
        if self._session is None or self.started_at is None:
            raise Abandoned
        if not self._is_logged:
            log.info("spark_started", seconds=round(self.started_at - self._began, 1))
            self._is_logged = True
        return self._session

    def _look_at_the_time(self) -> None:
        """Says when Spark takes long, and ends the start when it takes too long: a JVM that has failed may stay, and
        PySpark waits for it for ever."""
        seconds = time.monotonic() - self._began
        if self._is_over.is_set() or seconds < self._late + _LATE_SECONDS:
            return
        if seconds < _MOST_SECONDS:
            log.warning("spark_is_late", seconds=round(seconds), fix=_WHY_LATE)
            self._late = seconds
            return
        self._failure = SourceError(f"Spark has not started within {seconds:.0f} s", fix=_WHY_LATE)
        self._is_over.set()

    def _start(self) -> None:
        try:
            self._session = start_session(self._settings, log_level=self._log_level)
            freeze_loaded_modules()
            use_small_pages()  # after the start of the JVM, which so keeps the large pages for its workers
            self.started_at = time.monotonic()
        except BaseException as failure:  # noqa: BLE001  # raised where the session is waited for
            self._failure = failure
        self._is_over.set()
