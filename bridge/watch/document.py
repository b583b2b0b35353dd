"""The status as a JSON document, which the page draws."""

from __future__ import annotations

from typing import Any, Final

from bridge.ends.phases import WORDS
from bridge.pipeline.watching.sample import Sample
from bridge.tso import tso_ms, tso_time
from bridge.watch.history import Point
from bridge.watch.metrics import MOST_TABLES
from bridge.watch.view import TargetLook, View

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
    if view.sample is None:
        return document
    status = view.sample.status
    return {
        **document,
        **status.document(),
        "rows_per_second": round(view.rate, 1),
        "resolved_time": tso_time(status.resolved_ts),
        "waiting_for": view.sample.held or status.waiting_for,
        "order": "partition" if view.sample.by_partition else "commit_ts",
        "transactions": view.sample.transactions,
        "backlog_bytes": view.sample.backlog_bytes,
        "phases": [{"name": words, "seconds": round(view.phases.get(phase, 0.0), 3)} for phase, words in WORDS.items()],
        "partitions": _partitions(view, view.sample),
        "partition_count": len(view.sample.positions),
        "tables": _tables(view, view.sample),
        "table_count": len(view.sample.tables),
    }


def history_document(points: list[Point]) -> dict[str, list[Any]]:
    """Makes the document of `/history`: one list for each value, oldest first."""
    return {
        "at": [point.at for point in points],
        "source_lag": [_rounded(point.source_lag) for point in points],
        "apply_lag": [_rounded(point.apply_lag) for point in points],
        "rows_per_second": [round(point.rows_per_second) for point in points],
    }


def _partitions(view: View, sample: Sample) -> list[dict[str, Any]]:
    """Gives the partitions whose boundary is the oldest first; the first one holds the resolved ts back."""
    ordered = sorted(sample.positions.items(), key=lambda item: (item[1].boundary, item[0]))
    if sample.by_partition:
        ordered.sort(key=lambda item: (-(view.behind(item[0]) or 0), item[0]))
    return [
        {
            "topic": topic,
            "partition": partition,
            "boundary_age": round(max(0.0, view.at - tso_ms(start.boundary) / 1000), 1) if start.boundary > 0 else None,
            "read": start.read,
            "end": view.ends.get((topic, partition)),
            "behind": view.behind((topic, partition)),
            "holds_back": number == 0 and not sample.by_partition,
        }
        for number, ((topic, partition), start) in enumerate(ordered[:_MOST_PARTITIONS])
    ]


def _tables(view: View, sample: Sample) -> list[dict[str, Any]]:
    """Gives the tables with the highest rates first."""
    rates = view.table_rates
    ordered = sorted(sample.tables.items(), key=lambda item: (-rates.get(item[0], 0.0), -sum(item[1]), item[0]))
    return [
        {"name": str(name), "rows_per_second": round(rates.get(name, 0.0), 1), **counts._asdict()}
        for name, counts in ordered[:MOST_TABLES]
    ]


def _changes(target: TargetLook) -> dict[str, Any]:
    return {"by_state": dict(target.states), "last": [entry.document() for entry in target.changes]}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
