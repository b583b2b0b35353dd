"""Makes the row images of many messages together, the same as `row_image.image_of` makes them one by one.

The values of all rows, of whatever table, become one Arrow column, row after row.  Each kind of literal is checked for
all of them at once; then quotation marks and separators are put between the values.  So the images lie in the column's
bytes one behind the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP
from bridge.protocols.decoder import FAILURES, DecodeError
from bridge.protocols.values.literals import NULL, Converter
from bridge.protocols.values.many_literals import BEFORE, BEHIND, CHECKS, Form, Mask, Numbers, contents
from bridge.protocols.values.row_image import Layout

_STRING: Final = pa.string()
_REACH: Final = (1 << 31) - 1
_BETWEEN: Final = pa.array([BEHIND[one] + end + BEFORE[next_] for one in Form for end in (SEP, "") for next_ in Form])
"""What stands between a value and the next one: by the form of both, and whether an image ends between them."""
_SIZES_BEFORE: Final = np.array([len(BEFORE[one]) for one in Form], np.int32)
_BACKSLASH, _MARK = b"\\'"
_ESCAPES: Final = ((b"\\", b"\\\\"), (b"'", b"\\'"), (b"\0", b"\\0"))
"""As `literals.text` escapes."""


class ManyImages:
    """Collects rows, and makes their images when all are known."""

    def __init__(self) -> None:
        self._layouts: list[Layout] = []
        self._values: list[Any] = []

    def add(self, layout: Layout, row: Mapping[str, Any]) -> int:
        """Takes a row whose columns are the layout's, in the same order, and gives the number of its image."""
        self._values += row.values()
        self._layouts.append(layout)
        return len(self._layouts) - 1

    def made(self) -> tuple[pa.StringArray, Mask]:
        """Gives the images, and which of them are good.  The others have a value that their column cannot have, or one
        that has to be looked at alone."""
        if not self._layouts:
            return pa.array([], _STRING), np.ones(0, np.bool_)
        rows = _Rows(self._layouts, self._values)
        return rows.images(), rows.good

    def clear(self) -> None:
        """Forgets all rows."""
        self._layouts, self._values = [], []


class _Rows:
    """The values of rows, row after row; they are replaced by their literals, without quotation marks.

    forms: the form of each value's literal.  ends: for each row, the number of values in it and the rows before it.
    """

    def __init__(self, layouts: Sequence[Layout], values: list[Any]) -> None:
        self._layouts, self._values = layouts, values
        self._forms: npt.NDArray[np.uint8] = np.frombuffer(
            bytearray(b"".join([layout.forms for layout in layouts])), np.uint8
        )
        if len(self._forms) != len(values):
            raise ValueError("rows that are wider or narrower than their layouts")
        self._ends = np.cumsum(np.fromiter((len(layout.forms) for layout in layouts), np.int64, len(layouts)))
        self.good: Mask = np.ones(len(layouts), np.bool_)

    def images(self) -> pa.StringArray:
        """Gives the images."""
        self._convert(np.flatnonzero(self._forms == Form.OTHER))
        texts = self._texts()
        unsure = self._unsure(texts)
        if len(unsure):
            self._convert(unsure)
            texts = self._texts()
        return self._joined(_escaped(texts))

    def _convert(self, which: Numbers) -> None:
        """Replaces values of these numbers by the literals that their own converters make."""
        rows = np.searchsorted(self._ends, which, "right")
        columns = which - np.concatenate(([0], self._ends))[rows]
        for number, row, column in zip(which.tolist(), rows.tolist(), columns.tolist(), strict=True):
            if (value := self._values[number]) is not None:
                self._values[number], form = _converted(self._layouts[row].converters[column], value)
                self._forms[number] = form
                self.good[row] &= form != Form.NULL

    def _texts(self) -> pa.StringArray:
        try:
            texts = pa.array(self._values, _STRING)
        except (pa.ArrowTypeError, pa.ArrowInvalid):
            self._leave_other_types()
            texts = pa.array(self._values, _STRING)
        if texts.null_count:
            self._forms[texts.is_null().to_numpy(zero_copy_only=False)] = Form.NULL
        return texts

    def _leave_other_types(self) -> None:
        for number, value in enumerate(self._values):
            if value is not None and type(value) is not str:
                self._values[number] = None
                self.good[np.searchsorted(self._ends, number, "right")] = False

    def _unsure(self, texts: pa.StringArray) -> Numbers:
        """Gives the numbers of values that may not be the literals that their columns need."""
        found = [np.empty(0, np.int64)]
        for form, check in CHECKS.items():
            which = np.flatnonzero(self._forms == form)
            if len(which):
                found.append(which[~check(texts.take(pa.array(which)))])
        return np.sort(np.concatenate(found))

    def _joined(self, texts: pa.StringArray) -> pa.StringArray:
        """Puts quotation marks and separators between the values: what is before a value stands behind the one before
        it."""
        forms, ends = self._forms, self._ends
        codes = forms * np.int16(2 * len(Form))
        codes[ends - 1] += len(Form)
        codes[:-1] += forms[1:]
        whole = pc.binary_join_element_wise(
            texts, _BETWEEN.take(pa.array(codes)), "", null_handling="replace", null_replacement=NULL
        )
        _, offsets, content = whole.buffers()
        first = BEFORE[Form(forms[0])].encode()
        begins = np.zeros(len(ends) + 1, np.int64)
        begins[1:] = np.frombuffer(offsets, np.int32)[ends] + len(first)
        begins[1:-1] -= _SIZES_BEFORE[forms[ends[:-1]]]
        return _strings(begins, first + memoryview(content)[: begins[-1] - len(first)])


def _converted(convert: Converter, value: object) -> tuple[str | None, Form]:
    """Gives a value's literal without its marks, and its form; NULL where there is none that needs no escapes."""
    try:
        literal = convert(value)
    except (*FAILURES, DecodeError):
        return None, Form.NULL
    form = Form.BYTES if literal.startswith("x'") else Form.MARKED if literal.startswith("'") else Form.BARE
    if form is not Form.BARE:
        literal = literal[len(BEFORE[form]) : -1]
    return (None, Form.NULL) if "'" in literal or "\\" in literal else (literal, form)


def _escaped(texts: pa.StringArray) -> pa.StringArray:
    """Escapes as `literals.text` does.  Other literals have nothing to escape, apart from their marks."""
    at, content = contents(texts)
    special = np.flatnonzero((content == _BACKSLASH) | (content == _MARK) | (content == 0))
    if not len(special):
        return texts
    escaped = content.tobytes()
    for character, instead in _ESCAPES:
        escaped = escaped.replace(character, instead)
    return _strings(at + np.searchsorted(special, at), escaped, texts.buffers()[0])


def _strings(begins: Numbers, content: bytes, validity: pa.Buffer | None = None) -> pa.StringArray:
    """Makes an array of strings.  begins: where each begins, and where the last one ends.  Raises ValueError for more
    bytes than offsets of 32 bits reach."""
    if len(content) > _REACH:
        raise ValueError("more bytes than offsets of 32 bits reach")
    buffers = [validity, pa.py_buffer(begins.astype(np.int32)), pa.py_buffer(content)]
    return pa.Array.from_buffers(_STRING, len(begins) - 1, buffers)
