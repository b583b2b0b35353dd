"""Runs one pipeline, from taking ownership to the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import structlog

from bridge.ends import Abandoned, End, Ends
from bridge.errors import SourceError, TargetError, UnansweredError, UsageError, few
from bridge.model import PartitionId
from bridge.mysql.apply.writer import Writer
from bridge.mysql.connection.target import Target
from bridge.mysql.state.controls import ControlTable
from bridge.mysql.state.ownership import Ownership, TargetWentBack
from bridge.mysql.state.progress import Progress, ProgressTable
from bridge.mysql.state.routes_record import keep_rules
from bridge.pipeline.applier import Applier, ApplierConfig, Counts
from bridge.pipeline.assembly import Assembly, ends_of
from bridge.pipeline.heartbeat import (
    BEFORE_PROGRESS,
    GroupOffsets,
    Heartbeat,
    Outcome,
    StatusReporter,
    Watcher,
    outcome_of,
)
from bridge.pipeline.order import OrderChanged
from bridge.pipeline.status import Status, retried_at_start, status_at_start
from bridge.pipeline.steering import Gate, LoadWatch, Steering
from bridge.sources.kafka.topic_guard import (
    COMPACTION_FIX,
    ask_kafka,
    begins_of,
    check_retained,
    ids_of,
    topics_to_keep,
)
from bridge.sources.source import READING, Extent
from bridge.spark.errors import SPARK_ENDED, ExecutorLost, Losses, source_error
from bridge.spark.session import StartingSession, end_by_force
from bridge.tso import parse_moment, tso_ms, tso_time

PROGRESS_SECONDS: Final = 0.5
"""How often a catch-up shows its progress."""
_CLOCKS_APART_SECONDS: Final = 86_400
"""A moment may be so far ahead of this machine's clock, and have come upstream."""

_GONE_FIX: Final = (
    "Kafka has removed their first messages: bridge verify --against upstream shows whether the target lacks what these"
    " changed"
)

log = structlog.get_logger()


class Pipeline:
    """Runs one pipeline until it is stopped (`follow`) or has caught up (`catch_up`)."""

    def __init__(self, assembly: Assembly, spark: StartingSession, watcher: Watcher | None = None) -> None:
        self._assembly, self._settings, self._spark, self._watcher = assembly, assembly.settings, spark, watcher
        self._stop = threading.Event()
        self._break_off: Callable[[], None] | None = None

    def stop(self) -> None:
        """Makes the pipeline end; may be called from a signal handler."""
        self._stop.set()

    def break_off(self) -> None:
        """Ends what is waited for at the target after `stop`: a transaction is rolled back, a schema change goes on
        there; may be called from any thread."""
        if self._break_off is not None:
            self._break_off()

    def clean_up(self) -> None:
        """Ends what a process that ends by force would leave behind."""
        end_by_force()

    def follow(self, on_status: Callable[[Status], None], *, take_over: bool, accepts_change: bool = False) -> Outcome:
        """Replicates until `stop` is called.  Calls `on_status` every stream.status_seconds."""
        seconds = self._settings.stream.status_seconds
        return self._run(_Plan(None, take_over, accepts_change, False, on_status, seconds))

    def catch_up(
        self, until: int | None, on_status: Callable[[Status], None], *, take_over: bool, accepts_change: bool = False
    ) -> Outcome:
        """Applies everything below `until` (TSO) that is complete at the end of the input, which is looked up at the
        start."""
        return self._run(_Plan(until, take_over, accepts_change, True, on_status, PROGRESS_SECONDS))

    def _run(self, plan: _Plan) -> Outcome:
        try:
            return self._run_owned(plan)
        except Abandoned:
            return BEFORE_PROGRESS
        except (SourceError, TargetError) as error:
            if not self._stop.is_set():
                raise
            log.warning("waiting_ended_by_stop", error=str(error))
            return BEFORE_PROGRESS
        finally:
            if self._watcher is not None:
                self._watcher.close()

    def _run_owned(self, plan: _Plan) -> Outcome:
        began = time.monotonic()
        target, source = self._assembly.target, self._assembly.source
        ends = ends_of(self._settings, target, source, self._stop, once=plan.once)
        if self._watcher is not None:
            self._watcher.starting(ends)
        with expected_errors(target), self._own(plan, ends) as owned:
            writer = self._assembly.writer(owned.ownership, ends.target)
            self._break_off = writer.break_off
            with (
                closing(writer),
                Heartbeat(owned.ownership, writer, plan.on_status, plan.status_seconds) as heartbeat,
                self._steering(owned.ownership.table, heartbeat) as steering,
            ):
                heartbeat.report_on(partial(status_at_start, owned.progress.applied_ts, ends))
                extents = ask_kafka(ends.source, "extents", source.extents)
                reading = time.monotonic()
                with GroupOffsets(source, self._settings.source.consumer_group) as group_offsets:
                    working = _Working(writer, ends, heartbeat, steering.gate, group_offsets, self._watcher)
                    applier, has_ended = self._read_and_apply(extents, owned, working, plan)
                ended = time.monotonic()
            outcome = outcome_of(applier, writer, began, max(reading, self._spark.started_at or 0), ended)
            unmatched = self._assembly.unmatched(applier.counts.tables)
            return replace(outcome, unmatched=unmatched, interrupted=not has_ended)

    def _steering(self, table: ProgressTable, heartbeat: Heartbeat) -> Steering:
        """Makes the part that follows what `bridge ctl` has set, and has the heartbeat say so."""
        target = self._assembly.target
        load = LoadWatch(target, table, self._assembly.replicas)
        return Steering(target, ControlTable(table.name, table.schema), load, heartbeat.tell)

    def _read_and_apply(
        self, extents: Mapping[PartitionId, Extent], owned: _Owned, working: _Working, plan: _Plan
    ) -> tuple[Applier, bool]:
        """Reads and applies until the end of the input, or until `stop`.  extents: what the source held at the start.

        When the order changes, an executor is lost, partitions were added or an end was away, it reads again from the
        progress.  Returns the last applier, which has the counts of all, and whether it reached the end.
        """
        counts, losses = Counts(), Losses()
        writer, ends = working.writer, working.ends
        for topic in self._assembly.source.compacted():
            log.warning("topic_is_compacted", topic=topic, fix=COMPACTION_FIX)
        positions, begin = owned.progress.positions, owned.progress.start_ts
        truncated = [f"{w[0]}/{w[1]}" for w, extent in extents.items() if extent.low and w not in positions]
        if truncated and self._assembly.source.is_kafka and (positions or not begin):
            log.warning("beginning_is_gone", partitions=few(truncated), fix=_GONE_FIX)
        transactions = self._assembly.transactions(owned.progress, extents)
        reading = self._assembly.reading(
            self._keep_topics(owned.ownership, ends),
            ends.source,
            self._stop,
            working.heartbeat.raise_failure,
            transactions,
        )
        config = ApplierConfig(
            begins=owned.begins, until=plan.until, waits_for_operator=not plan.once, gate=working.gate
        )
        while True:
            progress = writer.progress()
            try:
                applier = self._assembly.applier(writer, progress, extents, counts, config, transactions)
                ahead = self._messages_ahead(applier, extents, ends.source)
                working.report_on(applier, counts.messages + ahead)
                return applier, reading.run(self._spark, applier, progress.pending, once=plan.once)
            except OrderChanged as changed:
                log.info("order_changed", why=str(changed))
            except ExecutorLost as lost:
                log.warning("executor_lost", why=str(lost))
                losses.count(lost, writer.progress().applied_ts)
            except UnansweredError as error:
                ends.source.failed(READING, error.trouble)
                if ends.source.is_given_up(READING):
                    raise
                log.warning("source_unanswered", why=str(error))
            except TargetWentBack as back:
                log.warning("target_went_back", why=str(back))
            extents = ask_kafka(ends.source, "extents", self._assembly.source.extents)

    def _messages_ahead(self, applier: Applier, extents: Mapping[PartitionId, Extent], end: End) -> int:
        """Counts the messages that are still to be read; SourceError where Kafka no longer holds one."""
        starts = applier.order.positions
        if self._assembly.source.is_kafka:
            check_retained(starts, extents)
        ahead = sum(max(0, extent.high - starts[partition].offset) for partition, extent in extents.items())
        if not ahead:
            end.answered(READING)
            applier.note_empty()
        return ahead

    def _keep_topics(self, ownership: Ownership, ends: Ends) -> dict[str, str]:
        """Stores the ids of the topics with the progress, before anything of them is applied; returns them.  Raises
        OwnedError when another process owns the row now."""
        now = ask_kafka(ends.source, "topics", lambda: ids_of(self._assembly.source.topics()))

        def keep() -> dict[str, str]:
            ownership.revive()
            progress = ownership.progress()
            ids = topics_to_keep(progress, now)
            if ids != progress.topics and not ownership.table.set_topics(ownership.control, ownership.epoch, ids):
                raise ownership.lost_error()
            return ids

        return retried_at_start(ends.target, self._assembly.target, keep)

    @contextmanager
    def _own(self, plan: _Plan, ends: Ends) -> Iterator[_Owned]:
        start_ts, end = parse_moment(self._settings.begin), ends.target
        self._check_has_come(start_ts)
        target, source = self._assembly.target, self._assembly.source
        table = ProgressTable(self._settings.name, self._settings.target.schema_name)
        with ExitStack() as stack:

            def acquire() -> tuple[Ownership, Progress]:
                ownership = self._acquired(target, table, start_ts, take_over=plan.take_over)
                stack.callback(ownership.release)
                return ownership, ownership.progress()

            ownership, progress = retried_at_start(end, target, acquire)
            target.announce(ownership.control)
            check_until(progress, plan.until)
            self._check_begin(progress, start_ts)
            begins = begins_of(progress, self._settings.source.topic_starts) if source.is_kafka else {}

            def keep() -> None:
                ownership.revive()
                session, accepts = ownership.control, plan.accepts_change
                with session.transaction():
                    keep_rules(session, table.schema, progress, self._settings.row_rules, accepts_change=accepts)

            retried_at_start(end, target, keep)
            yield _Owned(ownership, begins, progress)

    def _acquired(self, target: Target, table: ProgressTable, start_ts: int, *, take_over: bool) -> Ownership:
        ownership = Ownership(target, table)
        self._break_off = partial(ownership.break_off, [])
        try:
            ownership.acquire(start_ts, take_over=take_over, stop=self._stop.is_set)
        except BaseException:
            ownership.release()
            raise
        return ownership

    def _check_has_come(self, start_ts: int) -> None:
        """Raises UsageError for a beginning that has not come yet: all changes until then would be dropped."""
        for begin in (start_ts, *self._settings.source.topic_starts.values()):
            if begin and tso_ms(begin) / 1000 > time.time() + _CLOCKS_APART_SECONDS:
                raise UsageError(
                    f"the pipeline would begin at {tso_time(begin)}, which has not come yet: everything below it would"
                    " count as in the target",
                    fix="give a TSO or a time that has been to --from, or to --topic NAME@MOMENT",
                )

    def _check_begin(self, progress: Progress, start_ts: int) -> None:
        """Raises UsageError when --from is given and the pipeline began elsewhere: it would have no effect."""
        if "begin" in self._settings.model_fields_set and start_ts != progress.start_ts:
            began = progress.start_ts or "earliest"
            raise UsageError(
                f"the pipeline began at {began}, not at --from {self._settings.begin}; it continues from its progress,"
                f" applied ts {progress.applied_ts}",
                where=f"pipeline {progress.name}",
                fix=f"leave --from out, or give --from {began}; to begin elsewhere, give another --name, or `bridge"
                " reset` first",
            )


class _Plan(NamedTuple):
    until: int | None
    take_over: bool
    accepts_change: bool
    once: bool
    on_status: Callable[[Status], None]
    status_seconds: float


class _Working(NamedTuple):
    """What a pipeline works with from its start to its end."""

    writer: Writer
    ends: Ends
    heartbeat: Heartbeat
    gate: Gate
    group_offsets: GroupOffsets
    watcher: Watcher | None

    def report_on(self, applier: Applier, messages_total: int) -> None:
        """Tells everybody who reports where the pipeline is whom to ask from now on."""
        self.heartbeat.report_on(StatusReporter(applier, self.writer, self.ends, messages_total).status)
        self.group_offsets.report_on(applier)
        if self.watcher is not None:
            self.watcher.report_on(StatusReporter(applier, self.writer, self.ends, messages_total))


class _Owned(NamedTuple):
    """The progress row that this process owns.

    begins: where the topics begin that do not begin with the pipeline (TSO).
    progress: as it was at the start.
    """

    ownership: Ownership
    begins: Mapping[str, int]
    progress: Progress


def check_until(progress: Progress, until: int | None) -> None:
    """Raises UsageError when the target cannot show the state of `until` (TSO) any more."""
    if until is not None and progress.applied_ts > until:
        raise UsageError(
            f"the target is at commit ts {progress.applied_ts}, beyond --until {until}, and cannot go back",
            where=f"pipeline {progress.name}",
            fix="give a later --until; for an earlier state, replay into an empty target with another --name",
        )
    if until is not None and progress.in_parts and progress.applying_ts > until:
        raise UsageError(
            f"the target may hold parts of what comes up to commit ts {progress.applying_ts}, beyond --until {until}: a"
            " step of `parallel` was interrupted",
            where=f"pipeline {progress.name}",
            fix=f"give --until {progress.applying_ts} or a later one; for an earlier state, replay into an empty target"
            " with another --name",
        )


@contextmanager
def expected_errors(target: Target) -> Iterator[None]:
    """Translates what Spark raises, and what the target's driver raises outside of a transaction."""
    with target.expected_errors():
        try:
            yield
        except SPARK_ENDED as error:  # a lost JVM is a ConnectionError, which the driver's errors are, too
            raise source_error(error) from error
        except TargetWentBack as error:
            raise TargetError(
                f"the target lacks what was committed, as after a failover to a server that lagged: {error}",
                where=str(target),
                fix="start the bridge again: it goes on from what the target says",
            ) from error
