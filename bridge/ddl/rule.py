"""Defines the rules that rewrite a schema change for a target: each is a function from a statement's parts to edits.

A rule changes a span of the text or leaves an item out; everything else stays as it came.  A rule gives its reason in
words for the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.clauses import Item, StatementParts, at, span_of
from bridge.ddl.collation_tables import CollationRules, is_tidb
from bridge.ddl.lexer import Token
from bridge.ddl.server_features import Capabilities
from bridge.filters.routes import Routes
from bridge.model import TableName


class OmittedObject(NamedTuple):
    """An object that the target does not get.  A later statement that names the object leaves it out too.

    kind: "index", "constraint" or "table"; name: "" when the upstream's server chose it.
    """

    kind: str
    name: str


class Edit(NamedTuple):
    """Replaces a span of the statement.  thing: the object that the target then lacks.  An item of which nothing is
    left goes with its comma."""

    start: int
    end: int
    text: str
    why: str
    thing: OmittedObject | None = None


class UnsupportedError(Exception):
    """Raised where the target has no equivalent; the message tells the operator what is missing and what to do."""


class Surroundings:
    """Tells rules what the target has already; where there is no target, that nobody knows."""

    def lacks(self, table: TableName, thing: OmittedObject) -> bool:
        """Tells whether the table exists without an object that this pipeline has left out."""
        return False

    def stored_name(self, table: TableName) -> TableName | None:
        """Gives the only table that has this name in other upper and lower case; None when the name itself is taken."""
        return None

    def default_is_nobodys(self, schema: str) -> bool:
        """Tells whether neither the upstream nor the operator has chosen the default collation of this database."""
        return False

    def has_rows(self, table: TableName, where: str = "TRUE") -> bool:
        """Tells whether the table may hold any row of which the condition is true."""
        return True

    def partition_method(self, table: TableName) -> str:
        """Gives RANGE, KEY and so on; "" when the table has no partitions."""
        return ""

    def column_definition(self, table: TableName, column: str) -> str | None:
        """Gives the text after the column's name in SHOW CREATE TABLE; None when there is no such column."""
        return None

    def exists(self, table: TableName, kind: str, name: str = "") -> bool | None:
        """Tells whether there is the table, or a column, an index, a constraint or a partition of it; None where
        nobody knows.  kind: "table", "column", "index", "constraint" or "partition"."""
        return None


@dataclass(frozen=True)
class Site:
    """Where a statement runs, and where it comes from.  source: a name in `collation_tables.SOURCES`.
    routes: the names of tables there.  timezone: the zone of the upstream's sessions, None where the
    target does not know it.  is_approved: the operator has said that its rows will be the upstream's.
    tells_second: whether the statement is dated by the second in which it began.
    is_of_debezium: whether Debezium's connector has sent it.
    is_shown: whether a server has written it (SHOW CREATE TABLE), with escapes whatever the sql_mode.
    is_of_canal: whether official Canal has sent it."""

    target: Capabilities
    collations: CollationRules = field(default_factory=CollationRules)
    source: str = "tidb"
    around: Surroundings = field(default_factory=Surroundings)
    routes: Routes = field(default_factory=Routes)
    is_approved: bool = False
    timezone: str | None = None
    tells_second: bool = False
    is_of_debezium: bool = False
    is_shown: bool = False
    is_of_canal: bool = False

    @property
    def is_from_tidb(self) -> bool:
        """Whether the source is TiDB."""
        return is_tidb(self.source)


RewriteRule = Callable[[StatementParts, Site], Iterator[Edit] | None]
"""A rule that makes no edits, and only raises UnsupportedError, gives None."""


def former_name(item: Item) -> str:
    """Gives the name, before the statement, of the column that MODIFY or CHANGE is about."""
    is_change = item.tokens[0].word == "CHANGE"
    return item.tokens[item.tokens.index(item.definition[0]) - is_change].name or ""


def former_definition(item: Item, statement: StatementParts, site: Site) -> str:
    """Gives the target's definition of the column that MODIFY or CHANGE is about, without its name; "" where there is
    none."""
    return site.around.column_definition(statement.classified.tables[0], former_name(item)) or ""


def remove(found: Sequence[Token], why: str, thing: OmittedObject | None = None) -> Edit:
    """Removes tokens.  thing: as of `Edit`."""
    return Edit(*span_of(found), "", why, thing)


def option_scopes(statement: StatementParts) -> Iterator[tuple[Token, ...]]:
    """Gives the tokens that may hold table or database options: those behind the definitions, or actions of ALTER
    TABLE."""
    if statement.options:
        yield statement.options
    options = {C.TABLE_OPTION, C.TABLE_CHARSET, C.TABLE_COMMENT, C.AUTO_ID, C.TTL}
    for item in statement.items:
        if item.change in options:
            yield item.tokens


def partition_scopes(statement: StatementParts) -> Iterator[tuple[Token, ...]]:
    """Gives the tokens that may define partitions."""
    yield statement.options
    for item in statement.items:
        if item.change in {C.ADD_PARTITION, C.REORGANIZE_PARTITION, C.PARTITIONING}:
            yield item.tokens


def value_at(scope: Sequence[Token], i: int) -> int:
    """Gives the place of the value of the option NAME [=] value whose name is at `i`."""
    return i + 1 + (at(scope, i + 1).text == "=")


def beginning(scope: Sequence[Token], i: int) -> int:
    """Tells where the option named at `i` begins: at the DEFAULT before it, unless that is a value."""
    is_value = at(scope, i - 2).text == "=" or at(scope, i - 2).word == "POLICY"
    return i - (at(scope, i - 1).word == "DEFAULT" and not is_value)
