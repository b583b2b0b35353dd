"""Tells which syntax a target knows.

The flavours and versions that know a syntax are rows of a table, each with its source.  So a flavour that no test
server has is data, which can be checked against its manual, and not a branch of
code.  tests/ddl/test_server_features.py asks MariaDB 11.4 and 10.11, MySQL 8.0.31 and 5.7.22 whether each row is true
of them; it was also run by hand on 8.0.12 and 8.0.15.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from bridge.ddl.collation_tables import KnownCollations, documented_collations
from bridge.errors import UsageError

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


def read_version(said: str) -> tuple[Flavour, Version]:
    """Reads what VERSION() gives: ``11.4.5-MariaDB``, ``8.0.36``, ``8.0.11-TiDB-v8.5.1``."""
    if named := re.search(r"TiDB(?:-v(\d+(?:\.\d+)*))?", said, re.IGNORECASE):
        return Flavour.TIDB, _numbers(named[1] or "")
    flavour = Flavour.MARIADB if "mariadb" in said.lower() else Flavour.MYSQL
    return flavour, _numbers(re.sub(r"^5\.5\.5-(?=1\d\.)", "", said))  # the prefix that MariaDB 10 shows to old clients


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
