"""Learns templates from parsed messages, and finds those that a batch of messages needs.

A template is of a *form*: messages that are equal but for their values and their table.  Which form a message has, only
parsing tells; so the form of the last parsed message of a *kind* is taken, and the kind shows at a glance: the bytes
that name the table and the operation.
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
"""So many messages of a form are missed before a template is learned from them.  Of those that do not match it, the
last so many are looked at when it has come to twice as many, and so on: then it is learned anew, with the JSON types
that they hold."""
_TRIES: Final = 8
"""Messages in a row that may prove unfit to be learned from."""
_LONGEST_KIND: Final = 1000
"""Bytes; two names of 64 characters stand in it.  Kinds are remembered, and bytes from the wire make them."""
_MOST_HELD: Final = 16 << 20
"""Bytes that all templates hold together."""
_WORTHWHILE: Final = 2
"""Messages of a form among those sampled, from which on the form is read: with fewer, parsing them costs less."""
_FEW: Final = 8
"""To look through all messages a second time, whole, costs as much as to parse one in so many."""


@dataclass(eq=False)
class _Form:
    """What is known of messages that are alike but for their values and tables: how many no template has read, and the
    JSON types seen in each cell."""

    types: JsonTypes = field(default_factory=dict)
    missed: int = 0
    learn_at: int = _LOOKED_AT
    template: ColumnTemplate | None = None
    guard: Any = None

    def takes(self, lesson: Lesson) -> bool:
        """Says whether a message's values may be of the types of the others."""
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
    """What is known of one kind of message: the form of the last one that was looked at, and how many no template has
    read."""

    form: _Form = field(default_factory=_Form)
    missed: int = 0


def _all(guard: Any, rows: RowEvents) -> RowEvents:  # noqa: ARG001
    return rows


class Templates:
    """The templates of a protocol, by form.  Tables with the same columns share one: the table's name is no more than a
    value.

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
        """Says whether rows of a table are wanted, asked once; raises DecodeError for a name that none can have."""
        found = self._wanted.get((schema, table))
        if found is None:
            found = self._ask(schema, table)
            if len(self._wanted) >= MAX_CACHED:
                self._wanted.clear()
            self._wanted[schema, table] = found
        return found

    def knows(self, kind: Hashable) -> bool:
        """Says whether a message of this kind was missed before."""
        return kind in self._kinds

    def miss(self, kind: Hashable, lesson: Callable[[], Lesson]) -> None:
        """Counts a message that no template has read, and takes a lesson from it when one is wanted.

        Raises nothing: what cannot be learned from, for whatever reason, goes on being parsed.
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
                    return  # it may well read the message, and was not asked
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
        """Looks at a message, and says whether a template was learned from it."""
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
        """Reads the texts of those forms that a sample of them is of.

        sample: numbers of texts, and their kinds.
        guarded: the rows that pass the `Lesson.guard` of their form.
        """
        left = texts.plain()
        if outside is not None:
            left = left[outside.tables[left] >= 0]
        numbers: defaultdict[_Form, list[int]] = defaultdict(list)
        kinds: defaultdict[_Form, set[Hashable]] = defaultdict(set)
        for number, kind in sample:
            if (known := self._kinds.get(kind)) is not None and known.form.template is not None:
                numbers[known.form].append(number)
                kinds[known.form].add(kind)
        forms = sorted(numbers, key=lambda form: len(numbers[form]), reverse=True)
        forms = [form for form in forms if len(numbers[form]) >= _WORTHWHILE]
        # What one table alone has is read as that table's, which costs less; then what others may have of it after all.
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
    """Says whether a value's JSON type may be that of a column where these were seen."""
    known = seen - {type(None)}
    return found is type(None) or not known or found in known or {found, *known} == {int, float}


def _check_is_whole(lesson: Lesson) -> None:
    """Refuses a message with an image that lacks columns: of those hardly one is like another."""
    if any(tuple(image) != lesson.layout.names for image in lesson.images.values()):
        raise DecodeError("an image lacks columns")


def _reads(template: ColumnTemplate, lesson: Lesson) -> bool:
    """Says whether a template makes of the message that it was learned from what parsing made of it."""
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
