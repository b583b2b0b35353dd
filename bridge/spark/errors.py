"""Translates what Spark raises into errors of the bridge."""

from __future__ import annotations

import re
from typing import Final

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from bridge.errors import ApplyError, BridgeError, RegistryAwayError, SourceError, UnansweredError, UsageError

SPARK_FAILED: Final = (PySparkException, Py4JError)
"""What Spark raises when a job fails."""
SPARK_ENDED: Final = (*SPARK_FAILED, ConnectionError)
"""What Spark raises when a job fails or the JVM has ended.  A signal to the whole process group, as from Ctrl-C or
systemd, ends the JVM too."""
_JVM_LOST: Final = (ConnectionError, Py4JNetworkError)
_MOST_CHARACTERS: Final = 600
MOST_LOSSES: Final = 5
"""When so many executors are lost one after the other, without progress in between, the bridge stops."""

_BRIDGE_ERROR: Final = re.compile(r"bridge\.errors\.(?:Apply|RefusedRows)Error: ")
_EXCEPTION: Final = re.compile(
    r"^(?:Caused by: )?((?:[\w$]+\.)*[\w$]*(?:Exception|Error|ArrowInvalid): .+)$", re.MULTILINE
)
_BUG: Final = re.compile(
    r"(?:KeyError|IndexError|TypeError|AttributeError|ValueError|AssertionError|NameError|UnboundLocalError"
    r"|ArithmeticError|ZeroDivisionError|OverflowError|RuntimeError|RecursionError|NotImplementedError"
    r"|Unicode\w+Error|pyarrow\.lib\.Arrow(?!Memory)\w+): "
)
"""Exceptions that show a bug in Python code."""
_GIVES_A_REASON: Final = re.compile(
    r"error|exception|fail|invalid|unable|cannot|could not|not found|not set|no such|unrecogni|unsupported"
    r"|insufficient",
    re.IGNORECASE,
)
"""What a JVM, or the script that starts it, says when it cannot start."""
_SHOWN_LINES: Final = 5
_LOST: Final = re.compile(
    r"CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND|Checkpoint block rdd_\d+_\d+ not found|Python worker failed to connect back"
)
"""Spark gives a new Python process ten seconds to connect, which are too few on a busy machine."""
_KILLED: Final = re.compile(
    r"Python worker exited unexpectedly|PythonWorkerFactory\S*stopWorker|reading the port number from pyspark\.daemon"
    r"|terminated with exception:(?: (?:Stream closed|Connection reset|Broken pipe))?\s+SQLSTATE"
)
"""Of a process that planned Spark says what its socket or pipe said, if anything."""
_FULL: Final = "No space left on device"
_PLAN: Final = re.compile(r"\s*SQLSTATE: \w+\s*=== Streaming Query ===.*", re.DOTALL)
"""What follows the reason why a stream failed: the query's offsets and its plan."""
_AWAY: Final = re.compile(r"bridge\.errors\.UnansweredError\b.*")
"""What an executor says that Kafka did not answer."""
_OF_REGISTRY: Final = re.compile(r"bridge\.errors\.(RegistryAwayError|SourceError): (.*schema registry.*)")
"""What one says of the schema registry."""


class ExecutorLost(Exception):  # noqa: N818  # not an error: the bridge reads again from its progress
    """An executor was lost, and with it the row changes that it held; or a Python process of Spark's was."""


class Losses:
    """Counts how many executors were lost without progress in between."""

    def __init__(self) -> None:
        self._applied_ts, self._count = -1, 0

    def count(self, lost: ExecutorLost, applied_ts: int) -> None:
        """Counts a loss while the target is at applied_ts (TSO); raises SourceError after too many without progress."""
        self._count = self._count + 1 if applied_ts == self._applied_ts else 1
        self._applied_ts = applied_ts
        if self._count >= MOST_LOSSES:
            raise SourceError(
                f"executors are lost again and again: {lost}",
                fix="see in Spark's logs why they ended; mostly they lack memory (spark.executor.memory,"
                " spark.executor.memoryOverhead), or the machine is too busy to start a Python process within 10 s",
            )


def is_executor_lost(error: BaseException) -> bool:
    """Tells whether an executor was lost that held row changes (localCheckpoint keeps no other copy), or a Python
    process of Spark's was not there in time."""
    return isinstance(error, SPARK_FAILED) and _LOST.search(_text(error)) is not None


def is_worker_killed(error: BaseException) -> bool:
    """Tells whether a Python process of Spark's was killed, which held nothing that is not to be had again."""
    return isinstance(error, SPARK_FAILED) and _KILLED.search(_text(error)) is not None


class ExecutorBug(RuntimeError):  # noqa: N818  # a bug is what it is
    """Python code that Spark called has a bug."""


def start_error(error: Exception, printed: str) -> BridgeError:
    """Makes the error of a Spark that did not start.  printed: what the JVM printed.

    Returns UsageError, or SourceError for a JVM that ended without a reason: then something else has ended it.
    """
    lines = [line for line in map(str.strip, printed.splitlines()) if line and not line.startswith("at ")]
    if "JAVA_GATEWAY_EXITED" in str(error) and not any(map(_GIVES_A_REASON.search, lines)):
        return SourceError(
            "Spark's JVM ended before it answered, and gave no reason",
            fix="check whether it was killed (the kernel's log names one that ran out of memory); then start the bridge"
            " again",
        )
    return UsageError(
        f"Spark did not start: {error}; the JVM printed: {' | '.join(lines[-_SHOWN_LINES:])}",
        fix="check that Java 17 is on the path (java -version), and the properties in [spark]",
    )


def source_error(error: Exception) -> Exception:
    """Translates what Spark raised, with the innermost exception that it names ("org.apache....Exception: why").

    Returns ApplyError for an error of the bridge on an executor, whose text names place and fix already; ExecutorBug
    for a bug in Python code; otherwise SourceError.
    """
    named = reason(error)
    own = _BRIDGE_ERROR.match(named)
    if own:
        return ApplyError(named[own.end() :])
    if _BUG.match(named):
        return ExecutorBug(named)
    if isinstance(error, _JVM_LOST) or "OutOfMemoryError" in named:
        return SourceError(
            f"Spark's JVM has ended: {named}",
            fix="check whether it was killed; if it ran out of memory, give it more (spark.driver.memory in [spark])"
            " or lower stream.driver_bytes; then start the bridge again",
        )
    if match := _OF_REGISTRY.search(_text(error)):
        away, what = match.groups()
        return (RegistryAwayError if away == "RegistryAwayError" else SourceError)(what[:_MOST_CHARACTERS])
    if match := _AWAY.search(_text(error)):
        return UnansweredError(
            f"Kafka does not answer: {match.group()[:_MOST_CHARACTERS]}",
            fix="check that Kafka runs and answers; then start the bridge again",
        )
    fix = "check that Kafka answers and still holds the messages; then start the bridge again"
    if is_worker_killed(error):
        fix = "see in the kernel's log whether memory was lacking, and what it has killed; then start the bridge again"
    if _FULL in named:
        fix = "make room where Spark writes: TMPDIR, or spark.local.dir if it is set; then start the bridge again"
    return SourceError(f"a Spark job failed: {named}", fix=fix)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except SPARK_ENDED:  # the text is in the JVM, which has ended
        return f"{type(error).__name__}, and the JVM has ended"


def reason(error: BaseException) -> str:
    """Gives the innermost exception that Spark names, or what else it says."""
    text = _text(error)
    named = _EXCEPTION.findall(text)
    return str(named[-1] if named else _PLAN.sub("", text).strip())[:_MOST_CHARACTERS]
