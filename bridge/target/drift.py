"""Schema drift: what rows need and the target's table does not have.

A server says when a value is out of range, too long, or loses digits of a DECIMAL.  It says nothing when a column cuts
the fraction off a time, or digits off a number; so the first rows of each transaction are looked at here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from bridge.errors import ApplyError
from bridge.events import SEP, tso_ms
from bridge.target.catalog import Table, TableName

LOOKED_AT: Final = 8
"""Rows per table and transaction."""

_MEND: Final = "a schema change is missing on the target; alter the table as it is upstream, or begin later (--from)"
_TYPE: Final = re.compile(r"(\w+)(?:\((\d+)(?:,(\d+))?\))?")
_TIME: Final = re.compile(r"'[^'.]*(?:\.(\d*))?'")
_NUMBER: Final = re.compile(r"-?(\d+)(?:\.(\d*))?")
_FLOAT_DIGITS: Final = 9
"""Any float of 32 bits can be told by so many."""
_LARGEST_FLOAT: Final = 3.4028234663852886e38

TooNarrow = Callable[[str], bool]
"""Whether a literal loses something in a column."""


def check_needs(table: Table, changes: pa.Table, shapes: Iterable[str]) -> None:
    """Raises ApplyError, naming table, column and commit ts, when the target lacks a column of the row changes
    (EVENT_SCHEMA, in order; `shapes` are their column lists), or has one that would cut their values in silence."""
    for shape in shapes:
        names = shape.lower().split(SEP)
        missing = next((name for name in names if name not in table.columns), None)
        if missing is not None:
            first = changes.filter(pc.equal(changes["columns"], shape))["commit_ts"][0].as_py()
            raise _error(f"the target's table {table.name} lacks the column {missing}", table.name, first)
        checks = _checks(tuple(table.columns[name].type for name in names))
        if checks:
            _check_rows(table, changes.slice(0, LOOKED_AT), shape, checks)


def _check_rows(table: Table, changes: pa.Table, shape: str, checks: tuple[tuple[int, TooNarrow], ...]) -> None:
    columns = (changes[name].to_pylist() for name in ("columns", "after", "commit_ts"))
    for described, after, commit_ts in zip(*columns, strict=True):
        if described != shape or after is None:
            continue
        literals = after.split(SEP)
        for position, is_too_narrow in checks:
            if is_too_narrow(literals[position]):
                column = table.columns[shape.lower().split(SEP)[position]]
                raise _error(
                    f"the column {column.name} of the target's table {table.name} is {column.type}, which would cut"
                    f" {literals[position][:60]}",
                    table.name,
                    commit_ts,
                )


def _error(what: str, table: TableName, commit_ts: int) -> ApplyError:
    return ApplyError(what, where=f"table {table}, commit ts {commit_ts} ({tso_ms(commit_ts)} ms)", mend=_MEND)


@lru_cache(maxsize=1000)
def _checks(types: tuple[str, ...]) -> tuple[tuple[int, TooNarrow], ...]:
    """Positions of the columns that may cut values in silence."""
    return tuple(_checks_of(types))


def _checks_of(types: tuple[str, ...]) -> Iterator[tuple[int, TooNarrow]]:
    for position, column_type in enumerate(types):
        parsed = _TYPE.match(column_type)
        assert parsed is not None  # a type begins with a word
        kind, size, scale = parsed[1], int(parsed[2] or 0), int(parsed[3] or 0)
        if kind in {"datetime", "timestamp", "time"} and size < 6:
            yield position, _cuts_fraction(_TIME, 1, size)
        elif kind == "decimal":
            yield position, _cuts_fraction(_NUMBER, 2, scale)
        elif kind.endswith("int"):
            yield position, _cuts_fraction(_NUMBER, 2, 0)
        elif kind == "float":
            yield position, _has_more_digits


def _cuts_fraction(pattern: re.Pattern[str], group: int, digits: int) -> TooNarrow:
    def cuts(literal: str) -> bool:
        found = pattern.fullmatch(literal)
        return found is not None and bool((found[group] or "")[digits:].strip("0"))

    return cuts


def _has_more_digits(literal: str) -> bool:
    found = _NUMBER.match(literal)
    if found is None or len((found[1] + (found[2] or "")).strip("0")) <= _FLOAT_DIGITS:
        return False
    number = float(literal)
    return abs(number) <= _LARGEST_FLOAT and struct.unpack("f", struct.pack("f", number))[0] != number
