"""Tells what is the same in all frames of a kind, in the Open Protocol.  The frame of the message's key, which holds
schema, table and commit_ts, is read before that of its value."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from bridge.protocols.batch_decode import EVENT_FIELDS
from bridge.protocols.decoder import Contents, DecodeOptions, RowEvents
from bridge.protocols.fast.decoder import FastDecoder, Missed, the_row
from bridge.protocols.fast.lessons import Hole, Lesson, WithKey, value_holes
from bridge.protocols.fast.texts import Numbers, Texts
from bridge.protocols.open_protocol.decoder import OPEN_PROTOCOL_VERSION, OpenProtocolDecoder

_IMAGES: Final = {"u": "after", "p": "before", "d": "before"}
_LENGTH: Final = 8
_NAMES: Final = b',"scm":'
_STARTS: Final = (b'{"u"', b'{"d"')
_START: Final = 4
_WITH_OLD: Final = b'},"p":{"'
_INDEX: Final = EVENT_FIELDS.get_field_index("index")


class _Frames(NamedTuple):
    """The frames of the messages that have as many in the key as in the value.

    keys, values: their contents.
    places: for each frame, the number of its message, and its own number in the message.
    counts: how many frames each message has.
    """

    keys: list[bytes]
    values: list[bytes]
    places: Numbers
    counts: Numbers

    def kinds(self) -> list[Hashable | None]:
        """Gives bytes of each frame that identify its table and kind of change; None for a frame that is not read."""
        return [
            key[key.find(_NAMES) :] + value[:_START] + (b"p" if _WITH_OLD in value else b"")
            if value.startswith(_STARTS)
            else None
            for key, value in zip(self.keys, self.values, strict=True)
        ]


class FastOpenProtocolDecoder(FastDecoder):
    """Decodes the Open Protocol; whole rows are read by their templates."""

    def __init__(self, options: DecodeOptions) -> None:
        self._open = OpenProtocolDecoder(options)
        super().__init__(self._open)

    def _rows(self, keys: Contents, values: Contents) -> RowEvents:
        """Reads the messages in which every frame is a whole row."""
        frames = _frames_of(keys, values)
        numbers = self._reader.numbers_of(
            frames.kinds(), lambda number: self._lesson(frames.keys[number], frames.values[number])
        )
        rows = self._reader.read(Texts.of(frames.values, frames.keys), numbers)
        messages, index = frames.places[rows.numbers].T
        counts = np.bincount(messages, minlength=len(keys))
        events = rows.events.set_column(_INDEX, EVENT_FIELDS.field(_INDEX), pa.array(index, pa.int32()))
        return RowEvents(messages, events).only(counts[messages] == frames.counts[messages])

    def _missed(self, keys: Contents, values: Contents) -> Missed:
        frames = _frames_of(keys, values)
        for key, value, kind in zip(frames.keys, frames.values, frames.kinds(), strict=True):
            yield kind, partial(self._lesson, key, value)

    def _lesson(self, key: bytes, value: bytes) -> Lesson:
        head = orjson.loads(key)
        event = self._open.event_of(head, value, 0)
        event = the_row([] if event is None else [event])
        change = orjson.loads(value)
        images = {_IMAGES[part]: {name: column["v"] for name, column in row.items()} for part, row in change.items()}
        tree = {
            part: {name: {**row[name], "v": cell} for name, cell in value_holes(_IMAGES[part], row).items()}
            for part, row in change.items()
        }
        names = {"ts": Hole.COMMIT_TS, "scm": Hole.SCHEMA, "tbl": Hole.TABLE}
        return Lesson(value, event, self._open.layout, images, WithKey({**head, **names}, tree), key=key)


def _frames_of(keys: Contents, values: Contents) -> _Frames:
    """Gives the frames of the messages whose keys have as many as their values."""
    key_content, key_bounds, key_counts = _split_frames(keys, len(OPEN_PROTOCOL_VERSION))
    content, bounds, counts = _split_frames(values, 0)
    versions = [key is not None and key.startswith(OPEN_PROTOCOL_VERSION) for key in keys]
    is_matched = (key_counts == counts) & (counts > 0) & np.array(versions, np.bool_)
    key_bounds, bounds = key_bounds[is_matched[key_bounds[:, 0]]], bounds[is_matched[bounds[:, 0]]]
    return _Frames(
        [key_content[start:end] for start, end in key_bounds[:, 2:].tolist()],
        [content[start:end] for start, end in bounds[:, 2:].tolist()],
        bounds[:, :2],
        counts,
    )


def _split_frames(messages: Contents, behind: int) -> tuple[bytes, Numbers, Numbers]:
    """Gives messages joined, and of each frame in them the number of its message, its own number in it, where it starts
    and ends; and how many frames each message has: none where it does not consist of frames.  The first begins `behind`
    bytes into a message."""
    from bridge.protocols.fast.compiled.functions import split  # late: its module tells that it pays

    texts, counts = Texts.of(messages), np.zeros(len(messages), np.int64)
    room = np.empty((len(texts.content) // _LENGTH + 1, 4), np.int64)
    count, _ = split(texts.numbers(), texts.starts + behind, texts.ends, len(messages), room, counts)
    return texts.content, room[:count], counts
