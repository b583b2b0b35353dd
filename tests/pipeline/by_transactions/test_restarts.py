"""Genuine messages of a connector that was killed four times, applied to a bank in memory.  On servers, by processes
that die too, they are in `test_order`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from bridge.errors import SourceError
from bridge.events import Kind
from bridge.model import Advance, PartitionId, SchemaChange
from bridge.mysql.state.progress import Progress, dump_positions, load_positions
from bridge.pipeline.applier import ApplierConfig, Counts, IdlePolicy
from bridge.pipeline.by_transactions.order import TransactionOrder
from bridge.pipeline.order import starts_of
from bridge.rows.gathering import Amount
from bridge.spark.decoded_batch import DecodedBatch
from tests.support.models import Clock
from tests.support.pipelines import decoded

TOPIC = ("nextring-bank-json-64504.transaction", 0)


class Died(Exception):  # noqa: N818  # the end of a process, not an error
    """The process is gone."""


class Bank:
    """What is in the target: the accounts, how far the pipeline is, and the schema changes that ran."""

    def __init__(self) -> None:
        self.applied_ts, self.positions = 0, "{}"
        self.rows: dict[tuple[str, int], int] = {}
        self.journal: list[SchemaChange] = []

    def progress(self) -> Progress:
        """As a new process reads it."""
        return Progress("bridge", 1, self.applied_ts, 0, load_positions(self.positions), (), self.applied_ts)

    def changes_between(self, low: int, high: int) -> list[SchemaChange]:
        """What is on record."""
        return [one for one in self.journal if low <= one.commit_ts < high]

    def commit(self, step: Advance, rows: pa.Table | None) -> None:
        """One target transaction."""
        step.check()
        assert step.old_ts == self.applied_ts
        self.applied_ts, self.positions = step.new_ts, dump_positions(step.positions)
        self.journal += step.pending
        names = ("kind", "table", "columns", "before", "after")
        for kind, table, columns, before, after in (
            zip(*(rows[name].to_pylist() for name in names), strict=True) if rows is not None else ()
        ):
            row = dict(zip(columns.split("\0\0")[0].split("\0"), (after or before).split("\0"), strict=True))
            if kind == Kind.UPDATE:  # nothing may come twice, nor out of order
                old = dict(zip(columns.split("\0\0")[0].split("\0"), before.split("\0"), strict=True))
                assert self.rows[table, int(old["id"])] == int(old["balance"])
            self.rows[table, int(row["id"])] = int(row["balance"])


def order_of(
    bank: Bank,
    partitions: Sequence[PartitionId],
    ends: Callable[[], Mapping[PartitionId, int]],
    clock: Clock | None = None,
) -> TransactionOrder:
    """The order of a new process."""
    progress = bank.progress()
    return TransactionOrder(
        progress,
        starts_of(progress, dict.fromkeys(partitions, 0), by_partition=False),
        TOPIC,
        bank.changes_between,
        ApplierConfig(idle=IdlePolicy(10, lambda _: ends()), grace_seconds=60, clock=clock or Clock()),
        Counts(),
    )


def apply_due(
    order: TransactionOrder,
    bank: Bank,
    most: int,
    steps: Callable[[], None],
    in_parts: Callable[[Advance, pa.Table], None] = lambda _step, _rows: None,
) -> None:
    """What the applier does.  in_parts: with `parallel`, writes what several connections do before progress moves."""
    for segment, rows, at_once in order.due():
        end: int | None = 0
        for end, piece in rows.pieces(Amount(1 << 40 if at_once else most, 1 << 40)) if rows is not None else ():
            step = order.advance_to(
                segment.high if end is None else end, segment.high, segment.changes if end is None else ()
            )
            in_parts(step, piece.table)
            steps()
            bank.commit(step, piece.table)
            steps()
            order.moved(step)
        if end is not None:
            step = order.advance_to(segment.high, segment.high, segment.changes)
            bank.commit(step, None)
            order.moved(step)


@pytest.fixture(scope="module")
def events(real_senders: Path) -> pa.Table:
    """All messages, in the order in which Kafka took them."""
    return decoded(real_senders / "debezium-restarts" / "bank.jsonl", "debezium", transactions=True)


def test_a_transaction_that_stays_short(events: pa.Table) -> None:
    """The bridge waits while nothing comes: the connector may be away.  When an END comes later and the rows do not, it
    stops, and names what lacks; nothing behind it is in the target."""
    clock, bank = Clock(), Bank()
    names = events["topic"].to_pylist()
    lost = next(
        n for n, name in enumerate(names) if name.endswith("acc_b") and events["kind"][n].as_py() == Kind.UPDATE
    )
    order = order_of(bank, sorted({(name, 0) for name in names}), dict, clock)
    rest = pa.concat_tables([events.slice(0, lost), events.slice(lost + 1)])
    order.take(DecodedBatch.of(rest))
    apply_due(order, bank, 1000, lambda: None)
    seen = dict(bank.rows)
    order.tick()
    clock.now = 1000
    order.tick()
    last_end = events.filter(pa.array([name == TOPIC[0] for name in names]))[-1:]
    order.take(DecodedBatch.of(last_end))
    clock.now = 1029
    order.tick()
    clock.now = 1030
    with pytest.raises(SourceError, match=r"lacks rows: bank.acc_b: 0 of 1|lacks rows: bank.acc_b: 1 of 2"):
        order.tick()
    assert bank.rows == seen
    assert "lacks rows" in order.waiting_for()


def test_a_schema_change_that_comes_behind_its_place(events: pa.Table) -> None:
    """One that the journal has is a copy; another one is for the operator."""
    kinds = events["kind"].to_numpy()
    change = events.filter(pa.array(kinds == int(Kind.SCHEMA_CHANGE))).slice(3, 1)
    bank = Bank()
    order = order_of(bank, sorted({(name, 0) for name in events["topic"].to_pylist()}), dict)
    order.take(DecodedBatch.of(events))
    apply_due(order, bank, 1000, lambda: None)
    order.take(DecodedBatch.of(change))
    assert not list(order.due())
    late = change.set_column(
        events.schema.get_field_index("text"), events.schema.field("text"), pa.array(["DROP DATABASE bank"])
    )
    order.take(DecodedBatch.of(late))
    [due] = order.due()
    assert [one.text for one in due.segment.changes] == ["DROP DATABASE bank"]
    assert "behind transactions" in due.segment.changes[0].doubt


def test_a_schema_change_that_came_too_late_stands_before_what_came_with_it(events: pa.Table) -> None:
    """A process that dies in between would read it no more: it lies before one that ran."""
    kinds = events["kind"].to_numpy()
    [said] = events.filter(pa.array(kinds == int(Kind.SCHEMA_CHANGE))).slice(3, 1).to_pylist()
    bank = Bank()
    order = order_of(bank, sorted({(name, 0) for name in events["topic"].to_pylist()}), dict)
    order.take(DecodedBatch.of(events))
    apply_due(order, bank, 1000, lambda: None)
    table, server, _, *rest = said["place"].split("\n")
    behind = "\n".join([table, server, f"{1 << 50:019}", *rest])
    late = said | {"text": "DROP DATABASE bank", "offset": 1000}
    both = [late, said | {"text": "DROP TABLE t", "place": behind, "offset": 1001}]
    order.end()  # what it takes is due at once
    order.take(DecodedBatch.of(pa.Table.from_pylist(both, schema=events.schema)))
    changes = [one for due in order.due() for one in due.segment.changes]
    assert [one.text for one in sorted(changes, key=lambda one: one.commit_ts)] == [
        "DROP DATABASE bank",
        "DROP TABLE t",
    ]
