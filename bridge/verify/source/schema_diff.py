"""Compares what two servers say of a table: columns, keys, indexes; and chooses the columns and the key by which its
rows are compared.  Pure.

Only what changes data, or the rows that are allowed, counts as a difference: a missing column or index, another type,
nullability or collation.  What the target has beyond that is only noted: it may have columns and indexes of its own.
The shards of a merged table are taken for one table of the source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

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
    lost = [name for name, index in source.indexes.items() if not has_index(target, index) and "" not in index.parts]
    differences += (f"{_index(name, source.indexes[name])} is missing" for name in lost)
    for name, index in target.indexes.items():
        if not has_index(source, index) and "" not in index.parts:
            words = f"{_index(name, index)} is the target's own"
            (differences if index.unique else notes).append(words)
    return SchemaFindings(tuple(differences), tuple(notes), tuple(missing), tuple(changed), tuple(lost), tuple(barring))


def _column_differences(
    source: ColumnInfo, target: ColumnInfo, collations: Collection[str], becomes: Callable[[str], str], notes: list[str]
) -> Iterator[str]:
    if plain_type(source) != plain_type(target):
        yield f"column {target.name} is {target.type} instead of {source.type}"
    if source.nullable != target.nullable and not source.generated:
        yield f"column {target.name} is {_null(target)} instead of {_null(source)}"
    if source.generated != target.generated:
        notes.append(f"column {target.name} is generated on one side only")
    wanted, actual = (_OLD_NAMES.sub("utf8mb3", column.collation) for column in (source, target))
    if wanted in collations:
        wanted = _OLD_NAMES.sub("utf8mb3", becomes(wanted))
    if wanted != actual and wanted and actual and not (source.is_json or target.is_json):
        words = f"column {target.name} has the collation {actual} instead of {wanted}"
        if wanted in collations:
            yield words
        else:
            notes.append(words)


def _computed(source: ColumnInfo, target: ColumnInfo) -> str:
    """Tells how a generated column is computed.  Its values are not compared, since they follow from that."""
    if not (source.generated and target.generated):
        return ""
    wanted, actual = (_PRINTED.sub("", column.expression).lower() for column in (source, target))
    if wanted in (actual, f"({actual})") or actual == f"({wanted})":
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


def has_index(definition: Definition, wanted: Index) -> bool:
    """Tells whether there is an index on the same columns that allows the same rows; its name does not matter."""
    return any(
        index.unique == wanted.unique and index.parts == wanted.parts and index.lengths == wanted.lengths
        for index in definition.indexes.values()
    )


def _index(name: str, index: Index) -> str:
    if name == "PRIMARY":
        return f"the primary key ({', '.join(index.parts)})"
    return f"{'unique ' if index.unique else ''}index {name} ({', '.join(index.parts)})"


def as_one(shards: Sequence[Definition]) -> tuple[Definition, tuple[str, ...]]:
    """Gives the table that holds the rows of all shards, under the name of the first, and what is not compared."""
    first, *others = shards
    if not others:
        return first, ()
    columns = {name: _common(name, shards) for name in first.columns}
    names = dict.fromkeys(name for shard in shards for name in shard.columns)
    apart = [name for name in names if columns.get(name) is None]
    indexes = {name: index for name, index in first.indexes.items() if all(has_index(shard, index) for shard in others)}
    one = replace(
        first,
        columns={name: column for name, column in columns.items() if column is not None},
        indexes=indexes,
        rows=sum(shard.rows for shard in shards),
    )
    merged = f"merged from {', '.join(str(shard.name) for shard in shards)}"
    return one, (merged, *(f"column {name} is not alike in all shards: its values are not compared" for name in apart))


def findings_of(
    one: Definition,
    shards: Sequence[Definition],
    target: Definition,
    compare: Callable[[Definition, Definition], SchemaFindings],
) -> SchemaFindings:
    """Compares each shard with the target; what is not found of all says of which.  Only what all shards have alike
    (`as_one`) can be fixed."""
    by_shard = {str(shard.name): compare(shard, target) for shard in shards}
    first = next(iter(by_shard.values()))
    return replace(
        first,
        differences=_named({name: findings.differences for name, findings in by_shard.items()}),
        notes=_named({name: findings.notes for name, findings in by_shard.items()}),
        missing_columns=tuple(name for name in first.missing_columns if name in one.columns),
        changed_columns=tuple(name for name in first.changed_columns if name in one.columns),
        missing_indexes=tuple(name for name in first.missing_indexes if name in one.indexes),
    )


def _named(by_shard: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    distinct = dict.fromkeys(line for of_shard in by_shard.values() for line in of_shard)
    lines = []
    for line in distinct:
        names = [name for name, of_shard in by_shard.items() if line in of_shard]
        lines.append(line if len(names) == len(by_shard) else f"{line} ({', '.join(names)})")
    return tuple(lines)


def _common(name: str, shards: Sequence[Definition]) -> ColumnInfo | None:
    candidates = [shard.columns.get(name) for shard in shards]
    columns = [column for column in candidates if column is not None]
    looks = {(plain_type(column), column.charset, column.collation, column.generated) for column in columns}
    if len(columns) < len(shards) or len(looks) > 1:
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
    """Plans how a table of the source is compared with the target's, by the columns that both have.  target: None for a
    missing table."""
    expected: list[ColumnInfo] = []
    actual: list[ColumnInfo] = []
    notes: list[str] = []
    for name, column in source.columns.items():
        other = target.columns.get(name) if target else column
        if other is None or other.generated:
            continue
        if not _alike(column, other):
            types = f"{column.type} on the source, {other.type} on the target"
            notes.append(f"values of column {column.name} are not compared: {types}")
            continue
        expected.append(column)
        actual.append(other)
    names = [column.name.lower() for column in expected]
    key = _key(source, target or source, set(names))
    if not key and expected:
        notes.append("it has no key: rows are counted, not matched")
    shape = ComparedColumns(tuple(expected), tuple(actual), tuple(names.index(part) for part in key))
    return ColumnPlan(shape, tuple(notes))


def _alike(left: ColumnInfo, right: ColumnInfo) -> bool:
    """Tells whether equal values of the two columns have equal canonical forms."""
    one, other = left.value_class, right.value_class
    return one == other or any({one, other} <= kind for kind in (_NUMERIC, _REAL, _TEXTS))


def _key(source: Definition, target: Definition, usable: set[str]) -> tuple[str, ...]:
    """Finds a key that both sides have and that identifies rows on both."""
    for key in source.keys:
        if usable.issuperset(key) and any(set(key) == set(other) for other in target.keys):
            return key
    return ()
