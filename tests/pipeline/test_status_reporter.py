"""The lags of a running pipeline, and samples of one moment."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.ends import End, Ends
from bridge.events import EVENT_SCHEMA
from bridge.model import RowCounts, TableName
from bridge.mysql.apply.writer import Writer, WriterCounts
from bridge.pipeline.applier import Counts
from bridge.pipeline.heartbeat import QUIET_SECONDS, StatusReporter
from tests.pipeline.by_partitions.test_partition_order import bench_of, change, row
from tests.support.models import Bench, give
from tests.support.pipelines import admin, opened
from tests.support.upstreams import TOPIC, boundary, in_one_partition, row_change

ENDS = Ends(*(End(which, "there:1", retry_seconds=0) for which in ("target", "source")))
WRITER = cast("Writer", SimpleNamespace(counts=WriterCounts(), safe_mode=0))
HOUR = 3600


def lags(bench: Bench, ends: Ends = ENDS) -> tuple[int, int]:
    """The lags of source and applying, in seconds, to the next ten minutes: the test itself takes time."""
    found = StatusReporter(bench.applier, WRITER, ends, 0).status()
    assert found.source_lag is not None
    assert found.apply_lag is not None
    return round(found.source_lag / 600) * 600, round(found.apply_lag / 600) * 600


def hours_ago(hours: int) -> int:
    """A moment, in milliseconds since 1970."""
    return round(time.time() - hours * HOUR) * 1000


def test_a_quiet_source_without_boundaries_has_no_lag() -> None:
    """However old its newest change is.  While changes come, their age shows a sender that is late."""
    bench = bench_of()
    bench.take((0, 0, row(hours_ago(2), 1)))
    assert lags(bench) == (2 * HOUR, 0)
    bench.wait(QUIET_SECONDS)
    assert lags(bench) == (0, 0)
    bench.take((0, 1, row(hours_ago(1), 2)))
    assert lags(bench) == (HOUR, 0)
    bench.wait(HOUR)
    assert lags(bench) == (0, 0)


def test_a_source_is_not_quiet_while_it_holds_more_or_is_away() -> None:
    """A micro-batch that was cut, and a Kafka that does not answer."""
    bench = bench_of()
    bench.take((0, 0, row(hours_ago(2), 1)), is_cut=True)
    bench.wait(HOUR)
    assert lags(bench) == (2 * HOUR, 0)
    bench.take((0, 1, row(hours_ago(2), 2)))
    bench.wait(HOUR)
    away = Ends(*(End(which, "there:1", retry_seconds=0) for which in ("target", "source")))
    away.source.failed("reading", "does not answer", 1.0)
    assert lags(bench, away) == (2 * HOUR, 0)
    assert lags(bench) == (0, 0)


def test_messages_that_the_filter_excludes_are_no_lag() -> None:
    """They come all the time, and no change of theirs is read: its age is not known, and everything else is applied."""
    bench = bench_of()
    bench.take((0, 0, row(hours_ago(2), 1)))
    for offset in range(1, 21):
        bench.clock.now += 1
        give(bench.applier, EVENT_SCHEMA.empty_table(), {(TOPIC, 0): offset + 1})
    assert lags(bench) == (0, 0)
    give(bench.applier, EVENT_SCHEMA.empty_table(), {(TOPIC, 0): 30}, is_cut=True)
    assert lags(bench) == (2 * HOUR, 0)


def test_what_waits_though_the_source_is_quiet_is_the_lag_of_applying() -> None:
    """A schema change that waits for the other partition has waited since it was read, whenever that was upstream."""
    bench = bench_of()
    bench.ends = None
    bench.take((0, 0, change(hours_ago(2))), (0, 1, row(hours_ago(2), 1)))
    bench.wait(HOUR)
    assert lags(bench) == (0, HOUR)


def test_the_lag_of_a_source_that_nobody_reads_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the operator holds a schema change, the applier waits for nothing else."""
    bench = bench_of()
    bench.take((0, 0, row(hours_ago(2), 1)))
    monkeypatch.setattr(bench.applier, "_held", "DROP TABLE is held")
    assert StatusReporter(bench.applier, WRITER, ENDS, 0).status().source_lag is None


class Busy:
    """An applier at work: whenever something of it is looked at, it has committed another row change."""

    def __init__(self) -> None:
        self._bench, self._counts = bench_of(), Counts()

    def __getattr__(self, name: str) -> Any:
        self._counts.note_applied({TableName("m", "t"): RowCounts(1)}, ())
        return self._counts if name == "counts" else getattr(self._bench.applier, name)


def test_a_sample_is_of_one_moment() -> None:
    """The rows of all tables are the rows in all: `/metrics` tells the former, `/status` the latter."""
    sampler = StatusReporter(cast("Any", Busy()), WRITER, ENDS, 0)
    rows = 0
    for _ in range(3):
        status = sampler.status()
        assert sum(map(sum, status.tables.values())) == status.rows > rows
        rows = status.rows


def test_tables_that_go_slowly_are_named_with_the_reason(target: str) -> None:
    """In the status, from the first transaction in which one went one upstream transaction after the other."""
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT)")
    rows = [row_change(100, "t", ["id"], [], after=[1]), row_change(200, "t", ["id"], [], before=[1], after=[2])]
    with opened(target, [(TOPIC, 0)]) as pipeline:
        reporter = StatusReporter(pipeline.applier, pipeline.writer, ENDS, 0)
        pipeline.take(in_one_partition([rows[0], boundary(101)]))
        assert reporter.status().by_transaction == {}
        pipeline.take(in_one_partition([*rows, boundary(201)]))
        found = reporter.status().document()["by_transaction"]
    assert found == {"m.t": "it has no key, so that its rows are found by all their values"}
