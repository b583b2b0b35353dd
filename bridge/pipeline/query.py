"""Runs one Spark query, which reads, and the applier's thread, from the start to the end of both."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn

import structlog
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from bridge.config import StreamSection
from bridge.ends import End
from bridge.errors import UnansweredError
from bridge.model import SchemaChange
from bridge.pipeline.applier import Applier, ApplierThread
from bridge.pipeline.intake import Intake
from bridge.protocols.batch_decode import EventDecoder
from bridge.rows.gathering import Amount
from bridge.sources.kafka.topic_guard import TopicGuard
from bridge.sources.part_size import MOST_AT_ONCE
from bridge.sources.source import Pacing, Source
from bridge.spark.errors import SPARK_ENDED, ExecutorLost, is_executor_lost, is_worker_killed, reason, source_error
from bridge.spark.event_transfer import transfer_folder
from bridge.spark.session import StartingSession, checkpoint_folder, driver_folder, end_by_force, end_tasks
from bridge.spark.shards import Executors, Home

STOP_SECONDS: Final = 20.0
"""How long a stop waits for the present transaction, which is broken off before (`cli.pipeline_run`).  A stop may take
30 s in all; the rest is for the JVM."""
_QUERY_SECONDS: Final = 5.0
"""How long a stop waits for Spark's query."""
_POLL_SECONDS: Final = 0.2
_AT_ONCE: Final = 0.001
_LOOK_SECONDS: Final = 1.0
"""How often the bridge asks the JVM whether a query of Kafka has failed: five times a second, that was a fifth of what
an idle bridge takes (measured).  The end of the messages comes from the intake."""
_UNWRITTEN: Final = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "86400000",
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}
"""Options of the query, by which Spark writes its own progress once a day and not with each micro-batch, where it took
a twentieth of a core for processes of Hadoop (chmod) alone: nobody reads it, since progress is in the target."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Reading:
    """Reads a source and lets an applier work.

    end: the source as an end.
    decoder: makes one, which has seen no message.
    topics: the ids that the topics have to have.
    executors: those who hold what the driver does not.
    writers: how many of their tasks write a large step; 0 with `atomic`.
    stop: set when reading has to end.
    watch: called a few times a second; raises when a thread that the pipeline needs has failed.
    """

    source: Source
    end: End
    decoder: Callable[[], EventDecoder]
    settings: StreamSection
    topics: Mapping[str, str]
    executors: Executors
    writers: int
    stop: threading.Event
    watch: Callable[[], None]

    def run(self, session: StartingSession, applier: Applier, pending: tuple[SchemaChange, ...], *, once: bool) -> bool:
        """Reads from the positions of the applier's order, until `stop`, or with `once` to the present end of the
        input.

        With `once`, everything that is complete is then applied.  Returns whether it reached that end.
        pending: the schema changes that progress lists as still to run; they run first.
        Raises ExecutorLost when an executor was lost that held row changes, UnansweredError when Kafka does not answer,
        and whatever else ended the applier or the query.
        """
        worker = ApplierThread(applier, pending)
        with ExitStack() as of_query, self._running(worker):
            try:
                return self._read(session, applier, worker, of_query, once=once)
            except SPARK_ENDED as error:
                if self.stop.is_set() and isinstance(worker.failure or error, SPARK_ENDED):
                    return False
                self._raise_cause(error, applier, worker)

    def _read(
        self, session: StartingSession, applier: Applier, worker: ApplierThread, of_query: ExitStack, *, once: bool
    ) -> bool:
        """Reads until the end or a stop; returns whether the end was reached.
        of_query: ends what the query leaves behind."""
        session.wait(partial(self._is_over, worker))
        worker.raise_failure()
        if self.stop.is_set():
            return False
        spark, settings, guard = session.get(self.stop.is_set), self.settings, self._guard(applier)
        pacing = Pacing(settings.messages_per_batch, settings.trigger_ms / 1000, once)
        planner = self.source.planner(applier.order.positions, guard, pacing)
        folder = of_query.enter_context(checkpoint_folder(driver_folder(spark)))
        of_query.callback(end_tasks, spark)
        home = self.executors.home = Home(spark.sparkContext, transfer_folder(spark, folder))
        writers = min(self.writers, home.context.defaultParallelism)
        largest = self.source.largest(Amount(min(settings.messages_per_batch, MOST_AT_ONCE), settings.bytes_at_once))
        intake = Intake(planner, self.decoder(), settings, applier.order, worker, guard, writers, largest, home)
        query: StreamingQuery | None = None
        try:
            query = self._start_query(of_query.enter_context(intake.frame(spark, folder)), intake, folder)
            self._watch(query, intake, worker)
            has_ended = worker.drain(self._has_to_stop)
            if has_ended:
                applier.finish()
            return has_ended
        finally:
            intake.close()
            if query is not None:
                self._end_query(query)

    def _raise_cause(self, error: Exception, applier: Applier, worker: ApplierThread) -> NoReturn:
        """Raises what is behind an error of Spark: a lost executor or worker, what ended the applier, or the source."""
        failure = worker.failure or error
        if is_executor_lost(failure) or is_worker_killed(failure):
            raise ExecutorLost(reason(failure)) from failure
        if worker.failure is not error:
            worker.raise_failure()
        self._guard(applier).partitions(lambda: True)  # if a topic is the cause, its error is the better one
        raise source_error(error) from error

    @contextmanager
    def _running(self, worker: ApplierThread) -> Iterator[None]:
        """Lets the applier's thread work in the block.  Whoever is to read again finds it ended, however long its
        transaction takes: two appliers would share the writer, and its sessions."""
        worker.start()
        try:
            yield
        except (ExecutorLost, UnansweredError):
            while not worker.stop(_POLL_SECONDS) and not self._has_to_stop():
                pass
            raise
        finally:
            if not worker.stop(STOP_SECONDS):
                log.warning("transaction_abandoned", why="it takes too long; the target rolls it back")

    def _has_to_stop(self) -> bool:
        self.watch()
        return self.stop.is_set()

    def _is_over(self, worker: ApplierThread) -> bool:
        return self._has_to_stop() or worker.failure is not None

    def _end_query(self, query: StreamingQuery) -> None:
        """Ends the query.  A planner that waits for a silent broker cannot be interrupted: the JVM is then ended by
        force, if the pipeline is to stop."""
        if not self.stop.is_set():
            query.stop()
            return
        ending = threading.Thread(target=_stop_query, args=(query,), name="query-stop", daemon=True)
        ending.start()
        ending.join(_QUERY_SECONDS)
        if ending.is_alive():
            end_by_force()

    def _start_query(self, frame: DataFrame, intake: Intake, folder: str) -> StreamingQuery:
        return (
            frame.writeStream.foreachBatch(intake.take)
            .option("checkpointLocation", folder)
            .options(**_UNWRITTEN)
            .trigger(processingTime="0 seconds")
            .start()
        )

    def _guard(self, applier: Applier) -> TopicGuard:
        return TopicGuard(self.source, self.end, self.topics, applier.order.by_partition)

    def _watch(self, query: StreamingQuery, intake: Intake, worker: ApplierThread) -> None:
        """Waits until `stop`, or until the stream has ended; raises what ended the applier."""
        look_at = 0.0
        while not self._has_to_stop() and not intake.wait_for_end(_POLL_SECONDS):
            worker.raise_failure()
            if time.monotonic() >= look_at:
                query.awaitTermination(_AT_ONCE)  # type: ignore[arg-type]  # raises what ended it
                look_at = time.monotonic() + _LOOK_SECONDS
        worker.raise_failure()


def _stop_query(query: StreamingQuery) -> None:
    with suppress(*SPARK_ENDED):
        query.stop()
