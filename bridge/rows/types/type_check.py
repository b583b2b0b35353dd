"""Finds schema drift: columns or types that rows need and the target's table does not have.

A server reports a value that is out of range, too long or not of the character set, and lost digits of a DECIMAL.  It
reports nothing (tried on MariaDB 10.11 and 11.4, strict) when a column cuts the fraction off a time, rounds a number to
an integer or a float, removes blanks at the end of a text, or stores the number of an ENUM as text.  So every row is
checked here for these: one pattern per column list matches the images that lose nothing.  Where rows are many, a
compiled function passes the usual ones before (`unsure`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.errors import AheadOfTargetError, ApplyError, RefusedRowsError
from bridge.events import SEP, Code, Position
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
from bridge.rows.grouping import Bools, Longs
from bridge.rows.literal_offsets import TEXT, Cells, parts_of, to_numpy
from bridge.rows.types.type_widths import Fit, as_bytes, fit_of
from bridge.tso import tso_ms


class Usual(NamedTuple):
    """What a column surely stores unchanged (`codes.FITS_ANY` and so on).  digits: of a fraction, at most."""

    kind: int
    digits: int = 0


def unsure(after: Cells, shape_of: Longs, usual: Sequence[Sequence[Usual]]) -> Longs:
    """Gives the numbers of the images with some literal that may not be stored unchanged, found by a compiled function.

    shape_of: the number of each image's shape.  usual: for each shape, what its columns surely store.
    """
    from bridge.protocols.fast.compiled.functions import fit_images

    found = np.empty(len(after.images), np.int64)
    count, _ = fit_images(
        after.characters, after.offsets, after.separators, after.firsts, after.is_image.view(np.uint8), len(found),
        shape_of, np.cumsum([0, *map(len, usual)]), np.array([*chain.from_iterable(usual)], np.int32).reshape(-1, 2),
        found,
    )  # fmt: skip
    return found[:count]


_READINESS: Final = Readiness()
_FIX: Final = "a schema change is missing on the target; alter the table as it is upstream, or begin later (--from)"
_TYPE: Final = re.compile(r"(\w+)(?:\((\d+)\b)?")
_DOUBLE: Final = re.compile(r"double\(\d+,(\d+)\)")
_ANYTHING: Final = r"[^\x00]*"
_DAY: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_QUOTED: Final = rf"(?:'|x'|NULL){_ANYTHING}"
"""Matches a text by its first character, and no number, as which BIT, ENUM and SET values come."""
_BEGINS_QUOTED: Final = np.isin(np.arange(256), np.frombuffer(b"'xN", np.uint8))
"""Whether a literal that begins with a character is such a one."""
_NO_BLANK_AT_THE_END: Final = r"(?:'(?:[^\x00]*[^\x00 ])?'|(?:x'|NULL)[^\x00]*)"
_QUOTE: Final = ord("'")
_BLANK: Final = ord(" ")


@dataclass(frozen=True)
class _ImagePattern:
    """Finds the images of one column list that lose nothing.

    columns: a pattern for each column.
    usual: what each column surely stores unchanged.
    pattern: the patterns of all columns in one, without those of texts, which are slow; "" when anything fits.
    texts, chars: the positions of text columns, and of the CHAR columns among them.
    floats: the positions of FLOAT columns with None, and of DOUBLE(M,D) columns with D.
    """

    columns: tuple[str, ...]
    usual: tuple[Usual, ...]
    pattern: str
    texts: tuple[int, ...]
    chars: tuple[int, ...]
    floats: tuple[tuple[int, int | None], ...]


def is_changed_to(name: str, sent: str) -> bool:
    """Tells whether Debezium may have changed a column's name to this one (Debezium's page on the connector for MySQL,
    field.name.adjustment.mode=avro); a backtick stays doubled, as in the statement (seen with 3.0.8)."""
    plain = "_" * name[:1].isdigit() + re.sub(r"[^a-z0-9_]", "_", name.replace("`", "``"))
    return plain != name and sent == plain


def true_names(table: Table, sent: Sequence[str]) -> list[str]:
    """Gives the names of a table's columns for those that Debezium sent in Avro: where a row has all columns of the
    table, each that the table lacks is the only one that may have become it; otherwise they stay as they are.

    sent: in any case.
    """
    names = [name.lower() for name in sent]
    free = [name for name in table.columns if name not in names]
    candidates = {
        name: [column for column in free if is_changed_to(column, name)] for name in names if name not in table.columns
    }
    is_clear = len(names) == len(table.columns) and all(len(choice) == 1 for choice in candidates.values())
    if not is_clear or len({choice[0] for choice in candidates.values()}) < len(candidates):
        return list(sent)
    return [candidates[name][0] if name in candidates else spelling for name, spelling in zip(names, sent, strict=True)]


def _fix_of_name(table: Table, missing: str) -> str:
    """Says what to do about a column that a table lacks, whose name Debezium may have changed."""
    for name in table.columns:
        if is_changed_to(name, missing):
            return (
                f"if it is the column {name}, Debezium has changed its name (field.name.adjustment.mode): send the"
                f" table as JSON, with field.name.adjustment.mode=none; otherwise {_FIX}"
            )
    return _FIX


class CheckedTypes:
    """The column lists (`Event.columns`) whose declared types were found to fit their table, so that each is compared
    once.  The results are of tables as they were: whoever loads a table anew must `forget` it."""

    def __init__(self) -> None:
        self._columns: dict[TableName, set[str]] = {}

    def add(self, table: Table, columns: str) -> None:
        """Notes that the types of a column list fit."""
        self._columns.setdefault(table.name, set()).add(columns)

    def has(self, table: Table, columns: str) -> bool:
        """Tells whether the types of a column list are known to fit."""
        return columns in self._columns.get(table.name, ())

    def forget(self, names: Iterable[TableName]) -> None:
        """Forgets the results for these tables, which may have changed."""
        for name in names:
            self._columns.pop(name, None)


def check_needs(
    shapes: Sequence[tuple[Table, Sequence[str]]], after: Cells, shape_of: Longs, changes: pa.Table
) -> None:
    """Raises AheadOfTargetError, naming table, column and commit ts, when a target's table lacks a column of the row
    changes (EVENT_SCHEMA, in order).  Raises RefusedRowsError when a column would change the value of some row in
    silence.

    shapes: tables, each with columns of messages in lower case.  shape_of: the number of each row change's
    shape.  after: the images.
    """
    fits: dict[_ImagePattern, int] = {}
    numbers = list[int]()
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
        fit = _fit(tuple("" if column.generated else column.type for column in columns))
        numbers.append(fits.setdefault(fit, len(fits)))
    of_shapes = list(fits)
    rows = np.arange(len(shape_of))
    if _READINESS.pays(len(rows)):
        rows = unsure(after, shape_of, [of_shapes[number].usual for number in numbers])
    for fit, which in _by_fit(of_shapes, np.array(numbers, np.int64)[shape_of[rows]]):
        row = _first_cut(after, rows[which], fit)
        if row is not None:
            table, names = shapes[shape_of[row]]
            raise _cut(table, changes.slice(row, 1).to_pylist()[0], [table.columns[name] for name in names], fit)


def check_types(
    table: Table, names: Sequence[str], types: Sequence[str], commit_ts: int, *, by_time: bool = False
) -> None:
    """Raises ApplyError when a column of the target is narrower than upstream, or stores its values differently.  The
    error names table, column, both types and the commit_ts.

    commit_ts: of the first row change with these types.
    types: as the messages declare them, "" where they do not.  Columns that the target lacks are left to `check_needs`.
    by_time: changes without a commit_ts of their own.  They may seem to be earlier than a schema change that they
    follow, and official Canal may take types from the table of another moment.  So a narrower column is only a warning.
    And official Canal calls a BINARY(4) CHAR(4) where it was declared as a text with CHARACTER SET binary.
    """
    for name, declared in zip(names, types, strict=True):
        column = table.columns.get(name.lower())
        fit = Fit.MAY_FIT if column is None or column.generated else fit_of(declared, column.type)
        if by_time and fit is Fit.DIFFERENT and column is not None:
            fit = fit_of(as_bytes(declared), column.type)
        if column is None or fit not in _MISFIT:
            continue
        what = f"the column {column.name} of the target's table {table.name} is {column.type}, {_MISFIT[fit]}"
        if not (by_time and fit is Fit.NARROWER):
            raise ApplyError(f"{what} upstream: {declared}", where=_where(table, commit_ts), fix=_FIX)
        from structlog import get_logger  # late: executors do without

        get_logger().warning("column_narrower", what=f"{what} upstream", declared=declared, commit_ts=commit_ts)


_MISFIT: Final = {Fit.NARROWER: "narrower than", Fit.DIFFERENT: "which stores some values differently than"}


def _by_fit(fits: Sequence[_ImagePattern], numbers: Longs) -> Iterator[tuple[_ImagePattern, Longs]]:
    """Gives each pattern with the numbers of its rows."""
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(len(fits) + 1))
    yield from ((fit, order[start:end]) for fit, (start, end) in zip(fits, pairwise(bounds), strict=True))


def _first_cut(after: Cells, rows: Longs, fit: _ImagePattern) -> int | None:
    """Gives the first of these rows whose image would lose something, None without one."""
    rows = rows[after.is_image[rows]]
    for fitting in chain(_are_numbers(after, rows, fit), _are_texts(after, rows, fit)):
        if not fitting.all():
            return int(rows[np.argmin(fitting)])
    return None


def _are_numbers(after: Cells, rows: Longs, fit: _ImagePattern) -> Iterator[Bools]:
    """Tells which images match the pattern of all columns but texts, and then for each column of `floats` which of its
    literals it stores."""
    if not fit.pattern and not fit.floats:
        return
    images = after.images if len(rows) == len(after.images) else after.images.take(pa.array(rows))
    if fit.pattern:
        yield to_numpy(pc.match_substring_regex(images, fit.pattern))
    yield from (to_numpy(_is_float(images, *column)) for column in fit.floats)


def _are_texts(after: Cells, rows: Longs, fit: _ImagePattern) -> Iterator[Bools]:
    """Tells for each text column which of its literals are texts, and for each CHAR column which keep the blanks at
    their end."""
    characters = after.characters
    for position in fit.texts:
        yield _BEGINS_QUOTED[characters[after.begins(rows, position)]]
    for position in fit.chars:
        ends = after.ends(rows, position)
        yield (characters[ends - 2] != _BLANK) | (characters[ends - 1] != _QUOTE)


def _is_float(images: pa.Array, position: int, scale: int | None) -> pa.Array:
    """Tells where a number is a 32-bit float, or has no more decimals than a DOUBLE(M,D), which rounds.  The other
    patterns judge literals that are no numbers.

    scale: D, None for FLOAT.  MySQL rounds -0.01 to -0.010000000000000009.
    """
    (literals,) = parts_of(images, [position])
    number = pc.cast(
        pc.if_else(pc.match_substring_regex(literals, "^[-0-9.]+(?:e[-+]?[0-9]+)?$"), literals, None), "double"
    )
    values = pc.fill_null(number, 0.0).to_numpy(zero_copy_only=False)
    if scale is not None:
        return pa.array(np.isclose(values, np.round(values, scale), rtol=4e-15, atol=0.0))
    with np.errstate(over="ignore"):  # the server refuses numbers beyond FLOAT
        narrow = values.astype(np.float32)
    return pa.array((narrow == values) | ~np.isfinite(narrow))


def _cut(table: Table, change: dict[str, object], columns: Sequence[Column], fit: _ImagePattern) -> RefusedRowsError:
    """Makes the error for a row that would be changed; it names the column that would change it."""
    literals = str(change["after"]).split(SEP)
    to_blame = (i for i, pattern in enumerate(fit.columns) if not re.fullmatch(pattern, literals[i]))
    floats = (i for i, scale in fit.floats if not _is_float(pa.array([literals[i]], TEXT), 0, scale)[0].as_py())
    at = next(chain(to_blame, floats))
    position = Position(str(change["topic"]), int(str(change["partition"])), int(str(change["offset"])))
    commit_ts = int(str(change["commit_ts"]))
    return RefusedRowsError(
        f"the column {columns[at].name} of the target's table {table.name} is {columns[at].type}, which cannot store"
        f" {literals[at][:60]} unchanged",
        table=table.name,
        code=Code.TARGET_REFUSED,
        where=f"{position}, {_where(table, commit_ts)}",
        fix=_FIX,
        is_exact=True,
    )


def _where(table: Table, commit_ts: int) -> str:
    return f"table {table.name}, commit ts {commit_ts} ({tso_ms(commit_ts)} ms)"


@lru_cache(maxsize=1000)
def _fit(types: tuple[str, ...]) -> _ImagePattern:
    """Makes the pattern of a column list.  types: as information_schema has them, "" for a column that is not
    written."""
    plain, usual = zip(*map(_plain_pattern, types), strict=True) if types else ((), ())
    strict = tuple(_NO_BLANK_AT_THE_END if one.startswith("char") else plain[i] for i, one in enumerate(types))
    texts = tuple(i for i, pattern in enumerate(plain) if pattern == _QUOTED)
    chars = tuple(i for i, one in enumerate(types) if one.startswith("char"))
    scales = enumerate(map(_DOUBLE.match, types))
    doubles = tuple((i, int(scale[1])) for i, scale in scales if scale)
    floats = (*((i, None) for i, one in enumerate(types) if one.startswith("float")), *doubles)
    pattern = _joined([_ANYTHING if pattern == _QUOTED else pattern for pattern in plain])
    return _ImagePattern(strict, usual, pattern, texts, chars, floats)


def _joined(patterns: Sequence[str]) -> str:
    """Joins the patterns of columns to one for images, up to the last column that does not accept everything; "" when
    all do."""
    last = max((i for i, pattern in enumerate(patterns) if pattern != _ANYTHING), default=-1)
    if last < 0:
        return ""
    is_open = patterns[last].endswith(_ANYTHING)
    return "^" + r"\x00".join(f"(?:{pattern})" for pattern in patterns[: last + 1]) + ("" if is_open else r"(?:\x00|$)")


def _plain_pattern(column_type: str) -> tuple[str, Usual]:
    """Gives the pattern of literals that a column of this type stores unchanged, or that the server would refuse; and
    those of them that are usual, which a compiled function tells."""
    parsed = _TYPE.match(column_type)
    if parsed is None:
        return _ANYTHING, Usual(FITS_ANY)
    kind, size = parsed[1], int(parsed[2] or 0)
    if _DOUBLE.match(column_type):
        return _REAL, Usual(FITS_NULL)
    pattern, usual = _KINDS.get(kind, (_ANYTHING, FITS_ANY))
    return pattern.replace("FRACTION", rf"(?:\.[0-9]{{0,{size}}}0*)?"), Usual(usual, size)


_REAL: Final = r"NULL|-?[0-9.]{1,15}|-?[0-9.]+e[-+]?[0-9]+"
"""16 digits may be no DOUBLE."""
_KINDS: Final = {
    **dict.fromkeys(
        ("tinyint", "smallint", "mediumint", "int", "bigint", "bit"), (r"NULL|-?[0-9]+(?:\.0*)?", FITS_WHOLE)
    ),
    "decimal": (rf"NULL|[-0-9]{_ANYTHING}", FITS_NUMBER),
    "double": (_REAL, FITS_REAL),
    "float": (_REAL, FITS_NULL),
    "year": ("NULL|0|[0-9]{4}|'[0-9]{4}'", FITS_YEAR),
    "date": (rf"NULL|'{_DAY}(?: 00:00:00(?:\.0*)?)?'", FITS_DATE),
    "datetime": (f"NULL|'{_DAY}(?: [0-9:]{{8}}FRACTION)?'", FITS_DATETIME),
    "timestamp": (f"NULL|'{_DAY}(?: [0-9:]{{8}}FRACTION)?'", FITS_DATETIME),
    "time": ("NULL|'-?[0-9]{1,3}:[0-9:]{5}FRACTION'", FITS_TIME),
    "char": (_QUOTED, FITS_CHAR),
    **dict.fromkeys(("varchar", "tinytext", "text", "mediumtext", "longtext"), (_QUOTED, FITS_QUOTED)),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), (_QUOTED, FITS_QUOTED)),
}
