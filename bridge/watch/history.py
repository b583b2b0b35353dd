"""What the page draws: the lag of the last hour, and the rates of the last seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from bridge.model import TableName
from bridge.pipeline.watching.sample import Sample

POINT_SECONDS: Final = 10.0
HOUR_SECONDS: Final = 3600.0
RECENT_SECONDS: Final = 15.0


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


class _Moment(NamedTuple):
    at: float
    rows: int
    tables: Mapping[TableName, int]
    phases: Mapping[str, float]


class Recent:
    """What has changed in the last 15 seconds."""

    def __init__(self) -> None:
        self._moments: deque[_Moment] = deque()

    def add(self, at: float, sample: Sample) -> None:
        """Adds a sample.  at: by a clock that is never set back."""
        tables = {name: sum(counts) for name, counts in sample.tables.items()}
        self._moments.append(_Moment(at, sample.status.rows, tables, sample.phases))
        while len(self._moments) > 2 and self._moments[1].at <= at - RECENT_SECONDS:
            self._moments.popleft()

    def rate(self) -> float:
        """Gives the row changes applied per second."""
        first, last = self._ends()
        return (last.rows - first.rows) / _seconds(first, last)

    def table_rates(self) -> dict[TableName, float]:
        """Gives the row changes applied per second, of each table."""
        first, last = self._ends()
        seconds = _seconds(first, last)
        return {name: (rows - first.tables.get(name, 0)) / seconds for name, rows in last.tables.items()}

    def phases(self) -> dict[str, float]:
        """Gives the seconds that went to each phase."""
        first, last = self._ends()
        return {phase: spent - first.phases.get(phase, 0.0) for phase, spent in last.phases.items()}

    def _ends(self) -> tuple[_Moment, _Moment]:
        return (self._moments[0], self._moments[-1]) if self._moments else (_NO_MOMENT, _NO_MOMENT)


_NO_MOMENT: Final = _Moment(0.0, 0, {}, {})


def _seconds(first: _Moment, last: _Moment) -> float:
    return max(last.at - first.at, 1e-3)
