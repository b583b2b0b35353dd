"""How much executors hold at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import pyarrow as pa
import pytest

from bridge.model import Column, Table, TableName
from bridge.mysql.table_definition import Definition
from bridge.protocols.batch_decode import EventDecoder
from bridge.sources.source import MicroBatch
from bridge.verify.log import recompute
from bridge.verify.log.folded_steps import fold_steps
from bridge.verify.log.loaded.expected_tables import ExpectedTable
from bridge.verify.log.recompute import Log
from bridge.verify.log.row_groups import LogPlan, ReplicatedTable
from bridge.verify.log.row_steps import steps
from tests.generated.verifying import InProcess, OfEvents, without_spark
from tests.support.upstreams import events_table, in_one_partition, row_change

LARGE, COUNT = 1 << 20, 48


def test_large_rows_are_folded_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are bytes for, in each task and in each bucket, however few rows these are."""
    text, most = "x" * LARGE, 8 * LARGE
    for name in ("_BYTES_TOGETHER", "_BYTES_HELD", "_BYTES_PER_BUCKET"):
        monkeypatch.setattr(recompute, name, most, raising=False)
    handled: list[int] = []

    def noted(function: Callable[..., pa.Table]) -> Callable[..., pa.Table]:
        def note(*given: Any) -> pa.Table:
            handled.append(max(one.nbytes for one in given if isinstance(one, pa.Table)))
            return function(*given)

        return note

    for function in (steps, fold_steps):
        monkeypatch.setattr(recompute, function.__name__, noted(function))
    tables = [in_one_partition([row_change(9, "t", ["id", "v"], ["id"], after=[n, text])], n) for n in range(COUNT)]
    source = OfEvents(pa.concat_tables(tables))
    monkeypatch.setattr(source, "decoded", lambda _, export: InProcess([list(export(iter(tables)))]))
    with without_spark():
        log = Log(cast("Any", None), cast(MicroBatch, source), cast(EventDecoder, None), None, COUNT)
    control = log.control()
    table = Table(TableName("m", "t"), {n: Column(n, "text", None, False) for n in ("id", "v")}, (("id",),), (("id",),))
    plan = LogPlan((ReplicatedTable(table, ("id",)),), {}, 1000, None)
    folded = log.fold(plan, control.events, control.size)
    found = folded.fingerprints({0: ()})
    assert [one.rows for one in found[0]] == [COUNT]
    monkeypatch.setattr(ExpectedTable, "inserts", lambda _, rows: [(0, rows.num_rows)])
    expected = ExpectedTable("`e`", cast(Definition, None), ("id",), ())
    assert sum(rows for _, _, rows in cast(Iterable[tuple[int, int, int]], folded.inserts({0: expected}))) == COUNT
    assert len(handled) > 2 * LARGE * COUNT // most
    assert max(handled) <= 2 * most


@pytest.mark.parametrize("is_hashed", [True, False])
def test_a_partition_that_goes_back_over_two_tasks(monkeypatch: pytest.MonkeyPatch, *, is_hashed: bool) -> None:
    """The second task sees a time that has gone back, but not what the partition has shown before: it must not take a
    step of another partition for the last one."""
    first, back, between = (
        events_table([(partition, offset, row_change(ts, "t", ["id"], ["id"], after=[1])._replace(by_time=True))])
        for partition, offset, ts in ((0, 1, 8), (0, 2, 5), (1, 1, 6))
    )
    parts = [[first], [pa.concat_tables([back, between])]]
    source = OfEvents(pa.concat_tables([first, back, between]))
    monkeypatch.setattr(source, "decoded", lambda _, export: InProcess([list(export(iter(part))) for part in parts]))
    with without_spark():
        log = Log(cast("Any", None), cast(MicroBatch, source), cast(EventDecoder, None), None, 3)
    table = Table(TableName("m", "t"), {"id": Column("id", "int", None, False)}, (("id",),), (("id",),))
    plan = LogPlan((ReplicatedTable(table, ("id",)),), {}, 1000, None)
    last: list[tuple[int, int]] = []

    def noted(rows: pa.Table, *_: Any) -> list[Any]:
        last.extend(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
        return []

    monkeypatch.setattr(recompute, "fingerprints", noted)
    monkeypatch.setattr(ExpectedTable, "inserts", lambda _, rows: noted(rows))
    folded = log.fold(plan, 3, 1)
    if is_hashed:
        folded.fingerprints({0: ()})
    else:
        list(folded.inserts({0: ExpectedTable("`e`", cast(Definition, None), ("id",), ())}))
    assert last == [(0, 2)]
