"""Finds the holes of a form in many texts at once, by their quotation marks, and reads their contents."""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from bridge.protocols.fast.byte_buffer import Numbers, Texts
from bridge.protocols.fast.message_shape import Node, Part, ValueHole

MARK: Final = b'"'
"""A quotation mark."""
_TELLING: Final = 12
"""In bytes.  A constant of this length or more is compared first: it tells quickly whether a text is of the form."""


class Head(NamedTuple):
    """The beginning that all texts share: its size in bytes, and the positions of its quotation marks."""

    size: int
    marks: Numbers

    def places(self, texts: Texts, numbers: Numbers, marks: Numbers) -> Numbers:
        """Gives the positions of the quotation marks with these numbers (a text's first mark has the number 0), in the
        texts with these numbers."""
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
    """Makes a head from a text."""
    return Head(len(text), np.flatnonzero(np.frombuffer(text, np.uint8) == ord(MARK)))


NO_HEAD: Final = head_of(b"")


class HoleReader(NamedTuple):
    """Finds the holes of texts by their quotation marks, which are numbered from 0 in each text.

    nodes, stays: the holes, and the constants before each and behind the last.
    first_marks, starts: each hole starts `starts` bytes behind the mark of this number.
    last_marks, ends: it ends `ends` bytes before the mark of this number.
    is_last: whether no mark follows the last hole, which then ends `ends` bytes before the end of the text.
    marks: how many quotation marks a text has.
    telling: constants that are compared first, as they tell quickly whether a text is of the form; each with the number
        of a mark, and how many bytes before this mark it starts.
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

    def read(self, texts: Texts, numbers: Numbers, head: Head, fewest: int = 1) -> tuple[Numbers, list[pa.StringArray]]:
        """Gives the numbers of the texts of this form, and for each hole a column with its contents.

        head: the beginning that all texts share; no hole in it may be a string.
        fewest: fewer texts of this form are not read.
        """
        numbers = self._alike(texts, numbers, head)
        if len(numbers) < fewest:
            return numbers[:0], []
        cuts = self._cuts(texts, numbers, head)
        sizes = np.diff(cuts)
        fits = (sizes[:, ::2] == [len(stays) for stays in self.stays]).all(axis=1) & (sizes >= 0).all(axis=1)
        numbers, cuts = numbers[fits], cuts[fits]
        fits = texts.have_between(cuts[:, :-1:2], cuts[:, 1::2], b"".join(self.stays))
        if not fits.all():
            numbers, cuts = numbers[fits], cuts[fits]
        return numbers, texts.columns(cuts[:, 1:-1:2], cuts[:, 2:-1:2])

    def _alike(self, texts: Texts, numbers: Numbers, head: Head) -> Numbers:
        """Keeps the texts that may be of this form by their number of marks and the telling constants."""
        counts = texts.marks(head.size).counts
        numbers = numbers[counts[numbers] == self.marks - len(head.marks)]
        for stays, mark, before in self.telling:
            numbers = numbers[texts.have(stays, head.places(texts, numbers, np.array([mark]))[:, 0] - before)]
        return numbers

    def _cuts(self, texts: Texts, numbers: Numbers, head: Head) -> Numbers:
        """Gives a row for each text: its start, the start and end of every hole, and its end."""
        cuts = np.empty((len(numbers), 2 * len(self.nodes) + 2), np.int64)
        cuts[:, 0], cuts[:, -1] = texts.starts[numbers], texts.ends[numbers]
        cuts[:, 1:-1:2] = head.places(texts, numbers, self.first_marks) + self.starts
        cuts[:, 2:-1:2] = head.places(texts, numbers, self.last_marks) - self.ends
        if self.is_last:
            cuts[:, -2] = cuts[:, -1] - self.ends[-1]
        return cuts


def hole_reader(nodes: list[Node], stays: list[bytes]) -> HoleReader | None:
    """Makes the reader of these holes; None where two holes have no mark between them and cannot be told apart."""
    if not nodes or not all(MARK in text for text in stays[:-1]):
        return None
    is_last = MARK not in stays[-1]
    marks, first_marks, last_marks = 0, [], []
    for node, text in zip(nodes, stays, strict=False):
        marks += text.count(MARK)
        first_marks.append(marks - 1)
        marks += node.marks if isinstance(node, Part) else 0
        last_marks.append(marks)
    starts = [len(text) - text.rfind(MARK) for text in stays[:-1]]
    first_cell = next((number for number, node in enumerate(nodes) if isinstance(node, ValueHole)), len(nodes) - 1)
    return HoleReader(
        nodes,
        stays,
        np.array(first_marks),
        np.array(starts),
        np.array(last_marks),
        np.array([len(text) if is_last and text is stays[-1] else text.find(MARK) for text in stays[1:]]),
        is_last,
        marks + stays[-1].count(MARK),
        [
            (text, mark, len(text) - start)
            for text, mark, start in islice(zip(stays, first_marks, starts, strict=False), first_cell + 1)
            if len(text) >= _TELLING
        ],
    )
