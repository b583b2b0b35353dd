"""Rows of which nothing tells on which side of a schema change they are, though it matters.  Pure.

Canal without GTIDs dates an event by the second in which its statement began.  When it sent a message tells more, but
for what it sent in one millisecond, or in one batch to two topics, and after a restart, or when it sent a batch again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from bridge.ddl.classes import ChangeClass
from bridge.ddl.parser import Classified, classify
from bridge.model import SchemaChange, TableName
from bridge.pipeline.by_partitions.row_schemas import rows_of
from bridge.protocols.values.event_time import BATCH_BITS, SENT
from bridge.rows.grouping import Bools, Longs
from bridge.rows.moments import Places, compared_by_sending, coordinates_of, is_of_sending
from bridge.tso import ms_tso

_NEAR_MS: Final = 60_000
_NEAR: Final = ms_tso(_NEAR_MS)
"""Beyond it the clock is taken to tell where the sendings do not."""
_DECIDED_BY_ORDER: Final = frozenset(
    {
        ChangeClass.DROP_DATABASE,
        ChangeClass.DROP_TABLE,
        ChangeClass.TRUNCATE_TABLE,
        ChangeClass.RENAME_TABLE,
        ChangeClass.DROP_PARTITION,
        ChangeClass.TRUNCATE_PARTITION,
        ChangeClass.EXCHANGE_PARTITION,
    }
)
"""What takes rows away or gives them another name: no error tells that a row came on the wrong side of it."""
_ONE_BATCH: Final = (1 << BATCH_BITS) - 1


@dataclass(frozen=True)
class UnclearRows:
    """The rows of the tables of a schema change that may be on either side of it.

    tables: in lower case, as the target calls them; none where these may be any.
    topic: of the schema change.  ts: its time (TSO).  sent: its coordinate SENT.
    is_repeated: whether its batch was sent again, so that what comes later may be of the batch's first half.
    """

    tables: frozenset[TableName]
    topic: str
    ts: int
    sent: int
    is_repeated: bool = False

    @classmethod
    def of(
        cls, change: SchemaChange, tables: Collection[tuple[str, str]] | None, *, is_repeated: bool
    ) -> UnclearRows | None:
        """Gives those of a schema change; None where its place in the binlog is told, or no row depends on it.

        tables: its tables in lower case, as the target calls them; None where these may be any.
        """
        known = classify(change.text, change.schema)
        if not is_of_sending(change.place) or not isinstance(known, Classified):
            return None
        if _DECIDED_BY_ORDER.isdisjoint(known.classes):
            return None
        names = frozenset(TableName(*name) for name in tables or ())
        topic = change.position.rsplit("/", 2)[0]
        return cls(names, topic, change.commit_ts, coordinates_of(change.place)[SENT], is_repeated)

    def among(self, events: pa.Table) -> Bools:
        """Tells which events (EVENT_SCHEMA) are such rows."""
        found = np.full(events.num_rows, not self.tables)
        for table in self.tables:
            found |= rows_of(table, events)
        if not found.any():
            return found
        is_other = events["topic"].to_numpy(zero_copy_only=False) != self.topic
        return found & self._are_unclear(events["commit_ts"].to_numpy(), _sendings(events), is_other)

    def come_first_among(self, events: pa.Table) -> bool | None:
        """Tells whether one of these rows comes among events of a partition, in order, before one that was clearly sent
        later: what comes behind that was sent again, or is later too.  None where there is neither."""
        times, numbers = events["commit_ts"].to_numpy(), _sendings(events)
        is_sure, is_later = compared_by_sending(numbers, self.sent)
        is_clear = is_sure & is_later & (times > self.ts + (_NEAR if self.is_repeated else 0)) & (numbers >= 0)
        is_clear &= ~self._are_of_batch(numbers)
        end = int(is_clear.argmax()) if is_clear.any() else events.num_rows
        if self.among(events.slice(0, end)).any():
            return True
        return None if end == events.num_rows else False

    def may_hold(self, topic: str, ts: int, place: str) -> bool:
        """Tells whether a row, of whatever table, may be behind the schema change: its topic, time (TSO) and place."""
        if not is_of_sending(place):
            return False
        numbers, times = np.array([coordinates_of(place)[SENT]]), np.array([ts])
        is_sure, is_later = compared_by_sending(numbers, self.sent)
        is_late = is_sure & is_later & (times >= self.ts)
        return bool((is_late | self._are_unclear(times, numbers, np.array([topic != self.topic])))[0])

    def _are_unclear(self, times: Longs, numbers: Longs, is_other_topic: Bools) -> Bools:
        is_sure, is_later = compared_by_sending(numbers, self.sent)
        is_near = (times >= self.ts) & (times <= self.ts + _NEAR)
        is_untold = ~is_sure | (is_other_topic & self._are_of_batch(numbers)) | (is_later & self.is_repeated)
        is_contrary = is_sure & is_later & (times < self.ts) & (times >= self.ts - _NEAR)
        found: Bools = (numbers >= 0) & (is_contrary | (is_untold & is_near))
        return found

    def _are_of_batch(self, numbers: Longs) -> Bools:
        """Tells which sendings are of the schema change's batch; another run of Canal may have one of that number."""
        is_beside = abs((numbers >> BATCH_BITS) - (self.sent >> BATCH_BITS)) < _NEAR_MS
        same: Bools = is_beside & ((numbers & _ONE_BATCH) == (self.sent & _ONE_BATCH))
        return same


def _sendings(events: pa.Table) -> Longs:
    """Gives the coordinates SENT of events, -1 where there is none."""
    return Places.of(events["place"]).numbers.get(SENT, np.full(events.num_rows, -1, np.int64))
