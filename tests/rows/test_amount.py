"""Bytes beside rows: more than 2 GiB of one column, and transactions and parts that are cut by bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from bridge.events import EVENT_SCHEMA
from bridge.rows.amount import Amount, weights
from bridge.rows.order_and_slices import RowChanges, cut_transactions, in_order
from tests.support.pipelines import admin, opened
from tests.support.upstreams import boundary, events_table, in_one_partition, row_change

MEBIBYTE = 1 << 20


def test_a_window_may_have_more_than_32_bits_of_a_column() -> None:
    """Arrow makes one piece of a column of which it takes rows, and the offsets of a piece have 32 bits."""
    row = row_change(0, "t", ["id", "v"], ["id"], after=[1, "x" * MEBIBYTE])
    [chunk] = events_table([(0, n, row) for n in range(64)]).to_batches()
    events = pa.Table.from_batches([chunk] * 33)  # the same memory again and again
    place, ts = EVENT_SCHEMA.get_field_index("commit_ts"), np.arange(events.num_rows)
    ordered, other = (events.set_column(place, EVENT_SCHEMA.field(place), pa.array(one)) for one in (ts, ts[::-1]))
    assert events["after"].nbytes > 1 << 31
    some = in_order(other, np.arange(0, events.num_rows, 32))
    assert some["commit_ts"].to_pylist() == list(range(31, events.num_rows, 32))
    assert set(some["offset"].to_pylist()) == {0, 32}
    pieces = [piece.count for _, piece in RowChanges.here(ordered).pieces(Amount(50_000, 128 * MEBIBYTE))]
    assert sum(pieces) == events.num_rows
    assert max(pieces) <= 128


def test_a_transaction_has_its_bytes(target: str) -> None:
    """Whole upstream transactions all the same, however large one is."""
    sizes = [10, 10, 900, 10, 10, 3000, 10, 10]
    changes = [row_change(10 + n // 2, "t", ["id", "v"], ["id"], after=[n, "x" * size]) for n, size in enumerate(sizes)]
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, v TEXT)")
        with opened(target, [("cdc", 0)], bytes_per_transaction=1500) as pipeline:
            pipeline.take(in_one_partition([*changes, boundary(20)]))
            assert pipeline.writer.counts.transactions == 3
        assert session.rows("SELECT COUNT(*), SUM(LENGTH(v)) FROM m.t") == [(8, sum(sizes))]


def test_rows_weigh_by_bytes_where_they_have_many() -> None:
    """As many as all that a transaction may hold, and one at least."""
    most = Amount(10, 1000)
    assert weights(in_one_partition([boundary(1)]), Amount(10, 10_000)) is None
    found = weights(in_one_partition([row_change(n, "t", ["id"], [], after=["x" * n]) for n in (5, 500, 1000)]), most)
    assert found is not None
    assert found[0] == pytest.approx(1, abs=0.5)
    assert np.round(found[1:]).tolist() == [6, 11]


def test_a_window_is_cut_by_bytes_where_it_has_many() -> None:
    """Few rows are beside heavy ones; where the bytes of all are few, the rows alone count."""
    sizes = (5, 500, 1000, 5, 5, 5, 5, 5, 5, 5)
    changes = [row_change(ts, "t", ["id"], [], after=["x" * size]) for ts, size in enumerate(sizes)]
    rows = RowChanges.of([in_one_partition(changes)])
    cut = {most: [piece.count for _, piece in rows.pieces(Amount(10, most))] for most in (1000, 10_000)}
    assert cut == {1000: [2, 3, 5], 10_000: [10]}


def test_heavy_rows_make_short_pieces() -> None:
    """The others are as long as they may be."""
    weight = np.array([1.0] * 10 + [10.0] * 3 + [1.0] * 10)
    assert list(cut_transactions(range(23), 10, weight)) == [(0, 10), (10, 11), (11, 12), (12, 13), (13, 23)]
    assert list(cut_transactions([7] * 23, 10, weight)) == [(0, 23)]


@pytest.mark.parametrize(
    ("amount", "pieces"), [((0, 0), 0), ((1, 1), 1), ((21, 1), 3), ((5, 1001), 2), ((20, 1000), 2), ((20, 2001), 3)]
)
def test_what_is_cut_by_either_count(amount: tuple[int, int], pieces: int) -> None:
    """Whichever asks for more pieces."""
    assert Amount(*amount).pieces(Amount(10, 1000)) == pieces
