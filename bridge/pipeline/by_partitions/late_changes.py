"""Tells which schema changes came too late, behind rows of their tables that were written after them; and which the
producer has sent again, by the identity that messages tell (guarantees, "What a producer sends again").  Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from bridge.ddl.classes import ChangeClass, StatementKind
from bridge.ddl.clauses import column_names_in
from bridge.ddl.parser import Classified, classify
from bridge.model import PartitionId, SchemaChange, TableName
from bridge.mysql.state.ddl_journal import DONE_BY_HAND
from bridge.pipeline.by_partitions.partition_queue import AppliedRow
from bridge.pipeline.by_partitions.row_schemas import UnclearRows
from bridge.protocols.values.event_time import BATCH_BITS, FILE, GTID, SENT
from bridge.rows.gathering import Longs, distinct, first_and_last, numbered
from bridge.rows.moments import Moment, coordinates_of, names_of
from bridge.tso import ms_tso, tso_ms

_LATE: Final = (
    "it came too late: rows of {} that were written behind it are in the target already. It was read behind them, or"
    " the upstream's binlog was begun anew (RESET MASTER, another server under the same server_id). Where it takes rows"
    " or values away, it would take those of these rows too: compare the table with the upstream"
)
_ONLY_MAKING: Final = ((ChangeClass.CREATE_TABLE,), (ChangeClass.CREATE_DATABASE,))
Names = Collection[tuple[str, str]]
"""Databases and tables in lower case, as the target calls them."""
NEAR: Final = ms_tso(3_600_000)
"""A schema change is dated by its start, and may have waited for its lock for so long (TSO)."""
_SECOND_MS: Final = 1000
_UNCLEAR: Final = (
    "the same statement ran in the same second, and nothing tells whether it was sent again, and would swap back what"
    " the first one swapped, or come before rows that are in the target already, or ran twice upstream: skip it (where"
    " that is refused, say `bridge ddl done`) or approve it, and compare its tables with the upstream, as rows from"
    " before may have come again"
)
_MADE_BESIDE: Final = "{!r}, of its batch, was made by hand: say bridge ddl done if this one was too, else approve it"


class AppliedPlaces:
    """The last places of each table in the target, by partition, of what has come since the start.

    started: the last row of each partition in the target at the start, of whichever table, and the highest time (TSO)
        that it had shown: what a former server wrote may have come again behind that.
    """

    def __init__(self, started: Mapping[PartitionId, tuple[AppliedRow, int]]) -> None:
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
        _, last = first_and_last(numbered(of_name * (int(partitions.max()) + 1) + partitions))
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
        applied: Mapping[PartitionId, tuple[AppliedRow, int]],
        unclear: UnclearRows | None = None,
    ) -> str:
        """Tells why a schema change came too late, "" for one that did not: rows that their places put behind it are in
        the target.  What only makes something new is never late: rows of it could not have come before.

        where: where it was read.  names: the tables whose rows it may touch, None where that may be any.
        applied: as `started`, now.  unclear: the rows that may be on either side of it, which count as behind it.
        """
        known = classify(change.text, change.schema)
        if not moment.places or (isinstance(known, Classified) and known.classes in _ONLY_MAKING):
            return ""
        rows = list((applied if names is None else self._started).items())
        rows += [(one, (row, 0)) for name in names or () for one, row in self._last.get(name, {}).items()]
        for (topic, partition), (row, latest) in sorted(rows):
            if (topic, partition) == where or not row.place:
                continue
            if moment.is_by_sending:
                is_late = unclear is not None and unclear.may_hold(topic, row.ts, row.place)
            else:
                is_late = moment.shows_before(row.ts, row.place, latest)
            if is_late:
                return _LATE.format(f"{topic}/{partition}")
        return ""


ADD_TOPIC: Final = "where Kafka has this topic (no transform renames it), start the bridge again with --topic {}@{} too"
_NAMING: Final = frozenset({ChangeClass.CREATE_TABLE, ChangeClass.RENAME_TABLE})
_WRITTEN_OTHERWISE: Final = re.compile(r"[^a-zA-Z0-9._-]")


def unread_topics(change: SchemaChange, topics: Collection[str]) -> dict[TableName, str]:
    """Gives the tables that a schema change makes, or renames, whose topic is not among those that are read.

    topics: those that are read; where none of them is of a table of the connector, they are not told apart so.
    """
    prefix = change.read_at.topic
    if not any(topic.startswith(f"{prefix}.") for topic in topics):
        return {}
    classified = classify(change.text, change.schema, is_certain=True)
    if not isinstance(classified, Classified) or _NAMING.isdisjoint(classified.classes):
        return {}
    named = {name: _WRITTEN_OTHERWISE.sub("_", f"{prefix}.{name.schema}.{name.table}") for name in classified.tables}
    return {name: topic for name, topic in named.items() if topic not in topics}


def second_run(change: SchemaChange, before: Sequence[SchemaChange], applied_time: int) -> SchemaChange | None:
    """Gives a schema change without a commit ts as it is to run; None for one that has run already.

    before: the schema changes on record of up to NEAR from its event time, in the order in which they came.
    applied_time: the highest event time of what was applied (TSO).
    A second change of one millisecond gets a commit_ts of its own.  One of which nothing tells whether it is a second
    one gets a doubt, if running it once more could do harm.
    """
    at_ms = tso_ms(change.commit_ts)
    alike = [one for one in before if (tso_ms(one.commit_ts), one.statement_hash) == (at_ms, change.statement_hash)]
    taken = {one.commit_ts for one in alike}
    anew = replace(change, commit_ts=next(ts for ts in range(change.commit_ts, 1 << 63) if ts not in taken))
    if not alike:
        made = (o.text[:200] for o in before if o.doubt == DONE_BY_HAND and are_side_by_side(change, o))
        return replace(change, doubt=_MADE_BESIDE.format(text)) if (text := next(made, "")) else change
    told = [is_same_place(one.place, change.place) for one in alike]
    if True in told:
        return None
    if None not in told:
        return anew
    partitions = {one.read_at[:2] for one in alike}
    if partitions != {change.read_at[:2]} or at_ms % _SECOND_MS:
        return None
    again = _in_one_second(anew, before[before.index(alike[-1]) + 1 :])
    if again is not None and applied_time >= change.commit_ts + ms_tso(_SECOND_MS):
        return replace(again, doubt=_UNCLEAR)
    return again


def _in_one_second(change: SchemaChange, between: Sequence[SchemaChange]) -> SchemaChange | None:
    """Decides about a statement that ran in the same second before, of which only what ran in between may tell more.

    What swaps gets a doubt.  With another change of its tables in between, such as a DROP between two CREATEs, it runs.
    Without one, no server would have run it twice, but for what empties a table, or a column that it makes anew.
    """
    known = classify(change.text, change.schema)
    if not isinstance(known, Classified):
        return change
    if known.swaps:
        return replace(change, doubt=_UNCLEAR)
    others = [other for one in between if isinstance(other := classify(one.text, one.schema), Classified)]
    names = column_names_in(change.text, known) if known.kind is StatementKind.ALTER_TABLE else None
    empties = set(known.classes) & _MAY_FOLLOW_ITSELF or (names and names.dropped & names.given)
    return change if empties or any(_touch_one_thing(known, other) for other in others) else None


def is_same_place(one: str, other: str) -> bool | None:
    """Tells whether two places ("" for none) are one; None when nothing can be told of them.  A GTID is the same on
    every server, files and positions are not.  A Canal that was restarted in between takes more than a second for that.
    """
    places = [coordinates_of(place) if place else {} for place in (one, other)]
    for kind in (GTID, FILE):
        first, second = ({n: at for n, at in place.items() if n.startswith(kind)} for place in places)
        if first.keys() & second.keys():
            return first == second
    one_sent, other_sent = (place.get(SENT) for place in places)
    if one_sent is None or other_sent is None:
        return None
    is_one_batch = not (one_sent ^ other_sent) & ((1 << BATCH_BITS) - 1)
    is_beside = abs((one_sent >> BATCH_BITS) - (other_sent >> BATCH_BITS)) < _SECOND_MS
    return False if is_one_batch and is_beside else None


def are_side_by_side(one: SchemaChange, other: SchemaChange) -> bool:
    """Tells whether Canal sent two schema changes that have, or copy, a table in common to two topics in one batch."""
    topics = {change.read_at.topic for change in (one, other)}
    if len(topics) == 1 or is_same_place(one.place, other.place) is not False:
        return False
    known = (classify(change.text, change.schema) for change in (one, other))
    tables = [{name.table.folded for name in (*k.touched, k.like) if name} for k in known if isinstance(k, Classified)]
    return len(tables) > 1 and bool(tables[0] & tables[1])


_MAY_FOLLOW_ITSELF: Final = frozenset({ChangeClass.TRUNCATE_TABLE, ChangeClass.TRUNCATE_PARTITION})


def _touch_one_thing(one: Classified, other: Classified) -> bool:
    """Tells whether two statements change one table, or one of them the other's database."""
    schemas = [{table.schema for table in known.tables} | {known.database} - {""} for known in (one, other)]
    return bool(set(one.tables) & set(other.tables)) or one.database in schemas[1] or other.database in schemas[0]
