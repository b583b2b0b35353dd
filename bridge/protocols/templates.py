r"""Templates: a message that equals known ones but for its values is matched, not parsed.

The messages of a table differ in little but their values.  So once some messages of a kind have been parsed, a template
is learnt of them (`template_code`): a regular expression of all that stays, with holes for the values, and a function
that makes the event of what stands in the holes.  That takes half the time that parsing takes, and what does not match
is parsed as ever.

It is exact, because JSON without backslashes and control characters is easily read: a string ends at the next quotation
mark and is what stands before it.  And a template is taken into use only when it makes of the message it was learnt
from the very event that parsing made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import numpy as np

from bridge.protocols.decoder import FAILURES, MAX_CACHED, DecodeError, DecodeOptions, GuardedDecoder
from bridge.protocols.images import Layout
from bridge.protocols.template_code import STRICT_TEXT, TEXT, Lesson, Template, Types, make_template

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


@dataclass
class _Known:
    """What is known of one kind of message: how many had to be parsed, and the JSON types seen in each cell."""

    layout: Layout | None = None
    missed: int = 0
    learn_at: int = _LOOKED_AT
    changes: int = 0
    types: Types = field(default_factory=dict)


class Templates:
    """The templates of a decoder, `of` each kind of message: of what tells at a glance which it is.

    strict: messages may hold control characters, since nobody has looked (`JsonDecoder.look_over`).
    guards: of each template's kind, the `Lesson.guard`.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self._text = STRICT_TEXT if strict else TEXT
        self._known: dict[Hashable, _Known] = {}
        self._held = 0
        self.of: dict[Hashable, Template] = {}
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
        return True

    def _forget(self) -> None:
        self._known.clear()
        self.of.clear()
        self.guards.clear()
        self._held = 0


def _of(layout: Layout | None) -> tuple[Any, ...]:
    """What makes layouts of one decoder equal."""
    return () if layout is None else (layout.names, layout.shape, layout.handle, layout.columns)


class JsonDecoder(GuardedDecoder):
    """A decoder of messages that are JSON as a whole, with templates."""

    def __init__(self, options: DecodeOptions) -> None:
        super().__init__(options)
        self._templates = Templates()
        self._is_plain = False

    def look_over(self, values: Iterable[bytes | None]) -> None:
        """Whether templates can be used; see `GuardedDecoder.look_over`."""
        self._is_plain = _are_plain(values)


def _are_plain(values: Iterable[bytes | None]) -> bool:
    """Whether messages hold no control characters, which JSON has between tokens and never inside strings."""
    rest = filter(None, values)
    while some := b"".join(islice(rest, _CHECKED_AT_ONCE)):
        if np.frombuffer(some, np.uint8).min() < ord(" "):
            return False
    return True
