"""Tells what is the same in all frames of a kind, in the Open Protocol.  The message's key holds schema, table and
commit_ts."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import orjson

from bridge.model import TableName
from bridge.protocols.decoder import DecodeError, DecodeOptions, RowEvents
from bridge.protocols.fast.byte_buffer import Numbers
from bridge.protocols.fast.column_template import Outside
from bridge.protocols.fast.decoder import FastDecoder, is_plain, sample_of, the_row
from bridge.protocols.fast.message_shape import Lesson, value_holes
from bridge.protocols.fast.open_protocol_frames import Frames, frames_of, heads_of
from bridge.protocols.open_protocol.decoder import OPEN_PROTOCOL_VERSION, OpenProtocolDecoder

_IMAGES: Final = {"u": "after", "p": "before", "d": "before"}
_START: Final = 4
_PLAIN_STARTS: Final = frozenset({b'{"u"', b'{"d"'})
_WITH_OLD: Final = b'},"p":{"'


class _FramedMessages(NamedTuple):
    """The frames of the messages that have as many in the key as in the value, and what the key tells of them.

    counts: how many frames each message has; 0 for messages that are left to the plain path.
    """

    frames: Frames
    outside: Outside
    counts: Numbers


class FastOpenProtocolDecoder(FastDecoder):
    """Decodes the Open Protocol; whole rows are read by templates."""

    def __init__(self, options: DecodeOptions) -> None:
        self._open = OpenProtocolDecoder(options)
        super().__init__(self._open)

    def _rows(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Iterator[RowEvents]:
        """Reads the messages in which every frame is a whole row."""
        frames, outside, counts = self._framed(keys, values)
        found = self._templates.read(frames.texts, self._sample(frames, outside), outside)
        lots = [(frames.messages[rows.numbers], rows) for rows in found]
        read = sum((np.bincount(messages, minlength=len(keys)) for messages, _ in lots), np.zeros_like(counts))
        for messages, rows in lots:
            yield RowEvents(messages, rows.events).only(read[messages] == counts[messages])

    def _framed(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> _FramedMessages:
        (key_frames, key_counts), (frames, counts) = frames_of(keys, len(OPEN_PROTOCOL_VERSION)), frames_of(values, 0)
        versions = np.fromiter(
            (key is not None and key.startswith(OPEN_PROTOCOL_VERSION) for key in keys), np.bool_, len(keys)
        )
        wanted = (key_counts == counts) & (counts > 0) & versions
        heads, frames = heads_of(key_frames.of(wanted)), frames.of(wanted)
        is_wanted = np.array([self._is_wanted(names) for names in heads.names] + [False])
        tables = np.where(is_wanted[heads.tables], heads.tables, -1)
        return _FramedMessages(frames, Outside(heads.commit_ts, frames.index, tables, heads.names), counts)

    def _is_wanted(self, names: TableName) -> bool:
        try:
            return self._templates.is_wanted(*names)
        except DecodeError:
            return False

    def _sample(self, frames: Frames, outside: Outside) -> Iterator[tuple[int, Hashable]]:
        """Gives numbers of some frames, and their kinds; learns from a frame whose kind is not known."""
        for number in sample_of(len(frames.messages)):
            if (kind := _kind_of(frames, outside, number)) is not None:
                if not self._templates.knows(kind):
                    self._miss_frame(frames, outside, number)
                yield number, kind

    def _miss(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> None:
        frames, outside, _ = self._framed(keys, values)
        for number in range(len(frames.messages)):
            self._miss_frame(frames, outside, number)

    def _miss_frame(self, frames: Frames, outside: Outside, number: int) -> None:
        kind = _kind_of(frames, outside, number)
        if kind is not None and is_plain(frames.texts.text(number)):
            self._templates.miss(kind, partial(self._lesson, frames, outside, number))

    def _lesson(self, frames: Frames, outside: Outside, number: int) -> Lesson:
        body = frames.texts.text(number)
        schema, table = outside.names[outside.tables[number]]
        head = {"ts": int(outside.commit_ts[number]), "scm": schema, "tbl": table, "t": 1}
        event = self._open.event_of(head, body, int(outside.index[number]))
        event = the_row([] if event is None else [event])
        layout = self._open.layout_of(schema, table, event.kind)
        if layout is None:
            raise DecodeError("a table without a layout")
        change = orjson.loads(body)
        images = {_IMAGES[part]: {name: column["v"] for name, column in row.items()} for part, row in change.items()}
        tree = {
            part: {name: {**row[name], "v": cell} for name, cell in value_holes(_IMAGES[part], row).items()}
            for part, row in change.items()
        }
        return Lesson(body, event, layout, images, tree)


def _kind_of(frames: Frames, outside: Outside, number: int) -> Hashable | None:
    """Gives bytes of a frame that identify its table and kind of change; None for a frame that no template reads."""
    body = frames.texts.text(number)
    if outside.tables[number] < 0 or body[:_START] not in _PLAIN_STARTS:
        return None
    return outside.names[outside.tables[number]], body[:_START], _WITH_OLD in body
