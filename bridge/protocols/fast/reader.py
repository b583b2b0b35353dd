"""Reads the rows of many messages at once by the templates of their kinds, and learns these from parsed messages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from bridge.protocols.batch_decode import EVENT_FIELDS
from bridge.protocols.decoder import FAILURES, DecodeError, RowEvents
from bridge.protocols.fast.compiled.codes import CONVERTED, INDEX, LONGEST_MADE, MARK, NOT_READ, PLACE_NUMBERS
from bridge.protocols.fast.compiled.functions import walk, write_images, write_places
from bridge.protocols.fast.lessons import Lesson, likeness
from bridge.protocols.fast.templates import IMAGES, Arrays, Rows, Templates
from bridge.protocols.fast.texts import BEHIND, Numbers, Texts, room

_LONGEST_KIND: Final = 1000
"""In bytes; a kind holds two names of 64 characters.  Kinds are remembered, and they come from the wire."""
_MOST_KINDS: Final = 65_536
_MOST_HELD: Final = 16 << 20
"""The most bytes that all templates hold together."""
_MOST_BYTES: Final = 500 << 20
"""The most bytes that are read together."""
_MOST_IMAGES: Final = (1 << 31) - 1
"""The most bytes of images, which Arrow's offsets reach."""
_MOST_CELLS: Final = 512
"""The most values of a message."""
_SLACK: Final = 64
"""Bytes behind the literals, since eight are written at a time."""

_UNREADABLE: Final = (*FAILURES, DecodeError, pa.ArrowException)
"""What messages that nothing can be learned from may raise."""

IsWanted = Callable[[str, str], bool]
"""Tells whether rows of a table, by schema and name, are wanted; raises DecodeError for a name that no table can
have."""


class _Literals(NamedTuple):
    """What converters have made of values.

    numbers: for each value, the number of its literal, NOT_READ for those that were not converted, or refused.
    ends, content: where each literal ends, and all of them.
    size: how many bytes they have where they are written, each as often as it is.
    """

    numbers: Rows
    ends: Numbers
    content: npt.NDArray[np.uint8]
    size: int


class _Trial(NamedTuple):
    """A number for messages of a kind, which holds if the message of the lesson is read as the plain path does.

    is_new: whether its template was not known before.
    """

    kind: Hashable
    lesson: Lesson
    number: int
    is_new: bool


class Reader:
    """Reads messages of the kinds that it knows.

    learned: how many templates it has learned.
    """

    def __init__(self, is_wanted: IsWanted) -> None:
        self._is_wanted = is_wanted
        self._numbers: dict[Hashable, int] = {}
        """The number of each kind, NOT_READ for one without a template."""
        self._missed = Counter[Hashable]()
        """How many messages of a kind could not be read."""
        self._templates = Templates()
        self.learned = 0

    def forget(self) -> None:
        """Forgets all kinds where they are too many.  The numbers of kinds that were given before mean nothing then."""
        if len(self._numbers) >= _MOST_KINDS or self._templates.size > _MOST_HELD:
            self._numbers.clear()
            self._missed.clear()
            self._templates = Templates()

    def numbers_of(self, kinds: Sequence[Hashable | None], lesson_of: Callable[[int], Lesson]) -> Rows:
        """Gives the numbers of messages' kinds, NOT_READ for those that cannot be read; kinds that are not known are
        learned.

        lesson_of: makes the lesson of the message with a number.
        """
        unknown: dict[Hashable | None, int] = {}
        for place, kind in enumerate(kinds):
            if kind not in self._numbers:
                unknown.setdefault(kind, place)
        self.learn((kind, partial(lesson_of, place)) for kind, place in unknown.items())
        return np.array([self._numbers.get(kind, NOT_READ) for kind in kinds], np.int32)

    def learn(self, missed: Iterable[tuple[Hashable | None, Callable[[], Lesson]]]) -> bool:
        """Counts messages that could not be read, by kind and with the lesson of each, and learns from the first,
        second, fourth, eighth and so on of a kind; tells whether one of their kinds has another template now.

        All of them are tried together: a trial for each kind took eight times as long (1,000 tables, canal-json), and
        more the more kinds there were.  Raises nothing: messages that it cannot learn from, for whatever reason, stay
        with the plain path.
        """
        trials = [trial for kind, lesson in missed if (trial := self._trial(kind, lesson)) is not None]
        is_learned = False
        with suppress(*_UNREADABLE):
            for trial in self._passed(trials):
                self._numbers[trial.kind] = trial.number
                self.learned += trial.is_new
                is_learned = True
        return is_learned

    def _trial(self, kind: Hashable | None, lesson: Callable[[], Lesson]) -> _Trial | None:
        """Counts a message, and makes a trial of what it tells; None where it tells nothing new."""
        if kind is None or (isinstance(kind, bytes) and len(kind) > _LONGEST_KIND):
            return None
        before = self._numbers.setdefault(kind, NOT_READ)
        self._missed[kind] += 1
        if self._missed[kind] & (self._missed[kind] - 1):
            return None
        with suppress(*_UNREADABLE):
            message_lesson, template_count = lesson(), len(self._templates.all)
            _check_is_whole(message_lesson)
            if self._is_wanted(message_lesson.event.schema, message_lesson.event.table):
                template = self._templates.template_of(message_lesson, likeness(message_lesson))
                if before == NOT_READ or self._templates.template_of_kind(before) != template:
                    number = self._templates.add_kind(template, message_lesson.event.schema, message_lesson.event.table)
                    return _Trial(kind, message_lesson, number, is_new=template == template_count)
        return None

    def _passed(self, trials: Sequence[_Trial]) -> Iterator[_Trial]:
        """Gives the trials whose message is read as the plain path does."""
        if not trials:
            return
        lessons = [trial.lesson for trial in trials]
        numbers = np.array([trial.number for trial in trials], np.int32)
        texts = Texts.of([lesson.text for lesson in lessons], [lesson.key for lesson in lessons]).without_blanks()
        rows = self.read(texts, numbers)
        for number, row in zip(rows.numbers.tolist(), rows.events.to_pylist(), strict=True):
            if tuple(row.values()) == lessons[number].event:
                yield trials[number]

    def read(self, texts: Texts, kinds: Rows) -> RowEvents:
        """Reads those texts whose kinds have a number and whose templates are those of their kinds.

        Raises MemoryError where there are too many bytes.
        """
        if len(texts.content) > _MOST_BYTES:
            raise MemoryError("too many bytes to be read together")
        arrays, size = self._templates.arrays(), len(kinds)
        cells = np.array([template.cells for template in self._templates.all], np.int64)
        value_limit = int(cells[arrays.table[kinds[kinds != NOT_READ], 0]].sum())
        values, converted = np.empty((value_limit, 3), np.int32), np.empty((value_limit, 2), np.int32)
        firsts, moments = np.empty(size, np.int64), np.zeros((size, 2), np.int64)
        member_seen = np.full(len(arrays.members), NOT_READ, np.int64)
        content, places = texts.numbers(), np.zeros((size, PLACE_NUMBERS), np.int64)
        count, conversions = walk(
            content, texts.starts, texts.key_ends, texts.ends, size, kinds, arrays.table, arrays.templates,
            arrays.steps, arrays.consts, arrays.members, arrays.slots, member_seen, values, firsts, converted, moments,
            places,
        )  # fmt: skip
        if self._templates.has_moments:
            self._convert_moments(texts.content, kinds, moments, firsts)
        literals = self._converted(texts.content, values[:count], converted[:conversions])
        images, scratch = [], room(len(texts.content) + _SLACK)
        # A literal that no converter makes has at most twice the bytes of its value; a separator follows each.
        compiled_count = int(np.count_nonzero(values[:count, 2] > CONVERTED))
        most_bytes = 2 * len(texts.content) + count + literals.size + LONGEST_MADE * compiled_count + _SLACK
        if most_bytes > _MOST_IMAGES:
            raise MemoryError("literals beyond Arrow's offsets")
        for number in range(len(IMAGES)):
            out = room(most_bytes)
            ends = np.zeros(size + 1, np.int32)
            size_of_all, _ = write_images(
                number, content, size, kinds, arrays.table, arrays.templates, arrays.steps, values, firsts,
                literals.numbers, literals.ends, literals.content, scratch, out, ends[1:],
            )  # fmt: skip
            images.append((ends, out[:size_of_all].tobytes()))
        numbers = np.flatnonzero(firsts != NOT_READ)
        templates = arrays.table[kinds[numbers], 0]
        columns = {
            "commit_ts": pa.array(moments[numbers, 0]),
            "index": pa.array(places[numbers, INDEX], pa.int32()),
            **self._of_tables(kinds[numbers]),
            **self._of_templates(templates),
        }
        if arrays.place_sizes[templates].any():
            columns["place"] = _places(arrays, templates, places[numbers])
        for number, image in enumerate(IMAGES):
            columns[image] = _images(*images[number], numbers, arrays.has_image[templates, number])
        return RowEvents(numbers, _events(columns, len(numbers)))

    def _converted(self, content: bytes, values: Rows, converted: Rows) -> _Literals:
        """Has columns convert their values that are not usual; equal values of a column only once.

        values: where each value begins and ends.
        converted: the number of each value that is converted, and the step that it is of.
        """
        numbers_of_values, literals, numbers = defaultdict[int, dict[bytes, int]](dict), list[bytes](), []
        places = values[converted[:, 0], :2].T.tolist()
        for step, start, end in zip(converted[:, 1].tolist(), *places, strict=True):
            value = content[start - 1 : end]  # with its quotation mark, which tells a string from a number
            number = numbers_of_values[step].get(value)
            if number is None:
                number = NOT_READ
                with suppress(*FAILURES, DecodeError):
                    literals.append(self._templates.converters[step](_parsed(value)).encode())
                    number = len(literals) - 1
                numbers_of_values[step][value] = number
            numbers.append(number)
        of_each = np.full(len(values), NOT_READ, np.int32)
        of_each[converted[:, 0]] = numbers
        sizes = np.fromiter(map(len, literals), np.int64, len(literals))
        size = int(sizes[of_each[of_each != NOT_READ]].sum())
        return _Literals(of_each, np.cumsum(sizes), np.frombuffer(b"".join([*literals, bytes(BEHIND)]), np.uint8), size)

    def _convert_moments(self, content: bytes, kinds: Rows, moments: Numbers, firsts: Numbers) -> None:
        """Turns the places of moments into their TSOs; messages with a moment that cannot be read become NOT_READ."""
        numbers = np.flatnonzero(firsts != NOT_READ)
        templates = self._templates.arrays().table[kinds[numbers], 0]
        converters = [template.moment for template in self._templates.all]
        moments_as_sent = list(
            zip(templates.tolist(), map(content.__getitem__, map(slice, *moments[numbers].T.tolist())), strict=True)
        )
        tso_of = {(template, text): _moment(converters[template], text) for template, text in set(moments_as_sent)}
        moments[numbers, 0] = np.fromiter(map(tso_of.__getitem__, moments_as_sent), np.int64, len(moments_as_sent))
        firsts[numbers[moments[numbers, 0] == NOT_READ]] = NOT_READ

    def _of_tables(self, kinds: Rows) -> dict[str, pa.Array]:
        """Gives the names of the messages' tables."""
        distinct_kinds, of_each = _distinct(kinds)
        names = [self._templates.names[kind] for kind in distinct_kinds.tolist()]
        numbers = pa.array(of_each)
        return {
            field: pa.array([name[part] for name in names], pa.string()).take(numbers)
            for part, field in enumerate(("schema", "table"))
        }

    def _of_templates(self, templates: Rows) -> dict[str, pa.Array]:
        """Gives what is the same in all events of a template."""
        distinct_templates, of_each = _distinct(templates)
        events = [self._templates.all[template].event for template in distinct_templates.tolist()]
        numbers = pa.array(of_each)
        return {
            name: pa.array([getattr(event, name) for event in events], EVENT_FIELDS.field(name).type).take(numbers)
            for name in ("kind", "columns", "key", "by_time")
        }


def _distinct(numbers: Rows) -> tuple[Numbers, Numbers]:
    """Gives the distinct numbers, none of which is large or below 0, and for each number its place among them.

    NumPy's `unique` sorts, which took a fortieth of the workers' time for sysbench's rows.
    """
    is_there = np.bincount(numbers) > 0
    return np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[numbers]


def _parsed(value: bytes) -> Any:
    """Gives a value as JSON would, from the byte before it, which is a quotation mark before strings alone."""
    if value[0] != MARK:
        return orjson.loads(value[1:])
    return value[1:].decode() if b"\\" not in value else orjson.loads(value + b'"')


def _moment(convert: Callable[[str], int] | None, text: bytes) -> int:
    """Gives the TSO of a moment, as JSON writes it, NOT_READ for one that cannot be read."""
    with suppress(*FAILURES, DecodeError):
        return NOT_READ if convert is None else convert(orjson.loads(b'"' + text + b'"'))
    return NOT_READ


def _events(columns: Mapping[str, pa.Array], count: int) -> pa.RecordBatch:
    """Gives events (EVENT_FIELDS) whose other columns are null."""
    nulls = pa.nulls(count, pa.string())
    return pa.RecordBatch.from_arrays([columns.get(field.name, nulls) for field in EVENT_FIELDS], schema=EVENT_FIELDS)


def _places(arrays: Arrays, templates: Rows, places: Numbers) -> pa.StringArray:
    """Gives the places of events, null where there is none.

    templates, places: the template of each, and the numbers of its place.
    """
    sizes = arrays.place_sizes[templates]
    out, ends = np.empty(int(sizes.sum()), np.uint8), np.zeros(len(templates) + 1, np.int32)
    write_places(
        templates, len(templates), arrays.place_firsts, arrays.place_parts, arrays.consts, places, out, ends[1:]
    )
    validity = None if sizes.all() else pa.array(sizes > 0).buffers()[1]
    return pa.Array.from_buffers(pa.string(), len(templates), [validity, pa.py_buffer(ends), pa.py_buffer(out)])


def _images(ends: Rows, content: bytes, numbers: Numbers, is_there: npt.NDArray[np.bool_]) -> pa.StringArray:
    """Gives the images of messages, null where there is none.

    ends: 0, and where the image of each message ends.
    numbers, is_there: the numbers of the wanted messages, and whether they have such an image.
    """
    bounds = ends[np.append(0, numbers + 1)]
    if not np.array_equal(ends[numbers], bounds[:-1]):  # another message has an image, but could not be read
        lengths = ends[numbers + 1] - ends[numbers]
        content = b"".join(content[at : at + size] for at, size in zip(ends[numbers], lengths, strict=True))
        bounds = np.cumsum(np.append(0, lengths), dtype=np.int32)
    validity = None if is_there.all() else pa.array(is_there).buffers()[1]
    return pa.Array.from_buffers(pa.string(), len(numbers), [validity, pa.py_buffer(bounds), pa.py_buffer(content)])


def _check_is_whole(lesson: Lesson) -> None:
    """Refuses a message that no template tells enough of.  Messages with images that lack columns are seldom alike."""
    if any(tuple(image) != lesson.layout.names for image in lesson.images.values()):
        raise DecodeError("an image lacks columns")
    if sum(map(len, lesson.images.values())) > _MOST_CELLS or lesson.event.cut:
        raise DecodeError("a message of an unusual form")
