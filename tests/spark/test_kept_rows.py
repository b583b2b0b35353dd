"""Row changes wherever they wait, without Spark: what is asked of chunks, and what tasks do with them."""

from __future__ import annotations

import gc
import pickle
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest

from bridge.errors import RefusedRowsError
from bridge.model import Column, Table, TableName
from bridge.rows import order_and_slices
from bridge.rows.gathering import Amount
from bridge.rows.order_and_slices import Part, RowChanges, Selection, TableChunk, in_order
from bridge.rows.sql import render
from bridge.rows.sql.statement import Rendering, Stage, Statement
from bridge.spark import shards
from bridge.spark.event_transfer import export_events
from bridge.spark.kept_rows import FileChunk, Span, referenced_rows
from bridge.spark.shards import Shards
from tests.support.upstreams import events_table, row_change

T = TypeVar("T")
NAME, OTHER = TableName("m", "t"), TableName("m", "u")
ALL = Selection()
TABLE = Table(NAME, {"id": Column("id", "int", None, False, False)}, (("id",),), (("id",),))


def some_changes(random: Random, count: int) -> pa.Table:
    """In no order, of two topics and two tables."""
    return pa.concat_tables(
        events_table(
            [
                (0, n, row_change(random.randrange(100, 140), random.choice("tu"), ["id"], ["id"], after=[n]))
                for n in range(count)
            ],
            topic,
        )
        for topic in ("a", "b")
    )


class Elsewhere:
    """A chunk that the driver asks, as executors answer."""

    is_here = False

    def __init__(self, ordered: pa.Table) -> None:
        self._value = export_events(ordered, None)
        self.amount, self.first_ts, self.last_ts = Span.of(ordered)

    def ask(self, selection: Selection, question: Callable[[pa.Table], T]) -> list[T]:
        """As in a task."""
        found: list[T] = pickle.loads(pickle.dumps([pickle.loads(pickle.dumps(question))(self._rows(selection))]))
        return found

    def tables(self, selection: Selection, *, at_once: bool) -> list[pa.Table]:
        """One."""
        del at_once
        return [self._rows(selection)]

    def _rows(self, selection: Selection) -> pa.Table:
        return referenced_rows((self._value, selection))


@pytest.mark.parametrize("place", ["memory", "file", "elsewhere"])
def test_a_chunk_answers_alike_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Whatever is meant of it, however it is divided into runs, and whatever else is beside it."""
    random = Random(1)
    put: Callable[[pa.Table], Part] = {
        "memory": lambda rows: Part(TableChunk(rows)),
        "file": lambda rows: Part(FileChunk(export_events(rows, str(tmp_path)), Span.of(rows))),
        "elsewhere": lambda rows: Part(Elsewhere(rows)),
    }[place]
    for most_runs in (1 << 18, 10, 1):
        monkeypatch.setattr(order_and_slices, "_MOST_RUNS", most_runs)
        for _ in range(10):
            changes = some_changes(random, 60)
            halves = [in_order(changes, np.arange(half, changes.num_rows, 2)) for half in (0, 1)]
            low, high = sorted(random.choices(range(95, 145), k=2))
            begins = random.choice([{}, {"a": 120}, {"a": 110, "b": 130}])
            names = random.choice([{NAME}, {NAME, OTHER}, {OTHER}, set()])
            rows = RowChanges(tuple(map(put, halves))).from_begins(begins).between(low, high).of_tables(names)
            expected = [
                row
                for row in in_order(changes).to_pylist()
                if low <= row["commit_ts"] < high
                and row["commit_ts"] >= begins.get(row["topic"], 0)
                and TableName(row["schema"], row["table"]) in names
            ]
            times = [row["commit_ts"] for row in expected]
            assert rows.table.to_pylist() == expected
            assert rows.count == len(expected) == sum(map(sum, rows.tables().values()))
            for name in (NAME, OTHER):
                assert rows.changes(name).to_pylist() == [row for row in expected if row["table"] == name.table]
            bounds = sorted(random.choices(range(90, 150), k=random.randrange(2, 12)))
            marks = rows.marks(bounds)
            assert set(marks) <= set(times)
            for start, end in pairwise(bounds):
                assert any(start <= ts < end for ts in times) is any(start <= ts < end for ts in marks)
            pieces = list(rows.pieces(Amount(7, random.choice([500, 1 << 20]))))
            assert [row for _, piece in pieces for row in piece.table.to_pylist()] == expected
            for (following, piece), (_, behind) in pairwise(pieces):
                assert following is not None
                assert piece.last_ts < following == behind.table["commit_ts"][0].as_py()
            left = rows.from_ts(120)
            assert left.between(120, 1000).count == sum(ts >= 120 for ts in times)
            dropped = rows.count_below(120, {"a": 100, "b": 115}.__getitem__, {("a", 0): 30})
            assert dropped.late.total() + dropped.repeated == sum(ts < 120 for ts in times)
            assert dropped.late["a", 0] == sum(
                row["topic"] == "a" and row["offset"] >= 30 for row in expected if row["commit_ts"] < 120
            )


def test_a_file_is_there_as_long_as_its_rows_are_needed(tmp_path: Path) -> None:
    """A window holds it, too."""
    rows = in_order(some_changes(Random(1), 20))
    waits = RowChanges((Part(FileChunk(export_events(rows, str(tmp_path)), Span.of(rows))),))
    window = waits.between(0, 120)
    waits = waits.from_ts(1000)
    gc.collect()
    assert not waits.parts
    assert list(tmp_path.iterdir())
    del window
    gc.collect()
    assert not list(tmp_path.iterdir())


def statements(rendering: Rendering, changes: pa.Table, count: int, selection: Selection = ALL) -> list[Statement]:
    """As of what tasks have divided."""
    made = Shards({NAME: TABLE}, rendering, count, None)
    divided = list(made.divide([referenced_rows((export_events(in_order(changes), None), selection))]))
    of_shards = (made.statements(one for one in divided if one[0] == shard) for shard in range(count))
    return [statement for some in of_shards for statement in some]


def test_each_row_is_in_one_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a statement, or in a load."""
    monkeypatch.setattr(render, "MIN_BYTES", 0)
    changes = events_table([(0, i, row_change(10, "t", ["id"], ["id"], after=[i])) for i in range(20)])
    [sql] = statements(Rendering("_bridge"), changes, 1)
    assert sql == next(iter(RowChanges.here(changes).statements({NAME: TABLE}, Rendering("_bridge"))))
    loads = statements(Rendering("_bridge", load_bytes=1 << 20, loadable=frozenset({NAME})), changes, 3)
    assert len(loads) == 3
    bodies = [bytes(one.load.body).decode().split() for one in loads if one.load is not None]
    assert sorted(int(row) for body in bodies for row in body) == list(range(20))


def test_a_chunk_around_a_window_gives_nothing() -> None:
    """It has row changes before and after, and none in between."""
    changes = events_table([(0, ts, row_change(ts, "t", ["id"], ["id"], after=[ts])) for ts in (10, 20)])
    assert statements(Rendering("_bridge"), changes, 2, Selection(12, 18)) == []


@pytest.mark.parametrize("most_runs", [1 << 18, 1])
def test_slices_of_a_large_transaction_leave_its_neighbours_alone(
    monkeypatch: pytest.MonkeyPatch, most_runs: int
) -> None:
    """Of one that is too large, what goes comes before what is written, in whatever slices: a key that goes and comes
    within it is there in the end.  Others stay in order, however coarsely the rows are divided into runs."""
    monkeypatch.setattr(shards, "_SHARD", Amount(1, 1 << 30))
    monkeypatch.setattr(order_and_slices, "_MOST_RUNS", most_runs)
    comes = [row_change(ts, "t", ["id"], ["id"], after=[key]) for ts, key in ((10, 1), (11, 2), (11, 3), (12, 4))]
    goes = [row_change(ts, "t", ["id"], ["id"], before=[key]) for ts, key in ((11, 1), (11, 3), (13, 4))]
    changes = events_table([(0, n, event) for n, event in enumerate([*comes, *goes])])
    rows = RowChanges(tuple(Part(Elsewhere(in_order(changes, np.arange(n, changes.num_rows, 2)))) for n in (0, 1)))
    there = set[int]()
    for one in shards._in_order(rows, {NAME: TABLE}, Rendering("_bridge"), is_whole=True):
        keys = {int(key) for key in re.findall(r"\d+", one.sql.decode())}
        there = there | keys if one.stage is Stage.WRITE else there - keys
    assert there == {2, 3}


def test_a_refused_row_comes_back_with_all_its_words() -> None:
    """As the driver would say it."""
    broken = row_change(10, "t", ["id", "v"], ["id"], after=[1, 2])
    changes = events_table([(0, 0, broken)])
    with pytest.raises(Exception, match="lacks the column v") as here:
        list(RowChanges.here(changes).statements({NAME: TABLE}, Rendering("_bridge")))
    with pytest.raises(type(here.value)) as there:
        statements(Rendering("_bridge"), changes, 2)
    assert str(there.value) == str(here.value)
    refused = RefusedRowsError("no", table=("m", "t"), code="bad-value", where="x", fix="y", is_exact=True)
    again = pickle.loads(pickle.dumps(refused))
    assert (str(again), again.table, again.code, again.is_exact) == (str(refused), ("m", "t"), "bad-value", True)
