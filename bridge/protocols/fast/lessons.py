"""Describes what a template is learned from: a parsed message with holes for all that differs between its messages."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import orjson

from bridge.events import RowChange
from bridge.protocols.decoder import DecodeError
from bridge.protocols.fast.compiled import codes
from bridge.protocols.values.event_time import COORDINATES_SEP, NUMBER_DIGITS
from bridge.protocols.values.row_image import Layout


class Hole(IntEnum):
    """A place in a message whose content differs from message to message: its step (`compiled.codes`).  No event needs
    what is at a NUMBER, TEXT or SCALAR."""

    SCHEMA = codes.SCHEMA
    TABLE = codes.TABLE
    COMMIT_TS = codes.COMMIT_TS
    MOMENT = codes.MOMENT
    NUMBER = codes.NUMBER
    TEXT = codes.STRING
    EVENT_MS = codes.EVENT_MS
    EVENT_SECOND = codes.EVENT_SECOND
    SCALAR = codes.SCALAR
    SCALARS = codes.ANY
    KEY_END = codes.KEY_END
    COORDINATE = codes.COORDINATE
    FILE_NUMBER = codes.FILE_NUMBER
    FILE_POSITION = codes.FILE_POSITION
    SENT_MS = codes.SENT_MS
    BATCH = codes.BATCH
    ROW_OF_EVENT = codes.ROW_OF_EVENT


class PlaceHole(NamedTuple):
    """The place of a number of the event's place: what it is, and which of the numbers it belongs to."""

    what: Hole
    column: int


class Mixed(list[str | PlaceHole]):
    """A string, of which some parts differ from message to message."""


class OldRow(NamedTuple):
    """The place of an old row that may lack columns, which are then as in the new row.

    names: the columns, whose values may come in this order.
    """

    names: tuple[str, ...]


class WithKey(NamedTuple):
    """The trees of a message's key, None for one that is empty, and of its value."""

    key: Any
    value: Any


class Members:
    """An object in a message whose members are the same in every message, and may come in any order.

    members: as JSON writes them.  says: the same as one text.
    """

    def __init__(self, content: dict[str, Any]) -> None:
        """content: the object as JSON gave it."""
        self.members = [orjson.dumps({name: value})[1:-1] for name, value in content.items()]
        self.says = b",".join(sorted(self.members))


class ValueHole(NamedTuple):
    """The place of a column's value: the image it belongs to, and the column's number in it."""

    image: str
    column: int


def value_holes(image: str, row: Iterable[str]) -> dict[str, ValueHole]:
    """Puts a hole in the place of each value of a row."""
    return {name: ValueHole(image, column) for column, name in enumerate(row)}


def parts_of_place(place: str | None) -> list[tuple[str, int]]:
    """Gives the parts of an event's place: the text before each number, and which number it is.  Raises DecodeError for
    a place of more numbers than the compiled functions have room for."""
    names = [] if place is None else [part[:-NUMBER_DIGITS] for part in place.split(COORDINATES_SEP)]
    if len(names) > codes.INDEX:
        raise DecodeError("a place of too many numbers")
    return [(COORDINATES_SEP * (number > 0) + name, number) for number, name in enumerate(names)]


class Lesson(NamedTuple):
    """A message to learn from.

    images: the images "before" and "after", as JSON gave them; a message may lack one, and the old row
        where the tree has an `OldRow`.
    tree: the message as JSON gave it, with holes and parts for all that differs in other messages of its template.
    moment: turns a text into a TSO, where the tree has a `Hole.MOMENT`.
    place: the parts of the event's place: a text, and which of the numbers follows it (`PlaceHole.column`).
    key: the message's key, where the tree has it.
    """

    text: bytes
    event: RowChange
    layout: Layout
    images: Mapping[str, Mapping[str, Any]]
    tree: Any
    moment: Callable[[str], int] | None = None
    place: Sequence[tuple[str, int]] = ()
    key: bytes | None = None


Node = ValueHole | Hole | Members | PlaceHole | OldRow
_NODES: Final = {ValueHole, Hole, Members, PlaceHole, OldRow}


class Flat(NamedTuple):
    """A tree as text.

    nodes: the holes and parts, in order.
    between: the constants before, between and behind the nodes, one more than there are nodes.
    """

    nodes: list[Node]
    between: list[str]


def flattened(tree: Any) -> Flat:
    """Writes a lesson's tree as JSON without spaces, as TiCDC and others do."""
    pieces: list[str | Node] = []
    _flatten(tree, pieces)
    flat, constant = Flat([], []), list[str]()
    for piece in pieces:
        if isinstance(piece, str):
            constant.append(piece)
        else:
            flat.nodes.append(piece)
            flat.between.append("".join(constant))
            constant = []
    flat.between.append("".join(constant))
    return flat


def _flatten(node: Any, pieces: list[str | Node]) -> None:
    kind = type(node)
    if kind is dict:
        before = "{"
        for name, value in node.items():
            pieces.append(f"{before}{_json(name)}:")
            _flatten(value, pieces)
            before = ","
        pieces.append("}" if node else "{}")
    elif kind is list:
        before = "["
        for value in node:
            pieces.append(before)
            _flatten(value, pieces)
            before = ","
        pieces.append("]" if node else "[]")
    elif kind in _NODES:
        pieces.append(node)
    elif kind is Mixed:
        pieces += ['"', *(_json(part)[1:-1] if isinstance(part, str) else part for part in node), '"']
    elif kind is WithKey:
        if node.key is not None:
            _flatten(node.key, pieces)
        pieces.append(Hole.KEY_END)
        _flatten(node.value, pieces)
    else:
        pieces.append(_json(node))


def _json(constant: Any) -> str:
    return orjson.dumps(constant).decode()


def likeness(lesson: Lesson) -> Hashable:
    """Gives what is equal in two messages of one template."""
    flat, event = flattened(lesson.tree), lesson.event
    nodes = tuple(node.says if isinstance(node, Members) else node for node in flat.nodes)
    stays = blake2b("\0".join(flat.between).encode(), digest_size=32).digest()
    return event.kind, event.columns, event.key, event.by_time, nodes, stays, tuple(lesson.place)
