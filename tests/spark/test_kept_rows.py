"""Row changes that the driver does not hold, without Spark: what is asked of chunks, and what tasks do with them."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from bridge.errors import RefusedRowsError
from bridge.model import Column, Table, TableName
from bridge.rows.amount import Amount
from bridge.rows.keys.key_spellings import KnownSpellings
from bridge.rows.order_and_slices import DriverRows
from bridge.rows.sql import render
from bridge.rows.sql.statement import Rendering, Statement
from bridge.spark.event_transfer import is_file
from bridge.spark.kept_rows import chunks
from bridge.spark.kept_rows.chunks import Chunk, ChunkIndex, Spans, Wanted, export_chunk
from bridge.spark.kept_rows.shards import Shards
from bridge.spark.kept_rows.statements import Rendered, read_statements
from tests.support.upstreams import events_table, row_change

NAME = TableName("m", "t")
ALL = Wanted()
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


@pytest.mark.parametrize("in_file", [True, False])
def test_a_chunk_answers_as_rows_in_memory_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_file: bool) -> None:
    """Whatever is meant of it, and however it is cut into blocks."""
    random = Random(1)
    for block in (Amount(1, 1 << 20), Amount(1024, 300), Amount(1024, 1 << 20)):
        monkeypatch.setattr(chunks, "_BLOCK", block)
        rows = some_changes(random, 60)
        value = export_chunk(rows, str(tmp_path) if in_file else None)
        assert is_file(value) is in_file
        for _ in range(10):
            low, high = sorted(random.choices(range(95, 145), k=2))
            begins = random.choice([{}, {"a": 120}, {"a": 110, "b": 130}])
            wanted = Wanted(low, high, begins, random.choice([frozenset(), frozenset({NAME})]))
            held = wanted.of(DriverRows.of([rows]).between(0, 1000)._table)
            expected = DriverRows(held)
            chunk = Chunk(value, ChunkIndex.of(value), wanted)
            assert chunk.rows().equals(held)
            assert chunk.spans().amount.rows == chunk.moments().amount.rows == expected.count
            assert chunk.spans().amount == chunk.moments().amount
            assert np.unique(chunk.moments().first).tolist() == sorted(set(expected.marks(())))
            bounds = sorted(random.choices(range(90, 150), k=random.randrange(2, 12)))
            marks = chunk.marks(bounds).tolist()
            assert set(marks) <= set(expected.marks(()))
            for start, end in pairwise(bounds):
                assert bool(expected.between(start, end).count) is any(start <= ts < end for ts in marks)


def test_runs_are_put_in_order() -> None:
    """And none are none."""
    assert Spans.joined([]).amount == Amount(0, 0)
    one, other = (Spans(*(np.array([n]) for n in numbers)) for numbers in ((5, 6, 7, 8), (1, 2, 3, 4)))
    assert Spans.joined([one, other]).first.tolist() == [1, 5]


def rendered(
    rendering: Rendering, table: Table, changes: pa.Table, shards: int, wanted: Wanted = ALL
) -> list[Rendered]:
    """As tasks do."""
    made = Shards.of({NAME: table}, rendering, KnownSpellings({}), shards, None)
    value = export_chunk(changes, None)
    divided = list(made.divide(iter([Chunk(value, ChunkIndex.of(value), wanted)])))
    found = [one for shard in range(shards) for one in made._render(shard, [d for d in divided if d[0] == shard])]
    for one in found:
        if not isinstance(one, Rendered):
            raise one
    return [one for one in found if isinstance(one, Rendered)]


def statements(rendering: Rendering, changes: pa.Table, shards: int) -> list[Statement]:
    return [
        statement
        for one in rendered(rendering, TABLE, changes, shards)
        for statement in read_statements(one, {NAME: TABLE})
    ]


def test_statements_and_loads_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they were rendered, shard by shard: each row in one of them."""
    monkeypatch.setattr(render, "MIN_BYTES", 0)
    changes = events_table([(0, i, row_change(10, "t", ["id"], ["id"], after=[i])) for i in range(20)])
    [sql] = statements(Rendering("_bridge"), changes, 1)
    assert sql == next(iter(DriverRows(changes).statements({NAME: TABLE}, Rendering("_bridge"))))
    loads = statements(Rendering("_bridge", load_bytes=1 << 20, loadable=frozenset({NAME})), changes, 3)
    assert len(loads) == 3
    bodies = [bytes(one.load.body).decode().split() for one in loads if one.load is not None]
    assert sorted(int(row) for body in bodies for row in body) == list(range(20))


def test_a_chunk_around_a_window_gives_nothing() -> None:
    """It has row changes before and after, and none in between."""
    changes = events_table([(0, ts, row_change(ts, "t", ["id"], ["id"], after=[ts])) for ts in (10, 20)])
    assert rendered(Rendering("_bridge"), TABLE, changes, 2, Wanted(12, 18)) == []


def test_a_refused_row_comes_back_with_all_its_words() -> None:
    """As the driver would say it."""
    broken = row_change(10, "t", ["id", "v"], ["id"], after=[1, 2])
    changes = events_table([(0, 0, broken)])
    with pytest.raises(Exception, match="lacks the column v") as here:
        list(DriverRows(changes).statements({NAME: TABLE}, Rendering("_bridge")))
    with pytest.raises(type(here.value)) as there:
        rendered(Rendering("_bridge"), TABLE, changes, 2)
    assert str(there.value) == str(here.value)
    refused = RefusedRowsError("no", table=("m", "t"), code="bad-value", where="x", fix="y", is_exact=True)
    again = pickle.loads(pickle.dumps(refused))
    assert (str(again), again.table, again.code, again.is_exact) == (str(refused), ("m", "t"), "bad-value", True)
