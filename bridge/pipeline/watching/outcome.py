"""How a pipeline ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bridge.mysql.apply.writer import Writer
from bridge.pipeline.applier import Applier


@dataclass(frozen=True)
class Outcome:
    """How a pipeline ended.

    applied_ts: None when the pipeline ended before its progress was known.
    seconds: from start to end.
    stream_seconds: from the start of Spark to the end; where the input ended before, from the first look at it.
    apply_seconds: from the first transaction with row changes to the end.
    rest: row changes that were read and not applied, since they are at or above the last boundary.
    quarantined: messages and rows that were quarantined.
    left_out: row changes of the server's or the bridge's own databases, which are never written, by table.
    unmatched: filter rules that matched none of the tables that occurred.
    until_reached: False when `--until` was given and not reached.
    interrupted: a stop came before the end of the input.
    phases: where the time from the first look at the input to the end went, in seconds (`bridge.ends.phases`).
    by_partition: applied in the order of the partitions, so that applied_ts is only the highest event time.
    """

    applied_ts: int | None
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
    phases: Mapping[str, float] = field(default_factory=dict)


BEFORE_PROGRESS: Final = Outcome(applied_ts=None, interrupted=True)
"""A stop came while the target, or the source, was waited for."""


def outcome_of(applier: Applier, writer: Writer, began: float, reading: float, ended: float) -> Outcome:
    """Makes the outcome of the last applier and the writer, as far as these know it.

    began, reading, ended: when the pipeline began, when it began to read, and when it ended, by the applier's clock.
    """
    order, counts = applier.order, applier.counts
    return Outcome(
        applied_ts=order.applied_ts,
        messages=counts.messages,
        rows=counts.rows,
        seconds=ended - began,
        stream_seconds=ended - reading,
        apply_seconds=ended - (counts.applying_since or ended),
        transactions=writer.counts.transactions,
        schema_changes=writer.counts.schema_changes,
        rest=order.waiting.rows,
        late=counts.late.total(),
        quarantined=counts.quarantined,
        left_out={str(name): count for name, count in counts.left_out.items()},
        until_reached=order.until_reached,
        by_partition=order.by_partition,
        phases=writer.phases.seconds(),
    )
