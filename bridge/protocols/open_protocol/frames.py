"""Splits many messages of the Open Protocol into frames at once, and reads the heads of their events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bridge.protocols.decoder import Contents
from bridge.protocols.fast.compiled import codes
from bridge.protocols.fast.compiled.functions import split, walk
from bridge.protocols.fast.reader import Outside
from bridge.protocols.fast.texts import BEHIND, Numbers, Texts
from bridge.protocols.open_protocol.decoder import OPEN_PROTOCOL_VERSION

_LENGTH: Final = 8
_MARK: Final = b'"'
_CONSTANTS: Final = (b'{"ts":', b',"scm":', b',"tbl":', b',"t":1}')
_CONTENT: Final = np.frombuffer(b"".join(_CONSTANTS) + bytes(BEHIND), np.uint8)
_ENDS: Final = np.cumsum([len(constant) for constant in _CONSTANTS])
_HEAD: Final = np.array(
    [
        step
        for number, constant in enumerate(_CONSTANTS)
        for step in (
            (codes.CONSTANT, _ENDS[number] - len(constant), len(constant), 0),
            (codes.COMMIT_TS, 0, 0, 0) if number == 0 else (codes.VALUE, codes.TEXT, codes.TEXT, 0),
        )
    ][:-1],
    np.int32,
)
"""Reads the head of a row's event: its commit ts, schema and table."""
_START: Final = 4
_STARTS: Final = frozenset({b'{"u"', b'{"d"'})
_WITH_OLD: Final = b'},"p":{"'
_NOTHING: Final = np.empty((0, 2), np.int32)


@dataclass(frozen=True)
class Frames:
    """The frames of many messages, in order.

    messages, index: for each frame, the number of its message, and its own number in the message.
    texts: the contents of the frames.
    """

    messages: Numbers
    index: Numbers
    texts: Texts

    def of(self, mask: npt.NDArray[np.bool_]) -> Frames:
        """Keeps the frames of the messages that a mask marks."""
        which = mask[self.messages]
        starts, ends = self.texts.starts[which], self.texts.ends[which]
        return Frames(self.messages[which], self.index[which], Texts(self.texts.content, starts, ends, starts))


class Heads(NamedTuple):
    """What the keys tell of frames.

    commit_ts: for every frame; 0 where the frame is not a row's.
    names: for every frame, schema and table as the frame writes them; None where the frame is not a row's.
    """

    commit_ts: Numbers
    names: list[bytes | None]


class FramedMessages(NamedTuple):
    """The frames of the messages that have as many in the key as in the value, and what the key tells of them.

    counts: how many frames each message has.
    """

    frames: Frames
    heads: Heads
    counts: Numbers

    @property
    def outside(self) -> Outside:
        """What the key tells of each frame."""
        return Outside(self.heads.commit_ts, self.frames.index)

    def kind_of(self, number: int) -> bytes | None:
        """Gives bytes of a frame that identify its table and kind of change; None for a frame that is not read."""
        names, body = self.heads.names[number], self.frames.texts.text(number)
        start = body[:_START]
        if names is None or start not in _STARTS:
            return None
        return names + start + (b"p" if _WITH_OLD in body else b"")


def frames_of(messages: Contents, behind: int) -> tuple[Frames, Numbers]:
    """Gives the frames of messages, and how many each message has.  The frames begin `behind` bytes into each message.

    A message that does not consist of frames has none.
    """
    texts = Texts.of(messages)
    counts = np.zeros(len(messages), np.int64)
    room = np.empty((len(texts.content) // _LENGTH + 1, 4), np.int64)
    count, _ = split(texts.numbers(), texts.starts + behind, texts.ends, len(messages), room, counts)
    bounds = room[:count]
    starts = bounds[:, 2].copy()
    return Frames(bounds[:, 0], bounds[:, 1], Texts(texts.content, starts, bounds[:, 3].copy(), starts)), counts


def heads_of(frames: Frames) -> Heads:
    """Reads the frames of keys."""
    texts, size = frames.texts, len(frames.messages)
    values, firsts, moments = np.empty((2 * size, 3), np.int32), np.empty(size, np.int64), np.zeros((size, 2), np.int64)
    walk(
        texts.numbers(), texts.starts, texts.starts, texts.ends, size, np.zeros(size, np.int32),
        np.zeros((1, 5), np.int32),
        np.array([[0, len(_HEAD)]], np.int32), _HEAD, _CONTENT, _NOTHING, np.empty(0, np.int32), np.empty(0, np.int64),
        values, firsts, _NOTHING, moments, np.zeros((size, codes.PLACE_NUMBERS), np.int64),
    )  # fmt: skip
    names: list[bytes | None] = [None] * size
    rows = np.flatnonzero(firsts != codes.NOT_READ)
    starts, ends = values[firsts[rows], 0].tolist(), values[firsts[rows] + 1, 1].tolist()
    for number, start, end in zip(rows.tolist(), starts, ends, strict=True):
        quoted = texts.content[start - 1 : end + 1]  # both strings, and all between them
        names[number] = quoted if quoted.startswith(_MARK) and quoted.endswith(_MARK) else None
    return Heads(np.where(firsts == codes.NOT_READ, 0, moments[:, 0]), names)


def framed(keys: Contents, values: Contents) -> FramedMessages:
    """Gives the frames of the messages whose keys have as many as their values."""
    (key_frames, key_counts), (frames, counts) = frames_of(keys, len(OPEN_PROTOCOL_VERSION)), frames_of(values, 0)
    versions = np.fromiter(
        (key is not None and key.startswith(OPEN_PROTOCOL_VERSION) for key in keys), np.bool_, len(keys)
    )
    is_matched = (key_counts == counts) & (counts > 0) & versions
    return FramedMessages(frames.of(is_matched), heads_of(key_frames.of(is_matched)), counts)
