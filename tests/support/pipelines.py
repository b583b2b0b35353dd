"""One pipeline at work without Spark: what a bridge process does between decoding and the target."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pymysql
import pytest
from sqlalchemy import make_url

from bridge.ddl.policy import DdlRules
from bridge.ends import End
from bridge.filters.routes import Routes, RowRules
from bridge.filters.table_filter import TableFilter
from bridge.model import PartitionId, goes_by_partition, quote_name
from bridge.mysql.apply.writer import Writer, no_trace
from bridge.mysql.connection.session import SESSION_SETTINGS, Session
from bridge.mysql.connection.target import Target
from bridge.mysql.parallel import Executors, ExecutorWriter, ParallelWriter
from bridge.mysql.state.ownership import Ownership
from bridge.mysql.state.progress import ProgressTable
from bridge.mysql.state.routes_record import keep_rules
from bridge.pipeline.applier import Applier, ApplierConfig, Counts, IdlePolicy, RowsOf
from bridge.pipeline.assembly import make_applier
from bridge.pipeline.bad_input import OnBadMessage
from bridge.pipeline.order import OrderChanged
from bridge.pipeline.steering import Gate
from bridge.pipeline.truncated_rows import CutRows
from bridge.protocols import DecodeOptions, make_decoder
from bridge.protocols.batch_decode import Messages, decode_messages
from bridge.rows.gathering import Amount
from bridge.rows.order_and_slices import RowChanges
from tests.support.models import give
from tests.support.near_rows import NearExecutors

SQL_SECONDS = 300
SYSTEM = ("information_schema", "metrics_schema", "mysql", "performance_schema", "sys")


@dataclass
class Pipeline:
    """The parts of one bridge process."""

    target: Target
    table: ProgressTable
    ownership: Ownership
    writer: Writer
    applier: Applier

    @property
    def changes_run(self) -> int:
        """Schema changes run so far."""
        return self.writer.counts.schema_changes

    def take(self, events: pa.Table) -> None:
        """One micro-batch of events."""
        give(self.applier, events)

    def beat(self) -> None:
        """One heartbeat, as the heartbeat's thread would."""
        session = self.target.connect(autocommit=True)
        self.ownership.beat(session, self.writer.connections, "{}")
        session.close()


@contextmanager
def opened(
    url: str,
    partitions: Iterable[tuple[str, int]],
    *,
    name: str = "bridge",
    start_ts: int = 0,
    take_over: bool = False,
    rows_per_transaction: int = 1000,
    bytes_per_transaction: int = 128 << 20,
    until: int | None = None,
    retry_seconds: float = 30,
    timeout_seconds: float = 30,
    quarantine: bool = False,
    released: Iterable[str] = (),
    cut_rows: CutRows | None = None,
    writers: int = 0,
    executors: Executors | None = None,
    ddl: DdlRules = DdlRules(),  # noqa: B008  # immutable
    tables: TableFilter = TableFilter(),  # noqa: B008  # immutable
    rows_of: RowsOf = RowChanges.joined,
    boundary_seconds: float | None = None,
    cascades_are_lost: bool = False,
    waits_for_operator: bool = False,
    protocol: str = "canal-json",
    gate: Gate | None = None,
    rules: RowRules | None = None,
    trace: Callable[[str], None] = no_trace,
    transactions: PartitionId | None = None,
    clock: Callable[[], float] = time.monotonic,
    ends: Callable[[], Mapping[PartitionId, int]] = dict,
) -> Iterator[Pipeline]:
    """Becomes owner of the pipeline, runs what is pending, and gives it ready to take events.

    writers: with any, the consistency is `parallel`, and everything is written apart, by `executors`; None: tasks in
        this process.
    rules: routes and filters, to be kept on record.
    transactions: the partition of Debezium's topic of transactions, if their order is applied.
    ends: where partitions end now.
    """
    target, table = Target(url, timeout_seconds=timeout_seconds), ProgressTable(name)
    ownership = Ownership(target, table)
    end = End("target", target.place, retry_seconds=retry_seconds)
    options: dict[str, Any] = {"end": end, "ddl": ddl, "trace": trace}
    with ExitStack() as stack:
        stack.callback(ownership.release)
        ownership.acquire(start_ts, take_over=take_over)
        progress = table.read(ownership.control)
        assert progress is not None
        if rules is not None:
            keep_rules(ownership.control, table.schema, progress, rules, accepts_change=True)
        near = executors or NearExecutors(Amount(rows_per_transaction, bytes_per_transaction), trace)
        parallel = {"executors": near, "connections": writers, **options}
        writer = ParallelWriter(ownership, **parallel) if writers else Writer(ownership, **options)
        stack.callback(ExecutorWriter.close)
        stack.callback(writer.close)
        config = ApplierConfig(
            tables=tables,
            transaction=Amount(rows_per_transaction, bytes_per_transaction),
            until=until,
            boundary_seconds=boundary_seconds,
            rows_of=rows_of,
            on_bad_message=OnBadMessage(quarantine, protocol, cut_rows, frozenset(released)),
            waits_for_operator=waits_for_operator,
            gate=gate,
            clock=clock,
            idle=IdlePolicy(10 if transactions else 0, lambda _: ends()),
        )
        applier = make_applier(
            writer,
            progress,
            dict.fromkeys(partitions, 0),
            config,
            Counts(),
            by_partition=goes_by_partition(progress.positions),
            cascades_are_lost=cascades_are_lost,
            transactions=transactions,
        )
        applier.finish_pending(progress.pending)
        yield Pipeline(target, table, ownership, writer, applier)


def run_all(url: str, events: pa.Table, *, batch: int | None = None, **options: Any) -> Pipeline:
    """Applies all events from where progress says, in micro-batches of `batch` events, to the end.

    options: those of `opened`; `partitions`, if there are more than have events.
    """
    those_read = sorted(set(zip(events["topic"].to_pylist(), events["partition"].to_pylist(), strict=True)))
    partitions: Sequence[PartitionId] = options.pop("partitions", those_read)
    while True:
        with opened(url, partitions, **options) as pipeline, suppress(OrderChanged):
            _run_to_the_end(pipeline, events, batch)
            return pipeline


def _run_to_the_end(pipeline: Pipeline, events: pa.Table, batch: int | None) -> None:
    offsets = pipeline.applier.order.positions
    names = ("topic", "partition", "offset")
    placed = zip(*(events[name].to_pylist() for name in names), strict=True)
    keep = [offset >= offsets[topic, partition].offset for topic, partition, offset in placed]
    rest = events.filter(pa.array(keep, pa.bool_()))
    size = batch or max(1, rest.num_rows)
    for start in range(0, rest.num_rows, size):
        pipeline.take(rest.slice(start, size))
    pipeline.applier.finish()


def decoded(
    capture: Path, protocol: str, timezone: str | None = "UTC", *, latest_ms: int | None = None, **options: Any
) -> pa.Table:
    """The events of a capture file.  latest_ms: when its messages were read; None: their times are not checked."""
    messages = [json.loads(line) for line in capture.read_text(encoding="utf-8").splitlines()]

    def column(name: str) -> list[bytes | None]:
        return [None if m[name] is None else base64.b64decode(m[name]) for m in messages]

    captured = Messages(
        [m.get("topic") or "cdc" for m in messages],
        [m["partition"] for m in messages],
        [m["offset"] for m in messages],
        column("key"),
        column("value"),
        [] if latest_ms is None else [latest_ms] * len(messages),
    )
    decoder = make_decoder(protocol, DecodeOptions(timezone, **options))
    events = decode_messages(decoder, captured)
    places = zip(captured.topic, captured.partition, captured.offset, strict=True)
    lines = {where: line for line, where in enumerate(places)}
    where = zip(*(events[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    order = np.lexsort((events["index"].to_numpy(), [lines[one] for one in where]))
    return events.take(pa.array(order)).combine_chunks()


def ran_with(session: Session, routes: Routes) -> None:
    """Has the pipeline `bridge` have written with these routes; a known one stays where it is."""
    table = ProgressTable("bridge")
    table.create(session)
    if not table.is_known(session):
        table.begin(session, 10)
        session.execute("UPDATE _bridge.progress SET applied_ts = 50, applying_ts = 50")
    progress = table.read(session)
    assert progress is not None
    keep_rules(session, table.schema, progress, RowRules(routes=routes), accepts_change=True)


@contextmanager
def admin(url: str) -> Iterator[Session]:
    """A session of the test's own."""
    session = Target(url).connect(autocommit=True)
    try:
        yield session
    finally:
        session.close()


def session_after(*statements: str) -> Any:
    """A fixture: a session on the target, behind these statements."""

    @pytest.fixture(name="session")
    def made(target: str) -> Iterator[Session]:
        with admin(target) as session:
            for statement in statements:
                session.execute(statement)
            yield session

    return made


def sql(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Runs statements in the mode of the bridge; the last one's rows.  A session of the bridge takes twice as long."""
    with closing(connected(url)) as connection, connection.cursor() as cursor:
        for statement in (SESSION_SETTINGS[0], *statements):
            cursor.execute(statement)
        return list(cursor.fetchall())


def connected(url: str) -> pymysql.connections.Connection[Any]:
    """A connection without the bridge's settings."""
    place = make_url(url)
    return pymysql.connect(
        host=place.host,
        port=place.port or 3306,
        user=place.username,
        password=place.password or "",
        connect_timeout=30,
        read_timeout=SQL_SECONDS,
        ssl_disabled=True,
        autocommit=True,
    )


def drop_all(session: Session) -> None:
    """Drops every database of the test's own."""
    for name in _databases(session):
        session.execute(f"DROP DATABASE {quote_name(name)}")


def contents(session: Session) -> dict[str, tuple[str, list[tuple[Any, ...]]]]:
    """Definition and rows of every replicated table."""
    found = {}
    for schema in _databases(session):
        if schema == "_bridge":
            continue
        for (table,) in session.rows(
            "SELECT table_name FROM information_schema.tables WHERE table_schema=%s", [schema]
        ):
            name = quote_name(schema, table)
            definition = str(session.rows(f"SHOW CREATE TABLE {name}")[0][1])
            rows = session.rows(f"SELECT * FROM {name}")
            found[f"{schema}.{table}"] = (definition, sorted(rows, key=repr))
    return found


def journal(session: Session) -> list[tuple[Any, ...]]:
    """What became of every schema change, and how far the pipeline is."""
    changes = session.rows("SELECT commit_ts, statement, state FROM _bridge.schema_changes ORDER BY 1, 2")
    return [*changes, *session.rows("SELECT name, applied_ts, pending FROM _bridge.progress")]


def _databases(session: Session) -> list[str]:
    rows = session.rows("SELECT schema_name FROM information_schema.schemata")
    return [name for (name,) in rows if name.lower() not in SYSTEM]
