"""Reads back rows of which a message holds only the handle key, as they were at the commit ts of the change.

TiCDC sends such messages for rows that are too large for the topic; a claim check holds the key, too, and no path is
opened that a message names.  They arrive as bad messages, and one whose rows cannot be read back stays bad.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP, Code, Kind, LeftOut, Position, RowChange, Undecodable
from bridge.model import PartitionId, TableName
from bridge.pipeline.order import clash_error, without_left_out
from bridge.protocols import DecodeError, Decoder
from bridge.protocols.batch_decode import events_table, placed_events, routed, ruled_row
from bridge.protocols.values.row_image import split_forms

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


_Place = tuple[int, TableName, str]
"""A commit ts, a table, and the image of a key."""
_RowsByKey = Mapping[_Place, Literals | str]
"""The whole row, or the reason why there is none."""


class CutRows:
    """Completes messages that hold only keys.

    decoder: decodes such messages (`DecodeOptions.cut_rows`).  Its rules for row changes are applied to the outcome.
    """

    def __init__(self, upstream: Upstream, decoder: Decoder) -> None:
        self._upstream, self._decoder = upstream, decoder

    def completed(self, events: pa.Table, floor: Floor = lambda _: 0) -> pa.Table:
        """Gives events (EVENT_SCHEMA), in no order, with whole rows in the place of messages that hold only keys.

        What is below the floor is not read back.  A message whose rows are not there stays bad, and says why.

        Raises what reading the upstream raises.
        """
        is_cut = pc.and_(pc.equal(events["kind"], int(Kind.BAD)), pc.is_in(events["columns"], pa.array(sorted(CUT))))
        if not pc.any(is_cut).as_py():
            return events
        bad = [(at, event) for at, event in placed_events(events.filter(is_cut)) if isinstance(event, Undecodable)]
        decoded = [(at, event, self._decoded(at, event)) for at, event in bad]
        rows_by_key = self._read_back(
            row
            for at, _, outcome in decoded
            if isinstance(outcome, list)
            for row in outcome
            if row.cut and row.commit_ts >= floor((at.topic, at.partition))
        )
        results = [(at, event) for at, bad, outcome in decoded for event in _with_rows(bad, outcome, rows_by_key)]
        whole = events_table((at, event) for at, event in results if isinstance(event, RowChange))
        rows, _ = without_left_out(routed(whole, self._decoder.row_rules.routes))
        still_bad = events_table((at, event) for at, event in results if isinstance(event, Undecodable))
        return pa.concat_tables([events.filter(pc.invert(is_cut)), rows, still_bad])

    def _decoded(self, at: Position, bad: Undecodable) -> list[RowChange] | Undecodable:
        key, value = (None if part is None else b64decode(part) for part in (bad.message_key, bad.message_value))
        try:
            decoded = [event for event in self._decoder.decode(key, value) if not isinstance(event, LeftOut)]
        except DecodeError as failure:
            return bad._replace(reason=str(failure), code=failure.code)
        rules, rows = self._decoder.row_rules, [event for event in decoded if isinstance(event, RowChange)]
        for row in rows:
            if why := rules.routes.conflict(TableName(row.schema, row.table)):
                raise clash_error(why, str(at))
        replicated = [row for row in rows if ruled_row(row, rules)]
        if len(rows) < len(decoded) or any(row.by_time for row in replicated):
            why = "the message holds only the key of a row, and no commit ts at which the row could be read back"
            return bad._replace(reason=why)
        return replicated

    def _read_back(self, cut: Iterable[RowChange]) -> _RowsByKey:
        """Reads the rows of these changes, moment by moment."""
        keys_by_moment: dict[tuple[int, TableName], dict[str, Literals]] = {}
        for row in cut:
            commit_ts, table, image = _key_place(row)
            names = split_forms(row.columns)[0].split(SEP)
            keys_by_moment.setdefault((commit_ts, table), {})[image] = dict(zip(names, image.split(SEP), strict=True))
        rows_by_key: dict[_Place, Literals | str] = {}
        for (commit_ts, table), keys in sorted(keys_by_moment.items(), key=lambda item: item[0]):
            why = f"the upstream has no such row of {table} at commit ts {commit_ts}"
            try:
                rows = self._upstream.rows_at(commit_ts, table, list(keys.values()))
            except RowsGoneError as error:
                rows, why = [None] * len(keys), str(error)
            for (image, key), whole in zip(keys.items(), rows, strict=True):
                rows_by_key[commit_ts, table, image] = why if whole is None else _with_key(whole, key)
        return rows_by_key


def _with_rows(
    bad: Undecodable, outcome: list[RowChange] | Undecodable, rows_by_key: _RowsByKey
) -> Sequence[RowChange | Undecodable]:
    """Gives the row changes that a message told, with whole rows; the message with the reason where one is missing."""
    if isinstance(outcome, Undecodable):
        return [outcome]
    missing = [why for row in outcome if isinstance(why := rows_by_key.get(_key_place(row)), str)]
    if missing:
        return [bad._replace(reason=missing[0], code=Code.NOT_READ_BACK)]
    return [whole for row in outcome for whole in _whole(row, rows_by_key)]


def _key_place(event: RowChange) -> _Place:
    return event.commit_ts, TableName(event.schema, event.table), event.after or ""


def _with_key(row: Literals, key: Literals) -> Literals:
    """Puts the message's own literals of the key into a row, since they identify the row."""
    own = {name.lower(): literal for name, literal in key.items()}
    return {name: own.get(name.lower(), literal) for name, literal in row.items()}


def _whole(event: RowChange, rows_by_key: _RowsByKey) -> list[RowChange]:
    """Returns a change with its whole row; a change that moves its row to another key as a delete and an insert."""
    row = rows_by_key.get(_key_place(event)) if event.cut else None
    if not isinstance(row, Mapping):
        return [event._replace(cut=None)]
    columns, after = SEP.join(row), SEP.join(row.values())
    whole = event._replace(columns=columns, before=None, after=after, cut=None)
    if event.before is None or event.before == event.after:
        return [whole]
    return [event._replace(kind=Kind.DELETE, after=None, cut=None), whole._replace(kind=Kind.INSERT)]
