"""Runs schema changes on the target, each with exactly one effect although DDL is not transactional (decision 5).

Before a statement runs, an intent with a fingerprint of everything it touches is written.  When a restart finds the
intent open, the fingerprint as it is now tells whether the statement ran: an InnoDB schema change either happened or
did not.  Statements run as they came; one that the target refuses stops the bridge.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog
from pymysql.err import MySQLError, OperationalError

from bridge.errors import SchemaChangeError
from bridge.events import ms_tso, tso_ms
from bridge.target.catalog import TableName
from bridge.target.ddl_text import DATABASE_CLASSES, ChangeClass, Classified, Refused, classify
from bridge.target.existing import definition, exists_already
from bridge.target.progress import SchemaChange
from bridge.target.session import Session, error_code, is_lost_connection, quote_name, server_words

_NO_SUCH: Final = frozenset({1049, 1146})
_ACCESS_DENIED: Final = frozenset({1044, 1045, 1109, 1142, 1227})

_TABLE_EXISTS: Final = 1050
_UNKNOWN_TABLE: Final = 1051
_UNKNOWN_VARIABLE: Final = 1193
_SOURCE_DEFAULTS: Final = (
    "SET SESSION character_set_server = utf8mb4, collation_server = utf8mb4_bin",
    "SET SESSION character_set_collations ="
    " 'utf8mb4=utf8mb4_bin,utf8mb3=utf8mb3_bin,latin1=latin1_bin,ascii=ascii_bin'",
)
"""A statement that names no collation means TiDB's, under which keys that differ in case are two keys; the second
setting is known from MariaDB 11.2 on."""

log = structlog.get_logger()


class Evidence(NamedTuple):
    """What the server says of everything a statement touches.

    fingerprint: hash of definitions and, where they can be seen, of InnoDB's table ids.
    sees_ids: the table ids could be read; without them a swap of contents leaves no trace.
    """

    fingerprint: str
    sees_ids: bool


class _Intent(NamedTuple):
    state: str
    fingerprint: str


class SchemaChangeRunner:
    """Runs one pipeline's schema changes on the control session.

    session: gives the control session; asked anew for each statement, as it may have been replaced.
    trace: told the name of each step (tests crash there).
    """

    def __init__(self, pipeline: str, schema: str, trace: Callable[[str], None]) -> None:
        self._pipeline, self._schema, self._trace = pipeline, schema, trace
        self._journal = quote_name(schema, "schema_changes")

    def run(self, session: Session, change: SchemaChange) -> None:
        """Gives `change` its one effect and records the outcome.

        Raises SchemaChangeError when the policy or the target refuses it, MySQLError when the connection is lost
        (the intent stays open; run it again on a new session).
        """
        intent = self._intent(session, change)
        if intent is not None and intent.state == "done":
            return
        classified = self._classify(session, change)
        self._wait_for_running(session, change)
        now = evidence(session, classified)
        if intent is None:
            self._record(session, change, "running", now.fingerprint)
        elif self._has_run(session, change, classified, intent, now):
            self._close(session, change, "done", "found on the target after an interruption")
            return
        self._trace("ddl intent")
        outcome = self._execute(session, change, classified, resumed=intent is not None)
        self._trace("ddl executed")
        self._close(session, change, "done", outcome)
        self._trace("ddl recorded")
        log.info("schema change", statement=change.text, commit_ts=change.commit_ts, outcome=outcome)

    def runs_like(self, session: Session, change: SchemaChange) -> dict[int, str]:
        """Commit ts and position of the entries with the text of `change` in the millisecond of its commit_ts."""
        millisecond = ms_tso(tso_ms(change.commit_ts))
        rows = session.rows(
            f"SELECT commit_ts, position FROM {self._journal} WHERE name = %s AND commit_ts >= %s AND commit_ts < %s"
            " AND statement_hash = %s",
            (self._pipeline, millisecond, millisecond + ms_tso(1), change.statement_hash),
        )
        return {int(commit_ts): position for commit_ts, position in rows}

    def _classify(self, session: Session, change: SchemaChange) -> Classified:
        classified = classify(change.text, change.schema)
        if isinstance(classified, Classified):
            schemas = {name.schema.lower() for name in classified.tables} | {classified.database.lower()}
            if self._schema.lower() not in schemas:
                return classified
            classified = Refused("it touches the bridge's own tables")
        self._record(session, change, "refused", "", classified.reason)
        raise SchemaChangeError(
            f"the bridge does not run this statement: {classified.reason}; the statement is: {change.text}",
            where=_where(change),
            mend="run what you want of it by hand, then mark it as dealt with and start the bridge again: UPDATE"
            f" {self._journal} SET state = 'done' WHERE name = '{self._pipeline}' AND commit_ts = {change.commit_ts}"
            f" AND statement_hash = '{change.statement_hash}'",
        )

    def _refusal(self, change: SchemaChange, what: str) -> SchemaChangeError:
        return SchemaChangeError(
            f"{what}; the statement is: {change.text}",
            where=_where(change),
            mend="bring the target by hand to where the statement would have brought it, then start the bridge again:"
            " it sees that what the statement touches has changed and goes on behind it; or leave the table out"
            " with --filter",
        )

    def _execute(self, session: Session, change: SchemaChange, classified: Classified, *, resumed: bool) -> str:
        if change.schema and classified.change_class not in DATABASE_CLASSES:
            self._use(session, change)
        try:
            _take_source_defaults(session)
            # Defaults of CURRENT_TIMESTAMP take the moment of the upstream's change.
            session.execute(f"SET timestamp = {tso_ms(change.commit_ts) / 1000:.3f}")
            session.execute(self._tag(change) + change.text)
            _raise_skipped(session)
        except MySQLError as error:
            if is_lost_connection(error):
                raise
            if exists_already(session, self._schema, change, classified, error):
                return "what it makes was there already"
            if resumed and error_code(error) == _UNKNOWN_TABLE and _all_dropped(session, classified):
                return "ran, after an interruption had dropped some of its tables"
            self._close(session, change, "refused", server_words(error))
            raise self._refusal(change, f"the target refused a schema change: {server_words(error)}") from error
        finally:
            _reset_timestamp(session)
        return "ran"

    def _use(self, session: Session, change: SchemaChange) -> None:
        try:
            session.execute(f"USE {quote_name(change.schema)}")
        except MySQLError as error:
            if is_lost_connection(error):
                raise
            self._close(session, change, "refused", server_words(error))
            raise self._refusal(change, f"the target refused a schema change: {server_words(error)}") from error

    def _has_run(
        self, session: Session, change: SchemaChange, classified: Classified, intent: _Intent, now: Evidence
    ) -> bool:
        if classified.change_class is ChangeClass.DROP_TABLE:
            return _all_dropped(session, classified)
        if intent.fingerprint and now.fingerprint != intent.fingerprint:
            return True
        if _may_swap(classified) and not now.sees_ids:
            raise self._refusal(
                change,
                "a statement that can swap contents was interrupted, and the target user lacks the PROCESS privilege"
                " that would show whether it ran",
            )
        return False

    def _intent(self, session: Session, change: SchemaChange) -> _Intent | None:
        rows = session.rows(
            f"SELECT state, fingerprint FROM {self._journal} WHERE name = %s AND commit_ts = %s"
            " AND statement_hash = %s",
            (self._pipeline, change.commit_ts, change.statement_hash),
        )
        return _Intent(*rows[0]) if rows else None

    def _record(self, session: Session, change: SchemaChange, state: str, fingerprint: str, outcome: str = "") -> None:
        session.execute(
            f"REPLACE INTO {self._journal} (name, commit_ts, statement_hash, schema_name, statement, position, state,"
            " fingerprint, outcome, started_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, NOW(3))",
            (
                self._pipeline,
                change.commit_ts,
                change.statement_hash,
                change.schema,
                change.text,
                change.position,
                state,
                fingerprint,
                outcome,
            ),
        )

    def _close(self, session: Session, change: SchemaChange, state: str, outcome: str) -> None:
        session.execute(
            f"UPDATE {self._journal} SET state = %s, outcome = %s, finished_at = NOW(3)"
            " WHERE name = %s AND commit_ts = %s AND statement_hash = %s",
            (state, outcome, self._pipeline, change.commit_ts, change.statement_hash),
        )

    def _tag(self, change: SchemaChange) -> str:
        pipeline = re.sub(r"[^A-Za-z0-9_.-]", "_", self._pipeline)
        return f"/* bridge {pipeline} {change.commit_ts} {change.statement_hash[:12]} */ "

    def _wait_for_running(self, session: Session, change: SchemaChange) -> None:
        """A statement outlives its client: waits until no earlier copy of this one runs on the server any more."""
        tag = self._tag(change).strip()
        while session.value(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND INSTR(info, %s) = 1",
            (tag,),
        ):
            log.info("waiting for a schema change that still runs on the target", commit_ts=change.commit_ts)
            time.sleep(0.5)


def _where(change: SchemaChange) -> str:
    return f"{change.position}, schema {change.schema!r}, commit ts {change.commit_ts}"


def _raise_skipped(session: Session) -> None:
    """IF NOT EXISTS leaves what exists as it is, whatever it is; that is looked into like the error without it."""
    for _, code, message in session.rows("SHOW WARNINGS"):
        if code == _TABLE_EXISTS:
            raise OperationalError(code, message)


def _may_swap(classified: Classified) -> bool:
    """Run twice, it undoes itself, and definitions alone do not show whether it ran."""
    several_renames = classified.change_class is ChangeClass.RENAME_TABLE and len(classified.tables) > 2
    return several_renames or classified.change_class is ChangeClass.EXCHANGE_PARTITION


def _all_dropped(session: Session, classified: Classified) -> bool:
    tables = classified.tables if classified.change_class is ChangeClass.DROP_TABLE else ()
    return bool(tables) and all(definition(session, name) is None for name in tables)


def _take_source_defaults(session: Session) -> None:
    for setting in _SOURCE_DEFAULTS:
        try:
            session.execute(setting)
        except MySQLError as error:
            if error_code(error) != _UNKNOWN_VARIABLE:
                raise


def _reset_timestamp(session: Session) -> None:
    try:
        session.execute("SET timestamp = DEFAULT")
    except MySQLError as error:
        if not is_lost_connection(error):
            raise


def evidence(session: Session, classified: Classified) -> Evidence:
    """The state of everything that `classified` touches, as the server shows it now."""
    parts = [_database(session, classified.database)] if classified.database else []
    sees_ids = True
    for name in classified.tables:
        ids = _table_ids(session, name)
        shape = definition(session, name)
        sees_ids = sees_ids and (bool(ids) or shape is None)
        parts.append(f"{shape}\0{ids}")
    digest = hashlib.sha1("\0\0".join(parts).encode("utf-8", "surrogateescape"), usedforsecurity=False)
    return Evidence(digest.hexdigest(), sees_ids)


def _database(session: Session, name: str) -> str:
    try:
        return str(session.rows(f"SHOW CREATE DATABASE {quote_name(name)}")[0][1])
    except MySQLError as error:
        if error_code(error) in _NO_SUCH:
            return "absent"
        raise


def _table_ids(session: Session, name: TableName) -> list[tuple[object, ...]]:
    """InnoDB's ids of the table and its partitions: they change when contents are swapped or truncated.

    Empty when the target does not show them (PROCESS privilege; the view exists on MariaDB).
    """
    try:
        return session.rows(
            "SELECT name, table_id FROM information_schema.innodb_sys_tables WHERE name = %s OR name LIKE %s"
            " ORDER BY name",
            (f"{_file_name(name.schema)}/{_file_name(name.table)}", _partition_pattern(name)),
        )
    except MySQLError as error:
        if error_code(error) in _ACCESS_DENIED:
            return []
        raise


def _file_name(name: str) -> str:
    """A name as InnoDB spells it: anything but letters, digits and _ as @ and four hex digits."""
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else f"@{ord(c):04x}" for c in name)


def _partition_pattern(name: TableName) -> str:
    path = f"{_file_name(name.schema)}/{_file_name(name.table)}"
    return re.sub(r"([\\%_])", r"\\\1", path) + "#P#%"
