"""Defines the rules that rewrite a schema change for a target: each is a function from a statement's parts to edits.

A rule changes a span of the text or leaves an item out, and says why to the operator; the rest stays as it came.

Tells which syntax a target knows.

The flavours and versions that know a syntax are rows of a table, each with its source.  So a flavour that no test
server has is data, which can be checked against its manual, and not a branch of code.
tests/ddl/test_server_features.py asks MariaDB 11.4 and 10.11, MySQL 8.0.31 and 5.7.22 whether each row is true of them;
it was also run by hand on 8.0.12 and 8.0.15.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.clauses import Item, StatementParts, at, span_of
from bridge.ddl.collation_tables import CollationRules, KnownCollations, documented_collations, is_tidb
from bridge.ddl.lexer import Token
from bridge.errors import UsageError
from bridge.filters.routes import Routes
from bridge.model import TableName

Version = tuple[int, ...]


class Flavour(StrEnum):
    """Families of servers."""

    MARIADB = "mariadb"
    MYSQL = "mysql"
    TIDB = "tidb"


class Feature(StrEnum):
    """Syntax that not every server has."""

    TIDB_SYNTAX = "TiDB's own options"
    INVISIBLE_INDEX = "INVISIBLE indexes"
    IGNORED_INDEX = "IGNORED indexes"
    EXPRESSION_INDEX = "indexes on expressions"
    CHECKS = "CHECK constraints"
    FRACTION_MODE = "a mode in which fractions of seconds are rounded or cut as elsewhere"
    EXPRESSION_DEFAULT = "expressions as defaults"
    RENAME_COLUMN = "RENAME COLUMN"
    MYSQL_SYNTAX = "what MySQL and TiDB know, and MariaDB does not: options, -> and ->>, generated columns NOT NULL"
    VECTOR_TEXT = "VECTOR columns that take text"
    DATABASE_ENCRYPTION = "the database option ENCRYPTION"
    INLINE_REFERENCES = "foreign keys by REFERENCES of a column"
    MARIADB_SYNTAX = "MariaDB's own options"
    IF_EXISTS = "IF EXISTS and IF NOT EXISTS of columns and indexes"


class Support(NamedTuple):
    """A row of the table: from version `since` on, a flavour has a feature, by `source`."""

    feature: Feature
    flavour: Flavour
    since: Version
    source: str


_F, _MY, _MA, _TI = Feature, Flavour.MYSQL, Flavour.MARIADB, Flavour.TIDB
_MYSQL_MANUAL, _TIDB_DOCS = "dev.mysql.com/doc/refman", "docs.pingcap.com/tidb/stable"

SUPPORT: Final = (
    Support(_F.TIDB_SYNTAX, _TI, (), f"{_TIDB_DOCS}/comment-syntax"),
    Support(_F.INVISIBLE_INDEX, _MY, (8, 0), f"{_MYSQL_MANUAL}/8.0/en/invisible-indexes.html"),
    Support(_F.INVISIBLE_INDEX, _TI, (5, 0), f"{_TIDB_DOCS}/sql-statement-alter-index"),
    Support(_F.IGNORED_INDEX, _MA, (10, 6), "mariadb.com/kb/en/ignored-indexes"),
    Support(_F.EXPRESSION_INDEX, _MY, (8, 0, 13), "dev.mysql.com/worklog/task/?id=1075; manual, CREATE INDEX"),
    Support(_F.EXPRESSION_INDEX, _TI, (5, 0), f"{_TIDB_DOCS}/sql-statement-create-index#expression-index"),
    Support(_F.CHECKS, _MY, (8, 0, 16), f"{_MYSQL_MANUAL}/8.0/en/create-table-check-constraints.html (before: parsed)"),
    Support(_F.CHECKS, _MA, (10, 2, 1), "mariadb.com/kb/en/constraint"),
    Support(_F.EXPRESSION_DEFAULT, _MY, (8, 0, 13), f"{_MYSQL_MANUAL}/8.0/en/data-type-defaults.html"),
    Support(_F.EXPRESSION_DEFAULT, _MA, (10, 2, 1), "mariadb.com/kb/en/create-table/#default-column-option"),
    # A list of functions, longer since v8.0; TiDB refuses the others itself.
    Support(_F.EXPRESSION_DEFAULT, _TI, (), f"{_TIDB_DOCS}/data-type-default-values"),
    # Tried: 5.7.22 refuses it, 8.0.12 has it; where it might be missing, CHANGE does the same.
    Support(_F.RENAME_COLUMN, _MY, (8, 0, 12), f"WL#10761; {_MYSQL_MANUAL}/8.0/en/alter-table.html"),
    Support(_F.RENAME_COLUMN, _MA, (10, 5, 2), "MDEV-16290, github.com/MariaDB/server/commit/fa8ad75439"),
    Support(_F.RENAME_COLUMN, _TI, (), f"{_TIDB_DOCS}/sql-statement-alter-table"),
    Support(_F.FRACTION_MODE, _MY, (8, 0), f"{_MYSQL_MANUAL}/8.0/en/sql-mode.html#sqlmode_time_truncate_fractional"),
    Support(_F.FRACTION_MODE, _MA, (10, 4, 1), "mariadb.com/kb/en/sql-mode (TIME_ROUND_FRACTIONAL)"),
    # COMPRESSION (5.7.8), ENCRYPTION (5.7.11), the operators (5.7.13, json-search-functions.html)
    Support(_F.MYSQL_SYNTAX, _MY, (5, 7, 13), f"{_MYSQL_MANUAL}/5.7/en/create-table-generated-columns.html"),
    Support(_F.MYSQL_SYNTAX, _TI, (), f"{_TIDB_DOCS}/generated-columns, sql-statement-create-table"),
    # MySQL 9 (STRING_TO_VECTOR) and MariaDB 11.7 (VEC_FromText) have the type, but take no text for it.
    Support(_F.VECTOR_TEXT, _TI, (8, 4), f"{_TIDB_DOCS}/vector-search-data-types"),
    Support(_F.DATABASE_ENCRYPTION, _MY, (8, 0, 16), f"{_MYSQL_MANUAL}/8.0/en/create-database.html"),
    Support(_F.DATABASE_ENCRYPTION, _TI, (), f"{_TIDB_DOCS}/sql-statement-create-database (in its grammar)"),
    Support(_F.INLINE_REFERENCES, _MA, (10, 5), "mariadb.com/kb/en/foreign-keys (before: parsed, without effect)"),
    Support(_F.INLINE_REFERENCES, _MY, (9, 0), f"{_MYSQL_MANUAL}/9.0/en/create-table-foreign-keys.html"),
    Support(_F.MARIADB_SYNTAX, _MA, (), "mariadb.com/kb/en/create-table/#table-options"),
    Support(_F.IF_EXISTS, _MA, (10, 0, 2), "mariadb.com/kb/en/alter-table"),
    Support(_F.IF_EXISTS, _TI, (), f"{_TIDB_DOCS}/sql-statement-add-column"),
)


@dataclass(frozen=True)
class Capabilities:
    """A target as the bridge knows it.

    max_allowed_packet: how many bytes a statement may have.
    encrypts: whether it has a key for tables that are to be encrypted.
    lower_case_table_names: 0 when the letters' case tells names apart, otherwise 1 or 2.
    """

    flavour: Flavour
    version: Version
    collations: KnownCollations
    max_allowed_packet: int = 64 << 20
    lower_case_table_names: int = 0
    encrypts: bool = True

    def has(self, feature: Feature) -> bool:
        """Tells whether the target knows a syntax."""
        return any(
            row.feature is feature and row.flavour is self.flavour and self.version >= row.since for row in SUPPORT
        )

    def __str__(self) -> str:
        return f"{self.flavour} {'.'.join(map(str, self.version))}"


def read_version(text: str) -> tuple[Flavour, Version]:
    """Reads what VERSION() gives: ``11.4.5-MariaDB``, ``8.0.36``, ``8.0.11-TiDB-v8.5.1``."""
    if tidb := re.search(r"TiDB(?:-v(\d+(?:\.\d+)*))?", text, re.IGNORECASE):
        return Flavour.TIDB, _numbers(tidb[1] or "")
    flavour = Flavour.MARIADB if "mariadb" in text.lower() else Flavour.MYSQL
    return flavour, _numbers(re.sub(r"^5\.5\.5-(?=1\d\.)", "", text))  # the prefix that MariaDB 10 shows to old clients


def named_capabilities(name: str) -> Capabilities:
    """Describes a target as its manual does, from a name such as ``mysql-8.0``.  Raises UsageError for other names."""
    flavour, _, version = name.partition("-")
    if flavour not in {f.value for f in Flavour} or not re.fullmatch(r"\d+(\.\d+)*", version):
        raise UsageError(
            f"{name!r} is not a flavour", fix="write mariadb-11.4, mariadb-10.11, mysql-8.0, mysql-5.7 or tidb-8.5"
        )
    # The name of a series means its latest release.
    numbers = _numbers(version) + ((999,) if version.count(".") == 1 else ())
    return Capabilities(Flavour(flavour), numbers, documented_collations(flavour, numbers))


def _numbers(text: str) -> Version:
    leading = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in leading[0].split(".")) if leading else ()


class OmittedObject(NamedTuple):
    """An object that the target does not get.  A later statement that names the object leaves it out too.

    kind: "index", "constraint" or "table"; name: "" when the upstream's server chose it.
    """

    kind: str
    name: str


class Edit(NamedTuple):
    """Replaces a span of the statement.  omission: the object that the target then lacks.  An item of which nothing is
    left goes with its comma."""

    start: int
    end: int
    text: str
    why: str
    omission: OmittedObject | None = None


class UnsupportedError(Exception):
    """Raised where the target has no equivalent; the message tells the operator what is missing and what to do."""


class Surroundings:
    """Tells rules what the target has already; where there is no target, that nobody knows."""

    def lacks(self, table: TableName, omission: OmittedObject) -> bool:
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
    """Gives the target's definition of the column of a MODIFY or CHANGE, without its name; "" where it has none."""
    return site.around.column_definition(statement.classified.tables[0], former_name(item)) or ""


def remove(tokens: Sequence[Token], why: str, omission: OmittedObject | None = None) -> Edit:
    """Removes tokens.  omission: as of `Edit`."""
    return Edit(*span_of(tokens), "", why, omission)


def option_scopes(statement: StatementParts) -> Iterator[tuple[Token, ...]]:
    """Gives the tokens that may hold options: those behind the definitions, or actions of ALTER TABLE."""
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
