"""Templates for many messages at once: what `template_code` does for one text, here with NumPy and Arrow for all texts
of a buffer together, which costs a quarter of it.

Texts without backslashes and control characters are easily read: their quotation marks tell where everything lies.
Behind how many marks a hole begins and ends is the same in all texts of a kind with the same strings null.  So that is
where the holes are taken to be, and then it is looked whether all else is what stays, byte for byte, and whether every
value has its literal.  A text of which that is not true is left to the long way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import EVENT_FIELDS, SEP, Event, Kind
from bridge.protocols.column_literals import INTEGER, ColumnForm, column_form, each, matched
from bridge.protocols.decoder import RowEvents
from bridge.protocols.lessons import TSO, Cell, Flat, Hole, Lesson, Node, Part, Types, flattened
from bridge.protocols.literals import NULL
from bridge.protocols.texts import BEHIND, Numbers, Texts

_MOST_CELLS: Final = 512
_MOST_STAYS: Final = BEHIND // 4
"""Characters that stay: in UTF-8 no more than BEHIND."""
_MOST_LOOKED_AT: Final = 16
_TELLING: Final = 24
_MOST_READERS: Final = 8
"""Each holds all that stays."""
_NULL: Final = b"null"
_MARK: Final = b'"'
_STRINGS: Final = frozenset({Hole.MOMENT, Hole.TEXT})
_HOLES: Final = {Hole.COMMIT_TS: TSO, Hole.NUMBER: INTEGER}

Nulls = frozenset[int]
"""Numbers of those nodes of a template that are strings elsewhere, and null here."""


class ColumnTemplate:
    """The template of a lesson's kind of messages, for many of them.  Made by `column_template`."""

    def __init__(self, lesson: Lesson, flat: Flat, forms: Mapping[Cell, ColumnForm]) -> None:
        self._start, *stays = (text.encode() for text in flat.between)
        self._telling = (self._start[-_TELLING:], max(0, len(self._start) - _TELLING)), (self._start, 0)
        """What tells that a text is of this kind, or looks like it, and where it stands: first what tells most."""
        are_strings = [forms[node].quoted if isinstance(node, Cell) else node in _STRINGS for node in flat.nodes]
        self._parts = list(zip(flat.nodes, are_strings, stays, strict=True))
        """The holes, whether each is a string, and what stays behind it."""
        self._forms = forms
        self._images = {name: [Cell(name, column) for column in range(len(row))] for name, row in lesson.images.items()}
        self._event, self._moment = lesson.event, lesson.moment
        self._readers: dict[Nulls, HoleReader | None] = {}
        self.tells_moment = not {Hole.COMMIT_TS, Hole.MOMENT}.isdisjoint(flat.nodes)
        """Whether the texts hold the commit_ts."""

    def read(
        self,
        texts: Texts,
        numbers: Numbers,
        sample: Iterable[int],
        commit_ts: Numbers | None = None,
        index: Numbers | None = None,
    ) -> Iterator[RowEvents]:
        """The rows that it can read of the texts of these numbers, which are plain.

        sample: numbers of some texts of this kind, which are looked at for what may be null.
        commit_ts, index: of the event of each text, where the texts do not hold them.
        """
        for constant, at in self._telling:
            numbers = numbers[texts.have(constant, texts.starts[numbers] + at)]
        nulls_of = (self._nulls(texts.text(number)) for number in islice(sample, _MOST_LOOKED_AT))
        for nulls, _ in Counter(nulls_of).most_common():
            reader = None if nulls is None else self._reader(nulls)
            if reader is not None:
                found, columns = reader.read(texts, numbers)
                numbers = np.setdiff1d(numbers, found, assume_unique=True)
                if len(found):
                    yield self._rows(found, reader.nodes, columns, commit_ts, index)

    def _nulls(self, text: bytes) -> Nulls | None:
        """What is null in a text, None when it is of another kind."""
        nulls, at = [], len(self._start)
        for number, (node, is_string, stays) in enumerate(self._parts):
            if not is_string:
                at = text.find(stays, at)
            elif text.startswith(_MARK, at):
                at = text.find(_MARK, at + 1) + 1
            elif isinstance(node, Cell):
                nulls.append(number)
                at += len(_NULL)
            if at <= 0 or not text.startswith(stays, at):
                return None
            at += len(stays)
        return frozenset(nulls)

    def _reader(self, nulls: Nulls) -> HoleReader | None:
        if nulls not in self._readers:
            if len(self._readers) >= _MOST_READERS:
                self._readers.clear()
            self._readers[nulls] = hole_reader(*self._variant(nulls))
        return self._readers[nulls]

    def _variant(self, nulls: Nulls) -> tuple[list[Node], list[bytes]]:
        """The holes, and what stays before them and behind the last; marks around strings stay."""
        nodes, stays = [], [self._start]
        for number, (node, is_string, following) in enumerate(self._parts):
            if number in nulls:
                stays[-1] += _NULL + following
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
        commit_ts: Numbers | None,
        index: Numbers | None,
    ) -> RowEvents:
        """The events of those texts in which every value is as it should be."""
        values = [self._values(node, strings) for node, strings in zip(nodes, columns, strict=True)]
        if any(found.null_count for found in values):
            valid = reduce(pc.and_, (found.is_valid() for found in values))
            values = [found.filter(valid) for found in values]
            numbers = numbers[valid.to_numpy(zero_copy_only=False)]
        of = dict(zip(nodes, values, strict=True))
        event = self._event._asdict()
        event["commit_ts"] = of.get(Hole.COMMIT_TS, of.get(Hole.MOMENT))
        for name, cells in self._images.items():
            event[name] = self._image(cells, of)
        if commit_ts is not None and index is not None:
            event["commit_ts"], event["index"] = pa.array(commit_ts[numbers]), pa.array(index[numbers], pa.int32())
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

    def read(self, texts: Texts, numbers: Numbers) -> tuple[Numbers, list[pa.StringArray]]:
        """The numbers of those texts that are of this kind, and what stands in each of their holes."""
        cuts = self._cuts(texts, numbers)
        sizes = np.diff(cuts)
        fits = (sizes[:, ::2] == [len(stays) for stays in self.stays]).all(axis=1) & (sizes >= 0).all(axis=1)
        numbers, cuts = numbers[fits], cuts[fits]
        fits = texts.have_between(cuts[:, :-1:2], cuts[:, 1::2], b"".join(self.stays))
        if not fits.all():
            numbers, cuts = numbers[fits], cuts[fits]
        return numbers, texts.columns(cuts[:, 1:-1:2], cuts[:, 2:-1:2])

    def _cuts(self, texts: Texts, numbers: Numbers) -> Numbers:
        """Of each text the start, start and end of every hole, and the end."""
        marks = texts.first_marks[numbers][:, None]
        cuts = np.empty((len(numbers), 2 * len(self.nodes) + 2), np.int64)
        cuts[:, 0], cuts[:, -1] = texts.starts[numbers], texts.ends[numbers]
        cuts[:, 1:-1:2] = texts.marks.take(marks + self.first_marks, mode="clip") + self.starts
        cuts[:, 2:-1:2] = texts.marks.take(marks + self.last_marks, mode="clip") - self.ends
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
    return HoleReader(
        nodes,
        stays,
        np.array(first_marks),
        np.array([len(text) - text.rfind(_MARK) for text in stays[:-1]]),
        np.array(last_marks),
        np.array([len(text) if is_last and text is stays[-1] else text.find(_MARK) for text in stays[1:]]),
        is_last,
    )


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
