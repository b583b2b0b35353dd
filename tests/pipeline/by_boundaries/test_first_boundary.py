"""Topics whose changes have a commit ts and whose boundaries may never come: TiCDC's Debezium, not extended."""

from __future__ import annotations

import pytest

from bridge.events import Event, RowChange
from bridge.model import PartitionStart, goes_by_partition
from bridge.pipeline.order import OrderChanged
from bridge.tso import ms_tso
from tests.support.models import Bench, FakeTarget
from tests.support.upstreams import TOPIC, boundary, row_change, schema_change


def row(ms: int, id_: int) -> RowChange:
    return row_change(ms_tso(ms), "k", ["id"], [], after=[id_])


def bench_of(seconds: float | None, known_boundary: int = 0) -> Bench:
    """An applier by boundaries that waits 10 s for the first one, or as long as it takes."""
    target = FakeTarget(positions={(TOPIC, 0): PartitionStart(0, known_boundary, 0)})
    return Bench([(TOPIC, 0)], target, by_partition=False, boundary_seconds=seconds)


@pytest.mark.parametrize("first", [row(5, 1), schema_change(ms_tso(5), "CREATE TABLE k (id INT)")])
def test_without_a_first_boundary_the_order_of_the_partitions_has_to_do(first: Event) -> None:
    """Some seconds after the first change, of rows or of a schema; nothing is applied before, and progress says which
    order it is."""
    bench = bench_of(10)
    bench.wait(60)
    bench.take((0, 0, first))
    bench.wait(9)
    with pytest.raises(OrderChanged, match="10 s, and no boundary"):
        bench.wait(1)
    assert bench.target.ids == []
    assert goes_by_partition(bench.target.positions)


def test_an_input_without_any_boundary_is_applied_to_its_end() -> None:
    """`replay`: there is nothing to wait for."""
    bench = bench_of(10)
    bench.take((0, 0, row(5, 1)))
    with pytest.raises(OrderChanged, match="the input holds no boundary"):
        bench.applier.finish()


@pytest.mark.parametrize(("seconds", "known_boundary"), [(None, 0), (10, ms_tso(3))])
def test_boundaries_that_are_sure_to_come_are_waited_for(seconds: float | None, known_boundary: int) -> None:
    """Where the protocol always has them, and where there was one before."""
    bench = bench_of(seconds, known_boundary)
    bench.take((0, 0, row(5, 1)))
    bench.wait(1000)
    bench.applier.finish()
    assert bench.target.ids == []


def test_after_the_first_boundary_the_others_are_waited_for() -> None:
    """However long: upstream may be stuck.  The status says what else may be the cause."""
    bench = bench_of(10)
    bench.take((0, 0, boundary(ms_tso(4))), (0, 1, row(5, 1)))
    bench.wait(29)
    assert "was switched off" not in bench.applier.waiting_for()
    bench.wait(1000)
    assert "partition 0 has had no boundary for 1029 s; changes came meanwhile: if the extension was switched off" in (
        bench.applier.waiting_for()
    )
    assert bench.target.ids == []
