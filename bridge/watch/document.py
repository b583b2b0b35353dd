"""What the page draws: the status, the lag of the last hour and the rates of the last seconds, as JSON documents; and
the metrics, in the terms of Prometheus (manual, watching).

Asks Kafka and the target for what the pipeline itself does not hold, and keeps what the port shows.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

import structlog
from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from bridge.model import PartitionId, TableName
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.state.ddl_journal import Journal, JournalEntry
from bridge.mysql.state.progress import ProgressTable
from bridge.mysql.state.quarantine import count_held
from bridge.phases import WORDS
from bridge.pipeline.status import Status
from bridge.pipeline.steering import ReopeningSession
from bridge.sources.source import Source
from bridge.tso import tso_ms, tso_time


@dataclass(frozen=True)
class TargetLook:
    """What the target tells of the pipeline.

    changes: the last schema changes, the newest first.
    states: the number of schema changes in each state.
    quarantined: the number of entries that are held, by code.
    looked_at: Unix time; None until the target has answered.
    """

    changes: tuple[JournalEntry, ...] = ()
    states: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)
    looked_at: float | None = None


@dataclass(frozen=True)
class View:
    """What is shown.

    at, started_at: Unix time of the look, and of the start of the process.
    reason: why the pipeline does not apply what comes; "" while it does.
    status: None until the pipeline reads.
    ends: where the partitions end, as far as Kafka has told.
    rate, table_rates: row changes per second of the last seconds.
    phases: where the time of the last seconds went.
    """

    at: float
    started_at: float
    reason: str
    status: Status | None = None
    ends: Mapping[PartitionId, int] = field(default_factory=dict)
    rate: float = 0.0
    table_rates: Mapping[TableName, float] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    target: TargetLook = TargetLook()

    def behind(self, where: PartitionId) -> int | None:
        """Counts the messages of a partition that are not, or not surely, in the target; None while Kafka has not told
        where it ends."""
        if self.status is None or where not in self.ends or where not in self.status.committed:
            return None
        return max(0, self.ends[where] - self.status.committed[where].offset)


LOOKUP_SECONDS: Final = 5.0
_LAST_CHANGES: Final = 20

log = structlog.get_logger()


class Lookups:
    """Asks now and then, in a thread of its own, so that an end that does not answer keeps nobody waiting."""

    def __init__(self, source: Source, target: Target, table: ProgressTable) -> None:
        self._source, self._session, self._table = source, ReopeningSession(target), table
        self.ends: Mapping[PartitionId, int] = {}
        """Where the partitions ended when Kafka was last asked."""
        self.target = TargetLook()
        """What the target last told."""
        self.partitions: tuple[PartitionId, ...] = ()
        """The partitions to ask for; whoever knows them sets them."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="watch-lookups", daemon=True)

    def start(self) -> None:
        """Starts asking."""
        self._thread.start()

    def close(self, seconds: float) -> None:
        """Ends asking; a question that is not answered is waited for so long at most."""
        self._is_over.set()
        self._thread.join(seconds)

    def _work(self) -> None:
        while not self._is_over.is_set():
            self._ask_kafka()
            self._ask_target()
            self._is_over.wait(LOOKUP_SECONDS)
        self._session.close()

    def _ask_kafka(self) -> None:
        try:
            self.ends = self._source.ends(self.partitions)
        except Exception as error:  # noqa: BLE001  # what is asked here is only shown; the pipeline tells what is wrong
            log.debug("ends_not_known", error=str(error))

    def _ask_target(self) -> None:
        try:
            with self._session.use() as session:
                self.target = self._looked(session)
        except Exception as error:  # noqa: BLE001  # as above; the tables may also not be there yet
            log.debug("target_not_looked_at", error=str(error))

    def _looked(self, session: Session) -> TargetLook:
        journal = Journal(self._table.name, self._table.schema)
        return TargetLook(
            changes=tuple(journal.latest(session, _LAST_CHANGES)),
            states=journal.counts(session),
            quarantined=count_held(session, self._table.schema, self._table.name),
            looked_at=time.time(),
        )


POINT_SECONDS: Final = 10.0
HOUR_SECONDS: Final = 3600.0
RECENT_SECONDS: Final = 15.0
_Key = TypeVar("_Key")
MOST_TABLES: Final = 100
"""So many tables have series of their own, those that came first; the others are one table, `other`."""
OTHER: Final = "other"


class Point(NamedTuple):
    """Ten seconds of the chart: the highest lags, and the rate at their end.  at: their beginning (Unix time)."""

    at: float
    source_lag: float | None
    apply_lag: float | None
    rows_per_second: float


class History:
    """The points of the last hour."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=round(HOUR_SECONDS / POINT_SECONDS))

    def add(self, at: float, status: Status) -> None:
        """Adds a status.  Several within ten seconds are one point."""
        point = Point(at - at % POINT_SECONDS, status.source_lag, status.apply_lag, status.rows_per_second)
        if self._points and self._points[-1].at >= point.at:
            last = self._points.pop()
            point = Point(
                last.at,
                _highest(last.source_lag, point.source_lag),
                _highest(last.apply_lag, point.apply_lag),
                point.rows_per_second,
            )
        self._points.append(point)

    def points(self) -> list[Point]:
        """Gives the points, oldest first."""
        return list(self._points)


def _highest(first: float | None, second: float | None) -> float | None:
    return max((lag for lag in (first, second) if lag is not None), default=None)


class Recent:
    """What has changed in the last 15 seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Status]] = deque()

    def add(self, at: float, status: Status) -> None:
        """Adds a status.  at: by a clock that is never set back."""
        self._samples.append((at, status))
        while len(self._samples) > 2 and self._samples[1][0] <= at - RECENT_SECONDS:
            self._samples.popleft()

    def rate(self) -> float:
        """Gives the row changes applied per second."""
        return sum(self._changes(lambda status: {"rows": status.rows}).values()) / self._seconds

    def table_rates(self) -> dict[TableName, float]:
        """Gives the row changes applied per second, of each table."""
        changes = self._changes(lambda status: {name: sum(counts) for name, counts in status.tables.items()})
        return {name: rows / self._seconds for name, rows in changes.items()}

    def phases(self) -> dict[str, float]:
        """Gives the seconds that went to each phase."""
        return self._changes(lambda status: status.phases_in_all)

    def _changes(self, values: Callable[[Status], Mapping[_Key, float]]) -> dict[_Key, float]:
        """Gives by how much each of these values has grown."""
        if not self._samples:
            return {}
        first, last = values(self._samples[0][1]), values(self._samples[-1][1])
        return {key: value - first.get(key, 0) for key, value in last.items()}

    @property
    def _seconds(self) -> float:
        return max(self._samples[-1][0] - self._samples[0][0], 1e-3) if self._samples else 1.0


_MOST_PARTITIONS: Final = 200


def status_document(view: View, info: dict[str, str]) -> dict[str, Any]:
    """Makes the document of `/status`.  info: what does not change: version, pipeline."""
    document: dict[str, Any] = {
        **info,
        "now": view.at,
        "started_at": view.started_at,
        "ready": not view.reason,
        "reason": view.reason,
        "schema_changes": _changes(view.target),
        "quarantined_by_code": dict(view.target.quarantined),
        "target_looked_at": view.target.looked_at,
    }
    if (status := view.status) is None:
        return document
    return {
        **document,
        **status.document(),
        "rows_per_second": round(view.rate, 1),
        "resolved_time": tso_time(status.resolved_ts),
        "waiting_for": status.held or status.waiting_for,
        "order": "partition" if status.by_partition else "commit_ts",
        "transactions": status.transactions,
        "backlog_bytes": status.backlog_bytes,
        "phases": [{"name": words, "seconds": round(view.phases.get(phase, 0.0), 3)} for phase, words in WORDS.items()],
        "partitions": _partitions(view, status),
        "partition_count": len(status.positions),
        "tables": _tables(view, status),
        "table_count": len(status.tables),
    }


def history_document(points: list[Point]) -> dict[str, list[Any]]:
    """Makes the document of `/history`: one list for each value, oldest first."""
    return {
        "at": [point.at for point in points],
        "source_lag": [_rounded(point.source_lag) for point in points],
        "apply_lag": [_rounded(point.apply_lag) for point in points],
        "rows_per_second": [round(point.rows_per_second) for point in points],
    }


def _partitions(view: View, status: Status) -> list[dict[str, Any]]:
    """Gives the partitions whose boundary is the oldest first; the first one holds the resolved ts back."""
    ordered = sorted(status.positions.items(), key=lambda item: (item[1].boundary, item[0]))
    if status.by_partition:
        ordered.sort(key=lambda item: (-(view.behind(item[0]) or 0), item[0]))
    return [
        {
            "topic": topic,
            "partition": partition,
            "boundary_age": round(max(0.0, view.at - tso_ms(start.boundary) / 1000), 1) if start.boundary > 0 else None,
            "read": start.read,
            "end": view.ends.get((topic, partition)),
            "behind": view.behind((topic, partition)),
            "holds_back": number == 0 and not status.by_partition,
        }
        for number, ((topic, partition), start) in enumerate(ordered[:_MOST_PARTITIONS])
    ]


def _tables(view: View, status: Status) -> list[dict[str, Any]]:
    """Gives the tables with the highest rates first."""
    rates = view.table_rates
    ordered = sorted(status.tables.items(), key=lambda item: (-rates.get(item[0], 0.0), -sum(item[1]), item[0]))
    return [
        {"name": str(name), "rows_per_second": round(rates.get(name, 0.0), 1), **counts._asdict()}
        for name, counts in ordered[:MOST_TABLES]
    ]


def _changes(target: TargetLook) -> dict[str, Any]:
    return {"by_state": dict(target.states), "last": [entry.document() for entry in target.changes]}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def registry_of(view: Callable[[], View], info: dict[str, str]) -> CollectorRegistry:
    """Makes the registry of a pipeline.  view: what is shown now.  info: the labels of `bridge_build_info`."""
    registry = CollectorRegistry()
    registry.register(PipelineCollector(view, info))
    ProcessCollector(registry=registry)
    return registry


class PipelineCollector(Collector):
    """Makes the metrics of a pipeline from what is shown now."""

    def __init__(self, view: Callable[[], View], info: dict[str, str]) -> None:
        self._view, self._info = view, info

    def collect(self) -> Iterator[Metric]:
        """Gives all metrics; those of reading and applying once the pipeline reads."""
        view = self._view()
        yield InfoMetricFamily("bridge_build", "The version of the bridge, and the pipeline's name.", self._info)
        yield _gauge("bridge_ready", "1 while the pipeline applies what comes, else 0.", float(not view.reason))
        if (status := view.status) is not None:
            yield from _progress(status)
            yield from _partition_samples(view, status)
            yield from _counts(status)
            counters = CounterMetricFamily
            yield _family(counters, "bridge_rows", "Row changes applied.", ("table", "operation"), _rows(status))
            phases = (((phase,), spent) for phase, spent in status.phases_in_all.items())
            yield _family(counters, "bridge_phase_seconds", "Where the applier's time went.", ("phase",), phases)
            retries = status.retries_for.items()
            yield _family(counters, "bridge_retries", "What was tried again.", ("end", "reason"), retries)


def _progress(status: Status) -> Iterator[Metric]:
    yield _gauge("bridge_applied_timestamp_seconds", "Everything below it is in the target.", _unix(status.applied_ts))
    yield _gauge("bridge_resolved_timestamp_seconds", "Everything below it has arrived.", _unix(status.resolved_ts))
    yield _gauge("bridge_source_lag_seconds", "From the resolved ts to now: upstream and Kafka.", status.source_lag)
    yield _gauge("bridge_apply_lag_seconds", "From the applied ts to the resolved ts.", status.apply_lag)
    yield _gauge("bridge_backlog_rows", "Row changes that were read and wait.", status.backlog_rows)
    yield _gauge("bridge_backlog_bytes", "The memory of the row changes that wait.", status.backlog_bytes)


def _partition_samples(view: View, status: Status) -> Iterator[Metric]:
    labels, gauges = ("topic", "partition"), GaugeMetricFamily
    behind, ages = list[tuple[tuple[str, str], float]](), list[tuple[tuple[str, str], float]]()
    for where, start in sorted(status.positions.items()):
        values = (where[0], str(where[1]))
        if (messages := view.behind(where)) is not None:
            behind.append((values, messages))
        if start.boundary > 0:
            ages.append((values, max(0.0, view.at - tso_ms(start.boundary) / 1000)))
    what = "Messages not yet surely in the target."
    yield _family(gauges, "bridge_partition_offsets_behind", what, labels, behind)
    yield _family(gauges, "bridge_partition_boundary_age_seconds", "The age of the last boundary.", labels, ages)


def _counts(status: Status) -> Iterator[Metric]:
    yield CounterMetricFamily("bridge_messages", "Messages read.", status.messages)
    yield CounterMetricFamily("bridge_transactions", "Transactions committed on the target.", status.transactions)
    yield CounterMetricFamily("bridge_schema_changes", "Schema changes finished.", status.schema_changes)
    yield CounterMetricFamily("bridge_quarantined", "Messages and rows quarantined.", status.quarantined)
    yield CounterMetricFamily("bridge_late_rows", "Row changes that came late and were dropped.", status.late)
    yield CounterMetricFamily("bridge_safe_mode_transactions", "Transactions applied in safe mode.", status.safe_mode)


def _rows(status: Status) -> Iterator[tuple[tuple[str, str], float]]:
    others = [0, 0, 0]
    for number, (name, counts) in enumerate(status.tables.items()):
        if number < MOST_TABLES:
            for operation, rows in counts._asdict().items():
                yield (str(name), operation.removesuffix("s")), rows
        else:
            others = [before + rows for before, rows in zip(others, counts, strict=True)]
    if len(status.tables) > MOST_TABLES:
        for operation, rows in zip(("insert", "update", "delete"), others, strict=True):
            yield (OTHER, operation), rows


def _gauge(name: str, what: str, value: float | None) -> Metric:
    """Makes a gauge without labels; without a sample while the value is not known."""
    return _family(GaugeMetricFamily, name, what, (), [] if value is None else [((), value)])


def _family(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    what: str,
    labels: Sequence[str],
    samples: Iterable[tuple[Sequence[str], float]],
) -> Metric:
    """Makes a metric of samples, each with the values of its labels."""
    family = kind(name, what, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def _unix(tso: int) -> float | None:
    """Gives a TSO as Unix time; None for none."""
    return tso_ms(tso) / 1000 if tso else None
