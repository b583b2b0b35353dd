"""Decodes on the fast path: `decode_batch` reads the rows of many messages at once, and leaves the rest.

It parses the few messages that it learns from itself, so the plain path knows nothing of templates.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa

from bridge.events import Event, RowChange
from bridge.protocols.decoder import FAILURES, BatchResult, Contents, DecodeError, RowEvents
from bridge.protocols.fast.lessons import Lesson
from bridge.protocols.fast.readiness import Readiness
from bridge.protocols.fast.texts import Numbers, Texts
from bridge.protocols.plain_decoder import PlainDecoder

if TYPE_CHECKING:
    from bridge.protocols.fast.reader import Reader

Missed = Iterable[tuple[Hashable | None, Callable[[], Lesson]]]
"""The kinds of messages that were not read, and what to learn from them."""
_FAILED: Final = (*FAILURES, DecodeError, pa.ArrowException)
"""What the fast path may raise on hostile messages; it then leaves them to parsing."""
_MOST_TEMPLATES: Final = 8
"""How often messages that were not read are tried with another template: a schema change gives a table another one."""


class FastDecoder:
    """A decoder with both paths: `decode` is the plain one, `decode_batch` the fast one, which leaves all messages to
    the plain one where a protocol reads none."""

    def __init__(self, plain: PlainDecoder) -> None:
        self._plain = plain
        self.protocols, self.row_rules, self.ms_ahead = plain.protocols, plain.row_rules, plain.ms_ahead
        self._loaded: Reader | None = None
        self._readiness = Readiness()

    @property
    def _reader(self) -> Reader:
        if self._loaded is None:
            from bridge.protocols.fast.reader import Reader

            self._loaded = Reader(self._plain.is_wanted)
        return self._loaded

    def schemas_of(self, key: bytes | None, value: bytes | None) -> str | None:  # noqa: ARG002
        """Gives None: no message has schemas of its own."""
        return None

    def decode(self, key: bytes | None, value: bytes | None) -> list[Event]:
        """Gives the events of one message, all or none; raises nothing but `DecodeError`."""
        return self._plain.decode(key, value)

    def decode_batch(self, keys: Contents, values: Contents) -> BatchResult:
        """Decodes the messages whose templates it knows, to the events that `decode` gives, and leaves it the others.

        Fewer than 512 messages are all left, and so are the first ones in a process that has not loaded the compiled
        functions.  Raises nothing.
        """
        leftover = np.arange(len(values))
        if not self._readiness.pays(len(leftover)):
            return BatchResult([], leftover)
        self._reader.forget()
        keys, values = self._prepared(keys, values)
        events, leftover = self._read(keys, values, leftover)
        for _ in range(_MOST_TEMPLATES):
            if not len(leftover) or not self._learns(_at_numbers(keys, leftover), _at_numbers(values, leftover)):
                break
            rows, leftover = self._read(keys, values, leftover)
            events += rows
        return BatchResult(events, leftover)

    def _prepared(self, keys: Contents, values: Contents) -> tuple[Contents, Contents]:
        """Gives messages as `_rows` reads them.  Those that cannot be brought into that form stay as they are."""
        return keys, values

    def _read(self, keys: Contents, values: Contents, numbers: Numbers) -> tuple[list[RowEvents], Numbers]:
        """Reads what it can of the messages of these numbers, and gives the numbers of the others."""
        with suppress(*_FAILED):
            rows = self._rows(_at_numbers(keys, numbers), _at_numbers(values, numbers))
            if len(rows.numbers):
                return [RowEvents(numbers[rows.numbers], rows.events)], np.delete(numbers, rows.numbers)
        return [], numbers

    def _learns(self, keys: Contents, values: Contents) -> bool:
        """Counts messages as missed, and tells whether one of their kinds has another template now."""
        with suppress(*_FAILED):
            return self._reader.learn(self._missed(keys, values))
        return False

    def _rows(self, keys: Contents, values: Contents) -> RowEvents:
        """Reads messages, each whole or not at all; it may raise any of _FAILED."""
        raise NotImplementedError

    def _missed(self, keys: Contents, values: Contents) -> Missed:
        """Gives what to learn from messages that were not read."""
        raise NotImplementedError


class FastJsonDecoder(FastDecoder):
    """A decoder of messages that are JSON as a whole."""

    _reads_keys: ClassVar[bool] = False
    """Whether the tree of its lessons has the message's key."""

    def _rows(self, keys: Contents, values: Contents) -> RowEvents:
        texts, kinds = self._kinds(keys, values)
        numbers = self._reader.numbers_of(kinds, lambda place: self._lesson(keys[place], values[place] or b""))
        return self._reader.read(texts, numbers)

    def _missed(self, keys: Contents, values: Contents) -> Missed:
        for key, value, kind in zip(keys, values, self._kinds(keys, values)[1], strict=True):
            if value:
                yield kind, partial(self._lesson, key, value)

    def _kinds(self, keys: Contents, values: Contents) -> tuple[Texts, list[Hashable | None]]:
        """Gives messages as texts without blanks between their tokens, and their kinds."""
        texts = Texts.of(values, keys if self._reads_keys else None)
        compact = texts.without_blanks()
        return compact, self._kinds_of(values if compact is texts else compact.values(), compact)

    def _kinds_of(self, values: Contents, texts: Texts) -> list[Hashable | None]:
        """Gives for each message what identifies its table and kind of change; None for one that is not read.

        texts: the same messages, joined.
        """
        raise NotImplementedError

    def _lesson(self, key: bytes | None, value: bytes) -> Lesson:
        """Parses a message to learn from it; raises DecodeError, or any of FAILURES, where that is not possible."""
        raise NotImplementedError


class KindMarks:
    """Tells the kinds of messages by what lies between pairs of marks in them."""

    def __init__(self, first: bytes, *pairs: tuple[bytes, bytes]) -> None:
        """first: what comes before all pairs.  Marks have seven bytes at most."""
        marks = [first, *(mark for pair in pairs for mark in pair)]
        self._words = np.array([int.from_bytes(mark, "little") for mark in marks])
        self._sizes = np.array([len(mark) for mark in marks])

    def kinds_of(self, texts: Texts) -> list[Hashable | None]:
        """Gives a sum for each message, None for one that lacks a mark; where the sums of two tables are the same, the
        messages of one of them are not read."""
        from bridge.protocols.fast.compiled.functions import sum_kinds

        sums = np.empty(len(texts.starts), np.int64)
        sum_kinds(
            texts.numbers(), texts.key_ends, texts.ends, len(sums), self._words, self._sizes, len(self._words), sums
        )
        return [kind or None for kind in sums.tolist()]


def the_row(events: list[Event]) -> RowChange:
    """Gives the event of a message that is one whole row; raises DecodeError for any other message."""
    if len(events) != 1 or not isinstance(row := events[0], RowChange) or row.cut:
        raise DecodeError("a message that is not one whole row")
    return row


def _at_numbers(messages: Contents, numbers: Numbers) -> Contents:
    if len(numbers) == len(messages):
        return messages
    return [messages[number] for number in numbers.tolist()]
