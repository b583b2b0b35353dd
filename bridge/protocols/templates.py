r"""Templates: a message that equals a known one but for its values is matched, not parsed.

The messages of a table differ in their values only: names, types and order stay, byte for byte.  So once some messages
of a kind have been decoded, a template is learnt of them: a regular expression of all that stays, with holes for the
values, and a function that makes the event of what stands in the holes.  That takes a third of the time that parsing
takes, and what does not match is parsed as ever.

It is exact, because a text without backslashes and control characters is easily read: a string of JSON ends at the next
quotation mark and is what stands before it.  A template is taken into use only when it makes of the message it was
learnt from the very event that parsing made.

The source that is compiled is made of constants alone; nothing from the wire is in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from itertools import islice
from types import CodeType
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from bridge.events import Event
from bridge.protocols import literals
from bridge.protocols.debezium_columns import raw_literal
from bridge.protocols.decoder import FAILURES, MAX_CACHED, DecodeError
from bridge.protocols.images import Layout
from bridge.protocols.literals import NULL, Converter

_LOOKED_AT: Final = 32
"""So many messages of a kind are parsed before a template is learnt, which takes as long as parsing a thousand.  Of
those that do not match, the last 32 are looked at when it has come to 64, 128, 256 and so on: then it is learnt anew,
with the JSON types that they hold."""
_MOST_CELLS: Final = 512
_LONG: Final = 200
"""Characters from which on what stays is compared as a whole: a regular expression goes through it one by one."""
_LONGEST_KIND: Final = 1000
"""Bytes; two names of 64 characters stand in it.  Kinds are remembered, and bytes from the wire make them."""
_CHECKED_AT_ONCE: Final = 1000

_NATURAL: Final = "[1-9][0-9]{0,18}|0"
_INTEGER: Final = _NATURAL + "|-[1-9][0-9]{0,17}"
"""Canonical, and within signed or unsigned 64 bits."""
_NUMBER: Final = r"(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
_TSO: Final = "[1-9][0-9]{0,17}"
_TEXT: Final = '"([^"]*)"'
_NULL_PATTERN: Final = "null"
_STRICT_TEXT: Final = r'"([^"\x00-\x1f]*)"'

_TEXTS: Final = frozenset({literals.text, raw_literal})
_DIGITS: Final = {
    literals.integer: _INTEGER,
    **dict.fromkeys((literals.unsigned, *literals.UNSIGNED.values()), _NATURAL),
}
_INTEGERS: Final = frozenset({literals.integer_number, raw_literal})
"""Converters whose literal holds the value as it stands: in a string, in a string of digits, as a number."""


class Hole(Enum):
    """What stands in a message instead of a value that is not a column's."""

    COMMIT_TS = auto()
    """A TSO."""
    MOMENT = auto()
    """A string that `Row.moment` makes a TSO."""
    NUMBER = auto()
    """An integer that says nothing."""
    TEXT = auto()
    """A string that says nothing."""


class Cell(NamedTuple):
    """Where a column's value stands: the image it belongs to, and its number there."""

    image: str
    column: int


class Row(NamedTuple):
    """What a template makes events of, beside the values.

    images: "before" and "after", as JSON gave them; a message may lack one.
    moment: a text to its TSO, where the tree has a `Hole.MOMENT`.
    """

    layout: Layout
    images: Mapping[str, Mapping[str, Any]]
    moment: Callable[[str], int] | None = None


Template = Callable[[str, int, int], Event | None]
"""A message's text to its event, None where it is another.  The commit_ts and index are those of the event where the
text does not hold them."""

Tree = Callable[[], Any]
"""Gives a message as JSON gave it, with holes and cells where its values stand."""


def cells(image: str, row: Iterable[str]) -> dict[str, Cell]:
    """A row with cells for its values."""
    return {name: Cell(image, column) for column, name in enumerate(row)}


@dataclass
class _Known:
    """What is known of one kind of message: how many had to be parsed, and the JSON types seen in each cell."""

    missed: int = 0
    learn_at: int = _LOOKED_AT
    layout: Layout | None = None
    types: list[set[type]] = field(default_factory=list)


class Templates:
    """The templates of a decoder, `of` each kind of message: of what tells at a glance which it is.

    strict: messages may hold control characters, since `plain` has not looked.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self._known: dict[Hashable, _Known] = {}
        self._text = _STRICT_TEXT if strict else _TEXT
        self.of: dict[Hashable, Template] = {}

    def wants(self, kind: Hashable) -> bool:
        """To be asked of each message that had to be parsed: whether `note` wants to know of it."""
        if isinstance(kind, bytes) and len(kind) > _LONGEST_KIND:
            return False
        known = self._known.get(kind)
        if known is None:
            if len(self._known) >= MAX_CACHED:
                self._known.clear()
                self.of.clear()
            known = self._known[kind] = _Known()
        known.missed += 1
        return known.missed > known.learn_at - _LOOKED_AT

    def note(self, kind: Hashable, text: bytes, event: Event, row: Row, tree: Tree, head: str = "") -> None:
        """A message of a kind that is wanted, and the event it gave; a template is learnt when it is time.

        head: how every text of the kind begins, which need not be looked at again.
        """
        known = self._known[kind]
        if any(tuple(image) != row.layout.names for image in row.images.values()):
            return
        if known.layout is not row.layout:
            self.of.pop(kind, None)
            known.layout, known.types = row.layout, [set() for image in row.images.values() for _ in image]
        values = (value for image in row.images.values() for value in image.values())
        for types, value in zip(known.types, values, strict=True):
            types.add(type(value))
        if known.missed >= known.learn_at:
            known.learn_at *= 2
            with suppress(*FAILURES, DecodeError):
                self._learn(kind, text.decode(), event, row, tree(), known.types, head)

    def _learn(
        self, kind: Hashable, text: str, event: Event, row: Row, tree: Any, types: list[set[type]], head: str
    ) -> None:
        readings = _readings(row, types)
        if readings is None:
            return
        template = _template(tree, event, row, readings, _How(self._text, head, text.count("'")))
        if template(text, event.commit_ts, event.index) == event:
            self.of[kind] = template


def plain(values: Iterable[bytes | None]) -> bool:
    """Whether messages hold no control characters, which JSON has between tokens and never inside strings."""
    rest = filter(None, values)
    while some := b"".join(islice(rest, _CHECKED_AT_ONCE)):
        if np.frombuffer(some, np.uint8).min() < ord(" "):
            return False
    return True


class _Reading(NamedTuple):
    """How a cell is read: its pattern and the expression, of a value V and its converter C, that gives the literal, or
    what stands between the quotation marks of one."""

    pattern: str
    expression: str
    quoted: bool = False


def _readings(row: Row, types: Sequence[set[type]]) -> dict[Cell, _Reading] | None:
    """How each cell is read, None when one cannot be."""
    all_cells = [cell for image, values in row.images.items() for cell in cells(image, values).values()]
    found = {
        cell: reading
        for cell, seen in zip(all_cells, types, strict=True)
        if (reading := _reading(row.layout.converters[cell.column], seen)) is not None
    }
    return found if len(found) == len(all_cells) else None


def _reading(convert: Converter, types: set[type]) -> _Reading | None:
    present = types - {type(None)}
    if not present:
        return _Reading(_NULL_PATTERN, "null")
    reading = _of_type(convert, present)
    if reading is None or present == types:
        return reading
    expression = f"quoted({reading.expression})" if reading.quoted else reading.expression
    return _Reading(f"(?:{reading.pattern}|null)", f"null if V is None else {expression}")


def _of_type(convert: Converter, types: set[type]) -> _Reading | None:
    if types == {str}:
        if convert in _DIGITS:
            return _Reading(f'"({_DIGITS[convert]})"', "V")
        return _Reading(_TEXT, "V", quoted=True) if convert in _TEXTS else _Reading(_TEXT, "C(V)")
    if types == {int}:
        return _Reading(f"({_INTEGER})", "V" if convert in _INTEGERS else "C(int(V))")
    if types <= {int, float}:
        return _Reading(_NUMBER, "C(loads(V))")
    return _Reading("(true|false)", "C(loads(V))") if types == {bool} else None


class _How(NamedTuple):
    """text: the pattern of a string; head: how the texts begin; quotes: how many single ones they have without those
    in values, which need escaping."""

    text: str
    head: str
    quotes: int


class _Tokens:
    """A tree as text: what stays between holes, and the holes with their patterns.

    between: one more than holes.
    groups: what the groups of the patterns are, in order.
    """

    def __init__(self, tree: Any, readings: Mapping[Cell, _Reading], text: str) -> None:
        self._readings, self._text = readings, text
        self.between, self.patterns, self.groups = [""], list[str](), list[Cell | Hole]()
        self._add(tree)

    def _add(self, node: Any) -> None:
        if isinstance(node, dict):
            self._stays("{")
            for number, (name, value) in enumerate(node.items()):
                self._stays("," * (number > 0) + orjson.dumps(name).decode() + ":")
                self._add(value)
            self._stays("}")
        elif isinstance(node, list):
            self._stays("[")
            for number, value in enumerate(node):
                self._stays("," * (number > 0))
                self._add(value)
            self._stays("]")
        elif isinstance(node, Cell | Hole):
            self._varies(node)
        else:
            self._stays(orjson.dumps(node).decode())

    def _stays(self, text: str) -> None:
        self.between[-1] += text

    def _varies(self, node: Cell | Hole) -> None:
        pattern = _HOLES[node] if isinstance(node, Hole) else self._readings[node].pattern
        self.patterns.append(pattern.replace(_TEXT, self._text))
        self.between.append("")
        if node not in _SILENT and pattern != _NULL_PATTERN:
            self.groups.append(node)

    def steps(self, head: str) -> Iterator[tuple[str, str]]:
        """What stays at the length of a paragraph, and the pattern of what comes between that and the next such; the
        first pattern begins behind `head`, with which the text is known to begin."""
        first = self.between[0].removeprefix(head)
        if len(first) == len(self.between[0]):
            head = ""
        constant, pattern = head, re.escape(first)
        for hole, between in zip(self.patterns, self.between[1:], strict=True):
            pattern += hole
            if len(between) >= _LONG:
                yield constant, pattern
                constant, pattern = between, ""
            else:
                pattern += re.escape(between)
        yield constant, pattern


def _template(tree: Any, event: Event, row: Row, readings: Mapping[Cell, _Reading], how: _How) -> Template:
    tokens = _Tokens(tree, readings, how.text)
    variables = {group: f"v{number}" for number, group in enumerate(tokens.groups)}
    steps = list(tokens.steps(how.head))
    images = {image: _image(image, readings, variables) for image in row.images}
    source = _SOURCE.format(
        quotes="text.count(quote) != quotes" if how.quotes else "quote in text",
        steps="\n ".join(_lines(steps, iter(variables.values()))),
        commit_ts=_commit_ts(variables),
        before=images.get("before"),
        after=images.get("after"),
    )
    names: dict[str, Any] = {
        **_NAMES,
        **{f"c{number}": converter for number, converter in enumerate(row.layout.converters)},
        **{f"constant{number}": constant for number, (constant, _) in enumerate(steps)},
        **{f"match{number}": re.compile(pattern).match for number, (_, pattern) in enumerate(steps[:-1])},
        f"match{len(steps) - 1}": re.compile(steps[-1][1]).fullmatch,
        **{name: getattr(event, name) for name in ("kind", "schema", "table", "columns", "key", "by_time")},
        "moment": row.moment,
        "quotes": how.quotes,
    }
    exec(_compiled(source), names)  # constants
    made: Template = names["event"]
    return made


def _lines(steps: Sequence[tuple[str, str]], variables: Iterator[str]) -> Iterator[str]:
    """Lines that match step by step, and name the groups."""
    for number, (constant, pattern) in enumerate(steps):
        start = str(len(constant))
        if number:
            yield f"at = found.end()\n if not text.startswith(constant{number}, at): return None"
            start = f"at + {start}"
        yield f"found = match{number}(text, {start})\n if found is None: return None"
        mine = "".join(f"{variable}, " for variable in islice(variables, re.compile(pattern).groups))
        if mine:
            yield f"{mine}= found.groups()"


def _commit_ts(variables: Mapping[Cell | Hole, str]) -> str:
    if Hole.COMMIT_TS in variables:
        return f"int({variables[Hole.COMMIT_TS]})"
    return f"moment({variables[Hole.MOMENT]})" if Hole.MOMENT in variables else "commit_ts"


def _image(image: str, readings: Mapping[Cell, _Reading], variables: Mapping[Cell | Hole, str]) -> str:
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
def event(text, commit_ts, index):
 if backslash in text or {quotes}: return None
 {steps}
 return new(Event, (kind, {commit_ts}, index, schema, table, columns, key, {before}, {after}, None, by_time))
"""
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
_HOLES: Final = {Hole.COMMIT_TS: f"({_TSO})", Hole.MOMENT: _TEXT, Hole.NUMBER: f"(?:{_INTEGER})", Hole.TEXT: '"[^"]*"'}
