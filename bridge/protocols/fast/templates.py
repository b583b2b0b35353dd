"""Knows the templates of messages, as the compiled functions read them, and the kinds of messages that have them.

A *template* is what is the same in messages that are equal except for their values and their table.  Only parsing tells
that of a message, so the template of the last parsed message of the same *kind* is assumed.  The kind needs no parsing:
it is the bytes that name the table and the operation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from bridge.events import RowChange
from bridge.protocols.debezium.columns import document, raw_literal, scale_of, wrapped_unsigned
from bridge.protocols.debezium.values import binary, date_days, datetime_micros, datetime_millis, zoned_timestamp
from bridge.protocols.fast.compiled import codes
from bridge.protocols.fast.compiled.functions import fill_slots
from bridge.protocols.fast.lessons import Hole, Lesson, Members, Node, OldRow, PlaceHole, ValueHole, flattened
from bridge.protocols.fast.texts import BEHIND
from bridge.protocols.open_protocol.types import base64_binary, base64_text
from bridge.protocols.values import literals
from bridge.protocols.values.event_time import NUMBER_DIGITS
from bridge.protocols.values.literals import Converter

IMAGES: Final = ("before", "after")
"""The images of an event; a step names one by its number."""
_USUAL_STRINGS: Final[dict[Converter, int]] = {
    literals.text: codes.TEXT,
    raw_literal: codes.TEXT,
    base64_text: codes.BASE64,
    base64_binary: codes.BYTES_IN_BASE64,
    literals.latin1: codes.LATIN1,
    literals.integer: codes.INTEGER,
    **dict.fromkeys((literals.unsigned, *literals.UNSIGNED.values()), codes.NATURAL),
    literals.decimal: codes.DECIMAL,
    literals.date: codes.DATE,
    literals.datetime: codes.DATETIME,
    literals.time: codes.TIME,
    binary: codes.BYTES_IN_BASE64,
    document: codes.JSON_TEXT,
    zoned_timestamp: codes.ZONED,
}
"""Converters of strings, and the strings whose literals the compiled functions make as they do."""
_USUAL_NUMBERS: Final[dict[Converter, int]] = {
    literals.integer_number: codes.INTEGER,
    literals.double_number: codes.DOUBLE,
    raw_literal: codes.INTEGER_OR_DOUBLE,
    literals.unsigned_number: codes.NATURAL,
    wrapped_unsigned: codes.NATURAL,
    date_days: codes.DAYS,
    datetime_millis: codes.MILLIS,
    datetime_micros: codes.MICROS,
}
"""The same for numbers."""
Rows = npt.NDArray[np.int32]
"""A table of numbers."""


class Template(NamedTuple):
    """A template, apart from its steps.

    event: an event of the template.
    moment: see `Lesson`.
    cells: how many values a message has.
    """

    event: RowChange
    moment: Callable[[str], int] | None
    cells: int


@dataclass(frozen=True)
class Arrays:
    """What the compiled functions take; see `compiled.walk.walk` and `compiled.writing.write_places`.

    place_sizes: for each template, how many bytes the places of its events have.
    has_image: for each template, whether its events have the images.
    """

    table: Rows
    templates: Rows
    steps: Rows
    consts: npt.NDArray[np.uint8]
    members: Rows
    slots: Rows
    place_firsts: Rows
    place_parts: Rows
    place_sizes: npt.NDArray[np.int64]
    has_image: npt.NDArray[np.bool_]


class Templates:
    """The templates of a protocol's messages."""

    def __init__(self) -> None:
        self.all: list[Template] = []
        self.converters: dict[int, Converter] = {}
        """The converter of each step VALUE."""
        self.names: list[tuple[str, str]] = []
        """Schema and table of each kind."""
        self.has_moments = False
        """Whether all templates have moments, and no commit ts; in a protocol, all have or none."""
        self._consts = bytearray()
        self._places: dict[bytes, int] = {}
        self._ranges: list[tuple[int, int]] = []
        self._steps: list[tuple[int, int, int, int]] = []
        self._members: list[tuple[int, int]] = []
        self._slots: list[Rows] = []
        self._place_firsts, self._place_parts = [0], list[tuple[int, int, int]]()
        self._place_sizes: list[int] = []
        self._table: list[list[int]] = []
        self._templates: dict[Hashable, int] = {}
        self._arrays: Arrays | None = None

    @property
    def size(self) -> int:
        """About how many bytes all this takes."""
        return len(self._consts) + 32 * (len(self._steps) + len(self._members) + len(self._table))

    def add_kind(self, template: int, schema: str, table: str) -> int:
        """Gives the number of a new kind of messages that have a template."""
        self.names.append((schema, table))
        self._table.append([template, *self._constant(orjson.dumps(schema)), *self._constant(orjson.dumps(table))])
        self._arrays = None
        return len(self._table) - 1

    def template_of_kind(self, number: int) -> int:
        """Gives the number of the template that messages of a kind have."""
        return self._table[number][0]

    def template_of(self, lesson: Lesson, likeness: Hashable) -> int:
        """Gives the number of the template of a message; a template that is not known is learned from it."""
        number = self._templates.get(likeness)
        if number is not None:
            return number
        first, flat = len(self._steps), flattened(lesson.tree)
        for constant, node in zip(flat.between, [*flat.nodes, None], strict=True):
            if constant:
                self._steps.append((codes.CONSTANT, *self._constant(constant.encode()), 0))
            if node is not None:
                self._add(node, lesson)
        self._ranges.append((first, len(self._steps)))
        cells = sum(step[0] == codes.VALUE for step in self._steps[first:])
        self.all.append(Template(lesson.event, lesson.moment, cells))
        names = [name.encode() for name, _ in lesson.place]
        self._place_parts += [
            (*self._constant(name), column) for name, (_, column) in zip(names, lesson.place, strict=True)
        ]
        self._place_firsts.append(len(self._place_parts))
        self._place_sizes.append(sum(len(name) + NUMBER_DIGITS for name in names))
        self.has_moments |= lesson.moment is not None
        self._arrays = None
        number = self._templates[likeness] = len(self.all) - 1
        return number

    def _add(self, node: Node, lesson: Lesson) -> None:
        """Adds the steps of a node."""
        if not isinstance(node, OldRow):
            self._steps.append(self._step(node, lesson))
            return
        # The new row's values come first, as no other can be taken for those that the old row lacks
        self._steps.append((codes.OLD, len(self._members), len(node.names), 0))
        self._members += [self._constant(orjson.dumps(name) + b":") for name in node.names]
        for column in range(len(node.names)):
            self._steps.append(self._step(ValueHole("before", column), lesson))

    def _step(self, node: ValueHole | Hole | Members | PlaceHole, lesson: Lesson) -> tuple[int, int, int, int]:
        if isinstance(node, ValueHole):
            convert = self.converters[len(self._steps)] = lesson.layout.converters[node.column]
            strings, numbers = (usual.get(convert, codes.UNUSUAL) for usual in (_USUAL_STRINGS, _USUAL_NUMBERS))
            if (scale := scale_of(convert)) in range(codes.LARGEST_SCALE + 1):
                strings = codes.UNSCALED + (scale or 0)
            return codes.VALUE, strings, numbers, IMAGES.index(node.image)
        if isinstance(node, PlaceHole):
            return node.what, node.column, 0, 0
        if isinstance(node, Hole):
            return node, 0, 0, 0
        return self._object(node)

    def _object(self, part: Members) -> tuple[int, int, int, int]:
        first = len(self._members)
        self._members += [self._constant(member) for member in part.members]
        slots = np.full(2 << len(part.members).bit_length(), codes.NOT_READ, np.int32)
        consts = self._bytes()
        members = _rows(self._members, 2)
        fill_slots(consts, members, first, len(members), slots, len(slots))
        at = sum(map(len, self._slots))
        self._slots.append(slots)
        return codes.SAME, at, len(part.members), len(slots)

    def _constant(self, content: bytes) -> tuple[int, int]:
        """Gives where these bytes begin in the constants, and how many they are."""
        at = self._places.get(content)
        if at is None:
            at = self._places[content] = len(self._consts)
            self._consts += content
        return at, len(content)

    def _bytes(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(bytes(self._consts) + bytes(BEHIND), np.uint8)

    def arrays(self) -> Arrays:
        """Gives all that is known, for the compiled functions."""
        if self._arrays is None:
            self._arrays = Arrays(
                _rows(self._table, 5),
                _rows(self._ranges, 2),
                _rows(self._steps, 4),
                self._bytes(),
                _rows(self._members, 2),
                np.concatenate([np.empty(0, np.int32), *self._slots]),
                np.array(self._place_firsts, np.int32),
                _rows(self._place_parts, 3),
                np.array(self._place_sizes, np.int64),
                np.array([[getattr(template.event, image) is not None for image in IMAGES] for template in self.all]),
            )
        return self._arrays


def _rows(rows: list[Any], width: int) -> Rows:
    return np.array(rows, np.int32).reshape(-1, width)
