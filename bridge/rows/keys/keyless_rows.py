"""Rows without a key whose messages lack columns that only the target has: which rows stay and become others.

Such a row is told by its image alone.  An update leaves the row where it is, so that it keeps what the message does not
hold.  Of rows that are alike in what messages hold, nobody knows which one an update means.  Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Generic, NamedTuple, TypeVar

ImageT = TypeVar("ImageT", bound=Hashable)


class RowImages(NamedTuple, Generic[ImageT]):
    """A row change: the image before and after it.  moment: those of one have no order among themselves."""

    moment: Hashable
    before: ImageT | None
    after: ImageT | None


class KeylessRows(Generic[ImageT]):
    """What row changes make of the rows that were there.

    copies: how many rows of each image come (> 0) or go (< 0).
    becomes: for each image, of which images rows became that one, and how many.
    """

    def __init__(self) -> None:
        self.copies = Counter[ImageT]()
        self._becomes: dict[ImageT, Counter[ImageT]] = {}

    @classmethod
    def after(cls, changes: Iterable[RowImages[ImageT]]) -> KeylessRows[ImageT]:
        """Follows the changes, which are in order."""
        rows = cls()
        for _, group in groupby(changes, key=lambda change: change.moment):
            rows._change(list(group))
        return rows

    def moves(self) -> Iterator[tuple[ImageT, ImageT, int]]:
        """Gives from which image to which one so many rows change.  What begins at an image comes before what ends
        there, as long as they go in no circle."""
        left = {was: Counter[ImageT]() for of in self._becomes.values() for was in of}
        for now, of in self._becomes.items():
            for was, count in of.items():
                left[was][now] = count
        done = set[ImageT]()
        for first in left:
            yield from self._from(first, left, done)

    def _change(self, changes: Sequence[RowImages[ImageT]]) -> None:
        """All rows of one moment go before any comes."""
        taken = [(change.after, *self._taken(change.before)) for change in changes]
        for after, was_there, origin in taken:
            if after is None:
                if was_there and origin is not None:
                    self.copies[origin] -= 1
            elif origin is None:
                self.copies[after] += 1
            elif origin != after:
                self._becomes.setdefault(after, Counter())[origin] += 1

    def _taken(self, before: ImageT | None) -> tuple[bool, ImageT | None]:
        """Takes a row of this image away: whether there is one, and which it was before all changes, None for one that
        is new."""
        if before is None:
            return False, None
        if self.copies[before] > 0:
            self.copies[before] -= 1
            return True, None
        for origin in (origin for origin, count in self._becomes.get(before, Counter()).items() if count > 0):
            self._becomes[before][origin] -= 1
            return True, origin
        return True, before

    def _from(
        self, first: ImageT, left: Mapping[ImageT, Counter[ImageT]], done: set[ImageT]
    ) -> Iterator[tuple[ImageT, ImageT, int]]:
        """Gives what begins at `first`, behind what begins where that ends."""
        path = [first]
        while path:
            image = path[-1]
            following = [now for now in left[image] if now in left and now not in done] if image not in done else []
            done.add(image)
            path += following
            if not following:
                path.pop()
                yield from ((image, now, count) for now, count in left[image].items() if count > 0)
                left[image].clear()
