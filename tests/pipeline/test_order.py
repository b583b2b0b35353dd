"""What the orders share: where partitions begin that progress does not know, and what will be due next."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bridge.events import Event
from bridge.model import PartitionStart, SchemaChange
from bridge.mysql.state.progress import Progress
from bridge.pipeline.applier import ApplierConfig, Counts
from bridge.pipeline.by_boundaries import BoundaryOrder
from bridge.pipeline.order import TOGETHER, Segment, cut_window, first_offsets, fold_copies
from bridge.rows.order_and_slices import cut_transactions
from bridge.spark.decoded_batch import DecodedBatch
from tests.support.upstreams import boundary, events_table, row_change, schema_change

PARTITIONS = 2


def test_a_partition_added_to_a_known_topic_begins_at_0() -> None:
    """A topic that is new to the pipeline begins with what there is of it."""
    progress = Progress("bridge", 1, 9, 0, {("a", 0): PartitionStart(5, 0, 5)}, ())
    lows = {("a", 0): 3, ("a", 1): 4, ("b", 0): 7}
    assert first_offsets(progress, lows) == {("a", 0): 0, ("a", 1): 0, ("b", 0): 7}
    assert first_offsets(Progress("bridge", 1, 9, 0, {}, ()), lows) == lows


EVENTS = st.lists(
    st.tuples(
        st.integers(0, PARTITIONS - 1), st.integers(0, 12), st.sampled_from(["row", "row", "boundary", "change"])
    ),
    min_size=1,
    max_size=8,
)


@given(st.lists(EVENTS, min_size=2, max_size=3))
def test_what_comes_next_is_guessed(drawn: list[list[tuple[int, int, str]]]) -> None:
    """A guess is right, and changes nothing, unless rows come late; schema changes are not guessed through."""
    starts = {("cdc", p): PartitionStart(0, 0, 0) for p in range(PARTITIONS)}
    order = BoundaryOrder(Progress("bridge", 1, 0, 0, {}, ()), starts, ApplierConfig(), Counts())
    batches = [DecodedBatch.of(_events(number, some)) for number, some in enumerate(drawn)]
    for batch, following in pairwise(batches):
        order.take(batch)
        guess = order.coming(following)
        is_late = following.divided().rows.from_ts(order.resolved_ts).amount.rows < following.divided().rows.amount.rows
        for due in order.due():
            order.moved(order.advance_to(due.segment.high, due.segment.high))
        later = deepcopy(order)
        later.take(following)
        due_next = next(iter(later.due()), None)
        if guess is not None and not is_late:
            found = due_next.rows if due_next is not None else None
            assert guess.is_here
            assert found is None if guess.count == 0 else found is not None and guess.is_same(found)
        changes = any(kind == "change" for some in drawn for _, _, kind in some)
        if guess is None and due_next is not None:
            assert changes


def _events(number: int, drawn: list[tuple[int, int, str]]) -> pa.Table:
    made: dict[str, Callable[[int], Event]] = {
        "row": lambda ts: row_change(ts, "t", ["id"], ["id"], after=[ts]),
        "boundary": boundary,
        "change": lambda ts: schema_change(ts, "ALTER TABLE t ADD v INT"),
    }
    return events_table([(p, 100 * number + n, made[kind](ts)) for n, (p, ts, kind) in enumerate(drawn)])


STAMPS = st.lists(st.integers(0, 20)).map(sorted)


def change(ts: int, text: str = "x", schema: str = "m", position: str = "cdc/0/0") -> SchemaChange:
    return SchemaChange(ts, schema, "t", text, position)


@given(row_ts=STAMPS, change_ts=STAMPS)
def test_segments_tile_the_window(row_ts: list[int], change_ts: list[int]) -> None:
    """Segments follow one another without gap or overlap; each schema change comes once and in order, after all rows
    at or below its commit_ts and before all rows above it."""
    changes = [change(ts, f"{i}") for i, ts in enumerate(change_ts)]
    segments = list(cut_window(0, 21, changes, row_ts))
    assert [s.low for s in segments] == [0, *(s.high for s in segments[:-1])]
    assert segments[-1].high == 21
    assert [c for s in segments for c in s.changes] == changes
    for segment in segments:
        assert segment.low < segment.high
        for c in segment.changes:
            before = [ts for ts in row_ts if ts < segment.high]
            assert before == [ts for ts in row_ts if ts <= c.commit_ts]


@given(row_ts=STAMPS, change_ts=STAMPS)
def test_changes_without_rows_between_are_one_break(row_ts: list[int], change_ts: list[int]) -> None:
    """Consecutive schema changes end one segment together: two segments with changes have rows between them."""
    changes = [change(ts, f"{i}") for i, ts in enumerate(change_ts)]
    with_changes = [s for s in cut_window(0, 21, changes, row_ts) if s.changes]
    for one, other in pairwise(with_changes):
        assert any(one.high <= ts < other.high for ts in row_ts)


def test_many_changes_are_several_breaks() -> None:
    """Consecutive schema changes that progress would have to write again and again are cut, but never those of one
    commit_ts; a long one by itself is no reason to cut what is before it."""
    long = "x" * TOGETHER
    changes = [change(ts, text) for ts, text in ((1, "a"), (2, long), (2, "b"), (2, long), (3, "c"), (4, "d"))]
    assert [(s.low, s.high, len(s.changes)) for s in cut_window(0, 9, changes, [])] == [(0, 3, 4), (3, 5, 2), (5, 9, 0)]


def test_an_empty_window_is_one_segment() -> None:
    """Progress moves though nothing happened."""
    assert list(cut_window(5, 9, [], [])) == [Segment(5, 9)]


@given(row_ts=STAMPS, rows=st.integers(1, 6))
def test_transactions_are_never_divided(row_ts: list[int], rows: int) -> None:
    """Pieces tile the rows, none divides a commit_ts, and none is longer than it must be."""
    pieces = list(cut_transactions(row_ts, rows))
    assert [i for start, end in pieces for i in range(start, end)] == list(range(len(row_ts)))
    for start, end in pieces:
        assert end == len(row_ts) or row_ts[end - 1] < row_ts[end]
        most = max(rows + rows // 2, 1)
        assert end - start <= most or row_ts[start] == row_ts[end - 1]


def test_a_rest_is_no_transaction_of_its_own() -> None:
    """A commit costs as much for two rows as for thousands."""
    assert list(cut_transactions(range(52), 50)) == [(0, 52)]
    assert list(cut_transactions(range(104), 50)) == [(0, 52), (52, 104)]


def test_copies_fold() -> None:
    """Broadcast and repeated copies are one schema change, that of the first copy."""
    copies = [change(5, position=f"cdc/{p}/9") for p in range(4)]
    assert fold_copies(copies) == copies[:1]


def test_the_order_of_one_moment_does_not_depend_on_how_it_was_read() -> None:
    """Several topics are read in whatever order: a bridge that starts again must not run them otherwise."""
    came = [
        change(7, "second", position="a/0/10"),
        change(7, "first", position="a/0/9"),
        change(7, "third", position="b/0/2"),
        change(7, "third", position="b/1/1"),
        change(7, "second", position="a/1/3"),
        change(7, "first", position="a/1/2"),
        change(6, "zero", position="z/0/0"),
    ]
    for order in itertools.permutations(came):
        assert [(c.text, c.position) for c in fold_copies(order)] == [
            ("zero", "z/0/0"), ("first", "a/0/9"), ("second", "a/0/10"), ("third", "b/0/2")
        ]  # fmt: skip


def test_statements_of_one_moment_keep_their_order() -> None:
    """Two statements of one commit_ts both run, as they came; the same text in another schema is another one."""
    came = [
        change(7, "RENAME TABLE a TO tmp"),
        change(7, "RENAME TABLE b TO a"),
        change(5, "z"),
        change(7, "RENAME TABLE a TO tmp", position="cdc/1/3"),
        change(7, "RENAME TABLE tmp TO b"),
        change(7, "z", schema="n"),
        change(7, "z"),
    ]
    folded = [(c.commit_ts, c.schema, c.text) for c in fold_copies(came)]
    assert folded == [
        *((5, "m", "z"), (7, "m", "RENAME TABLE a TO tmp"), (7, "m", "RENAME TABLE b TO a")),
        *((7, "m", "RENAME TABLE tmp TO b"), (7, "n", "z"), (7, "m", "z")),
    ]
