"""Searches many texts together in one buffer: NumPy looks at a byte in a fraction of a nanosecond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]
"""Numbers of texts, or positions in the buffer, in bytes."""
Mask = npt.NDArray[np.bool_]

MOST_BYTES: Final = (1 << 31) - (1 << 20)
"""The bytes that Arrow's 32-bit offsets reach, less some for the bytes behind the last text."""
BEHIND: Final = 1 << 16
"""How many bytes follow the last text, so that a search at its end stays within the buffer."""

_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_PRINTABLE: Final = ord(" ")
_NOT_ASCII: Final = 128


def joined(texts: Sequence[bytes | None]) -> tuple[bytes, Numbers, Numbers]:
    """Joins texts to one buffer, with BEHIND bytes behind them; gives the buffer, and where each text starts and ends.

    A null text becomes an empty one.
    """
    present = [text or b"" for text in texts]
    ends = np.cumsum(np.fromiter(map(len, present), np.int64, len(present)))
    return b"".join([*present, bytes(BEHIND)]), np.concatenate(([0], ends[:-1])), ends


class Marks(NamedTuple):
    """Where the quotation marks of texts are.

    at: the position of each mark.
    firsts, counts: for each text, the number of its first mark, and how many marks it has.
    """

    at: Numbers
    firsts: Numbers
    counts: Numbers


def _in_each(marks: Numbers, starts: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
    firsts = np.searchsorted(marks, starts)
    return firsts, np.searchsorted(marks, ends) - firsts


class Texts:
    """Texts of JSON in one buffer.

    starts, ends: where each text starts and ends, ascending; bytes between two texts belong to none.
    """

    def __init__(self, content: bytes, starts: Numbers, ends: Numbers) -> None:
        """Makes texts of a buffer.  content: the texts, and `BEHIND` bytes behind them.  Raises ValueError for more
        than MOST_BYTES."""
        if len(content) > MOST_BYTES:
            raise ValueError("more bytes than can be looked at together")
        self.starts, self.ends = starts, ends
        self._content = content
        self._bytes = np.frombuffer(content, np.uint8)
        self._marks: dict[int, Marks] = {}

    def marks(self, head: int = 0) -> Marks:
        """Finds the quotation marks, without those in the first `head` bytes of each text."""
        if head not in self._marks:
            self._marks[head] = self._marks_behind(head) if head else self._all_marks()
        return self._marks[head]

    def _all_marks(self) -> Marks:
        at = np.flatnonzero(self._bytes == _QUOTE)
        return Marks(at, *_in_each(at, self.starts, self.ends))

    def _marks_behind(self, head: int) -> Marks:
        begins = np.minimum(self.starts + head, self.ends)
        offsets, content = contents(self._pieces(begins, self.ends, np.arange(len(begins))))
        cuts = offsets.astype(np.int64)
        at = np.flatnonzero(content == _QUOTE)
        firsts, counts = _in_each(at, cuts[:-1], cuts[1:])
        return Marks(at + np.repeat(begins - cuts[:-1], counts), firsts, counts)

    @classmethod
    def of(cls, texts: Sequence[bytes | None]) -> Texts:
        """Makes texts of whole messages; a null one becomes an empty text."""
        return cls(*joined(texts))

    def only(self, which: Mask) -> Texts:
        """Keeps the texts that a mask marks, with nothing between them."""
        starts, ends = self.starts[which], self.ends[which]
        at, content = contents(self._pieces(starts, ends, np.arange(len(starts))))
        return Texts(content.tobytes() + bytes(BEHIND), at[:-1].astype(np.int64), at[1:].astype(np.int64))

    def plain(self) -> Numbers:
        """Gives the numbers of texts without backslashes and control characters, whose strings end at the next mark.

        Gives none when any text is not UTF-8.
        """
        if not len(self.starts):
            return np.empty(0, np.int64)
        content = self._bytes[: self.ends[-1]]
        if content.max() >= _NOT_ASCII:
            try:
                self.columns(self.starts[:, None], self.ends[:, None])
            except pa.ArrowInvalid:
                return np.empty(0, np.int64)
        odd = content == _BACKSLASH
        if content.min() < _PRINTABLE:
            odd |= content < _PRINTABLE
        at = np.flatnonzero(odd)
        return np.flatnonzero(np.searchsorted(at, self.starts) == np.searchsorted(at, self.ends))

    def text(self, number: int) -> bytes:
        """Gives the bytes of one text."""
        return self._bytes[self.starts[number] : self.ends[number]].tobytes()

    def have(self, constant: bytes, at: Numbers) -> Mask:
        """Tells for each position whether these bytes, without NUL, are there.

        A position is behind a text's end by at most BEHIND less the size of the bytes.
        """
        size = len(constant)
        windows = np.ndarray((len(self._bytes) - size + 1,), f"S{size}", self._bytes.data, strides=(1,))
        there = windows[at]
        if there.tobytes() == constant * len(at):  # the usual case; comparing one by one takes three times as long
            return np.ones(len(at), np.bool_)
        found: Mask = there == constant
        return found

    def columns(self, starts: Numbers, ends: Numbers) -> list[pa.StringArray]:
        """Gives, column by column, the texts between starts and ends.

        Both have a row for each text, and ascend in a row and from row to row.  Raises ArrowInvalid for bytes that are
        not UTF-8.
        """
        size, width = starts.shape
        found = self._pieces(starts, ends, np.arange(width)[:, None] + np.arange(size) * width).cast(pa.string())
        return [found.slice(column * size, size) for column in range(width)]

    def have_between(self, starts: Numbers, ends: Numbers, constant: bytes) -> Mask:
        """Tells for each text whether the bytes between its starts and ends (see `columns`), joined, are this constant.

        These bytes have the constant's size.
        """
        found = contents(self._pieces(starts, ends, np.arange(starts.size)))[1]
        if found.tobytes() == constant * len(starts):
            return np.ones(len(starts), np.bool_)
        is_it: Mask = (found.reshape(len(starts), -1) == np.frombuffer(constant, np.uint8)).all(axis=1)
        return is_it

    def _pieces(self, starts: Numbers, ends: Numbers, wanted: Numbers) -> pa.BinaryArray:
        """Gives the pieces with these numbers, counted row by row, in this order."""
        offsets = np.empty((*starts.shape, 2), np.int32)
        offsets[..., 0], offsets[..., 1] = starts, ends
        # Every second element of this is a piece; the others are the gaps between two pieces, and are never copied.
        everything = pa.Array.from_buffers(
            pa.binary(), max(0, offsets.size - 1), [None, pa.py_buffer(offsets.ravel()), pa.py_buffer(self._content)]
        )
        return everything.take(pa.array(2 * wanted.ravel()))


def contents(values: pa.StringArray) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Gives where strings begin, and where the last one ends, and all their bytes."""
    _, offsets, content = values.buffers()
    at = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return at - at[0], np.frombuffer(content or b"", np.uint8)[at[0] : at[-1]]
