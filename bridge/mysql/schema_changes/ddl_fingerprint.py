"""Takes a fingerprint of everything that a schema change touches, which tells whether an interrupted change ran.

Also tells whether what a schema change would make exists already, as after an earlier replay: whether an object has
all that the statement would have given it.  To find out, the statement runs on a scratch copy.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum, auto
from typing import Final, NamedTuple

from pymysql.constants import ER
from pymysql.err import MySQLError

from bridge.ddl.by_table.routing import target_statement
from bridge.ddl.by_table.shards import shard_statement
from bridge.ddl.by_table.skipping import removed_names
from bridge.ddl.classes import StatementKind
from bridge.ddl.clauses import span_of, statement_parts
from bridge.ddl.lexer import Mention
from bridge.ddl.parser import Classified, Refused, Swap, Unclear, classify
from bridge.filters.routes import Routes
from bridge.model import SchemaChange, TableName, quote_name
from bridge.mysql.connection.session import Session
from bridge.mysql.server_errors import LOST, error_code
from bridge.mysql.state.ddl_journal import Journal, JournalEntry, JournalState

_MAY_HAVE_RUN: Final = frozenset(
    {JournalState.RUNNING, JournalState.HELD, JournalState.APPROVED, JournalState.REPLACED}
)
"""States of a statement that may have been sent: what the operator decides does not tell whether it ran."""
_NO_SUCH: Final = frozenset({ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE})


class Ran(Enum):
    """Whether an interrupted statement ran."""

    YES = auto()
    NO = auto()
    UNCLEAR = auto()


class Conclusion(NamedTuple):
    """What two fingerprints tell.  why: why it is unclear, in words for the operator."""

    ran: Ran
    why: str = ""


class Evidence(NamedTuple):
    """The state of everything that a statement touches, as digests.

    definitions: as SHOW CREATE prints them.  printed_by: the server's version and settings, which decide how it prints
    them.
    """

    definitions: str
    printed_by: str

    @property
    def fingerprint(self) -> str:
        """Both parts as one text, for the journal."""
        return ":".join(self)


def conclude(before: str, now: Evidence, swaps: Swap | None) -> Conclusion:
    """Compares the fingerprint from before a statement with the present one.

    A statement that swaps nothing changes a definition, or may run again, since nothing is written to the target
    meanwhile.
    """
    parts = before.split(":")
    if len(parts) != len(Evidence._fields):
        return Conclusion(Ran.UNCLEAR, "another version of the bridge looked at the target before it")
    old = Evidence(*parts)
    if old.definitions != now.definitions:
        if old.printed_by == now.printed_by:
            return Conclusion(Ran.YES)
        return Conclusion(
            Ran.UNCLEAR,
            "the target shows another definition than before, but is another version now or has other settings, by"
            " which it may show the same one in other words",
        )
    if swaps is not None:
        return Conclusion(Ran.UNCLEAR, f"it swaps {swaps}, which can leave the definition as it was")
    return Conclusion(Ran.NO)


_PRINTING: Final = (
    *("version", "sql_mode", "old_mode", "sql_quote_show_create", "show_create_table_verbosity", "show_old_temporals"),
    "show_gipk_in_create_table_and_information_schema",
)


def evidence(session: Session, classified: Classified) -> Evidence:
    """Reads everything that `classified` touches, as the server shows it now."""
    databases = [_database(session, classified.database)] if classified.database else []
    shapes = [definition(session, name) for name in classified.tables]
    variables = session.variables("SESSION", _PRINTING)
    printed_by = [variables.get(name) for name in _PRINTING]
    return Evidence(_digest([*databases, *shapes], 12), _digest(printed_by, 8))


def may_be_ahead(session: Session, journal: Journal, pending: Iterable[SchemaChange]) -> bool:
    """Tells whether one of the schema changes that progress lists as still to run may be on the target already: the
    bridge ended between the two, or is there now."""
    entries = [journal.find(session, change) for change in pending]
    states = {entry.state for entry in entries if entry and entry.fingerprint} & _MAY_HAVE_RUN
    return bool(states) or any(entry and entry.state is JournalState.DONE for entry in entries)


def _digest(parts: Iterable[object], length: int) -> str:
    text = "\0\0".join(map(str, parts)).encode("utf-8", "surrogateescape")
    return base64.urlsafe_b64encode(hashlib.sha1(text, usedforsecurity=False).digest()).decode()[:length]


def definition(session: Session, name: TableName) -> str | None:
    """Gives SHOW CREATE without the object's name and counter; None when the object does not exist."""
    try:
        [(_, shown, *_)] = session.raw_rows(f"SHOW CREATE TABLE {quote_name(*name)}")
    except MySQLError as error:
        if error_code(error) in _NO_SUCH:
            return None
        raise
    qualifier = re.escape(quote_name(name.schema)) + r"\."
    text = shown.decode("utf-8", "surrogateescape")
    text = re.sub(rf"(?:{qualifier})?{re.escape(quote_name(name.table))}", "``", text, count=1)
    return re.sub(r" AUTO_INCREMENT=\d+", "", text)


def _database(session: Session, name: str) -> str:
    try:
        return str(session.rows(f"SHOW CREATE DATABASE {quote_name(name)}")[0][1])
    except MySQLError as error:
        if error_code(error) in _NO_SUCH:
            return "absent"
        raise


_UNDO: Final = {ER.DUP_FIELDNAME: "COLUMN", ER.DUP_KEYNAME: "INDEX"}
_MAKING: Final = frozenset(
    {StatementKind.CREATE_TABLE, StatementKind.ALTER_TABLE, StatementKind.CREATE_INDEX, StatementKind.CREATE_VIEW}
)
_MOST_UNDONE: Final = 100


def makes_exactly(
    session: Session, scratch_schema: str, change: SchemaChange, text: str, classified: Classified
) -> bool:
    """Tells whether an existing table is exactly what this CREATE TABLE makes: not less, and not more."""
    return bool(_matches(session, scratch_schema, change, text, classified, ER.TABLE_EXISTS_ERROR, nothing_else=True))


def exists_already(
    session: Session, scratch_schema: str, change: SchemaChange, text: str, classified: Classified, error: MySQLError
) -> str:
    """Tells whether the target refused `text` with `error` because its effect exists already.  Gives the outcome to
    record, "" when that is not so."""
    code = error_code(error)
    if code == ER.DB_CREATE_EXISTS and classified.kind is StatementKind.CREATE_DATABASE:
        return _alter_to(session, text, classified)
    if code not in {ER.TABLE_EXISTS_ERROR, *_UNDO} or classified.kind not in _MAKING or len(classified.tables) != 1:
        return ""
    is_there = _matches(
        session, scratch_schema, change, text, classified, code, nothing_else=code != ER.TABLE_EXISTS_ERROR
    )
    return "what it makes was there already" if is_there else ""


def skipped_before(
    journal: Journal, session: Session, routes: Routes, change: SchemaChange, text: str, classified: Classified
) -> JournalEntry | None:
    """Gives the skipped or ignored schema change that would have removed what a statement makes, or what had its name.

    What is there then holds what it held before.  None without one, or where a later change has removed it.
    change: the statement as it came; of a merged table only what was left out of its own shard counts, since rows of
    others are right.  text: as it runs.
    """
    left_out = [JournalState.SKIPPED, JournalState.IGNORED]
    if not journal.entries(session, left_out):
        return None
    shard, later_removals = _shard(change.text, change.schema, routes), set[str]()
    for entry in reversed(journal.entries(session, [*left_out, JournalState.DONE])):
        removed = _removed(entry, routes, text, classified) - later_removals
        if entry.state is JournalState.DONE:
            later_removals |= removed
        elif removed and _shard(entry.statement, entry.schema, routes) == shard:
            return entry
    return None


def _removed(entry: JournalEntry, routes: Routes, text: str, classified: Classified) -> frozenset[str]:
    """Gives the names that a statement makes, and that an earlier one removes."""
    earlier = classify(entry.statement, entry.schema)
    if isinstance(earlier, Unclear) and not entry.replacement:
        names = [source for name in classified.tables for source in routes.sources(name)]
        upstream = replace(classified, touched=tuple(Mention(name, (0, 0), is_qualified=True) for name in names))
        return removed_names(text, upstream, entry.statement, earlier.classified)
    ran, schema = target_statement(entry.statement, entry.schema, routes) or ("", "")
    ran = entry.replacement or ran
    statement = classify(ran, schema, is_certain=True)
    return removed_names(text, classified, ran, statement) if isinstance(statement, Classified) else frozenset()


def _shard(text: str, schema: str, routes: Routes) -> TableName | None:
    shard = shard_statement(text, schema, routes)
    return shard.shard if shard else None


def _matches(
    session: Session,
    scratch_schema: str,
    change: SchemaChange,
    text: str,
    classified: Classified,
    code: int,
    *,
    nothing_else: bool,
) -> bool:
    """Runs the statement on a probe, and compares that with the table."""
    kind = "VIEW" if classified.kind is StatementKind.CREATE_VIEW else "TABLE"
    probe = TableName(scratch_schema, f"probe {change.statement_hash[:12]}")
    try:
        session.execute(f"DROP {kind} IF EXISTS {quote_name(*probe)}")
        table = _make_probe(session, scratch_schema, probe, code, text, change.schema)
        return table is not None and _holds(session, table, probe, nothing_else=nothing_else)
    except MySQLError as failure:
        if isinstance(failure, LOST):
            raise
        return False
    finally:
        session.execute(f"DROP {kind} IF EXISTS {quote_name(*probe)}")


def _make_probe(
    session: Session, scratch_schema: str, probe: TableName, code: int, text: str, current_schema: str
) -> TableName | None:
    """Runs the statement on the probe; gives the table that it is about, None when it cannot be run."""
    parsed = classify(text, current_schema, is_certain=True)
    if isinstance(parsed, Refused):
        return None
    table, (start, end), _ = parsed.touched[0]
    statement = text[:start] + quote_name(*probe) + text[end:]
    if code == ER.TABLE_EXISTS_ERROR:
        _take_defaults_of(session, scratch_schema, table.schema)
        session.execute(statement)
    else:
        session.execute(f"CREATE TABLE {quote_name(*probe)} LIKE {quote_name(*table)}")
        _redo(session, statement, probe)
    return table


def _alter_to(session: Session, text: str, classified: Classified) -> str:
    """Gives an existing database the defaults that the statement would have given it."""
    options = statement_parts(text, classified, tidb=False).options
    if options:
        start, end = span_of(options)
        session.execute(f"ALTER DATABASE {quote_name(classified.database)} {text[start:end]}")
    return "the database was there already; its defaults are as the statement says"


def _holds(session: Session, table: TableName, probe: TableName, *, nothing_else: bool) -> bool:
    """Tells whether the table has all that the probe has.  With `nothing_else` it must also have nothing more (CREATE
    TABLE LIKE copies no foreign keys)."""
    probe_parts, table_parts = _parts(session, probe), _parts(session, table)
    dropped = {part for part in table_parts - probe_parts if " FOREIGN KEY " not in part}
    return probe_parts <= table_parts and not (nothing_else and dropped)


def _redo(session: Session, statement: str, probe: TableName) -> None:
    """Drops from the copy whatever the server says exists already, until the statement runs on it."""
    for _ in range(_MOST_UNDONE):
        try:
            session.execute(statement)
        except MySQLError as error:
            match = re.search(r"'(.*)'", str(error.args[-1]))
            if error_code(error) not in _UNDO or match is None:
                raise
            drop = f"DROP {_UNDO[error_code(error)]} {quote_name(match[1])}"
            session.execute(f"ALTER TABLE {quote_name(*probe)} {drop}")
        else:
            return


def _take_defaults_of(session: Session, scratch_schema: str, schema: str) -> None:
    """Gives the scratch database the defaults of another one, since objects made without a collation take these."""
    (charset, collation), *_ = session.rows(
        "SELECT default_character_set_name, default_collation_name FROM information_schema.schemata"
        " WHERE schema_name = %s",
        (schema,),
    )
    session.execute(f"ALTER DATABASE {quote_name(scratch_schema)} CHARACTER SET {charset} COLLATE {collation}")


def _parts(session: Session, name: TableName) -> set[str]:
    """Gives columns, keys and options of a table, or the body of a view without its account and rights."""
    text = re.sub(r"^CREATE .*? SQL SECURITY \w+ VIEW", "CREATE VIEW", definition(session, name) or "", flags=re.DOTALL)
    return {line.strip().rstrip(",") for line in text.splitlines()}
