"""Tells the connector's one snapshot from a second one, in which what was deleted since the first is missing."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.errors import SourceError
from bridge.model import SchemaChange
from bridge.pipeline.by_transactions.reached import Place
from bridge.protocols.values.event_time import SNAPSHOT_SERVER


class Snapshot:
    """The snapshot that a pipeline begins with: all of it has one place in the binlog, and each statement comes once.

    changes: the schema changes on record, of which those of a snapshot count.
    """

    def __init__(self, changes: Iterable[SchemaChange] = ()) -> None:
        told = [one for one in changes if f"/{SNAPSHOT_SERVER}\n" in one.place]
        self._number = int(told[-1].place.split("\n")[2]) if told else None
        self._positions = {one.statement_hash: one.position for one in told}

    def check(self, number: int, reached: Place, position: str) -> None:
        """Raises SourceError for a place of another snapshot.

        number: its file and position.  reached: the last place that was due.  position: of the message that tells it.
        """
        first = self._number if reached.last < 0 or reached.number >= 0 else reached.last + 1
        if first not in (None, number) or -1 < reached.number != number:
            raise _begun_again(position)
        self._number = number

    def check_statement(self, change: SchemaChange) -> None:
        """Raises SourceError for a statement that a snapshot of the same place had in another message."""
        if self._positions.setdefault(change.statement_hash, change.position) != change.position:
            raise _begun_again(change.position)


def _begun_again(where: str) -> SourceError:
    return SourceError(
        "the connector has begun another snapshot, as it was killed in its first one, has lost its offsets, got the"
        " signal for a blocking one, has snapshot.mode=recovery, or its upstream was set back: what was deleted in"
        " between may be in no message, and rows without a key would double",
        where=where,
        fix="have the connector take its snapshot under another topic.prefix, and begin a new pipeline with those"
        " topics into an empty target; bridge help starting has the steps",
    )
