"""Row changes in the driver's memory."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.model import Column, Table, TableName
from bridge.rows.order_and_slices import ROW_ORDER, RowChanges, by_table
from bridge.rows.sql.statement import Rendering, Stage
from tests.support.upstreams import events_table, row_change

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
    assert {name: found.first_ts for name, found in rows.tables().items()} == {
        TableName("m", f"t{place[0]}"): place[0] for place in places
    }
    assert {name: mine["commit_ts"].to_pylist() for name, mine in by_table(rows.table).items()} == {
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
