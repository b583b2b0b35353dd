"""Reads values of Avro's binary encoding (Avro 1.12, "Binary Encoding") as JSON has them.

It takes nothing that no encoder writes.  Libraries take any byte for a boolean, a branch of a union below 0, and cut
numbers of more than 64 bits (fastavro 1.13): what was damaged, or read with a wrong schema, would be a row.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

Read = Callable[[bytes, int], tuple[Any, int]]
"""Takes bytes and a place in them, and gives the value there and the place behind it.  Raises ValueError, or IndexError
where the bytes end too early."""

_MORE: Final = 0x80
_MOST_LONG, _MOST_INT = (1 << 64) - 1, (1 << 32) - 1


def _unsigned(content: bytes, at: int, most: int) -> tuple[int, int]:
    number = shift = 0
    byte = content[at]
    while byte >= _MORE and shift < 64:
        number |= (byte - _MORE) << shift
        at, shift = at + 1, shift + 7
        byte = content[at]
    number |= byte << shift
    if (shift and not byte) or number > most:
        raise ValueError("a number is longer than its type")
    return number, at + 1


def _number(most: int) -> Read:
    def read(content: bytes, at: int) -> tuple[int, int]:
        number = content[at]
        if number < _MORE:
            at += 1
        else:
            number, at = _unsigned(content, at, most)
        return (number >> 1) ^ -(number & 1), at

    return read


_long: Final = _number(_MOST_LONG)


def _null(_: bytes, at: int) -> tuple[None, int]:
    return None, at


def _boolean(content: bytes, at: int) -> tuple[bool, int]:
    byte = content[at]
    if byte > 1:
        raise ValueError("a boolean is neither 0 nor 1")
    return byte == 1, at + 1


def _real(form: str) -> Read:
    layout = Struct(form)

    def read(content: bytes, at: int) -> tuple[float, int]:
        end = at + layout.size
        if end > len(content):
            raise IndexError
        [number] = layout.unpack_from(content, at)
        if number - number:  # NaN, which JSON lacks, as it lacks the infinite ones
            raise ValueError(f"{number} is no value of MySQL's")
        return number, end

    return read


def _part(content: bytes, at: int) -> tuple[bytes, int]:
    size = content[at]
    if size < _MORE:
        at += 1
    else:
        size, at = _unsigned(content, at, _MOST_LONG)
    end = at + (size >> 1)
    if size & 1:
        raise ValueError("a length is below 0")
    if end > len(content):
        raise IndexError
    return content[at:end], end


def _text(content: bytes, at: int) -> tuple[str, int]:
    part, at = _part(content, at)
    return part.decode(), at


def _base64(content: bytes, at: int) -> tuple[str, int]:
    part, at = _part(content, at)
    return binascii.b2a_base64(part, newline=False).decode(), at


_PRIMITIVES: Final[Mapping[str, Read]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _number(_MOST_INT),
    "long": _long,
    "float": _real("<f"),
    "double": _real("<d"),
    "string": _text,
    "bytes": _base64,
}


class Union(NamedTuple):
    """A type of which a value is of one of these."""

    branches: list[Plan]


class Record(NamedTuple):
    """A record: the names of its fields, and their types."""

    fields: list[tuple[str, Plan]]


class Array(NamedTuple):
    """An array of items of a type."""

    item: Plan


class Enum(NamedTuple):
    """A type whose values are names."""

    symbols: list[str]


Plan = str | Union | Record | Array | Enum
"""A type of Avro's, without its properties; the name of a primitive one."""


def reader(plan: Plan) -> Read:
    """Makes what reads values of a type.  Raises KeyError for a type that there is not, ValueError for a union of more
    than two."""
    match plan:
        case Record(fields):
            return _record([(name, reader(field)) for name, field in fields])
        case Union(branches):
            return _union([reader(branch) for branch in branches])
        case Array(item):
            return _array(reader(item))
        case Enum(symbols):
            return _enum(symbols)
    return _PRIMITIVES[plan]


def _union(branches: Sequence[Read]) -> Read:
    if len(branches) > 2:
        raise ValueError(f"a union of {len(branches)} types")

    def read(content: bytes, at: int) -> tuple[Any, int]:
        byte = content[at]
        if byte & 1 or byte > 2 * len(branches) - 2:
            raise ValueError("a union has no such branch")
        return branches[byte >> 1](content, at + 1)

    return read


def _enum(symbols: Sequence[str]) -> Read:
    def read(content: bytes, at: int) -> tuple[str, int]:
        number, at = _unsigned(content, at, _MOST_INT)
        if number & 1:
            raise ValueError("an enum has no such symbol")
        return symbols[number >> 1], at

    return read


def _record(fields: Sequence[tuple[str, Read]]) -> Read:
    def read(content: bytes, at: int) -> tuple[dict[str, Any], int]:
        values = {}
        for name, read_field in fields:
            values[name], at = read_field(content, at)
        return values, at

    return read


def _array(item: Read) -> Read:
    def read(content: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, at = _long(content, at)
            if count < 0:  # the block's size in bytes follows
                _, at = _long(content, at)
            if abs(count) > len(content):  # each takes a byte at least
                raise ValueError("an array has more items than bytes")
            if not count:
                return items, at
            for _ in range(abs(count)):
                value, at = item(content, at)
                items.append(value)

    return read
