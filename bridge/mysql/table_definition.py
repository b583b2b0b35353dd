"""Loads the definitions of tables: columns with their types, keys, indexes; and finds unique keys that the target has
and the upstream lacks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from bridge.model import Column, Table, TableName, has_long_characters

if TYPE_CHECKING:
    from bridge.mysql.connection.session import Session  # brings the driver, which executors do without

T = TypeVar("T")
_JSON_CHECK: Final = re.compile(r"json_valid\(`((?:[^`]|``)+)`\)", re.IGNORECASE)
_TABLES_PER_QUERY: Final = 500
_SYSTEM: Final = "('information_schema', 'mysql', 'performance_schema', 'sys', 'metrics_schema')"
_TABLE_TYPES: Final = "('BASE TABLE', 'SYSTEM VERSIONED')"
"""What information_schema calls tables that hold rows.  MariaDB's system-versioned tables have a word of their own."""


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
    """A table, or a view.  columns: by lower-case name, in table order.  rows: about how many it holds.
    is_tidb: whether its server is TiDB."""

    name: TableName
    columns: Mapping[str, ColumnInfo]
    indexes: Mapping[str, Index] = field(default_factory=dict)
    rows: int = 0
    is_tidb: bool = False

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """The keys that identify rows: the primary key, then unique keys of whole NOT NULL columns, in the order of
        their names."""
        whole = {name for name, column in self.columns.items() if not column.nullable}
        unique = (index for index in self.indexes.values() if index.unique and not any(index.lengths))
        return tuple(index.parts for index in unique if whole.issuperset(index.parts))

    @property
    def table(self) -> Table:
        """The table as the writer sees it."""
        columns = {
            name: Column(c.name, c.type, c.charset or None, c.generated, c.nullable, c.collation or None)
            for name, c in self.columns.items()
        }
        uniques = [index for index in self.indexes.values() if index.unique]
        not_null = {name for name, column in self.columns.items() if not column.nullable}
        primary = self.indexes.get("PRIMARY")
        return Table(
            self.name,
            columns,
            tuple(index.parts for index in uniques if not_null.issuperset(index.parts)),
            tuple(index.parts for index in uniques),
            {index.parts: index.lengths for index in uniques if any(index.lengths)},
            counts=any(column.is_automatic for column in self.columns.values()),
            primary=primary.parts if primary else (),
            is_tidb=self.is_tidb,
        )


def list_tables(session: Session) -> list[TableName]:
    """Lists all tables with rows outside of the system databases."""
    rows = session.rows(
        f"SELECT table_schema, table_name FROM information_schema.tables WHERE table_type IN {_TABLE_TYPES} AND"
        f" LOWER(table_schema) NOT IN {_SYSTEM} ORDER BY table_schema, table_name"
    )
    return [TableName(schema, table) for schema, table in rows]


def load_definitions(session: Session, names: Iterable[TableName]) -> dict[TableName, Definition]:
    """Loads the named tables as they are; tables that do not exist, and views, are missing from the answer."""
    objects = load_objects(session, names)
    sizes = _of_each(objects, partial(_sizes, session))
    json = _json_columns(session, {name.schema for name in sizes}) if sizes else set()
    return {
        name: replace(
            objects[name],
            rows=rows,
            columns={
                column: replace(info, is_json=True) if (*name, column) in json else info
                for column, info in objects[name].columns.items()
            },
        )
        for name, rows in sorted(sizes.items())
    }


def load_objects(session: Session, names: Iterable[TableName]) -> dict[TableName, Definition]:
    """Loads tables and views by the names that the server has stored, without their sizes, and without what makes a
    text JSON; perhaps also some whose names are alike."""
    return _of_each(names, partial(_objects, session))


def _of_each(
    names: Iterable[TableName], ask: Callable[[Sequence[TableName]], Mapping[TableName, T]]
) -> dict[TableName, T]:
    """Asks for several names at a time, and then for each that is missing: in a list, MariaDB takes names that differ
    only in case or accents for one."""
    distinct_names = sorted(set(names))
    answers: dict[TableName, T] = {}
    for start in range(0, len(distinct_names), _TABLES_PER_QUERY):
        answers |= ask(distinct_names[start : start + _TABLES_PER_QUERY])
    if len(distinct_names) > 1:
        for name in distinct_names:
            answers |= {} if name in answers else ask([name])
    return answers


def _objects(session: Session, names: Sequence[TableName]) -> dict[TableName, Definition]:
    condition, args = among(names)
    columns, indexes = _columns(session, condition, args), _indexes(session, condition, args)
    return {name: Definition(name, columns[name], indexes.get(name, {}), is_tidb=session.is_tidb) for name in columns}


def among(
    names: Collection[TableName] | None, schema: str = "table_schema", table: str = "table_name"
) -> tuple[str, list[str]]:
    """Writes the condition that two columns of information_schema name one of these tables (None: any), with its
    arguments."""
    if names is None:
        return "TRUE", []
    args, place = [part for name in names for part in name], f"{schema}, {table}"
    if any(map(has_long_characters, args)):  # MySQL and MariaDB compare no others with the columns as they are
        place = f"CONVERT({schema} USING utf8mb4), CONVERT({table} USING utf8mb4)"
    return f"({place}) IN ({','.join(['(%s,%s)'] * len(names))})", args


def _sizes(session: Session, names: Sequence[TableName]) -> dict[TableName, int]:
    """Tells about how many rows tables have; views have none."""
    condition, args = among(names)
    rows = session.rows(
        "SELECT table_schema, table_name, table_rows FROM information_schema.tables"
        f" WHERE table_type IN {_TABLE_TYPES} AND {condition}",
        args,
    )
    return {TableName(schema, table): int(count or 0) for schema, table, count in rows}


def _columns(session: Session, condition: str, args: list[str]) -> dict[TableName, dict[str, ColumnInfo]]:
    columns: dict[TableName, dict[str, ColumnInfo]] = {}
    for schema, table, name, data_type, column_type, charset, collation, nullable, extra, default, how in session.rows(
        "SELECT table_schema, table_name, column_name, data_type, column_type, character_set_name, collation_name,"
        f" is_nullable, extra, column_default, generation_expression FROM information_schema.columns WHERE {condition}"
        " ORDER BY table_schema, table_name, ordinal_position",
        args,
    ):
        attributes = str(extra).upper()
        columns.setdefault(TableName(schema, table), {})[name.lower()] = ColumnInfo(
            name=name,
            data_type=data_type.lower(),
            type=decoded(column_type),
            charset=charset or "",
            collation=collation or "",
            nullable=nullable == "YES",
            generated="GENERATED" in attributes and "DEFAULT_GENERATED" not in attributes,
            is_json=data_type.lower() == "json",
            default=None if default is None else decoded(default),
            is_automatic="AUTO_INCREMENT" in attributes,
            expression=decoded(how or ""),
        )
    return columns


def _indexes(session: Session, condition: str, args: list[str]) -> dict[TableName, dict[str, Index]]:
    by_table: dict[TableName, dict[str, Index]] = {}
    for schema, table, name, non_unique, column, length in session.rows(
        "SELECT table_schema, table_name, index_name, non_unique, column_name, sub_part"
        f" FROM information_schema.statistics WHERE {condition}"
        " ORDER BY table_schema, table_name, index_name = 'PRIMARY' DESC, index_name, seq_in_index",
        args,
    ):
        indexes = by_table.setdefault(TableName(schema, table), {})
        before = indexes.get(name, Index(int(non_unique) == 0, (), ()))
        indexes[name] = Index(
            before.unique,
            (*before.parts, (column or "").lower()),
            (*before.lengths, None if length is None else int(length)),
        )
    return by_table


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
    checks = ((schema, table, _JSON_CHECK.fullmatch(decoded(clause))) for schema, table, clause in rows)
    return {(schema, table, match[1].replace("``", "`").lower()) for schema, table, match in checks if match}


def decoded(value: str | bytes) -> str:
    """Decodes a text: MySQL gives some columns of information_schema as binary strings."""
    return value.decode() if isinstance(value, bytes) else value


FIX: Final = "drop it on the target, or create it upstream as well: rows that it does not allow together are deleted"


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
    upstream_keys: dict[TableName, list[_Keys]] = defaultdict(list)
    for name, keys in _uniques(upstream).items():  # several are the shards of one table
        upstream_keys[target_name(name).folded].append(keys)
    return [
        ExtraKey(name, key, ", ".join(column for column, _ in parts))
        for name, keys in sorted(_uniques(target).items())
        if name in upstream_keys
        for key, parts in sorted(keys.items())
        if all(column for column, _ in parts)
        and not all(any(set(theirs) <= set(parts) for theirs in own.values()) for own in upstream_keys[name])
    ]


_Keys = dict[str, tuple[tuple[str, int | None], ...]]
"""By name; of each column also how much of it the key holds."""


def _uniques(session: Session) -> dict[TableName, _Keys]:
    """Reads the unique keys of every table, by name; in lower case, as servers differ in what they keep."""
    indexes = _indexes(session, f"LOWER(table_schema) NOT IN {_SYSTEM} AND non_unique = 0", [])
    return {
        name.folded: {
            key: tuple(zip(index.parts, index.lengths, strict=True)) for key, index in indexes.get(name, {}).items()
        }
        for name in list_tables(session)
    }
