"""What Spark raises, and what it means for the bridge."""

from __future__ import annotations

import re
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from bridge.errors import ApplyError, SourceError

SPARK_FAILED: Final = (PySparkException, Py4JError)
"""What Spark raises when a job fails."""
SPARK_ENDED: Final = (*SPARK_FAILED, ConnectionError)
"""The same, and what is raised when the JVM is gone: a signal to the whole process group, as from Ctrl-C or systemd,
ends the JVM too."""
LOSSES_IN_PLACE: Final = 5
"""Executors that are lost one after the other before anything new is in the target: then it is no accident."""

_OURS: Final = re.compile(r"bridge\.errors\.(?:Apply|RefusedRows)Error: ")
_NAMED: Final = re.compile(r"^(?:Caused by: )?((?:[\w$]+\.)*[\w$]*(?:Exception|Error|ArrowInvalid): .+)$", re.MULTILINE)
_BUG: Final = re.compile(
    r"(?:KeyError|IndexError|TypeError|AttributeError|ValueError|AssertionError|NameError|UnboundLocalError"
    r"|ArithmeticError|ZeroDivisionError|OverflowError|RuntimeError|RecursionError|NotImplementedError"
    r"|Unicode\w+Error|pyarrow\.lib\.Arrow(?!Memory)\w+): "
)
"""What Python code raises that does not do what it should."""
_LOST: Final = re.compile(r"CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND|Checkpoint block rdd_\d+_\d+ not found")


class ChunksLost(Exception):  # noqa: N818  # not an error: reading begins anew where progress says
    """Row changes that an executor held are gone with it; the text is Spark's."""


class PartitionsAdded(Exception):  # noqa: N818  # not an error: reading begins anew with all of them
    """A topic got partitions between the look at their offsets and the start of the query, which Spark refuses then;
    the text names them."""


class Losses:
    """Counts losses of executors without progress between them."""

    def __init__(self) -> None:
        self._applied_ts, self._count = -1, 0

    def count(self, lost: ChunksLost, applied_ts: int) -> None:
        """One more, when the target is at applied_ts; raises SourceError when there are too many in one place."""
        self._count = self._count + 1 if applied_ts == self._applied_ts else 1
        self._applied_ts = applied_ts
        if self._count >= LOSSES_IN_PLACE:
            raise SourceError(
                f"executors are lost again and again: {_named(str(lost))}",
                fix="see in Spark's logs why they end; most often for want of memory (spark.executor.memory,"
                " spark.executor.memoryOverhead)",
            )


def lost_chunks(error: BaseException) -> bool:
    """Whether an executor is gone that held row changes (localCheckpoint keeps them nowhere else)."""
    return isinstance(error, SPARK_FAILED) and _LOST.search(_text(error)) is not None


class ExecutorBug(RuntimeError):  # noqa: N818  # the word that matters
    """Python code that Spark called failed as nobody expected."""


def source_error(error: Exception) -> Exception:
    """What Spark raised, with the innermost exception that Spark names: "org.apache....Exception: what happened".  What
    the bridge itself raised on an executor says place and fix in its own words; what is no failure of Spark or of
    Kafka but a bug is an ExecutorBug."""
    named = _named(_text(error))
    ours = _OURS.match(named)
    if ours:
        return ApplyError(named[ours.end() :])
    if _BUG.match(named):
        return ExecutorBug(named)
    if isinstance(error, ConnectionError) or "OutOfMemoryError" in named:
        return SourceError(
            f"Spark's JVM has ended: {named}",
            fix="see whether it was killed; if it ran out of memory, give it more (spark.driver.memory in [spark]), or"
            " lower stream.driver_bytes; then start the bridge again",
        )
    return SourceError(
        f"a Spark job failed: {named}",
        fix="see that Kafka answers and still holds the messages; then start the bridge again",
    )


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except SPARK_ENDED:  # the JVM, which knows the text, is gone
        return f"{type(error).__name__}, and the JVM has ended"


def _named(text: str) -> str:
    named = _NAMED.findall(text)
    return str(named[-1] if named else text.strip())[:600]
