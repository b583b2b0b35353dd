"""What the page draws: the status, the lag of the last hour and the rates of the last seconds, as JSON documents."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from bridge.ends.phases import WORDS
from bridge.model import TableName
from bridge.pipeline.watching.status_reporter import Sample
from bridge.tso import tso_ms, tso_time
from bridge.watch.lookups import TargetLook, View
from bridge.watch.metrics import MOST_TABLES

POINT_SECONDS: Final = 10.0
HOUR_SECONDS: Final = 3600.0
RECENT_SECONDS: Final = 15.0
_Key = TypeVar("_Key")


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

    def add(self, at: float, sample: Sample) -> None:
        """Adds a sample.  Several within ten seconds are one point."""
        status = sample.status
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
        self._samples: deque[tuple[float, Sample]] = deque()

    def add(self, at: float, sample: Sample) -> None:
        """Adds a sample.  at: by a clock that is never set back."""
        self._samples.append((at, sample))
        while len(self._samples) > 2 and self._samples[1][0] <= at - RECENT_SECONDS:
            self._samples.popleft()

    def rate(self) -> float:
        """Gives the row changes applied per second."""
        return sum(self._changes(lambda sample: {"rows": sample.status.rows}).values()) / self._seconds

    def table_rates(self) -> dict[TableName, float]:
        """Gives the row changes applied per second, of each table."""
        changes = self._changes(lambda sample: {name: sum(counts) for name, counts in sample.tables.items()})
        return {name: rows / self._seconds for name, rows in changes.items()}

    def phases(self) -> dict[str, float]:
        """Gives the seconds that went to each phase."""
        return self._changes(lambda sample: sample.phases)

    def _changes(self, values: Callable[[Sample], Mapping[_Key, float]]) -> dict[_Key, float]:
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
