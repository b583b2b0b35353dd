"""Runs schema changes on the target, each exactly once, although DDL is not transactional (internals, decision 5).

Before a statement runs, an intent with a fingerprint of everything it touches is written.  When a restart finds the
intent open, the fingerprint as it is now tells whether the statement ran: an InnoDB schema change either happened or
did not.  The statement that runs is the one rewritten for the target.  A statement that the policy holds waits for the
operator; one that is refused stops the bridge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog
from pymysql.err import MySQLError, OperationalError

from bridge.ddl.by_table.routing import RoutingError
from bridge.ddl.by_table.shard_statements import shard_statement
from bridge.ddl.by_table.shard_track import ShardVerdict, compared, kept_rows, misread
from bridge.ddl.by_table.shard_values import misread_values
from bridge.ddl.classes import StatementKind
from bridge.ddl.parser import Classified, Refused, classify
from bridge.ddl.policy import DdlRules, Decision, Verdict
from bridge.ddl.rewrite import Rewritten, rewrite
from bridge.ddl.rule import Site, UnsupportedError
from bridge.ddl.server_features import Capabilities
from bridge.errors import HeldError, SchemaChangeError
from bridge.model import SchemaChange
from bridge.mysql.apply.ddl_fingerprint import Conclusion, Evidence, Ran, conclude, definition, evidence
from bridge.mysql.apply.existing_objects import exists_already, makes_exactly, skipped_before
from bridge.mysql.apply.rewrite_context import OnTarget
from bridge.mysql.apply.statement_tag import statement_tag, wait_while_running
from bridge.mysql.apply.timestamp_defaults import EXPLICIT_DEFAULTS, require_explicit_defaults, reset_session
from bridge.mysql.apply.upstream_zone import UTC, known_zone, set_fractions
from bridge.mysql.connection import Session
from bridge.mysql.probe import OWN_DEFAULTS, probe
from bridge.mysql.server_errors import KEY_TOO_LONG, TRANSIENT, error_code, server_words
from bridge.mysql.state.ddl_journal import FINISHED, Journal, JournalEntry, JournalState
from bridge.mysql.state.shard_journal import ShardJournal
from bridge.quoting import quote_name
from bridge.tso import tso_ms

_DATABASE_EXISTS: Final = 1007
_TABLE_EXISTS: Final = 1050
_COLUMN_EXISTS: Final = 1060
_UNKNOWN: Final = frozenset({1051, 4091, 4092})
"""Unknown table; unknown sequence and view (MariaDB)."""
_MADE: Final = frozenset({_TABLE_EXISTS, _COLUMN_EXISTS})
_DROPS: Final = frozenset({StatementKind.DROP_TABLE, StatementKind.DROP_VIEW, StatementKind.DROP_SEQUENCE})
_NO_SUCH_DATABASE: Final = 1049
_NO_SUCH_TABLE: Final = 1146
_DENIED: Final = frozenset({1044, 1142, 1227})
_NOT_SETTABLE: Final = frozenset({1193, 1227, 1229, 1231, 1238})
_SESSION: Final = (
    # Collations and defaults are written out; these two settings would make servers of one flavour differ.
    OWN_DEFAULTS,
    EXPLICIT_DEFAULTS,
    # A table without a key gets none of the server's own (MySQL 8.0.30), which no message has, unless it must have one.
    "SET SESSION sql_generate_invisible_primary_key ="
    " @@SESSION.sql_generate_invisible_primary_key AND @@SESSION.sql_require_primary_key",
    # MariaDB reads IF EXISTS where no statement has it, and with it makes no table LIKE another one (error 1113).
    "SET SESSION sql_if_exists = 0",
)
_NOT_RUN: Final = frozenset({JournalState.REFUSED, JournalState.APPROVED})
_CHANGED: Final = (
    "the target refused it, and was changed by hand since then; where that did what the statement says, running it"
    " would undo it"
)
_LOOK: Final = "look at the target: if it ran, skip it; if it did not, approve it"
COPIES_IN_A_PACKET: Final = 12
"""How often one packet may have to hold a statement: the journal's row holds it as it came, as it runs, and before and
after its changes, with escapes."""

_ZONE_FIX: Final = (
    "give the zone with ddl.timezone; if it is not UTC, compare the table with bridge verify --against upstream"
)
log = structlog.get_logger()


@dataclass(frozen=True)
class _StatementToRun:
    """The statement to run: rewritten for the target, and allowed by the policy or the operator."""

    rewritten: Rewritten

    @property
    def text(self) -> str:
        return self.rewritten.text or ""

    @property
    def classified(self) -> Classified:
        return self.rewritten.classified

    @property
    def classes(self) -> str:
        return ", ".join(change.value for change in self.classified.classes)


class SchemaChangeRunner:
    """Runs one pipeline's schema changes on the control session.

    rules: policy, source and collations, from the settings.
    trace: is called with the name of each step (tests crash there).
    """

    def __init__(self, pipeline: str, schema: str, rules: DdlRules, trace: Callable[[str], None]) -> None:
        self._pipeline, self._schema, self._trace = pipeline, schema, trace
        self._rules = replace(rules, own_schema=schema)
        self._journal = Journal(pipeline, schema)
        self._shards = ShardJournal(self._journal, rules.routes)
        self._probed: tuple[int, Capabilities] | None = None
        self._zones: dict[int, str | None] = {}
        self._held: set[str] = set()

    def run(self, session: Session, change: SchemaChange) -> None:
        """Runs `change` exactly once, and records the outcome.

        Raises HeldError while it waits for the operator, SchemaChangeError when the policy or the target refuses it,
        MySQLError when the connection is lost (the intent stays open; run it again on a new session).
        """
        entry = self._journal.find(session, change)
        if entry is not None and entry.state in FINISHED:
            return
        if entry is not None and entry.state is JournalState.HELD and change.statement_hash in self._held:
            raise _held(entry, change)
        self._shards.begin(change)
        plan = self._plan(session, change, entry)
        if plan is None:
            return
        wait_while_running(session, self._tag(change))
        now = evidence(session, self._target(session), plan.classified)
        resumed = (
            entry if entry is not None and entry.fingerprint and entry.state is not JournalState.REPLACED else None
        )
        if resumed is None:
            self._record_intent(session, change, plan, now.fingerprint)
        elif not self._is_to_run(session, change, plan, resumed, now):
            return
        self._trace("ddl intent")
        outcome = self._execute(session, change, plan, resumed=resumed is not None)
        self._trace("ddl executed")
        self._journal.close(session, change, JournalState.DONE, outcome)
        self._trace("ddl recorded")
        _log(change, plan.rewritten, outcome)

    def _is_to_run(
        self, session: Session, change: SchemaChange, plan: _StatementToRun, intent: JournalEntry, now: Evidence
    ) -> bool:
        """Tells whether a change with an open intent still has to run, and records a change that ran.  Raises HeldError
        when nothing shows whether it ran."""
        found = self._conclusion(session, plan.classified, intent, now)
        if found.ran is Ran.YES:
            self._journal.close(session, change, JournalState.DONE, "found on the target after an interruption")
            return False
        is_unclear = found.ran is Ran.UNCLEAR
        if is_unclear and intent.state is not JournalState.APPROVED:
            reason = f"nothing shows whether it ran: {found.why}; {_LOOK}"
            raise self._hold(session, change, reason, plan.rewritten, fingerprint=intent.fingerprint)
        if intent.state is not JournalState.RUNNING:
            self._record_intent(session, change, plan, now.fingerprint)
        return True

    def check_size(self, session: Session, changes: Sequence[SchemaChange]) -> None:
        """Raises SchemaChangeError when the rows of progress or of the journal would be too long for the server with
        these changes."""
        longest = max(changes, key=lambda change: len(change.text))
        size, packet = sum(len(change.text.encode()) for change in changes), self._target(session).max_allowed_packet
        if size * COPIES_IN_A_PACKET > packet:
            raise SchemaChangeError(
                f"schema changes of {size:,} bytes are too long for the target: its max_allowed_packet of {packet:,}"
                f" bytes allows statements of {packet // COPIES_IN_A_PACKET:,} bytes; the longest one begins:"
                f" {longest.text[:200]}",
                where=_where(longest),
                fix=f"set max_allowed_packet on the target to {size * COPIES_IN_A_PACKET:,} or more and start the"
                " bridge again; or leave the table out with --filter",
            )

    def runs_like(self, session: Session, change: SchemaChange) -> dict[int, str]:
        """Gives commit ts and position of the entries with the text of `change` in the millisecond of its commit_ts."""
        return self._journal.runs_like(session, change)

    def _target(self, session: Session) -> Capabilities:
        """Gives the target's capabilities, probed once per connection: a server may come back as another version."""
        if self._probed is None or self._probed[0] != session.connection_id:
            self._probed = session.connection_id, probe(session)
            log.info("target", server=str(self._probed[1]))
        return self._probed[1]

    def _zone(self, session: Session) -> str | None:
        """Gives the upstream's zone, asked for once per connection; None where the target does not know it."""
        if session.connection_id not in self._zones:
            self._zones = {session.connection_id: known_zone(session, self._rules.timezone)}
        return self._zones[session.connection_id]

    def _plan(self, session: Session, change: SchemaChange, entry: JournalEntry | None) -> _StatementToRun | None:
        """Decides what to run.  Gives None, and records it, when there is nothing to run."""
        state = entry.state if entry is not None else None
        if entry is not None and state is JournalState.RUNNING:
            return self._as_recorded(change, entry)
        if entry is not None and entry.replacement:
            return self._as_replaced(session, change, entry)
        is_approved = state is JournalState.APPROVED
        rewritten = self._rewritten(session, change, approved=is_approved)
        decision = Decision(Verdict.ALLOW) if is_approved else self._rules.decide(rewritten.upstream, change.text)
        if decision.verdict is Verdict.REFUSE:
            raise self._refuse(session, change, decision.reason)
        if decision.verdict is Verdict.IGNORE:
            self._leave_out(session, change, JournalState.IGNORED, rewritten, decision.reason)
            return None
        if outcome := self._confirmation(session, change, rewritten, approved=is_approved):
            nothing = replace(rewritten, text=None, steps=())
            self._leave_out(session, change, JournalState.CONFIRMED, nothing, outcome)
            return None
        if decision.verdict is Verdict.HOLD:
            raise self._hold(session, change, decision.reason, rewritten)
        if rewritten.text is None:
            self._leave_out(
                session, change, JournalState.DONE, rewritten, "nothing to run: nothing of it is for this target"
            )
            return None
        return _StatementToRun(rewritten)

    def _confirmation(self, session: Session, change: SchemaChange, rewritten: Rewritten, *, approved: bool) -> str:
        """Tells why a schema change of a shard has nothing to run, since the merged table is as it says; "" when it is
        to run.  Raises HeldError for one that the operator has to decide about."""
        shard = shard_statement(change.text, change.schema, self._rules.routes)
        if shard is None:
            return ""
        if shard.makes and not shard.never and definition(session, rewritten.classified.tables[0]) is None:
            return ""
        ruling = self._shards.ruling(session, shard)
        if ruling.verdict is not ShardVerdict.CONFIRM and not shard.never and rewritten.text:
            around = OnTarget(session, self._journal)
            is_utc = self._zone(session) in {UTC, "UTC"}
            if what := misread_values(rewritten.text, rewritten.classified, around.column_definition, is_utc=is_utc):
                raise self._hold(session, change, misread(shard, what), rewritten)
        is_held = ruling.verdict is ShardVerdict.HOLD and (shard.never or not approved)
        if ruling.verdict is ShardVerdict.COMPARE and not approved:
            is_held = not self._is_made(session, change, rewritten)
            ruling = compared(shard, is_equal=not is_held)
        if is_held:
            raise self._hold(session, change, ruling.why, rewritten)
        if shard.makes and approved:
            return "confirmed by the operator"
        if not shard.makes and (kept := self._kept(session, change, rewritten)):
            raise self._hold(session, change, kept_rows(shard, kept.id), rewritten)
        return ruling.why if ruling.verdict is ShardVerdict.CONFIRM else ""

    def _kept(self, session: Session, change: SchemaChange, rewritten: Rewritten) -> JournalEntry | None:
        routes, text = self._rules.routes, rewritten.text or ""
        return skipped_before(self._journal, session, routes, change, text, rewritten.classified)

    def _is_made(self, session: Session, change: SchemaChange, rewritten: Rewritten) -> bool:
        """Tells whether the target's table is exactly what a statement makes."""
        try:
            self._prepare(session, change, rewritten.classified)
            return makes_exactly(session, self._schema, change, rewritten.text or "", rewritten.classified)
        finally:
            reset_session(session)

    def _rewritten(self, session: Session, change: SchemaChange, *, approved: bool) -> Rewritten:
        target = self._target(session)
        around = OnTarget(session, self._journal)
        zone = self._zone(session)
        site = Site(target, self._rules.collations, self._rules.source, around, self._rules.routes, approved, zone)
        try:
            found = rewrite(change.text, change.schema, site)
        except UnsupportedError as unsupported:
            plain = classify(change.text, change.schema)
            is_same = isinstance(plain, Classified) and all(self._rules.routes.target(n) == n for n in plain.tables)
            if not approved or isinstance(plain, Refused) or not is_same or isinstance(unsupported, RoutingError):
                raise self._hold(session, change, str(unsupported), None) from unsupported
            found = Rewritten(change.text, plain)  # the operator approved it, so it is sent as it is
        return self._allowed(session, change, found)

    def _allowed(
        self, session: Session, change: SchemaChange, found: Rewritten | Refused, replacement: str = ""
    ) -> Rewritten:
        if isinstance(found, Refused):
            raise self._refuse(session, change, found.reason, replacement)
        if reason := self._rules.forbids(found.classified) or self._rules.forbids(found.upstream):
            raise self._refuse(session, change, reason, replacement)
        if found.local and self._rules.timezone is None:
            log.warning("local_times_in_utc", what=found.local, statement=change.text, fix=_ZONE_FIX)
        return found

    def _as_recorded(self, change: SchemaChange, entry: JournalEntry) -> _StatementToRun:
        """Takes the text that was sent before the interruption."""
        classified = classify(entry.run_text, change.schema)
        assert isinstance(classified, Classified), entry.run_text  # it was classified before it was recorded
        return _StatementToRun(Rewritten(entry.run_text, classified, entry.rewrites))

    def _as_replaced(self, session: Session, change: SchemaChange, entry: JournalEntry) -> _StatementToRun:
        """Takes the operator's text, which has the names of the target, and checks it like any other schema change."""
        classified = classify(entry.replacement, "" if self._rules.routes else change.schema)
        found = Rewritten(entry.replacement, classified) if isinstance(classified, Classified) else classified
        return _StatementToRun(self._allowed(session, change, found, entry.replacement))

    def _leave_out(
        self, session: Session, change: SchemaChange, state: JournalState, rewritten: Rewritten, outcome: str
    ) -> None:
        plan = _StatementToRun(rewritten)
        self._journal.record(session, change, state, classes=plan.classes, rewritten=rewritten, outcome=outcome)
        _log(change, rewritten, outcome)

    def _hold(
        self,
        session: Session,
        change: SchemaChange,
        reason: str,
        rewritten: Rewritten | None,
        *,
        fingerprint: str = "",
    ) -> HeldError:
        classes = _StatementToRun(rewritten).classes if rewritten else ""
        self._journal.record(
            session,
            change,
            JournalState.HELD,
            fingerprint=fingerprint,
            classes=classes,
            rewritten=rewritten,
            outcome=reason,
        )
        self._held.add(change.statement_hash)
        entry = self._journal.find(session, change)
        assert entry is not None  # it was just written
        log.warning("schema_change_held", id=entry.id, why=reason, statement=change.text)
        return _held(entry, change)

    def _refuse(self, session: Session, change: SchemaChange, reason: str, replacement: str = "") -> SchemaChangeError:
        self._journal.record(session, change, JournalState.REFUSED, outcome=reason)
        return SchemaChangeError(
            f"the bridge does not run this statement: {reason}; the statement is: {replacement or change.text}",
            where=_where(change),
            fix=f"bridge ddl skip {change.id} leaves it out, bridge ddl replace {change.id} runs another statement"
            " in its place; then start the bridge again",
        )

    def _refused_by_target(
        self, session: Session, change: SchemaChange, plan: _StatementToRun, words: str, code: int = 0
    ) -> SchemaChangeError:
        self._journal.close(session, change, JournalState.REFUSED, words)
        came = "" if plan.text == change.text else " (`bridge ddl list` shows it as it came)"
        return SchemaChangeError(
            f"the target refused a schema change: {words}; the statement is: {plan.text}{came}",
            where=_where(change),
            fix=f"{_first_step(code)}, then start the bridge again: it tries again; or bridge"
            f" ddl replace {change.id} with a statement that the target understands; or change the target by hand as"
            f" the statement would have, and bridge ddl done {change.id}",
        )

    def _record_intent(self, session: Session, change: SchemaChange, plan: _StatementToRun, fingerprint: str) -> None:
        self._journal.record(
            session,
            change,
            JournalState.RUNNING,
            fingerprint=fingerprint,
            classes=plan.classes,
            rewritten=plan.rewritten,
        )

    def _execute(self, session: Session, change: SchemaChange, plan: _StatementToRun, *, resumed: bool) -> str:
        try:
            self._prepare(session, change, plan.classified)
            if "timestamp" in plan.text.lower():
                require_explicit_defaults(session, _where(change))
            session.execute(f"{self._tag(change)} {plan.text}")
            _raise_skipped(session)
        except MySQLError as error:
            if isinstance(error, TRANSIENT):
                raise
            outcome = exists_already(session, self._schema, change, plan.text, plan.classified, error)
            kept = self._kept(session, change, plan.rewritten) if outcome or error_code(error) in _MADE else None
            if kept is not None:
                words = f"what it makes is there with what it held before, as {kept.id} was skipped"
                raise self._refused_by_target(session, change, plan, words) from error
            if outcome:
                return outcome
            if resumed and error_code(error) in _UNKNOWN and _all_dropped(session, plan.classified):
                return "ran, after an interruption had dropped some of its tables"
            raise self._refused_by_target(session, change, plan, server_words(error), error_code(error)) from error
        finally:
            reset_session(session)
        return "ran"

    def _prepare(self, session: Session, change: SchemaChange, classified: Classified) -> None:
        """Sets the session up.  The current database is the message's.  It may be missing where every name has a
        database."""
        try:
            current = self._rules.routes.whole_database(change.schema) or change.schema
            session.execute(f"USE {quote_name(current or self._schema)}")
        except MySQLError as error:
            if error_code(error) != _NO_SUCH_DATABASE or not all(named.is_qualified for named in classified.touched):
                raise
            session.execute(f"USE {quote_name(self._schema)}")
        set_fractions(session, self._rules.source)
        for setting in _SESSION:
            try:
                session.execute(setting)
            except MySQLError as error:
                if error_code(error) not in _NOT_SETTABLE:
                    raise
        # Defaults of CURRENT_TIMESTAMP use the time of the upstream's change, in its zone.
        session.execute(
            f"SET timestamp = {tso_ms(change.commit_ts) / 1000:.3f}, time_zone = '{self._zone(session) or UTC}'"
        )

    def _conclusion(self, session: Session, classified: Classified, intent: JournalEntry, now: Evidence) -> Conclusion:
        """Tells whether an interrupted statement ran.  One that the target refused has not, whatever was changed there
        by hand since then."""
        if classified.kind in _DROPS:
            return Conclusion(Ran.YES if _all_dropped(session, classified) else Ran.NO)
        if intent.state in _NOT_RUN and not classified.swaps:
            return Conclusion(Ran.NO)
        found = conclude(intent.fingerprint, now, classified.swaps)
        is_changed = found.ran is Ran.YES and intent.state in _NOT_RUN
        return Conclusion(Ran.UNCLEAR, _CHANGED) if is_changed else found

    def _tag(self, change: SchemaChange) -> str:
        return statement_tag(self._pipeline, change)


def _log(change: SchemaChange, rewritten: Rewritten, outcome: str) -> None:
    for step in rewritten.steps:
        log.info("schema_change_rewritten", commit_ts=change.commit_ts, **step._asdict())
    log.info("schema_change", statement=change.text, commit_ts=change.commit_ts, outcome=outcome)


def _where(change: SchemaChange) -> str:
    return f"{change.position}, schema {change.schema!r}, commit ts {change.commit_ts}"


def _held(entry: JournalEntry, change: SchemaChange) -> HeldError:
    return HeldError(
        f"a schema change is held: {entry.outcome}",
        where=_where(change),
        fix=f"bridge ddl approve, skip, replace or done {entry.id}",
    )


def _raise_skipped(session: Session) -> None:
    """Raises the error that IF NOT EXISTS suppresses: it leaves an existing object as it is, even one that differs."""
    for _, code, message in session.rows("SHOW WARNINGS"):
        if code in {_TABLE_EXISTS, _DATABASE_EXISTS}:
            raise OperationalError(code, message)


def _first_step(code: int) -> str:
    """Says what makes a statement run that the target refused with an error."""
    if code == _NO_SUCH_DATABASE:
        return "create the database on the target as it is upstream"
    if code == _NO_SUCH_TABLE:
        return "make the table on the target as it is upstream"
    if code in KEY_TOO_LONG:
        return (
            "let keys be as long as they can: SET GLOBAL innodb_default_row_format = DYNAMIC on the target, and ALTER"
            " TABLE ... ROW_FORMAT = DYNAMIC where its table is there already"
        )
    return "grant the right that is missing" if code in _DENIED else "take what is in its way from the target"


def _all_dropped(session: Session, classified: Classified) -> bool:
    tables = classified.tables if classified.kind in _DROPS else ()
    return bool(tables) and all(definition(session, name) is None for name in tables)
