"""The last state of every key, from row changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bridge.events import EVENT_SCHEMA, SEP, Kind
from bridge.target.catalog import Column, Table, TableName
from bridge.target.progress import PartitionStart
from bridge.verify.last_states import LogPlan, Place, balance, buckets, fold_steps, steps
from bridge.verify.lineage import LoggedChange, trace

T = TableName("app", "t")
TABLE = Table(T, {name: Column(name, "int", None, False) for name in ("id", "v", "w")}, (("id",),), (("id",),))
KEYED, KEYLESS = Place(TABLE, ("id",)), Place(TABLE, ())


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


def folded(place: Place, changes: list[dict[str, Any]], **plan: Any) -> list[dict[str, Any]]:
    """Rows of the result, however the changes are divided over tasks."""
    told: dict[str, Any] = {"lives": {}, "limit": 1000, "read": None, **plan}
    log = LogPlan((place,), **told)
    found = [steps(log, pa.Table.from_pylist([one], EVENT_SCHEMA)) for one in changes]
    shared = fold_steps(pa.concat_tables([fold_steps(found[0]), *found[1:]]))
    spread = [mine for _, mine in buckets(shared, 3)]
    result = pa.concat_tables([fold_steps(mine) for mine in spread] or [shared])
    return (result if place.key else balance(result)).to_pylist()


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
]  # fmt: skip


@pytest.mark.parametrize("case", STATES, ids=[case[0] for case in STATES])
def test_last_states(case: tuple[str, list[dict[str, Any]], dict[str, str | None]]) -> None:
    """The last change of a key decides."""
    assert states(case[1]) == case[2]


def test_an_order_by_partition_ends_at_its_offsets() -> None:
    """What lies at or behind a partition's recorded offset is not in the target yet."""
    changes = [change(9, None, "1,1", offset=3), change(1, "1,1", "1,2", offset=4)]
    assert states(changes, read={("x", 0): PartitionStart(4, 0, 9, 0)}) == {"1": "1,1"}


def test_schema_changes_are_honoured() -> None:
    """A renamed column keeps its values, a dropped one loses them, a truncated table its rows."""
    texts = ["TRUNCATE t", "ALTER TABLE t RENAME COLUMN v TO w"]
    lives = trace([T], [LoggedChange(ts * 10, False, "app", text, {}) for ts, text in enumerate(texts, 1)]).lives
    rows = folded(KEYED, [change(5, None, "1,1"), change(15, None, "2,2"), change(25, None, "3,3")], lives=lives)
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
