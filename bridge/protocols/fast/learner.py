r"""Templates: a message that equals known ones but for its values is matched, not parsed.

The messages of a table differ in little but their values, and tables with the same columns in their names besides.  So
once some messages of a form have been parsed, a template is learnt of them (`template_code`): a regular expression of
all that stays, with holes for the values and names, and a function that makes the event of what stands in the holes.
That takes half the time that parsing takes.  Where many messages of a form come together, a second template of the same
lesson (`batch`) reads them all at once, in an eighth of it.  What does not match is parsed as ever.

It is exact, because JSON without backslashes and control characters is easily read: a string ends at the next quotation
mark and is what stands before it.  And a template is taken into use only when it makes of the message it was learnt
from the very event that parsing made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bridge.events import Event
from bridge.protocols.decoder import FAILURES, MAX_CACHED, DecodeError, DecodeOptions, GuardedDecoder, RowEvents
from bridge.protocols.fast.batch import (
    ColumnTemplate,
    Outside,
    TableName,
    Wants,
    column_template,
    event_of,
)
from bridge.protocols.fast.byte_buffer import Texts
from bridge.protocols.fast.message_shape import Lesson, Types, likeness
from bridge.protocols.fast.template_code import STRICT_TEXT, TEXT, Template, make_template
from bridge.protocols.values.row_image import Layout

__all__ = ["JsonDecoder", "Templates"]

_LOOKED_AT: Final = 32
"""So many messages of a form are parsed before a template is learnt.  Of those that do not match, the last so many are
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
_GOLDEN: Final = (5**0.5 - 1) / 2
_WORTHWHILE: Final = 2
"""Of many messages so many are looked at, and those forms are read together of which there are at least so many: of a
form with few messages each by itself costs less."""
_FEW: Final = 8
"""To look through all messages a second time, whole, costs as much as to decode one in so many by itself."""


@dataclass(eq=False)
class _Form:
    """What is known of messages that are alike but for their values and tables: how many had to be parsed, and the JSON
    types seen in each cell."""

    types: Types = field(default_factory=dict)
    missed: int = 0
    learn_at: int = _LOOKED_AT
    template: Template | None = None
    columns: ColumnTemplate | None = None
    guard: Any = None

    def takes(self, lesson: Lesson) -> bool:
        """Whether a message's values may be of the types of the others."""
        return all(
            _are_alike(seen, type(value))
            for name, image in lesson.images.items()
            for seen, value in zip(self.types[name], image.values(), strict=True)
        )

    def look_at(self, lesson: Lesson) -> None:
        """Remembers the types of a message's values."""
        for name, image in lesson.images.items():
            for types, value in zip(self.types[name], image.values(), strict=True):
                types.add(type(value))


@dataclass
class _Known:
    """What is known of one kind of message: the form of the last one that was looked at, and how many had to be parsed
    since that is its form."""

    layout: Layout
    form: _Form
    missed: int = 0
    changes: int = 0


def _all(guard: Any, rows: RowEvents) -> RowEvents:  # noqa: ARG001
    return rows


class Templates:
    """The templates of a decoder.  Each is of a form, which tables with the same columns share: the table's name is no
    more than a value.  Which form a message has, its kind tells, which shows at a glance and is that of one table.

    wants: whether rows of a table are wanted.
    strict: messages may hold control characters, since nobody has looked (`JsonDecoder.look_over`).
    learnt: how many templates have been made.
    """

    def __init__(self, wants: Wants, *, strict: bool = False) -> None:
        self._text = STRICT_TEXT if strict else TEXT
        self._ask = wants
        self._wanted: dict[TableName, bool] = {}
        self._known: dict[Hashable, _Known] = {}
        self._forms: dict[Hashable, list[_Form]] = {}
        self._count = self._held = self.learnt = 0

    def wants(self, schema: str, table: str) -> bool:
        """Whether rows of a table are wanted, asked once; raises DecodeError for a name that none can have."""
        found = self._wanted.get((schema, table))
        if found is None:
            found = self._ask(schema, table)
            if len(self._wanted) >= MAX_CACHED:
                self._wanted.clear()
            self._wanted[schema, table] = found
        return found

    def knows(self, kind: Hashable) -> bool:
        """Whether a message of this kind was seen."""
        return kind in self._known

    def event(self, kind: Hashable, text: str, outside: tuple[int, int, str, str] = (0, 0, "", "")) -> Event | None:
        """What the template of a kind makes of a text, see `Template`; None if there is none."""
        known = self._known.get(kind)
        if known is None or known.form.template is None:
            return None
        event = known.form.template(text, *outside)
        return event if event is not None and self.wants(event.schema, event.table) else None

    def guard(self, kind: Hashable) -> Any:
        """The `Lesson.guard` of the template of a kind, which is known."""
        return self._known[kind].form.guard

    def missed(self, kind: Hashable, layout: Layout, lesson: Callable[[], Lesson]) -> None:
        """To be told of every row that had to be parsed; asks for a lesson when one is wanted.

        Raises nothing: what cannot be learnt from, for whatever reason, goes on being parsed.
        """
        if isinstance(kind, bytes) and len(kind) > _LONGEST_KIND:
            return
        known = self._known.get(kind)
        if known is None:
            if len(self._known) >= MAX_CACHED:
                self._known.clear()
            known = self._known[kind] = _Known(layout, _Form())
        elif known.layout is not layout and _of(known.layout) != _of(layout):
            if known.changes >= _MOST_CHANGES:
                return
            known = self._known[kind] = _Known(layout, _Form(), changes=known.changes + 1)
        known.missed += 1
        known.form.missed += 1
        if known.form.missed > known.form.learn_at - _LOOKED_AT or _is_power_of_2(known.missed):
            self._look_at(known, lesson)

    def _look_at(self, known: _Known, lesson: Callable[[], Lesson]) -> None:
        learnt = False
        with suppress(*FAILURES, DecodeError):
            shown = lesson()
            form = known.form
            if _is_power_of_2(known.missed) or form.missed >= form.learn_at:  # it takes as long as parsing
                form = self._form_of(shown)
            if form is not known.form:
                known.form, known.missed = form, 1
                if form.template is not None and _makes(form.template, shown):
                    return
                form.missed += 1
            learnt = self._follow(form, shown)
        form = known.form
        if learnt or form.missed >= form.learn_at + _TRIES:
            form.learn_at = 2 * max(form.missed, form.learn_at)

    def _form_of(self, lesson: Lesson) -> _Form:
        if self._count >= MAX_CACHED:
            self._forget()
        found = self._forms.setdefault(likeness(lesson), [])
        form = next((form for form in found if form.takes(lesson)), None)
        if form is None:
            form = _Form({name: [set() for _ in image] for name, image in lesson.images.items()})
            found.append(form)
            self._count += 1
        return form

    def _follow(self, form: _Form, lesson: Lesson) -> bool:
        """Looks at a message; whether a template was learnt from it."""
        if any(tuple(image) != lesson.layout.names for image in lesson.images.values()):
            return False
        form.look_at(lesson)
        if form.missed < form.learn_at:
            return False
        made = make_template(lesson, form.types, self._text)
        if made is None or not _makes(made.template, lesson):
            return False
        self._held += made.size
        if self._held > _MOST_HELD:
            self._forget()
        columns = column_template(lesson, form.types)
        form.template, form.guard = made.template, lesson.guard
        form.columns = columns if columns is not None and _reads(columns, lesson) else None
        self.learnt += 1
        return True

    def read(
        self,
        texts: Texts,
        sample: Iterable[tuple[int, Hashable]],
        outside: Outside | None = None,
        guarded: Callable[[Any, RowEvents], RowEvents] = _all,
    ) -> Iterator[RowEvents]:
        """What many texts hold of the forms that a sample of them is of; the others are to be decoded one by one.

        sample: numbers of texts, and their kinds.
        guarded: the rows that pass the `Lesson.guard` of their form.
        """
        left = texts.plain()
        if outside is not None:
            left = left[outside.tables[left] >= 0]
        numbers: defaultdict[_Form, list[int]] = defaultdict(list)
        kinds: defaultdict[_Form, set[Hashable]] = defaultdict(set)
        for number, kind in sample:
            if (known := self._known.get(kind)) is not None and known.form.columns is not None:
                numbers[known.form].append(number)
                kinds[known.form].add(kind)
        forms = sorted(numbers, key=lambda form: len(numbers[form]), reverse=True)
        forms = [form for form in forms if len(numbers[form]) >= _WORTHWHILE]
        # What one table alone has is read as that table's, which costs less; then what others may have of it after all.
        alone = [form for form in forms if len(kinds[form]) == 1 and form.columns and form.columns.tells_all]
        passes = [(form, form in alone) for form in forms] + [(form, False) for form in alone]
        head = 0
        if len(alone) == len(forms):
            head = min((form.columns.head(texts, numbers[form]) for form in alone if form.columns), default=0)
        for form, of_one_table in passes:
            worthwhile = _WORTHWHILE if of_one_table or not head else len(texts.starts) // _FEW
            if form.columns is not None and len(left) >= worthwhile:
                with suppress(*FAILURES, pa.ArrowException):
                    for found in form.columns.read(
                        texts,
                        left,
                        numbers[form],
                        self.wants,
                        outside,
                        of_one_table=of_one_table,
                        head=head if of_one_table else 0,
                    ):
                        rows = guarded(form.guard, found)
                        left = np.setdiff1d(left, rows.numbers, assume_unique=True)
                        yield rows

    def _forget(self) -> None:
        self._known.clear()
        self._forms.clear()
        self._count = self._held = 0


def _is_power_of_2(number: int) -> bool:
    return number & (number - 1) == 0


def _are_alike(seen: set[type], found: type) -> bool:
    """Whether a value's JSON type may be that of a column where these were seen."""
    known = seen - {type(None)}
    return found is type(None) or not known or found in known or {found, *known} == {int, float}


def _makes(template: Template, lesson: Lesson) -> bool:
    """Whether it makes of a message what parsing made of it; it may fail, too."""
    event = lesson.event
    return template(lesson.text.decode(), event.commit_ts, event.index, event.schema, event.table) == event


def _reads(columns: ColumnTemplate, lesson: Lesson) -> bool:
    """Whether it makes of the message it was learnt from what parsing made of it."""
    event, one = lesson.event, np.zeros(1, np.int64)
    outside = Outside(one + event.commit_ts, one + event.index, one, [(event.schema, event.table)])
    found = columns.read(
        Texts.of([lesson.text]), np.arange(1), [0], lambda *_: True, None if columns.tells_all else outside
    )
    return [event_of(rows) for rows in found] == [event]


def _of(layout: Layout) -> tuple[Any, ...]:
    """What makes layouts of one decoder equal."""
    return layout.names, layout.shape, layout.handle, layout.columns


def sample_of(size: int) -> Iterable[int]:
    """Numbers below `size`, evenly spread but at no fixed distance: tables and kinds of change may come in turn."""
    if size <= _SAMPLE:
        return range(size)
    return sorted({int(size * (number * _GOLDEN % 1)) for number in range(_SAMPLE)})


class JsonDecoder(GuardedDecoder):
    """A decoder of messages that are JSON as a whole, with templates."""

    def __init__(self, options: DecodeOptions) -> None:
        super().__init__(options)
        self._templates = Templates(self._wanted)
        self._is_plain = False

    @property
    def learnt(self) -> int:
        """See `GuardedDecoder.learnt`."""
        return self._templates.learnt

    def look_over(self, values: Iterable[bytes | None]) -> None:
        """Whether templates can be used; see `GuardedDecoder.look_over`."""
        self._is_plain = _are_plain(values)

    def usual_rows(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Iterator[RowEvents]:
        """Rows whose form is known; see `GuardedDecoder.usual_rows`."""
        guarded = partial(self._guarded, keys)
        return self._templates.read(Texts.of(values), self._sample(keys, values), guarded=guarded)

    def _guarded(self, keys: Sequence[bytes | None], guard: Any, rows: RowEvents) -> RowEvents:  # noqa: ARG002
        """Those rows whose messages' keys are as the `Lesson.guard` wants them."""
        return rows

    def _sample(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Iterator[tuple[int, Hashable]]:
        """Numbers of some messages, and their kinds; what is not known is parsed, so that it is."""
        for number in sample_of(len(values)):
            if value := values[number]:
                kind = self._kind_of(value)
                if not self._templates.knows(kind):
                    with suppress(*FAILURES, DecodeError):
                        self._events(keys[number], value)
                yield number, kind

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
