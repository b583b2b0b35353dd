"""Learns templates from parsed messages, and finds those that a batch of messages needs.

A template is for one *form*: messages that are equal except for their values and their table.  Only parsing tells the
form of a message, so the form of the last parsed message of the same *kind* is assumed.  The kind needs no parsing: it
is the bytes that name the table and the operation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bridge.events import Event, Kind
from bridge.model import TableName
from bridge.protocols.decoder import FAILURES, MAX_CACHED, DecodeError, RowEvents
from bridge.protocols.fast.byte_buffer import Texts
from bridge.protocols.fast.column_template import ColumnTemplate, IsWanted, Outside, column_template
from bridge.protocols.fast.message_shape import JsonTypes, Lesson, likeness

_LOOKED_AT: Final = 32
"""This many messages of a form must be missed before a template is learned from them.  When twice as many have not
matched it, the last of these are looked at, and so on: then it is learned anew, with the JSON types that they hold."""
_TRIES: Final = 8
"""After this many unfit messages in a row, it stops learning from a kind."""
_LONGEST_KIND: Final = 1000
"""In bytes; a kind holds two names of 64 characters.  Kinds are remembered, and they come from the wire."""
_MOST_HELD: Final = 16 << 20
"""The most bytes that all templates hold together."""
_WORTHWHILE: Final = 2
"""A form is read when a sample holds this many messages of it; with fewer, parsing them costs less."""
_FEWEST: Final = 128
"""From this many texts of a form with the same nulls on, reading them together costs less than parsing them."""
_FEW: Final = 8
"""Reading all messages a second time, as a whole, costs as much as parsing one in this many."""


@dataclass(eq=False)
class _Form:
    """What is known of messages that are alike except for their values and tables: how many of them no template has
    read, and the JSON types seen in each cell."""

    types: JsonTypes = field(default_factory=dict)
    missed: int = 0
    learn_at: int = _LOOKED_AT
    template: ColumnTemplate | None = None
    guard: Any = None

    def takes(self, lesson: Lesson) -> bool:
        """Tells whether a message's values may have the types of the others."""
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
class _KnownKind:
    """What is known of one kind of message: the form of the last message that was looked at, and how many no template
    has read."""

    form: _Form = field(default_factory=_Form)
    missed: int = 0


def _all(guard: Any, rows: RowEvents) -> RowEvents:  # noqa: ARG001
    return rows


class Templates:
    """The templates of a protocol, by form.  Tables with the same columns share a template: the table's name is only a
    value in it.

    is_wanted: whether rows of a table are wanted.
    learned: how many templates have been made.
    """

    def __init__(self, is_wanted: IsWanted) -> None:
        self._ask = is_wanted
        self._wanted: dict[tuple[str, str], bool] = {}
        self._kinds: dict[Hashable, _KnownKind] = {}
        self._forms: dict[Hashable, list[_Form]] = {}
        self._count = self._held = self.learned = 0

    def is_wanted(self, schema: str, table: str) -> bool:
        """Tells whether rows of a table are wanted, and remembers it; raises DecodeError for a name that no table can
        have."""
        found = self._wanted.get((schema, table))
        if found is None:
            found = self._ask(schema, table)
            if len(self._wanted) >= MAX_CACHED:
                self._wanted.clear()
            self._wanted[schema, table] = found
        return found

    def knows(self, kind: Hashable) -> bool:
        """Tells whether a message of this kind was missed before."""
        return kind in self._kinds

    def miss(self, kind: Hashable, lesson: Callable[[], Lesson]) -> None:
        """Counts a message that no template has read, and learns from it when it is time to.

        Raises nothing: messages that it cannot learn from, for whatever reason, stay with the plain path.
        """
        if isinstance(kind, bytes) and len(kind) > _LONGEST_KIND:
            return
        known = self._kinds.get(kind)
        if known is None:
            if len(self._kinds) >= MAX_CACHED:
                self._kinds.clear()
            known = self._kinds[kind] = _KnownKind()
        known.missed += 1
        known.form.missed += 1
        if known.form.missed > known.form.learn_at - _LOOKED_AT or _is_power_of_2(known.missed):
            self._look_at(known, lesson)

    def _look_at(self, known: _KnownKind, lesson: Callable[[], Lesson]) -> None:
        is_learned = False
        with suppress(*FAILURES, DecodeError, pa.ArrowException):
            shown = lesson()
            _check_is_whole(shown)
            form = self._form_of(shown)
            if form is not known.form:
                known.form = form
                if form.template is not None:
                    return  # its template may be able to read the message, but was not tried
                form.missed += 1
            is_learned = self._follow(form, shown)
        form = known.form
        if is_learned or form.missed >= form.learn_at + _TRIES:
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
        """Looks at a message, and tells whether a template was learned from it."""
        form.look_at(lesson)
        if form.missed < form.learn_at:
            return False
        made = column_template(lesson, form.types)
        if made is None or not _reads(made, lesson):
            return False
        self._held += made.size
        if self._held > _MOST_HELD:
            self._forget()
        form.template, form.guard = made, lesson.guard
        self.learned += 1
        return True

    def read(
        self,
        texts: Texts,
        sample: Iterable[tuple[int, Hashable]],
        outside: Outside | None = None,
        guarded: Callable[[Any, RowEvents], RowEvents] = _all,
    ) -> Iterator[RowEvents]:
        """Reads the texts whose forms are found in a sample.

        sample: numbers of texts, with their kinds.
        guarded: keeps the rows that pass the `Lesson.guard` of their form.
        """
        numbers: defaultdict[_Form, list[int]] = defaultdict(list)
        kinds: defaultdict[_Form, set[Hashable]] = defaultdict(set)
        for number, kind in sample:
            if (known := self._kinds.get(kind)) is not None and known.form.template is not None:
                numbers[known.form].append(number)
                kinds[known.form].add(kind)
        forms = sorted(numbers, key=lambda form: len(numbers[form]), reverse=True)
        forms = [form for form in forms if len(numbers[form]) >= _WORTHWHILE]
        if not forms:
            return
        left = texts.plain()
        if outside is not None:
            left = left[outside.tables[left] >= 0]
        # A form of only one table is read as that table's, which costs less; then other tables' texts of it are read.
        alone = [form for form in forms if len(kinds[form]) == 1 and form.template and form.template.tells_all]
        passes = [(form, form in alone) for form in forms] + [(form, False) for form in alone]
        head = 0
        if len(alone) == len(forms):
            head = min((form.template.head(texts, numbers[form]) for form in alone if form.template), default=0)
        for form, of_one_table in passes:
            worthwhile = _WORTHWHILE if of_one_table or not head else len(texts.starts) // _FEW
            if form.template is not None and len(left) >= worthwhile:
                with suppress(*FAILURES, pa.ArrowException):
                    for found in form.template.read(
                        texts,
                        left,
                        numbers[form],
                        self.is_wanted,
                        outside,
                        of_one_table=of_one_table,
                        head=head if of_one_table else 0,
                        fewest=_FEWEST,
                    ):
                        rows = guarded(form.guard, found)
                        left = np.setdiff1d(left, rows.numbers, assume_unique=True)
                        yield rows

    def _forget(self) -> None:
        self._kinds.clear()
        self._forms.clear()
        self._count = self._held = 0


def _is_power_of_2(number: int) -> bool:
    return number & (number - 1) == 0


def _are_alike(seen: set[type], found: type) -> bool:
    """Tells whether a value's JSON type fits a column in which these types were seen."""
    known = seen - {type(None)}
    return found is type(None) or not known or found in known or {found, *known} == {int, float}


def _check_is_whole(lesson: Lesson) -> None:
    """Refuses a message with an image that lacks columns: such messages are seldom alike."""
    if any(tuple(image) != lesson.layout.names for image in lesson.images.values()):
        raise DecodeError("an image lacks columns")


def _reads(template: ColumnTemplate, lesson: Lesson) -> bool:
    """Tells whether a template reads the message that it was learned from as the plain path does."""
    event, one = lesson.event, np.zeros(1, np.int64)
    outside = Outside(one + event.commit_ts, one + event.index, one, [TableName(event.schema, event.table)])
    found = template.read(
        Texts.of([lesson.text]), np.arange(1), [0], lambda *_: True, None if template.tells_all else outside
    )
    return [_event_of(rows) for rows in found] == [event]


def _event_of(rows: RowEvents) -> Event:
    """Gives the event of one row."""
    [fields] = rows.events.to_pylist()
    return Event(**{**fields, "kind": Kind(fields["kind"])})
