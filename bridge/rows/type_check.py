"""Finds schema drift: columns or types that rows need and the target's table does not have.

A server reports a value that is out of range, too long or not of the character set, and lost digits of a DECIMAL.  It
reports nothing (tried on MariaDB 10.11 and 11.4, strict) when a column cuts the fraction off a time, rounds a number to
an integer or a float, removes blanks at the end of a text, or stores the number of an ENUM as text.  So every row is
checked here for these, literal by literal; where rows are many, a compiled function passes the usual ones before
(`unsure`).
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from bridge.errors import AheadOfTargetError, ApplyError, RefusedRowsError
from bridge.events import SEP, Code
from bridge.model import Column, Table, TableName
from bridge.protocols.fast.compiled.codes import (
    FITS_ANY,
    FITS_CHAR,
    FITS_DATE,
    FITS_DATETIME,
    FITS_NULL,
    FITS_NUMBER,
    FITS_QUOTED,
    FITS_REAL,
    FITS_TIME,
    FITS_WHOLE,
    FITS_YEAR,
)
from bridge.protocols.fast.readiness import Readiness
from bridge.protocols.values.column_types import Usual
from bridge.rows.gathering import Longs, position_of
from bridge.rows.literal_offsets import Cells
from bridge.rows.type_families import as_bytes, stores_otherwise
from bridge.tso import tso_ms


def unsure(after: Cells, shape_of: Longs, usual: Sequence[Sequence[Usual]]) -> Longs:
    """Gives the numbers of the images with some literal that may not be stored unchanged, found by a compiled function.

    shape_of: the number of each image's shape.  usual: for each shape, what its columns surely store.
    """
    from bridge.protocols.fast.compiled.functions import fit_images

    numbers = np.empty(len(after.images), np.int64)
    count, _ = fit_images(
        after.characters, after.offsets, after.separators, after.firsts, after.is_image.view(np.uint8), len(numbers),
        shape_of, np.cumsum([0, *map(len, usual)]), np.array([*chain.from_iterable(usual)], np.int32).reshape(-1, 2),
        numbers,
    )  # fmt: skip
    return numbers[:count]


_READINESS: Final = Readiness()
_FIX: Final = "a schema change is missing on the target; alter the table as it is upstream, or begin later (--from)"
_TYPE: Final = re.compile(r"(\w+)(?:\((\d+)\b)?")
_SCALED: Final = re.compile(r"(?:double|float)\(\d+,(\d+)\)")
_DAY: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_QUOTED: Final = "(?:'|x'|NULL).*"
"""Matches a text by its first character, and no number, as which BIT, ENUM and SET values come."""
_NO_BLANK_AT_THE_END: Final = "'(?:.*[^ ])?'|(?:x'|NULL).*"
_ROWS_AT_ONCE: Final = 5_000
"""So many images are Python objects at once."""
_FLOAT32: Final = struct.Struct("f")
Keeps = Callable[[str], object]
"""Tells whether a column stores a literal unchanged, or the server would refuse it."""


class ColumnFit(NamedTuple):
    """What a column stores unchanged.

    keeps: None where it may be anything.  usual: those literals of which a compiled function tells it (`codes.FITS_ANY`
    and so on, with the most digits of a fraction).
    """

    keeps: Keeps | None
    usual: Usual


def is_changed_to(name: str, message_name: str) -> bool:
    """Tells whether Debezium may have changed a column's name to this one (Debezium's page on the connector for MySQL,
    field.name.adjustment.mode=avro); a backtick stays doubled, as in the statement (seen with 3.0.8)."""
    plain = "_" * name[:1].isdigit() + re.sub(r"[^a-z0-9_]", "_", name.replace("`", "``"))
    return plain != name and message_name == plain


def true_names(table: Table, message_names: Sequence[str]) -> list[str]:
    """Gives the names of a table's columns for those that Debezium sent in Avro: where a row has all columns of the
    table, each that the table lacks is the only one that may have become it; otherwise they stay as they are.

    message_names: in any case.
    """
    names = [name.lower() for name in message_names]
    free = [name for name in table.columns if name not in names]
    candidates = {
        name: [column for column in free if is_changed_to(column, name)] for name in names if name not in table.columns
    }
    is_clear = len(names) == len(table.columns) and all(len(choice) == 1 for choice in candidates.values())
    if not is_clear or len({choice[0] for choice in candidates.values()}) < len(candidates):
        return list(message_names)
    spellings = zip(names, message_names, strict=True)
    return [candidates[name][0] if name in candidates else spelling for name, spelling in spellings]


def _fix_of_name(table: Table, message_name: str) -> str:
    """Says what to do about a column that a table lacks, whose name Debezium may have changed."""
    for name in table.columns:
        if is_changed_to(name, message_name):
            return (
                f"if it is the column {name}, Debezium has changed its name (field.name.adjustment.mode): send the"
                f" table as JSON, with field.name.adjustment.mode=none; otherwise {_FIX}"
            )
    return _FIX


CheckedTypes = set[tuple[TableName, str]]
"""The column lists (`RowChange.columns`) of tables whose declared types were found to fit, each compared once.  The
results are of tables as they were: whoever loads a table anew has to take out what is of it."""


def check_needs(
    shapes: Sequence[tuple[Table, Sequence[str]]], after: Cells, shape_of: Longs, changes: pa.Table
) -> None:
    """Raises AheadOfTargetError, naming table, column and commit ts, when a target's table lacks a column of the row
    changes (EVENT_SCHEMA, in order).  Raises RefusedRowsError when a column would change the value of some row in
    silence.

    shapes: tables, each with columns of messages in lower case.  shape_of: the number of each row change's
    shape.  after: the images.
    """
    fits = list[list[ColumnFit]]()
    for number, (table, names) in enumerate(shapes):
        missing = [name for name in names if name not in table.columns]
        if missing:
            first = changes["commit_ts"][int(np.argmax(shape_of == number))].as_py()
            raise AheadOfTargetError(
                f"the target's table {table.name} lacks the column {missing[0]}",
                where=_where(table, first),
                fix=_fix_of_name(table, missing[0]),
                table=table.name,
                columns=frozenset(missing),
            )
        columns = (table.columns[name] for name in names)
        fits.append([column_fit("" if column.generated else column.type) for column in columns])
    rows = np.arange(len(shape_of))
    if _READINESS.pays(len(rows)):
        rows = unsure(after, shape_of, [[fit.usual for fit in of_shape] for of_shape in fits])
    checks = [[(at, fit.keeps) for at, fit in enumerate(of_shape) if fit.keeps is not None] for of_shape in fits]
    for row, at in _changed(after, rows, shape_of, checks):
        table, names = shapes[shape_of[row]]
        raise _unfit_value(table, changes, row, table.columns[names[at]], at)


def _changed(
    after: Cells, rows: Longs, shape_of: Longs, checks: Sequence[Sequence[tuple[int, Keeps]]]
) -> Iterator[tuple[int, int]]:
    """Gives the rows whose images would lose something, each with the position of the first column that changes it."""
    rows = rows[after.is_image[rows]]
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        batch = rows[start : start + _ROWS_AT_ONCE]
        images = after.images.take(pa.array(batch)).to_pylist()
        for row, shape, image in zip(batch.tolist(), shape_of[batch].tolist(), images, strict=True):
            literals = image.split(SEP)
            for at, keeps in checks[shape]:
                if not keeps(literals[at]):
                    yield row, at
                    break


def check_types(
    table: Table, names: Sequence[str], types: Sequence[str], commit_ts: int, *, by_time: bool = False
) -> None:
    """Raises ApplyError when a column of the target stores some values otherwise than upstream.  The error names table,
    column, both types and the commit_ts.

    commit_ts: of the first row change with these types.
    types: as the messages declare them, "" where they do not.  Columns that the target lacks are left to `check_needs`.
    by_time: changes without a commit_ts of their own: official Canal calls a BINARY(4) CHAR(4) where it was declared as
    a text with CHARACTER SET binary, and may take types from the table of another moment, so that a TIMESTAMP or JSON
    of the target is left to the values.
    """
    for name, declared in zip(names, types, strict=True):
        column = table.columns.get(name.lower())
        if column is None or column.generated or not stores_otherwise(declared, column.type):
            continue
        if by_time and column.type.startswith(("timestamp", "json")):
            continue
        if by_time and not stores_otherwise(as_bytes(declared), column.type):
            continue
        raise ApplyError(
            f"the column {column.name} of the target's table {table.name} is {column.type}, which stores some values"
            f" differently than upstream: {declared}",
            where=_where(table, commit_ts),
            fix=_FIX,
        )


def _unfit_value(table: Table, changes: pa.Table, row: int, column: Column, at: int) -> RefusedRowsError:
    """Makes the error for a row that a column would change.  at: the column's position."""
    literal = str(changes["after"][row]).split(SEP)[at]
    return RefusedRowsError(
        f"the column {column.name} of the target's table {table.name} is {column.type}, which cannot store"
        f" {literal[:60]} unchanged",
        table=table.name,
        code=Code.TARGET_REFUSED,
        where=f"{position_of(changes, row)}, {_where(table, changes['commit_ts'][row].as_py())}",
        fix=_FIX,
        is_exact=True,
    )


def _where(table: Table, commit_ts: int) -> str:
    return f"table {table.name}, commit ts {commit_ts} ({tso_ms(commit_ts)} ms)"


@lru_cache(maxsize=4096)
def column_fit(column_type: str) -> ColumnFit:
    """Tells what a column of a type (column_type of information_schema) stores unchanged; "": it is not written."""
    parsed = _TYPE.match(column_type)
    if parsed is None:
        return ColumnFit(None, Usual(FITS_ANY))
    kind, size = parsed[1], int(parsed[2] or 0)
    scaled = _SCALED.match(column_type)
    if kind == "float":
        return ColumnFit(_real(partial(_is_float32, int(scaled[1]) if scaled else None)), Usual(FITS_NULL))
    if scaled:
        return ColumnFit(_real(partial(_has_scale, int(scaled[1]))), Usual(FITS_NULL))
    pattern, usual = _KINDS.get(kind, (None, FITS_ANY))
    if pattern is None:
        return ColumnFit(None, Usual(usual))
    fraction = rf"(?:\.[0-9]{{0,{size}}}0*)?"
    return ColumnFit(re.compile(pattern.replace("FRACTION", fraction), re.DOTALL).fullmatch, Usual(usual, size))


def _real(fits: Callable[[float], bool]) -> Keeps:
    """Judges numbers of floating point."""
    is_number = re.compile(_REAL).fullmatch

    def keeps(literal: str) -> bool:
        if not is_number(literal):
            return False
        try:
            return literal == "NULL" or fits(float(literal))
        except ValueError:
            return True  # the server refuses what is no number

    return keeps


def _is_float32(scale: int | None, number: float) -> bool:
    """Tells whether a number is a 32-bit float, and that of no more decimals than a FLOAT(M,D), which rounds."""
    rounded = number if scale is None else round(number, scale)
    try:
        return bool(_FLOAT32.unpack(_FLOAT32.pack(rounded))[0] == number)
    except OverflowError:
        return True  # the server refuses numbers beyond FLOAT


def _has_scale(scale: int, number: float) -> bool:
    """Tells whether a number has no more decimals than a DOUBLE(M,D), which rounds.  MySQL rounds what is above the
    integer below: -0.0001 becomes -9.999999999998899e-05."""
    below, is_near = number // 1, math.isclose(number, round(number, scale), rel_tol=4e-15)
    return is_near or below + round((number - below) * 10.0**scale) / 10.0**scale == number


_REAL: Final = r"NULL|-?[0-9.]{1,15}|-?[0-9.]+e[-+]?[0-9]+"
"""16 digits may be no DOUBLE."""
_KINDS: Final = {
    **dict.fromkeys(
        ("tinyint", "smallint", "mediumint", "int", "bigint", "bit"), (r"NULL|-?[0-9]+(?:\.0*)?", FITS_WHOLE)
    ),
    "decimal": ("NULL|[-0-9].*", FITS_NUMBER),
    "double": (_REAL, FITS_REAL),
    "year": ("NULL|0|[0-9]{4}|'[0-9]{4}'", FITS_YEAR),
    "date": (rf"NULL|'{_DAY}(?: 00:00:00(?:\.0*)?)?'", FITS_DATE),
    "datetime": (f"NULL|'{_DAY}(?: [0-9:]{{8}}FRACTION)?'", FITS_DATETIME),
    "timestamp": (f"NULL|'{_DAY}(?: [0-9:]{{8}}FRACTION)?'", FITS_DATETIME),
    "time": ("NULL|'-?[0-9]{1,3}:[0-9:]{5}FRACTION'", FITS_TIME),
    "char": (_NO_BLANK_AT_THE_END, FITS_CHAR),
    **dict.fromkeys(("varchar", "tinytext", "text", "mediumtext", "longtext"), (_QUOTED, FITS_QUOTED)),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), (_QUOTED, FITS_QUOTED)),
}
