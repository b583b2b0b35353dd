"""Net changes of many tables at once, against the rules said plainly, change by change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import ApplyError
from bridge.events import SEP, RowChange
from bridge.model import Column, Table, TableName
from bridge.rows.key_steps import other_uniques
from bridge.rows.net_changes import Image, KeyedChanges, OrderedChanges, fold
from tests.support.upstreams import in_one_partition, row_change


def table(name: str, columns: Sequence[str], *uniques: tuple[str, ...]) -> Table:
    """The first of the unique keys is the primary key."""
    found = {
        column.lower(): Column(column, "char(9)" if column == "v" else "enum('x')", "utf8mb4", generated=False)
        for column in columns
    }
    return Table(TableName("m", name), found, uniques[:1], uniques)


TABLES = [
    table("first", ["id", "v"], ("id",)),
    table("apart", ["a", "v", "B", "w"], ("b", "a"), ("v",)),
    table("beside", ["v", "a", "b"], ("a", "b"), ("b", "v"), ("v",)),
    table("last", ["u", "w", "id"], ("id",), ("u",), ("w", "")),
    table("keyless", ["v"]),
    table("whole", ["a", "b"], ("a", "b")),
]
CATALOG = {one.name: one for one in TABLES}
TEXTS = st.sampled_from([None, "", "é", "日本"])
VALUES = st.one_of(TEXTS, st.sampled_from([1, 2]))


@st.composite
def changes(draw: st.DrawFn) -> list[RowChange]:
    """Row changes in order; some lack the row as it was, or a column, and some move their row to another key."""
    found = []
    ts = 10
    for _ in range(draw(st.integers(1, 30))):
        ts += draw(st.integers(0, 1))
        one = draw(st.sampled_from(TABLES))
        names = [column.name for column in one.columns.values()]
        key = one.keys[0] if one.keys else ()
        if one.keys and draw(st.integers(0, 5)) == 0:
            names = [name for name in names if name.lower() in key or draw(st.booleans())]
        images = [[draw(TEXTS if name == "v" else VALUES) for name in names] for _ in range(2)]
        kind = draw(st.integers(0, 3 if key else 2))
        before, after = (None, images[0], images[0], None)[kind], (images[1], None, images[1], images[1])[kind]
        if before and after and key and draw(st.booleans()):
            after = [old if name.lower() in key else new for name, old, new in zip(names, before, after, strict=True)]
        found.append(row_change(ts, one.name.table, names, key, before=before, after=after))
    return found


def values(columns: str, image: str, names: Sequence[str]) -> tuple[str, ...]:
    """Of some columns."""
    row = named(columns, image)
    return tuple(row[name] for name in names)


def named(columns: str, image: str) -> dict[str, str]:
    """The literals of an image by column."""
    return dict(zip(columns.lower().split(SEP), image.split(SEP), strict=True))


def is_whole(one: Table, columns: str | None) -> bool:
    """It names all columns of the table."""
    return set(one.columns) == set((columns or "").lower().split(SEP))


def plainly(one: Table, events: Sequence[RowChange]) -> dict[str, Any]:
    """Of each key its first and its last step; see `bridge.rows.net_changes`.  A column that an image lacks is as it
    was; whether rows of such are freed is not said."""
    key = one.keys[0]
    steps: list[tuple[Any, ...]] = []
    for number, event in enumerate(events):
        old, new = (values(event.columns, i, key) if i else None for i in (event.before, event.after))
        if old is not None and old != new:
            steps.append((event.commit_ts, 0, number, old, event.before, None, event.columns))
        if new is not None:
            known = event.before if old == new else None
            steps.append((event.commit_ts, 1, number, new, known, event.after, event.columns))
    ends: dict[tuple[str, ...], list[Any]] = {}
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    moving: dict[int, dict[str, str]] = {}
    parts = set()
    for step in sorted(steps, key=lambda step: step[:3]):
        _, _, number, where, _, after, columns = step
        ends.setdefault(where, [step, step])[1] = step
        if after is None:
            moving[number] = rows.pop(where, {})
            continue
        was = moving.get(number, rows.get(where, {})) if events[number].before else {}
        rows[where] = named(columns, after) if is_whole(one, columns) else was | named(columns, after)
        parts |= set() if is_whole(one, columns) else {where}
    found: dict[str, Any] = {"absent": set(), "written": {}}
    for where, (first, last) in ends.items():
        if last[5] is None:
            found["absent"].add(SEP.join(where))
        else:
            others = other_uniques(one, key)
            is_freed = any(not stays(first, last, unique) for unique in others)
            found["written"][frozenset(rows[where].items())] = None if where in parts else is_freed
    return found


def stays(first: Any, last: Any, unique: Sequence[str]) -> bool:
    """The row as it was is known, and so is the unique value before and after, which is the same."""
    known = [(step[6], image) for step, image in ((first, first[4]), (last, last[5])) if image is not None]
    known = [(columns, image) for columns, image in known if set(unique) <= set(columns.lower().split(SEP))]
    return len(known) == 2 and values(*known[0], unique) == values(*known[1], unique)


def told(net: KeyedChanges) -> dict[str, Any]:
    """Net changes as `plainly` has them; each key once."""
    written = [
        (frozenset(named(rows.columns, image).items()), is_freed)
        for rows in net.written
        for is_freed, images in ((False, rows.images), (True, rows.freed))
        for image in images.to_pylist()
    ]
    absent = net.absent.to_pylist()
    assert len(absent) == len(set(absent))
    assert len(written) == len(dict(written))
    return {"absent": set(absent), "written": dict(written)}


def alike(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    """The same but for what is not said."""
    written = {row: found["written"].get(row) for row, is_freed in expected["written"].items() if is_freed is not None}
    said = {row: is_freed for row, is_freed in expected["written"].items() if is_freed is not None}
    same_rows = found["written"].keys() == expected["written"].keys()
    return found["absent"] == expected["absent"] and same_rows and written == said


@settings(max_examples=50, deadline=None)
@given(changes(), st.integers(0, 3))
def test_many_tables_are_folded_like_each_by_itself(events: list[RowChange], skipped: int) -> None:
    """Tables come in the order of their first change; each one's net changes are those of the rules."""
    rows = in_one_partition(events).slice(min(skipped, len(events) - 1))
    events = events[min(skipped, len(events) - 1) :]
    nets = fold(CATALOG, rows)
    assert [net.table.name.table for net in nets] == list(dict.fromkeys(event.table for event in events))
    for net in nets:
        mine = [event for event in events if event.table == net.table.name.table]
        if isinstance(net, KeyedChanges):
            assert alike(told(net), plainly(net.table, mine)), (told(net), plainly(net.table, mine))
        elif isinstance(net, OrderedChanges):
            assert net.changes["after"].to_pylist() == [event.after for event in mine]
        else:
            assert net.copies == Counter(Image("v", event.after) for event in mine if event.after is not None)


def test_nothing_is_nothing() -> None:
    """No row changes, no tables."""
    assert fold(CATALOG, in_one_partition([])) == []


def test_two_keys_of_one_table_are_an_error() -> None:
    """Changes that identify rows by different keys cannot be folded."""
    both = table("both", ["a", "b"], ("a",), ("b",))
    both = Table(both.name, both.columns, both.uniques, both.uniques)
    rows = in_one_partition([row_change(5, "both", ["a", "b"], [key], after=[1, 2]) for key in ("a", "b")])
    with pytest.raises(ApplyError, match="different keys"):
        fold({both.name: both}, rows)


def test_an_image_without_all_literals_is_refused() -> None:
    """Literals are found by counting; an image that lacks one would shift all behind it."""
    event = row_change(5, "first", ["id", "v"], ["id"], after=[1, 2])._replace(after="1")
    with pytest.raises(ValueError, match="literal"):
        fold(CATALOG, in_one_partition([event]))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([[9], [10], [-1]], ["-1", "9", "10"]),
        ([["b"], ["a"], ["é"]], ["'a'", "'b'", "'é'"]),
        ([[2, "b"], [2, "a"], [1, "c"]], ["1\0'c'", "2\0'a'", "2\0'b'"]),
        ([[2**64 - 1], [1]], ["1", "18446744073709551615"]),
    ],
    ids=["integers", "texts", "two columns", "beyond 64 bits"],
)
def test_rows_come_in_the_order_of_their_keys(keys: list[list[object]], expected: list[str]) -> None:
    """As the server keeps them; the deleted ones as well."""
    names = [f"k{i}" for i in range(len(keys[0]))]
    one = table("t", names, tuple(names))
    written = [row_change(ts, "t", names, names, after=key) for ts, key in enumerate(keys)]
    gone = [row_change(ts, "t", names, names, before=key) for ts, key in enumerate(keys)]
    [net] = fold({one.name: one}, in_one_partition(written))
    assert isinstance(net, KeyedChanges)
    assert net.written[0].images.to_pylist() == expected
    [net] = fold({one.name: one}, in_one_partition(gone))
    assert isinstance(net, KeyedChanges)
    assert net.absent.to_pylist() == expected
