"""Tells which schema changes came too late: behind rows of their tables that were written after them.  Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from bridge.ddl.classes import ChangeClass
from bridge.ddl.parser import Classified, classify
from bridge.model import PartitionId, SchemaChange, TableName
from bridge.pipeline.by_partitions.partition_queue import AppliedRow
from bridge.pipeline.by_partitions.row_schemas import UnclearRows
from bridge.rows.grouping import Longs, distinct, ends, numbered
from bridge.rows.moments import Moment, names_of, shown

_LATE: Final = (
    "it came too late: rows of {} that were written behind it are in the target already (the last one at {}, the"
    " schema change at {}). It was read behind them, or the upstream's binlog was begun anew (RESET MASTER, another"
    " server under the same server_id). Where it takes rows or values away, it would take those of these rows too:"
    " compare the table with the upstream"
)
_ONLY_MAKING: Final = ((ChangeClass.CREATE_TABLE,), (ChangeClass.CREATE_DATABASE,))
Names = Collection[tuple[str, str]]
"""Databases and tables in lower case, as the target calls them."""


class AppliedPlaces:
    """The last places of each table in the target, by partition, of what has come since the start.

    started: the last row of each partition in the target at the start, of whichever table.
    """

    def __init__(self, started: Mapping[PartitionId, AppliedRow]) -> None:
        self._started = dict(started)
        self._last: dict[tuple[str, str], dict[PartitionId, AppliedRow]] = {}

    def note_rows(self, rows: pa.Table, times: Longs) -> None:
        """Notes row changes (EVENT_SCHEMA) that are in the target.  times: their event times (TSO)."""
        told = np.flatnonzero(rows["place"].is_valid().to_numpy())
        if not len(told):
            return
        some = rows.take(pa.array(told)) if len(told) < rows.num_rows else rows
        _, of_name = distinct(some, ("topic", "schema", "table"))
        partitions = some["partition"].to_numpy()
        _, last = ends(numbered(of_name * (int(partitions.max()) + 1) + partitions))
        columns = ("topic", "partition", "schema", "table", "place")
        for row, ts in zip(
            some.select(columns).take(pa.array(last)).to_pylist(), times[told[last]].tolist(), strict=True
        ):
            name = row["schema"].lower(), row["table"].lower()
            self._note(name, (row["topic"], row["partition"]), AppliedRow(ts, row["place"]))

    def note_change(self, where: PartitionId, moment: Moment, names: Names) -> None:
        """Notes a schema change that is about to run.  names: its tables, of which each may have become the other."""
        before = [one for name in names for one in self._last.get(name, {}).items()]
        for name in names:
            for other, row in [*before, *((where, AppliedRow(moment.ts, place)) for place in moment.places)]:
                self._note(name, other, row)

    def _note(self, name: tuple[str, str], where: PartitionId, row: AppliedRow) -> None:
        last = self._last.setdefault(name, {})
        before = last.get(where)
        # What goes back though it is later is of a binlog that began anew.
        is_sent_again = before and before.ts >= row.ts and before.place > row.place
        if not is_sent_again or names_of(last[where].place) != names_of(row.place):
            last[where] = row

    def lateness(
        self,
        where: PartitionId,
        moment: Moment,
        change: SchemaChange,
        names: Names | None,
        applied: Mapping[PartitionId, AppliedRow],
        unclear: UnclearRows | None = None,
    ) -> str:
        """Tells why a schema change came too late, "" for one that did not: rows that their places put behind it are in
        the target.  What only makes something new is never late: rows of it could not have come before.

        where, moment: where it was read, and its moment.
        names: the tables whose rows it may touch, None where that may be any.
        applied: the last row of each partition in the target, of whichever table.
        unclear: the rows that may be on either side of it, which count as behind it; of a Canal without GTIDs nothing
            else tells that it is late.
        """
        if not moment.places or _only_makes(change):
            return ""
        rows = list((applied if names is None else self._started).items())
        rows += [one for name in names or () for one in self._last.get(name, {}).items()]
        for (topic, partition), row in sorted(rows):
            if (topic, partition) == where or not row.place:
                continue
            if moment.is_by_sending:
                is_late = unclear is not None and unclear.may_hold(topic, row.ts, row.place)
            else:
                is_late = moment.shows_before(row.ts, row.place)
            if is_late:
                return _LATE.format(f"{topic}/{partition}", shown(row.place), shown(moment.places[0]))
        return ""


def _only_makes(change: SchemaChange) -> bool:
    known = classify(change.text, change.schema)
    return isinstance(known, Classified) and known.classes in _ONLY_MAKING


ADD_TOPIC: Final = "stop the bridge, and start it with --topic {}@{} beside the others"
_NAMING: Final = frozenset({ChangeClass.CREATE_TABLE, ChangeClass.RENAME_TABLE})
_WRITTEN_OTHERWISE: Final = re.compile(r"[^a-zA-Z0-9._-]")


def unread_topics(change: SchemaChange, topics: Collection[str]) -> dict[TableName, str]:
    """Gives the tables that a schema change makes, or renames, whose topic is not among those that are read.

    topics: those that are read; where none of them is of a table of the connector, they are not told apart so.
    """
    prefix = change.position.rsplit("/", 2)[0]
    if not any(topic.startswith(f"{prefix}.") for topic in topics):
        return {}
    classified = classify(change.text, change.schema, is_certain=True)
    if not isinstance(classified, Classified) or _NAMING.isdisjoint(classified.classes):
        return {}
    named = {name: _WRITTEN_OTHERWISE.sub("_", f"{prefix}.{name.schema}.{name.table}") for name in classified.tables}
    return {name: topic for name, topic in named.items() if topic not in topics}
