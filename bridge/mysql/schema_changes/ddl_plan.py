"""Decides what a schema change becomes on the target: the statement to run, or nothing; and what is refused or held.

The policy decides about the statement as it came, the rules of `ddl/` rewrite it, what is known of shards may leave
nothing to run, and the operator's word goes before all of that.  What does not run is recorded in the journal here.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import structlog

from bridge.ddl.by_table.routing import RoutingError, target_statement
from bridge.ddl.by_table.shards import ShardVerdict, compared, kept_rows, misread, shard_statement
from bridge.ddl.by_table.shards import ruling as shard_ruling
from bridge.ddl.by_table.skipping import kept_key, misread_values, wrong_without
from bridge.ddl.classes import ChangeClass
from bridge.ddl.parser import DATABASE_KINDS, Classified, PassedOver, Refused, Unclear, classify
from bridge.ddl.policy import DdlRules, Decision, Verdict
from bridge.ddl.rewrite import Rewritten, rewrite, without_spans
from bridge.ddl.rule import OmittedObject, Site, Surroundings, UnsupportedError
from bridge.ddl.rules.charsets import OF_SOURCE
from bridge.ddl.rules.table_options import WAS_THERE
from bridge.errors import HeldError, SchemaChangeError, few
from bridge.model import SchemaChange, TableName, quote_name
from bridge.mysql.connection.session import Session
from bridge.mysql.schema_changes.ddl_fingerprint import definition, makes_exactly, skipped_before
from bridge.mysql.schema_changes.ddl_session import UTC, DdlSession, reset_session
from bridge.mysql.state.ddl_journal import NOTHING_TO_RUN, Journal, JournalEntry, JournalState
from bridge.mysql.table_definition import list_tables, load_objects
from bridge.protocols.values.event_time import is_change_of_snapshot, is_of_canal, is_of_connector, is_of_debezium
from bridge.tso import tso_ms

_ZONE_FIX: Final = (
    "give the zone with ddl.timezone; if it is not UTC, compare the table with bridge verify --against upstream"
)
_COLLATION_FIX: Final = (
    "if SELECT @@collation_server upstream, or @@character_set_collations of a MariaDB, says another one, set it in"
    " ddl.defaults, and alter what was made"
)
_NO_TABLE: Final = "nothing to run: it changes no table"
_KEEPS_KEY: Final = (
    "{}, but {}: without this statement, rows that differ upstream would overwrite each other; drop the key by hand as"
    " upstream and say bridge ddl done, or approve the statement"
)
log = structlog.get_logger()
_VIEWS: Final = {
    "column": ("columns", "column_name"),
    "index": ("statistics", "index_name"),
    "constraint": ("table_constraints", "constraint_name"),
    "partition": ("partitions", "partition_name"),
}
"""Where information_schema tells of parts of a table."""
_CHOSEN_BY_SERVER: Final = re.compile(r"(expression|functional)_index(_\d+)?|.+_chk_\d+|constraint_\d+", re.IGNORECASE)
"""The names that TiDB and MySQL give to an index on an expression without a name; MySQL and MariaDB to a check."""


class Planner:
    """Plans one pipeline's schema changes.

    rules: as of `SchemaChangeRunner`, with the schema of the bridge's own tables.
    around: the session that they run on.
    """

    def __init__(self, journal: Journal, rules: DdlRules, around: DdlSession) -> None:
        self._journal, self._rules, self._around = journal, rules, around
        self._held_hashes: set[str] = set()
        self._assumed: set[str] = set()

    def plan(self, session: Session, change: SchemaChange, entry: JournalEntry | None) -> Rewritten | None:
        """Decides what to run.  Gives None, and records it, when there is nothing to run.

        entry: what the journal holds of the change.
        Raises HeldError while it waits for the operator, SchemaChangeError when the policy refuses it.
        """
        state = entry.state if entry is not None else None
        if entry is not None and state is JournalState.HELD and change.statement_hash in self._held_hashes:
            raise _held_error(entry, change)
        if entry is not None and state is JournalState.RUNNING:  # the text that was sent before the interruption
            parsed = classify(entry.run_text, change.schema, is_certain=True)
            assert isinstance(parsed, Classified), entry.run_text  # it was classified before it was recorded
            return Rewritten(entry.run_text, parsed, entry.rewrites)
        if entry is not None and entry.replacement:
            return self._as_replaced(session, change, entry)
        return self._decided(session, change, approved=state is JournalState.APPROVED)

    def _decided(self, session: Session, change: SchemaChange, *, approved: bool) -> Rewritten | None:
        """Rewrites a change for the target, and does with it what the policy says, or the operator who approved it."""
        if isinstance(classify(change.text, change.schema), PassedOver):
            self._journal.record(session, change, JournalState.DONE, outcome=_NO_TABLE)
            log.info("schema_change", statement=change.text, commit_ts=change.commit_ts, outcome=_NO_TABLE)
            return None
        rewritten = self._rewritten(session, change, approved=approved)
        if not approved and (skipped := self._idle_by_skipped(session, change, rewritten)):
            why = f"what it makes is there with what it held before, as {skipped.id} was {skipped.state}"
            raise self.hold(session, change, why, rewritten)
        decision = Decision(Verdict.ALLOW) if approved else self._rules.decide(rewritten.upstream, change.text)
        if decision.verdict is Verdict.REFUSE:
            raise self._refuse(session, change, decision.reason)
        if decision.verdict is Verdict.IGNORE and rewritten.text:
            around = OnTarget(session, self._journal)
            key = kept_key(rewritten.text, rewritten.classified, around.unique_keys, around.column_definition)
            if key:
                raise self.hold(session, change, _KEEPS_KEY.format(decision.reason, key), rewritten)
            how = {"is_utc": self._around.zone(session) in {UTC, "UTC"}, "is_debezium": is_of_connector(change.place)}
            of, is_there = around.column_definition, around.is_there
            if what := wrong_without(rewritten.sql, rewritten.classified, of, is_there, is_ignored=True, **how):
                raise self.hold(session, change, f"{decision.reason}, but {what}, and nothing would tell", rewritten)
        if decision.verdict is Verdict.IGNORE:
            self._leave_out(session, change, JournalState.IGNORED, rewritten, decision.reason)
            return None
        if not approved and (names := self._excluded_tables_in(session, rewritten.classified)):
            raise self.hold(
                session, change, f"the filter leaves out tables that it would drop: {few(names)}", rewritten
            )
        if outcome := self._confirmation(session, change, rewritten, approved=approved):
            nothing = replace(rewritten, text=None, steps=())
            self._leave_out(session, change, JournalState.CONFIRMED, nothing, outcome)
            return None
        if decision.verdict is Verdict.HOLD:
            raise self.hold(session, change, decision.reason, rewritten)
        if change.doubt and not approved and rewritten.upstream.classes != (ChangeClass.NOTHING,):
            raise self.hold(session, change, change.doubt, rewritten)
        if rewritten.text is None:
            self._leave_out(session, change, JournalState.DONE, rewritten, NOTHING_TO_RUN)
            return None
        return rewritten

    def _excluded_tables_in(self, session: Session, statement: Classified) -> list[str]:
        """Gives the tables that the filter leaves out, of a database that is dropped."""
        if ChangeClass.DROP_DATABASE not in statement.classes:
            return []
        sources, tables = self._rules.routes.sources, self._rules.tables
        names = (name for name in list_tables(session) if name.schema.lower() == statement.database.lower())
        return [str(name) for name in names if not any(tables(*source) for source in sources(name))]

    def _idle_by_skipped(self, session: Session, change: SchemaChange, rewritten: Rewritten) -> JournalEntry | None:
        """Gives the skipped statement that would have removed what an action with IF NOT EXISTS makes, where that is
        on the target; None without one.  Upstream such an action did something."""
        routed = target_statement(change.text, change.schema, self._rules.routes)
        if routed is None or not any(step.why == WAS_THERE for step in rewritten.steps):
            return None
        statement = classify(*routed, is_certain=True)
        if isinstance(statement, Refused):
            return None
        return skipped_before(self._journal, session, self._rules.routes, change, routed[0], statement)

    def _confirmation(self, session: Session, change: SchemaChange, rewritten: Rewritten, *, approved: bool) -> str:
        """Tells why a schema change of a shard has nothing to run, since the merged table is as it says; "" when it is
        to run.  Raises HeldError for one that the operator has to decide about."""
        shard = shard_statement(change.text, change.schema, self._rules.routes)
        if shard is None:
            return ""
        if shard.makes and not shard.why_never and definition(session, rewritten.classified.tables[0]) is None:
            return ""
        ruling = shard_ruling(shard, self._journal.of_shards(session, self._rules.routes))
        if ruling.verdict is not ShardVerdict.CONFIRM and not shard.why_never and rewritten.text:
            columns = OnTarget(session, self._journal).column_definition
            how = {"is_utc": self._around.zone(session) in {UTC, "UTC"}, "is_debezium": is_of_connector(change.place)}
            if what := misread_values(rewritten.sql, rewritten.classified, columns, **how):
                raise self.hold(session, change, misread(shard, what), rewritten)  # values of others would be misread
        if ruling.verdict is ShardVerdict.COMPARE and not approved:
            ruling = compared(shard, is_equal=self._is_made(session, change, rewritten))
        if ruling.verdict is ShardVerdict.HOLD and (shard.why_never or not approved):
            raise self.hold(session, change, ruling.why, rewritten)
        if shard.makes and approved:
            return "confirmed by the operator"
        statement = rewritten.sql, rewritten.classified
        if skipped := skipped_before(self._journal, session, self._rules.routes, change, *statement):
            raise self.hold(session, change, kept_rows(shard, f"{skipped.id} was {skipped.state}"), rewritten)
        return ruling.why if ruling.verdict is ShardVerdict.CONFIRM else ""

    def _is_made(self, session: Session, change: SchemaChange, rewritten: Rewritten) -> bool:
        """Tells whether the target's table is exactly what a statement makes."""
        try:
            self._around.prepare(session, change, rewritten.classified)
            return makes_exactly(session, self._rules.own_schema, change, rewritten.sql, rewritten.classified)
        finally:
            reset_session(session)

    def _rewritten(self, session: Session, change: SchemaChange, *, approved: bool) -> Rewritten:
        target, zone = self._around.capabilities(session), self._around.zone(session)
        rules, around = self._rules, OnTarget(session, self._journal)
        tells_second = tso_ms(change.commit_ts) % 1000 == 0
        sender = (look(change.place) for look in (is_of_debezium, is_change_of_snapshot, is_of_canal))
        site = Site(target, rules.collations, rules.source, around, rules.routes, approved, zone, tells_second, *sender)
        try:
            rewritten = rewrite(change.text, change.schema, site)
        except UnsupportedError as unsupported:
            plain = classify(change.text, change.schema)
            is_same = isinstance(plain, Classified) and all(self._rules.routes.target(n) == n for n in plain.tables)
            if not approved or isinstance(plain, Refused) or not is_same or isinstance(unsupported, RoutingError):
                raise self.hold(session, change, str(unsupported), None) from unsupported
            # The operator approved it, so it is sent as it is, but for the words that never run
            rewritten = Rewritten(without_spans(change.text, plain.never_run), plain)
        return self._allowed(session, change, rewritten)

    def _allowed(
        self, session: Session, change: SchemaChange, rewritten: Rewritten | Refused, replacement: str = ""
    ) -> Rewritten:
        if isinstance(rewritten, Unclear):
            raise self.hold(session, change, rewritten.reason, None)
        if isinstance(rewritten, Refused):
            raise self._refuse(session, change, rewritten.reason, replacement)
        if reason := self._rules.forbids(rewritten.classified) or self._rules.forbids(rewritten.upstream):
            raise self._refuse(session, change, reason, replacement)
        if rewritten.local and self._rules.timezone is None:
            log.warning("local_times_in_utc", what=rewritten.local, statement=change.text, fix=_ZONE_FIX)
        assumed = {step.after for step in rewritten.steps if step.why.startswith(OF_SOURCE)} - self._assumed
        if assumed and not self._rules.is_from_tidb and not self._rules.collations.source.are_configured:
            self._assumed |= assumed
            log.warning("collation_assumed", what=" ".join(assumed), statement=change.text, fix=_COLLATION_FIX)
        return rewritten

    def _as_replaced(self, session: Session, change: SchemaChange, entry: JournalEntry) -> Rewritten:
        """Takes the operator's text, which has the names of the target, and checks it like any other schema change."""
        classified = classify(entry.replacement, "" if self._rules.routes else change.schema)
        rewritten: Rewritten | Refused = (
            Rewritten(without_spans(entry.replacement, classified.never_run), classified)
            if isinstance(classified, Classified)
            else classified
        )
        return self._allowed(session, change, rewritten, entry.replacement)

    def _leave_out(
        self, session: Session, change: SchemaChange, state: JournalState, rewritten: Rewritten, outcome: str
    ) -> None:
        self._journal.record(session, change, state, rewritten=rewritten, outcome=outcome)
        log_outcome(change, rewritten, outcome)

    def hold(
        self, session: Session, change: SchemaChange, reason: str, rewritten: Rewritten | None, *, fingerprint: str = ""
    ) -> HeldError:
        self._journal.record(
            session, change, JournalState.HELD, fingerprint=fingerprint, rewritten=rewritten, outcome=reason
        )
        self._held_hashes.add(change.statement_hash)
        entry = self._journal.find(session, change)
        assert entry is not None  # it was just written
        log.warning("schema_change_held", id=entry.id, why=reason, statement=change.text)
        return _held_error(entry, change)

    def _refuse(self, session: Session, change: SchemaChange, reason: str, replacement: str = "") -> SchemaChangeError:
        self._journal.record(session, change, JournalState.REFUSED, outcome=reason)
        return SchemaChangeError(
            f"the bridge does not run this statement: {reason}; the statement is: {replacement or change.text}",
            where=where_of(change),
            fix=f"bridge ddl skip {change.id} leaves it out, bridge ddl replace {change.id} runs another statement"
            f" in its place, bridge ddl done {change.id} says that its effect is there; then start the bridge again",
        )


def log_outcome(change: SchemaChange, rewritten: Rewritten, outcome: str) -> None:
    """Logs what became of a schema change, and what was rewritten in it."""
    for step in rewritten.steps:
        log.info("schema_change_rewritten", commit_ts=change.commit_ts, **step._asdict())
    log.info("schema_change", statement=change.text, commit_ts=change.commit_ts, outcome=outcome)


def where_of(change: SchemaChange) -> str:
    """Says where a schema change came from, for errors."""
    return f"{change.position}, schema {change.schema!r}, commit ts {change.commit_ts}"


def _held_error(entry: JournalEntry, change: SchemaChange) -> HeldError:
    is_unclear = isinstance(classify(change.text, change.schema), Unclear)
    ways = "replace (with the databases of all names), skip or done" if is_unclear else "approve, skip, replace or done"
    return HeldError(
        f"a schema change is held: {entry.outcome}", where=where_of(change), fix=f"bridge ddl {ways} {entry.id}"
    )


class OnTarget(Surroundings):
    """Answers for one statement; it reads from the target when it is asked."""

    def __init__(self, session: Session, journal: Journal) -> None:
        self._session, self._journal = session, journal

    def lacks(self, table: TableName, omission: OmittedObject) -> bool:
        names = {o.name.lower() for o in self._journal.left_out(self._session) if o.kind == omission.kind}
        if omission.name.lower() not in names and not ("" in names and _CHOSEN_BY_SERVER.fullmatch(omission.name)):
            return False
        if omission.kind == "table":
            return definition(self._session, table) is None
        return not self.exists(table, omission.kind, omission.name)

    def stored_name(self, table: TableName) -> TableName | None:
        rows = self._session.rows(
            "SELECT table_name FROM information_schema.tables"
            " WHERE table_schema = %s AND LOWER(table_name) = LOWER(%s)",
            tuple(table),
        )
        # MariaDB ignores accents as well.
        names = [str(name) for (name,) in rows if name.lower() == table.table.lower()]
        return TableName(table.schema, names[0]) if len(names) == 1 and names[0] != table.table else None

    def default_is_nobodys(self, schema: str) -> bool:
        """Tells whether the database has its server's default collation, and no schema change of this pipeline has made
        or altered it."""
        rows = self._session.rows(
            "SELECT default_collation_name = @@global.collation_server FROM information_schema.schemata"
            " WHERE schema_name = %s",
            (schema,),
        )
        return bool(rows and rows[0][0]) and schema not in self.databases_made()

    def databases_made(self) -> set[str]:
        """Gives the databases that schema changes of this pipeline have made or altered."""
        entries = self._journal.done(self._session, [kind.value for kind in DATABASE_KINDS])
        statements = (classify(entry.run_text or entry.statement, entry.schema) for entry in entries)
        return {change.database for change in statements if isinstance(change, Classified)}

    def has_rows(self, table: TableName, where: str = "TRUE") -> bool:
        """Tells whether the table, in whatever case its name is written, holds any row of which the condition is
        true."""
        table = self.stored_name(table) or table
        if definition(self._session, table) is None:
            return False
        return bool(self._session.rows(f"SELECT 1 FROM {quote_name(*table)} WHERE {where} LIMIT 1"))

    def partition_method(self, table: TableName) -> str:
        method = self._session.value(
            "SELECT MAX(partition_method) FROM information_schema.partitions"
            " WHERE table_schema = %s AND table_name = %s",
            tuple(self.stored_name(table) or table),
        )
        return str(method or "").upper()

    def column_definition(self, table: TableName, column: str) -> str | None:
        begin = f"  {quote_name(column)} ".lower()
        lines = (definition(self._session, self.stored_name(table) or table) or "").splitlines()
        return next((line[len(begin) :].removesuffix(",") for line in lines if line.lower().startswith(begin)), None)

    def is_there(self, table: TableName) -> bool:
        """Tells whether the target has the table."""
        return bool(self.exists(table, "table"))

    def exists(self, table: TableName, kind: str, name: str = "") -> bool | None:
        table = self.stored_name(table) or table
        if kind == "table":
            return definition(self._session, table) is not None
        view, column = _VIEWS[kind]
        count = self._session.value(
            f"SELECT COUNT(*) FROM information_schema.{view}"
            f" WHERE table_schema = %s AND table_name = %s AND {column} = %s",
            (*table, name),
        )
        return bool(count)

    def unique_keys(self, table: TableName) -> dict[str, tuple[str, ...]]:
        """Gives the columns of each unique key, the primary key included, by the key's name; all in lower case."""
        tables = load_objects(self._session, [self.stored_name(table) or table]).values()
        return {name.lower(): i.parts for table in tables for name, i in table.indexes.items() if i.unique}
