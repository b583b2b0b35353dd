"""Knows the forms of messages, as the compiled functions read them, and the kinds of messages that have them.

A *form* is what is the same in messages that are equal except for their values and their table.  Only parsing tells the
form of a message, so the form of the last parsed message of the same *kind* is assumed.  The kind needs no parsing: it
is the bytes that name the table and the operation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from bridge.events import Event
from bridge.protocols.debezium.columns import document, raw_literal, scale_of, wrapped_unsigned
from bridge.protocols.debezium.values import binary, date_days, datetime_micros, datetime_millis, zoned_timestamp
from bridge.protocols.fast.compiled.codes import (
    ANY,
    BASE64,
    BATCH,
    BYTES_IN_BASE64,
    COMMIT_TS,
    CONSTANT,
    COORDINATE,
    DATE,
    DATETIME,
    DAYS,
    DECIMAL,
    DOUBLE,
    EVENT_MS,
    EVENT_SECOND,
    FILE_NUMBER,
    FILE_POSITION,
    INTEGER,
    INTEGER_OR_DOUBLE,
    JSON_TEXT,
    KEY_END,
    LARGEST_SCALE,
    LATIN1,
    MICROS,
    MILLIS,
    MOMENT,
    NATURAL,
    NOT_READ,
    NUMBER,
    OLD,
    POSITIVE,
    ROW_OF_EVENT,
    SAME,
    SCALAR,
    SCHEMA,
    SENT_MS,
    STRING,
    TABLE,
    TEXT,
    TIME,
    UNSCALED,
    UNUSUAL,
    VALUE,
    ZONED,
)
from bridge.protocols.fast.compiled.functions import fill_slots
from bridge.protocols.fast.message_shape import Hole, Lesson, Node, OldRow, Part, PlaceHole, ValueHole, flattened
from bridge.protocols.fast.texts import BEHIND
from bridge.protocols.open_protocol.types import base64_binary, base64_text
from bridge.protocols.values import literals
from bridge.protocols.values.event_time import NUMBER_DIGITS
from bridge.protocols.values.literals import Converter

IMAGES: Final = ("before", "after")
"""The images of an event; a step names one by its number."""
_USUAL_STRINGS: Final[dict[Converter, int]] = {
    literals.text: TEXT,
    raw_literal: TEXT,
    base64_text: BASE64,
    base64_binary: BYTES_IN_BASE64,
    literals.latin1: LATIN1,
    literals.integer: INTEGER,
    **dict.fromkeys((literals.unsigned, *literals.UNSIGNED.values()), NATURAL),
    literals.decimal: DECIMAL,
    literals.date: DATE,
    literals.datetime: DATETIME,
    literals.time: TIME,
    binary: BYTES_IN_BASE64,
    document: JSON_TEXT,
    zoned_timestamp: ZONED,
}
"""Converters of strings, and the strings whose literals the compiled functions make as they do."""
_USUAL_NUMBERS: Final[dict[Converter, int]] = {
    literals.integer_number: INTEGER,
    literals.double_number: DOUBLE,
    raw_literal: INTEGER_OR_DOUBLE,
    literals.unsigned_number: NATURAL,
    wrapped_unsigned: NATURAL,
    date_days: DAYS,
    datetime_millis: MILLIS,
    datetime_micros: MICROS,
}
"""The same for numbers."""
_HOLES: Final = {
    Hole.SCHEMA: SCHEMA,
    Hole.TABLE: TABLE,
    Hole.COMMIT_TS: COMMIT_TS,
    Hole.MOMENT: MOMENT,
    Hole.NUMBER: NUMBER,
    Hole.TEXT: STRING,
    Hole.EVENT_MS: EVENT_MS,
    Hole.EVENT_SECOND: EVENT_SECOND,
    Hole.POSITIVE: POSITIVE,
    Hole.SCALAR: SCALAR,
    Hole.KEY_END: KEY_END,
    Hole.COORDINATE: COORDINATE,
    Hole.FILE_NUMBER: FILE_NUMBER,
    Hole.FILE_POSITION: FILE_POSITION,
    Hole.SENT_MS: SENT_MS,
    Hole.BATCH: BATCH,
    Hole.ROW_OF_EVENT: ROW_OF_EVENT,
}

Rows = npt.NDArray[np.int32]
"""A table of numbers."""


class Form(NamedTuple):
    """A form, apart from its steps.

    event: an event of the form.
    moment: see `Lesson`.
    cells: how many values a message has.
    """

    event: Event
    moment: Callable[[str], int] | None
    cells: int


@dataclass(frozen=True)
class Arrays:
    """What the compiled functions take; see `compiled.walk.walk` and `compiled.row_images.places.write_places`.

    place_sizes: for each form, how many bytes the places of its events have.
    has_image: for each form, whether its events have the images.
    """

    table: Rows
    forms: Rows
    steps: Rows
    consts: npt.NDArray[np.uint8]
    members: Rows
    slots: Rows
    place_firsts: Rows
    place_parts: Rows
    place_sizes: npt.NDArray[np.int64]
    has_image: npt.NDArray[np.bool_]


class Forms:
    """The forms of a protocol's messages."""

    def __init__(self) -> None:
        self.forms: list[Form] = []
        self.converters: dict[int, Converter] = {}
        """The converter of each step VALUE."""
        self.names: list[tuple[str, str]] = []
        """Schema and table of each kind."""
        self.has_moments = False
        """Whether all forms have moments, and no commit ts; in a protocol, all have or none."""
        self._consts = bytearray()
        self._places: dict[bytes, int] = {}
        self._ranges: list[tuple[int, int]] = []
        self._steps: list[tuple[int, int, int, int]] = []
        self._members: list[tuple[int, int]] = []
        self._slots: list[Rows] = []
        self._place_firsts, self._place_parts = [0], list[tuple[int, int, int]]()
        self._place_sizes: list[int] = []
        self._table: list[list[int]] = []
        self._forms: dict[Hashable, int] = {}
        self._arrays: Arrays | None = None

    @property
    def size(self) -> int:
        """About how many bytes all this takes."""
        return len(self._consts) + 32 * (len(self._steps) + len(self._members) + len(self._table))

    def add_kind(self, form: int, schema: str, table: str) -> int:
        """Gives the number of a new kind of messages that have a form."""
        self.names.append((schema, table))
        self._table.append([form, *self._constant(orjson.dumps(schema)), *self._constant(orjson.dumps(table))])
        self._arrays = None
        return len(self._table) - 1

    def form_of_kind(self, number: int) -> int:
        """Gives the number of the form that messages of a kind have."""
        return self._table[number][0]

    def form_of(self, lesson: Lesson, likeness: Hashable) -> int:
        """Gives the number of the form of a message; a form that is not known is learned from it."""
        number = self._forms.get(likeness)
        if number is not None:
            return number
        first, flat = len(self._steps), flattened(lesson.tree)
        for constant, node in zip(flat.between, [*flat.nodes, None], strict=True):
            if constant:
                self._steps.append((CONSTANT, *self._constant(constant.encode()), 0))
            if node is not None:
                self._add(node, lesson)
        self._ranges.append((first, len(self._steps)))
        cells = sum(step[0] == VALUE for step in self._steps[first:])
        self.forms.append(Form(lesson.event, lesson.moment, cells))
        names = [name.encode() for name, _ in lesson.place]
        self._place_parts += [
            (*self._constant(name), column) for name, (_, column) in zip(names, lesson.place, strict=True)
        ]
        self._place_firsts.append(len(self._place_parts))
        self._place_sizes.append(sum(len(name) + NUMBER_DIGITS for name in names))
        self.has_moments |= lesson.moment is not None
        self._arrays = None
        number = self._forms[likeness] = len(self.forms) - 1
        return number

    def _add(self, node: Node, lesson: Lesson) -> None:
        """Adds the steps of a node."""
        if not isinstance(node, OldRow):
            self._steps.append(self._step(node, lesson))
            return
        # The new row's values come first, as no other can be taken for those that the old row lacks
        self._steps.append((OLD, len(self._members), len(node.names), 0))
        self._members += [self._constant(orjson.dumps(name) + b":") for name in node.names]
        for column in range(len(node.names)):
            self._steps.append(self._step(ValueHole("before", column), lesson))

    def _step(self, node: ValueHole | Hole | Part | PlaceHole, lesson: Lesson) -> tuple[int, int, int, int]:
        if isinstance(node, ValueHole):
            convert = self.converters[len(self._steps)] = lesson.layout.converters[node.column]
            strings, numbers = (usual.get(convert, UNUSUAL) for usual in (_USUAL_STRINGS, _USUAL_NUMBERS))
            if (scale := scale_of(convert)) in range(LARGEST_SCALE + 1):
                strings = UNSCALED + (scale or 0)
            return VALUE, strings, numbers, IMAGES.index(node.image)
        if isinstance(node, PlaceHole):
            return _HOLES[node.what], node.column, 0, 0
        if isinstance(node, Hole):
            return _HOLES[node], 0, 0, 0
        return self._object(node)

    def _object(self, part: Part) -> tuple[int, int, int, int]:
        if part.members is None:
            return ANY, 0, 0, 0
        first = len(self._members)
        self._members += [self._constant(member) for member in part.members]
        slots = np.full(2 << len(part.members).bit_length(), NOT_READ, np.int32)
        consts = self._bytes()
        members = _rows(self._members, 2)
        fill_slots(consts, members, first, len(members), slots, len(slots))
        at = sum(map(len, self._slots))
        self._slots.append(slots)
        return SAME, at, len(part.members), len(slots)

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
                np.array([[getattr(form.event, image) is not None for image in IMAGES] for form in self.forms]),
            )
        return self._arrays


def _rows(rows: list[Any], width: int) -> Rows:
    return np.array(rows, np.int32).reshape(-1, width)
