"""Messages that cannot be decoded: each stops the bridge at its position, or is quarantined (internals, decision 12).

A message that stops the bridge freezes the boundary of its partition at the last one before it.  A message that is
quarantined counts as a change at that boundary: the first transaction beyond the boundary writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bridge.errors import BadMessageError
from bridge.events import Code, Position
from bridge.model import Entry, PartitionId


class BadMessage(NamedTuple):
    """A message that cannot be decoded.

    boundary: the last boundary (TSO) of its partition before it in the same micro-batch; 0 without one.
    """

    entry: Entry
    boundary: int

    @property
    def partition(self) -> PartitionId:
        """Its partition."""
        return self.entry.position.topic, self.entry.position.partition


class DueEntry(NamedTuple):
    """An entry that is quarantined by the transaction that moves the target beyond `ts`."""

    ts: int
    entry: Entry


def boundaries_before(boundaries: Mapping[PartitionId, int], stopping: Iterable[BadMessage]) -> dict[PartitionId, int]:
    """Lowers the boundaries of a micro-batch to the last one before a message that stops.  stopping: in order."""
    kept = dict(boundaries)
    seen = set()
    for bad in stopping:
        if bad.partition in kept and bad.partition not in seen:
            kept[bad.partition] = bad.boundary
        seen.add(bad.partition)
    return {partition: ts for partition, ts in kept.items() if ts}


def bad_message_error(stopping: Sequence[BadMessage]) -> BadMessageError:
    """Makes the error for messages that stop the bridge; it names the first of them."""
    first = stopping[0].entry
    more = f" (and {len(stopping) - 1} more after it)" if len(stopping) > 1 else ""
    reason = f"{first.reason}{more}"
    return BadMessageError(
        f"the message of a schema change cannot be decoded: {reason}"
        if first.code == Code.SCHEMA_CHANGE
        else f"a message cannot be decoded: {reason}",
        where=str(first.position),
        fix="everything complete before it is in the target; fix what the reason names, or if the message is broken"
        f" for good, {_ways_to_continue(first, stopping)}; then start the bridge again",
    )


def _ways_to_continue(entry: Entry, stopping: Sequence[BadMessage]) -> str:
    if entry.code == Code.AHEAD_OF_CLOCK:
        return (
            f"quarantine it with --set source.quarantine={entry.position} (a boundary holds no change, and the next one"
            " does what it should have done)"
        )
    if entry.code == Code.SCHEMA_CHANGE:
        copies = {one.partition: one.entry for one in reversed(stopping) if one.entry.value == entry.value}
        positions = ",".join(sorted(str(one.position) for one in copies.values()))
        return (
            "see what it changed upstream (bridge inspect shows the message), change the target by hand as far as it"
            f" has to be, and quarantine the message with --set source.quarantine={positions}"
        )
    return "leave its table out with --filter, or quarantine it with --on-bad-message quarantine"


def message_entry(position: Position, reason: str | None, code: str | None, *content: str | None) -> Entry:
    """Makes an entry from the fields of a BAD event.  content: its key, its value, and its schemas, if it has any."""
    key, value, schemas = (*content, None)[:3]
    return Entry(position, code or Code.MALFORMED, reason or "", key=key, value=value, schemas=schemas)
