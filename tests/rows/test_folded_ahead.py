"""Row changes that are folded before they are due."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.events import Kind, RowChange
from bridge.model import Column, Table, TableName
from bridge.pipeline import applier
from bridge.pipeline.applier import FoldedAhead
from bridge.protocols.values.row_image import with_declared_types
from bridge.rows.order_and_slices import RowChanges
from bridge.rows.sql.statement import Rendering
from tests.support.upstreams import events_table, row_change

T = TableName("m", "t")
RENDERING = Rendering("_b")
ROWS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.booleans()), min_size=1, max_size=8)


def table(key_type: str = "bigint", collation: str | None = None) -> Table:
    columns = {
        "id": Column("id", key_type, "utf8mb4" if collation else None, generated=False, collation=collation),
        "v": Column("v", "bigint", None, generated=False),
    }
    return Table(T, columns, (("id",),), (("id",),))


@pytest.fixture(autouse=True)
def few_rows_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applier, "LEAST_ROWS", 1)


def change(ts: int, key: object, value: int | None) -> RowChange:
    values = [key, value]
    if value is None:
        return row_change(ts, "t", ["id", "v"], ["id"], before=[key, 0])._replace(kind=Kind.DELETE)
    return row_change(ts, "t", ["id", "v"], ["id"], after=values)


def rows_of(drawn: list[tuple[int, int, bool]], first_ts: int = 0) -> RowChanges:
    events = [change(first_ts + ts, key, None if goes else offset) for offset, (ts, key, goes) in enumerate(drawn)]
    return RowChanges.of([events_table([(0, first_ts * 100 + n, event) for n, event in enumerate(events)])])


def sql(rows: Any, catalog: Mapping[TableName, Table]) -> list[bytes]:
    return [statement.sql for statement in rows.statements(catalog, RENDERING)]


def is_folded(rows: Any) -> bool:
    return rows.folded is not None


@settings(max_examples=50, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=4), st.data())
def test_what_was_folded_ahead_is_used_for_the_same_rows_only(
    drawn: list[list[tuple[int, int, bool]]], data: st.DataObject
) -> None:
    """Pieces come in order; some come otherwise than was guessed, or not at all.

    The statements are always the same.
    """
    catalog = {T: table()}
    pieces = [rows_of(some, 10 * number) for number, some in enumerate(drawn)]
    ahead = FoldedAhead()
    ahead.fold(pieces, catalog)
    for number, piece in enumerate(pieces):
        way = data.draw(st.sampled_from(["as guessed", "skipped", "shorter", "more"]))
        if way == "skipped":
            continue
        due = {
            "as guessed": rows_of(drawn[number], 10 * number),
            "shorter": RowChanges.here(piece.table.slice(1)),
            "more": rows_of([*drawn[number], (5, 9, False)], 10 * number),
        }[way]
        if due.count == 0:
            continue
        found = ahead.folded(due, catalog)
        assert is_folded(found) == (way == "as guessed")
        assert sql(found, catalog) == sql(due, catalog)


def test_a_table_that_was_loaded_anew_is_folded_anew() -> None:
    """Its definition may be another one: here a column is too narrow since, and the check of types must see it."""
    old, rows = {T: table()}, rows_of([(1, 1, False)])
    ahead = FoldedAhead()
    ahead.fold([rows], old)
    assert not is_folded(ahead.folded(rows, {T: table()}))
    ahead.fold([rows], old)
    assert is_folded(ahead.folded(rows, {**old, TableName("m", "other"): table()}))


def test_types_are_checked_against_the_tables_as_they_are_now() -> None:
    """What fitted the former definition of a table says nothing of its present one."""
    declared = change(1, 1, 7)._replace(columns=with_declared_types("id\0v", ("", ""), ("bigint", "bigint")))
    rows = RowChanges.of([events_table([(0, 0, declared)])])
    wide = table()
    other = replace(wide, columns={**wide.columns, "v": replace(wide.columns["v"], type="date")})
    ahead = FoldedAhead()
    for now in (wide, other):
        catalog = {T: now}
        ahead.fold([rows], catalog)
        assert is_folded(ahead.folded(rows, catalog)) == (now is wide)


@pytest.mark.parametrize(
    ("drawn", "catalog"),
    [([(1, 1, False)], {}), ([(1, 1, False)], {T: replace(table(), columns={"id": table().columns["id"]})})],
    ids=["a table that was not loaded yet", "a column that the table lacks"],
)
def test_what_cannot_be_folded_is_left_until_it_is_due(
    drawn: list[tuple[int, int, bool]], catalog: dict[TableName, Table]
) -> None:
    """Whatever is wrong with it is told then."""
    rows, ahead = rows_of(drawn), FoldedAhead()
    ahead.fold([rows], catalog)
    assert ahead.folded(rows, catalog) is rows


class Slow(dict[TableName, Table]):
    """A catalog whose first look waits."""

    def __init__(self, found: Mapping[TableName, Table]) -> None:
        super().__init__(found)
        self.is_looked_at, self.goes_on, self.looks = threading.Event(), threading.Event(), 0

    def __getitem__(self, name: TableName) -> Table:
        self.looks += 1
        self.is_looked_at.set()
        assert self.goes_on.wait(10)
        return super().__getitem__(name)


@pytest.fixture
def folding() -> Iterator[tuple[FoldedAhead, Slow, list[RowChanges], threading.Thread]]:
    """Two pieces, the first of which is being folded by a thread."""
    ahead, catalog = FoldedAhead(), Slow({T: table()})
    pieces = [rows_of([(1, 1, False)]), rows_of([(1, 1, False)], 10)]
    thread = threading.Thread(target=ahead.fold, args=(pieces, catalog), daemon=True)
    thread.start()
    assert catalog.is_looked_at.wait(10)
    yield ahead, catalog, pieces, thread
    catalog.goes_on.set()
    thread.join(10)
    assert not thread.is_alive()


def test_a_piece_that_is_being_folded_is_waited_for(folding: Any) -> None:
    """To fold it a second time would take longer."""
    ahead, catalog, pieces, _ = folding
    found: list[Any] = []
    taking = threading.Thread(target=lambda: found.append(ahead.folded(pieces[0], catalog)), daemon=True)
    taking.start()
    taking.join(0.05)
    assert not found
    catalog.goes_on.set()
    taking.join(10)
    assert is_folded(found[0])


def test_a_piece_that_is_due_before_it_is_folded_is_taken_away(folding: Any) -> None:
    """Nobody folds it in vain."""
    ahead, catalog, pieces, thread = folding
    assert ahead.folded(pieces[1], catalog) is pieces[1]
    catalog.goes_on.set()
    thread.join(10)
    of_one = Slow({T: table()})
    of_one.goes_on.set()
    FoldedAhead().fold(pieces[:1], of_one)
    assert catalog.looks == of_one.looks > 0
