"""Tells which columns of a table the messages tell of, after their types were changed.  Pure, over Arrow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from bridge.model import Column
from bridge.protocols.values.column_types import column_type
from bridge.rows.arrow_images import parts_of
from bridge.rows.literal_offsets import whole
from bridge.verify.log.changes.lineage import Span
from bridge.verify.log.row_groups import ReplicatedTable

BINARY: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
"""How the types of columns begin that hold bytes."""
_TIMES: Final = ("date", "time")
_IMAGES: Final = ("before", "after")
_DATE: Final = r"\d{4}-\d\d-\d\d"
_TIME: Final = r"\d\d:\d\d:\d\d(\.\d+)?"
_LOOKS: Final = {
    "integer": r"^-?\d+$",
    "digits": r"^'-?\d+'$",
    "date": f"^'{_DATE}'$",
    "moment": f"^'{_DATE} {_TIME}'$",
    "time": rf"^'-?\d*{_TIME}'$",
    "bytes": "^x'",
    "text": "^'",
    "other": "",
}
"""How literals look, by the first of these patterns that they match."""
RAW_LOOK: Final = "raw"
"""The look of values of which only the column's type tells what they mean (`untyped`)."""
_NUMBERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal")
_SURE_TYPES: Final = {
    "integer": _NUMBERS,
    "digits": _NUMBERS,
    "date": ("date", "datetime", "timestamp"),
    "moment": ("datetime", "timestamp"),
    "time": ("time",),
    "bytes": BINARY,
}
_SURE_TEXTS: Final = ("digits", "date", "text")


def numbered_columns(span: Span, changes: pa.Table, names: Sequence[str | None]) -> set[str]:
    """Finds the columns whose type was changed since, and of which some value is a bare number: it may stand for a name
    of an ENUM or a SET as it was then.  changes: all with these columns."""
    return _with_values(changes, names, span.retyped, "^[0-9]")


def worded_columns(span: Span, changes: pa.Table, names: Sequence[str | None]) -> set[str]:
    """Finds the columns that hold a text whose bytes may mean another text now.

    These are columns whose type was changed since, or any after the character set of all texts was: a text's bytes are
    those of the character set that its column had then.  changes: as above.
    """
    return _with_values(changes, names, {*filter(None, names)} if span.converted else span.retyped, "^'")


def looks_of(span: Span, changes: pa.Table, names: Sequence[str | None], forms: Sequence[str]) -> set[tuple[str, str]]:
    """Gives the columns whose type was changed since, each with every look that its values have.  changes: as above;
    forms: of the columns (`untyped`)."""
    positions = [i for i, name in enumerate(names) if name in span.retyped]
    found = {(names[i] or "", RAW_LOOK) for i in positions if forms[i]}
    ready = [i for i in positions if not forms[i]]
    if ready:
        images = [parts_of(whole(changes[image]), ready) for image in _IMAGES]
        for i, both in zip(ready, zip(*images, strict=True), strict=True):
            found |= {(names[i] or "", look) for values in both for look in _looks(values)}
    return found


def _looks(values: pa.Array) -> Iterator[str]:
    left = values.drop_null()
    for look, pattern in _LOOKS.items():
        is_like = pc.match_substring_regex(left, pattern)
        if pc.any(is_like).as_py():
            yield look
        left = left.filter(pc.invert(is_like))


def is_surely_told(column: Column, look: str) -> bool:
    """Tells whether values of a look, in a column whose type was changed since, have surely become what the server
    makes of their literals.

    Others may have become something else: a TIME becomes the number 101112, which the text '10:11:12' does not; a FLOAT
    has other digits as a DOUBLE; a moment becomes a local time as text, with as many digits as its column had.
    """
    if column.charset:
        return look in _SURE_TEXTS
    return column_type(column.type, nullable=column.nullable).word in _SURE_TYPES.get(look, ())


def _with_values(changes: pa.Table, names: Sequence[str | None], among: Collection[str], pattern: str) -> set[str]:
    """Finds the columns among some of which any value is like a pattern."""
    positions = [i for i, name in enumerate(names) if name in among]
    if not positions:
        return set()
    images = [parts_of(whole(changes[image]), positions) for image in _IMAGES]
    are_like = [
        any(pc.any(pc.match_substring_regex(values, pattern)).as_py() for values in both)
        for both in zip(*images, strict=True)
    ]
    return {names[i] or "" for i, is_like in zip(positions, are_like, strict=True) if is_like}


def known_names(
    replicated: ReplicatedTable,
    retyped: Collection[str],
    by_number: Collection[str],
    by_text: Collection[str],
    names: Sequence[str | None],
) -> list[int]:
    """Gives the positions of the columns whose values the target should hold: columns that it has and does not
    generate, and whose type was not changed since, unless they are in the key.  Of generated columns it should hold
    those of the key, which tell its rows apart, while no type was changed of which they may be computed.  by_number:
    columns as of `numbered_columns`, whose numbers mean nothing to a column of texts, bytes, ENUM or SET.  by_text:
    columns as of `worded_columns`, whose texts do not tell the bytes that a binary column has made of them, nor whether
    a time is a local one now, which was a moment."""
    columns = replicated.table.columns
    may_differ = not columns.keys().isdisjoint(retyped)

    def may_be_local_times(name: str) -> bool:
        return name in retyped and not replicated.is_utc and columns[name].type.startswith(_TIMES)

    def has_value(name: str) -> bool:
        if columns[name].generated:
            return name in replicated.key and not may_differ
        is_binary = columns[name].type.startswith(BINARY)
        if name in by_text and (is_binary or may_be_local_times(name)):
            return False
        if name not in retyped:
            return True
        return name in replicated.key and not (name in by_number and (is_binary or columns[name].charset))

    return [i for i, name in enumerate(names) if name is not None and name in columns and has_value(name)]


def unread(replicated: ReplicatedTable, untold: Iterable[str], known: Collection[str]) -> bool:
    """Tells whether rows have values that the messages do not tell.

    untold: columns whose type, or the bytes of whose texts, were changed since, or that rows got since with a value
    which a new row does not get;
    known: those with values that the target should hold.
    """
    columns = replicated.table.columns
    return any(name in columns and not columns[name].generated and name not in known for name in untold)
