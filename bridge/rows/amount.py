"""Measures row changes by rows and bytes: how many there are, and how many may be held or written at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bridge.rows.gathering import row_bytes


class Amount(NamedTuple):
    """A number of row changes, and the bytes that they take in memory."""

    rows: int
    bytes: int

    @classmethod
    def of(cls, table: pa.Table) -> Amount:
        """Measures decoded row changes."""
        return cls(int(table.num_rows), int(table.nbytes))

    @classmethod
    def total(cls, amounts: Iterable[Amount]) -> Amount:
        """Adds amounts up."""
        addends = list(amounts)
        return cls(sum(amount.rows for amount in addends), sum(amount.bytes for amount in addends))

    def exceeds(self, most: Amount) -> bool:
        """Tells whether it is more than `most`, by either count."""
        return self.rows > most.rows or self.bytes > most.bytes

    def pieces(self, most: Amount) -> int:
        """Tells into how many pieces of at most `most` it divides."""
        return max(-(-self.rows // most.rows), -(-self.bytes // most.bytes))


def weights(table: pa.Table, most: Amount) -> npt.NDArray[np.float64] | None:
    """Gives each row's weight in rows, where `most.bytes` weigh as much as `most.rows`.  Gives None when all rows
    together take at most `most.bytes`: then each row weighs one."""
    if table.nbytes <= most.bytes:
        return None
    row_weights: npt.NDArray[np.float64] = np.maximum(1.0, row_bytes(table) * (most.rows / most.bytes))
    return row_weights
