"""Loads the definition of a table for comparisons: columns with their types, keys, indexes; and finds unique keys that
the target has and the upstream lacks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from bridge.model import TableName

if TYPE_CHECKING:
    from bridge.mysql.connection.session import Session  # brings the driver, which executors do without

_JSON_CHECK: Final = re.compile(r"json_valid\(`((?:[^`]|``)+)`\)", re.IGNORECASE)
_TABLES_PER_QUERY: Final = 500
TABLE_TYPES: Final = "('BASE TABLE', 'SYSTEM VERSIONED')"
"""What information_schema calls tables that hold rows.  MariaDB's system-versioned tables have a word of their own."""


class ServerKind(StrEnum):
    """The kind of a server."""

    MYSQL = "MySQL"
    MARIADB = "MariaDB"
    TIDB = "TiDB"


class ValueClass(StrEnum):
    """Types whose values compare alike."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    NUMBER = "number"
    """BIT and YEAR, compared as the unsigned numbers they are."""
    NAME = "name"
    """ENUM and SET, compared by name, apart from the error value 0."""
    TEMPORAL = "temporal"
    TEXT = "text"
    BINARY = "binary"
    JSON = "json"
    OTHER = "other"


_CLASSES: Final[Mapping[str, ValueClass]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), ValueClass.INTEGER),
    "decimal": ValueClass.DECIMAL,
    "float": ValueClass.FLOAT,
    "double": ValueClass.DOUBLE,
    **dict.fromkeys(("bit", "year"), ValueClass.NUMBER),
    **dict.fromkeys(("enum", "set"), ValueClass.NAME),
    **dict.fromkeys(("date", "time", "datetime", "timestamp", "uuid", "inet4", "inet6"), ValueClass.TEMPORAL),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), ValueClass.TEXT),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), ValueClass.BINARY),
    "json": ValueClass.JSON,
}
"""Classes by DATA_TYPE of information_schema.  Types listed with the dates also have texts without commas."""


@dataclass(frozen=True)
class ColumnInfo:
    """A column.  type: COLUMN_TYPE as the server prints it; charset, collation: "" for types without one."""

    name: str
    data_type: str
    type: str
    charset: str
    collation: str
    nullable: bool
    generated: bool
    is_json: bool
    default: str | None = None
    is_automatic: bool = False
    expression: str = ""
    """The expression of a generated column, as the server prints it; "" for others."""

    @property
    def must_be_given(self) -> bool:
        """Whether a row without a value for it is refused."""
        return not (self.nullable or self.generated or self.is_automatic or self.default is not None)

    @property
    def value_class(self) -> ValueClass:
        """How its values compare; MariaDB's JSON is a LONGTEXT with a check."""
        if self.is_json:
            return ValueClass.JSON
        return _CLASSES.get(self.data_type, ValueClass.OTHER)


@dataclass(frozen=True)
class Index:
    """An index.  parts: lower-case column names, "" for an expression.  lengths: of prefixes, None for whole values."""

    unique: bool
    parts: tuple[str, ...]
    lengths: tuple[int | None, ...]


@dataclass(frozen=True)
class Definition:
    """A base table.  columns: by lower-case name, in table order.  rows: about how many it holds."""

    name: TableName
    columns: Mapping[str, ColumnInfo]
    indexes: Mapping[str, Index] = field(default_factory=dict)
    rows: int = 0

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """The keys that identify rows: the primary key, then unique keys of whole NOT NULL columns, in the order of
        their names."""
        return tuple(index.parts for index in self.indexes.values() if self._identifies(index))

    def _identifies(self, index: Index) -> bool:
        return index.unique and all(
            length is None and part in self.columns and not self.columns[part].nullable
            for part, length in zip(index.parts, index.lengths, strict=True)
        )


def server_kind(session: Session) -> ServerKind:
    """Asks the server for its kind."""
    version = str(session.value("SELECT VERSION()")).lower()
    if "tidb" in version:
        return ServerKind.TIDB
    return ServerKind.MARIADB if "mariadb" in version else ServerKind.MYSQL


def list_tables(session: Session) -> list[TableName]:
    """Lists all tables with rows outside of the system databases."""
    rows = session.rows(
        f"SELECT table_schema, table_name FROM information_schema.tables WHERE table_type IN {TABLE_TYPES} AND"
        " LOWER(table_schema) NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys', 'metrics_schema')"
        " ORDER BY table_schema, table_name"
    )
    return [TableName(schema, table) for schema, table in rows]


def load_definitions(session: Session, names: Iterable[TableName]) -> dict[TableName, Definition]:
    """Loads the named tables as they are; tables that do not exist, and views, are missing from the answer."""
    wanted = sorted(set(names))
    found: dict[TableName, Definition] = {}
    for start in range(0, len(wanted), _TABLES_PER_QUERY):
        found.update(_load(session, wanted[start : start + _TABLES_PER_QUERY]))
    if len(wanted) > 1:  # MariaDB takes names in a list that are alike but for case or accents for one
        for name in wanted:
            found.update({} if name in found else _load(session, [name]))
    return found


def _load(session: Session, names: list[TableName]) -> dict[TableName, Definition]:
    places = ",".join(["(%s,%s)"] * len(names))
    args = [part for name in names for part in name]
    among = f"(table_schema, table_name) IN ({places})"
    sizes = session.rows(
        "SELECT table_schema, table_name, table_rows FROM information_schema.tables"
        f" WHERE table_type IN {TABLE_TYPES} AND {among}",
        args,
    )
    json = _json_columns(session, {name.schema for name in names})
    columns = _columns(session, among, args, json)
    indexes = _indexes(session, among, args)
    return {
        (name := TableName(schema, table)): Definition(
            name, columns.get(name, {}), indexes.get(name, {}), int(rows or 0)
        )
        for schema, table, rows in sizes
    }


def _columns(
    session: Session, among: str, args: list[str], json: set[tuple[str, str, str]]
) -> dict[TableName, dict[str, ColumnInfo]]:
    found: dict[TableName, dict[str, ColumnInfo]] = {}
    for schema, table, name, data_type, column_type, charset, collation, nullable, extra, default, how in session.rows(
        "SELECT table_schema, table_name, column_name, data_type, column_type, character_set_name, collation_name,"
        f" is_nullable, extra, column_default, generation_expression FROM information_schema.columns WHERE {among}"
        " ORDER BY table_schema, table_name, ordinal_position",
        args,
    ):
        said = str(extra).upper()
        found.setdefault(TableName(schema, table), {})[name.lower()] = ColumnInfo(
            name=name,
            data_type=data_type.lower(),
            type=_text(column_type),
            charset=charset or "",
            collation=collation or "",
            nullable=nullable == "YES",
            generated="GENERATED" in said and "DEFAULT_GENERATED" not in said,
            is_json=data_type.lower() == "json" or (schema, table, name.lower()) in json,
            default=None if default is None else _text(default),
            is_automatic="AUTO_INCREMENT" in said,
            expression=_text(how or ""),
        )
    return found


def _indexes(session: Session, among: str, args: list[str]) -> dict[TableName, dict[str, Index]]:
    found: dict[TableName, dict[str, Index]] = {}
    for schema, table, name, non_unique, column, length in session.rows(
        "SELECT table_schema, table_name, index_name, non_unique, column_name, sub_part"
        f" FROM information_schema.statistics WHERE {among}"
        " ORDER BY table_schema, table_name, index_name = 'PRIMARY' DESC, index_name, seq_in_index",
        args,
    ):
        indexes = found.setdefault(TableName(schema, table), {})
        before = indexes.get(name, Index(int(non_unique) == 0, (), ()))
        indexes[name] = Index(
            before.unique,
            (*before.parts, (column or "").lower()),
            (*before.lengths, None if length is None else int(length)),
        )
    return found


def _json_columns(session: Session, schemas: set[str]) -> set[tuple[str, str, str]]:
    """Finds MariaDB's JSON columns by their check constraint; other servers have none of these."""
    from pymysql.err import MySQLError  # late: executors do without

    places = ",".join(["%s"] * len(schemas))
    try:
        rows = session.rows(
            "SELECT constraint_schema, table_name, check_clause FROM information_schema.check_constraints"
            f" WHERE constraint_schema IN ({places})",
            sorted(schemas),
        )
    except MySQLError:  # the view of MySQL and TiDB has no table_name, and their JSON is a type
        return set()
    found = ((schema, table, _JSON_CHECK.fullmatch(_text(clause))) for schema, table, clause in rows)
    return {(schema, table, match[1].replace("``", "`").lower()) for schema, table, match in found if match}


def _text(value: str | bytes) -> str:
    """Decodes a text: MySQL gives some columns of information_schema as binary strings."""
    return value.decode() if isinstance(value, bytes) else value


FIX: Final = "drop it on the target, or create it upstream as well: rows that it does not allow together are deleted"

_SYSTEM: Final = "('information_schema', 'mysql', 'performance_schema', 'sys', 'metrics_schema')"


_Keys = dict[str, list[tuple[str, int | None]]]
"""By name; of each column also how much of it the key holds."""


class ExtraKey(NamedTuple):
    """A unique key that only the target has.

    It may forbid two rows that the upstream has together.  The target refuses the second one with error 1062, and safe
    mode then deletes the first, as it must for rows of an overlapping initial load.
    """

    table: TableName
    key: str
    columns: str

    def __str__(self) -> str:
        return f"the unique key {self.key} ({self.columns}) of {self.table} is the target's own"


def find_extra_keys(
    target: Session, upstream: Session, target_name: Callable[[TableName], TableName]
) -> list[ExtraKey]:
    """Finds unique keys of tables that both have, under which the target may refuse rows that the upstream holds.

    A key that holds all columns of one of the upstream's unique keys does not count.  Keys on expressions are ignored.
    target_name: gives the name of a table of the upstream on the target.
    """
    known: dict[TableName, list[_Keys]] = defaultdict(list)
    for name, keys in _uniques(upstream).items():  # several are the shards of one table
        known[_lower(target_name(name))].append(keys)
    return [
        ExtraKey(name, key, ", ".join(column for column, _ in parts))
        for name, keys in sorted(_uniques(target).items())
        if name in known
        for key, parts in sorted(keys.items())
        if all(column for column, _ in parts)
        and not all(any(frozenset(theirs) <= frozenset(parts) for theirs in one.values()) for one in known[name])
    ]


def _lower(name: TableName) -> TableName:
    return TableName(name.schema.lower(), name.table.lower())


def _uniques(session: Session) -> dict[TableName, _Keys]:
    """Reads the unique keys of every table, by name; in lower case, as servers differ in what they keep."""
    found: dict[TableName, _Keys] = {
        TableName(schema, table): defaultdict(list)
        for schema, table in session.rows(
            "SELECT LOWER(table_schema), LOWER(table_name) FROM information_schema.tables"
            f" WHERE LOWER(table_schema) NOT IN {_SYSTEM} AND table_type IN {TABLE_TYPES}"
        )
    }
    for schema, table, key, column, length in session.rows(
        "SELECT LOWER(table_schema), LOWER(table_name), index_name, LOWER(column_name), sub_part"
        f" FROM information_schema.statistics WHERE LOWER(table_schema) NOT IN {_SYSTEM} AND non_unique = 0"
        " ORDER BY table_schema, table_name, index_name, seq_in_index"
    ):
        if (name := TableName(schema, table)) in found:
            found[name][key].append((column or "", None if length is None else int(length)))
    return found
