"""The tables of a run on the target, under the names that they have there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from bridge.model import quote_name
from bridge.mysql.connection.session import Session
from tests.generated.failures import sorted_rows
from tests.generated.kinds import stored
from tests.generated.names import Names
from tests.generated.tables import Routing, Row, Table

SCHEMAS: Final = ("m", "r", "x")
"""The databases of runs on the server."""


@dataclass
class TargetTables:
    """Tables by the names that they have upstream.  names: other names of tables and columns."""

    session: Session
    routing: Routing
    names: Names

    def make(self, tables: Iterable[Table]) -> None:
        """These tables, empty, and no others."""
        for found in self.there():
            self.session.execute(f"DROP TABLE {quote_name(*found)}")
        for table in tables:
            schema, name = self.routing.there(table.name)
            self.session.execute(f"USE {quote_name(schema)}")
            self.session.execute(self.names.sql(replace(table, name=name).create(on_target=True)))

    def insert(self, table: Table, row: Row, extra: int = 0) -> None:
        """A row.  extra: the value of the column that only the target knows, if there is one."""
        given = {
            name: stored(table.column(name).type, value) for name, value in row.items() if not table.column(name).of
        }
        if table.extra:
            given[table.extra] = extra
        names, places = ",".join(quote_name(self.names(name)) for name in given), ",".join(["%s"] * len(given))
        into = f"{self.quoted(table.name)} ({names})".replace("%", "%%")
        with self.session._raw.cursor() as cursor:
            cursor.execute(f"INSERT INTO {into} VALUES ({places})", list(given.values()))

    def replace_rows(self, table: Table, rows: Sequence[Row]) -> None:
        """Its rows are these."""
        self.session.execute(f"DELETE FROM {self.quoted(table.name)}")
        for row in rows:
            self.insert(table, row)

    def move(self, routing: Routing, tables: Iterable[str], others: Iterable[str]) -> bool:
        """Those of the tables that are there go where other routes have them; False, and nothing moves, where one would
        be where another one was, or might have been, which nobody can tell from a table that was not moved.

        others: names that tables might have upstream.
        """
        there, other = self.there(), replace(self, routing=routing)
        moves = {name: self.quoted(name) for name in tables if self.place(name) in there}
        after = {other.place(name) for name in moves}
        if any(self.place(name) != other.place(name) and self.place(name) in after for name in (*moves, *others)):
            return False
        self.routing = routing
        for number, was in enumerate(moves.values()):
            self.session.execute(f"RENAME TABLE {was} TO `x`.`on its way {number}`")
        for number, name in enumerate(moves):
            self.session.execute(f"RENAME TABLE `x`.`on its way {number}` TO {self.quoted(name)}")
        return True

    def there(self) -> set[tuple[str, str]]:
        """The database and name of every table."""
        found = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN %s"
        return set(self.session.rows(found, [SCHEMAS]))

    def place(self, table: str) -> tuple[str, str]:
        """The database and name of a table."""
        schema, name = self.routing.there(table)
        return schema, self.names(name)

    def quoted(self, table: str) -> str:
        """The same, as SQL has it."""
        return quote_name(*self.place(table))

    def rows(self, table: str, names: Sequence[str] | None) -> list[tuple[Any, ...]]:
        """Its rows; names: of columns, None for all."""
        columns = ",".join(quote_name(self.names(name)) for name in names) if names else "*"
        return self.session.rows(f"SELECT {columns} FROM {self.quoted(table)}")

    def contents(self, tables: Iterable[str]) -> dict[str, list[Any]]:
        """All rows of tables."""
        return {name: sorted_rows(self.rows(name, None)) for name in tables}
