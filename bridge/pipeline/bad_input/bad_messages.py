"""Messages that cannot be decoded: each stops the bridge at its position, or is quarantined (internals, decision 12).

A message that stops the bridge freezes the boundary of its partition at the last one before it.  A message that is
quarantined counts as a change at that boundary: the first transaction beyond the boundary writes it.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from bridge.errors import BadMessageError
from bridge.events import Code
from bridge.model import Entry, PartitionId, SchemaChange
from bridge.mysql.state.ddl_journal import UNREADABLE

_SHOWN: Final = 2_000
"""How many bytes of a message that cannot be decoded the journal shows."""


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


def boundaries_before(boundaries: Mapping[PartitionId, int], stopping: Iterable[BadMessage]) -> dict[PartitionId, int]:
    """Lowers the boundaries of a micro-batch to the last one before a message that stops.  stopping: in order."""
    kept = dict(boundaries)
    seen = set()
    for bad in stopping:
        if bad.partition in kept and bad.partition not in seen:
            kept[bad.partition] = bad.boundary
        seen.add(bad.partition)
    return {partition: ts for partition, ts in kept.items() if ts}


def unreadable_change(entry: Entry, ts: int, *, is_again: bool = False) -> SchemaChange:
    """Makes the schema change that the journal holds for a message of one that cannot be decoded.  Copies in several
    partitions are one.

    ts: the commit ts that the target has reached (TSO), as its own cannot be read.  is_again: its partition held the
    same message before, so that this is another schema change.
    """
    message = b64decode(entry.value or "")
    shown = message[:_SHOWN].decode(errors="replace")
    digest = hashlib.sha1(message, usedforsecurity=False).hexdigest()
    where = f" at {entry.position}" if is_again else ""
    return SchemaChange(ts, "", "", f"{UNREADABLE} sha1 {digest}{where}: {shown}", str(entry.position))


def bad_message_error(stopping: Sequence[BadMessage], journal_id: str = "") -> BadMessageError:
    """Makes the error for messages that stop the bridge; it names the first of them.  journal_id: what `bridge ddl`
    calls it, of a schema change."""
    first = stopping[0].entry
    more = f" (and {len(stopping) - 1} more after it)" if len(stopping) > 1 else ""
    reason = f"{first.reason}{more}"
    return BadMessageError(
        f"the message of a schema change cannot be decoded: {reason}"
        if first.code == Code.SCHEMA_CHANGE
        else f"a message cannot be decoded: {reason}",
        where=str(first.position),
        fix="everything complete before it is in the target; fix what the reason names, or if the message is broken"
        f" for good, {_ways_to_continue(first, journal_id)}; then start the bridge again",
    )


def _ways_to_continue(entry: Entry, journal_id: str) -> str:
    if entry.code == Code.AHEAD_OF_CLOCK:
        return (
            f"quarantine it with --set source.quarantine={entry.position} (a boundary holds no change, and the next one"
            " does what it should have done)"
        )
    if entry.code == Code.SCHEMA_CHANGE:
        return (
            f"see what it changed upstream, and bridge ddl replace {journal_id} with that statement; or change the"
            f" target by hand and bridge ddl done {journal_id}; or bridge ddl skip {journal_id}"
        )
    return "leave its table out with --filter, or quarantine it with --on-bad-message quarantine"
