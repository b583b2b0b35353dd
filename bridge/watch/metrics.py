"""The metrics, in the terms of Prometheus (manual, watching)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from bridge.pipeline.watching.status_reporter import Sample
from bridge.tso import tso_ms
from bridge.watch.lookups import View

MOST_TABLES: Final = 100
"""So many tables have series of their own, those that came first; the others are one table, `other`."""
OTHER: Final = "other"


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
        if view.sample is not None:
            yield from _progress(view.sample)
            yield from _partitions(view, view.sample)
            yield from _counts(view.sample)
            yield _rows(view.sample)
            yield _phases(view.sample)
            yield _retries(view.sample)


def _progress(sample: Sample) -> Iterator[Metric]:
    status = sample.status
    yield _gauge("bridge_applied_timestamp_seconds", "Everything below it is in the target.", _unix(status.applied_ts))
    yield _gauge("bridge_resolved_timestamp_seconds", "Everything below it has arrived.", _unix(status.resolved_ts))
    yield _gauge("bridge_source_lag_seconds", "From the resolved ts to now: upstream and Kafka.", status.source_lag)
    yield _gauge("bridge_apply_lag_seconds", "From the applied ts to the resolved ts.", status.apply_lag)
    yield _gauge("bridge_backlog_rows", "Row changes that were read and wait.", status.backlog_rows)
    yield _gauge("bridge_backlog_bytes", "The memory of the row changes that wait.", sample.backlog_bytes)


def _partitions(view: View, sample: Sample) -> Iterator[Metric]:
    labels = ("topic", "partition")
    behind = GaugeMetricFamily(
        "bridge_partition_offsets_behind", "Messages not yet surely in the target.", labels=labels
    )
    age = GaugeMetricFamily("bridge_partition_boundary_age_seconds", "The age of the last boundary.", labels=labels)
    for where, start in sorted(sample.positions.items()):
        values = (where[0], str(where[1]))
        if (messages := view.behind(where)) is not None:
            behind.add_metric(values, messages)
        if start.boundary > 0:
            age.add_metric(values, max(0.0, view.at - tso_ms(start.boundary) / 1000))
    yield behind
    yield age


def _counts(sample: Sample) -> Iterator[Metric]:
    status = sample.status
    yield CounterMetricFamily("bridge_messages", "Messages read.", status.messages)
    yield CounterMetricFamily("bridge_transactions", "Transactions committed on the target.", sample.transactions)
    yield CounterMetricFamily("bridge_schema_changes", "Schema changes finished.", sample.schema_changes)
    yield CounterMetricFamily("bridge_quarantined", "Messages and rows quarantined.", status.quarantined)
    yield CounterMetricFamily("bridge_late_rows", "Row changes that came late and were dropped.", status.late)
    yield CounterMetricFamily("bridge_safe_mode_transactions", "Transactions applied in safe mode.", status.safe_mode)


def _rows(sample: Sample) -> Metric:
    family = CounterMetricFamily("bridge_rows", "Row changes applied.", labels=("table", "operation"))
    others = [0, 0, 0]
    for number, (name, counts) in enumerate(sample.tables.items()):
        if number < MOST_TABLES:
            for operation, rows in counts._asdict().items():
                family.add_metric((str(name), operation.removesuffix("s")), rows)
        else:
            others = [before + rows for before, rows in zip(others, counts, strict=True)]
    if len(sample.tables) > MOST_TABLES:
        for operation, rows in zip(("insert", "update", "delete"), others, strict=True):
            family.add_metric((OTHER, operation), rows)
    return family


def _phases(sample: Sample) -> Metric:
    family = CounterMetricFamily("bridge_phase_seconds", "Where the applier's time went.", labels=("phase",))
    for phase, spent in sample.phases.items():
        family.add_metric((phase,), spent)
    return family


def _retries(sample: Sample) -> Metric:
    family = CounterMetricFamily("bridge_retries", "What was tried again.", labels=("end", "reason"))
    for labels, count in sample.retries.items():
        family.add_metric(labels, count)
    return family


def _gauge(name: str, what: str, value: float | None) -> Metric:
    """Makes a gauge without labels; without a sample while the value is not known."""
    family = GaugeMetricFamily(name, what, labels=())
    if value is not None:
        family.add_metric((), value)
    return family


def _unix(tso: int) -> float | None:
    """Gives a TSO as Unix time; None for none."""
    return tso_ms(tso) / 1000 if tso else None
