"""Creates the bridge's own tables, and refuses those of another form.

The table `version` says which form they have; without it they count as 0.  No release had an earlier form than this, so
there is nothing to upgrade from.  `progress` is made last, so that making them may be interrupted anywhere.
"""

from __future__ import annotations

import hashlib
from typing import Final

from bridge.errors import TargetError
from bridge.model import TableName, quote_name
from bridge.mysql.catalog import without_transactions
from bridge.mysql.connection.session import Session
from bridge.mysql.state import controls, quarantine

VERSION: Final = 4
"""The number of the form below."""

_TABLES: Final = {
    "owner": """CREATE TABLE IF NOT EXISTS {schema}.owner (
        name VARCHAR(128) COLLATE utf8mb4_bin PRIMARY KEY,
        epoch BIGINT UNSIGNED NOT NULL,
        host VARCHAR(255) NOT NULL,
        pid BIGINT NOT NULL,
        connections TEXT NOT NULL,
        started_at TIMESTAMP(3) NOT NULL,
        heartbeat_at TIMESTAMP(3) NOT NULL,
        state LONGTEXT NOT NULL COMMENT 'what the owner last said of itself'
    ) DEFAULT CHARSET = utf8mb4""",
    "schema_changes": """CREATE TABLE IF NOT EXISTS {schema}.schema_changes (
        name VARCHAR(128) COLLATE utf8mb4_bin NOT NULL,
        commit_ts BIGINT UNSIGNED NOT NULL,
        statement_hash CHAR(40) CHARACTER SET ascii NOT NULL,
        schema_name VARCHAR(255) NOT NULL,
        statement LONGTEXT NOT NULL,
        position VARCHAR(400) NOT NULL,
        place TEXT NOT NULL COMMENT 'in the log of the upstream, where messages lack a commit ts',
        state VARCHAR(16) NOT NULL COMMENT 'running, done, confirmed, ignored, skipped, held, refused, approved...',
        fingerprint CHAR(40) CHARACTER SET ascii NOT NULL COMMENT 'of what it touches, before it ran',
        classes TEXT NOT NULL COMMENT 'what it does',
        run_text LONGTEXT NOT NULL COMMENT 'the statement in the words of the target',
        rewrites LONGTEXT NOT NULL COMMENT 'before, after, why, of each change of words',
        left_out LONGTEXT NOT NULL COMMENT 'what the target is not given',
        replacement LONGTEXT NOT NULL COMMENT 'what the operator runs instead',
        outcome TEXT NOT NULL,
        started_at TIMESTAMP(3) NOT NULL,
        finished_at TIMESTAMP(3) NULL,
        PRIMARY KEY (name, commit_ts, statement_hash)
    ) DEFAULT CHARSET = utf8mb4""",
    "quarantine": quarantine.CREATE_TABLE,
    "controls": controls.CREATE_TABLE,
    "routes": """CREATE TABLE IF NOT EXISTS {schema}.routes (
        name VARCHAR(128) COLLATE utf8mb4_bin PRIMARY KEY,
        routes LONGTEXT NOT NULL COMMENT 'the routes and the filters that the pipeline ran with',
        set_at TIMESTAMP(3) NOT NULL
    ) DEFAULT CHARSET = utf8mb4""",
    "version": """CREATE TABLE IF NOT EXISTS {schema}.version (
        one TINYINT PRIMARY KEY COMMENT 'always 1',
        version INT UNSIGNED NOT NULL COMMENT 'the form of these tables'
    ) DEFAULT CHARSET = utf8mb4""",
    "progress": """CREATE TABLE IF NOT EXISTS {schema}.progress (
        name VARCHAR(128) COLLATE utf8mb4_bin PRIMARY KEY,
        epoch BIGINT UNSIGNED NOT NULL,
        applied_ts BIGINT UNSIGNED NOT NULL COMMENT 'everything below it is in the target, nothing at or above it',
        applying_ts BIGINT UNSIGNED NOT NULL COMMENT 'above applied_ts while several connections write up to it',
        start_ts BIGINT UNSIGNED NOT NULL COMMENT 'where the pipeline began',
        positions LONGTEXT NOT NULL COMMENT 'per topic and partition: where a restart reads from',
        topics LONGTEXT NOT NULL COMMENT 'the ids of the topics that the positions speak of',
        pending LONGTEXT NOT NULL COMMENT 'schema changes below applied_ts still to run, in order',
        updated_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)
    ) DEFAULT CHARSET = utf8mb4""",
}
"""The tables.  They are made in this order, so that all of them exist when `progress` exists."""


def pipeline_lock(schema: str, name: str) -> str:
    """Gives the name of the server lock (GET_LOCK) that the owner of a pipeline holds."""
    return "bridge:" + hashlib.sha1(f"{schema}\0{name}".encode(), usedforsecurity=False).hexdigest()


def are_made(session: Session, schema: str) -> bool:
    """Tells whether the bridge's tables exist, in any form."""
    return "progress" in _tables_there(session, schema)


def are_usable(session: Session, schema: str) -> bool:
    """Tells whether the bridge's tables exist.  Raises TargetError when another version has made them."""
    there = _tables_there(session, schema)
    if "progress" not in there:
        return False
    version = session.value(f"SELECT version FROM {quote_name(schema, 'version')}") if "version" in there else 0
    _refuse_other_form(int(version or 0), schema)
    return True


def make(session: Session, schema: str) -> None:
    """Makes the tables that are missing.  Several bridges may do so at once.  Raises TargetError when another version
    has made them, and when they have no transactions."""
    session.execute(f"CREATE DATABASE IF NOT EXISTS {quote_name(schema)}")
    if not are_usable(session, schema):
        for table, statement in _TABLES.items():
            if table == "progress":
                session.execute(f"REPLACE INTO {quote_name(schema, 'version')} VALUES (1, {VERSION})")
            # Their keys may be too long for the server's default format (1709, 1071).
            session.execute(f"{statement.format(schema=quote_name(schema))} ROW_FORMAT = DYNAMIC")
    refuse_without_transactions(session, schema)


def refuse_without_transactions(session: Session, schema: str) -> None:
    """Raises TargetError when the engine of one of the bridge's tables has no transactions: progress would move
    although the rows that it speaks of are rolled back.  MariaDB's enforce_storage_engine makes such tables."""
    engines = without_transactions(session, [TableName(schema, table) for table in _TABLES])
    if engines:
        alter = "; ".join(f"ALTER TABLE {quote_name(*name)} ENGINE=InnoDB" for name, _ in engines)
        raise TargetError(
            "the bridge's own tables have no transactions, so that progress would move without its rows:"
            f" the engine of {engines[0][0].table} is {engines[0][1]}",
            where=schema,
            fix=f"on the target SET GLOBAL enforce_storage_engine = NULL where it is set, and in its settings; {alter};"
            " then start again, and if the bridge has written before, see with bridge verify what is missing",
        )


def _refuse_other_form(version: int, schema: str) -> None:
    if version > VERSION:
        raise TargetError(
            f"the bridge's own tables are those of a later version (form {version}, this is {VERSION})",
            where=schema,
            fix="start the later version; this one could misread the progress",
        )
    if version < VERSION:
        raise TargetError(
            f"the bridge's own tables are those of an earlier version (form {version}, this is {VERSION})",
            where=schema,
            fix="start a new pipeline in a database of its own (--set target.schema=NAME) from where that version"
            " stopped (--from APPLIED_TS); bridge help changes says how",
        )


def _tables_there(session: Session, schema: str) -> set[str]:
    rows = session.rows("SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (schema,))
    return {table for (table,) in rows}
