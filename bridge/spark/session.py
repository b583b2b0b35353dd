"""The Spark session of the bridge: classic mode, Kafka connector, quiet."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from pyspark import SparkConf, SparkContext
from pyspark.accumulators import AccumulatorServer
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from bridge.errors import UsageError
from bridge.secret_settings import SECRET_NAMES, is_secret
from bridge.spark.errors import SPARK_ENDED
from bridge.spark.java_options import driver_java_options
from bridge.spark.kafka_source_api import connector, is_local
from bridge.spark.tuning import VARIABLE

_CHECKPOINT: Final = "bridge-stream-"
_DEFAULTS: Final = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "2",
    # Without a process for every file, which the other one starts to ask where links lead.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
    "spark.sql.session.timeZone": "UTC",
    "spark.redaction.regex": SECRET_NAMES,
    # Java's own keeps the last hundred rows that went to the disk: a gigabyte, where they are large.
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryoserializer.buffer.max": "1024m",
}

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_END_SECONDS: Final = 3.0
"""For tasks to end; Spark looks every two seconds whether one was to be killed."""
_LOCALLY: Final = {"spark.python.daemon.module": "bridge.spark.python_daemon"}
"""On a cluster the package may not be there yet when an executor starts its Python."""


def start_session(settings: Mapping[str, str], *, with_kafka: bool) -> SparkSession:
    """A session with the bridge's defaults under what spark-submit was given, where it started this process, and
    under `settings` (Spark properties).

    What the JVM prints goes to a file in the temporary folder; it is quoted when the start fails.  Raises UsageError
    for Spark Connect, a missing Java, or settings that Spark refuses.
    """
    if settings.get("spark.remote") or os.environ.get("SPARK_REMOTE"):
        raise UsageError("the bridge needs Spark in classic mode", fix="unset spark.remote and SPARK_REMOTE")
    os.environ.setdefault("PYSPARK_PYTHON", settings.get("spark.pyspark.python", sys.executable))
    AccumulatorServer.handle_error = _end_quietly  # type: ignore[method-assign, assignment]
    builder = SparkSession.builder.appName("bridge")
    given = {**_submitted(), **settings}
    defaults = {
        **_DEFAULTS,
        **connector(given, fetch=with_kafka),
        **(_LOCALLY if is_local(given) else {f"spark.executorEnv.{VARIABLE}": os.environ.get(VARIABLE, "")}),
    }
    java = {_JAVA_OPTIONS: driver_java_options(given.get(_JAVA_OPTIONS, ""))}
    properties = {**defaults, **given, **java}
    for key, value in properties.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile("w+") as jvm_output:
        try:
            with _standard_error_to(jvm_output.fileno()), _kept_interrupt_handler():
                _start_jvm(properties)
                session: SparkSession = builder.getOrCreate()
        except (PySparkException, OSError, RuntimeError) as error:
            jvm_output.seek(0)
            lines = map(str.strip, jvm_output.read().splitlines())
            said = [line for line in lines if line and not line.startswith("at ")]
            raise UsageError(
                f"Spark did not start: {error}; the JVM said: {' | '.join(said[-5:])}",
                fix="see that Java 17 is on the path (java -version) and that the Kafka connector can be fetched; if"
                " it says 'download failed', remove the POM without a jar from ~/.m2",
            ) from error
    if _is_submitted():
        _hand_signals_over(session)
    return session


def _start_jvm(properties: Mapping[str, str]) -> None:
    """Starts the JVM with all properties but the secret ones on its command line, which every user of the machine can
    read.  The secret ones are set on the session."""
    public = SparkConf(loadDefaults=False)
    public.setAll([(name, value) for name, value in properties.items() if not is_secret(name)])
    SparkContext._ensure_initialized(conf=public)


def _is_submitted() -> bool:
    """Whether spark-submit has started the JVM, and the JVM this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


class _HandedOver:
    """A signal that the JVM was sent, handed to this process (sun.misc.SignalHandler, which Spark uses as well)."""

    class Java:
        implements: ClassVar = ["sun.misc.SignalHandler"]

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def handle(self, _: object) -> None:
        """Called by the JVM."""
        os.kill(os.getpid(), self._number)


def _hand_signals_over(session: SparkSession) -> None:
    """Hands signals to this process.  Stopping spark-submit signals the JVM, which would end at once, in the middle of
    reading."""
    gateway: Any = session.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    sun = gateway.jvm.sun.misc
    for name, number in (("TERM", signal.SIGTERM), ("INT", signal.SIGINT)):
        sun.Signal.handle(sun.Signal(name), _HandedOver(number))


def end_tasks(session: SparkSession) -> None:
    """Ends what still runs and nobody waits for any more.  A task that the end of the JVM surprises would say that it
    failed, behind the bridge's last word.  Does nothing where the JVM is gone."""
    context: Any = session.sparkContext
    deadline = time.monotonic() + _END_SECONDS
    with suppress(*SPARK_ENDED):
        context.cancelAllJobs()
        tracker = context._jsc.sc().statusTracker()
        while any(one.numRunningTasks() for one in tracker.getExecutorInfos()) and time.monotonic() < deadline:
            time.sleep(0.05)


def _submitted() -> dict[str, str]:
    """The properties that spark-submit was given; it has started the JVM then."""
    if not _is_submitted():
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _end_quietly(*_: object) -> None:
    """PySpark's server of accumulators, which the bridge does not use, prints a traceback when the JVM ends first."""


@contextmanager
def checkpoint_folder() -> Iterator[str]:
    """A folder for the query's checkpoint, which is thrown away: progress lives in the target.

    Folders of processes that were killed are removed.  A living one holds a lock on its own: its process id says
    nothing to who is in another container and sees the same folder.
    """
    base = Path(tempfile.gettempdir())
    for left in base.glob(f"{_CHECKPOINT}*"):
        with suppress(OSError), _locked(left):
            shutil.rmtree(left, ignore_errors=True)
    with ExitStack() as stack:
        made = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=base, ignore_cleanup_errors=True)))
        stack.enter_context(_locked(made))
        folder = made.rename(made.with_name(_CHECKPOINT + made.name))  # nobody looks for it before it is locked
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield str(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locks a folder; OSError where another process has locked it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _kept_interrupt_handler() -> Iterator[None]:
    """Keeps the handler of SIGINT.  PySpark takes the signal for itself when it starts, but Ctrl-C belongs to the
    bridge's own clean stop."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _standard_error_to(descriptor: int) -> Iterator[None]:
    """The JVM that starts inside inherits this standard error."""
    sys.stderr.flush()
    saved = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
