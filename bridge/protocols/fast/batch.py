"""Templates for many messages at once: what `template_code` does for one text, here with NumPy and Arrow for all texts
of a buffer together, which costs a quarter of it.

Texts without backslashes and control characters are easily read: their quotation marks tell where everything lies.
Behind how many marks a hole begins and ends is the same in all texts of a kind with the same strings null.  So that is
where the holes are taken to be, and then it is looked whether all else is what stays, byte for byte, and whether every
value has its literal.  A text of which that is not true is left to the long way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import EVENT_FIELDS, SEP, Event, Kind
from bridge.protocols.decoder import DecodeError, RowEvents
from bridge.protocols.fast.byte_buffer import BEHIND, Numbers, Texts
from bridge.protocols.fast.column_literals import INTEGER, ColumnForm, column_form, each, matched
from bridge.protocols.fast.message_shape import TSO, Cell, Flat, Hole, Lesson, Node, Part, Types, flattened
from bridge.protocols.values.literals import NULL

_MOST_CELLS: Final = 512
_MOST_STAYS: Final = BEHIND // 4
"""Characters that stay: in UTF-8 no more than BEHIND."""
_MOST_LOOKED_AT: Final = 16
_TELLING: Final = 12
"""Bytes from which on what stays is looked at before the rest."""
_MOST_READERS: Final = 8
"""Each holds all that stays."""
_NULL: Final = b"null"
_MARK: Final = b'"'
_NAMES: Final = (Hole.SCHEMA, Hole.TABLE)
_STRINGS: Final = frozenset({*_NAMES, Hole.MOMENT, Hole.TEXT})
_HOLES: Final = {Hole.COMMIT_TS: TSO, Hole.NUMBER: INTEGER}

Fixed = frozenset[tuple[int, bytes]]
"""Numbers of those nodes of a template that are strings elsewhere, and stay here, and how they stand here: null, or the
name of the only table."""

TableName = tuple[str, ...]
"""Schema and table."""
Wants = Callable[[str, str], bool]
"""Whether rows of a table, given by schema and name, are wanted; raises DecodeError for a name that none can have."""


@dataclass(frozen=True)
class Outside:
    """What texts do not hold of their events.

    tables: of each text the number of its table in `names`, -1 where the text is not wanted.
    """

    commit_ts: Numbers
    index: Numbers
    tables: Numbers
    names: list[TableName]

    def fields(self, numbers: Numbers) -> dict[str, pa.Array]:
        """Of the events of these texts."""
        tables = pa.array(self.tables[numbers])
        schemas, names = (pa.array([name[part] for name in self.names], pa.string()) for part in range(2))
        return {
            "commit_ts": pa.array(self.commit_ts[numbers]),
            "index": pa.array(self.index[numbers], pa.int32()),
            "schema": schemas.take(tables),
            "table": names.take(tables),
        }


class ColumnTemplate:
    """The template of a lesson's kind of messages, for many of them.  Made by `batch.column_template`."""

    def __init__(self, lesson: Lesson, flat: Flat, forms: Mapping[Cell, ColumnForm]) -> None:
        self._start, *stays = (text.encode() for text in flat.between)
        are_strings = [forms[node].quoted if isinstance(node, Cell) else node in _STRINGS for node in flat.nodes]
        self._parts = list(zip(flat.nodes, are_strings, stays, strict=True))
        """The holes, whether each is a string, and what stays behind it."""
        self._forms = forms
        self._images = {name: [Cell(name, column) for column in range(len(row))] for name, row in lesson.images.items()}
        self._event, self._moment = lesson.event, lesson.moment
        self._readers: dict[Fixed, HoleReader | None] = {}
        self.tells_all = Hole.TABLE in flat.nodes
        """Whether the texts hold all that `Outside` has."""

    def read(
        self,
        texts: Texts,
        numbers: Numbers,
        sample: Sequence[int],
        wants: Wants,
        outside: Outside | None = None,
        *,
        of_one_table: bool = False,
        head: int = 0,
    ) -> Iterator[RowEvents]:
        """The rows of wanted tables that it can read of the texts of these numbers, which are plain.

        sample: numbers of some texts of this kind, which are looked at for what may be null.
        of_one_table: they are all of one table, and only its rows are read, which costs less.
        head: so many bytes are taken to be alike in all texts of a kind (see `head`), which costs less.
        """
        looked_at = [texts.text(number) for number in sample[:_MOST_LOOKED_AT]]
        fixed_in = [self._fixed(text, of_one_table=of_one_table) for text in looked_at]
        for fixed, _ in Counter(fixed_in).most_common():
            reader = None if fixed is None else self._reader(fixed)
            if fixed is not None and reader is not None and self._is_wanted(fixed, wants):
                found, columns = reader.read(texts, numbers, head_of(looked_at[fixed_in.index(fixed)][:head]))
                numbers = np.setdiff1d(numbers, found, assume_unique=True)
                if len(found):
                    yield self._rows(found, reader.nodes, columns, self._names(fixed), wants, outside)

    def head(self, texts: Texts, sample: Sequence[int]) -> int:
        """With how many bytes all these texts of one table begin in which holes lie at the same places, and are numbers
        and parts only: those tell by themselves where they end."""
        walks = [self._walk(texts.text(number)) for number in sample[:_MOST_LOOKED_AT]]
        alike = [places[0] for places in zip(*walks, strict=False) if len(set(places)) == 1]
        return alike[-1] if alike else 0

    def _walk(self, text: bytes) -> list[int]:
        """Where holes begin and end, up to the beginning of the first one that says no number and is no part."""
        at = len(self._start)
        places = []
        for node, _, stays in self._parts:
            if node in _NAMES:
                at = text.find(_MARK, at + 1) + 1
            else:
                places.append(at)
                if node not in _HOLES and not isinstance(node, Part):
                    break
                at = text.find(stays, at)
                places.append(at)
            at += len(stays)
        return places

    def _fixed(self, text: bytes, *, of_one_table: bool) -> Fixed | None:
        """What stays in texts like this one, None when it is of another kind."""
        fixed, at = [], len(self._start)
        for number, (node, is_string, stays) in enumerate(self._parts):
            start = at
            if not is_string:
                at = text.find(stays, at)
            elif text.startswith(_MARK, at):
                at = text.find(_MARK, at + 1) + 1
                if of_one_table and node in _NAMES:
                    fixed.append((number, text[start:at]))
            elif isinstance(node, Cell):
                fixed.append((number, _NULL))
                at += len(_NULL)
            if at <= 0 or not text.startswith(stays, at):
                return None
            at += len(stays)
        return frozenset(fixed)

    def _names(self, fixed: Fixed) -> dict[Node, str]:
        """Schema and table, where they stay."""
        return {self._parts[number][0]: text[1:-1].decode() for number, text in fixed if text != _NULL}

    def _is_wanted(self, fixed: Fixed, wants: Wants) -> bool:
        """Whether the table is that stays; only the texts tell where none does."""
        names = self._names(fixed)
        try:
            return not names or wants(*(names[name] for name in _NAMES))
        except DecodeError:
            return False

    def _reader(self, fixed: Fixed) -> HoleReader | None:
        if fixed not in self._readers:
            if len(self._readers) >= _MOST_READERS:
                self._readers.clear()
            self._readers[fixed] = hole_reader(*self._variant(dict(fixed)))
        return self._readers[fixed]

    def _variant(self, fixed: Mapping[int, bytes]) -> tuple[list[Node], list[bytes]]:
        """The holes, and what stays before them and behind the last; marks around strings stay."""
        nodes, stays = [], [self._start]
        for number, (node, is_string, following) in enumerate(self._parts):
            if number in fixed:
                stays[-1] += fixed[number] + following
            else:
                mark = _MARK if is_string else b""
                nodes.append(node)
                stays[-1] += mark
                stays.append(mark + following)
        return nodes, stays

    def _rows(
        self,
        numbers: Numbers,
        nodes: Sequence[Node],
        columns: Sequence[pa.StringArray],
        names: Mapping[Node, str],
        wants: Wants,
        outside: Outside | None,
    ) -> RowEvents:
        """The events of those texts whose table is wanted, and in which every value is as it should be.

        names: schema and table, where they are no holes.
        """
        values = [self._values(node, strings) for node, strings in zip(nodes, columns, strict=True)]
        if self.tells_all and not names:
            schema, table = (nodes.index(name) for name in _NAMES)
            values[schema] = _wanted(wants, values[schema], values[table])
        if any(found.null_count for found in values):
            valid = reduce(pc.and_, (found.is_valid() for found in values))
            values = [found.filter(valid) for found in values]
            numbers = numbers[valid.to_numpy(zero_copy_only=False)]
        of = dict(zip(nodes, values, strict=True))
        event = self._event._asdict()
        event["commit_ts"] = of.get(Hole.COMMIT_TS, of.get(Hole.MOMENT))
        event["schema"], event["table"] = (of.get(name, names.get(name)) for name in _NAMES)
        for name, cells in self._images.items():
            event[name] = self._image(cells, of)
        if outside is not None:
            event |= outside.fields(numbers)
        arrays = [_column(event[field.name], field.type, len(numbers)) for field in EVENT_FIELDS]
        return RowEvents(numbers, pa.RecordBatch.from_arrays(arrays, schema=EVENT_FIELDS))

    def _values(self, node: Node, strings: pa.StringArray) -> pa.Array:
        """What is made of what stands in a hole; null where that is not what belongs there."""
        if isinstance(node, Cell):
            return self._forms[node].make(strings)
        if isinstance(node, Part):
            return each(node.text_of, strings)
        if node is Hole.MOMENT and self._moment is not None:
            return each(self._moment, strings, pa.int64())
        if node in _HOLES:
            strings = matched(strings, _HOLES[node])
        return strings.cast(pa.int64()) if node is Hole.COMMIT_TS else strings

    def _image(self, cells: Sequence[Cell], values: Mapping[Node, pa.Array]) -> pa.StringArray:
        """The literals of a row, joined by SEP."""
        parts: list[Any] = [""]
        for cell in cells:
            before = SEP if cell.column else ""
            if cell not in values:
                parts[-1] += before + NULL
                continue
            mark = "'" if self._forms[cell].wraps else ""
            parts[-1] += before + mark
            parts += [values[cell], mark]
        return pc.binary_join_element_wise(*parts, "")


class Head(NamedTuple):
    """What texts begin with.  size: in bytes; marks: where in it quotation marks are."""

    size: int
    marks: Numbers

    def places(self, texts: Texts, numbers: Numbers, marks: Numbers) -> Numbers:
        """Where the marks of these numbers, the first of a text being number 0, are in the texts of those numbers."""
        rest = texts.marks(self.size)
        is_here = marks < len(self.marks)
        if not is_here.any():
            return rest.at.take(rest.firsts[numbers][:, None] + (marks - len(self.marks)), mode="clip")
        places = np.empty((len(numbers), len(marks)), np.int64)
        places[:, is_here] = texts.starts[numbers][:, None] + self.marks[marks[is_here]]
        places[:, ~is_here] = rest.at.take(
            rest.firsts[numbers][:, None] + (marks[~is_here] - len(self.marks)), mode="clip"
        )
        return places


def head_of(text: bytes) -> Head:
    """The head that is this text."""
    return Head(len(text), np.flatnonzero(np.frombuffer(text, np.uint8) == ord(_MARK)))


NO_HEAD: Final = head_of(b"")


class HoleReader(NamedTuple):
    """Where holes lie, told by quotation marks, the first of a text being number 0.

    nodes, stays: the holes, and what stays before them, and behind the last.
    first_marks, starts: holes start so many bytes behind these marks.
    last_marks, ends: they end so many bytes before these marks; the last hole, if no mark follows, so many bytes before
        the end of the text (`is_last`).
    """

    nodes: list[Node]
    stays: list[bytes]
    first_marks: Numbers
    starts: Numbers
    last_marks: Numbers
    ends: Numbers
    is_last: bool
    marks: int
    telling: list[tuple[bytes, int, int]]
    """Of some of what stays, what tells a text from others quickly: it, and where it starts: so many bytes before which
    mark."""

    def read(self, texts: Texts, numbers: Numbers, head: Head) -> tuple[Numbers, list[pa.StringArray]]:
        """The numbers of those texts that are of this kind, and what stands in each of their holes.

        head: what they begin with; there, no hole may be a string.
        """
        numbers = self._alike(texts, numbers, head)
        cuts = self._cuts(texts, numbers, head)
        sizes = np.diff(cuts)
        fits = (sizes[:, ::2] == [len(stays) for stays in self.stays]).all(axis=1) & (sizes >= 0).all(axis=1)
        numbers, cuts = numbers[fits], cuts[fits]
        fits = texts.have_between(cuts[:, :-1:2], cuts[:, 1::2], b"".join(self.stays))
        if not fits.all():
            numbers, cuts = numbers[fits], cuts[fits]
        return numbers, texts.columns(cuts[:, 1:-1:2], cuts[:, 2:-1:2])

    def _alike(self, texts: Texts, numbers: Numbers, head: Head) -> Numbers:
        """Those texts that at a glance can be of this kind."""
        counts = texts.marks(head.size).counts
        numbers = numbers[counts[numbers] == self.marks - len(head.marks)]
        for stays, mark, before in self.telling:
            numbers = numbers[texts.have(stays, head.places(texts, numbers, np.array([mark]))[:, 0] - before)]
        return numbers

    def _cuts(self, texts: Texts, numbers: Numbers, head: Head) -> Numbers:
        """Of each text the start, start and end of every hole, and the end."""
        cuts = np.empty((len(numbers), 2 * len(self.nodes) + 2), np.int64)
        cuts[:, 0], cuts[:, -1] = texts.starts[numbers], texts.ends[numbers]
        cuts[:, 1:-1:2] = head.places(texts, numbers, self.first_marks) + self.starts
        cuts[:, 2:-1:2] = head.places(texts, numbers, self.last_marks) - self.ends
        if self.is_last:
            cuts[:, -2] = cuts[:, -1] - self.ends[-1]
        return cuts


def hole_reader(nodes: list[Node], stays: list[bytes]) -> HoleReader | None:
    """None where the marks do not tell where holes lie, as there are none between two."""
    if not nodes or not all(_MARK in text for text in stays[:-1]):
        return None
    is_last = _MARK not in stays[-1]
    marks, first_marks, last_marks = 0, [], []
    for node, text in zip(nodes, stays, strict=False):
        marks += text.count(_MARK)
        first_marks.append(marks - 1)
        marks += node.marks if isinstance(node, Part) else 0
        last_marks.append(marks)
    starts = [len(text) - text.rfind(_MARK) for text in stays[:-1]]
    first_cell = next((number for number, node in enumerate(nodes) if isinstance(node, Cell)), len(nodes) - 1)
    return HoleReader(
        nodes,
        stays,
        np.array(first_marks),
        np.array(starts),
        np.array(last_marks),
        np.array([len(text) if is_last and text is stays[-1] else text.find(_MARK) for text in stays[1:]]),
        is_last,
        marks + stays[-1].count(_MARK),
        [
            (text, mark, len(text) - start)
            for text, mark, start in islice(zip(stays, first_marks, starts, strict=False), first_cell + 1)
            if len(text) >= _TELLING
        ],
    )


def _wanted(wants: Wants, schemas: pa.StringArray, tables: pa.StringArray) -> pa.StringArray:
    """The schemas; null where the table is not wanted."""
    names = pc.binary_join_element_wise(schemas, tables, SEP)
    which = each(lambda name: wants(*name.split(SEP)), names, pa.bool_())
    if which.null_count == 0 == which.false_count:
        return schemas
    return pc.if_else(which, schemas, pa.scalar(None, pa.string()))


def event_of(rows: RowEvents) -> Event:
    """The event of one row."""
    [fields] = rows.events.to_pylist()
    return Event(**{**fields, "kind": Kind(fields["kind"])})


def _column(value: Any, kind: pa.DataType, size: int) -> pa.Array:
    return value if isinstance(value, pa.Array) else pa.repeat(pa.scalar(value, kind), size)


def column_template(lesson: Lesson, types: Types) -> ColumnTemplate | None:
    """The template of messages like this one whose values have these types; None where there is none.

    It may fail, as FAILURES do, on a message that is unlike any.
    """
    flat = flattened(lesson.tree)
    if sum(map(len, types.values())) > _MOST_CELLS or sum(map(len, flat.between)) > _MOST_STAYS:
        return None
    forms = {
        Cell(image, column): column_form(lesson.layout.converters[column], seen)
        for image, columns in types.items()
        for column, seen in enumerate(columns)
    }
    known = {cell: form for cell, form in forms.items() if form is not None}
    return ColumnTemplate(lesson, flat, known) if len(known) == len(forms) else None
