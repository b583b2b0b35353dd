"""Row images: the columns that a message names, compiled once to converters, and the values made literals by them.

The zips are not strict, which costs a quarter of a microsecond each: their callers have compared the names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bridge.events import SEP, Code
from bridge.protocols.decoder import FAILURES, DecodeError, check_name, explain, shown
from bridge.protocols.literals import NULL, Converter


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of an image, in message order.

    shape: what the message said of the columns, as JSON gave it; while that stays equal, so does the layout.
    handle: the names of the key's columns, as JSON gave them.
    labels: the columns' types in words, for reasons.
    """

    names: tuple[str, ...]
    shape: Any
    handle: Any
    labels: tuple[str, ...]
    converters: tuple[Converter, ...]
    columns: str
    key: str


def make_layout(shape: Any, handle: Any, columns: Iterable[tuple[str, str, Converter]]) -> Layout:
    """A layout of (name, label, converter) columns; names are checked here and nowhere later."""
    names, labels, converters = zip(*columns, strict=True)
    for name in names:
        check_name(name, "column")
    key = SEP.join([check_name(name, "key column") for name in handle or ()])
    return Layout(names, shape, handle, labels, converters, SEP.join(names), key)


def literals_of(layout: Layout, row: Mapping[str, Any]) -> list[str]:
    """The literals of a row whose columns are the layout's, in its order."""
    try:
        return [
            NULL if value is None else convert(value)
            for value, convert in zip(row.values(), layout.converters)  # noqa: B905
        ]
    except (*FAILURES, DecodeError) as failure:
        raise _blamed(layout, row, failure) from failure


def old_literals(layout: Layout, old: Mapping[str, Any], new: Mapping[str, Any], literals: list[str]) -> list[str]:
    """The literals of the row before an update, completed from the new row where the old one holds less.

    Values equal to the new ones share their literals: most of an update's values, and half of its cost.
    """
    try:
        if layout.names == tuple(old):
            return [
                literal if was == value else NULL if was is None else convert(was)
                for was, value, literal, convert in zip(old.values(), new.values(), literals, layout.converters)  # noqa: B905
            ]
        return _completed(layout, old, new, literals)
    except (*FAILURES, DecodeError) as failure:
        raise _blamed(layout, old, failure) from failure


_ABSENT: Final = object()


def _completed(layout: Layout, old: Mapping[str, Any], new: Mapping[str, Any], literals: list[str]) -> list[str]:
    unknown = old.keys() - new.keys()
    if unknown:
        raise DecodeError(f"the old row has a column {shown(min(unknown))} that the new one lacks")
    before = literals.copy()
    for at, (name, convert) in enumerate(zip(layout.names, layout.converters, strict=True)):
        was = old.get(name, _ABSENT)
        if was is not _ABSENT and was != new[name]:
            before[at] = NULL if was is None else convert(was)
    return before


def _blamed(layout: Layout, row: Mapping[str, Any], failure: Exception) -> DecodeError:
    """The failure again, with the name and type of the column that caused it."""
    for name, label, convert in zip(layout.names, layout.labels, layout.converters, strict=True):
        try:
            if row.get(name) is not None:
                convert(row[name])
        except (TypeError, AttributeError):
            reason = f"column {shown(name)} ({label}): {shown(row[name])} is of the wrong JSON type"
            return DecodeError(reason, Code.BAD_VALUE)
        except (*FAILURES, DecodeError) as found:
            code = getattr(found, "code", Code.MALFORMED)
            code = Code.BAD_VALUE if code is Code.MALFORMED else code
            return DecodeError(f"column {shown(name)} ({label}): {explain(found)}", code)
    return DecodeError(explain(failure))
