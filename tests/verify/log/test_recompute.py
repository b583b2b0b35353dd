"""How much executors hold at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any, cast

import pyarrow as pa
import pytest

from bridge.model import Column, Table, TableName
from bridge.mysql.table_definition import Definition
from bridge.protocols.batch_decode import EventDecoder
from bridge.sources.source import MicroBatch
from bridge.verify.log import recompute
from bridge.verify.log.log_tables import LoggedTable
from bridge.verify.log.logged_rows import LogPlan, last_steps, steps
from bridge.verify.log.recompute import Log
from tests.generated.verifying import InProcess, OfEvents, expected_table, without_spark
from tests.support.upstreams import events_table, in_one_partition, row_change

LARGE, COUNT = 1 << 20, 48
FEW = """
import sys
from types import SimpleNamespace
from bridge.model import Column, Table, TableName
from bridge.protocols import DecodeOptions
from bridge.protocols.batch_decode import Messages
from bridge.spark.decoded_batch import event_decoder
from bridge.verify.log.log_tables import LoggedTable
from bridge.verify.log.logged_rows import last_steps
from bridge.verify.log.recompute import fingerprints, hashed
from bridge.verify.log.logged_rows import LogPlan, steps
from tests.support.wire import canal

rows = [canal("INSERT", {"id": ("int", str(n)), "v": ("varchar(9)", "x")}) for n in range(400)]
given = Messages(["cdc"] * 400, [0] * 400, list(range(400)), [None] * 400, rows)
[events] = event_decoder("canal-json", DecodeOptions("UTC"))([given])
columns = {"id": Column("id", "int", None, False), "v": Column("v", "varchar(9)", "utf8mb4", True)}
table = Table(TableName("d", "t"), columns, (("id",),), (("id",),))
plan = LogPlan((LoggedTable(0, "e", SimpleNamespace(table=table), ("id",), ("id", "v")),), {}, 1 << 62)
made = steps(plan, events)
[(_, [found])] = fingerprints(last_steps(plan.tables, hashed(made)), {0: ()})
folded = last_steps(plan.tables, made)
print(found.rows, folded.num_rows, {"numba", "bridge.protocols.fast.compiled.functions"} & sys.modules.keys())
"""


def test_few_rows_load_no_compiled_functions() -> None:
    """To compile them takes 20 seconds on a new machine, and minutes on a busy one: few rows are not worth it."""
    ended = subprocess.run([sys.executable, "-c", FEW], check=True, capture_output=True, text=True)
    assert ended.stdout == "400 400 set()\n"


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

    for function in (steps, last_steps):
        monkeypatch.setattr(recompute, function.__name__, noted(function))
    tables = [in_one_partition([row_change(9, "t", ["id", "v"], ["id"], after=[n, text])], n) for n in range(COUNT)]
    source = OfEvents(pa.concat_tables(tables))
    monkeypatch.setattr(source, "decoded", lambda _, export: InProcess([list(export(iter(tables)))]))
    with without_spark():
        log = Log(cast("Any", None), cast(MicroBatch, source), cast(EventDecoder, None), "")
    log.control()
    table = Table(TableName("m", "t"), {n: Column(n, "text", None, False) for n in ("id", "v")}, (("id",),), (("id",),))
    plan = LogPlan((expected_table(table),), {}, 1000)
    found = log.fingerprints(plan, {0: ()})
    assert [one.rows for one in found[0]] == [COUNT]
    monkeypatch.setattr(LoggedTable, "inserts", lambda _, rows: [rows.num_rows])
    expected = LoggedTable(0, "`e`", cast(Definition, None), ("id",), ("id", "v"))
    assert sum(rows for _, rows in cast(Iterable[tuple[int, int]], log.inserts(plan, {0: expected}))) == COUNT
    assert len(handled) > 2 * LARGE * COUNT // most
    assert max(handled) <= 2 * most


@pytest.mark.parametrize("is_hashed", [True, False])
def test_a_key_in_several_partitions_over_two_tasks(monkeypatch: pytest.MonkeyPatch, *, is_hashed: bool) -> None:
    """Whatever a task folds of it, the task that takes all of it sees that several partitions have it; its hash is that
    of no row."""
    first, back, between = (
        events_table([(partition, offset, row_change(ts, "t", ["id"], ["id"], after=[1])._replace(by_time=True))])
        for partition, offset, ts in ((0, 1, 8), (0, 2, 5), (1, 1, 6))
    )
    parts = [[first], [pa.concat_tables([back, between])]]
    source = OfEvents(pa.concat_tables([first, back, between]))
    monkeypatch.setattr(source, "decoded", lambda _, export: InProcess([list(export(iter(part))) for part in parts]))
    with without_spark():
        log = Log(cast("Any", None), cast(MicroBatch, source), cast(EventDecoder, None), "")
    table = Table(TableName("m", "t"), {"id": Column("id", "int", None, False)}, (("id",),), (("id",),))
    plan = LogPlan((expected_table(table),), {}, 1000)
    last: list[tuple[bool, object]] = []

    def noted(rows: pa.Table, *_: Any) -> list[Any]:
        last.extend(zip(rows["is_unsure"].to_pylist(), rows["image"].to_pylist(), strict=True))
        return []

    monkeypatch.setattr(recompute, "fingerprints", noted)
    monkeypatch.setattr(LoggedTable, "inserts", lambda _, rows: noted(rows))
    if is_hashed:
        log.fingerprints(plan, {0: ()})
    else:
        list(log.inserts(plan, {0: LoggedTable(0, "`e`", cast(Definition, None), ("id",), ())}))
    assert last == [(True, 0 if is_hashed else "1")]
