"""The one place where the parts of a pipeline are made from the settings and put together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import structlog

from bridge.config import RETRY_SECONDS, Settings
from bridge.ends import End, Ends
from bridge.errors import UnansweredError, UsageError
from bridge.filters.routes import unmatched_rules
from bridge.filters.table_filter import TableFilter
from bridge.model import UNUSED, PartitionId, Positions, TableName, goes_by_partition, goes_by_transactions
from bridge.mysql.apply.writer import Writer
from bridge.mysql.catalog import find_side_effects, refuse_side_effects
from bridge.mysql.connection.target import Target
from bridge.mysql.parallel import ParallelWriter
from bridge.mysql.state.ownership import Ownership
from bridge.mysql.state.progress import Progress
from bridge.pipeline.applier import Applier, ApplierConfig, Counts, IdlePolicy
from bridge.pipeline.bad_input import OnBadMessage
from bridge.pipeline.by_boundaries import BoundaryOrder, used_partition_error
from bridge.pipeline.by_partitions.order import PartitionOrder
from bridge.pipeline.by_transactions.order import TransactionOrder
from bridge.pipeline.by_transactions.reached import lacks
from bridge.pipeline.order import Order, first_offsets, starts_of
from bridge.pipeline.query import Reading
from bridge.pipeline.status import retried_at_start
from bridge.pipeline.truncated_rows import CutRows, Upstream
from bridge.protocols import PROTOCOLS, DecodeOptions, binlog_source, is_mysql_born, make_decoder
from bridge.protocols.detect import Sample
from bridge.protocols.sender_losses import Loss, losses
from bridge.rows.gathering import Amount
from bridge.sources.source import HEAD_MESSAGES, Extent, Source, plain_sample, probe_boundaries, transaction_topic
from bridge.spark.decoded_batch import event_decoder
from bridge.spark.shards import Executors

_BEGIN_ANEW = (
    "the pipeline began in the order of the partitions, and stays in it; for whole transactions begin anew, with"
    " another --name (bridge help starting)"
)

log = structlog.get_logger()

Extents = Mapping[PartitionId, Extent]


def ends_of(settings: Settings, target: Target, source: Source, stop: threading.Event, *, once: bool) -> Ends:
    """Makes the ends, target and source.

    stop: set when nobody waits for them any more.
    once: the pipeline ends with its input, so that no end is waited for for ever.
    """

    def end(name: str, place: str, seconds: float) -> End:
        return End(name, place, retry_seconds=seconds or (RETRY_SECONDS if once else 0), stop=stop)

    return Ends(
        end("target", target.place, settings.target.retry_seconds),
        end("source", source.place, settings.source.retry_seconds),
    )


@dataclass(frozen=True)
class Assembly:
    """Makes the parts of one pipeline.

    upstream: reads back rows that were too large for the topic; None when there is none.
    primary: the upstream server, which is asked after a failover; None when there is none.
    replicas: the servers whose lag `bridge ctl throttle` looks at.
    """

    settings: Settings
    target: Target
    source: Source
    protocol: str
    upstream: Upstream | None = None
    primary: Target | None = None
    replicas: tuple[Target, ...] = ()
    _warned_losses: set[Loss] = field(default_factory=set, repr=False)
    """What was said of the sender; the parts are made again when reading begins again."""

    @cached_property
    def tables(self) -> TableFilter:
        """The table filter of the settings."""
        return TableFilter(self.settings.filter)

    @cached_property
    def executors(self) -> Executors:
        """Those who hold what the driver does not, and with `parallel` write what exceeds one transaction."""
        stream = self.settings.stream
        transaction = Amount(stream.rows_per_transaction, stream.bytes_per_transaction)
        room = transaction if self._writers else Amount(stream.driver_rows, stream.bytes_at_once)
        return Executors(room, transaction)

    def unmatched(self, met: Collection[TableName]) -> tuple[str, ...]:
        """Returns the rules of the filter that are for none of the tables that were met."""
        return unmatched_rules(self.tables, met, self.settings.table_routes) if met else ()

    def writer(self, ownership: Ownership, end: End) -> Writer:
        """Makes the writer for the setting `consistency`."""
        ddl = self.settings.ddl_rules()
        if self.settings.consistency != "parallel":
            return Writer(ownership, end=end, ddl=ddl)
        connections = self.settings.stream.writers
        return ParallelWriter(ownership, executors=self.executors, connections=connections, end=end, ddl=ddl)

    def transactions(self, progress: Progress, extents: Extents) -> PartitionId | None:
        """Gives the partition of Debezium's topic of transactions, if changes are applied in their order: from the
        beginning of a pipeline on, when that topic is among those that are read.  Raises UsageError as
        `transaction_topic`, and when a pipeline that goes by it does not read it any more."""
        is_begun = goes_by_transactions(progress.positions)
        options = replace(self._decode_options(), transactions=True)
        topic = transaction_topic(self.protocol, options, extents, lambda: self.source.heads(1))
        if is_begun and topic is None:
            raise UsageError(
                "the pipeline applies whole transactions, and their topic is not read",
                where=f"pipeline {progress.name}",
                fix="give the topic of transactions (PREFIX.transaction) with --topic",
            )
        if topic is not None and progress.positions and not is_begun:
            log.warning("transactions_in_parts", topic=topic[0], fix=_BEGIN_ANEW)
            return None
        return topic

    def reading(
        self,
        topics: Mapping[str, str],
        end: End,
        stop: threading.Event,
        watch: Callable[[], None],
        transactions: PartitionId | None = None,
    ) -> Reading:
        """Makes the part that reads.  topics: the ids of the topics, by name.  end: the source.  transactions: the
        partition of the topic of transactions, if their order is applied."""
        options, stream = self._decode_options(), self.settings.stream
        options = replace(options, transactions=transactions is not None)
        decoder = partial(event_decoder, self.protocol, options)
        return Reading(self.source, end, decoder, stream, topics, self.executors, self._writers, stop, watch)

    def applier(
        self,
        writer: Writer,
        progress: Progress,
        extents: Extents,
        counts: Counts,
        config: ApplierConfig,
        transactions: PartitionId | None,
    ) -> Applier:
        """Makes an applier that continues from progress.

        extents: what the source holds.  config: as far as it is of this run.  transactions: see `make_applier`.
        Raises UsageError or TargetError for tables where the target would change rows by itself.
        """
        lows = {partition: extent.low for partition, extent in extents.items()}
        if self.source.is_kafka:
            lows = first_offsets(progress, lows)
        by_partition = transactions is None and self._goes_by_partition(progress)
        # Messages from MySQL's binlog have no commit ts, so their order is not that of commit ts.
        schemas, needs_sample = self._decode_options().schemas, by_partition or transactions
        sample = plain_sample(self.source, HEAD_MESSAGES, schemas) if needs_sample else []
        cascades_are_lost = is_mysql_born(sample) if sample else False
        self._warn_of_losses(sample)
        writer.note_source(binlog_source(sample))
        self._refuse_side_effects(writer.end, cascades=cascades_are_lost)
        return make_applier(
            writer,
            progress,
            lows,
            self._with_settings(config, extents, progress.positions),
            counts,
            by_partition=by_partition,
            cascades_are_lost=cascades_are_lost,
            transactions=transactions,
        )

    def _warn_of_losses(self, sample: Sample) -> None:
        """Says once what the sender of these messages loses."""
        for loss in losses(sample, self.settings.decode_options().debezium, is_filtered=bool(self.tables.rules)):
            if loss not in self._warned_losses:
                self._warned_losses.add(loss)
                log.warning("sender_loses", what=loss.what, fix=loss.fix)

    def _with_settings(self, config: ApplierConfig, extents: Extents, positions: Positions) -> ApplierConfig:
        """Adds what the settings say, and the source."""
        settings, stream = self.settings, self.settings.stream
        writers = max(1, self._writers)
        may_lack_boundaries = PROTOCOLS[self.protocol].may_lack_boundaries
        return replace(
            config,
            tables=self.tables,
            transaction=Amount(stream.rows_per_transaction * writers, stream.bytes_per_transaction * writers),
            boundary_seconds=stream.idle_seconds if may_lack_boundaries else None,
            idle=self._idle_policy(extents, once=not config.waits_for_operator),
            rows_of=self.executors.rows_of,
            on_bad_message=OnBadMessage(
                settings.on_bad_message == "quarantine",
                self.protocol,
                self._cut_rows(),
                frozenset(settings.source.quarantine),
            ),
            most=Amount(stream.driver_rows, stream.driver_bytes),
            settles=not (may_lack_boundaries and settings.debezium.without_boundaries),
            routes=settings.table_routes,
            grace_seconds=settings.source.transaction_grace_seconds,
            incomplete=frozenset(settings.source.incomplete_transactions),
            lacks=None if self.primary is None else partial(lacks, self.primary),
            unused=unused_partitions(settings.source.unused, positions, extents)
            if self.source.is_kafka
            else frozenset(),
        )

    @property
    def _writers(self) -> int:
        """How many tasks of executors write a large step; 0 with `atomic`."""
        return self.settings.stream.writers if self.settings.consistency == "parallel" else 0

    def _goes_by_partition(self, progress: Progress) -> bool:
        """Tells which order to apply in: as progress says, otherwise as the source shows; by boundaries while neither
        tells."""
        if goes_by_partition(progress.positions):
            return True
        if progress.positions and not PROTOCOLS[self.protocol].may_lack_boundaries:
            return False  # the first change without a commit ts changes the order
        without = self.settings.debezium.without_boundaries
        probe = probe_boundaries(self.source, self.protocol, self.settings.decode_options(), without_boundaries=without)
        log.info("apply_order", by="partition" if probe.by_partition else "commit ts", why=probe.why)
        return probe.by_partition is True

    def _refuse_side_effects(self, end: End, *, cascades: bool) -> None:
        def refuse() -> None:
            with closing(self.target.connect(autocommit=True)) as session:
                effects = find_side_effects(session, cascades=cascades)
            refuse_side_effects(effects, self.settings.table_routes.accepts_target)

        retried_at_start(end, self.target, refuse)

    def _idle_policy(self, extents: Extents, *, once: bool) -> IdlePolicy:
        if once:
            return IdlePolicy(0, lambda _: {partition: extent.high for partition, extent in extents.items()})
        seconds = self.settings.stream.idle_seconds
        return IdlePolicy(seconds, self._ends_now, row_seconds=seconds)

    def _ends_now(self, partitions: Collection[PartitionId]) -> Mapping[PartitionId, int] | None:
        try:
            return self.source.ends(partitions)
        except UnansweredError as error:
            log.warning("partition_ends_unknown", error=str(error))
            return None

    def _cut_rows(self) -> CutRows | None:
        if self.upstream is None:
            return None
        return CutRows(self.upstream, make_decoder(self.protocol, replace(self._decode_options(), cut_rows=True)))

    def _decode_options(self) -> DecodeOptions:
        tables = self.tables if self.tables.rules else None
        return replace(self.settings.decode_options(tables), tells_unwanted=True)


def unused_partitions(
    named: Sequence[PartitionId] | None, positions: Positions, extents: Extents
) -> frozenset[PartitionId]:
    """Gives the partitions that are unused: those that the settings name, or without that setting those that progress
    knows as such.  Raises UsageError for one that there is not, SourceError for one that has had messages."""
    if named is None:
        named = [where for where, start in positions.items() if start.boundary == UNUSED and where in extents]
    for topic, partition in named:
        extent = extents.get((topic, partition))
        if extent is None:
            raise UsageError(
                f"source.unused_partitions names {topic}/{partition}, which the source does not have",
                fix="take it off that setting",
            )
        if extent.high > 0:
            raise used_partition_error(topic, partition)
    return frozenset(named)


def make_applier(
    writer: Writer,
    progress: Progress,
    lows: Mapping[PartitionId, int],
    config: ApplierConfig,
    counts: Counts,
    *,
    by_partition: bool,
    cascades_are_lost: bool = False,
    transactions: PartitionId | None = None,
) -> Applier:
    """Makes an applier that continues from progress.

    lows: the first offset of every partition of the source.
    counts: the counts of the applier before it, which this one continues.
    cascades_are_lost: the log lacks the rows that cascading foreign keys change upstream.
    transactions: the partition of the topic of transactions, if their order is applied.
    """
    settled = writer.unreadable().settled
    config = replace(config, on_bad_message=replace(config.on_bad_message, settled=settled))
    by_boundaries = not by_partition and transactions is None
    starts = starts_of(
        progress,
        lows,
        by_partition=by_partition and transactions is None,
        begins=config.begins,
        unused=config.unused if by_boundaries else (),
    )
    order: Order
    if transactions is not None:
        order = TransactionOrder(progress, starts, transactions, writer.changes_between, config, counts)
    elif by_partition:
        order = PartitionOrder(progress, starts, writer.changes_between, config, counts)
    else:
        order = BoundaryOrder(progress, starts, config, counts)
    return Applier(writer, order, counts, config, cascades_are_lost=cascades_are_lost)
