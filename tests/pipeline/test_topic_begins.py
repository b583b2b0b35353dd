"""Topics that begin elsewhere than their pipeline: what is below counts as in the target, and progress remembers it."""

from __future__ import annotations

import pytest

from bridge.errors import UsageError
from bridge.events import Event, RowChange
from bridge.model import PartitionStart, Positions, goes_by_partition
from bridge.mysql.state.progress import Progress, ProgressTable, dump_positions, load_positions
from bridge.sources.kafka.topic_guard import begins_of
from bridge.tso import ms_tso
from tests.support.command import bridge
from tests.support.models import Bench, FakeTarget
from tests.support.pipelines import admin
from tests.support.upstreams import boundary, row_change, schema_change

READ = PartitionStart(5, 0, 5)
BY_PARTITION = PartitionStart(5, 0, 5, 1)
ALTER = "ALTER TABLE t ADD COLUMN c int"


def progress(positions: Positions, applied_ts: int = 100, start_ts: int = 0) -> Progress:
    return Progress("bridge", 1, applied_ts, start_ts, positions, ())


OLD, BY_OFFSETS = {("a", 0): READ}, {("a", 0): BY_PARTITION}
WITH_B = {**OLD, ("b", 0): READ._replace(begin=150), ("b", 1): READ}
ALLOWED = [
    (progress({}, 0), {"a": None, "b": None}, {"a": 0, "b": 0}),
    (progress({}, 7, 7), {"a": None, "b": 9}, {"a": 0, "b": 9}),
    (progress(OLD), {"a": None}, {"a": 0}),
    (progress(OLD), {"a": 0}, {"a": 0}),
    (progress(OLD), {"a": None, "b": 100}, {"a": 0, "b": 100}),
    (progress(WITH_B), {"a": None, "b": None}, {"a": 0, "b": 150}),
    (progress(WITH_B, 900), {"a": None, "b": 150}, {"a": 0, "b": 150}),  # after a restart with the same command
    (progress(BY_OFFSETS), {"a": None, "b": 0}, {"a": 0, "b": 0}),
    (progress(BY_OFFSETS), {"a": None, "b": 50}, {"a": 0, "b": 50}),
]
REFUSED = [
    (progress(OLD), {"a": None, "b": None}, "'b' is new", "--topic b@100"),
    (progress(OLD), {"a": None, "b": 99}, "cannot begin at 99", "--until 100"),
    (progress(OLD), {"a": None, "b": 0}, "cannot begin at 0", "at or above 100"),
    (progress({}, 7, 7), {"a": None, "b": 6}, "cannot begin at 6", "at or above 7"),
    (progress({}), {"a": None}, "'a' is new", "--topic a@100"),  # its topics were taken out
    (progress(BY_OFFSETS), {"a": None, "b": None}, "'b' is new", "--topic b@earliest"),
    (progress(WITH_B), {"a": None}, "reads the topic 'b', which is not given", "bridge reset --topic b"),
    (progress(WITH_B), {"a": None, "b": 160}, "began at 150, not at 160", "leave @160 out"),
    (progress(OLD), {"a": 160}, "'a' began with the pipeline, not at 160", "leave @160 out"),
]


@pytest.mark.parametrize(("known", "given", "begins"), ALLOWED)
def test_topics_that_may_be_read(known: Progress, given: dict[str, int | None], begins: dict[str, int]) -> None:
    """Those of the pipeline, and others from where nothing of theirs would come late; the same command works again."""
    assert begins_of(known, given) == begins


@pytest.mark.parametrize(("known", "given", "said", "way"), REFUSED)
def test_topics_that_may_not_be_read(known: Progress, given: dict[str, int | None], said: str, way: str) -> None:
    """Each with the way to do what the operator may want."""
    with pytest.raises(UsageError) as refused:
        begins_of(known, given)
    assert said in refused.value.what
    assert way in refused.value.fix


def test_progress_remembers_them() -> None:
    """In the row, which stays as it was for topics that began with the pipeline."""
    assert load_positions(dump_positions(WITH_B)) == WITH_B
    assert dump_positions(OLD) == '{"a":{"0":[5,0,5,null]}}'


def bench_of(applied_ts: int, begin: int, *, by_partition: bool) -> Bench:
    """A pipeline that has read the topic a, and gets the topic b."""
    start = PartitionStart(0, applied_ts, 0, applied_ts if by_partition else None)
    target = FakeTarget(applied_ts=applied_ts, positions={("a", 0): start})
    return Bench([("a", 0), ("b", 0)], target, by_partition=by_partition, begins={"a": 0, "b": begin})


def take(bench: Bench, topic: str, first: int, *events: Event) -> None:
    """Messages of a topic from an offset on."""
    bench.take(*((0, first + n, event) for n, event in enumerate(events)), topic=topic)


def row(ts: int, *, by_time: bool = False) -> RowChange:
    """A row whose id is its commit ts."""
    return row_change(ts, "k", ["id"], [], after=[ts])._replace(by_time=by_time)


def test_by_boundaries() -> None:
    """Nothing of b below its beginning is written, nor counted as late, and a's rows are all; also after a restart."""
    bench = bench_of(100, 130, by_partition=False)
    take(bench, "a", 0, row(105), row(120), row(140), boundary(200))
    take(bench, "b", 0, row(50), row(110), schema_change(115, ALTER), row(129), row(131), boundary(140))
    assert bench.target.ids == [105, 120, 131]
    assert bench.target.applied_ts == 140
    assert bench.target.positions["b", 0].begin == 130
    assert goes_by_partition(bench.target.positions) is False
    bench.applier = bench.started()
    take(bench, "b", 0, row(50), row(110), schema_change(115, ALTER), row(129), row(131), row(150), boundary(200))
    take(bench, "a", 0, row(105), row(120), row(140), boundary(200))
    assert bench.target.ids == [105, 120, 131, 140, 150]
    assert bench.target.ran == []
    assert bench.applier.counts.late == 0


@pytest.mark.parametrize("by_time", [False, True])
def test_by_partition(by_time: bool) -> None:
    """The same; b may begin below what others have come to."""
    unit = (
        ms_tso(1000) if by_time else 1
    )  # of what happened within the second of the beginning, nothing is surely below

    def at(ts: int) -> Event:
        return row(ts * unit, by_time=by_time)

    bench = bench_of(100 * unit, 80 * unit, by_partition=True)
    change = schema_change(75 * unit, ALTER)._replace(by_time=by_time)
    take(bench, "b", 0, at(50), change, at(79), at(81))
    take(bench, "a", 0, at(101))
    assert sorted(bench.target.ids) == [81 * unit, 101 * unit]
    assert bench.target.ran == []
    assert bench.target.positions["b", 0] == PartitionStart(4, 0, 4, 0, 80 * unit, seen=81 * unit)
    assert goes_by_partition(bench.target.positions)
    bench.applier = bench.started()
    take(bench, "b", 4, at(82), at(79))
    assert sorted(bench.target.ids) == [81 * unit, 82 * unit, 101 * unit]


def test_a_topic_stays_while_a_step_is_in_parts(target: str) -> None:
    """Without it the step would be ended by the rows of the other topics, and its own would stay as they are."""
    given = ("reset", "--topic", "b", "--yes", "--target", target)
    with admin(target) as session:
        table = ProgressTable("bridge")
        table.create(session)
        table.begin(session, 0)
        session.execute(
            "UPDATE _bridge.progress SET applied_ts = 100, applying_ts = 200, positions = %s", (dump_positions(WITH_B),)
        )
        ended = bridge(*given)
        assert (ended.code, "until its applied ts is at least 200" in ended.last_line) == (2, True), ended.err
        session.execute("UPDATE _bridge.progress SET applied_ts = 200")
        assert bridge(*given).code == 0
