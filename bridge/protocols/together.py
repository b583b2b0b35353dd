"""Parses messages one by one, as the plain path does, but makes the row images of many together (`values.many_images`).

Half of the plain path's time goes into literals, one Python call for each value.  What comes out is the same: a message
in which anything is unusual is left to the plain path, and so are all messages where anything fails.

Measured in pairs in one process: the processor time from messages to Arrow beside that of the plain path, lots of 3,300
messages: `real` 0.85 (Canal-JSON, 24.5 and 20.8 microseconds a row; `orjson.loads` alone takes 6.3) and 0.82 (ckafka),
60 columns 0.6, sysbench's table 0.9.  In lots of 1,000 messages of `real` it is 0.95, and in the workers of a catch-up
of 400,000 such rows, beside other work, about 0.9.  It takes more memory: 151 MiB for 24 MiB of messages, not 113.
Protocols whose values are no strings in JSON (Debezium, Open Protocol) would need forms for numbers and Base64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import EVENT_FIELDS, Event, Kind
from bridge.protocols.decoder import FAILURES, BatchResult, DecodeError, PlainDecoder, RowEvents
from bridge.protocols.values.many_images import ManyImages
from bridge.protocols.values.row_image import MakeImage

Numbers = npt.NDArray[np.int64]

FEWEST_TOGETHER: Final = 1_000
"""With fewer messages it may cost as much as the plain path: each lot costs half a millisecond."""
_BRACE: Final = ord("{")
"""Messages that begin otherwise are left: compressed ones may grow tenfold, and images that are made together take
several times their size in memory."""
_IMAGES: Final = frozenset({"before", "after"})
_FAILED: Final = (*FAILURES, DecodeError, pa.ArrowException)


class Together:
    """Decodes messages by a plain decoder of its own, whose images are numbers until all are made.

    plain: the decoder of the plain path.  make: makes another one for the same messages.
    """

    def __init__(self, plain: PlainDecoder, make: Callable[[MakeImage], PlainDecoder]) -> None:
        self._images = ManyImages()
        self._decoder = make(self._images.add)
        self._decoder.tell_with(plain)

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes | None], numbers: Numbers) -> BatchResult:
        """Decodes what it can of the messages of these numbers; raises nothing."""
        try:
            read, rows = self._rows(keys, values, numbers.tolist())
        except _FAILED:
            return BatchResult([], numbers)
        finally:
            self._images.clear()
        return BatchResult([rows], np.setdiff1d(numbers, read, assume_unique=True))

    def _rows(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], numbers: list[int]
    ) -> tuple[Numbers, RowEvents]:
        """Gives the numbers of the messages that it can read, and their events."""
        parse, read, counts = self._decoder.parse, [], []
        events: list[Event] = []
        for number in numbers:
            value = values[number]
            if not value or value[0] != _BRACE:
                continue
            try:
                found = parse(keys[number], value)
            except _FAILED:
                continue
            events += found
            read.append(number)
            counts.append(len(found))
        places = np.repeat(np.array(read, np.int64), counts)
        batch, is_odd = self._with_images(events)
        odd = np.unique(places[is_odd])
        rows = RowEvents(places, batch)
        return np.setdiff1d(read, odd, assume_unique=True), rows.only(~np.isin(places, odd)) if len(odd) else rows

    def _with_images(self, events: Sequence[Event]) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
        """Gives events with their images, and which of them the plain path has to decode: those with an image that is
        not good, and those that tell of an unwanted table, since only the first of these is kept."""
        columns = dict(zip(Event._fields, zip(*events, strict=True) if events else repeat(()), strict=False))
        images, good = self._images.made()
        arrays, is_fine = [], pa.array(good)
        is_odd = np.zeros(len(events), np.bool_)
        for field in EVENT_FIELDS:
            if field.name in _IMAGES:
                numbers = pa.array(columns[field.name], pa.int64())
                arrays.append(images.take(numbers))
                if not good.all():
                    is_odd |= ~pc.fill_null(is_fine.take(numbers), True).to_numpy(zero_copy_only=False)
            else:
                arrays.append(pa.array(columns[field.name], field.type))
        batch = pa.RecordBatch.from_arrays(arrays, schema=EVENT_FIELDS)
        is_odd |= (batch["kind"].to_numpy() == int(Kind.LEFT_OUT)) & ~_is_there(batch["text"])
        return batch, is_odd


def _is_there(texts: pa.StringArray) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = texts.is_valid().to_numpy(zero_copy_only=False)
    return found
