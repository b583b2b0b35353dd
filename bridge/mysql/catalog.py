"""Loads the target's tables as they are now, and finds what they would change by themselves: triggers, and foreign keys
that cascade (internals, decision 15).

The log holds the rows that the upstream's triggers wrote; on the target these would be written twice.  MySQL's binlog
lacks the rows that its cascades changed, and the target would keep them, since the bridge's sessions do not follow
foreign keys.  TiCDC sends them as ordinary rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from unicodedata import combining, normalize

from bridge.errors import ApplyError, TargetError
from bridge.model import Table, TableName, quote_name
from bridge.mysql.connection.session import Session
from bridge.mysql.table_definition import among, load_objects

_SHOWN: Final = 5
_FOLLOWED: Final = "('CASCADE', 'SET NULL', 'SET DEFAULT')"


def load_tables(session: Session, names: Iterable[TableName]) -> dict[TableName, Table]:
    """Loads the named tables as they are on the target, by the names that they were asked for; tables that do not exist
    are missing from the answer."""
    requests = sorted(set(names))
    tables = {name: definition.table for name, definition in load_objects(session, requests).items()}
    if all(name in tables for name in requests) or not session.value("SELECT @@lower_case_table_names"):
        return {name: tables[name] for name in requests if name in tables}
    by_folded = {name.folded: table for name, table in tables.items()}
    return {name: by_folded[name.folded].called(name) for name in requests if name.folded in by_folded}


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
    for name, engine in without_transactions(session, names) if names else ():
        if engine != "BLACKHOLE" and name in names:  # MariaDB takes names that are alike for one
            raise TargetError(
                f"a table of the target has no transactions, since its engine is {engine}",
                where=f"table {name}",
                fix=f"ALTER TABLE {quote_name(*name)} ENGINE=InnoDB on the target, after SET GLOBAL"
                " enforce_storage_engine = NULL where it is set; or leave it out with --filter",
            )


def without_transactions(session: Session, names: Collection[TableName]) -> list[tuple[TableName, str]]:
    """Gives the tables whose engine has no transactions, with the engine."""
    condition, args = among(names, "t.table_schema", "t.table_name")
    rows = session.rows(
        "SELECT t.table_schema, t.table_name, t.engine FROM information_schema.tables t"
        " JOIN information_schema.engines e ON e.engine = t.engine"
        f" WHERE e.transactions = 'NO' AND {condition} ORDER BY t.table_name",
        args,
    )
    return [(TableName(schema, table), str(engine)) for schema, table, engine in rows]


class SideEffect(NamedTuple):
    """A trigger or a foreign key of a table.  what: its description in words."""

    table: TableName
    what: str
    fix: str


def find_side_effects(
    session: Session, names: Collection[TableName] | None = None, *, cascades: bool
) -> list[SideEffect]:
    """Finds the triggers of the named tables (None: of all), and with `cascades` the foreign keys of and to them.  Only
    a user with the TRIGGER privilege on a table sees its triggers."""
    effects: list[SideEffect] = []
    for part in [None] if names is None else _without_lookalikes(names):
        effects += _triggers(session, part)
        if cascades:
            effects += _cascades(session, part)
    return effects


def refuse_side_effects(effects: Sequence[SideEffect], accepts: Callable[[str, str], bool] | None = None) -> None:
    """Raises TargetError when one of these tables that it `accepts` (None: any) has side effects."""
    refused = [effect for effect in effects if accepts is None or accepts(*effect.table)]
    if refused:
        more = f", and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        raise TargetError(
            f"the target would change rows by itself: {'; '.join(effect.what for effect in refused[:_SHOWN])}{more}",
            where=f"table {refused[0].table}",
            fix=f"{refused[0].fix}; or leave the table out with --filter",
        )


def _without_lookalikes(names: Iterable[TableName]) -> Collection[list[TableName]]:
    """Divides names so that none differ only in case or accents: MariaDB takes such names in a list for one."""
    counts, parts = Counter[str](), dict[int, list[TableName]]()
    for name in names:
        folded = "".join(c for c in normalize("NFKD", str(name)) if not combining(c)).casefold()
        parts.setdefault(counts[folded], []).append(name)
        counts[folded] += 1
    return parts.values()


def _triggers(session: Session, names: Collection[TableName] | None) -> list[SideEffect]:
    condition, args = among(names, "event_object_schema", "event_object_table")
    rows = session.rows(
        "SELECT event_object_schema, event_object_table, trigger_name FROM information_schema.triggers"
        f" WHERE event_object_schema NOT IN ('mysql', 'sys') AND {condition}",
        args,
    )
    fix = "drop it: what the upstream's own triggers wrote is in the log already"
    return [SideEffect(TableName(s, t), f"trigger {trigger} on {s}.{t}", fix) for s, t, trigger in rows]


def _cascades(session: Session, names: Collection[TableName] | None) -> list[SideEffect]:
    own, args = among(names, "constraint_schema", "table_name")
    referring, _ = among(names, "unique_constraint_schema", "referenced_table_name")
    rows = session.rows(
        "SELECT constraint_schema, table_name, constraint_name, referenced_table_name, update_rule, delete_rule"
        " FROM information_schema.referential_constraints"
        f" WHERE (update_rule IN {_FOLLOWED} OR delete_rule IN {_FOLLOWED}) AND ({own} OR {referring})",
        args * 2,
    )
    fix = "drop the foreign key on the target: MySQL's binlog does not hold the rows that a cascade changed upstream"
    return [
        SideEffect(
            TableName(schema, table),
            f"foreign key {constraint} of {schema}.{table} to {parent} (on update {update}, on delete {delete})",
            fix,
        )
        for schema, table, constraint, parent, update, delete in rows
    ]
