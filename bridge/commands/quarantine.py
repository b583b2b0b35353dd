"""`bridge quarantine`: reads entries, tries them again with the present settings, drops them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pymysql.err import MySQLError

from bridge.commands.connections import open_session
from bridge.config import Settings
from bridge.ddl.classes import LEAVES_ROWS, ChangeClass
from bridge.ddl.parser import Refused, classify
from bridge.errors import ApplyError, BridgeError, TargetError, UsageError, counted
from bridge.events import SEP, Boundary, Code, DdlStatement, Event, Kind, LeftOut, Position, RowChange, Undecodable
from bridge.filters.routes import Routes, RowRules
from bridge.filters.table_filter import TableFilter
from bridge.model import Table, TableName, quote_name
from bridge.mysql.apply.run_statement import refused_changes
from bridge.mysql.catalog import find_side_effects, load_tables, refuse_side_effects
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.schema_changes.ddl_fingerprint import may_be_ahead
from bridge.mysql.server_errors import server_words
from bridge.mysql.state.ddl_journal import Journal, JournalEntry, JournalState
from bridge.mysql.state.progress import Progress, ProgressTable
from bridge.mysql.state.quarantine import QuarantineState, StoredEntry, entry_ids, list_entries, read_entry, settle
from bridge.mysql.state.routes_record import require_kept_routes
from bridge.pipeline.truncated_rows import CUT, CutRows, Upstream
from bridge.protocols import Decoder, decode_message, in_json, is_mysql_born, make_decoder
from bridge.protocols.batch_decode import events_of, events_table, ruled_row
from bridge.protocols.values.row_image import split_forms, with_modes
from bridge.registry import KeptSchemas
from bridge.rows.moments import Moment
from bridge.rows.net_changes import OrderedChanges, fold
from bridge.rows.resolve_types import typed
from bridge.rows.sql.statement import Rendering, WrittenColumns, binary_match
from bridge.rows.type_check import CheckedTypes
from bridge.tso import ms_tso, tso_ms, tso_time
from bridge.verify.log.coverage import LoggedChange, as_run

_SHOWN: Final = ("kind", "code", "commit_ts", "schema", "table", "reason", "statement", "before", "after")
_LEAVES_ROW: Final = LEAVES_ROWS | {ChangeClass.ADD_COLUMN}


@dataclass(frozen=True)
class EntryOutcome:
    """What a retry or a drop did with an entry; `why` tells what was done, or why nothing was."""

    id: int
    where: str
    done: bool
    why: str


class _StaysHeldError(Exception):
    """Says why an entry stays in the quarantine as it is."""


class Quarantine:
    """The quarantine of one pipeline, decoded with the present settings.

    With protocol "auto", an entry is decoded with the protocol that the pipeline ran with.
    upstream: reads back the rows of which a message holds only the key.
    All methods raise TargetError when the target does not answer.
    """

    def __init__(self, target: Target, settings: Settings, upstream: Upstream | None = None) -> None:
        self._target, self._upstream = target, upstream
        self._table = ProgressTable(settings.name, settings.target.schema_name)
        self._protocol = settings.protocol
        self._filter = TableFilter(settings.filter)
        self._options = settings.decode_options(self._filter)

    def entries(self, states: Sequence[QuarantineState]) -> list[StoredEntry] | None:
        """Returns the entries in the given states, oldest first, without the bytes of their messages; None when the
        pipeline is unknown."""
        with self._session() as session:
            if not self._is_known(session):
                return None
            return list_entries(session, self._table.schema, self._table.name, states)

    def entry(self, id_: int) -> StoredEntry:
        """Returns the entry with this id; UsageError when there is none."""
        with self._session() as session:
            is_known = self._is_known(session)
            entry = read_entry(session, self._table.schema, self._table.name, id_) if is_known else None
        if entry is None:
            raise UsageError(f"the quarantine has no entry {id_}", fix="`bridge quarantine list` shows the entries")
        return entry

    def decoded(self, entry: StoredEntry) -> list[Event]:
        """Decodes an entry with the present settings; one BAD event when it still cannot be decoded."""
        events = self._as_stored(entry)
        return self._read_back(entry, events, RowRules()) if self._is_cut(events) else events

    def _as_stored(self, entry: StoredEntry) -> list[Event]:
        if entry.change is not None:
            modes = ("", self._options.ckafka_binary or ""), str(self._options.debezium).split(",")
            return [entry.change._replace(columns=with_modes(entry.change.columns, *modes))]
        return decode_message(self._decoder(entry), entry.key, entry.value)

    def _is_cut(self, events: list[Event]) -> bool:
        return self._upstream is not None and any(isinstance(e, Undecodable) and e.code in CUT for e in events)

    def _read_back(self, entry: StoredEntry, events: list[Event], rules: RowRules) -> list[Event]:
        """Reads back what the rules keep.  An update that moves its row comes as a delete and an insert, to which event
        filters do not apply."""
        assert self._upstream is not None
        cut_rows = CutRows(self._upstream, self._decoder(entry, cut_rows=True, rules=rules))
        return list(events_of(cut_rows.completed(events_table((entry.position, event) for event in events))))

    def retry(self, ids: Sequence[int] | None) -> list[EntryOutcome] | None:
        """Tries entries again, oldest first, each in a transaction of its own; None when the pipeline is unknown.

        ids: None for all entries that are held.  Raises UsageError for routes other than those of the pipeline, which
        would write rows to other tables.
        """
        return self._act_on_each(ids, self._retry_entry)

    def drop(self, ids: Sequence[int] | None) -> list[EntryOutcome] | None:
        """Marks entries as dropped; None when the pipeline is unknown.  ids: None for all entries that are held."""
        return self._act_on_each(ids, self._drop_entry)

    def _act_on_each(self, ids: Sequence[int] | None, action: _Action) -> list[EntryOutcome] | None:
        with self._session() as session:
            if not self._is_known(session):
                return None
            ids_held = entry_ids(session, self._table.schema, self._table.name, [QuarantineState.HELD])
            remaining = ids_held if ids is None else list(dict.fromkeys(ids))
            outcomes: dict[int, EntryOutcome] = {}
            while remaining:
                outcomes |= {id_: self._try_action(session, id_, action) for id_ in remaining}
                still = [id_ for id_ in remaining if not outcomes[id_].done]
                remaining = still if len(still) < len(remaining) else []  # what was in their way may be gone
            return [*outcomes.values()]

    def _try_action(self, session: Session, id_: int, action: _Action) -> EntryOutcome:
        session.begin()
        progress = self._table.read(session, lock=True)  # locks out a running bridge until the end of this transaction
        entry = read_entry(session, self._table.schema, self._table.name, id_, lock=True)
        where = entry.where if entry else ""
        try:
            if entry is None or progress is None:
                raise _StaysHeldError("there is no such entry")
            if entry.state is not QuarantineState.HELD:
                raise _StaysHeldError(f"it is {entry.state} already")
            what = action(session, entry, progress)
        except (_StaysHeldError, ApplyError, TargetError) as error:
            session.rollback()
            return EntryOutcome(id_, where, False, error.what if isinstance(error, BridgeError) else str(error))
        session.commit()
        return EntryOutcome(id_, where, True, what)

    def _drop_entry(self, session: Session, entry: StoredEntry, progress: Progress) -> str:
        del progress
        settle(session, self._table.schema, self._table.name, entry.id, QuarantineState.DROPPED, "dropped by hand")
        return "dropped"

    def _retry_entry(self, session: Session, entry: StoredEntry, progress: Progress) -> str:
        changes = self._due_changes(session, entry, progress)
        for change in changes:
            self._apply(session, entry.position, change)
        outcome = (
            f"applied: {counted(len(changes), 'row change')}" if changes else "it holds no row change: nothing to apply"
        )
        settle(session, self._table.schema, self._table.name, entry.id, QuarantineState.APPLIED, outcome)
        return outcome

    def _due_changes(self, session: Session, entry: StoredEntry, progress: Progress) -> list[RowChange]:
        """Gives the row changes of an entry; raises _KeptError or UsageError when they must not be applied now."""
        require_kept_routes(session, self._table.schema, progress, self._options.row_rules.routes)
        if entry.cut_bytes:
            raise _StaysHeldError(
                f"{entry.cut_bytes} bytes of it were not kept; read the whole message at its position in the topic"
            )
        if may_be_ahead(session, Journal(self._table.name, self._table.schema), progress.pending):
            raise _StaysHeldError(
                "a schema change runs, or was interrupted; start the bridge, and try again when it has ended"
            )
        changes = self._row_changes(entry)
        for change in changes:
            if why := self._options.reserved.why(change.schema):
                raise _StaysHeldError(f"{TableName(change.schema, change.table)} is never written: {why}")
            if not change.by_time and change.commit_ts >= progress.applied_ts:
                raise _StaysHeldError("the pipeline has not reached its commit ts yet; try again later")
            self._refuse_side_effects(session, entry, change)
        return changes

    def _row_changes(self, entry: StoredEntry) -> list[RowChange]:
        events = self._as_stored(entry)
        if not events:
            raise _StaysHeldError("its table is excluded by --filter")
        rules = self._options.row_rules
        if self._is_cut(events):
            events = self._read_back(entry, events, rules)
        elif entry.change is None:  # a row change was quarantined with the names of the target
            ruled = (ruled_row(event, rules) if isinstance(event, RowChange) else event for event in events)
            events = [event for event in ruled if event]
        if not events:
            raise _StaysHeldError("an event filter leaves its row changes out")
        left_out = [event for event in events if isinstance(event, LeftOut)]
        if len(left_out) == len(events):
            raise _StaysHeldError(f"its table is never written: {left_out[0].reason}")
        for event in events:
            match event:
                case Undecodable():
                    raise _StaysHeldError(f"it still cannot be decoded: {event.reason}")
                case Boundary():
                    raise _StaysHeldError("it is a boundary, which holds no change; drop the entry")
                case DdlStatement():
                    what = "it is a schema change; run by hand what you want of it, then drop the entry"
                    raise _StaysHeldError(f"{what}: {event.statement}")
        return [event for event in events if isinstance(event, RowChange)]

    def _refuse_side_effects(self, session: Session, entry: StoredEntry, change: RowChange) -> None:
        """Raises when the target would change rows by itself.  The pipeline checks this for all tables at its start."""
        name, schemas = TableName(change.schema, change.table), KeptSchemas(entry.schemas, self._options.schemas)
        # MySQL's log lacks the rows that foreign keys change; a row change by event time may come from there.
        cascades = change.by_time and (
            entry.change is not None or is_mysql_born(in_json([(entry.key, entry.value)], schemas))
        )
        effects = find_side_effects(session, [name], cascades=cascades)
        refuse_side_effects(effects, self._options.row_rules.routes.accepts_target)

    def _typed(self, session: Session, position: Position, change: RowChange) -> tuple[Table, pa.Table, RowChange]:
        """Gives the table of a row change, and the change with ready literals, as events and by itself."""
        name = TableName(change.schema, change.table)
        table = load_tables(session, [name]).get(name)
        if table is None:
            raise _StaysHeldError(f"the target has no table {name}")
        rows = typed({name: table}, events_table([(position, change)]), CheckedTypes())
        [ready] = events_of(rows)
        assert isinstance(ready, RowChange)
        self._refuse_outdated(session, position, ready, table)
        return table, rows, ready

    def _apply(self, session: Session, position: Position, change: RowChange) -> None:
        """Applies a row change as one of a table without a key: its row is the one that equals the old image."""
        table, rows, change = self._typed(session, position, change)
        fold({table.name: table}, rows)  # which refuses what cannot be written
        if change.before is None and (why := self._why_no_insert(session, table, change)):
            raise _StaysHeldError(why)
        ordered = OrderedChanges(table, (), rows, "")
        try:
            refused = refused_changes(session, ordered, Rendering(self._table.schema), only_first=True)
        except MySQLError as error:
            raise _StaysHeldError(f"the target refuses it: {server_words(error)}") from error
        if refused:
            is_gone = refused[0].why.code == Code.ROW_NOT_FOUND
            raise _StaysHeldError(_GONE.format(table=table.name) if is_gone else refused[0].why.what)

    @staticmethod
    def _why_no_insert(session: Session, table: Table, change: RowChange) -> str:
        """Says why a change without an old image must not insert its row; that a row has its key, the server says."""
        if change.kind is not Kind.INSERT:
            return "the message does not hold the old row, so nothing tells whether the target's row is still the same"
        where = binary_match(WrittenColumns.of(table, change.columns), (change.after or "").split(SEP))
        same = f"SELECT 1 FROM {quote_name(*table.name)} WHERE {where} LIMIT 1 FOR UPDATE"
        return f"{table.name} has this row already" if session.rows(same) else ""

    def _refuse_outdated(self, session: Session, position: Position, change: RowChange, table: Table) -> None:
        entries = Journal(self._table.name, self._table.schema).entries(session, [JournalState.DONE])
        if not entries:
            return
        changes = [run for entry in entries for run in _as_run(entry, self._options.row_rules.routes, self._filter)]
        if why := why_outdated(change, position, table, changes):
            raise _StaysHeldError(why)

    def _decoder(self, entry: StoredEntry, *, cut_rows: bool = False, rules: RowRules = RowRules()) -> Decoder:  # noqa: B008  # immutable
        protocol = entry.protocol if self._protocol == "auto" else self._protocol
        schemas = KeptSchemas(entry.schemas, self._options.schemas) if entry.schemas else self._options.schemas
        return make_decoder(protocol, replace(self._options, cut_rows=cut_rows, row_rules=rules, schemas=schemas))

    def _is_known(self, session: Session) -> bool:
        return self._table.exists(session) and self._table.read(session) is not None

    def _session(self) -> AbstractContextManager[Session]:
        return open_session(self._target, autocommit=False)


_GONE: Final = (
    "the row of {table} is not on the target as it was before this change: a later change altered or deleted it, or it"
    " gave way to a row that took a unique value that it still held (safe_mode in the log); `bridge verify` tells, and"
    " writes it if it is missing"
)
_Action = Callable[[Session, StoredEntry, Progress], str]


def _as_run(entry: JournalEntry, routes: Routes, accepts: Callable[[str, str], bool]) -> Iterator[LoggedChange]:
    topic, partition, offset = entry.position.rsplit("/", 2)
    offsets = {(topic, int(partition)): int(offset)}
    return as_run(LoggedChange(entry.commit_ts, False, entry.schema, entry.statement, offsets), entry, routes, accepts)


def document(entry: StoredEntry) -> dict[str, Any]:
    """Returns an entry as a JSON document, without the bytes of its message."""
    return {
        "id": entry.id,
        "topic": entry.position.topic,
        "partition": entry.position.partition,
        "offset": entry.position.offset,
        "index": entry.index,
        "state": entry.state,
        "code": entry.code,
        "reason": entry.reason,
        "commit_ts": entry.commit_ts,
        "commit_time": tso_time(entry.commit_ts),
        "protocol": entry.protocol,
        "cut_bytes": entry.cut_bytes,
        "row_change": event_document(entry.change) if entry.change else None,
        "outcome": entry.outcome,
        "put_at": entry.put_at.isoformat(),
        "settled_at": entry.settled_at.isoformat() if entry.settled_at else None,
    }


def bytes_document(entry: StoredEntry) -> dict[str, Any]:
    """Returns the bytes of an entry's message, in base64."""
    return {"key": _base64(entry.key), "value": _base64(entry.value)}


def event_document(event: Event) -> dict[str, Any]:
    """Returns a decoded event as a JSON document, its images as SQL literals by column."""
    fields = event._asdict() | {"kind": event.kind.name.lower()}
    if isinstance(event, RowChange):
        names = split_forms(event.columns)[0].split(SEP)
        for image in ("before", "after"):
            fields[image] = fields[image] and dict(zip(names, fields[image].split(SEP), strict=False))
    return {name: fields[name] for name in _SHOWN if fields.get(name) is not None}


def _base64(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


def why_outdated(change: RowChange, position: Position, table: Table, ran: Iterable[LoggedChange]) -> str:
    """Gives the reason why a row change must not be applied any more, "" where it may.

    change: with the names of the target; position: of its message.  table: the table of that name as it is now.
    ran: the schema changes that have run on the target, in order, with the names of the target.
    """
    later = (run for run in ran if _is_before(change, position, run) and _touches(run, table.name))
    if (run := next(later, None)) is None:
        return ""
    return f"the row may be gone, or another one now, since {table.name} was changed: {run.text}"


def _touches(run: LoggedChange, name: TableName) -> bool:
    """Tells whether a schema change may have made something else of a table's rows, or taken them away."""
    classification = classify(run.text, run.schema, is_certain=not run.is_unclear)
    statement = classification.classified if isinstance(classification, Refused) else classification
    if statement is None:
        return False
    if ChangeClass.DROP_DATABASE in statement.classes:
        return statement.database.lower() == name.schema.lower()
    is_named = any(table.folded in {name.folded, ("", name.table.lower())} for table in statement.tables)
    return is_named and (run.is_unclear or not _LEAVES_ROW.issuperset(statement.classes))


def _is_before(change: RowChange, position: Position, run: LoggedChange) -> bool:
    """Whether a row change may be from before a schema change: by commit ts, or with event times by the order of their
    partition; of another partition, an equal time, or second, may be before."""
    if any(ts != ms_tso(tso_ms(ts)) for ts in (change.commit_ts, run.commit_ts)):
        return change.commit_ts <= run.commit_ts
    offset = run.offsets.get((position.topic, position.partition))
    if offset is not None:
        return position.offset < offset
    return change.commit_ts <= Moment.of_change(run.commit_ts, by_time=True, place=None).last
