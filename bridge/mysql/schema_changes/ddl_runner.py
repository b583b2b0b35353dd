"""Runs schema changes on the target, each exactly once, although DDL is not transactional (internals, decision 5).

Before a statement runs, an intent with a fingerprint of everything it touches is written.  When a restart finds the
intent open, the fingerprint as it is now tells whether the statement ran: an InnoDB schema change either happened or
did not.  What runs is what `ddl_plan` makes of a statement.  One that the target refuses stops the bridge.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import structlog
from pymysql.constants import ER
from pymysql.err import MySQLError, OperationalError

from bridge.ddl.classes import StatementKind
from bridge.ddl.collation_tables import OLD_COLLATIONS
from bridge.ddl.parser import Classified, has_if_not_exists
from bridge.ddl.policy import DdlRules
from bridge.ddl.rewrite import Rewritten
from bridge.errors import SchemaChangeError
from bridge.model import SchemaChange
from bridge.mysql import tidb
from bridge.mysql.connection.session import Session
from bridge.mysql.schema_changes.ddl_fingerprint import (
    Conclusion,
    Evidence,
    Ran,
    conclude,
    definition,
    evidence,
    exists_already,
    skipped_before,
)
from bridge.mysql.schema_changes.ddl_plan import OnTarget, Planner, log_outcome, where_of
from bridge.mysql.schema_changes.ddl_session import DdlSession, require_explicit_defaults, reset_session
from bridge.mysql.server_errors import DUPLICATE_KEY, KEY_TOO_LONG, TRANSIENT, error_code, server_words
from bridge.mysql.state.ddl_journal import FINISHED, OPEN, Journal, JournalEntry, JournalState
from bridge.protocols.values.event_time import is_change_of_snapshot

_ANOTHER_SNAPSHOT: Final = (
    "; the target's is another one than this snapshot of the connector shows: it was there before, or is of an earlier"
    " snapshot. Then what was changed and deleted in between is in no message: begin anew, with an empty target"
)
_POLL_SECONDS: Final = 0.5
_LOG_SECONDS: Final = 10.0

log = structlog.get_logger()


def pipeline_tag(pipeline: str) -> str:
    """Gives the text that all tags of a pipeline begin with."""
    return f"/* bridge {re.sub(r'[^A-Za-z0-9_.-]', '_', pipeline)} "


def wait_while_running(
    session: Session, tag: str, *, connection: int | None = None, stop: Callable[[], bool] = lambda: False
) -> bool:
    """Waits until no statement that begins with `tag` runs on another connection (or on `connection`, if it is given).

    A server goes on with an ALTER TABLE whose client is gone; if it were sent again, it would run twice.  Gives False
    when `stop` became true first.
    """
    logged_at = 0.0
    while (running := _running(session, tag, connection)) is not None:
        if stop():
            return False
        if time.monotonic() - logged_at > _LOG_SECONDS:
            logged_at = time.monotonic()
            log.info("schema_change_still_runs", connection=running[0], seconds=running[1])
        time.sleep(_POLL_SECONDS)
    return True


def _running(session: Session, tag: str, connection: int | None) -> tuple[int, int] | None:
    """Gives the connection and the seconds of a running statement that begins with the tag; None when there is none."""
    if session.is_tidb:
        return next(iter(tidb.running(session, tag)), None)
    rows = session.rows(
        "SELECT id, time FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND INSTR(info, %s) = 1"
        + ("" if connection is None else " AND id = %s"),
        (tag,) if connection is None else (tag, connection),
    )
    return (int(rows[0][0]), int(rows[0][1])) if rows else None


_UNKNOWN: Final = frozenset({1051, 4092})
"""Unknown table; unknown view (MariaDB)."""
_MADE: Final = frozenset({ER.TABLE_EXISTS_ERROR, ER.DUP_FIELDNAME})
_THERE: Final = frozenset({ER.TABLE_EXISTS_ERROR, ER.DB_CREATE_EXISTS})
_CREATES: Final = frozenset({StatementKind.CREATE_TABLE, StatementKind.CREATE_VIEW})
_DROPS: Final = frozenset({StatementKind.DROP_TABLE, StatementKind.DROP_VIEW})
_DENIED: Final = frozenset({1044, 1142, 1227})
_NOT_RUN: Final = frozenset({JournalState.REFUSED, JournalState.APPROVED})
_CHANGED: Final = (
    "the target refused it, and was changed by hand since then; where that did what the statement says, running it"
    " would undo it"
)
_LOOK: Final = "look at the target: if it ran, skip it; if it did not, approve it"
COPIES_IN_A_PACKET: Final = 12
"""How often one packet may have to hold a statement: the journal's row holds it as it came, as it runs, and before and
after its changes, with escapes."""


class Unreadable(NamedTuple):
    """What the operator has decided about schema changes that cannot be read.

    settled: the hashes of those that no longer stop the bridge, with their positions.
    to_run: those that another statement replaces, and which has not run yet.
    """

    settled: Mapping[str, str]
    to_run: tuple[SchemaChange, ...]


def is_another(position: str, other: str) -> bool:
    """Tells whether equal messages at two positions (topic/partition/offset) are two schema changes, and not copies of
    one in several partitions."""
    return position != other and position.rpartition("/")[0] == other.rpartition("/")[0]


class SchemaChangeRunner:
    """Runs one pipeline's schema changes on the control session.

    rules: policy, source and collations, from the settings.
    trace: is called with the name of each step (tests crash there).
    """

    def __init__(self, pipeline: str, schema: str, rules: DdlRules, trace: Callable[[str], None]) -> None:
        self._pipeline, self._schema, self._trace = pipeline, schema, trace
        self._rules = replace(rules, own_schema=schema)
        self.journal = Journal(pipeline, schema)
        self._around = DdlSession(self._rules)
        self._planner = Planner(self.journal, self._rules, self._around)

    def run(self, session: Session, change: SchemaChange) -> None:
        """Runs `change` exactly once, and records the outcome.

        Raises HeldError while it waits for the operator, SchemaChangeError when the policy or the target refuses it,
        MySQLError when the connection is lost (the intent stays open; run it again on a new session).
        """
        entry = self.journal.find(session, change)
        if entry is not None and entry.state in FINISHED:
            return
        plan = self._planner.plan(session, change, entry)
        if plan is None:
            return
        wait_while_running(session, self._tag(change))
        now = evidence(session, plan.classified)
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
        self.journal.close(session, change, JournalState.DONE, outcome)
        self._trace("ddl recorded")
        log_outcome(change, plan, outcome)

    def _is_to_run(
        self, session: Session, change: SchemaChange, plan: Rewritten, intent: JournalEntry, now: Evidence
    ) -> bool:
        """Tells whether a change with an open intent still has to run, and records a change that ran.  Raises HeldError
        when nothing shows whether it ran."""
        conclusion = self._conclusion(session, plan.classified, intent, now)
        if conclusion.ran is Ran.YES:
            self.journal.close(session, change, JournalState.DONE, "found on the target after an interruption")
            return False
        is_unclear = conclusion.ran is Ran.UNCLEAR
        if is_unclear and intent.state is not JournalState.APPROVED:
            reason = f"nothing shows whether it ran: {conclusion.why}; {_LOOK}"
            raise self._planner.hold(session, change, reason, plan, fingerprint=intent.fingerprint)
        if intent.state is not JournalState.RUNNING:
            self._record_intent(session, change, plan, now.fingerprint)
        return True

    def check_size(self, session: Session, changes: Sequence[SchemaChange]) -> None:
        """Raises SchemaChangeError when the rows of progress or of the journal would be too long for the server with
        these changes."""
        longest = max(changes, key=lambda change: len(change.text))
        size = sum(len(change.text.encode()) for change in changes)
        packet = self._around.capabilities(session).max_allowed_packet
        if size * COPIES_IN_A_PACKET > packet:
            raise SchemaChangeError(
                f"schema changes of {size:,} bytes are too long for the target: its max_allowed_packet of {packet:,}"
                f" bytes allows statements of {packet // COPIES_IN_A_PACKET:,} bytes; the longest one begins:"
                f" {longest.text[:200]}",
                where=where_of(longest),
                fix=f"set max_allowed_packet on the target to {size * COPIES_IN_A_PACKET:,} or more and start the"
                " bridge again; or leave the table out with --filter",
            )

    def unreadable(self, session: Session) -> Unreadable:
        """Tells what the operator has decided about schema changes that cannot be read."""
        decided = [entry for entry in self.journal.unreadable(session) if entry.state not in OPEN]
        return Unreadable(
            {entry.statement_hash: entry.position for entry in decided},
            tuple(
                SchemaChange(entry.commit_ts, entry.schema, "", entry.statement, entry.position)
                for entry in decided
                if entry.state not in FINISHED
            ),
        )

    def note_unreadable(self, session: Session, change: SchemaChange, again: SchemaChange, reason: str) -> str:
        """Records a schema change that cannot be read for the operator to decide, and gives its id.  One that waits
        already keeps its id.  again: what it is where its partition held the same message before."""
        by_hash = {entry.statement_hash: entry for entry in self.journal.unreadable(session)}
        first = by_hash.get(change.statement_hash)
        if first is not None and is_another(first.position, change.position):
            change = again
        if change.statement_hash in by_hash:
            return by_hash[change.statement_hash].id
        self.journal.record(session, change, JournalState.REFUSED, outcome=reason)
        return change.id

    def _refused_by_target(
        self, session: Session, change: SchemaChange, plan: Rewritten, words: str, code: int = 0
    ) -> SchemaChangeError:
        if code == ER.TABLE_EXISTS_ERROR and is_change_of_snapshot(change.place):
            words += _ANOTHER_SNAPSHOT
        self.journal.close(session, change, JournalState.REFUSED, words)
        came = "" if plan.sql == change.text else " (`bridge ddl list` shows it as it came)"
        return SchemaChangeError(
            f"the target refused a schema change: {words}; the statement is: {plan.sql}{came}",
            where=where_of(change),
            fix=f"{_first_step(code, self._rules.source)}, then start the bridge again: it tries again; or bridge"
            f" ddl replace {change.id} with a statement that the target understands; or change the target by hand as"
            f" the statement would have, and bridge ddl done {change.id}",
        )

    def _record_intent(self, session: Session, change: SchemaChange, plan: Rewritten, fingerprint: str) -> None:
        self.journal.record(session, change, JournalState.RUNNING, fingerprint=fingerprint, rewritten=plan)

    def _execute(self, session: Session, change: SchemaChange, plan: Rewritten, *, resumed: bool) -> str:
        try:
            self._around.prepare(session, change, plan.classified)
            if "timestamp" in plan.sql.lower():
                require_explicit_defaults(session, where_of(change))
            session.execute(f"{self._tag(change)} {plan.sql}")
            _raise_skipped(session)
        except MySQLError as error:
            if isinstance(error, TRANSIENT):
                raise
            if error_code(error) in _THERE and self._did_nothing(session, change, plan):
                self._refuse_remnant(session, change, plan, error)
                return "nothing to do: it is there already, as it was upstream"
            outcome = exists_already(session, self._schema, change, plan.sql, plan.classified, error)
            if outcome or error_code(error) in _MADE:
                self._refuse_remnant(session, change, plan, error)
            if outcome:
                return outcome
            if resumed and error_code(error) in _UNKNOWN and _all_dropped(session, plan.classified):
                return "ran, after an interruption had dropped some of its tables"
            raise self._refused_by_target(session, change, plan, server_words(error), error_code(error)) from error
        finally:
            reset_session(session)
        return "ran"

    def _refuse_remnant(self, session: Session, change: SchemaChange, plan: Rewritten, error: MySQLError) -> None:
        """Raises SchemaChangeError when what is there is what a statement that was left out would have removed."""
        if skipped := skipped_before(self.journal, session, self._rules.routes, change, plan.sql, plan.classified):
            words = f"what it makes is there with what it held before, as {skipped.id} was {skipped.state}"
            raise self._refused_by_target(session, change, plan, words) from error

    def _did_nothing(self, session: Session, change: SchemaChange, plan: Rewritten) -> bool:
        """Tells whether a CREATE ... IF NOT EXISTS whose object is there did nothing upstream either.

        MySQL and MariaDB log it all the same; TiDB does not.  Of a database that this pipeline has neither made nor
        altered it may be the one that made it.
        """
        if self._rules.source.startswith("tidb") or not has_if_not_exists(change.text, plan.upstream):
            return False
        if plan.classified.kind is StatementKind.CREATE_DATABASE:
            return plan.classified.database in OnTarget(session, self.journal).databases_made()
        return plan.classified.kind in _CREATES

    def _conclusion(self, session: Session, classified: Classified, intent: JournalEntry, now: Evidence) -> Conclusion:
        """Tells whether an interrupted statement ran.  One that the target refused has not, whatever was changed there
        by hand since then."""
        if classified.kind in _DROPS:
            return Conclusion(Ran.YES if _all_dropped(session, classified) else Ran.NO)
        if intent.state in _NOT_RUN and not classified.swaps:
            return Conclusion(Ran.NO)
        conclusion = conclude(intent.fingerprint, now, classified.swaps)
        is_changed = conclusion.ran is Ran.YES and intent.state in _NOT_RUN
        return Conclusion(Ran.UNCLEAR, _CHANGED) if is_changed else conclusion

    def _tag(self, change: SchemaChange) -> str:
        return f"{pipeline_tag(self._pipeline)}{change.commit_ts} {change.statement_hash[:12]} */"


def _raise_skipped(session: Session) -> None:
    """Raises the error that IF NOT EXISTS suppresses: it leaves an existing object as it is, even one that differs."""
    for _, code, message in session.rows("SHOW WARNINGS"):
        if code in _THERE:
            raise OperationalError(code, message)


def _first_step(code: int, source: str) -> str:
    """Says what makes a statement run that the target refused with an error.  source: as in `DdlRules`."""
    if code == ER.BAD_DB_ERROR:
        return "create the database on the target as it is upstream"
    if code == ER.NO_SUCH_TABLE:
        return "make the table on the target as it is upstream"
    if code in KEY_TOO_LONG:
        return (
            "let keys be as long as they can: SET GLOBAL innodb_default_row_format = DYNAMIC on the target, and ALTER"
            " TABLE ... ROW_FORMAT = DYNAMIC where its table is there already"
        )
    if code in DUPLICATE_KEY and source == "tidb":
        return f"{OLD_COLLATIONS}take what is in its way from the target"
    return "grant the right that is missing" if code in _DENIED else "take what is in its way from the target"


def _all_dropped(session: Session, classified: Classified) -> bool:
    tables = classified.tables if classified.kind in _DROPS else ()
    return bool(tables) and all(definition(session, name) is None for name in tables)
