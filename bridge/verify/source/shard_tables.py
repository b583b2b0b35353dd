"""Takes the shards of a merged table for one table of the source.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from bridge.mysql.table_definition import ColumnInfo, Definition, Index
from bridge.verify.source.schema_diff import SchemaFindings, plain_type

_Looks = tuple[str, str, str, bool]


def as_one(shards: Sequence[Definition]) -> tuple[Definition, tuple[str, ...]]:
    """Gives the table that holds the rows of all shards, under the name of the first, and what is not compared."""
    first, *others = shards
    if not others:
        return first, ()
    columns = {name: _common(name, shards) for name in first.columns}
    names = dict.fromkeys(name for shard in shards for name in shard.columns)
    apart = [name for name in names if columns.get(name) is None]
    indexes = {name: index for name, index in first.indexes.items() if all(_has(shard, index) for shard in others)}
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
    found = {str(shard.name): compare(shard, target) for shard in shards}
    first = next(iter(found.values()))
    return replace(
        first,
        differences=_said({name: some.differences for name, some in found.items()}),
        notes=_said({name: some.notes for name, some in found.items()}),
        missing_columns=tuple(name for name in first.missing_columns if name in one.columns),
        changed_columns=tuple(name for name in first.changed_columns if name in one.columns),
        missing_indexes=tuple(name for name in first.missing_indexes if name in one.indexes),
    )


def _said(found: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    words = dict.fromkeys(said for some in found.values() for said in some)
    told = []
    for said in words:
        names = [name for name, some in found.items() if said in some]
        told.append(said if len(names) == len(found) else f"{said} ({', '.join(names)})")
    return tuple(told)


def _common(name: str, shards: Sequence[Definition]) -> ColumnInfo | None:
    found = [shard.columns.get(name) for shard in shards]
    columns = [column for column in found if column is not None]
    if len(columns) < len(shards) or len({_looks(column) for column in columns}) > 1:
        return None
    return replace(columns[0], nullable=any(column.nullable for column in columns))


def _looks(column: ColumnInfo) -> _Looks:
    return plain_type(column), column.charset, column.collation, column.generated


def _has(shard: Definition, wanted: Index) -> bool:
    return any(
        index.unique == wanted.unique and index.parts == wanted.parts and index.lengths == wanted.lengths
        for index in shard.indexes.values()
    )
