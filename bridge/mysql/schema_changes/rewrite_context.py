"""Answers what rewriting rules ask about a live target."""

from __future__ import annotations

import re
from typing import Final

from bridge.ddl.parser import DATABASE_KINDS, Classified, classify
from bridge.ddl.rule import OmittedObject
from bridge.model import TableName
from bridge.mysql.connection.session import Session
from bridge.mysql.schema_changes.ddl_fingerprint import definition
from bridge.mysql.state.ddl_journal import Journal
from bridge.quoting import quote_name

_VIEWS: Final = {
    "column": ("columns", "column_name"),
    "index": ("statistics", "index_name"),
    "constraint": ("table_constraints", "constraint_name"),
    "partition": ("partitions", "partition_name"),
}
"""Where information_schema tells of parts of a table."""
_CHOSEN_BY_SERVER: Final = re.compile(r"(expression|functional)_index(_\d+)?", re.IGNORECASE)
"""The names that TiDB and MySQL give to an index on an expression without a name."""


class OnTarget:
    """Answers for one statement; it reads from the target when it is asked."""

    def __init__(self, session: Session, journal: Journal) -> None:
        self._session, self._journal = session, journal

    def lacks(self, table: TableName, thing: OmittedObject) -> bool:
        """Tells whether the target lacks an object that this pipeline has left out."""
        names = {one.name.lower() for one in self._journal.left_out(self._session) if one.kind == thing.kind}
        unnamed = thing.kind == "index" and _CHOSEN_BY_SERVER.fullmatch(thing.name)
        if thing.name.lower() not in names and not ("" in names and unnamed):
            return False
        if thing.kind == "table":
            return definition(self._session, table) is None
        return not self.exists(table, thing.kind, thing.name)

    def stored_name(self, table: TableName) -> TableName | None:
        """Gives the only table that has this name in other upper and lower case; None when the name itself is taken."""
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
        done = self._journal.done(self._session, [kind.value for kind in DATABASE_KINDS])
        statements = (classify(entry.run_text or entry.statement, entry.schema) for entry in done)
        return {change.database for change in statements if isinstance(change, Classified)}

    def has_sequence(self, name: TableName) -> bool:
        """Tells whether there is a sequence of that name."""
        return bool(
            self._session.value(
                "SELECT COUNT(*) FROM information_schema.tables"
                " WHERE table_schema = %s AND table_name = %s AND table_type = 'SEQUENCE'",
                tuple(name),
            )
        )

    def has_rows(self, table: TableName, where: str = "TRUE") -> bool:
        """Tells whether the table, in whatever case its name is written, holds any row of which the condition is
        true."""
        table = self.stored_name(table) or table
        if definition(self._session, table) is None:
            return False
        return bool(self._session.rows(f"SELECT 1 FROM {quote_name(*table)} WHERE {where} LIMIT 1"))

    def partition_method(self, table: TableName) -> str:
        """Gives RANGE, KEY and so on; "" when the table has no partitions."""
        method = self._session.value(
            "SELECT MAX(partition_method) FROM information_schema.partitions"
            " WHERE table_schema = %s AND table_name = %s",
            tuple(self.stored_name(table) or table),
        )
        return str(method or "").upper()

    def column_definition(self, table: TableName, column: str) -> str | None:
        """Gives the text after the column's name in SHOW CREATE TABLE; None when there is no such column."""
        begin = f"  {quote_name(column)} ".lower()
        lines = (definition(self._session, self.stored_name(table) or table) or "").splitlines()
        return next((line[len(begin) :].removesuffix(",") for line in lines if line.lower().startswith(begin)), None)

    def exists(self, table: TableName, kind: str, name: str = "") -> bool | None:
        """Tells whether there is the table, or a column, an index, a constraint or a partition of it."""
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
        rows = self._session.rows(
            "SELECT index_name, column_name FROM information_schema.statistics"
            " WHERE table_schema = %s AND table_name = %s AND non_unique = 0 ORDER BY index_name, seq_in_index",
            tuple(self.stored_name(table) or table),
        )
        keys: dict[str, tuple[str, ...]] = {}
        for name, column in rows:
            keys[name.lower()] = (*keys.get(name.lower(), ()), (column or "").lower())
        return keys
