"""One pipeline at work: owner of the progress row, a Spark query that decodes, an applier thread that writes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import structlog
from pymysql.err import MySQLError
from pyspark.sql import SparkSession

from bridge.config import Settings, parse_moment
from bridge.errors import BridgeError, SourceError, TargetError, UsageError
from bridge.model import PartitionId, goes_by_partition
from bridge.mysql.apply.parallel_writer import ParallelWriter
from bridge.mysql.apply.writer import Writer
from bridge.mysql.connection import Target, is_lost_connection, server_words
from bridge.mysql.state.ownership import AbandonedError, Ownership
from bridge.mysql.state.progress import Progress, ProgressTable
from bridge.mysql.triggers_and_cascades import find_side_effects, refuse_side_effects
from bridge.pipeline.applier import Applier, Counts, Limits
from bridge.pipeline.applier_factory import Manner, make_applier
from bridge.pipeline.applier_thread import Pulse, StatusReporter
from bridge.pipeline.backlog import Starts
from bridge.pipeline.bad_message_policy import OnBadMessage
from bridge.pipeline.ordered.applier import Patience
from bridge.pipeline.ordered.order import OrderChanged, first_offsets
from bridge.pipeline.query import Reading, messages_ahead
from bridge.pipeline.status import Status
from bridge.pipeline.truncated_rows import CutRows, Upstream
from bridge.protocols import MAY_LACK_BOUNDARIES, DecodeOptions, is_mysql_born, make_decoder
from bridge.rows.amount import Amount
from bridge.sources.boundary_probe import HEAD_MESSAGES, look_at
from bridge.sources.source import Extent, Source
from bridge.sources.topic_guard import begins_of, ids_of, topics_to_keep
from bridge.spark.errors import SPARK_ENDED, ChunksLost, Losses, PartitionsAdded, source_error
from bridge.spark.executor_rows import Executors
from bridge.spark.process_memory import keep_freed_memory, keep_what_is_loaded, take_small_pages
from bridge.spark.session import start_session
from bridge.table_filter import TableFilter

PROGRESS_SECONDS: Final = 0.5
"""How often a catch-up shows its progress."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    seconds: from start to end; stream_seconds: the part of it after Spark had started; apply_seconds: the part of that
        since the first transaction with row changes began.
    rest: row changes read but at or above the last boundary.
    quarantined: messages and rows put aside.
    left_out: row changes that are never written, as they are of the server's own databases or the bridge's, by table.
    unmatched: rules of the filter that matched none of the tables that were met.
    until_reached: False when `--until` was given and not reached.
    interrupted: it was asked to stop before it came to the end of the input.
    by_partition: in the order of the partitions, so that applied_ts is only the highest event time.
    """

    applied_ts: int
    messages: int = 0
    rows: int = 0
    seconds: float = 0.0
    stream_seconds: float = 0.0
    apply_seconds: float = 0.0
    transactions: int = 0
    schema_changes: int = 0
    rest: int = 0
    late: int = 0
    quarantined: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    unmatched: tuple[str, ...] = ()
    until_reached: bool = False
    interrupted: bool = False
    by_partition: bool = False


class Job:
    """Runs one pipeline until it is stopped (`follow`) or has caught up (`catch_up`)."""

    def __init__(
        self, settings: Settings, target: Target, source: Source, protocol: str, upstream: Upstream | None = None
    ) -> None:
        self._settings, self._target, self._source, self._protocol = settings, target, source, protocol
        self._upstream = upstream
        self._filter = TableFilter(settings.filter)
        self._ddl = settings.ddl.rules(self._filter)
        self._begins: Mapping[str, int] = {}
        self._stop = threading.Event()

    def stop(self) -> None:
        """Asks the job to end; safe from a signal handler."""
        self._stop.set()

    def follow(self, on_status: Callable[[Status], None], *, take_over: bool) -> Outcome:
        """Replicates until `stop` is called; `on_status` is told each stream.status_seconds."""
        return self._run(_Plan(None, take_over, False, on_status, self._settings.stream.status_seconds))

    def catch_up(self, until: int | None, on_status: Callable[[Status], None], *, take_over: bool) -> Outcome:
        """Applies everything that is complete at the end of the input as seen at the start, below `until` (TSO)."""
        return self._run(_Plan(until, take_over, True, on_status, PROGRESS_SECONDS))

    def _run(self, plan: _Plan) -> Outcome:
        try:
            return self._owning(plan)
        except AbandonedError:
            return Outcome(applied_ts=0, interrupted=True)

    def _owning(self, plan: _Plan) -> Outcome:
        began = time.monotonic()
        keep_freed_memory()
        with _expected_errors(self._target), self._owned(plan) as (owned, progress):
            writer = self._writer(owned)
            with (
                closing(writer),
                Pulse(self._target, owned.ownership, writer, plan.on_status, plan.status_seconds) as pulse,
            ):
                started = self._start()
                if started is None:
                    seconds = time.monotonic() - began
                    return Outcome(applied_ts=progress.applied_ts, seconds=seconds, interrupted=True)
                topics = self._keep_topics(owned, progress)
                keep_what_is_loaded()
                take_small_pages()  # the JVM has started: its workers' memory stays as it is
                streaming = time.monotonic()
                applier, has_ended = self._apply(started, owned, self._reading(topics), writer, plan, pulse)
                ended = time.monotonic()
            since = applier.counts.applying_since or ended
            outcome = _outcome(applier, writer, ended - began, ended - streaming, ended - since)
            met = applier.counts.tables
            return replace(outcome, interrupted=not has_ended, unmatched=self._filter.unmatched(met) if met else ())

    def _apply(
        self, started: _Started, owned: _Owned, reading: Reading, writer: Writer, plan: _Plan, pulse: Pulse
    ) -> tuple[Applier, bool]:
        """Reads and applies until the end, or until `stop`; begins anew where progress says when the order changes, an
        executor is lost or Spark missed a partition.  The last applier, with the counts of all, and whether it came to
        the end."""
        spark, extents = started
        counts, losses = Counts(), Losses()
        while True:
            progress = owned.progress()
            applier = self._applier(spark, writer, progress, extents, plan)
            applier.counts = counts
            if not plan.once:
                writer.on_held = applier.wait_for_operator
            ahead = messages_ahead(applier.backlog.positions, extents)
            pulse.reporter = StatusReporter(applier, writer, counts.messages + ahead)
            try:
                has_ended = reading.run(spark, applier, progress.pending, extents, once=plan.once)
            except OrderChanged as changed:
                log.info("the order changes; reading begins anew behind what is in the target", why=str(changed))
            except PartitionsAdded as added:
                log.info(
                    "partitions were added; reading begins anew behind what is in the target", partitions=str(added)
                )
            except ChunksLost as lost:
                log.warning("an executor is lost; reading begins anew behind what is in the target")
                losses.count(lost, owned.progress().applied_ts)
            else:
                return applier, has_ended
            extents = self._source.extents(spark)

    def _writer(self, owned: _Owned) -> Writer:
        settings = self._settings
        seconds = settings.target.retry_seconds
        if settings.consistency == "atomic":
            return Writer(self._target, owned.table, owned.ownership, retry_seconds=seconds, ddl=self._ddl)
        return ParallelWriter(
            self._target,
            owned.table,
            owned.ownership,
            writers=settings.stream.writers,
            retry_seconds=seconds,
            ddl=self._ddl,
        )

    def _reading(self, topics: dict[str, str]) -> Reading:
        return Reading(self._source, self._protocol, self._decode_options(), self._settings.stream, topics, self._stop)

    def _start(self) -> _Started | None:
        """Spark and what the source holds; None when `stop` came first and ended the JVM."""
        try:
            spark = start_session(self._settings.spark, with_kafka=self._source.is_kafka)
            return spark, self._source.extents(spark)
        except (BridgeError, *SPARK_ENDED):
            if not self._stop.is_set():
                raise
            return None

    def _keep_topics(self, owned: _Owned, progress: Progress) -> dict[str, str]:
        """The ids of the topics, kept with the progress before anything of them is applied."""
        ids = topics_to_keep(progress, ids_of(self._source.topics()))
        if ids != progress.topics and not owned.table.set_topics(owned.ownership.control, owned.ownership.epoch, ids):
            raise owned.ownership.lost()
        return ids

    @contextmanager
    def _owned(self, plan: _Plan) -> Iterator[tuple[_Owned, Progress]]:
        start_ts = parse_moment(self._settings.begin)
        table = ProgressTable(self._settings.name, self._settings.target.schema_name)
        ownership = Ownership(self._target, table)
        owned = _Owned(table, ownership)
        try:
            ownership.acquire(start_ts, take_over=plan.take_over, stop=self._stop.is_set)
            self._target.announce(ownership.control)
            progress = owned.progress()
            _check_until(progress, plan.until)
            self._check_begin(progress, start_ts)
            if self._source.is_kafka:
                self._begins = begins_of(progress, self._settings.source.topic_starts)
            yield owned, progress
        finally:
            ownership.release()

    def _check_begin(self, progress: Progress, start_ts: int) -> None:
        """A beginning that is given is that of the pipeline, or the operator expects what will not happen."""
        if "begin" in self._settings.model_fields_set and start_ts != progress.start_ts:
            began = progress.start_ts or "earliest"
            raise UsageError(
                f"the pipeline began at {began}, not at --from {self._settings.begin}; a known one goes on from its"
                f" progress, applied ts {progress.applied_ts}",
                where=f"pipeline {progress.name}",
                mend=f"leave --from out, or give --from {began}; to begin elsewhere, give another --name, or `bridge"
                " reset` first",
            )

    def _applier(
        self, spark: SparkSession, writer: Writer, progress: Progress, extents: dict[PartitionId, Extent], plan: _Plan
    ) -> Applier:
        stream = self._settings.stream
        lows = {partition: extent.low for partition, extent in extents.items()}
        writers = stream.writers if self._settings.consistency == "parallel" else 1
        manner = Manner(
            self._filter,
            Limits(
                Amount(stream.rows_per_transaction * writers, stream.bytes_per_transaction),
                plan.until,
                stream.idle_seconds if self._protocol in MAY_LACK_BOUNDARIES else None,
            ),
            self._patience(spark, extents, once=plan.once),
            Executors(spark, Amount(stream.driver_rows, stream.bytes_at_once)).rows_of,
            OnBadMessage(
                self._settings.on_bad_message == "quarantine",
                self._protocol,
                self._cut_rows(),
                frozenset(self._settings.source.put_aside),
            ),
            Amount(stream.driver_rows, stream.driver_bytes),
            settles=not (self._protocol in MAY_LACK_BOUNDARIES and self._settings.debezium.without_boundaries),
            begins=self._begins,
        )
        by_partition = self._goes_by_partition(progress)
        # Whatever comes from MySQL's log has no commit ts.
        writer.cascades_are_lost = by_partition and is_mysql_born(self._source.sample(HEAD_MESSAGES))
        self._refuse_side_effects(cascades=writer.cascades_are_lost)
        if self._source.is_kafka:
            lows = first_offsets(progress, lows)
        applier = make_applier(writer, progress, lows, manner, by_partition=by_partition)
        if self._source.is_kafka:
            _check_retained(applier.backlog.positions, extents)
        return applier

    def _goes_by_partition(self, progress: Progress) -> bool:
        """Which order: progress knows, or a look at the source tells; by boundaries while neither does."""
        if goes_by_partition(progress.positions):
            return True
        if progress.positions and self._protocol not in MAY_LACK_BOUNDARIES:
            return False  # the first change without a commit ts changes it
        without = self._settings.debezium.without_boundaries
        look = look_at(self._source, self._protocol, self._settings.decode_options(), without_boundaries=without)
        log.info("order of commit ts" if not look.by_partition else "order of the partitions", why=look.why)
        return look.by_partition is True

    def _refuse_side_effects(self, *, cascades: bool) -> None:
        session = self._target.connect(autocommit=True)
        try:
            refuse_side_effects(find_side_effects(session, cascades=cascades), self._filter)
        finally:
            session.close()

    def _patience(self, spark: SparkSession, extents: dict[PartitionId, Extent], *, once: bool) -> Patience:
        if once:
            return Patience(0, lambda: _highs(extents))
        return Patience(self._settings.stream.idle_seconds, lambda: self._highs_now(spark))

    def _highs_now(self, spark: SparkSession) -> dict[PartitionId, int] | None:
        try:
            return _highs(self._source.extents(spark))
        except SourceError as error:
            log.warning("the ends of the partitions are not known", error=str(error))
            return None

    def _cut_rows(self) -> CutRows | None:
        if self._upstream is None:
            return None
        return CutRows(self._upstream, make_decoder(self._protocol, replace(self._decode_options(), cut_rows=True)))

    def _decode_options(self) -> DecodeOptions:
        return replace(self._settings.decode_options(self._filter if self._filter.rules else None), tells_unwanted=True)


@dataclass(frozen=True)
class _Plan:
    until: int | None
    take_over: bool
    once: bool
    on_status: Callable[[Status], None]
    status_seconds: float


_Started = tuple[SparkSession, dict[PartitionId, Extent]]
"""Spark, and what the source held when it had started."""


@dataclass(frozen=True)
class _Owned:
    """The progress row that this process owns."""

    table: ProgressTable
    ownership: Ownership

    def progress(self) -> Progress:
        """As the row stands now; raises OwnershipError when somebody else has it."""
        progress = self.table.read(self.ownership.control)
        if progress is None:
            raise self.ownership.lost()
        return progress


def _highs(extents: dict[PartitionId, Extent]) -> dict[PartitionId, int]:
    return {partition: extent.high for partition, extent in extents.items()}


def _check_until(progress: Progress, until: int | None) -> None:
    if until is not None and progress.applied_ts > until:
        raise UsageError(
            f"the target is at commit ts {progress.applied_ts}, beyond --until {until}, and cannot go back",
            where=f"pipeline {progress.name}",
            mend="give a later --until; for an earlier state replay into an empty target under another --name",
        )


def _check_retained(starts: Starts, extents: dict[PartitionId, Extent]) -> None:
    for (topic, partition), start in starts.items():
        low, high = extents[topic, partition].low, extents[topic, partition].high
        if start.offset > high:
            raise SourceError(
                f"the partition ends at offset {high}, before offset {start.offset}, from which on it is to be read",
                where=f"{topic}/{partition}",
                mend="if a producer's transaction is open there (isolation.level was read_uncommitted), start the"
                " bridge again when it has ended; else the topic was cut or made anew: copy the upstream's tables to"
                " the target, then `bridge reset` and begin there with --from",
            )
        if start.offset < low:
            raise SourceError(
                f"Kafka no longer holds the messages from offset {start.offset} on, only {low} to {high}",
                where=f"{topic}/{partition}",
                mend="changes are missing for good, or the topic was made anew: copy the upstream's tables to the"
                " target, then `bridge reset` and begin there with --from",
            )


def _outcome(applier: Applier, writer: Writer, seconds: float, stream_seconds: float, apply_seconds: float) -> Outcome:
    return Outcome(
        applied_ts=applier.applied_ts,
        messages=applier.counts.messages,
        rows=applier.counts.rows,
        seconds=seconds,
        stream_seconds=stream_seconds,
        apply_seconds=apply_seconds,
        transactions=writer.counts.transactions,
        schema_changes=writer.counts.schema_changes,
        rest=applier.backlog.rows,
        late=applier.counts.late.total(),
        quarantined=applier.counts.quarantined,
        left_out={str(name): count for name, count in applier.counts.left_out.items()},
        until_reached=applier.until_reached,
        by_partition=applier.by_partition,
    )


@contextmanager
def _expected_errors(target: Target) -> Iterator[None]:
    """What Spark, and the target's driver outside of a transaction, raise."""
    try:
        yield
    except SPARK_ENDED as error:
        raise source_error(error) from error
    except (MySQLError, OSError) as error:
        what = "cannot be reached" if is_lost_connection(error) else "refused a statement of the bridge's own"
        raise TargetError(
            f"the target {what}: {server_words(error)}",
            where=str(target),
            mend="check --target, that the server runs, and that the user may create and write the database"
            " that holds progress",
        ) from error
