"""Reads back rows of which a message holds only the handle key, as they were at the commit ts of the change.

TiCDC sends such messages for rows that are too large for the topic (large-message-handle-option).  They arrive as bad
messages, with their bytes.  Here they are decoded again with such rows allowed; a message whose rows cannot be read
back stays bad.  A claim check is treated in the same way: its message holds the key, too, and the bridge opens no path
that a message names.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP, Code, Kind, LeftOut, Position, RowChange, Undecodable
from bridge.model import PartitionId, TableName
from bridge.pipeline.control_events import BadMessage, clash_error, control_events, without_left_out
from bridge.protocols import DecodeError, Decoder
from bridge.protocols.event_columns import events_table
from bridge.protocols.ruled_rows import routed, ruled_row
from bridge.protocols.values.untyped import split_forms

CUT: Final = frozenset({Code.HANDLE_KEY_ONLY, Code.CLAIM_CHECK})

Literals = Mapping[str, str]
"""SQL literals by column name."""

Floor = Callable[[PartitionId], int]
"""Returns the commit ts below which everything of a partition is in the target, so that it need not be read back."""


class RowsGoneError(Exception):
    """The upstream no longer shows the rows of that moment; the text says why."""


class Upstream(Protocol):
    """A server from which whole rows are read back."""

    def rows_at(self, commit_ts: int, name: TableName, keys: Sequence[Literals]) -> list[Literals | None]:
        """Reads the rows of these keys as they were at commit_ts; None for a key without a row.  Raises
        RowsGoneError."""


class _Moment(NamedTuple):
    """A table at a commit ts."""

    commit_ts: int
    name: TableName


_Found = Mapping[tuple[_Moment, str], Literals | str]
"""The whole row, or the reason why there is none, by moment and image of the key."""


class CutRows:
    """Completes messages that hold only keys.

    decoder: decodes such messages (`DecodeOptions.cut_rows`).  Its rules for row changes are applied to the outcome.
    """

    def __init__(self, upstream: Upstream, decoder: Decoder) -> None:
        self._upstream, self._decoder = upstream, decoder

    def completed(
        self, bad_messages: Sequence[BadMessage], floor: Floor = lambda _: 0
    ) -> tuple[pa.Table, tuple[BadMessage, ...]]:
        """Reads back the rows of messages that hold only keys; changes below the floor are not read back.  Returns the
        row changes (EVENT_SCHEMA) of messages whose rows were found, and the other messages, in order.

        Raises what reading the upstream raises.
        """
        decoded = [self._decoded(bad) for bad in bad_messages]
        read = self._read_back(
            event
            for bad, events in zip(bad_messages, decoded, strict=True)
            if isinstance(events, list)
            for event in events
            if event.cut and event.commit_ts >= floor(bad.partition)
        )
        done = [_with_rows(bad, events_or_bad, read) for bad, events_or_bad in zip(bad_messages, decoded, strict=True)]
        still_bad = tuple(events_or_bad for events_or_bad in done if isinstance(events_or_bad, BadMessage))
        whole = events_table(row for events_or_bad in done if isinstance(events_or_bad, list) for row in events_or_bad)
        rows, _ = without_left_out(routed(whole, self._decoder.row_rules.routes))
        return rows, still_bad

    def completed_among(self, events: pa.Table, floor: Floor) -> pa.Table:
        """Does the same for events as they were read (EVENT_SCHEMA, each partition in order).  The result has no
        order."""
        is_cut = pc.and_(pc.equal(events["kind"], int(Kind.BAD)), pc.is_in(events["columns"], pa.array(sorted(CUT))))
        if not pc.any(is_cut).as_py():
            return events
        rows, still_bad = self.completed(control_events(events.filter(is_cut)).bad, floor)
        entries = [bad.entry for bad in still_bad]
        again = events_table((one.position, Undecodable(one.code, one.reason, one.key, one.value)) for one in entries)
        return pa.concat_tables([events.filter(pc.invert(is_cut)), rows, again])

    def _decoded(self, bad: BadMessage) -> list[RowChange] | BadMessage:
        if bad.entry.code not in CUT:
            return bad
        key, value = (None if part is None else b64decode(part) for part in (bad.entry.key, bad.entry.value))
        try:
            decoded = [event for event in self._decoder.decode(key, value) if not isinstance(event, LeftOut)]
        except DecodeError as failure:
            return _still_bad(bad, str(failure), failure.code)
        rules, rows = self._decoder.row_rules, [event for event in decoded if isinstance(event, RowChange)]
        for row in rows:
            if why := rules.routes.conflict(TableName(row.schema, row.table)):
                raise clash_error(why, str(bad.entry.position))
        kept = [row for row in rows if ruled_row(row, rules)]
        if len(rows) < len(decoded) or any(row.by_time for row in kept):
            return _still_bad(
                bad, "the message holds only the key of a row, and no commit ts at which the row could be read back"
            )
        return kept

    def _read_back(self, cut: Iterable[RowChange]) -> _Found:
        """Reads the rows of these changes, moment by moment."""
        wanted: dict[_Moment, dict[str, Literals]] = {}
        for event in cut:
            moment, image = _key_place(event)
            names = split_forms(event.columns)[0].split(SEP)
            wanted.setdefault(moment, {})[image] = dict(zip(names, image.split(SEP), strict=True))
        rows_by_key: dict[tuple[_Moment, str], Literals | str] = {}
        for moment, keys in sorted(wanted.items(), key=lambda item: item[0]):
            rows = self._rows_at(moment, list(keys.values()))
            for (image, key), row in zip(keys.items(), rows, strict=True):
                rows_by_key[moment, image] = row if isinstance(row, str) else _with_key(row, key)
        return rows_by_key

    def _rows_at(self, moment: _Moment, keys: Sequence[Literals]) -> Sequence[Literals | str]:
        try:
            rows = self._upstream.rows_at(moment.commit_ts, moment.name, keys)
        except RowsGoneError as gone:
            return [str(gone)] * len(keys)
        lost = f"the upstream has no such row of {moment.name} at commit ts {moment.commit_ts}"
        return [lost if row is None else row for row in rows]


def _with_rows(
    bad: BadMessage, events: list[RowChange] | BadMessage, rows_by_key: _Found
) -> list[tuple[Position, RowChange]] | BadMessage:
    """Returns the row changes of a message with their position; when a row is missing, the message with the reason."""
    if isinstance(events, BadMessage):
        return events
    missing = [why for event in events if isinstance(why := rows_by_key.get(_key_place(event)), str)]
    if missing:
        return _still_bad(bad, missing[0], Code.NOT_READ_BACK)
    return [(bad.entry.position, whole) for event in events for whole in _whole(event, rows_by_key)]


def _key_place(event: RowChange) -> tuple[_Moment, str]:
    return _Moment(event.commit_ts, TableName(event.schema, event.table)), event.after or ""


def _with_key(row: Literals, key: Literals) -> Literals:
    """Puts the message's own literals of the key into a row, since they identify the row."""
    own = {name.lower(): literal for name, literal in key.items()}
    return {name: own.get(name.lower(), literal) for name, literal in row.items()}


def _whole(event: RowChange, rows_by_key: _Found) -> list[RowChange]:
    """Returns a change with its whole row; a change that moves its row to another key as a delete and an insert."""
    row = rows_by_key.get(_key_place(event)) if event.cut else None
    if not isinstance(row, Mapping):
        return [event._replace(cut=None)]
    columns, after = SEP.join(row), SEP.join(row.values())
    whole = event._replace(columns=columns, before=None, after=after, cut=None)
    if event.before is None or event.before == event.after:
        return [whole]
    return [event._replace(kind=Kind.DELETE, after=None, cut=None), whole._replace(kind=Kind.INSERT)]


def _still_bad(bad: BadMessage, reason: str, code: Code | None = None) -> BadMessage:
    return bad._replace(entry=replace(bad.entry, reason=reason, code=code or bad.entry.code))
