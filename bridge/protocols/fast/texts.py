"""Puts many texts into one buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
"""Numbers of texts, or positions in the buffer, in bytes."""
BEHIND: Final = 64
"""How many bytes follow the last text, so that whatever a compiled function looks at is in the buffer."""


class Texts(NamedTuple):
    """Texts in one buffer.

    content: the texts, and BEHIND bytes behind them.
    starts, ends: where each text starts and ends.
    """

    content: bytes
    starts: Numbers
    ends: Numbers

    @classmethod
    def of(cls, messages: Sequence[bytes | None]) -> Texts:
        """Joins messages; a null one becomes an empty text."""
        present = [message or b"" for message in messages]
        ends = np.cumsum(np.fromiter(map(len, present), np.int64, len(present)))
        return cls(b"".join([*present, bytes(BEHIND)]), np.concatenate(([0], ends[:-1])), ends)

    def text(self, number: int) -> bytes:
        """Gives the bytes of one text."""
        return self.content[self.starts[number] : self.ends[number]]

    def numbers(self) -> npt.NDArray[np.uint8]:
        """Gives the buffer as numbers."""
        return np.frombuffer(self.content, np.uint8)
