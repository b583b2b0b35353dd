"""Rows that are written where they are, as those that executors keep, in this process."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.rows.amount import Amount
from bridge.rows.order_and_slices import DriverRows


class ApartRows(DriverRows):
    """They stay together; whoever writes them says how in `written_apart`."""

    is_apart = True

    def between(self, low: int, high: int) -> DriverRows:
        """All of them."""
        del low, high
        return self

    def pieces(self, most: Amount) -> Iterator[tuple[int | None, DriverRows]]:
        """All of them."""
        del most
        yield None, self
