"""Decides what is done with messages that cannot be decoded, and with rows that the target refuses.

A message that is quarantined counts as a change at the last boundary before it: the first transaction beyond that
writes it (internals, decision 12).  Rows that the target refuses are found by trying the changes of their table one
after the other, in a transaction that is rolled back; the rest is applied.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bridge.errors import BadMessageError, RefusedRowsError
from bridge.events import EVENT_SCHEMA, SEP, Code, Kind, RowChange
from bridge.model import Advance, Entry, SchemaChange, Table, TableName
from bridge.mysql.apply.run_statement import Refusal
from bridge.mysql.apply.writer import Writer
from bridge.mysql.schema_changes.ddl_runner import is_another
from bridge.mysql.state.ddl_journal import UNREADABLE
from bridge.pipeline.order import BadMessage
from bridge.pipeline.truncated_rows import CutRows
from bridge.protocols.batch_decode import placed_events
from bridge.rows.gathering import position_of
from bridge.rows.net_changes import OrderedChanges, choose_key
from bridge.rows.order_and_slices import RowChanges, RowStatements
from bridge.rows.resolve_types import typed
from bridge.rows.sql.statement import Rendering
from bridge.rows.type_check import CheckedTypes
from bridge.tso import tso_ms

_SHOWN_BYTES: Final = 2_000
"""How many bytes of a message that cannot be decoded the journal shows."""


def unreadable_change(entry: Entry, ts: int, *, is_again: bool = False) -> SchemaChange:
    """Makes the schema change that the journal holds for a message of one that cannot be decoded.  Copies in several
    partitions are one.

    ts: the commit ts that the target has reached (TSO).  is_again: its partition held the same message before.
    """
    message = b64decode(entry.value or "")
    shown = message[:_SHOWN_BYTES].decode(errors="replace")
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


_KEY_CHARACTERS: Final = 100
MOST_SEARCHED: Final = 500_000
"""The most row changes of a transaction that are brought to the driver to find the refused one."""


def with_position(
    writer: Writer, rows: RowChanges, catalog: Mapping[TableName, Table], refusal: RefusedRowsError
) -> RefusedRowsError:
    """Adds position and commit_ts of a refused row change to the refusal; returns it unchanged when none is found."""
    if refusal.is_exact or rows.count > MOST_SEARCHED:
        return refusal
    name = TableName(*refusal.table)
    net = _in_order(catalog[name], rows.changes(name))
    refused = writer.refused_changes(net, only_first=True)
    if not refused:
        return refusal
    why = refused[0].why
    change = net.changes.slice(refused[0].change.number, 1).to_pylist()[0]
    moment = f"commit ts {change['commit_ts']} ({tso_ms(change['commit_ts'])} ms)"
    why.where = f"{position_of(net.changes, refused[0].change.number)}, {moment}, {_key_words(net, change)}{why.where}"
    return why


def _key_words(net: OrderedChanges, change: Mapping[str, Any]) -> str:
    """Says which row a change is of, "" where the table has no key."""
    image = change["after"] if change["after"] is not None else change["before"]
    literals = dict(zip(change["columns"].lower().split(SEP), image.split(SEP), strict=True))
    values = ", ".join(f"{part}={literals[part][:_KEY_CHARACTERS]}" for part in net.key)
    return f"key ({values}), " if values else ""


def separate_refused(writer: Writer, table: Table, changes: pa.Table) -> tuple[pa.Table, list[Entry]]:
    """Separates the row changes of one table (EVENT_SCHEMA, in order) into those that the target accepts, and entries
    of the others."""
    unfit = dict(_unfit(table, changes, 0))
    entries = [_entry(changes.slice(number, 1).to_pylist()[0], why) for number, why in unfit.items()]
    fitting = changes.filter(pa.array(~np.isin(np.arange(changes.num_rows), list(unfit))))
    if not fitting.num_rows:
        return fitting, entries
    net = _in_order(table, fitting)
    refusals: dict[int, list[Refusal]] = {}
    for refusal in writer.refused_changes(net):
        refusals.setdefault(refusal.change.number, []).append(refusal)
    halves = []
    for number, refused in refusals.items():
        change = net.changes.slice(number, 1).to_pylist()[0]
        is_half = len(refused) == 1 and refused[0].change.kind != change["kind"]
        delete = {**change, "kind": int(Kind.DELETE), "after": None}
        insert = {**change, "kind": int(Kind.INSERT), "before": None}
        if is_half:
            change, half = (delete, insert) if refused[0].change.kind == Kind.DELETE else (insert, delete)
            halves.append(half)
        entries.append(_entry(change, refused[-1].why))
    accepted = net.changes.filter(pa.array(~np.isin(np.arange(fitting.num_rows), list(refusals))))
    return RowChanges.of([accepted, pa.Table.from_pylist(halves, EVENT_SCHEMA)]).table, entries


def _unfit(table: Table, changes: pa.Table, first: int) -> Iterator[tuple[int, RefusedRowsError]]:
    """Finds the changes with values that cannot be written, without the server; gives their numbers from `first` on."""
    try:
        rendering = Rendering("", checked_types=_checked(table, changes))
        RowChanges.here(changes).nets({table.name: table}, rendering)
    except RefusedRowsError as refusal:
        half = changes.num_rows // 2
        if not half:
            yield first, refusal
            return
        yield from _unfit(table, changes.slice(0, half), first)
        yield from _unfit(table, changes.slice(half), first + half)


def _in_order(table: Table, changes: pa.Table) -> OrderedChanges:
    ready = typed({table.name: table}, changes, _checked(table, changes))
    key = choose_key(table, ready["columns"][0].as_py(), ready["key"][0].as_py())
    return OrderedChanges(table, key, ready, "")


def _checked(table: Table, changes: pa.Table) -> CheckedTypes:
    """Gives the column lists as checked: they were before the row was refused."""
    return {(table.name, columns) for columns in changes["columns"].unique().to_pylist()}


def _entry(change: Mapping[str, Any], refusal: RefusedRowsError) -> Entry:
    [(position, event)] = placed_events(pa.Table.from_pylist([change], EVENT_SCHEMA))
    assert isinstance(event, RowChange)
    return Entry(position, refusal.code, refusal.what, event.commit_ts, change=event)


@dataclass(frozen=True)
class OnBadMessage:
    """The setting `on_bad_message`, and what it needs.

    quarantine: whether such messages and rows are quarantined instead of stopping the bridge.
    protocol: stored with each entry, since a message does not always tell its protocol.
    cut_rows: reads back the rows of messages that hold only the key; None without an upstream.
    released: positions of messages that are quarantined in any case.
    settled: the schema changes that cannot be read and that the operator has decided about, by their hashes
        (`SchemaChange.statement_hash`), with their positions; their messages are quarantined.
    """

    quarantine: bool = False
    protocol: str = "canal-json"
    cut_rows: CutRows | None = None
    released: frozenset[str] = frozenset()
    settled: Mapping[str, str] = field(default_factory=dict)

    def stops(self, bad: BadMessage) -> bool:
        """Tells whether a bad message stops the bridge: unless messages are quarantined.  A schema change stops it in
        any case, until the operator has decided: what follows depends on it."""
        if str(bad.entry.position) in self.released:
            return False
        if bad.entry.code == Code.SCHEMA_CHANGE:
            return not self._is_settled(bad.entry)
        return not self.quarantine

    def _is_settled(self, entry: Entry) -> bool:
        hashes = [unreadable_change(entry, 0, is_again=is_again).statement_hash for is_again in (False, True)]
        positions = map(self.settled.get, hashes)
        return any(position and not is_another(position, str(entry.position)) for position in positions)

    def apply(self, writer: Writer, step: Advance, rows: RowChanges, catalog: Mapping[TableName, Table]) -> Advance:
        """Commits a transaction; returns it as committed, with the rows that were quarantined because the target
        refused them."""
        in_order = frozenset[TableName]()
        while True:
            try:
                writer.apply(step, RowStatements(rows, catalog, in_order))
            except RefusedRowsError as refusal:
                if not self.quarantine:
                    raise with_position(writer, rows, catalog, refusal) from refusal
                name = TableName(*refusal.table)
                accepted, refused = separate_refused(writer, catalog[name], rows.changes(name))
                if not refused and name in in_order:
                    raise
                entries = [replace(entry, protocol=self.protocol) for entry in refused]
                step = replace(step, quarantined=(*step.quarantined, *entries))
                rows, in_order = rows.with_changes(name, accepted), in_order | {name}
            else:
                return step

    def due(self, bad: BadMessage, ts: int) -> Entry:
        """Makes the entry of a message that is quarantined by the transaction that moves the target beyond `ts`."""
        return replace(bad.entry, protocol=self.protocol, commit_ts=ts)
