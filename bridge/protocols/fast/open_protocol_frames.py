"""Splits many messages of the Open Protocol into frames at once, and reads the heads of their events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP
from bridge.model import TableName
from bridge.protocols.fast.byte_buffer import Mask, Numbers, Texts, joined
from bridge.protocols.fast.column_literals import matched
from bridge.protocols.fast.hole_reader import NO_HEAD, HoleReader, hole_reader
from bridge.protocols.fast.message_shape import TSO, ValueHole

_LENGTH: Final = 8
_MOST_FRAMES: Final = 1000
"""The most frames of a message; a message with more is left to the plain path, since each frame costs a round."""
_HEAD: Final = cast(
    HoleReader,
    hole_reader(
        [ValueHole("head", number) for number in range(3)], [b'{"ts":', b',"scm":"', b'","tbl":"', b'","t":1}']
    ),
)
"""Reads the head of a row's event: its commit_ts, schema and table."""


@dataclass(frozen=True)
class Frames:
    """The frames of many messages, in order.

    messages, index: for each frame, the number of its message, and its own number in the message.
    texts: the contents of the frames.
    """

    messages: Numbers
    index: Numbers
    texts: Texts

    def of(self, wanted: Mask) -> Frames:
        """Keeps the frames of the messages that a mask marks."""
        which = wanted[self.messages]
        return Frames(self.messages[which], self.index[which], self.texts.only(which))


class Heads(NamedTuple):
    """What the keys tell of frames.

    commit_ts: for every frame; 0 where the frame is not a row's, or not plain.
    tables: for every frame, the number of its table in `names`; -1 where the frame is not a row's, or not plain.
    names: schema and table.
    """

    commit_ts: Numbers
    tables: Numbers
    names: list[TableName]


def frames_of(messages: Sequence[bytes | None], behind: int) -> tuple[Frames, Numbers]:
    """Gives the frames of messages, and how many each message has.  The frames begin `behind` bytes into each message.

    A message that does not consist of frames has none.
    """
    content, starts, ends = joined(messages)
    lengths = np.ndarray((len(content) - _LENGTH + 1,), ">i8", content, strides=(1,))
    at = starts + behind
    left = np.flatnonzero(at < ends)
    found = []
    is_whole = at <= ends
    for index in range(_MOST_FRAMES):
        if not len(left):
            break
        size, start = lengths[at[left]], at[left] + _LENGTH
        is_whole[left] = (size >= 0) & (size <= ends[left] - start)
        left, start, size = (part[is_whole[left]] for part in (left, start, size))
        at[left] = start + size
        found.append(np.stack((left, np.full(len(left), index), start, at[left])))
        left = left[at[left] < ends[left]]
    is_whole[left] = False
    numbers, indexes, begins, finishes = np.concatenate(found, axis=1) if found else np.empty((4, 0), np.int64)
    order = np.lexsort((indexes, numbers))
    frames = Frames(numbers[order], indexes[order], Texts(content, begins[order], finishes[order]))
    counts = np.bincount(numbers, minlength=len(messages))
    return frames.of(is_whole), counts * is_whole


def heads_of(frames: Frames) -> Heads:
    """Reads the frames of keys."""
    size = len(frames.messages)
    commit_ts, tables = np.zeros(size, np.int64), np.full(size, -1)
    numbers, [ts, *names] = _HEAD.read(frames.texts, frames.texts.plain(), NO_HEAD)
    encoded = pc.binary_join_element_wise(*names, SEP).dictionary_encode()
    ts = matched(ts, TSO)
    is_ts = ts.is_valid().to_numpy(zero_copy_only=False)
    numbers = numbers[is_ts]
    commit_ts[numbers] = ts.drop_null().cast(pa.int64()).to_numpy()
    tables[numbers] = encoded.indices.to_numpy()[is_ts]
    return Heads(commit_ts, tables, [TableName(*name.split(SEP)) for name in encoded.dictionary.to_pylist()])
