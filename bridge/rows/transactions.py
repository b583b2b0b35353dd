"""Cuts row changes into target transactions.  Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt


def cut_transactions(
    row_ts: Sequence[int], rows_per_transaction: int, weights: npt.NDArray[np.float64] | None = None
) -> Iterator[tuple[int, int]]:
    """Gives index ranges of whole upstream transactions, with about equally many rows each: at most 1.5 times
    `rows_per_transaction`, unless one upstream transaction is larger.  One upstream transaction is never divided.

    row_ts: commit_ts of the rows, ascending.
    weights: as how many rows each row counts; None: each counts as one.
    """
    upto: Sequence[float] = range(1, len(row_ts) + 1) if weights is None else np.cumsum(weights).tolist()
    total = upto[-1] if upto else 0
    size = -(-total // max(1, round(total / rows_per_transaction)))
    start = 0
    while start < len(row_ts):
        end = bisect_right(upto, (upto[start - 1] if start else 0) + size)
        if end < len(row_ts):
            end = bisect_left(row_ts, row_ts[end], lo=start)
        if end == start:  # one upstream transaction is larger than that
            end = bisect_left(row_ts, row_ts[start] + 1, lo=start)
        yield start, end
        start = end
