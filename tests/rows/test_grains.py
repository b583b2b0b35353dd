"""By window and by transaction, a table ends with the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from bridge.events import RowChange
from bridge.model import Table, TableName
from bridge.rows import grains
from bridge.rows.grains import Facts, why_by_transaction
from bridge.rows.sql import render
from bridge.rows.sql.statement import MIN_BYTES, Rendering
from tests.rows.test_net_changes_on_target import Bench, in_any_order, rows_of, windows_of
from tests.support.histories import SHAPES, Dialect, History, Row, Shape, messages
from tests.support.pipelines import drop_all

TRANSACTIONS = 14
PREFIX = Shape(
    "k VARCHAR(20) COLLATE utf8mb4_general_ci, u INT, v INT, extra INT, PRIMARY KEY (k(2)), UNIQUE (u)",
    ("k", "u", "v"),
    (("abx", "ABy", "bbx", "bb", "cc"), (None, 1, 2, 3), tuple(range(50))),
    ((0,), (1,)),
    compared=lambda value: value[:2].lower() if isinstance(value, str) else value,
    extra="extra",
)
ALL = {**SHAPES, "prefix key": PREFIX}
Windows = list[tuple[int, list[RowChange]]]
KEYED, TWO = (Table(TableName("m", "t"), {}, (("id",),), uniques) for uniques in ((("id",),), (("id",), ("u",))))
KEYLESS = Table(TableName("m", "t"), {})
IMAGES = frozenset({"id"})
PLAIN = Facts(("id",), IMAGES, lacks=False, parts=False, goes=False, is_plain=True)
NOTHING, SAFE, REFUSED = (
    Rendering(""),
    Rendering("", safe_mode=True),
    Rendering("", in_order=frozenset({TableName("m", "t")})),
)


@pytest.mark.parametrize(
    ("table", "facts", "rendering", "grain"),
    [
        (KEYED, PLAIN, NOTHING, "window"),
        (KEYED, PLAIN._replace(goes=True), NOTHING, "window"),
        (KEYED, PLAIN._replace(goes=True, is_plain=False), NOTHING, "transaction"),
        (KEYED, PLAIN._replace(lacks=True), NOTHING, "window"),
        (KEYED, PLAIN._replace(lacks=True, goes=True), NOTHING, "transaction"),
        (KEYED, PLAIN._replace(lacks=True, parts=True), NOTHING, "transaction"),
        (KEYED, PLAIN._replace(lacks=True, lists=frozenset("ab")), NOTHING, "transaction"),
        (TWO, PLAIN._replace(lacks=True), NOTHING, "transaction"),
        (KEYED, PLAIN, SAFE, "window"),
        (TWO, PLAIN, SAFE, "transaction"),
        (KEYED, PLAIN, REFUSED, "transaction"),
        (KEYLESS, PLAIN._replace(key=()), NOTHING, "window"),
        (KEYLESS, PLAIN._replace(key=(), goes=True), NOTHING, "transaction"),
    ],
)
def test_the_grain_of_a_table(table: Table, facts: Facts, rendering: Rendering, grain: str) -> None:
    """By window only where the bridge itself can tell which rows are one, and what they hold."""
    assert bool(why_by_transaction(table, facts, rendering)) == (grain == "transaction")


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(request.getfixturevalue(request.param).url)
    yield bench
    render.MIN_BYTES = MIN_BYTES  # type: ignore[attr-defined]
    bench.forget_pipelines()
    drop_all(bench.session)
    bench.session.close()


def compared(rows: list[Row]) -> list[str]:
    """Rows in any order.  MySQL gives the number of an ENUM as a float."""
    return in_any_order(
        [tuple(int(one) if isinstance(one, float) and one.is_integer() else one for one in row) for row in rows]
    )


def ended(bench: Bench, shape: Shape, windows: Windows, seed: int) -> tuple[list[str], list[str]]:
    """The upstream's columns and all columns after these windows; between them, somebody writes what only the target
    has."""
    bench.begin(shape)
    for number, (end, events) in enumerate(windows):
        bench.apply("one", events, Random(seed), end)
        if shape.extra:
            stays = "at = at," if "at" in shape.columns else ""
            bench.session.execute(f"UPDATE m.t SET {stays} {shape.extra} = COALESCE({shape.extra}, {number})")
    assert bench.pipeline("one").writer.counts.safe_mode == 0, "a unique value was not freed"
    bench.forget_pipelines("one")
    return compared(rows_of(bench.session, shape)), compared(bench.session.rows("SELECT * FROM m.t"))


@pytest.mark.server
@pytest.mark.parametrize(
    "seeds", [range(8, 12), pytest.param(range(12, 100), marks=pytest.mark.soak)], ids=["few", "many"]
)
@pytest.mark.parametrize("name", ALL)
def test_by_window_as_by_transaction(bench: Bench, name: str, seeds: range) -> None:
    """For any history, whatever the transactions did to keys and unique values, however it is sent and cut to windows:
    the rows are the upstream's, and what only the target has is the same."""
    shape = ALL[name]
    for seed in seeds:
        random = Random(seed)
        dialect = Dialect(*(random.random() < 0.5 for _ in range(3)))
        history, begin = History(shape, random), bench.ts
        windows: Windows = []
        for window in windows_of(history, bench, TRANSACTIONS):
            events = [event for ts, changes in window for event in messages(shape, changes, ts, dialect, random)]
            windows.append((window[-1][0] + 1, events))
        now, found = bench.ts, list[Any]()
        for grain in (nullcontext(), patch.object(grains, "FORCED", "transaction")):
            bench.ts = begin
            with grain:
                found.append(ended(bench, shape, windows, seed))
        bench.ts = now
        assert found[0] == found[1], f"seed {seed}"
        assert found[0][0] == compared(history.rows), f"seed {seed}"
