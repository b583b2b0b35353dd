"""Tells what is the same in all frames of a kind, in the Open Protocol.  The message's key holds schema, table and
commit_ts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import orjson

from bridge.protocols.decoder import Contents, DecodeOptions, RowEvents
from bridge.protocols.fast.decoder import FastDecoder, Missed, the_row
from bridge.protocols.fast.lessons import Lesson, value_holes
from bridge.protocols.open_protocol.decoder import OpenProtocolDecoder

if TYPE_CHECKING:
    from bridge.protocols.open_protocol.frames import FramedMessages

_IMAGES: Final = {"u": "after", "p": "before", "d": "before"}


class FastOpenProtocolDecoder(FastDecoder):
    """Decodes the Open Protocol; whole rows are read by their templates."""

    def __init__(self, options: DecodeOptions) -> None:
        self._open = OpenProtocolDecoder(options)
        super().__init__(self._open)

    def _framed(self, keys: Contents, values: Contents) -> FramedMessages:
        from bridge.protocols.open_protocol.frames import framed  # loads the compiled functions

        return framed(keys, values)

    def _rows(self, keys: Contents, values: Contents) -> RowEvents:
        """Reads the messages in which every frame is a whole row."""
        framed = self._framed(keys, values)
        kinds = [framed.kind_of(number) for number in range(len(framed.frames.messages))]
        numbers = self._reader.numbers_of(kinds, lambda number: self._lesson(framed, number))
        rows = self._reader.read(framed.frames.texts, numbers, framed.outside)
        messages = framed.frames.messages[rows.numbers]
        counts = np.bincount(messages, minlength=len(keys))
        return RowEvents(messages, rows.events).only(counts[messages] == framed.counts[messages])

    def _missed(self, keys: Contents, values: Contents) -> Missed:
        framed = self._framed(keys, values)
        for number in range(len(framed.frames.messages)):
            yield framed.kind_of(number), partial(self._lesson, framed, number)

    def _lesson(self, framed: FramedMessages, number: int) -> Lesson:
        body, names = framed.frames.texts.text(number), framed.heads.names[number]
        head = orjson.loads(b'{"scm":' + (names or b"") + b"}")
        head = {"ts": int(framed.heads.commit_ts[number]), **head, "t": 1}
        event = self._open.event_of(head, body, int(framed.frames.index[number]))
        event = the_row([] if event is None else [event])
        change = orjson.loads(body)
        images = {_IMAGES[part]: {name: column["v"] for name, column in row.items()} for part, row in change.items()}
        tree = {
            part: {name: {**row[name], "v": cell} for name, cell in value_holes(_IMAGES[part], row).items()}
            for part, row in change.items()
        }
        return Lesson(body, event, self._open.layout, images, tree, tells_all=False)
