"""How a pipeline ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bridge.mysql.apply.writer import Writer
from bridge.pipeline.applier import Applier


@dataclass(frozen=True)
class Outcome:
    """How a pipeline ended.

    seconds: from start to end; stream_seconds: the part of it after Spark had started; apply_seconds: the part of that
        since the first transaction with row changes began.
    rest: row changes read but at or above the last boundary.
    quarantined: messages and rows put into the quarantine.
    left_out: row changes that are never written, as they are of the server's own databases or the bridge's, by table.
    unmatched: rules of the filter that matched none of the tables that were met.
    until_reached: False when `--until` was given and not reached.
    interrupted: it was asked to stop before it came to the end of the input.
    by_partition: in the order of the partitions, so that applied_ts is only the highest event time.
    """

    applied_ts: int
    messages: int = 0
    rows: int = 0
    seconds: float = 0.0
    stream_seconds: float = 0.0
    apply_seconds: float = 0.0
    transactions: int = 0
    schema_changes: int = 0
    rest: int = 0
    late: int = 0
    quarantined: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    unmatched: tuple[str, ...] = ()
    until_reached: bool = False
    interrupted: bool = False
    by_partition: bool = False


def outcome_of(
    applier: Applier[Any],
    writer: Writer,
    *,
    seconds: float,
    stream_seconds: float,
    apply_seconds: float,
    unmatched: tuple[str, ...],
    interrupted: bool,
) -> Outcome:
    """What the last applier and the writer say; the other values as Outcome has them."""
    order, counts = applier.order, applier.counts
    return Outcome(
        applied_ts=order.applied_ts,
        messages=counts.messages,
        rows=counts.rows,
        seconds=seconds,
        stream_seconds=stream_seconds,
        apply_seconds=apply_seconds,
        transactions=writer.counts.transactions,
        schema_changes=writer.counts.schema_changes,
        rest=order.rows,
        late=counts.late.total(),
        quarantined=counts.quarantined,
        left_out={str(name): count for name, count in counts.left_out.items()},
        unmatched=unmatched,
        until_reached=order.until_reached,
        interrupted=interrupted,
        by_partition=order.by_partition,
    )
