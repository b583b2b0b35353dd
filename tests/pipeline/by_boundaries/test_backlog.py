"""What is held back, and where a restart begins."""

from __future__ import annotations

from bridge.events import Code, Event, Position, RowChange, Undecodable
from bridge.model import Entry, PartitionId, PartitionStart
from bridge.pipeline.by_boundaries import Backlog, Frontier
from bridge.pipeline.order import BadMessage, control_events
from bridge.spark.decoded_batch import DecodedBatch
from tests.support.upstreams import boundary, events_table, row_change, schema_change

A, B = ("cdc", 0), ("cdc", 1)


def insert(ts: int) -> RowChange:
    return row_change(ts, "t", ["id"], ["id"], after=[ts])


def fed(*batches: tuple[list[tuple[int, int, Event]], dict[PartitionId, int]]) -> Backlog:
    """A backlog after these micro-batches, each with the boundaries after it."""
    backlog = Backlog({A: PartitionStart(0, 0, 0), B: PartitionStart(0, 0, 0)})
    for placed, boundaries in batches:
        add(backlog, placed, boundaries)
    return backlog


def add(backlog: Backlog, placed: list[tuple[int, int, Event]], boundaries: dict[PartitionId, int]) -> None:
    """Adds a micro-batch."""
    batch = DecodedBatch.of(events_table(placed)).divided()
    control = control_events(batch.events)
    backlog.add(batch.read, batch.rows, control.changes, (), boundaries, is_stopped=bool(control.bad))


def test_a_restart_reads_the_oldest_unapplied_event_again() -> None:
    """Offsets and boundaries of a restart are those before the oldest micro-batch with anything at or above applied_ts,
    of every partition; what was read is remembered."""
    backlog = fed(
        ([(0, 0, insert(10)), (0, 1, boundary(11)), (1, 0, boundary(11))], {A: 11, B: 11}),
        ([(0, 2, insert(15)), (1, 1, insert(12)), (1, 2, boundary(14))], {A: 11, B: 14}),
        ([(0, 3, boundary(20)), (1, 3, insert(13))], {A: 20, B: 14}),
    )
    assert backlog.restart_positions(10) == {A: PartitionStart(0, 0, 4), B: PartitionStart(0, 0, 4)}
    assert backlog.restart_positions(11) == {A: PartitionStart(2, 11, 4), B: PartitionStart(1, 11, 4)}
    assert backlog.restart_positions(15) == {A: PartitionStart(2, 11, 4), B: PartitionStart(1, 11, 4)}
    assert backlog.restart_positions(16) == {A: PartitionStart(4, 20, 4), B: PartitionStart(4, 14, 4)}


def test_schema_changes_and_bad_messages_hold_a_chunk() -> None:
    """Not only rows are read again: a schema change at or above applied_ts, and a bad message for ever."""
    backlog = fed(
        ([(0, 0, schema_change(15, "x"))], {}),
        ([(0, 1, Undecodable(Code.MALFORMED, "broken"))], {}),
        ([(0, 2, boundary(90))], {}),
    )
    assert backlog.restart_positions(15)[A].offset == 0
    assert backlog.restart_positions(16)[A].offset == 1
    assert backlog.restart_positions(1000)[A].offset == 1
    backlog.release(1000)
    assert len(backlog.batches) == 1


def test_release_forgets_what_is_applied() -> None:
    """Applied rows leave memory, those of the same chunk above applied_ts stay."""
    backlog = fed(([(0, 0, insert(10)), (0, 1, insert(20))], {}), ([(0, 2, insert(11))], {}))
    assert backlog.amount.rows == 3
    backlog.release(12)
    assert backlog.amount.rows == 1
    backlog.release(21)
    assert (backlog.amount.rows, backlog.batches) == (0, [])


def test_a_partition_that_appears_later_begins_at_its_start() -> None:
    """A restart reads a new partition from offset 0 while anything of the micro-batch that brought it is unapplied."""
    backlog = Backlog({A: PartitionStart(5, 9, 5)})
    add(backlog, [(0, 5, insert(10)), (1, 0, insert(10))], {A: 9})
    assert backlog.restart_positions(10) == {A: PartitionStart(5, 9, 6), B: PartitionStart(0, 0, 1)}
    assert backlog.restart_positions(11) == {A: PartitionStart(6, 9, 6), B: PartitionStart(1, 0, 1)}


def test_control_events_are_sorted_out() -> None:
    """Boundaries behind a bad message of their partition that stops the bridge do not count, those of other partitions
    do; schema changes come in the order of their partition with their positions."""
    placed = [
        (1, 4, boundary(30)), (0, 3, boundary(40)), (0, 2, Undecodable(Code.MALFORMED, "broken")), (0, 1, boundary(20)),
        (0, 0, boundary(25)), (1, 3, schema_change(28, "second")), (1, 2, schema_change(28, "first")),
        (0, 4, insert(26)),
    ]  # fmt: skip
    batch = DecodedBatch.of(events_table(placed)).divided()
    control = control_events(batch.events)
    assert control.boundaries == {A: 40, B: 30}
    frontier = Frontier([(A, 0), (B, 0)], lambda: 0.0)
    for bad in control.bad:
        frontier.freeze(bad)
    for partition, ts in control.boundaries.items():
        frontier.observe(partition, ts)
    assert frontier.boundaries == {A: 25, B: 30}
    assert batch.read == {A: 5, B: 5}
    assert control.bad == (BadMessage(Entry(Position("cdc", 0, 2), "malformed", "broken"), 25),)
    assert [(c.text, c.position) for c in control.changes] == [("first", "cdc/1/2"), ("second", "cdc/1/3")]


def test_rows_are_what_lies_between_the_others() -> None:
    """Few boundaries among many row changes, and many among few: the row changes stay, in their order."""
    for rows, others in ((1000, {0, 500, 501, 1002}), (3, {1, 4}), (5, set()), (0, {0, 1})):
        places = [offset for offset in range(rows + len(others)) if offset not in others]
        events = [(0, n, boundary(n) if n in others else insert(n)) for n in range(rows + len(others))]
        batch = DecodedBatch.of(events_table(events)).divided()
        assert batch.rows.between(0, 2000).table["offset"].to_pylist() == places
        assert control_events(batch.events).boundaries.get(A, -1) == max(others, default=-1)
