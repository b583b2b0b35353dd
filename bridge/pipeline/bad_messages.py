"""What becomes of messages that cannot be decoded: each stops the bridge where it lies, or is put aside (design,
decision 12).

A message that stops freezes its partition's boundary at the last one before it.  One that is put aside counts as a
change at that boundary: it is written with the first transaction that goes beyond it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from bridge.errors import BadMessageError, RefusedRowsError
from bridge.events import Code, Position
from bridge.model import Advance, Entry, PartitionId, Table, TableName
from bridge.mysql.apply.writer import Writer
from bridge.pipeline.refused_rows import apply_sifted, exact
from bridge.rows.order_and_slices import WindowRows

if TYPE_CHECKING:
    from bridge.pipeline.truncated_rows import CutRows


class BadMessage(NamedTuple):
    """A message that cannot be decoded.

    boundary: of its partition, the last one before it in the same micro-batch; 0 without one.
    """

    entry: Entry
    boundary: int

    @property
    def partition(self) -> PartitionId:
        """Where it lies."""
        return self.entry.position.topic, self.entry.position.partition


class DueEntry(NamedTuple):
    """What is to be put aside by the transaction that brings the target beyond `ts`."""

    ts: int
    entry: Entry


@dataclass(frozen=True)
class OnBadMessage:
    """The setting of that name.

    quarantine: put messages aside that cannot be decoded, and rows that the target refuses.
    protocol: kept with what is put aside, since a message does not always tell.
    cut_rows: completes rows that were cut to their key, None without an upstream to read them from.
    released: positions of schema changes that are put aside all the same, since somebody has seen to them.
    """

    quarantine: bool = False
    protocol: str = ""
    cut_rows: CutRows | None = None
    released: frozenset[str] = frozenset()

    def stops(self, bad: BadMessage) -> bool:
        """Everything does without a quarantine; a schema change always, as what follows depends on it, but for those
        that were released."""
        if bad.entry.code == Code.SCHEMA_CHANGE:
            return str(bad.entry.position) not in self.released
        return not self.quarantine

    def apply(self, writer: Writer, step: Advance, rows: WindowRows, catalog: Mapping[TableName, Table]) -> Advance:
        """Commits a transaction; gives it as committed, with the rows that were put aside as the target refuses them.

        Raises what `Writer.apply` raises.
        """
        if self.quarantine:
            return apply_sifted(writer, step, rows, catalog, self.protocol)
        try:
            writer.apply(step, partial(rows.statements, catalog))
        except RefusedRowsError as refusal:
            raise exact(writer, rows, catalog, refusal) from refusal
        return step

    def due(self, bad: BadMessage, ts: int) -> DueEntry:
        """The entry of a message that is put aside."""
        return DueEntry(ts, replace(bad.entry, protocol=self.protocol, commit_ts=ts))


def boundaries_before(boundaries: Mapping[PartitionId, int], stopping: Iterable[BadMessage]) -> dict[PartitionId, int]:
    """A micro-batch's boundaries without those that vouch for a message that stops; `stopping` in order."""
    kept = dict(boundaries)
    seen = set()
    for bad in stopping:
        if bad.partition in kept and bad.partition not in seen:
            kept[bad.partition] = bad.boundary
        seen.add(bad.partition)
    return {partition: ts for partition, ts in kept.items() if ts}


def bad_message_error(stopping: Sequence[BadMessage]) -> BadMessageError:
    """The error that names the first of them."""
    first = stopping[0].entry
    more = f" (and {len(stopping) - 1} more behind it)" if len(stopping) > 1 else ""
    return BadMessageError(
        f"a message cannot be decoded: {first.reason}{more}",
        where=str(first.position),
        mend="everything complete before it is in the target; mend what the reason names, or if the message is broken"
        f" for good, {_ways_on(first)}; then start the bridge again",
    )


def _ways_on(entry: Entry) -> str:
    if entry.code == Code.SCHEMA_CHANGE:
        return (
            "run by hand what it changed upstream, and put it aside with --set"
            f" source.put_aside={entry.position} (a schema change is never put aside by itself)"
        )
    return "leave its table out with --filter, or put it aside with --on-bad-message quarantine"


def message_entry(
    position: Position, code: str | None, reason: str | None, key: str | None, value: str | None
) -> Entry:
    """The entry of a BAD event's fields."""
    return Entry(position, code or Code.MALFORMED, reason or "", key=key, value=value)
