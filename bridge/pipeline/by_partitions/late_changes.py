"""Finds schema changes that came too late, behind rows that were written after them, and those that were sent again
(guarantees, "What a producer sends again").  Pure."""

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
_OTHER_BY_HAND: Final = "{!r}, of its batch, was made by hand: say bridge ddl done if this one was too, else approve it"


class AppliedPlaces:
    """The last place of each table in the target, by partition, of what has come since the start.  started: at the
    start, the last row of each partition in the target, and the partition's highest time (TSO)."""

    def __init__(self, started: Mapping[PartitionId, tuple[AppliedRow, int]]) -> None:
        self._started = dict(started)
        self._last: dict[tuple[str, str], dict[PartitionId, AppliedRow]] = {}

    def note_rows(self, rows: pa.Table, times: Longs) -> None:
        """Notes row changes (EVENT_SCHEMA) that are in the target.  times: their event times (TSO)."""
        numbers = np.flatnonzero(rows["place"].is_valid().to_numpy())
        if not len(numbers):
            return
        placed_rows = rows.take(pa.array(numbers)) if len(numbers) < rows.num_rows else rows
        _, of_name = distinct(placed_rows, ("topic", "schema", "table"))
        partitions = placed_rows["partition"].to_numpy()
        _, last = first_and_last(numbered(of_name * (int(partitions.max()) + 1) + partitions))
        columns = ("topic", "partition", "schema", "table", "place")
        for row, ts in zip(
            placed_rows.select(columns).take(pa.array(last)).to_pylist(), times[numbers[last]].tolist(), strict=True
        ):
            name = row["schema"].lower(), row["table"].lower()
            self._note(name, (row["topic"], row["partition"]), AppliedRow(ts, row["place"]))

    def note_change(self, where: PartitionId, moment: Moment, names: Names) -> None:
        """Notes a schema change that is about to run.  names: its tables, of which each may have become the other."""
        before = [last for name in names for last in self._last.get(name, {}).items()]
        for name in names:
            for partition, row in [*before, *((where, AppliedRow(moment.ts, place)) for place in moment.places)]:
                self._note(name, partition, row)

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
        """Tells why a schema change came too late; "" for one that did not.

        It is late when rows whose places are behind it are in the target.  One that only makes something new never is.
        where: where it was read.  names: the tables whose rows it may touch, None where that may be any.
        applied: as `started`, now.  unclear: rows that may be on either side of it; they count as behind it.
        """
        statement = classify(change.text, change.schema)
        if not moment.places or (isinstance(statement, Classified) and statement.classes in _ONLY_MAKING):
            return ""
        rows = list((applied if names is None else self._started).items())
        rows += [(place_of, (row, 0)) for name in names or () for place_of, row in self._last.get(name, {}).items()]
        for (topic, partition), (row, latest) in sorted(rows):
            if not row.place or (moment.is_by_sending and (topic, partition) == where):
                continue
            if moment.is_by_sending:
                is_late = unclear is not None and unclear.may_hold(topic, row.ts, row.place)
            else:
                of_place = replace(moment, by_place_only=(topic, partition) == where)
                is_late = of_place.shows_before(row.ts, row.place, latest)
            if is_late:
                return _LATE.format(f"{topic}/{partition}")
        return ""


ADD_TOPIC: Final = "where Kafka has this topic (no transform renames it), start the bridge again with --topic {}@{} too"
_NAMING: Final = frozenset({ChangeClass.CREATE_TABLE, ChangeClass.RENAME_TABLE})
_NOT_IN_TOPIC_NAMES: Final = re.compile(r"[^a-zA-Z0-9._-]")


def unread_topics(change: SchemaChange, topics: Collection[str]) -> dict[TableName, str]:
    """Gives the tables that a schema change makes, or renames, whose topics are not read.  topics: those that are read;
    without a table's topic of the connector among them, no table is named."""
    prefix = change.read_at.topic
    if not any(topic.startswith(f"{prefix}.") for topic in topics):
        return {}
    statement = classify(change.text, change.schema, is_certain=True)
    if not isinstance(statement, Classified) or _NAMING.isdisjoint(statement.classes):
        return {}
    topic_of = {name: _NOT_IN_TOPIC_NAMES.sub("_", f"{prefix}.{name.schema}.{name.table}") for name in statement.tables}
    return {name: topic for name, topic in topic_of.items() if topic not in topics}


def second_run(change: SchemaChange, before: Sequence[SchemaChange], applied_time: int) -> SchemaChange | None:
    """Gives a schema change without a commit ts as it is to run; None for one that has run already.

    A second change of one millisecond gets a commit_ts of its own.  One that may be a copy, and do harm, gets a doubt.
    before: the schema changes on record of up to NEAR from its event time, in the order in which they came.
    applied_time: the highest event time of what was applied (TSO).
    """
    at_ms = tso_ms(change.commit_ts)
    copies = [one for one in before if (tso_ms(one.commit_ts), one.statement_hash) == (at_ms, change.statement_hash)]
    used_ts = {one.commit_ts for one in copies}
    rerun = replace(change, commit_ts=next(ts for ts in range(change.commit_ts, 1 << 63) if ts not in used_ts))
    if not copies:
        texts_by_hand = (o.text[:200] for o in before if o.doubt == DONE_BY_HAND and are_side_by_side(change, o))
        return replace(change, doubt=_OTHER_BY_HAND.format(text)) if (text := next(texts_by_hand, "")) else change
    same_places = [is_same_place(one.place, change.place) for one in copies]
    if True in same_places:
        return None
    if None not in same_places:
        return rerun
    partitions = {one.read_at[:2] for one in copies}
    if partitions != {change.read_at[:2]} or at_ms % _SECOND_MS:
        return None
    decision = _rerun_within_second(rerun, before[before.index(copies[-1]) + 1 :])
    if decision is not None and applied_time >= change.commit_ts + ms_tso(_SECOND_MS):
        return replace(decision, doubt=_UNCLEAR)
    return decision


def _rerun_within_second(change: SchemaChange, between: Sequence[SchemaChange]) -> SchemaChange | None:
    """Decides about a statement that ran before in the same second; None where it does not run again.

    It runs again behind another change of its tables, such as a DROP between two CREATEs, or if it empties a table, or
    makes a column anew: without that, no server runs it twice.  One that swaps tables gets a doubt.
    """
    statement = classify(change.text, change.schema)
    if not isinstance(statement, Classified):
        return change
    if statement.swaps:
        return replace(change, doubt=_UNCLEAR)
    others = [other for o in between if isinstance(other := classify(o.text, o.schema), Classified)]
    names = column_names_in(change.text, statement) if statement.kind is StatementKind.ALTER_TABLE else None
    empties = set(statement.classes) & _MAY_FOLLOW_ITSELF or (names and names.dropped & names.given)
    return change if empties or any(_share_a_table(statement, other) for other in others) else None


def is_same_place(one: str, other: str) -> bool | None:
    """Tells whether two places ("" for none) are one; None when that cannot be told.

    GTIDs are compared first, which are the same on every server, then files and positions, then Canal's sendings, whose
    numbers begin anew with a restart, which takes more than a second.
    """
    places = [coordinates_of(place) if place else {} for place in (one, other)]
    for kind in (GTID, FILE):
        first, second = ({n: at for n, at in place.items() if n.startswith(kind)} for place in places)
        if first.keys() & second.keys():
            return first == second
    sending, other_sending = (place.get(SENT) for place in places)
    if sending is None or other_sending is None:
        return None
    is_one_batch = not (sending ^ other_sending) & ((1 << BATCH_BITS) - 1)
    is_beside = abs((sending >> BATCH_BITS) - (other_sending >> BATCH_BITS)) < _SECOND_MS
    return False if is_one_batch and is_beside else None


def are_side_by_side(one: SchemaChange, other: SchemaChange) -> bool:
    """Tells whether Canal sent two schema changes that have, or copy, a table in common to two topics in one batch."""
    topics = {change.read_at.topic for change in (one, other)}
    if len(topics) == 1 or is_same_place(one.place, other.place) is not False:
        return False
    parsed = (classify(change.text, change.schema) for change in (one, other))
    tables = [{name.table.folded for name in (*k.touched, k.like) if name} for k in parsed if isinstance(k, Classified)]
    return len(tables) > 1 and bool(tables[0] & tables[1])


_MAY_FOLLOW_ITSELF: Final = frozenset({ChangeClass.TRUNCATE_TABLE, ChangeClass.TRUNCATE_PARTITION})


def _share_a_table(one: Classified, other: Classified) -> bool:
    """Tells whether two statements change one table, or one of them the other's database."""
    schemas = [{table.schema for table in statement.tables} | {statement.database} - {""} for statement in (one, other)]
    return bool(set(one.tables) & set(other.tables)) or one.database in schemas[1] or other.database in schemas[0]
