"""Net changes, statements and transactions together, on a real server; random histories are in `test_grains`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest

from bridge.events import SEP, Kind, RowChange
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.rows.sql import render
from bridge.rows.sql.statement import MIN_BYTES
from tests.support.histories import SHAPES, Change, Dialect, History, Row, Shape, messages
from tests.support.pipelines import Pipeline, drop_all, opened
from tests.support.upstreams import boundary, events_table

PARTITIONS = 3


class Bench:
    """A target table of each shape in turn, and pipelines that write to it; `ts` never goes back."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.session = Target(url).connect(autocommit=True)
        self.session.execute("CREATE DATABASE m DEFAULT CHARSET utf8mb4")
        self._open: dict[str, ExitStack] = {}
        self._pipelines: dict[str, Pipeline] = {}
        self._generation = 0
        self.ts = 100
        self._offset = 0

    def forget_pipelines(self, *names: str) -> None:
        """These, or all after a failure: what they hold in their backlog belongs to another example."""
        for name in names or list(self._open):
            self._open.pop(name).close()
            del self._pipelines[name]

    def begin(self, shape: Shape) -> None:
        self.session.execute("DROP TABLE IF EXISTS m.t")
        self.session.execute("CREATE TABLE m.t (" + shape.ddl + ")")
        for pipeline in self._pipelines.values():
            pipeline.applier._catalog = {}

    def pipeline(self, name: str) -> Pipeline:
        if name not in self._pipelines:
            self._generation += 1
            partitions, named = [("cdc", p) for p in range(PARTITIONS)], f"{name} {self._generation}"
            context = opened(self._url, partitions, name=named, start_ts=self.ts)
            self._open[name] = ExitStack()
            self._pipelines[name] = self._open[name].enter_context(context)
        return self._pipelines[name]

    def apply(self, name: str, window: list[RowChange], random: Random, end: int | None = None) -> None:
        """One micro-batch with its boundaries: one window, up to `end` or else to now; by LOAD DATA or by INSERT."""
        render.MIN_BYTES = random.choice((0, 1 << 30))  # type: ignore[attr-defined]
        placed = [random.randrange(PARTITIONS) for _ in window]
        end = end or self.ts + 1
        events = [*zip(placed, window, strict=True), *((p, boundary(end)) for p in range(PARTITIONS))]
        numbered = []
        for partition, event in events:
            self._offset += 1
            numbered.append((partition, self._offset, event))
        pipeline = self.pipeline(name)
        pipeline.writer.load_bytes = random.choice((1, 99, 1 << 20))
        pipeline.take(events_table(numbered))


@pytest.fixture(scope="module")
def bench(mariadb: Any) -> Iterator[Bench]:
    bench = Bench(mariadb.url)
    yield bench
    render.MIN_BYTES = MIN_BYTES  # type: ignore[attr-defined]
    bench.forget_pipelines()
    drop_all(bench.session)
    bench.session.close()


def rows_of(session: Session, shape: Shape) -> list[Row]:
    """The columns of the messages, typed as the messages write them."""
    columns = []
    for name, domain in zip(shape.columns, shape.domains, strict=True):
        numeric = {type(value) for value in domain if value is not None} == {int}
        floating = float in {type(value) for value in domain}
        columns.append(f"{name}+0" if numeric else f"{name}+0e0" if floating else f"CAST({name} AS CHAR)")
        if any(isinstance(value, bytes) for value in domain):
            columns[-1] = f"CAST({name} AS BINARY)"
    return session.rows(f"SELECT {','.join(columns)} FROM m.t")


def in_any_order(rows: list[Row]) -> list[str]:
    return sorted(map(repr, rows))


def windows_of(history: History, bench: Bench, transactions: int) -> list[list[tuple[int, list[Change]]]]:
    """The next transactions with their commit_ts, in windows of random size."""
    windows: list[list[tuple[int, list[Change]]]] = []
    for _ in range(transactions):
        bench.ts += history.random.choice((1, 1, 3))
        if not windows or history.random.random() < 0.4:
            windows.append([])
        windows[-1].append((bench.ts, history.transaction()))
    return windows


def test_safe_mode_takes_values_from_rows_that_the_log_has_not_come_to(bench: Bench) -> None:
    """A target ahead of the log holds a unique value in another row: the transaction is retried in safe mode, which
    deletes that row, keeps values of target-only columns of the rows it writes, and is counted."""
    shape = SHAPES["nullable unique keys"]
    bench.begin(shape)
    at = "2001-01-01 00:00:00"
    bench.session.execute(f"INSERT INTO m.t VALUES (1, 1, 'a', 1, 1, '{at}', 77), (2, 2, 'b', 1, 2, '{at}', 88)")
    bench.ts += 1
    as_of = Dialect(split=False, old_rows=True, handle_deletes=False)
    update: list[Change] = [((1, 1, "a", 1, 1, at), (1, 2, "c", 1, 1, at))]
    counts = bench.pipeline("first").writer.counts
    before = counts.safe_mode
    bench.apply("first", messages(shape, update, bench.ts, as_of, Random(0)), Random(0))
    assert bench.session.rows("SELECT id, u, w, extra FROM m.t") == [(1, 2, "c", 77)]
    assert counts.safe_mode == before + 1


def test_upserts_over_an_overlapping_load(bench: Bench) -> None:
    """Rows that were copied beforehand and are in the log again are overwritten, without safe mode."""
    shape = SHAPES["int primary key"]
    bench.begin(shape)
    bench.session.execute("INSERT INTO m.t VALUES (1, 50, 5), (2, 60, 6)")
    bench.ts += 1
    inserts: list[Change] = [(None, (1, 10)), (None, (2, 20)), (None, (3, 30))]
    as_of = Dialect(split=False, old_rows=True, handle_deletes=False)
    bench.apply("first", messages(shape, inserts, bench.ts, as_of, Random(0)), Random(0))
    assert sorted(bench.session.rows("SELECT * FROM m.t")) == [(1, 10, 5), (2, 20, 6), (3, 30, None)]


def test_kept_values_of_tables_with_long_names_do_not_mix(bench: Bench) -> None:
    """Two tables whose names differ only at their end keep their target-only values apart in one transaction."""
    random = Random(0)
    names = [f"{'n' * 60}_{i}" for i in (1, 2)]
    events = []
    bench.ts += 1
    for i, name in enumerate(names):
        bench.session.execute(f"CREATE OR REPLACE TABLE m.{name} (id INT PRIMARY KEY, u INT UNIQUE, extra INT)")
        bench.session.execute(f"INSERT INTO m.{name} VALUES (1, 1, {i}), (2, 2, {i})")
        events.append(
            RowChange(Kind.UPDATE, bench.ts, 0, "m", name, SEP.join(("id", "u")), "id", SEP.join("11"), SEP.join("13"))
        )
    bench.apply("first", events, random)
    found = [bench.session.rows(f"SELECT * FROM m.{name} ORDER BY id") for name in names]
    assert found == [[(1, 3, i), (2, 2, i)] for i in (0, 1)]
