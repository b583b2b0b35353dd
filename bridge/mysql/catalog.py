"""Loads the target's tables as they are now: columns, keys, generated columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from bridge.errors import ApplyError, TargetError
from bridge.model import Table, TableName
from bridge.mysql.connection.session import Session
from bridge.mysql.table_definition import load_objects
from bridge.quoting import quote_name


def load_tables(session: Session, names: Iterable[TableName]) -> dict[TableName, Table]:
    """Loads the named tables as they are on the target, by the names that they were asked for; tables that do not exist
    are missing from the answer."""
    wanted = sorted(set(names))
    tables = {name: definition.table for name, definition in load_objects(session, wanted).items()}
    if all(name in tables for name in wanted) or not session.value("SELECT @@lower_case_table_names"):
        return {name: tables[name] for name in wanted if name in tables}
    by_folded = {_folded(name): table for name, table in tables.items()}
    return {name: by_folded[_folded(name)].called(name) for name in wanted if _folded(name) in by_folded}


def refuse_one_for_two(tables: Mapping[TableName, Table]) -> None:
    """Raises ApplyError when two of these names mean one table of the target: rows of two tables would be mixed."""
    names: dict[TableName, TableName] = {}
    for name, table in tables.items():
        if (other := names.setdefault(table.stored, name)) != name:
            raise ApplyError(
                f"{other} and {name} are one table on the target, which does not tell names apart by the case of their"
                " letters (lower_case_table_names)",
                where=f"table {table.stored}",
                fix="give one of them another name upstream, or leave both out with --filter",
            )


def refuse_without_transactions(session: Session, names: Collection[TableName]) -> None:
    """Raises TargetError for a table whose engine has no transactions: what is written to it is not undone with the
    progress that it belongs to.  BLACKHOLE has none, but keeps nothing; its binary log has whole transactions."""
    if not names:
        return
    rows = session.rows(
        "SELECT t.table_schema, t.table_name, t.engine FROM information_schema.tables t"
        " JOIN information_schema.engines e ON e.engine = t.engine"
        " WHERE e.transactions = 'NO' AND e.engine <> 'BLACKHOLE'"
        f" AND (t.table_schema, t.table_name) IN ({','.join(['(%s,%s)'] * len(names))})",
        [part for name in names for part in name],
    )
    for schema, table, engine in rows:
        if (name := TableName(schema, table)) in names:  # MariaDB takes names that are alike for one
            raise TargetError(
                f"a table of the target has no transactions, since its engine is {engine}",
                where=f"table {name}",
                fix=f"ALTER TABLE {quote_name(*name)} ENGINE=InnoDB on the target, after SET GLOBAL"
                " enforce_storage_engine = NULL where it is set; or leave it out with --filter",
            )


def _folded(name: TableName) -> TableName:
    return TableName(name.schema.lower(), name.table.lower())
