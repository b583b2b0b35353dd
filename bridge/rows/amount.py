"""How much there is of row changes, and how much may be held or written at once: rows, and bytes beside them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bridge.rows.gathering import row_bytes


class Amount(NamedTuple):
    """Row changes, and the bytes that they take in memory."""

    rows: int
    bytes: int

    @classmethod
    def of(cls, table: pa.Table) -> Amount:
        """Of decoded row changes."""
        return cls(int(table.num_rows), int(table.nbytes))

    @classmethod
    def total(cls, amounts: Iterable[Amount]) -> Amount:
        """All together."""
        found = list(amounts)
        return cls(sum(one.rows for one in found), sum(one.bytes for one in found))

    def exceeds(self, most: Amount) -> bool:
        """Whether there is more, by either count."""
        return self.rows > most.rows or self.bytes > most.bytes

    def pieces(self, most: Amount) -> int:
        """How many of at most so much it makes."""
        return max(-(-self.rows // most.rows), -(-self.bytes // most.bytes))


def weights(table: pa.Table, most: Amount) -> npt.NDArray[np.float64] | None:
    """As how many of `most.rows` each row counts when `most.bytes` are as much as those; None where all of them take no
    more bytes than that, so that each is one."""
    if table.nbytes <= most.bytes:
        return None
    found: npt.NDArray[np.float64] = np.maximum(1.0, row_bytes(table) * (most.rows / most.bytes))
    return found
