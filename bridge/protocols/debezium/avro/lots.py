"""Turns many messages in Avro into JSON together, by a compiled function: the same bytes that `front` makes of each.

A schema becomes steps of that function when a message of it was read by `front`: whose table its rows are is then
proven, and the function takes no row of another one.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import numpy as np
import numpy.typing as npt
import orjson

from bridge.errors import BridgeError
from bridge.protocols.debezium.avro.front import AvroFront
from bridge.protocols.debezium.avro.schemas import Plan, Record, Union, framed
from bridge.protocols.decoder import MAX_CACHED, Contents, DecodeError
from bridge.protocols.fast.compiled import codes
from bridge.protocols.fast.texts import BEHIND, Numbers, TextColumn, Texts, room

_PRIMITIVES: Final = ("boolean", "int", "long", "float", "double", "string", "bytes")
"""In the order of their steps, from AVRO_BOOLEAN on."""
_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_TIMES: Final = 6
"""A byte becomes at most so many: a character that JSON escapes by its number."""
_MOST_HELD: Final = 16 << 20
"""The most bytes of constants."""
_NO_ID, _UNREADABLE = 0, np.iinfo(np.int64).min
_Ids = tuple[int, int]
"""Of the schemas of a key and a value: those of eight bytes are below 0, and a key that is not Avro has none."""
_Lists = tuple[Contents, Contents]


class AvroLots:
    """Reads Avro with what a front has learned."""

    def __init__(self, front: AvroFront) -> None:
        self._front = front
        self._forget()

    def _forget(self) -> None:
        self._firsts: dict[_Ids, int] = {}
        self._steps = _Steps()

    def in_json(self, keys: Contents, values: Contents) -> _Lists:
        """Gives messages in JSON, as `AvroFront.all_in_json` does."""
        from bridge.protocols.fast.compiled.functions import write_json  # late: its module tells that it pays

        texts = Texts.of(values, keys)
        firsts = self._firsts_of(texts, keys, values)
        steps, consts, sizes = self._steps.arrays()
        limit = _TIMES * len(texts.content) + int(sizes[firsts[firsts != codes.NOT_READ]].sum()) + BEHIND
        out, bounds = room(limit), np.empty(2 * len(values) + 1, np.int64)
        size, _ = write_json(
            texts.numbers(), texts.starts, texts.key_ends, texts.ends, len(values), firsts, steps, consts, out, bounds
        )
        texts_in_json = Texts.between(out[: size + BEHIND].tobytes(), bounds, have_keys=True)
        documents = (
            TextColumn(texts_in_json, texts_in_json.starts, texts_in_json.key_ends),
            TextColumn(texts_in_json, texts_in_json.key_ends, texts_in_json.ends),
        )
        leftover = np.flatnonzero(firsts == codes.NOT_READ).tolist()
        pairs = self._front.all_in_json([keys[number] for number in leftover], [values[number] for number in leftover])
        if not any(pairs[1]):
            return documents
        columns = list(documents[0]), list(documents[1])
        for number, key, value in zip(leftover, *pairs, strict=True):
            columns[0][number], columns[1][number] = key, value
        return columns

    def _firsts_of(self, texts: Texts, keys: Contents, values: Contents) -> npt.NDArray[np.int32]:
        """Gives the first step of each message, NOT_READ for one without."""
        of_keys, of_values = _ids(texts, texts.starts, texts.key_ends), _ids(texts, texts.key_ends, texts.ends)
        mixed = of_keys * np.int64(0x9E3779B97F4A7C1) + of_values
        _, samples, sample_of = np.unique(mixed, return_index=True, return_inverse=True)
        if len(self._firsts) + len(samples) > MAX_CACHED or len(self._steps.consts) > _MOST_HELD:
            self._forget()
        firsts = np.array([codes.NOT_READ] * len(samples), np.int32)
        with suppress(BridgeError):  # a registry that is away, of which whoever decodes one by one learns
            for place, number in enumerate(samples.tolist()):
                ids = int(of_keys[number]), int(of_values[number])
                firsts[place] = self._first(ids, keys[number], values[number])
        is_same = (of_keys == of_keys[samples][sample_of]) & (of_values == of_values[samples][sample_of])
        return np.where(is_same, firsts[sample_of], np.int32(codes.NOT_READ))

    def _first(self, ids: _Ids, key: bytes | None, value: bytes | None) -> int:
        first = self._firsts.get(ids, codes.NOT_READ)
        if first == codes.NOT_READ and value and ids[1] not in (_NO_ID, _UNREADABLE):
            with suppress(DecodeError):
                reading = self._front.reading_of(key, value)
                first = self._firsts[ids] = self._steps.add(key or b"", value, *reading)
        return first


def _ids(texts: Texts, starts: Numbers, ends: Numbers) -> Numbers:
    """Gives the ids of the schemas of keys or values, _NO_ID for those that are not framed (`schemas.framed`)."""
    heads = texts.numbers()[starts[:, None] + np.arange(9)]
    short = heads[:, 1:5].copy().view(">u4")[:, 0].astype(np.int64)
    long = heads[:, 1:9].copy().view(">i8")[:, 0].astype(np.int64)
    sizes, magic = ends - starts, heads[:, 0]
    ids = np.where(short > 0, short, np.where((sizes >= 9) & (long > 0), -long, _UNREADABLE))
    ids[(magic == 1) | (magic == 3)] = _UNREADABLE
    ids[(sizes < 5) | ~np.isin(magic, (0, 1, 3))] = _NO_ID
    return ids


class _Steps:
    """The steps and constants of all schemas."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int]] = []
        self.consts = bytearray(_LETTERS)
        self._text = bytearray()
        self._sizes: list[int] = []
        self._expected: dict[tuple[str, ...], str] = {}
        self._arrays: tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8], Numbers] | None = None

    def arrays(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8], Numbers]:
        """Gives all steps, the constants, and for each first step how many bytes its steps write at most of these."""
        if self._arrays is None:
            steps = np.array(self._rows, np.int32).reshape(-1, 3)
            sizes = np.array([*self._sizes, 0], np.int64)
            self._arrays = steps, np.frombuffer(bytes(self.consts) + bytes(BEHIND), np.uint8), sizes
        return self._arrays

    def add(
        self, key: bytes, value: bytes, key_plan: Plan | None, plan: Plan, head: bytes, table: tuple[str, str]
    ) -> int:
        """Adds the steps of a message, and gives the first.

        key_plan: None for a key that is no Avro.  head: what comes before the payload.  table: of its rows.
        """
        first, before = len(self._rows), len(self.consts)
        if key_plan is None:
            self._add(codes.AVRO_KEY_AS_IT_IS)
        else:
            self._take(key[: framed(key, "")[1]])
            self._add_value(key_plan, ())
        self._add(codes.AVRO_KEY_END)
        self._take(value[: framed(value, "")[1]])
        self._text += head
        self._expected = {("source", "db"): table[0], ("source", "table"): table[1]}
        self._add_value(plan, ())
        self._expected = {}
        self._text += b"}" if head else b""
        self._add(codes.AVRO_END)
        self._sizes += [len(self.consts) - before] * (len(self._rows) - first)
        self._arrays = None
        return first

    def _add_value(self, plan: Plan, path: tuple[str, ...]) -> None:
        match plan:
            case Record(fields):
                self._text += b"{"
                for number, (name, field) in enumerate(fields):
                    self._text += b"," * (number > 0) + orjson.dumps(name) + b":"
                    self._add_value(field, (*path, name))
                self._text += b"}"
            case str() if path in self._expected:
                text = self._expected[path].encode()
                self._take(_number(len(text)) + text)
                self._text += orjson.dumps(self._expected[path])
            case str():
                self._add(codes.AVRO_BOOLEAN + _PRIMITIVES.index(plan))
            case Union(branches) if "null" in branches and len(branches) == 2:
                null = branches.index("null")
                if path in self._expected:
                    self._take(bytes([2 - 2 * null]))
                    self._add_value(branches[1 - null], path)
                    return
                self._add(codes.AVRO_NULLABLE)
                at = len(self._rows) - 1
                self._add_value(branches[1 - null], path)
                self._end_text()
                self._rows[at] = codes.AVRO_NULLABLE, 2 * null, len(self._rows)
            case _:
                self._add(codes.AVRO_UNREADABLE)

    def _take(self, content: bytes) -> None:
        """Adds a step that takes these bytes and no others."""
        self._add(codes.AVRO_SAME, *self._const(content))

    def _add(self, kind: int, argument: int = 0, second_argument: int = 0) -> None:
        self._end_text()
        self._rows.append((kind, argument, second_argument))

    def _end_text(self) -> None:
        if self._text:
            text, self._text = bytes(self._text), bytearray()
            self._rows.append((codes.AVRO_TEXT, *self._const(text)))

    def _const(self, content: bytes) -> tuple[int, int]:
        self.consts += content
        return len(self.consts) - len(content), len(content)


def _number(number: int) -> bytes:
    """Writes a number that is not negative."""
    number, groups = number << 1, bytearray()
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])
