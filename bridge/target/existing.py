"""Objects that a schema change would make and that are on the target already, as after an earlier replay.

An existing object counts as made when it has everything that the statement would have given it.  To see that, the
statement runs on a scratch copy.
"""

from __future__ import annotations

import re
from typing import Final

from pymysql.err import MySQLError

from bridge.target.catalog import TableName
from bridge.target.ddl_text import ChangeClass, Classified
from bridge.target.progress import SchemaChange
from bridge.target.session import Session, error_code, is_lost_connection, quote_name

_DATABASE_EXISTS: Final = 1007
_TABLE_EXISTS: Final = 1050
_COLUMN_EXISTS: Final = 1060
_KEY_EXISTS: Final = 1061
_UNDO: Final = {_COLUMN_EXISTS: "COLUMN", _KEY_EXISTS: "INDEX"}
_NO_SUCH: Final = frozenset({1049, 1146})
_MOST_UNDONE: Final = 100


def exists_already(
    session: Session, scratch_schema: str, change: SchemaChange, classified: Classified, error: MySQLError
) -> bool:
    """Whether `error`, with which the target refused `change`, means that its effect is there already."""
    code = error_code(error)
    if code == _DATABASE_EXISTS:
        return classified.change_class is ChangeClass.CREATE_DATABASE
    if code not in {_TABLE_EXISTS, *_UNDO} or classified.name_span is None or len(classified.tables) != 1:
        return False
    kind = "VIEW" if classified.change_class is ChangeClass.CREATE_VIEW else "TABLE"
    table = classified.tables[0]
    probe = TableName(scratch_schema, f"probe {change.statement_hash[:12]}")
    start, end = classified.name_span
    statement = change.text[:start] + quote_name(*probe) + change.text[end:]
    try:
        session.execute(f"DROP {kind} IF EXISTS {quote_name(*probe)}")
        if code == _TABLE_EXISTS:
            _take_defaults_of(session, scratch_schema, table.schema)
            session.execute(statement)
        else:
            session.execute(f"CREATE TABLE {quote_name(*probe)} LIKE {quote_name(*table)}")
            _redo(session, statement, probe)
        return _holds(session, table, probe, nothing_else=code != _TABLE_EXISTS)
    except MySQLError as failure:
        if is_lost_connection(failure):
            raise
        return False
    finally:
        session.execute(f"DROP {kind} IF EXISTS {quote_name(*probe)}")


def _holds(session: Session, table: TableName, probe: TableName, *, nothing_else: bool) -> bool:
    """The table has all that the probe has; with `nothing_else` also nothing that the statement would have dropped
    (CREATE TABLE LIKE copies no foreign keys)."""
    made, there = _parts(session, probe), _parts(session, table)
    dropped = {part for part in there - made if " FOREIGN KEY " not in part}
    return made <= there and not (nothing_else and dropped)


def _redo(session: Session, statement: str, probe: TableName) -> None:
    """Takes from the copy what the server says is there already, until the statement runs on it."""
    for _ in range(_MOST_UNDONE):
        try:
            session.execute(statement)
        except MySQLError as error:
            named = re.search(r"'(.*)'", str(error.args[-1]))
            if error_code(error) not in _UNDO or named is None:
                raise
            drop = f"DROP {_UNDO[error_code(error)]} {quote_name(named[1])}"
            session.execute(f"ALTER TABLE {quote_name(*probe)} {drop}")
        else:
            return


def _take_defaults_of(session: Session, scratch_schema: str, schema: str) -> None:
    """What is created without a collation takes that of its database."""
    (charset, collation), *_ = session.rows(
        "SELECT default_character_set_name, default_collation_name FROM information_schema.schemata"
        " WHERE schema_name = %s",
        (schema,),
    )
    session.execute(f"ALTER DATABASE {quote_name(scratch_schema)} CHARACTER SET {charset} COLLATE {collation}")


def _parts(session: Session, name: TableName) -> set[str]:
    """Columns, keys and options of a table, or the body of a view."""
    return {line.strip().rstrip(",") for line in (definition(session, name) or "").splitlines()}


def definition(session: Session, name: TableName) -> str | None:
    """SHOW CREATE without the object's own name and counter; None when it does not exist."""
    try:
        text = str(session.rows(f"SHOW CREATE TABLE {quote_name(*name)}")[0][1])
    except MySQLError as error:
        if error_code(error) in _NO_SUCH:
            return None
        raise
    qualifier = re.escape(quote_name(name.schema)) + r"\."
    text = re.sub(rf"(?:{qualifier})?{re.escape(quote_name(name.table))}", "``", text, count=1)
    return re.sub(r" AUTO_INCREMENT=\d+", "", text)
