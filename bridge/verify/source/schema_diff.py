"""Compares what two servers say of a table: columns, keys, indexes; and chooses the columns and the key by which its
rows are compared.  Pure.

Only what changes data, or the rows that are allowed, counts as a difference: a missing column or index, another type,
nullability or collation.  What the target has beyond that is only noted: it may have columns and indexes of its own.
The shards of a merged table are taken for one table of the source.

Writes the statements that give a target what tables of the source have, as the pipeline itself would.  Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bridge.ddl.collation_tables import SOURCES, CollationRules
from bridge.ddl.parser import Refused
from bridge.ddl.policy import DdlRules
from bridge.ddl.rewrite import rewrite
from bridge.ddl.rule import Capabilities, Flavour, Site, UnsupportedError
from bridge.model import TableName, quote_name
from bridge.mysql.table_definition import ColumnInfo, Definition, Index, ValueClass
from bridge.verify.compare.row_diff import ComparedColumns

_WIDTH: Final = re.compile(r"\b(tinyint|smallint|mediumint|int|bigint|year)\(\d+\)")
_PRINTED: Final = re.compile(r"\b_[a-z]\w*(?=\\?')|[\\`\s]", re.IGNORECASE)
"""Parts of an expression that servers of one kind print or leave out, depending on their version."""
_BEYOND_UCS2: Final = re.compile("[\U00010000-\U0010ffff]")
_OLD_NAMES: Final = re.compile(r"^utf8(?=_|$)")


@dataclass(frozen=True)
class SchemaFindings:
    """How the tables of two servers differ.

    differences: what must be fixed.
    notes: what need not be fixed.
    missing_columns: lower-case names.
    changed_columns: columns of another type, nullability or collation.
    missing_indexes: names of the source's indexes.
    barring_columns: the target's own columns, without which it refuses the writer's rows.
    """

    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    missing_columns: tuple[str, ...] = ()
    changed_columns: tuple[str, ...] = ()
    missing_indexes: tuple[str, ...] = ()
    barring_columns: tuple[str, ...] = ()


def compare_schemas(
    source: Definition,
    target: Definition,
    collations: Collection[str],
    *,
    becomes: Callable[[str], str] = str,
    is_one_flavour: bool = False,
) -> SchemaFindings:
    """Finds what the target lacks, and what differs there.

    collations: those that the target's server knows.  The target cannot have any other collation of the source, so that
    is only noted.  becomes: what the pipeline makes of one that it knows, where it compares otherwise there.
    is_one_flavour: whether both servers print expressions alike.  Where they do not, a generated column with another
    expression is only noted.
    """
    differences: list[str] = []
    notes: list[str] = []
    missing = [name for name in source.columns if name not in target.columns]
    differences += (f"column {source.columns[name].name} is missing" for name in missing)
    own = {name: column for name, column in target.columns.items() if name not in source.columns}
    barring = [name for name, column in own.items() if column.must_be_given]
    differences += (f"column {own[name].name} is the target's own, NOT NULL and without a default" for name in barring)
    notes += (f"column {column.name} is the target's own" for name, column in own.items() if name not in barring)
    changed: list[str] = []
    for name, column in source.columns.items():
        if name in target.columns:
            column_differences = list(_column_differences(column, target.columns[name], collations, becomes, notes))
            if computed := _computed(column, target.columns[name]):
                (column_differences if is_one_flavour else notes).append(computed)
            differences += column_differences
            changed += [name] if column_differences else []
    indexes = [name for name, index in source.indexes.items() if not has_index(target, index) and "" not in index.parts]
    differences += (f"{_index(name, source.indexes[name])} is missing" for name in indexes)
    for name, index in target.indexes.items():
        if not has_index(source, index) and "" not in index.parts:
            words = f"{_index(name, index)} is the target's own"
            (differences if index.unique else notes).append(words)
    return SchemaFindings(
        tuple(differences), tuple(notes), tuple(missing), tuple(changed), tuple(indexes), tuple(barring)
    )


def _column_differences(
    source: ColumnInfo, target: ColumnInfo, collations: Collection[str], becomes: Callable[[str], str], notes: list[str]
) -> Iterator[str]:
    if plain_type(source) != plain_type(target):
        yield f"column {target.name} is {target.type} instead of {source.type}"
    if source.nullable != target.nullable and not source.generated:
        yield f"column {target.name} is {_null(target)} instead of {_null(source)}"
    if source.generated != target.generated:
        notes.append(f"column {target.name} is generated on one side only")
    expected, actual = (_OLD_NAMES.sub("utf8mb3", column.collation) for column in (source, target))
    if expected in collations:
        expected = _OLD_NAMES.sub("utf8mb3", becomes(expected))
    if expected != actual and expected and actual and not (source.is_json or target.is_json):
        words = f"column {target.name} has the collation {actual} instead of {expected}"
        if expected in collations:
            yield words
        else:
            notes.append(words)


def _computed(source: ColumnInfo, target: ColumnInfo) -> str:
    """Tells how a generated column is computed.  Its values are not compared, since they follow from that."""
    if not (source.generated and target.generated):
        return ""
    expected, actual = (_PRINTED.sub("", column.expression).lower() for column in (source, target))
    if expected in (actual, f"({actual})") or actual == f"({expected})":
        return ""
    return f"column {target.name} is computed as {target.expression} instead of {source.expression}"


def plain_type(column: ColumnInfo) -> str:
    """Gives a type without what servers print differently: display widths, ZEROFILL, which TiDB does not tell, JSON;
    of members of ENUM and SET, backslashes and characters that information_schema shows as a question mark."""
    if column.is_json:
        return "json"
    if column.data_type in {"enum", "set"}:
        return _BEYOND_UCS2.sub("?", column.type.replace("\\\\", "\\"))
    return _WIDTH.sub(r"\1", column.type.lower()).removesuffix(" zerofill")


def _null(column: ColumnInfo) -> str:
    return "NULL" if column.nullable else "NOT NULL"


def has_index(definition: Definition, expected: Index) -> bool:
    """Tells whether there is an index on the same columns that allows the same rows; its name does not matter."""
    return any(
        index.unique == expected.unique and index.parts == expected.parts and index.lengths == expected.lengths
        for index in definition.indexes.values()
    )


def _index(name: str, index: Index) -> str:
    if name == "PRIMARY":
        return f"the primary key ({', '.join(index.parts)})"
    return f"{'unique ' if index.unique else ''}index {name} ({', '.join(index.parts)})"


def as_one(shards: Sequence[Definition]) -> tuple[Definition, tuple[str, ...]]:
    """Gives the table that holds the rows of all shards, under the name of the first, and what is not compared."""
    first, *rest = shards
    if not rest:
        return first, ()
    columns = {name: _common(name, shards) for name in first.columns}
    names = dict.fromkeys(name for shard in shards for name in shard.columns)
    unlike = [name for name in names if columns.get(name) is None]
    indexes = {name: index for name, index in first.indexes.items() if all(has_index(shard, index) for shard in rest)}
    merged = replace(
        first,
        columns={name: column for name, column in columns.items() if column is not None},
        indexes=indexes,
        rows=sum(shard.rows for shard in shards),
    )
    notes = [f"merged from {', '.join(str(shard.name) for shard in shards)}"]
    notes += (f"column {name} is not alike in all shards: its values are not compared" for name in unlike)
    return merged, tuple(notes)


def findings_of(
    merged_table: Definition,
    shards: Sequence[Definition],
    target: Definition,
    compare: Callable[[Definition, Definition], SchemaFindings],
) -> SchemaFindings:
    """Compares each shard with the target, and names shards where not all differ; `as_one` tells what can be fixed."""
    by_shard = {str(shard.name): compare(shard, target) for shard in shards}
    first = next(iter(by_shard.values()))
    return replace(
        first,
        differences=_with_shards({name: findings.differences for name, findings in by_shard.items()}),
        notes=_with_shards({name: findings.notes for name, findings in by_shard.items()}),
        missing_columns=tuple(name for name in first.missing_columns if name in merged_table.columns),
        changed_columns=tuple(name for name in first.changed_columns if name in merged_table.columns),
        missing_indexes=tuple(name for name in first.missing_indexes if name in merged_table.indexes),
    )


def _with_shards(by_shard: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    distinct = dict.fromkeys(line for of_shard in by_shard.values() for line in of_shard)
    lines = []
    for line in distinct:
        names = [name for name, of_shard in by_shard.items() if line in of_shard]
        lines.append(line if len(names) == len(by_shard) else f"{line} ({', '.join(names)})")
    return tuple(lines)


def _common(name: str, shards: Sequence[Definition]) -> ColumnInfo | None:
    candidates = [shard.columns.get(name) for shard in shards]
    columns = [column for column in candidates if column is not None]
    properties = {(plain_type(column), column.charset, column.collation, column.generated) for column in columns}
    if len(columns) < len(shards) or len(properties) > 1:
        return None
    return replace(columns[0], nullable=any(column.nullable for column in columns))


_NUMERIC: Final = frozenset({ValueClass.INTEGER, ValueClass.DECIMAL, ValueClass.NUMBER})
_REAL: Final = frozenset({ValueClass.FLOAT, ValueClass.DOUBLE})
_TEXTS: Final = frozenset({ValueClass.TEXT, ValueClass.JSON})


@dataclass(frozen=True)
class ColumnPlan:
    """How a table is compared.

    shape: the columns that are compared.
    notes: what is not compared, and why.
    """

    shape: ComparedColumns
    notes: tuple[str, ...]


def column_plan(source: Definition, target: Definition | None) -> ColumnPlan:
    """Plans how a source's table is compared, by the columns that both have.  target: None for a missing table."""
    expected: list[ColumnInfo] = []
    actual: list[ColumnInfo] = []
    notes: list[str] = []
    for name, column in source.columns.items():
        target_column = target.columns.get(name) if target else column
        if target_column is None or target_column.generated:
            continue
        if not _alike(column, target_column):
            types = f"{column.type} on the source, {target_column.type} on the target"
            notes.append(f"values of column {column.name} are not compared: {types}")
            continue
        expected.append(column)
        actual.append(target_column)
    names = [column.name.lower() for column in expected]
    key = _key(source, target or source, set(names))
    if not key and expected:
        notes.append("it has no key: rows are counted, not matched")
    shape = ComparedColumns(tuple(expected), tuple(actual), tuple(names.index(part) for part in key))
    return ColumnPlan(shape, tuple(notes))


def _alike(left: ColumnInfo, right: ColumnInfo) -> bool:
    """Tells whether equal values of the two columns have equal canonical forms."""
    first, second = left.value_class, right.value_class
    return first == second or any({first, second} <= kind for kind in (_NUMERIC, _REAL, _TEXTS))


def _key(source: Definition, target: Definition, usable: set[str]) -> tuple[str, ...]:
    """Finds a key that both sides have and that identifies rows on both."""
    for key in source.keys:
        if usable.issuperset(key) and any(set(key) == set(target_key) for target_key in target.keys):
            return key
    return ()


_NAME: Final = r"`(?P<name>(?:[^`]|``)+)`"
_COLUMN: Final = re.compile(rf"  {_NAME} (?P<rest>.*?),?$")
_NAMES_CHARSET: Final = re.compile(r" (?:/\*!\d+ )?(?:CHARACTER SET|CHARSET|COLLATE) ")
_INDEX: Final = re.compile(rf"  (?P<kind>PRIMARY KEY|(?:UNIQUE |FULLTEXT |SPATIAL )?KEY {_NAME}) (?P<rest>.*?),?$")


def column_lines(create: str) -> dict[str, str]:
    """Gives each column by lower-case name: its line of the CREATE TABLE."""
    matches = (match for line in create.splitlines() if (match := _COLUMN.match(line)))
    return {match["name"].replace("``", "`").lower(): f"`{match['name']}` {match['rest']}" for match in matches}


def index_lines(create: str) -> dict[str, str]:
    """Gives each index by name, PRIMARY among them: its line of the CREATE TABLE."""
    matches = (match for line in create.splitlines() if (match := _INDEX.match(line)))
    return {(match["name"] or "PRIMARY").replace("``", "`"): f"{match['kind']} {match['rest']}" for match in matches}


def create_statements(source: Definition, create: str, name: TableName) -> list[str]:
    """Writes the statements that create a missing table, by its name on the target, and its database."""
    qualified = create.replace(quote_name(source.name.table), quote_name(*name), 1)
    return [f"CREATE DATABASE IF NOT EXISTS {quote_name(name.schema)}", qualified]


def column_statements(table: Definition, create: str, missing: Sequence[str], changed: Sequence[str]) -> list[str]:
    """Writes the statements that add missing columns, and modify those of another type."""
    definitions = column_lines(create)
    lines = {
        name: _with_collation(definitions[name], table.columns[name])
        for name in (*missing, *changed)
        if name in definitions
    }
    alter = f"ALTER TABLE {quote_name(*table.name)}"
    return [
        *(f"{alter} ADD COLUMN {lines[name]}{_place(table, name)}" for name in missing if name in lines),
        *(f"{alter} MODIFY COLUMN {lines[name]}" for name in changed if name in lines),
    ]


def _with_collation(line: str, column: ColumnInfo) -> str:
    """Writes out the collation of a column that has that of its table, as the target's table may have another one."""
    head = f"{quote_name(column.name)} {column.type}"
    if not column.charset or not line.startswith(head) or _NAMES_CHARSET.match(line, len(head)):
        return line
    return f"{head} CHARACTER SET {column.charset} COLLATE {column.collation}{line[len(head) :]}"


def opening_statements(target: Definition, barring: Iterable[str]) -> list[str]:
    """Writes the statements that allow NULL in the target's own columns, where no row could be written without them."""
    columns = [target.columns[name] for name in barring]
    return [
        f"ALTER TABLE {quote_name(*target.name)} MODIFY COLUMN {quote_name(column.name)} {column.type}"
        f"{f' CHARACTER SET {column.charset} COLLATE {column.collation}' if column.charset else ''} NULL"
        for column in columns
    ]


def _place(source: Definition, name: str) -> str:
    names = list(source.columns)
    at = names.index(name)
    return f" AFTER {quote_name(source.columns[names[at - 1]].name)}" if at else " FIRST"


def index_statements(table: Definition, create: str, missing: Iterable[str], own_indexes: Collection[str]) -> list[str]:
    """Writes the statements that add missing indexes.  own_indexes: names that the target's own indexes have."""
    lines: Mapping[str, str] = index_lines(create)
    drops = {own: f"DROP {'PRIMARY KEY' if own == 'PRIMARY' else f'KEY {quote_name(own)}'}, " for own in own_indexes}
    return [
        f"ALTER TABLE {quote_name(*table.name)} {drops.get(name, '')}ADD {lines[name]}"
        for name in missing
        if name in lines
    ]


def source_name(source: Capabilities) -> str:
    """Gives the name in `collation_tables.SOURCES` for such a server."""
    if source.flavour is Flavour.MYSQL:
        return "mysql-5.7" if source.version < (8,) else "mysql-8"
    if source.flavour is Flavour.TIDB and source.collations.compares_bytes:
        return "tidb-old-collations"
    return source.flavour.value


_JSON: Final = re.compile(
    r"(?P<name>`(?:[^`]|``)+`) longtext(?: CHARACTER SET \w+)?(?: COLLATE \w+)?"
    r"(?P<more>[^\n]*?) CHECK \(json_valid\((?P=name)\)\)"
)
"""A JSON column as MariaDB prints it."""


@dataclass(frozen=True)
class StatementTranslator:
    """Translates statements from one server to another.  rules: the operator's, of which collations count."""

    source: Capabilities
    target: Capabilities
    rules: DdlRules

    @property
    def _collations(self) -> CollationRules:
        return CollationRules(SOURCES[source_name(self.source)], self.rules.collations.mapped)

    def collation(self, name: str) -> str:
        """Gives the collation of the target that one of the source becomes; itself where there is none."""
        return self._collations.on(self.target.collations, name) or name

    def translate(self, statement: str, schema: str) -> tuple[str | None, str]:
        """Gives a statement of the source in a form that the target accepts, or None and the reason."""
        name = source_name(self.source)
        if self.target.flavour is not Flavour.MARIADB:
            statement = _JSON.sub(r"\g<name> json\g<more>", statement)
        try:
            # The text is of the bridge's own session, whose modes are known, and rows are compared again behind it.
            site = Site(self.target, self._collations, name, is_approved=True)
            rewritten = rewrite(statement, schema, site)
        except UnsupportedError as unsupported:
            return None, str(unsupported)
        if isinstance(rewritten, Refused):
            return (statement, "") if self.source.flavour is self.target.flavour else (None, rewritten.reason)
        return rewritten.text, "" if rewritten.text else "the target has nothing like it"
