"""Takes the shards of a merged table for one table of the source.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from bridge.mysql.table_definition import ColumnInfo, Definition
from bridge.verify.source.schema_diff import SchemaFindings, has_index, plain_type

_Looks = tuple[str, str, str, bool]


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
    if len(columns) < len(shards) or len({_looks(column) for column in columns}) > 1:
        return None
    return replace(columns[0], nullable=any(column.nullable for column in columns))


def _looks(column: ColumnInfo) -> _Looks:
    return plain_type(column), column.charset, column.collation, column.generated
