"""Decodes on the fast path: `decode_batch` reads the rows of many messages at once, by templates, and leaves the rest.

It parses the few messages that it learns from itself, so the plain path knows nothing of templates.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bridge.events import Event
from bridge.protocols.decoder import FAILURES, BatchResult, DecodeError, PlainDecoder, RowEvents
from bridge.protocols.fast.byte_buffer import Numbers, Texts
from bridge.protocols.fast.learner import Templates
from bridge.protocols.fast.message_shape import Lesson

_MANY: Final = 512
"""From this many messages on, reading rows together is faster (measured: for 256 messages parsing costs half as much,
for 1,024 it costs half as much again)."""
_FIRST: Final = 512
"""It learns from this many of the messages that no template reads.  If it learned a template, the messages that are
left are read again; then it goes on with four times as many."""
_GROWTH: Final = 4
_SAMPLE: Final = 48
_GOLDEN: Final = (5**0.5 - 1) / 2
_BACKSLASH: Final = b"\\"
_FAILED: Final = (*FAILURES, DecodeError, pa.ArrowException)
"""What the fast path may raise on hostile messages; it then leaves them to parsing."""


class FastDecoder:
    """A decoder with both paths: `decode` is the plain one, `decode_batch` the fast one.

    This class leaves all messages to parsing; those of the protocols read what they can.
    """

    def __init__(self, plain: PlainDecoder) -> None:
        self._plain = plain
        self.row_rules = plain.row_rules
        self._templates = Templates(plain.is_wanted)

    @property
    def protocols(self) -> tuple[str, ...]:
        """The protocols that it reads, its own first."""
        return self._plain.protocols

    @property
    def templates_learned(self) -> int:
        """The number of templates that it has learned."""
        return self._templates.learned

    def decode(self, key: bytes | None, value: bytes | None) -> list[Event]:
        """Gives the events of one message, all or none; raises nothing but `DecodeError`."""
        return self._plain.decode(key, value)

    def decode_batch(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> BatchResult:
        """Decodes the messages that templates read, to the events that `decode` gives, and leaves the others to that.

        Fewer than 512 messages are all left.  Raises nothing.
        """
        left = np.arange(len(values))
        if len(left) < _MANY:
            return BatchResult([], left)
        events, left = self._read(keys, values, left)
        unseen, count = left, _FIRST
        while len(unseen):
            seen, unseen, count = unseen[:count], unseen[count:], _GROWTH * count
            if self._learn(keys, values, seen):
                found, left = self._read(keys, values, left)
                events += found
                unseen = np.intersect1d(unseen, left, assume_unique=True)
        return BatchResult(events, left)

    def _read(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], numbers: Numbers
    ) -> tuple[list[RowEvents], Numbers]:
        """Reads what it can of the messages of these numbers, and gives the numbers of the others."""
        events: list[RowEvents] = []
        with suppress(*_FAILED):
            for rows in self._rows(_those(keys, numbers), _those(values, numbers)):
                events.append(RowEvents(numbers[rows.numbers], rows.events))  # noqa: PERF401  # kept when the next fails
        is_left = np.ones(len(values), np.bool_)
        for rows in events:
            is_left[rows.numbers] = False
        return events, numbers[is_left[numbers]]

    def _learn(self, keys: Sequence[bytes | None], values: Sequence[bytes | None], numbers: Numbers) -> bool:
        """Counts the messages of these numbers as missed, and tells whether a template was learned."""
        learned = self._templates.learned
        with suppress(*_FAILED):
            self._miss(_those(keys, numbers), _those(values, numbers))
        return self._templates.learned > learned

    def _rows(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Iterable[RowEvents]:
        """Reads messages by templates, each whole or not at all; it may raise any of _FAILED."""
        del keys, values
        return ()

    def _miss(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> None:
        """Tells the templates about messages that they have not read."""


class FastJsonDecoder(FastDecoder):
    """A decoder of messages that are JSON as a whole."""

    def _rows(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Iterable[RowEvents]:
        guarded = partial(self._guarded, keys)
        return self._templates.read(Texts.of(values), self._sample(keys, values), guarded=guarded)

    def _sample(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Iterator[tuple[int, Hashable]]:
        """Gives numbers of some messages, and their kinds; learns from a message whose kind is not known."""
        for number in sample_of(len(values)):
            if (kind := self._kind_of(values[number] or b"")) is not None:
                if not self._templates.knows(kind):
                    self._miss([keys[number]], [values[number]])
                yield number, kind

    def _miss(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> None:
        for key, value in zip(keys, values, strict=True):
            if value and (kind := self._kind_of(value)) is not None and is_plain(value):
                self._templates.miss(kind, partial(self._lesson, key, value))

    def _guarded(self, keys: Sequence[bytes | None], guard: Any, rows: RowEvents) -> RowEvents:  # noqa: ARG002
        """Keeps the rows whose messages' keys are as the `Lesson.guard` wants them."""
        return rows

    def _kind_of(self, value: bytes) -> Hashable | None:
        """Gives bytes of a message that identify its table and kind of change; None for a message that no template
        reads."""
        raise NotImplementedError

    def _lesson(self, key: bytes | None, value: bytes) -> Lesson:
        """Parses a message to learn from it; raises DecodeError, or any of FAILURES, where that is not possible."""
        raise NotImplementedError


def sample_of(size: int) -> Iterable[int]:
    """Gives numbers below a size, spread evenly but not at a fixed distance, since tables and operations may
    alternate."""
    if size <= _SAMPLE:
        return range(size)
    return sorted({int(size * (number * _GOLDEN % 1)) for number in range(_SAMPLE)})


def is_plain(text: bytes) -> bool:
    """Tells whether a JSON text has no backslash, so that its strings end at the next quotation mark."""
    return _BACKSLASH not in text


def the_row(events: list[Event]) -> Event:
    """Gives the event of a message that is one whole row; raises DecodeError for any other message."""
    if len(events) != 1 or events[0].after is events[0].before is None or events[0].text:
        raise DecodeError("a message that is not one whole row")
    return events[0]


def _those(messages: Sequence[bytes | None], numbers: Numbers) -> Sequence[bytes | None]:
    if len(numbers) == len(messages):
        return messages
    return [messages[number] for number in numbers.tolist()]
