r"""Templates: a message that equals known ones but for its values is matched, not parsed.

The messages of a table differ in little but their values.  So once some messages of a kind have been parsed, a template
is learnt of them (`template_code`): a regular expression of all that stays, with holes for the values, and a function
that makes the event of what stands in the holes.  That takes half the time that parsing takes.  Where many messages of
a kind come together, a second template of the same lesson (`column_template`) reads them all at once, in an eighth of
it.  What does not match is parsed as ever.

It is exact, because JSON without backslashes and control characters is easily read: a string ends at the next quotation
mark and is what stands before it.  And a template is taken into use only when it makes of the message it was learnt
from the very event that parsing made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bridge.protocols.column_template import ColumnTemplate, column_template, event_of
from bridge.protocols.decoder import FAILURES, MAX_CACHED, DecodeError, DecodeOptions, GuardedDecoder, RowEvents
from bridge.protocols.images import Layout
from bridge.protocols.lessons import Lesson, Types
from bridge.protocols.template_code import STRICT_TEXT, TEXT, Template, make_template
from bridge.protocols.texts import Numbers, Texts

__all__ = ["JsonDecoder", "Templates"]

_LOOKED_AT: Final = 32
"""So many messages of a kind are parsed before a template is learnt.  Of those that do not match, the last so many are
looked at when it has come to twice as many, and so on: then it is learnt anew, with the JSON types that they hold."""
_TRIES: Final = 8
"""Messages in a row that may prove unfit to be learnt from."""
_MOST_CHANGES: Final = 100
"""So often learning begins anew when the columns of a kind change; a sender of two layouts in turn is not followed."""
_LONGEST_KIND: Final = 1000
"""Bytes; two names of 64 characters stand in it.  Kinds are remembered, and bytes from the wire make them."""
_MOST_HELD: Final = 16 << 20
"""Characters that all templates hold together."""
_CHECKED_AT_ONCE: Final = 1000
_SAMPLE: Final = 48
_WORTHWHILE: Final = 2
"""Of many messages so many are looked at, and those kinds are read together of which there are at least so many: of a
kind with few messages each by itself costs less."""


@dataclass
class _Known:
    """What is known of one kind of message: how many had to be parsed, and the JSON types seen in each cell."""

    layout: Layout | None = None
    missed: int = 0
    learn_at: int = _LOOKED_AT
    changes: int = 0
    types: Types = field(default_factory=dict)


def _all(kind: Hashable, numbers: Numbers) -> Numbers:  # noqa: ARG001
    return numbers


class Templates:
    """The templates of a decoder, `of` each kind of message: of what tells at a glance which it is.

    strict: messages may hold control characters, since nobody has looked (`JsonDecoder.look_over`).
    of, columns: for one message, and for many.
    guards: of each template's kind, the `Lesson.guard`.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self._text = STRICT_TEXT if strict else TEXT
        self._known: dict[Hashable, _Known] = {}
        self._held = 0
        self.of: dict[Hashable, Template] = {}
        self.columns: dict[Hashable, ColumnTemplate] = {}
        self.guards: dict[Hashable, Any] = {}

    def missed(self, kind: Hashable, layout: Layout, lesson: Callable[[], Lesson]) -> None:
        """To be told of every row that had to be parsed; asks for a lesson when one is wanted.

        Raises nothing: what cannot be learnt from, for whatever reason, goes on being parsed.
        """
        if isinstance(kind, bytes) and len(kind) > _LONGEST_KIND:
            return
        known = self._known.get(kind)
        if known is None:
            if len(self._known) >= MAX_CACHED:
                self._forget()
            known = self._known[kind] = _Known()
        if known.layout is not layout and _of(known.layout) != _of(layout):
            self._begin_anew(kind, known, layout)
        known.missed += 1
        if known.missed <= known.learn_at - _LOOKED_AT:
            return
        learnt = False
        with suppress(*FAILURES, DecodeError):
            learnt = self._follow(kind, known, lesson())
        if learnt or known.missed >= known.learn_at + _TRIES:
            known.learn_at = 2 * max(known.missed, known.learn_at)

    def _begin_anew(self, kind: Hashable, known: _Known, layout: Layout) -> None:
        self.of.pop(kind, None)
        self.columns.pop(kind, None)
        known.layout, known.types = layout, {}
        if known.changes < _MOST_CHANGES:
            known.changes, known.missed, known.learn_at = known.changes + 1, 0, _LOOKED_AT

    def _follow(self, kind: Hashable, known: _Known, lesson: Lesson) -> bool:
        """Looks at a message; whether a template was learnt from it."""
        if any(tuple(image) != lesson.layout.names for image in lesson.images.values()):
            return False
        if known.types.keys() != lesson.images.keys():
            known.types = {name: [set() for _ in image] for name, image in lesson.images.items()}
        for name, image in lesson.images.items():
            for types, value in zip(known.types[name], image.values(), strict=True):
                types.add(type(value))
        if known.missed < known.learn_at:
            return False
        made = make_template(lesson, known.types, self._text)
        if (
            made is None
            or made.template(lesson.text.decode(), lesson.event.commit_ts, lesson.event.index) != lesson.event
        ):
            return False
        self._held += made.size
        if self._held > _MOST_HELD:
            self._forget()
            self._held = made.size
        self.of[kind], self.guards[kind] = made.template, lesson.guard
        columns = column_template(lesson, known.types)
        if columns is not None and _reads(columns, lesson):
            self.columns[kind] = columns
        return True

    def read(
        self,
        texts: Texts,
        sample: Iterable[tuple[int, Hashable]],
        among: Callable[[Hashable, Numbers], Numbers] = _all,
        commit_ts: Numbers | None = None,
        index: Numbers | None = None,
    ) -> Iterator[tuple[Hashable, RowEvents]]:
        """What many texts hold of the kinds that a sample of them is of; the others are to be decoded one by one.

        sample: numbers of texts, and their kinds.
        among: of some texts those that can be of a kind, where the texts do not say it all.
        commit_ts, index: see `ColumnTemplate.read`.
        """
        left = texts.plain()
        numbers: defaultdict[Hashable, list[int]] = defaultdict(list)
        for number, kind in sample:
            numbers[kind].append(number)
        for kind in sorted(numbers, key=lambda kind: len(numbers[kind]), reverse=True):
            if len(numbers[kind]) >= _WORTHWHILE and kind in self.columns:
                with suppress(*FAILURES, pa.ArrowException):
                    for rows in self.columns[kind].read(texts, among(kind, left), numbers[kind], commit_ts, index):
                        left = np.setdiff1d(left, rows.numbers, assume_unique=True)
                        yield kind, rows

    def _forget(self) -> None:
        self._known.clear()
        self.of.clear()
        self.columns.clear()
        self.guards.clear()
        self._held = 0


def _reads(columns: ColumnTemplate, lesson: Lesson) -> bool:
    """Whether it makes of the message it was learnt from what parsing made of it."""
    event = lesson.event
    given = (None, None) if columns.tells_moment else (np.array([event.commit_ts]), np.array([event.index]))
    return [event_of(rows) for rows in columns.read(Texts.of([lesson.text]), np.arange(1), [0], *given)] == [event]


def _of(layout: Layout | None) -> tuple[Any, ...]:
    """What makes layouts of one decoder equal."""
    return () if layout is None else (layout.names, layout.shape, layout.handle, layout.columns)


def sample_of(size: int) -> Iterable[int]:
    """Numbers below `size`, evenly spread."""
    return range(0, size, max(1, size // _SAMPLE))


class JsonDecoder(GuardedDecoder):
    """A decoder of messages that are JSON as a whole, with templates."""

    def __init__(self, options: DecodeOptions) -> None:
        super().__init__(options)
        self._templates = Templates()
        self._is_plain = False

    def look_over(self, values: Iterable[bytes | None]) -> None:
        """Whether templates can be used; see `GuardedDecoder.look_over`."""
        self._is_plain = _are_plain(values)

    def usual_rows(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Iterator[RowEvents]:  # noqa: ARG002
        """Rows whose kind is known; see `GuardedDecoder.usual_rows`."""
        return (rows for _, rows in self._read(values))

    def _read(self, values: Sequence[bytes | None]) -> Iterator[tuple[Hashable, RowEvents]]:
        """What templates read of messages, with the kind of each lot."""
        sample = ((number, self._kind_of(value)) for number in sample_of(len(values)) if (value := values[number]))
        return self._templates.read(Texts.of(values), sample)

    def _kind_of(self, value: bytes) -> Hashable:
        """The kind, for templates, of a message that is as it should be."""
        raise NotImplementedError


def _are_plain(values: Iterable[bytes | None]) -> bool:
    """Whether messages hold no control characters, which JSON has between tokens and never inside strings."""
    rest = filter(None, values)
    while some := b"".join(islice(rest, _CHECKED_AT_ONCE)):
        if np.frombuffer(some, np.uint8).min() < ord(" "):
            return False
    return True
