"""Puts many texts into one buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from bridge.protocols.decoder import Contents

Numbers = npt.NDArray[np.int64]
"""Numbers of texts, or positions in the buffer, in bytes."""
BEHIND: Final = 64
"""How many bytes follow the last text, so that whatever a compiled function looks at is in the buffer."""


class Texts(NamedTuple):
    """Texts in one buffer.

    content: the texts, and BEHIND bytes behind them.
    starts, ends: where each text starts and ends.
    key_ends: where the value of each text begins, if a message's key stands before it; otherwise as `starts`.
    """

    content: bytes
    starts: Numbers
    ends: Numbers
    key_ends: Numbers

    @classmethod
    def of(cls, values: Contents, keys: Contents | None = None) -> Texts:
        """Joins the values of messages, each with its key before it if keys are given; a null one becomes an empty
        text."""
        if isinstance(values, TextColumn):
            return values.texts
        present = [value or b"" for value in values]
        if keys is not None:
            present = [text or b"" for pair in zip(keys, present, strict=True) for text in pair]
        bounds = np.zeros(len(present) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, present), np.int64, len(present)), out=bounds[1:])
        return cls.between(b"".join([*present, bytes(BEHIND)]), bounds, keys is not None)

    @classmethod
    def between(cls, content: bytes, bounds: Numbers, have_keys: bool) -> Texts:
        """Gives texts that are joined already.  bounds: where each key and value begins, and the last one ends."""
        if have_keys:
            return cls(content, bounds[:-1:2].copy(), bounds[2::2].copy(), bounds[1::2].copy())
        starts = bounds[:-1]
        return cls(content, starts, bounds[1:], starts)

    def text(self, number: int) -> bytes:
        """Gives the bytes of one text."""
        return self.content[self.starts[number] : self.ends[number]]

    def numbers(self) -> npt.NDArray[np.uint8]:
        """Gives the buffer as numbers."""
        return np.frombuffer(self.content, np.uint8)

    def without_blanks(self) -> Texts:
        """Takes the blanks between tokens of JSON out of keys and values, if they have any."""
        from bridge.protocols.fast.compiled.functions import compact_texts, count_spaced

        have_keys = self.key_ends is not self.starts
        bounds = np.append(
            np.stack([self.starts, self.key_ends], 1).ravel() if have_keys else self.starts, self.ends[-1:]
        )
        count = len(bounds) - 1
        if count <= 0 or not count_spaced(self.numbers(), bounds, count)[0]:
            return self
        out, out_bounds = np.empty(len(self.content), np.uint8), np.empty(count + 1, np.int64)
        size, _ = compact_texts(self.numbers(), bounds, count, out, out_bounds)
        return Texts.between(out[:size].tobytes() + bytes(BEHIND), out_bounds, have_keys)

    def values(self) -> list[bytes]:
        """Gives the values alone."""
        starts, ends = self.key_ends.tolist(), self.ends.tolist()
        return [self.content[start:end] for start, end in zip(starts, ends, strict=True)]


class TextColumn(Sequence[bytes | None]):
    """The keys or the values of texts, None for an empty one."""

    def __init__(self, texts: Texts, starts: Numbers, ends: Numbers) -> None:
        self.texts, self._starts, self._ends = texts, starts, ends

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, number: int) -> bytes | None: ...
    @overload
    def __getitem__(self, number: slice) -> Contents: ...
    def __getitem__(self, number: int | slice) -> bytes | Contents | None:
        if isinstance(number, slice):
            return [self[place] for place in range(*number.indices(len(self)))]
        return self.texts.content[self._starts[number] : self._ends[number]] or None
