"""Makes the code of a template (see `learner`) from a message: its regular expressions and the function around them.

The source that is compiled is made of constants alone; nothing from the wire is in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from types import CodeType
from typing import Any, Final, NamedTuple

import orjson

from bridge.events import Event
from bridge.protocols.fast.column_literals import DIGITS, INTEGER, INTEGERS, TEXTS
from bridge.protocols.fast.message_shape import TSO, Cell, Hole, Lesson, Node, Part, Types, flattened
from bridge.protocols.values.literals import NULL, Converter

TEXT: Final = '"([^"]*)"'
STRICT_TEXT: Final = r'"([^"\x00-\x1f]*)"'
"""A string, where the message is known to hold no control characters, and where it is not."""

_MOST_CELLS: Final = 512
_LONG: Final = 200
"""Characters from which on what stays is compared as a whole: a regular expression goes through it one by one."""
_LONGEST: Final = 1 << 16
"""Characters that stay, in a message that is learnt from."""

_NUMBER: Final = r"(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
_NULL_PATTERN: Final = "null"
_OBJECT: Final = r"(\{[^}]*\})"
"""A JSON object without others inside, or with a brace in a string, or no JSON at all: what it is, `Part` tells."""


Template = Callable[[str, int, int, str, str], Event | None]
"""A message's text to its event, None where it is another; it may fail, too.  The commit_ts, index, schema and table
are those of the event where the text does not hold them."""


class Made(NamedTuple):
    """A template, and how many characters it holds."""

    template: Template
    size: int


def make_template(lesson: Lesson, types: Types, text: str) -> Made | None:
    """The template of messages like this one whose values have these types; text: the pattern of a string.

    None where they cannot be read without parsing.  May fail, as FAILURES do, on a message that is unlike any.
    """
    readings = _readings(lesson, types)
    if readings is None:
        return None
    tokens = _Tokens(lesson.tree, readings, text)
    size = sum(map(len, tokens.between))
    return Made(_compile(lesson, readings, tokens), size) if size <= _LONGEST else None


class _Reading(NamedTuple):
    """How a cell is read: its pattern and the expression, of a value V and its converter C, that gives the literal, or
    what stands between the quotation marks of one."""

    pattern: str
    expression: str
    quoted: bool = False


def _readings(lesson: Lesson, types: Types) -> dict[Cell, _Reading] | None:
    """How each cell is read, None when one cannot be."""
    seen = {Cell(image, column): one for image, columns in types.items() for column, one in enumerate(columns)}
    if len(seen) > _MOST_CELLS:
        return None
    converters = lesson.layout.converters
    found = {cell: reading for cell, one in seen.items() if (reading := _reading(converters[cell.column], one))}
    return found if len(found) == len(seen) else None


def _reading(convert: Converter, types: set[type]) -> _Reading | None:
    present = types - {type(None)}
    if not present:
        return _Reading(_NULL_PATTERN, "null")
    reading = _of_type(convert, present)
    if reading is None or present == types:
        return reading
    expression = f"null if V is None else {'quoted(V)' if reading.quoted else reading.expression}"
    return _Reading(f"(?:{reading.pattern}|null)", expression)


def _of_type(convert: Converter, types: set[type]) -> _Reading | None:
    if types == {str}:
        if convert in DIGITS:
            return _Reading(f'"({DIGITS[convert]})"', "V")
        return _Reading(TEXT, "V", quoted=True) if convert in TEXTS else _Reading(TEXT, "C(V)")
    if types == {int}:
        return _Reading(f"({INTEGER})", "V" if convert in INTEGERS else "C(int(V))")
    if types <= {int, float}:
        return _Reading(_NUMBER, "C(loads(V))")
    return _Reading("(true|false)", "C(loads(V))") if types == {bool} else None


def _pattern(node: Node, readings: Mapping[Cell, _Reading]) -> str:
    if isinstance(node, Part):
        return _OBJECT
    return _HOLES[node] if isinstance(node, Hole) else readings[node].pattern


class _Tokens:
    """A tree as text, with the patterns of what stands in its holes.

    between: one more than patterns.
    groups: what the groups of the patterns are, in order.
    """

    def __init__(self, tree: Any, readings: Mapping[Cell, _Reading], text: str) -> None:
        flat = flattened(tree)
        patterns = [_pattern(node, readings) for node in flat.nodes]
        self.between = flat.between
        self.patterns = [pattern.replace(TEXT, text) for pattern in patterns]
        self.groups = [
            node
            for node, pattern in zip(flat.nodes, patterns, strict=True)
            if node not in _SILENT and pattern != _NULL_PATTERN
        ]

    def steps(self) -> list[tuple[str, re.Pattern[str]]]:
        """What stays at some length, and the pattern of what comes between that and the next such."""
        steps, constant, pattern = [], "", re.escape(self.between[0])
        for hole, between in zip(self.patterns, self.between[1:], strict=True):
            pattern += hole
            if len(between) >= _LONG:
                steps.append((constant, re.compile(pattern)))
                constant, pattern = between, ""
            else:
                pattern += re.escape(between)
        return [*steps, (constant, re.compile(pattern))]


def _compile(lesson: Lesson, readings: Mapping[Cell, _Reading], tokens: _Tokens) -> Template:
    variables = {node: f"v{number}" for number, node in enumerate(tokens.groups)}
    steps = tokens.steps()
    images = {image: _image(image, readings, variables) for image in lesson.images}
    quoted = "".join(f"{variables[c]} or '', " for c, r in readings.items() if c in variables and "quoted" in _uses(r))
    parts = {variable: node for node, variable in variables.items() if isinstance(node, Part)}
    source = _SOURCE.format(
        steps="\n ".join(_lines(steps, iter(variables.values()))),
        parts="".join(f"\n if not {variable}_is_it({variable}): return None" for variable in parts),
        quoted=quoted,
        commit_ts=_commit_ts(variables),
        schema=variables.get(Hole.SCHEMA, "schema"),
        table=variables.get(Hole.TABLE, "table"),
        before=images.get("before"),
        after=images.get("after"),
    )
    names: dict[str, Any] = {
        **_NAMES,
        **{f"c{number}": converter for number, converter in enumerate(lesson.layout.converters)},
        **{f"constant{number}": constant for number, (constant, _) in enumerate(steps)},
        **{f"match{number}": pattern.match for number, (_, pattern) in enumerate(steps[:-1])},
        f"match{len(steps) - 1}": steps[-1][1].fullmatch,
        **{f"{variable}_is_it": part.is_it for variable, part in parts.items()},
        **{name: getattr(lesson.event, name) for name in ("kind", "columns", "key", "by_time")},
        "moment": lesson.moment,
    }
    exec(_compiled(source), names)  # constants
    made: Template = names.pop("event")  # a function among its own globals would be a cycle
    return made


def _uses(reading: _Reading) -> str:
    return "quoted" if reading.quoted else reading.expression


def _lines(steps: Sequence[tuple[str, re.Pattern[str]]], variables: Iterator[str]) -> Iterator[str]:
    """Lines that match step by step, and name the groups."""
    for number, (constant, pattern) in enumerate(steps):
        start = str(len(constant))
        if number:
            yield f"at = found.end()\n if not text.startswith(constant{number}, at): return None"
            start = f"at + {start}"
        yield f"found = match{number}(text, {start})\n if found is None: return None"
        mine = "".join(f"{variable}, " for variable in islice(variables, pattern.groups))
        if mine:
            yield f"{mine}= found.groups()"


def _commit_ts(variables: Mapping[Node, str]) -> str:
    if Hole.COMMIT_TS in variables:
        return f"int({variables[Hole.COMMIT_TS]})"
    return f"moment({variables[Hole.MOMENT]})" if Hole.MOMENT in variables else "commit_ts"


def _image(image: str, readings: Mapping[Cell, _Reading], variables: Mapping[Node, str]) -> str:
    """The expression of an image."""
    pieces = []
    for cell, reading in readings.items():
        if cell.image == image:
            piece = f"'{{{reading.expression}}}'" if reading.quoted else f"{{{reading.expression}}}"
            pieces.append(piece.replace("V", variables.get(cell, "")).replace("C", f"c{cell.column}"))
    return 'f"' + r"\0".join(pieces) + '"'


@lru_cache(maxsize=1024)
def _compiled(source: str) -> CodeType:
    return compile(source, "<template>", "exec")


_SOURCE: Final = """
def event(text, commit_ts, index, schema, table):
 if backslash in text: return None
 {steps}{parts}
 if quote in text and quote in "".join(({quoted})): return None
 return new(Event, (kind, {commit_ts}, index, {schema}, {table}, columns, key, {before}, {after}, None, by_time))
"""
"""What a literal holds in quotation marks has no quote: with one it needs escaping, and parsing sees to that."""
_NAMES: Final[dict[str, Any]] = {
    "Event": Event,
    "new": tuple.__new__,
    "backslash": "\\",
    "quote": "'",
    "null": NULL,
    "quoted": "'{}'".format,
    "loads": orjson.loads,
}
_SILENT: Final = frozenset({Hole.NUMBER, Hole.TEXT})
_HOLES: Final = {
    Hole.SCHEMA: TEXT,
    Hole.TABLE: TEXT,
    Hole.COMMIT_TS: f"({TSO})",
    Hole.MOMENT: TEXT,
    Hole.NUMBER: f"(?:{INTEGER})",
    Hole.TEXT: '"[^"]*"',
}
