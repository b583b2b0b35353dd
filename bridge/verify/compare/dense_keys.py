"""Finds tables whose key is one integer with few gaps.  Where a range of them ends is computed, not looked for.

To look for the key that is so many rows behind another one, a server reads all the keys between them: a tenth of what
it takes to hash their rows (measured: 4.6 instead of 4.3 core-seconds for 2,000,000 rows on both sides).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from bridge.mysql.table_definition import Definition, ValueClass
from bridge.quoting import quote_name

_MOST_GAPS: Final = 2
"""A key is dense where it has at most so many times as many numbers between its first and its last one as rows."""


class DenseKey(NamedTuple):
    """The first and the last number of a key."""

    first: int
    last: int

    def end(self, low: int | None, rows: int) -> int | None:
        """Gives the last number of a range of at most `rows` rows above low; None where it is the last range."""
        end = (self.first - 1 if low is None else low) + rows
        return end if end < self.last else None

    @property
    def numbers(self) -> int:
        """How many numbers there are between both, with both."""
        return self.last - self.first + 1

    def ends(self, size: int) -> Iterator[int]:
        """Gives the last numbers of all ranges but the last, each of `size` numbers."""
        yield from range(self.first - 1 + size, self.last, size)


def dense_key(
    ask: Callable[[str], list[tuple[Any, ...]]], definition: Definition, key: Sequence[str]
) -> DenseKey | None:
    """Looks for the first and the last number of a table's key; None where it is not dense, as far as the server's own
    estimate of the rows tells.

    ask: gives the rows of a query.  key: lower-case names of the columns that identify a row.
    """
    if len(key) != 1 or definition.columns[key[0]].value_class is not ValueClass.INTEGER:
        return None
    name = quote_name(definition.columns[key[0]].name)
    first, last = ask(f"SELECT MIN({name}), MAX({name}) FROM {quote_name(*definition.name)}")[0]
    if first is None or int(last) - int(first) >= _MOST_GAPS * definition.rows:
        return None
    return DenseKey(int(first), int(last))
