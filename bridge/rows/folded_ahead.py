"""Folds row changes before they are due, while the server works on those before them.

It changes nothing but the time.  What comes next is a guess: what was folded is used only for the very same row
changes, with the very same definitions of tables.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Final, NamedTuple

from bridge.model import Table, TableName
from bridge.rows.net_changes import NetChanges
from bridge.rows.order_and_slices import RowChanges
from bridge.rows.types.type_check import CheckedTypes

LEAST_ROWS: Final = 10_000
"""Fewer row changes are folded when they are due, which takes no longer than to hand them over."""


class _Piece(NamedTuple):
    """Row changes that one transaction will hold, and their net changes; None where they must be made when due."""

    rows: RowChanges
    nets: Future[list[NetChanges] | None]


class FoldedAhead:
    """Pieces of windows that were folded ahead.  One thread calls `fold`, another one calls `folded`."""

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()
        self._catalog: Mapping[TableName, Table] = {}
        self._checked = CheckedTypes()

    def fold(self, pieces: Iterable[RowChanges], catalog: Mapping[TableName, Table]) -> None:
        """Folds pieces, in the order in which they will be due.

        catalog: the target's tables as they are now, in a mapping that is never changed.
        """
        if catalog is not self._catalog:
            self._catalog, self._checked = catalog, CheckedTypes()
        coming = [_Piece(rows, Future()) for rows in pieces if rows.count >= LEAST_ROWS]
        self._pieces.extend(coming)
        for rows, nets in coming:
            if nets.set_running_or_notify_cancel():
                nets.set_result(self._nets(rows))

    def folded(self, rows: RowChanges, catalog: Mapping[TableName, Table]) -> RowChanges:
        """Gives the rows, with their net changes if they were folded ahead; waits while they are being folded.

        catalog: the target's tables as they are now.
        """
        if rows.is_large:
            return rows
        while self._pieces and not self._pieces[0].rows.is_after(rows):
            piece = self._pieces.popleft()
            if not piece.nets.cancel() and piece.rows.is_same(rows):
                nets = piece.nets.result()
                is_valid = nets is not None and all(catalog.get(net.table.name) is net.table for net in nets)
                return rows.with_nets(nets) if nets is not None and is_valid else rows
        return rows

    def _nets(self, rows: RowChanges) -> list[NetChanges] | None:
        try:
            return rows.nets(self._catalog, self._checked)
        except Exception:  # noqa: BLE001  # whatever is wrong with them is told when they are due
            return None
