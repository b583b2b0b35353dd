"""The last state of every key, from row changes."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.events import EVENT_SCHEMA, SEP, Kind
from bridge.model import Column, PartitionStart, Table, TableName
from bridge.rows.grouping import linked
from bridge.rows.literal_offsets import Cells
from bridge.verify.log.changes.lineage import LoggedChange, NameIdentity, trace
from bridge.verify.log.folded_steps import balance, buckets, completed, fold_steps, last_of_keys
from bridge.verify.log.hashes.hashed_steps import hashed
from bridge.verify.log.hashes.text_hashes import text_hashes
from bridge.verify.log.recompute import together
from bridge.verify.log.row_groups import LogPlan, ReplicatedTable
from bridge.verify.log.row_steps import links, steps

Op = tuple[str, int, int, dict[str, int]]
"""A change of the model: what, a key, the key it moves to, and values."""

T = TableName("app", "t")
TABLE = Table(T, {name: Column(name, "int", None, False) for name in ("id", "v", "w")}, (("id",),), (("id",),))
KEYED, KEYLESS = ReplicatedTable(TABLE, ("id",)), ReplicatedTable(TABLE, ())


def change(ts: int, before: str | None, after: str | None, **more: Any) -> dict[str, Any]:
    """A row change of `id,v` rows; partition, offset, by_time may be given."""
    kind = Kind.INSERT if before is None else Kind.DELETE if after is None else Kind.UPDATE
    given = {"topic": "x", "partition": 0, "offset": ts, "index": 0, "by_time": False, "columns": f"id{SEP}v", **more}
    images = {"before": before and before.replace(",", SEP), "after": after and after.replace(",", SEP)}
    return {
        "kind": int(kind),
        "commit_ts": ts,
        "schema": "app",
        "table": "t",
        "key": "id",
        "text": None,
        **given,
        **images,
    }


def folded(table: ReplicatedTable, changes: list[dict[str, Any]], **plan: Any) -> list[dict[str, Any]]:
    """Rows of the result, however the changes are divided over tasks."""
    told: dict[str, Any] = {"histories": {}, "limit": 1000, "read": None, **plan}
    log = LogPlan((table,), **told)
    pairs = set().union(*(links(log, pa.Table.from_pylist([one], EVENT_SCHEMA)) for one in changes))
    log = replace(log, units={key: root for key, (_, root) in linked(pairs).items()})
    found = [steps(log, pa.Table.from_pylist([one], EVENT_SCHEMA)) for one in changes]
    shared = fold_steps(pa.concat_tables([fold_steps(found[0]), *found[1:]]))
    spread = [mine for _, mine in buckets(shared, 3)]
    result = pa.concat_tables([completed(fold_steps(mine)) for mine in spread] or [shared])
    return (result if table.key else balance(result)).to_pylist()


def states(changes: list[dict[str, Any]], **plan: Any) -> dict[str, str | None]:
    """Key to image, None where the row is gone."""
    rows = folded(KEYED, changes, **plan)
    return {row["key"]: row["image"] and row["image"].replace(SEP, ",") for row in rows}


STATES: list[tuple[str, list[dict[str, Any]], dict[str, str | None]]] = [
    ("the last image", [change(1, None, "1,1"), change(2, "1,1", "1,2")], {"1": "1,2"}),
    ("a delete", [change(1, None, "1,1"), change(2, "1,1", None)], {"1": None}),
    ("order of commit ts, not of arrival", [change(2, "1,1", "1,2"), change(1, None, "1,1")], {"1": "1,2"}),
    ("a key that moves", [change(1, None, "1,1"), change(2, "1,1", "2,1")], {"1": None, "2": "2,1"}),
    ("an image beats a delete of its commit ts", [change(1, None, "1,9", offset=1), change(1, "1,1", None, offset=2)],
     {"1": "1,9"}),
    ("nothing at or above the limit", [change(1, None, "1,1"), change(1000, "1,1", None)], {"1": "1,1"}),
    ("event times do not turn a partition round",
     [change(5, None, "1,1", by_time=True, offset=1), change(5, "1,1", None, by_time=True, offset=2),
      change(4, None, "1,3", by_time=True, offset=3)], {"1": "1,3"}),
    ("event times order partitions",
     [change(5, None, "1,1", by_time=True, partition=2, offset=1),
      change(7, "1,1", None, by_time=True, partition=1, offset=9)], {"1": None}),
    ("a partition that went back stays behind what it showed",
     [change(8, None, "1,1", by_time=True, partition=2, offset=1),
      change(5, "1,1", "1,2", by_time=True, partition=2, offset=2),
      change(6, "1,1", "1,7", by_time=True, partition=1, offset=9)], {"1": "1,2"}),
    ("a partition of another topic has other offsets",
     [change(5, None, "1,1", by_time=True, offset=500),
      change(7, "1,1", "1,2", by_time=True, topic="a", offset=3)], {"1": "1,2"}),
    ("a row that went over to another topic",
     [change(5, "1,1", None, by_time=True, offset=500),
      change(7, None, "1,2", by_time=True, topic="y", offset=3)], {"1": "1,2"}),
    ("equal event times of two topics: as they are merged, by their names",
     [change(5, "1,1", "1,2", by_time=True, topic="y", offset=3),
      change(5, "1,1", "1,1", by_time=True, topic="a", partition=1, offset=500)], {"1": "1,2"}),
]  # fmt: skip


@pytest.mark.parametrize("case", STATES, ids=[case[0] for case in STATES])
def test_last_states(case: tuple[str, list[dict[str, Any]], dict[str, str | None]]) -> None:
    """The last change of a key decides."""
    assert states(case[1]) == case[2]


@pytest.mark.parametrize("case", STATES, ids=[case[0] for case in STATES])
def test_last_states_by_hashes(case: tuple[str, list[dict[str, Any]], dict[str, str | None]]) -> None:
    """Steps that have hashes of images end as those with images, however they are divided over tasks."""
    plan = LogPlan((KEYED,), {}, 1000, None)
    tasks = [hashed(steps(plan, pa.Table.from_pylist([one], EVENT_SCHEMA))) for one in case[1]]
    rows = last_of_keys(pa.concat_tables([mine for task in tasks for _, mine in buckets(task, 3)]))
    images = [image and image.replace(",", SEP) for image in case[2].values()]
    hashes = text_hashes(pa.array(images, pa.large_string())).tolist()
    expected = {key: hashes[i] if images[i] else None for i, key in enumerate(case[2])}
    assert dict(zip(rows["key"].to_pylist(), rows["image"].to_pylist(), strict=True)) == expected


def part(offset: int, columns: str, before: str, after: str | None, **more: Any) -> dict[str, Any]:
    """A change that has these columns only, of a format without commit_ts."""
    told = {"columns": columns.replace(",", SEP), "by_time": True, **more}
    return change(1, before, after, offset=offset, **told)


def whole(offset: int, after: str, **more: Any) -> dict[str, Any]:
    """An insert of such a format."""
    return change(1, None, after, offset=offset, columns=SEP.join(["id", "v", "w"]), by_time=True, **more)


PARTS: list[tuple[str, list[dict[str, Any]], dict[str, dict[str, str] | None]]] = [
    ("as it was", [whole(1, "1,1,7"), part(2, "id,v", "1,1", "1,2")], {"1": {"id": "1", "v": "2", "w": "7"}}),
    ("one after the other", [whole(1, "1,1,7"), part(2, "id,v", "1,1", "1,2"), part(3, "id,w", "1,7", "1,8"),
      part(4, "id,v", "1,2", "1,3")], {"1": {"id": "1", "v": "3", "w": "8"}}),
    ("not in the log", [part(2, "id,v", "1,1", "1,2"), whole(3, "2,2,2")],
     {"1": {"id": "1", "v": "2"}, "2": {"id": "2", "v": "2", "w": "2"}}),
    ("through a moved key", [whole(1, "1,1,7"), part(2, "id,v", "1,1", "2,1"), part(3, "id,v", "2,1", "3,5")],
     {"1": None, "2": None, "3": {"id": "3", "v": "5", "w": "7"}}),
    ("keys that are swapped", [whole(1, "1,1,7"), whole(2, "2,2,8"), part(3, "id,v", "1,1", "9,1"),
      part(4, "id,v", "2,2", "1,2"), part(5, "id,v", "9,1", "2,1")],
     {"1": {"id": "1", "v": "2", "w": "8"}, "2": {"id": "2", "v": "1", "w": "7"}, "9": None}),
    ("not beyond a delete", [whole(1, "1,1,7"), part(2, "id,v,w", "1,1,7", None), part(3, "id,v", "1,1", "1,2")],
     {"1": {"id": "1", "v": "2"}}),
    ("of a row that came again", [whole(1, "1,1,7"), part(2, "id,v,w", "1,1,7", None), whole(3, "1,3,3"),
      part(4, "id,w", "1,3", "1,4")], {"1": {"id": "1", "v": "3", "w": "4"}}),
    ("what an insert lacks it never had", [part(1, "id,v", "1,1", "1,1"), whole(2, "1,1,7"),
      change(1, None, "1,9", offset=3, by_time=True)], {"1": {"id": "1", "v": "9"}}),
    ("rows with a commit_ts are whole", [change(1, None, "1,1,7", columns=SEP.join(["id", "v", "w"])),
      change(2, "1,1", "1,2")], {"1": {"id": "1", "v": "2"}}),
]  # fmt: skip


def values(rows: list[dict[str, Any]]) -> dict[str, dict[str, str] | None]:
    """Key to columns, None where the row is gone."""
    return {
        row["key"]: row["image"] and dict(zip(row["names"].split(SEP), row["image"].split(SEP), strict=True))
        for row in rows
    }


PARTLY = replace(KEYED, columns=frozenset(["id", "v", "w"]))


@pytest.mark.parametrize("case", PARTS, ids=[case[0] for case in PARTS])
def test_images_that_hold_a_part(
    case: tuple[str, list[dict[str, Any]], dict[str, dict[str, str] | None]],
) -> None:
    """What an update lacks is as it was in the log before, through moved keys; otherwise it is not known."""
    for shuffled in (case[1], case[1][::-1]):
        assert values(folded(PARTLY, shuffled)) == case[2]


OPS = st.tuples(
    st.sampled_from(["put", "put", "update", "update", "update", "move", "drop"]),
    st.integers(0, 3),
    st.integers(0, 3),
    st.dictionaries(st.sampled_from(["v", "w"]), st.integers(0, 9), max_size=2),
)


class History:
    """A dictionary that follows each change, and one of what the log says, which has lost the first `unseen`."""

    def __init__(self, unseen: int) -> None:
        self.rows: dict[int, dict[str, int]] = {}
        self.known: dict[str, dict[str, str] | None] = {}
        self.events: list[dict[str, Any]] = []
        self._unseen, self._offset = unseen, 0

    def follow(self, what: str, key: int, other: int, given_values: dict[str, int]) -> None:
        """One change, if it can be."""
        now = other if what == "move" else key
        if what == "put" and key not in self.rows:
            self.rows[key] = {"id": key, "v": 0, "w": 0} | given_values
            self._tell(whole(self._offset, _joined(self.rows[key], self.rows[key])), key, _texts(self.rows[key]))
        elif what in ("update", "move") and key in self.rows and (what == "update" or other not in self.rows):
            names = ["id", *sorted(given_values)]
            before = self.rows.pop(key)
            self.rows[now] = before | given_values | {"id": now}
            event = part(self._offset, ",".join(names), _joined(before, names), _joined(self.rows[now], names))
            new = (self.known.get(str(key)) or {}) | {name: str(self.rows[now][name]) for name in names}
            if now != key:
                self._tell(None, key, None)
            self._tell(event, now, new)
        elif what == "drop" and key in self.rows:
            del self.rows[key]
            self._tell(part(self._offset, "id", str(key), None), key, None)
        self._offset += 1

    def _tell(self, event: dict[str, Any] | None, key: int, state: dict[str, str] | None) -> None:
        if self._offset >= self._unseen:
            self.known[str(key)] = state
            self.events += [event] if event else []


def _joined(row: dict[str, int], names: Iterable[str]) -> str:
    return ",".join(str(row[name]) for name in names)


def _texts(row: dict[str, int]) -> dict[str, str]:
    return {name: str(value) for name, value in row.items()}


@settings(max_examples=50)
@given(ops=st.lists(OPS, max_size=25), unseen=st.integers(0, 6), order=st.randoms(use_true_random=False))
def test_any_history(ops: list[Op], unseen: int, order: random.Random) -> None:
    """Whatever tasks the changes are divided over, in whatever order: what is known is what a dictionary has that
    follows each change."""
    history = History(unseen)
    for op in ops:
        history.follow(*op)
    order.shuffle(history.events)
    assert not history.events or values(folded(PARTLY, history.events)) == history.known


def test_an_order_by_partition_ends_at_its_offsets() -> None:
    """What lies at or behind a partition's recorded offset is not in the target yet."""
    changes = [change(9, None, "1,1", offset=3), change(1, "1,1", "1,2", offset=4)]
    assert states(changes, read={("x", 0): PartitionStart(4, 0, 9, 0)}) == {"1": "1,1"}


def test_schema_changes_are_honoured() -> None:
    """A renamed column keeps its values, a dropped one loses them, a truncated table its rows."""
    texts = ["TRUNCATE t", "ALTER TABLE t RENAME COLUMN v TO w"]
    histories = trace(
        [T], [LoggedChange(ts * 10, False, "app", text, {}) for ts, text in enumerate(texts, 1)]
    ).histories
    rows = folded(
        KEYED, [change(5, None, "1,1"), change(15, None, "2,2"), change(25, None, "3,3")], histories=histories
    )
    found = {(row["names"].replace(SEP, ","), row["image"].replace(SEP, ",")) for row in rows}
    assert found == {("id,w", "2,2"), ("id,v", "3,3")}


def copies(changes: list[dict[str, Any]], **plan: Any) -> dict[str, int]:
    """Image to copies."""
    return {row["image"].replace(SEP, ","): row["copies"] for row in folded(KEYLESS, changes, **plan)}


def test_rows_without_a_key_are_counted() -> None:
    """Equal rows add up, and go one by one."""
    changes = [
        change(1, None, "1,1"),
        change(2, None, "1,1", offset=3),
        change(3, "1,1", "1,2"),
        change(4, None, "1,1"),
    ]
    assert copies(changes) == {"1,1": 2, "1,2": 1}


def test_rows_without_a_key_that_came_again_below_a_boundary_count_once() -> None:
    """A producer that restarts sends again what a boundary had vouched for; what came only there counts."""
    boundaries = {("x", 0): (np.array([10]), np.array([100]))}
    changes = [change(1, None, "1,1", offset=1), change(1, None, "1,1", offset=11), change(2, None, "2,2", offset=12)]
    assert copies(changes, boundaries=boundaries) == {"1,1": 1, "2,2": 1}
    assert copies(changes) == {"1,1": 2, "2,2": 1}


def test_many_tables_are_traced_by_one_look_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for thousands of tables that the log sees made."""
    looks, key_of = [], NameIdentity.key_of
    monkeypatch.setattr(NameIdentity, "key_of", lambda *given: looks.append(given) or key_of(*given))
    names = [TableName("app", f"t{number}") for number in range(300)]
    texts = [f"CREATE TABLE {name.table} (id INT PRIMARY KEY)" for name in names]
    lineage = trace(names, [LoggedChange(ts, False, "app", text, {}) for ts, text in enumerate(texts, 1)])
    assert lineage.whole == set(lineage.histories)
    assert len(looks) < 10_000


def test_many_tables_are_told_apart_by_one_look_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at every table for every table would take minutes where there are thousands."""
    looks, key_of = [], NameIdentity.key_of
    monkeypatch.setattr(NameIdentity, "key_of", lambda *given: looks.append(given) or key_of(*given))
    tables = [replace(TABLE, name=TableName("app", f"t{number}")) for number in range(300)]
    plan = LogPlan(tuple(ReplicatedTable(table, ("id",)) for table in tables), {}, 1000, None)
    events = [change(1, None, "1,1") | {"table": table.name.table} for table in tables]
    found = steps(plan, pa.Table.from_pylist(events, EVENT_SCHEMA))
    assert found["table_number"].to_pylist() == list(range(300))
    assert len(looks) < 2000


def test_rows_of_many_tables_are_looked_into_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work for each table took 20 times as long as all other work where there are 1,000."""
    looks = []
    monkeypatch.setattr("bridge.verify.log.row_steps.Cells", lambda *given: looks.append(given) or Cells(*given))
    tables = [replace(TABLE, name=TableName("app", f"t{number}")) for number in range(300)]
    plan = LogPlan(tuple(ReplicatedTable(table, ("id",)) for table in tables), {}, 1000, None)
    events = [change(1, None, f"{number},1") | {"table": f"t{number}"} for number in range(300)]
    found = steps(plan, pa.Table.from_pylist(events, EVENT_SCHEMA))
    assert found["key"].to_pylist() == [str(number) for number in range(300)]
    assert found["table_number"].to_pylist() == list(range(300))
    assert len(looks) < 10


def test_large_events_are_not_held_together() -> None:
    """Small ones are, up to 100,000; of large ones an executor would have no room for so many."""
    small = pa.table({"text": ["x"] * 60_000})
    large = pa.table({"text": ["x" * (40 << 20)]})
    assert [one.num_rows for one in together([small, small, small])] == [120_000, 60_000]
    assert [one.num_rows for one in together([large, large, large])] == [2, 1]
