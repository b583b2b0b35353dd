"""Loads the target's tables as they are now: columns, keys, generated columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from bridge.errors import ApplyError, TargetError
from bridge.model import Column, Table, TableName
from bridge.mysql import tidb
from bridge.mysql.connection.session import Session
from bridge.quoting import has_long_characters, quote_name


def load_tables(session: Session, names: Iterable[TableName]) -> dict[TableName, Table]:
    """Loads the named tables as they are on the target, by the names that they were asked for; tables that do not exist
    are missing from the answer."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    found = _stored(session, wanted)
    if len(wanted) > 1:  # MariaDB takes names in a list that are alike but for case or accents for one
        for name in wanted:
            found |= {} if name in found else _stored(session, [name])
    if all(name in found for name in wanted) or not session.value("SELECT @@lower_case_table_names"):
        return {name: found[name] for name in wanted if name in found}
    by_folded = {_folded(name): table for name, table in found.items()}
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


def _stored(session: Session, wanted: Sequence[TableName]) -> dict[TableName, Table]:
    """Loads tables by the names that the target has stored; perhaps also some whose names are alike."""
    places = ",".join(["(%s,%s)"] * len(wanted))
    args = [part for name in wanted for part in name]
    place = "table_schema, table_name"
    if any(map(has_long_characters, args)):  # MySQL and MariaDB compare no others with the columns as they are
        place = "CONVERT(table_schema USING utf8mb4), CONVERT(table_name USING utf8mb4)"
    columns: dict[TableName, dict[str, Column]] = {}
    nullable: dict[TableName, set[str]] = {}
    counting: set[TableName] = set()
    for schema, table, column, column_type, charset, collation, is_nullable, extra in session.rows(
        "SELECT table_schema, table_name, column_name, column_type, character_set_name, collation_name, is_nullable,"
        " extra"
        f" FROM information_schema.columns WHERE ({place}) IN ({places})"
        " ORDER BY table_schema, table_name, ordinal_position",
        args,
    ):
        name = TableName(schema, table)
        generated = "GENERATED" in extra.upper() and "DEFAULT_GENERATED" not in extra.upper()
        found = Column(column, column_type, charset, generated, is_nullable == "YES", collation)
        columns.setdefault(name, {})[column.lower()] = found
        if "auto_increment" in extra.lower():
            counting.add(name)
        if is_nullable == "YES":
            nullable.setdefault(name, set()).add(column.lower())
    indexes: dict[TableName, dict[str, list[tuple[str, int | None]]]] = {}
    for schema, table, index, column, length in session.rows(
        "SELECT table_schema, table_name, index_name, column_name, sub_part FROM information_schema.statistics"
        f" WHERE non_unique = 0 AND ({place}) IN ({places})"
        " ORDER BY table_schema, table_name, index_name = 'PRIMARY' DESC, index_name, seq_in_index",
        args,
    ):
        indexes.setdefault(TableName(schema, table), {}).setdefault(index, []).append(((column or "").lower(), length))
    tables = {
        name: _table(name, columns[name], indexes.get(name, {}), nullable.get(name, set()), counts=name in counting)
        for name in columns
    }
    return tidb.with_ways_to_write(tables) if session.is_tidb else tables


def _table(
    name: TableName,
    columns: dict[str, Column],
    indexes: dict[str, list[tuple[str, int | None]]],
    nullable: set[str],
    *,
    counts: bool,
) -> Table:
    uniques = tuple(tuple(column for column, _ in parts) for parts in indexes.values())
    keys = tuple(key for key in uniques if all(part and part not in nullable for part in key))
    lengths = zip(uniques, (tuple(length for _, length in parts) for parts in indexes.values()), strict=True)
    prefixes = {unique: length for unique, length in lengths if any(length)}
    primary = tuple(column for column, _ in indexes.get("PRIMARY", ()))
    return Table(name, columns, keys, uniques, prefixes, counts, primary=primary)
