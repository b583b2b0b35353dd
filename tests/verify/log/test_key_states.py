"""The last state of every key, from row changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from bridge.events import EVENT_SCHEMA, SEP, Kind
from bridge.model import Column, PartitionStart, Table, TableName
from bridge.rows.gathering import together
from bridge.rows.literal_offsets import Cells
from bridge.tso import ms_tso
from bridge.verify.log.coverage import LoggedChange, coverage_of
from bridge.verify.log.log_tables import LoggedTable
from bridge.verify.log.logged_rows import LogPlan, buckets, last_of_some, last_steps, steps
from bridge.verify.log.recompute import hashed, text_hashes
from tests.generated.verifying import expected_table

T = TableName("app", "t")
TABLE = Table(T, {name: Column(name, "int", None, False) for name in ("id", "v", "w")}, (("id",),), (("id",),))
KEYED = expected_table(TABLE)
MINUTE = ms_tso(60_000)
ALL = 1000 * MINUTE


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


def folded(table: LoggedTable, changes: list[dict[str, Any]], **plan: Any) -> list[dict[str, Any]]:
    """Rows of the result, however the changes are divided over tasks."""
    log = LogPlan((table,), **{"coverage": {}, "limit": ALL, **plan})
    made = [steps(log, pa.Table.from_pylist([one], EVENT_SCHEMA)) for one in changes]
    shared = last_of_some(log.tables, pa.concat_tables([last_of_some(log.tables, made[0]), *made[1:]]))
    return [row for _, some in buckets(shared, 3) for row in last_steps(log.tables, some).to_pylist()]


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
    ("nothing at or above the limit", [change(1, None, "1,1"), change(ALL, "1,1", None)], {"1": "1,1"}),
    ("event times do not turn a partition round",
     [change(5 * MINUTE, None, "1,1", by_time=True, offset=1), change(5 * MINUTE, "1,1", None, by_time=True, offset=2),
      change(4 * MINUTE, None, "1,3", by_time=True, offset=3)], {"1": "1,3"}),
    ("partitions of commit ts have one order",
     [change(5, None, "1,1", partition=2, offset=1), change(7, "1,1", None, partition=1, offset=9)], {"1": None}),
]  # fmt: skip


@pytest.mark.parametrize("case", STATES, ids=[case[0] for case in STATES])
def test_last_states(case: tuple[str, list[dict[str, Any]], dict[str, str | None]]) -> None:
    """The last change of a key decides."""
    assert states(case[1]) == case[2]


@pytest.mark.parametrize("elsewhere", [{"partition": 1}, {"topic": "y"}])
@pytest.mark.parametrize("minutes", [0, 1, 900])
def test_a_key_of_which_several_partitions_have_changes_by_event_time(minutes: int, elsewhere: dict[str, Any]) -> None:
    """Nothing tells which change came last, however far they are apart: times of a partition may go back."""
    moved = change(5 * MINUTE, "1,1", "2,1", by_time=True, offset=9)
    came = change((5 + minutes) * MINUTE, None, "1,1", by_time=True, **{"partition": 0, "offset": 1, **elsewhere})
    assert {row["key"]: row["is_unsure"] for row in folded(KEYED, [moved, came])} == {"2": False, "1": True}
    by_commit_ts = [one | {"by_time": False} for one in (moved, came)]
    assert {row["key"]: row["is_unsure"] for row in folded(KEYED, by_commit_ts)} == {"2": False, "1": False}


@pytest.mark.parametrize("case", STATES, ids=[case[0] for case in STATES])
def test_last_states_by_hashes(case: tuple[str, list[dict[str, Any]], dict[str, str | None]]) -> None:
    """Steps that have hashes of images end as those with images, however they are divided over tasks."""
    plan = LogPlan((KEYED,), {}, ALL)
    tasks = [hashed(steps(plan, pa.Table.from_pylist([one], EVENT_SCHEMA))) for one in case[1]]
    rows = last_steps(plan.tables, pa.concat_tables([mine for task in tasks for _, mine in buckets(task, 3)]))
    images = [image and image.replace(",", SEP) for image in case[2].values()]
    hashes = text_hashes(pa.array(images, pa.large_string())).tolist()
    expected = {key: hashes[i] if images[i] else None for i, key in enumerate(case[2])}
    assert dict(zip(rows["key"].to_pylist(), rows["image"].to_pylist(), strict=True)) == expected


def test_messages_may_name_columns_in_another_order() -> None:
    """Images have that of the table."""
    assert states([change(1, None, "7,1", columns=SEP.join(["v", "id"]))]) == {"1": "1,7"}


def test_an_order_by_partition_ends_at_its_offsets() -> None:
    """What lies at or behind a partition's recorded offset is not in the target yet."""
    changes = [change(9, None, "1,1", offset=3), change(1, "1,1", "1,2", offset=4)]
    assert states(changes, read={("x", 0): PartitionStart(4, 0, 9, 0)}) == {"1": "1,1"}


def test_schema_changes_are_honoured() -> None:
    """A truncated table loses its rows, and so does one whose columns were changed, as far as the log tells."""
    for text in ("TRUNCATE t", "ALTER TABLE t RENAME COLUMN v TO w"):
        coverage = coverage_of([T], [LoggedChange(10, False, "app", text, {})]).tables
        assert states([change(5, None, "1,1"), change(15, None, "2,2")], coverage=coverage) == {"2": "2,2"}


def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[TableName]:
    """The names that are folded from now on, once for each time."""
    looks: list[TableName] = []
    monkeypatch.setattr(
        TableName, "folded", property(lambda one: looks.append(one) or TableName(one.schema.lower(), one.table.lower()))
    )
    return looks


def test_many_tables_are_traced_by_one_look_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for thousands of tables that the log sees made."""
    looks = looked_at(monkeypatch)
    names = [TableName("app", f"t{number}") for number in range(300)]
    texts = [f"CREATE TABLE {name.table} (id INT PRIMARY KEY)" for name in names]
    coverage = coverage_of(names, [LoggedChange(ts, False, "app", text, {}) for ts, text in enumerate(texts, 1)])
    assert all(one.is_whole(has_earlier_rows=True) for one in coverage.tables.values())
    assert len(looks) < 10_000


def test_many_tables_are_told_apart_by_one_look_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at every table for every table would take minutes where there are thousands."""
    looks = looked_at(monkeypatch)
    tables = [replace(TABLE, name=TableName("app", f"t{number}")) for number in range(300)]
    plan = LogPlan(tuple(expected_table(table) for table in tables), {}, ALL)
    events = [change(1, None, "1,1") | {"table": table.name.table} for table in tables]
    found = steps(plan, pa.Table.from_pylist(events, EVENT_SCHEMA))
    assert found["table_number"].to_pylist() == list(range(300))
    assert len(looks) < 2000


def test_rows_of_many_tables_are_looked_into_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work for each table took 20 times as long as all other work where there are 1,000."""
    looks = []
    monkeypatch.setattr("bridge.verify.log.logged_rows.Cells", lambda *given: looks.append(given) or Cells(*given))
    tables = [replace(TABLE, name=TableName("app", f"t{number}")) for number in range(300)]
    plan = LogPlan(tuple(expected_table(table) for table in tables), {}, ALL)
    events = [change(1, None, f"{number},1") | {"table": f"t{number}"} for number in range(300)]
    found = steps(plan, pa.Table.from_pylist(events, EVENT_SCHEMA))
    assert found["key"].to_pylist() == [str(number) for number in range(300)]
    assert found["table_number"].to_pylist() == list(range(300))
    assert len(looks) < 10


def test_large_events_are_not_held_together() -> None:
    """Small ones are; of large ones an executor would have no room for so many."""
    small = pa.table({"text": ["x"] * 60_000})
    large = pa.table({"text": ["x" * (20 << 20)]})
    assert [one.num_rows for one in together([small, small, small], 32 << 20)] == [180_000]
    assert [one.num_rows for one in together([large, large, large], 32 << 20)] == [2, 1]
