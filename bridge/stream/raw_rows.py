"""Row changes with raw values to row changes with ready literals, by the target's catalog of the segment.

`typed` comes before anything else that looks at a row change: names, keys and literals are what `target` expects only
behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from bridge.errors import RefusedRowsError
from bridge.events import EVENT_SCHEMA, RAW, SEP, Code, Position
from bridge.protocols.column_types import RawConverter, column_type
from bridge.protocols.decoder import FAILURES, DecodeError, explain
from bridge.protocols.raw_values import declared_types, raw_converter, split_forms
from bridge.target.catalog import Table
from bridge.target.drift import check_types
from bridge.target.images import TEXT, parts_of

log = structlog.get_logger()

_MEND: Final = "send the table as Canal-JSON or in the Open Protocol, which carry such values exactly"
_KEY: Final = "; the column is part of a key: rows whose keys are told apart only there become one row"
_IMAGES: Final = ("before", "after")
_REMEMBERED: Final = 1024
"""Values of one column: converting costs ten times what remembering does."""
_PADDED: Final = "binary"
_said: set[tuple[str, str]] = set()
"""(table, column) whose losses have been said: once per column, not once per value."""

_Typer = Callable[[str], str]
"""A raw image to a ready one."""


def typed(table: Table, changes: pa.Table) -> pa.Table:
    """The row changes (EVENT_SCHEMA) of one table with ready literals and plain names; the same object when they are
    that already.

    Raises ApplyError for a column that is narrower than the upstream's, RefusedRowsError for a value that cannot be one
    of its column; says once per column what the format has lost.
    """
    encoded = changes["columns"].combine_chunks().dictionary_encode()
    shapes = encoded.dictionary.to_pylist()
    if not any(RAW in shape for shape in shapes):
        return changes
    for shape in shapes:
        if shape not in table.compared:
            _compare(table, shape, changes)
    typers = [_typer(table, shape) for shape in shapes]
    names = pa.array([split_forms(shape)[0] for shape in shapes], pa.string())
    if any(typers):
        images = _images(table, changes, [typers[code] for code in encoded.indices.to_pylist()])
        for name, literals in zip(_IMAGES, images, strict=True):
            field = EVENT_SCHEMA.field(name)
            changes = changes.set_column(changes.schema.get_field_index(name), field, pa.array(literals, field.type))
    at = changes.schema.get_field_index("columns")
    return changes.set_column(at, EVENT_SCHEMA.field("columns"), names.take(encoded.indices))


def _compare(table: Table, shape: str, changes: pa.Table) -> None:
    mine = changes.filter(pc.equal(changes["columns"], shape))
    types = [
        _padded_length(mine, at) if declared == _PADDED else declared
        for at, declared in enumerate(declared_types(shape))
    ]
    names = split_forms(shape)[0].split(SEP)
    check_types(table, names, types, mine["commit_ts"][0].as_py(), by_time=mine["by_time"][0].as_py())
    if _PADDED not in types:
        table.compared.add(shape)


def _padded_length(changes: pa.Table, at: int) -> str:
    """TiCDC names no lengths, but all values of a BINARY have its length; as long as all are NULL nothing tells it."""
    for image in _IMAGES:
        [literals] = parts_of(changes[image].combine_chunks().cast(TEXT), [at])
        found = literals.filter(pc.fill_null(pc.starts_with(literals, "x'"), False))
        if len(found):
            digits = len(found[0].as_py()) - len("x''")
            return f"{_PADDED}({digits // 2})"
    return _PADDED


def _images(table: Table, changes: pa.Table, typers: list[_Typer | None]) -> tuple[list[str | None], list[str | None]]:
    """Both images of each change, one after the other, as most of their values are equal and remembered."""
    befores: list[str | None] = []
    afters: list[str | None] = []
    try:
        for before, after, typer in zip(*(changes[name].to_pylist() for name in _IMAGES), typers, strict=True):
            befores.append(before if typer is None or before is None else typer(before))
            afters.append(after if typer is None or after is None else typer(after))
    except DecodeError as failure:
        row = changes.slice(len(afters), 1).to_pylist()[0]
        raise RefusedRowsError(
            f"a value of {table.name} cannot be what its column holds: {failure}",
            table=table.name,
            code=Code.BAD_VALUE,
            where=f"{Position(row['topic'], row['partition'], row['offset'])}, commit ts {row['commit_ts']}",
            mend="see that the column's type on the target is the upstream's, and that the settings of the format"
            " (--timezone, [debezium], [ckafka]) are the sender's",
            is_exact=True,
        ) from failure
    return befores, afters


def _typer(table: Table, columns: str) -> _Typer | None:
    """What makes images of one shape ready; None when they are."""
    names, forms = split_forms(columns)
    converters = [
        (at, name, convert)
        for at, (name, form) in enumerate(zip(names.split(SEP), forms, strict=True))
        if form and (convert := _converter(table, name, form)) is not None
    ]
    return _image_typer(converters) if converters else None


def _converter(table: Table, name: str, form: str) -> RawConverter | None:
    column = table.columns.get(name.lower())
    if column is None:  # `target.render` says so
        return None

    is_key = any(name.lower() in unique for unique in table.uniques)

    def lost(reason: str) -> None:
        _say_once(str(table.name), name, reason + _KEY if is_key else reason)

    convert = raw_converter(form, column_type(column.type, nullable=column.nullable), lost)
    return lru_cache(maxsize=_REMEMBERED)(convert) if convert else None


def _image_typer(converters: list[tuple[int, str, RawConverter]]) -> _Typer:
    def ready(image: str) -> str:
        parts = image.split(SEP)
        for at, name, convert in converters:
            try:
                parts[at] = convert(parts[at])
            except (*FAILURES, DecodeError) as failure:
                raise DecodeError(f"column {name}: {explain(failure)}") from failure
        return SEP.join(parts)

    return ready


def _say_once(table: str, column: str, reason: str) -> None:
    if (table, column) not in _said:
        _said.add((table, column))
        log.error("values cannot be told exactly", table=table, column=column, reason=reason, mend=_MEND)
