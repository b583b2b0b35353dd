"""Row conversion written out column by column, with the common case of the commonest types in line: half the time of a
loop that calls a converter for each value.

The source that is compiled is made of the constants here alone; nothing from the wire is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any, Final

from bridge.events import SEP
from bridge.protocols.debezium.columns import raw_literal
from bridge.protocols.values import literals
from bridge.protocols.values.literals import MAX_INTEGER, MIN_INTEGER, NULL, Converter

RowConverter = Callable[[Mapping[str, Any]], str]
"""A row to its image."""

_CALLED: Final = "{c}({v})"
_DIGITS: Final = (
    "{v} if {v}.isdecimal() and {v}.isascii() and ({v}[0] != '0' or {v} == '0') and len({v}) < 19 else " + _CALLED
)
_PLAIN_TEXT: Final = r""" "".join(("'", {v}, "'")) if not ("'" in {v} or "\\" in {v} or "\0" in {v}) else """ + _CALLED
_SMALL_NUMBER: Final = f"str({{v}}) if type({{v}}) is int and {MIN_INTEGER} <= {{v}} <= {MAX_INTEGER} else {_CALLED}"
_RAW: Final = (
    f"str({{v}}) if type({{v}}) is int and {MIN_INTEGER} <= {{v}} <= {MAX_INTEGER} else"
    r""" "'" + {v} + "'" if type({v}) is str and not ("'" in {v} or "\\" in {v} or "\0" in {v}) else """ + _CALLED
)
_RAW_PARTS: Final = {str: "'{{{v}}}'", int: "{{{v}}}", type(None): NULL}
_MOST_TYPES: Final = 32
_IN_LINE: Final[dict[Converter, str]] = {
    literals.text: _PLAIN_TEXT,
    literals.integer: _DIGITS,
    literals.unsigned: _DIGITS,
    **dict.fromkeys(literals.UNSIGNED.values(), _DIGITS),
    literals.integer_number: _SMALL_NUMBER,
    raw_literal: _RAW,
}
"""What a converter does with most values, as an expression that fails or calls it with all others.  Joining texts fails
with what is no text, as the converters do."""


def unrolled(converters: Sequence[Converter]) -> RowConverter:
    """A function from a row with as many values, in the order of the converters, to its image."""
    names: dict[str, Any] = {f"c{at}": converter for at, converter in enumerate(converters)}
    exec(_compiled(tuple(_IN_LINE.get(converter, _CALLED) for converter in converters)), names)  # constants
    made: RowConverter = names["image"]
    if all(one is literals.text for one in converters):
        return _of_texts(made)
    return _of_raw(made) if all(one is raw_literal for one in converters) else made


def _of_texts(otherwise: RowConverter) -> RowConverter:
    """The same for rows of texts, which are checked all at once; `otherwise` makes the image of what needs more."""

    between = f"'{SEP}'"

    def image(row: Mapping[str, Any]) -> str:
        values = row.values()
        try:
            together = "".join(values)
        except TypeError:  # a NULL, or what is no text
            return otherwise(row)
        if "'" in together or "\\" in together or "\0" in together:
            return otherwise(row)
        return f"'{between.join(values)}'"

    return image


def _of_raw(otherwise: RowConverter) -> RowConverter:
    """The same for rows of raw values: written out for the JSON types that a row has, and those seldom change."""
    by_types: dict[tuple[type, ...], Callable[[Iterable[Any]], str | None]] = {}

    def image(row: Mapping[str, Any]) -> str:
        values = row.values()
        types = tuple(map(type, values))
        convert = by_types.get(types)
        if convert is None:
            if len(by_types) == _MOST_TYPES:
                return otherwise(row)
            convert = by_types[types] = _raw_image(types)
        return convert(values) or otherwise(row)

    return image


def _raw_image(types: tuple[type, ...]) -> Callable[[Iterable[Any]], str | None]:
    """Values of these types to their image; None where a text needs escaping.  An int of JSON fits 64 bits."""
    names: dict[str, Any] = {"raw": raw_literal}
    exec(_compiled_raw(tuple(_RAW_PARTS.get(one, "{{raw({v})}}") for one in types)), names)  # constants
    made: Callable[[Iterable[Any]], str | None] = names["image"]
    return made


@lru_cache(maxsize=1024)
def _compiled_raw(parts: tuple[str, ...]) -> CodeType:
    values = "".join(f"v{at}, " for at in range(len(parts)))
    texts = "".join(f"v{at}, " for at, part in enumerate(parts) if part == _RAW_PARTS[str])
    joined = "\\0".join(part.format(v=f"v{at}") for at, part in enumerate(parts))
    source = (
        f"def image(values):\n {values}= values\n t = ''.join(({texts}))\n"
        r""" if "'" in t or "\\" in t or "\0" in t: return None"""
        f'\n return f"{joined}"'
    )
    return compile(source, "<image>", "exec")


@lru_cache(maxsize=1024)
def _compiled(expressions: tuple[str, ...]) -> CodeType:
    values = "".join(f"v{at}, " for at in range(len(expressions)))
    items = "".join(
        f"({NULL!r} if v{at} is None else {expression.format(v=f'v{at}', c=f'c{at}')}), "
        for at, expression in enumerate(expressions)
    )
    return compile(f"def image(row):\n {values}= row.values()\n return '\\0'.join(({items}))", "<image>", "exec")
