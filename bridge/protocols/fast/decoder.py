"""Decodes on the fast path: `decode_batch` reads the rows of many messages at once, by templates, and leaves the rest.

It parses the few messages that it learns from itself, so the plain path knows nothing of templates.
"""

from __future__ import annotations

import time
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
_TRIED: Final = 64
"""So many of the messages that were read are parsed, too: that tells whether reading them paid."""
_ARROW: Final = 1.15
"""Parsed messages become Arrow as well, which takes this much longer than parsing alone (measured: 1.05 to 1.4)."""
_STANDS: Final = 16
"""For so many lots nobody asks again whether it pays; after a lot in which it did not, for fewer at first."""
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
        self._is_paying, self._stands, self._pause = True, 0, 0
        """Whether reading paid when it was last asked, for how many lots more that stands, and how many lots were then
        left to parsing."""

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

        Fewer than 512 messages are all left, and so are some lots behind one of which it could read little.  Raises
        nothing.
        """
        left = np.arange(len(values))
        if len(left) < _MANY:
            return BatchResult([], left)
        asks = not self._stands
        self._stands = max(0, self._stands - 1)
        if not (asks or self._is_paying):
            return BatchResult([], left)
        events, left, seconds = self._read_and_learn(keys, values, left)
        if asks:
            self._is_paying = self._pays(keys, values, left, seconds)
            self._pause = 0 if self._is_paying else min(_STANDS, 2 * self._pause + 1)
            self._stands = _STANDS if self._is_paying else self._pause
        return BatchResult(events, left)

    def _read_and_learn(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], left: Numbers
    ) -> tuple[list[RowEvents], Numbers, float]:
        """Gives the events that it can read, the numbers of the other messages, and the seconds that reading took,
        without those of learning."""
        events: list[RowEvents] = []
        unseen, count, seconds, learned = left, _FIRST, 0.0, True
        while learned or len(unseen):
            if learned:
                began = time.thread_time()
                found, left = self._read(keys, values, left)
                seconds += time.thread_time() - began
                events += found
                unseen = np.intersect1d(unseen, left, assume_unique=True)
            seen, unseen, count = unseen[:count], unseen[count:], _GROWTH * count
            learned = bool(len(seen)) and self._learn(keys, values, seen)
        return events, left, seconds

    def _pays(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], left: Numbers, seconds: float
    ) -> bool:
        """Tells whether to parse the messages that were read in these seconds would have taken longer."""
        read = np.setdiff1d(np.arange(len(values)), left, assume_unique=True)
        some = read[:: len(read) // _TRIED + 1].tolist()
        began = time.thread_time()
        for number in some:
            with suppress(DecodeError):
                self._plain.decode(keys[number], values[number])
        return bool(some) and (time.thread_time() - began) / len(some) * len(read) * _ARROW > seconds

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
