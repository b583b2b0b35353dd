"""What the orders share: where partitions begin that progress does not know, and what will be due next."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bridge.events import Event
from bridge.model import PartitionStart
from bridge.mysql.state.progress import Progress
from bridge.pipeline.applier_config import ApplierConfig
from bridge.pipeline.by_boundaries.order import BoundaryOrder
from bridge.pipeline.order import first_offsets
from bridge.pipeline.watching.counts import Counts
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
