"""Where the literals of large images are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.events import EVENT_SCHEMA, SEP
from bridge.model import Column, Table, TableName
from bridge.rows import literal_offsets
from bridge.rows.gathering import Amount, distinct, weights
from bridge.rows.literal_offsets import Cells
from bridge.rows.order_and_slices import ROW_ORDER, RowChanges, cut_transactions, in_order
from bridge.rows.sql.statement import Rendering, Stage
from tests.support.pipelines import admin, opened
from tests.support.upstreams import boundary, events_table, in_one_partition, row_change


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_separators_lie_anywhere_in_blocks(monkeypatch: pytest.MonkeyPatch, block: int, first: int) -> None:
    """They are looked for block by block: at the first and the last byte of one, and in none at all."""
    monkeypatch.setattr(literal_offsets, "_BLOCK", block)
    rows = [["1", "", "'a'"], None, ["", "", ""], ["'long enough for several'", "2", "3"], ["4", "5", "6"]]
    images = pa.array([row and SEP.join(row) for row in rows], pa.large_string()).slice(first)
    cells = Cells(images, np.zeros(len(images), np.int64), [3])
    for position in range(3):
        expected = [row and row[position] for row in rows[first:]]
        assert cells.joined([[position]]).to_pylist() == expected


@pytest.mark.parametrize("seed", range(20))
def test_a_compiled_function_finds_the_same_separators(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Of images that begin and end anywhere in words of eight bytes; one too many or too few is an error."""
    rng = np.random.default_rng(seed)
    characters = rng.choice(np.array([0, 1, 0x7F, 0x80, 0xFF], np.uint8), 5_000)
    offsets = np.sort(rng.integers(0, 5_000, 3))
    expected = np.flatnonzero(characters[offsets[0] : offsets[-1]] == 0) + offsets[0]
    for pays in (False, True):
        monkeypatch.setattr(literal_offsets, "_readiness", Certain(pays))
        assert literal_offsets.separators(characters, offsets, len(expected)).tolist() == expected.tolist()
        for wrong in (len(expected) - 1, len(expected) + 1):
            with pytest.raises(ValueError, match="a literal for each of their columns"):
                literal_offsets.separators(characters, offsets, max(0, wrong) if len(expected) else 1)


class Certain:
    """Says that compiled functions always pay, or never."""

    def __init__(self, pays: bool) -> None:
        self._pays = pays

    def pays(self, size: int) -> bool:
        del size
        return self._pays


TEXTS = st.lists(st.sampled_from(["", "a", "b", "aa", "ab", "é", None]), max_size=6)


@given(TEXTS, TEXTS, st.integers(0, 3))
def test_values_are_numbered_as_they_come(first: list[str | None], second: list[str | None], start: int) -> None:
    """One value in all rows, several, none, null: each combination has a number, from 0 in the order it comes first."""
    rows = list(zip(first, second, strict=False))
    table = pa.table(
        {"x": pa.array([x for x, _ in rows], pa.string()), "y": pa.array([y for _, y in rows], pa.string())}
    )
    values, codes = distinct(table.slice(start), ("x", "y"))
    assert values == list(dict.fromkeys(rows[start:]))
    assert [values[code] for code in codes] == rows[start:]


PLACES = st.lists(st.tuples(*[st.integers(0, 2)] * 4, st.sampled_from(["cdc", "b", "é", "cdc1"])), unique=True)


@settings(max_examples=50, deadline=None)
@given(PLACES, st.integers(0, 5))
def test_the_order_is_that_of_commit_ts_and_position(places: list[tuple[int, int, int, int, str]], cut: int) -> None:
    """By commit_ts, topic, partition, offset and index, whatever order they came in; topics as texts compare."""
    tables = [
        events_table(
            [(partition, offset, row_change(ts, f"t{ts}", ["id"], ["id"], after=[1])._replace(index=index))], t
        )
        for ts, partition, offset, index, t in places
    ]
    rows = RowChanges.of([pa.concat_tables(some) for some in (tables[:cut], tables[cut:]) if some])
    found = [tuple(row[name] for name in ROW_ORDER) for row in rows.table.to_pylist()]
    assert found == sorted((ts, t, partition, offset, index) for ts, partition, offset, index, t in places)
    assert {name: found.inserts for name, found in rows.tables().items()} == Counter(
        TableName("m", f"t{place[0]}") for place in places
    )
    assert {name: rows.changes(name)["commit_ts"].to_pylist() for name in rows.tables()} == {
        TableName("m", f"t{ts}"): [place[0] for place in found if place[0] == ts] for ts, *_ in places
    }


@settings(max_examples=100, deadline=None)
@given(st.lists(PLACES, max_size=3), st.integers(0, 3), st.integers(0, 3))
def test_windows_of_several_stores_are_in_order(
    drawn: list[list[tuple[int, int, int, int, str]]], low: int, high: int
) -> None:
    """Whatever lies in which store: a window holds what is due, in order, and what is left is the rest."""
    stores = [RowChanges.of([table_of(place) for place in places]) for places in drawn]
    places = sorted((ts, t, partition, offset, index) for some in drawn for ts, partition, offset, index, t in some)
    rows = RowChanges.joined(stores, low, high)
    assert [tuple(row[name] for name in ROW_ORDER) for row in rows.table.to_pylist()] == [
        place for place in places if low <= place[0] < high
    ]
    left = [store.from_ts(high) for store in stores]
    assert sum(store.amount.rows for store in left) == sum(place[0] >= high for place in places)
    assert max((store.last_ts for store in left), default=-1) == max(
        (place[0] for place in places if place[0] >= high), default=-1
    )


def table_of(place: tuple[int, int, int, int, str]) -> pa.Table:
    """One row change at a place."""
    ts, partition, offset, index, topic = place
    return events_table(
        [(partition, offset, row_change(ts, "t", ["id"], ["id"], after=[1])._replace(index=index))], topic
    )


def test_few_rows_that_are_left_do_not_keep_the_others_in_memory() -> None:
    """A slice would, and a slice of a slice."""
    store = RowChanges.of([table_of((ts, 0, ts, 0, "cdc")) for ts in range(100)])
    left = store.from_ts(40).from_ts(70).from_ts(90)
    assert left.amount.rows == 10
    assert left.table.get_total_buffer_size() < store.table.get_total_buffer_size() / 2


def test_statements_come_table_by_table() -> None:
    """With many tables the server would open each of them twice otherwise."""
    names = [TableName("m", "a"), TableName("m", "b")]
    catalog = {name: Table(name, {"id": Column("id", "int", None, False)}, (("id",),), (("id",),)) for name in names}
    deletes = [row_change(1, name.table, ["id"], ["id"], before=[1]) for name in names]
    inserts = [row_change(2, name.table, ["id"], ["id"], after=[2]) for name in names]
    rows = RowChanges.of([events_table([(0, number, event) for number, event in enumerate([*deletes, *inserts])])])
    found = [(one.table, one.stage) for one in rows.statements(catalog, Rendering("_bridge"))]
    assert found == [(name, stage) for name in names for stage in (Stage.DELETE, Stage.WRITE)]


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
