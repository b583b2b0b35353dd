"""Reads the messages of one form by a template, many at once, with NumPy and Arrow.

JSON without backslashes and control characters is easy to read: its quotation marks tell where everything is.  In all
texts of a form in which the same strings are null, a hole (a value that differs) begins and ends after the same number
of marks.  So the holes are assumed to be there.  Then every byte between the holes is compared with the form's
constants, and every value must have a literal.  A text that fails any of these checks is left to the plain path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import EVENT_FIELDS, SEP
from bridge.model import TableName
from bridge.protocols.decoder import DecodeError, RowEvents
from bridge.protocols.fast.byte_buffer import BEHIND, Numbers, Texts
from bridge.protocols.fast.column_literals import INTEGER, ColumnForm, column_form, each, matched
from bridge.protocols.fast.hole_reader import MARK, HoleReader, head_of, hole_reader
from bridge.protocols.fast.message_shape import TSO, Flat, Hole, JsonTypes, Lesson, Node, Part, ValueHole, flattened
from bridge.protocols.values.literals import NULL

_MOST_CELLS: Final = 512
_MOST_STAYS: Final = BEHIND // 4
"""The most constant characters of a message; in UTF-8 they are no more than BEHIND bytes."""
_MOST_LOOKED_AT: Final = 16
_MOST_READERS: Final = 8
"""The most readers that a template keeps; each holds all constants."""
_NULL: Final = b"null"
_NAMES: Final = (Hole.SCHEMA, Hole.TABLE)
_STRINGS: Final = frozenset({*_NAMES, Hole.MOMENT, Hole.TEXT})
_HOLES: Final = {Hole.COMMIT_TS: TSO, Hole.NUMBER: INTEGER}

Fixed = frozenset[tuple[int, bytes]]
"""Nodes that are constant here and holes for strings in other texts: the number of each, and its text, which is null or
a table's name."""

IsWanted = Callable[[str, str], bool]
"""Tells whether rows of a table, by schema and name, are wanted; raises DecodeError for a name that no table can
have."""


@dataclass(frozen=True)
class Outside:
    """What the texts do not tell of their events, because the keys of the Open Protocol hold it.

    commit_ts, index: for each text.
    tables: for each text, the number of its table in `names`, -1 where the text is not wanted.
    """

    commit_ts: Numbers
    index: Numbers
    tables: Numbers
    names: list[TableName]

    def fields(self, numbers: Numbers) -> dict[str, pa.Array]:
        """Gives the columns of the events of these texts."""
        tables = pa.array(self.tables[numbers])
        schemas, names = (pa.array([name[part] for name in self.names], pa.string()) for part in range(2))
        return {
            "commit_ts": pa.array(self.commit_ts[numbers]),
            "index": pa.array(self.index[numbers], pa.int32()),
            "schema": schemas.take(tables),
            "table": names.take(tables),
        }


class ColumnTemplate:
    """The template of the messages of one form; `column_template` makes it.

    size: how many bytes are constant.
    tells_all: whether the texts themselves hold all that `Outside` has.
    """

    def __init__(self, lesson: Lesson, flat: Flat, forms: Mapping[ValueHole, ColumnForm]) -> None:
        self._start, *stays = (text.encode() for text in flat.between)
        are_strings = [forms[node].quoted if isinstance(node, ValueHole) else node in _STRINGS for node in flat.nodes]
        self._parts = list(zip(flat.nodes, are_strings, stays, strict=True))
        """For each hole, whether it holds a string, and the constant behind it."""
        self._forms = forms
        self._images = {
            name: [ValueHole(name, column) for column in range(len(row))] for name, row in lesson.images.items()
        }
        self._event, self._moment = lesson.event, lesson.moment
        self._readers: dict[Fixed, HoleReader | None] = {}
        self.size = sum(len(text.encode()) for text in flat.between)
        self.tells_all = Hole.TABLE in flat.nodes

    def read(
        self,
        texts: Texts,
        numbers: Numbers,
        sample: Sequence[int],
        is_wanted: IsWanted,
        outside: Outside | None = None,
        *,
        of_one_table: bool = False,
        head: int = 0,
        fewest: int = 1,
    ) -> Iterator[RowEvents]:
        """Reads the rows of wanted tables from the texts of these numbers, which are plain; skips texts that it cannot
        read.

        sample: numbers of some texts of this form; they show which strings are null.
        of_one_table: whether the whole sample is of one table; then only its rows are read, which costs less.
        head: how many first bytes are assumed to be laid out alike in all texts (see `head`), which costs less.
        fewest: fewer texts in which the same strings are null are not read.
        """
        looked_at = [texts.text(number) for number in sample[:_MOST_LOOKED_AT]]
        fixed_in = [self._fixed(text, of_one_table=of_one_table) for text in looked_at]
        for fixed, _ in Counter(fixed_in).most_common():
            reader = None if fixed is None else self._reader(fixed)
            if fixed is not None and reader is not None and self._is_wanted(fixed, is_wanted):
                found, columns = reader.read(texts, numbers, head_of(looked_at[fixed_in.index(fixed)][:head]), fewest)
                numbers = np.setdiff1d(numbers, found, assume_unique=True)
                if len(found):
                    yield self._rows(found, reader.nodes, columns, self._names(fixed), is_wanted, outside)

    def head(self, texts: Texts, sample: Sequence[int]) -> int:
        """Tells how many first bytes of these texts, all of one table, have their holes at the same positions.

        Only numbers and parts count: these show where they end.
        """
        walks = [self._walk(texts.text(number)) for number in sample[:_MOST_LOOKED_AT]]
        alike = [places[0] for places in zip(*walks, strict=False) if len(set(places)) == 1]
        return alike[-1] if alike else 0

    def _walk(self, text: bytes) -> list[int]:
        """Gives where holes begin and end, up to the first hole that is neither a number nor a part."""
        at = len(self._start)
        places = []
        for node, _, stays in self._parts:
            if node in _NAMES:
                at = text.find(MARK, at + 1) + 1
            else:
                places.append(at)
                if node not in _HOLES and not isinstance(node, Part):
                    break
                at = text.find(stays, at)
                places.append(at)
            at += len(stays)
        return places

    def _fixed(self, text: bytes, *, of_one_table: bool) -> Fixed | None:
        """Tells which holes for strings are constant in texts like this one; None for a text of another form."""
        fixed, at = [], len(self._start)
        for number, (node, is_string, stays) in enumerate(self._parts):
            start = at
            if not is_string:
                at = text.find(stays, at)
            elif text.startswith(MARK, at):
                at = text.find(MARK, at + 1) + 1
                if of_one_table and node in _NAMES:
                    fixed.append((number, text[start:at]))
            elif isinstance(node, ValueHole):
                fixed.append((number, _NULL))
                at += len(_NULL)
            if at <= 0 or not text.startswith(stays, at):
                return None
            at += len(stays)
        return frozenset(fixed)

    def _names(self, fixed: Fixed) -> dict[Node, str]:
        """Gives schema and table where they are constant; nothing where they are holes."""
        return {self._parts[number][0]: text[1:-1].decode() for number, text in fixed if text != _NULL}

    def _is_wanted(self, fixed: Fixed, is_wanted: IsWanted) -> bool:
        """Tells whether the constant table is wanted; True where the table is a hole, which each text fills itself."""
        names = self._names(fixed)
        try:
            return not names or is_wanted(*(names[name] for name in _NAMES))
        except DecodeError:
            return False

    def _reader(self, fixed: Fixed) -> HoleReader | None:
        if fixed not in self._readers:
            if len(self._readers) >= _MOST_READERS:
                self._readers.clear()
            self._readers[fixed] = hole_reader(*self._variant(dict(fixed)))
        return self._readers[fixed]

    def _variant(self, fixed: Mapping[int, bytes]) -> tuple[list[Node], list[bytes]]:
        """Gives the holes that are left, and the constants before each and behind the last, with the marks of
        strings."""
        nodes, stays = [], [self._start]
        for number, (node, is_string, following) in enumerate(self._parts):
            if number in fixed:
                stays[-1] += fixed[number] + following
            else:
                mark = MARK if is_string else b""
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
        is_wanted: IsWanted,
        outside: Outside | None,
    ) -> RowEvents:
        """Gives the events of those texts whose table is wanted and in which every value has a literal.

        names: schema and table, where they are constant.
        """
        values = [self._values(node, strings) for node, strings in zip(nodes, columns, strict=True)]
        if self.tells_all and not names:
            schema, table = (nodes.index(name) for name in _NAMES)
            values[schema] = _wanted(is_wanted, values[schema], values[table])
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
        """Converts the content of a hole, text by text; null where it does not belong there."""
        if isinstance(node, ValueHole):
            return self._forms[node].make(strings)
        if isinstance(node, Part):
            return each(node.text_of, strings)
        if node is Hole.MOMENT and self._moment is not None:
            return each(self._moment, strings, pa.int64())
        if node in _HOLES:
            strings = matched(strings, _HOLES[node])
        return strings.cast(pa.int64()) if node is Hole.COMMIT_TS else strings

    def _image(self, cells: Sequence[ValueHole], values: Mapping[Node, pa.Array]) -> pa.StringArray:
        """Joins the literals of each row by SEP."""
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


def _wanted(is_wanted: IsWanted, schemas: pa.StringArray, tables: pa.StringArray) -> pa.StringArray:
    """Gives the schemas, null where the table is not wanted."""
    names = pc.binary_join_element_wise(schemas, tables, SEP)
    which = each(lambda name: is_wanted(*name.split(SEP)), names, pa.bool_())
    if which.null_count == 0 == which.false_count:
        return schemas
    return pc.if_else(which, schemas, pa.scalar(None, pa.string()))


def _column(value: Any, kind: pa.DataType, size: int) -> pa.Array:
    return value if isinstance(value, pa.Array) else pa.repeat(pa.scalar(value, kind), size)


def column_template(lesson: Lesson, types: JsonTypes) -> ColumnTemplate | None:
    """Makes the template of messages like this one whose values have these JSON types; None where no template can read
    them.

    On a hostile message it may raise any of FAILURES.
    """
    flat = flattened(lesson.tree)
    if sum(map(len, types.values())) > _MOST_CELLS or sum(map(len, flat.between)) > _MOST_STAYS:
        return None
    forms = {
        ValueHole(image, column): column_form(lesson.layout.converters[column], seen)
        for image, columns in types.items()
        for column, seen in enumerate(columns)
    }
    known = {cell: form for cell, form in forms.items() if form is not None}
    return ColumnTemplate(lesson, flat, known) if len(known) == len(forms) else None
