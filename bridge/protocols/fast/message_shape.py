"""Describes what a form is learned from: a parsed message with holes for all that differs between its messages."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from enum import Enum, auto
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import orjson

from bridge.events import Event
from bridge.protocols.values.row_image import Layout


class Hole(Enum):
    """A place in a message whose content differs from message to message."""

    SCHEMA = auto()
    """The schema's name."""
    TABLE = auto()
    """The table's name."""
    COMMIT_TS = auto()
    """A TSO."""
    MOMENT = auto()
    """A string that `Lesson.moment` turns into a TSO."""
    NUMBER = auto()
    """An integer that no event needs."""
    TEXT = auto()
    """A string that no event needs."""


class Part:
    """An object in a message whose members may come in any order.

    members: its members as JSON writes them, where they are the same in every message; None where they may be any.
    says: the same as one text.
    """

    def __init__(self, found: dict[str, Any], *, is_same: bool) -> None:
        """found: the object as JSON gave it."""
        self.members = [orjson.dumps({name: value})[1:-1] for name, value in found.items()] if is_same else None
        self.says = b",".join(sorted(self.members or ()))


class ValueHole(NamedTuple):
    """The place of a column's value: the image it belongs to, and the column's number in it."""

    image: str
    column: int


def value_holes(image: str, row: Iterable[str]) -> dict[str, ValueHole]:
    """Puts a hole in the place of each value of a row."""
    return {name: ValueHole(image, column) for column, name in enumerate(row)}


class Lesson(NamedTuple):
    """A message to learn from.

    images: the images "before" and "after", as JSON gave them; a message may lack one.
    tree: the message as JSON gave it, with holes and parts for all that differs in other messages of its form.
    moment: turns a text into a TSO, where the tree has a `Hole.MOMENT`.
    guard: what else must be equal; the decoder compares it.
    tells_all: whether the message itself tells its commit ts and its number.
    """

    text: bytes
    event: Event
    layout: Layout
    images: Mapping[str, Mapping[str, Any]]
    tree: Any
    moment: Callable[[str], int] | None = None
    guard: Any = None
    tells_all: bool = True


Node = ValueHole | Hole | Part
_NODES: Final = {ValueHole, Hole, Part}


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
    else:
        pieces.append(_json(node))


def _json(constant: Any) -> str:
    return orjson.dumps(constant).decode()


def likeness(lesson: Lesson) -> Hashable:
    """Gives what is equal in two messages of one form."""
    flat, event = flattened(lesson.tree), lesson.event
    nodes = tuple(node.says if isinstance(node, Part) else node for node in flat.nodes)
    stays = blake2b("\0".join(flat.between).encode(), digest_size=32).digest()
    return event.kind, event.columns, event.key, event.by_time, nodes, stays
