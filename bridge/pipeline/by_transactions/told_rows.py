"""What rows tell of their place among transactions (`protocols.debezium.transactions`), as columns; and which of their
transactions are whole.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bridge.model import PartitionId
from bridge.protocols.debezium.transactions import PLACE_PARTS, TransactionMark
from bridge.rows.gathering import masked

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_OTHER_NONE = -1


@dataclass(frozen=True)
class TransactionRows:
    """The rows of one transaction that have been read, in the order of the binlog.

    at: their numbers among the rows.  numbers, rows, orders, kinds, tables: of each the file and position, the row in
        the event, the number in the transaction, the kind, and the number of its table among `names`.
    """

    at: Longs
    numbers: Longs
    rows: Longs
    orders: Longs
    kinds: Longs
    tables: Longs
    names: Sequence[str]

    @property
    def first(self) -> int:
        """The file and position of its first row."""
        return int(self.numbers[0])

    @property
    def last(self) -> int:
        """The same of its last row."""
        return int(self.numbers[-1])

    @cached_property
    def distinct(self) -> Longs:
        """Which of them are no copies with another number, in order."""
        count = len(self.at)
        if np.array_equal(self.orders, np.arange(1, count + 1)):
            return np.arange(count)
        _, firsts = np.unique(np.stack([self.numbers, self.rows, self.kinds]), axis=1, return_index=True)
        return np.sort(firsts).astype(np.int64)

    def are_all(self, mark: TransactionMark) -> bool:
        """Tells whether these are all rows of a transaction, of which an END counts all."""
        return len(self.distinct) == mark.count and self._counts(self.distinct) == mark.tables

    def are_with_rest(self, mark: TransactionMark) -> bool:
        """Tells whether these are all rows of a transaction in whose midst the connector began anew.

        A connector before 3.7 numbers the rest from 1 on then, and its END counts the rest alone; the rows before it
        were acknowledged before it began (Debezium dbz#633).  So the last row of each number is taken: these must
        ascend as the binlog does, be as many as the END counts, and no other row may stand behind the first of them.
        """
        last = {order: place for place, order in enumerate(self.orders.tolist())}
        chosen = np.array([last.get(order, _OTHER_NONE) for order in range(1, mark.count + 1)], np.int64)
        if (chosen == _OTHER_NONE).any() or (np.diff(chosen) <= 0).any():
            return False
        identities = list(zip(self.numbers.tolist(), self.rows.tolist(), self.kinds.tolist(), strict=True))
        behind = set(identities[int(chosen[0]) :]) if mark.count else set()
        return behind == {identities[place] for place in chosen.tolist()} and self._counts(chosen) == mark.tables

    def _counts(self, which: Longs) -> dict[str, int]:
        counts = np.bincount(self.tables[which], minlength=1)
        return {self.names[table]: int(counts[table]) for table in np.flatnonzero(counts).tolist()}

    def missing(self, mark: TransactionMark) -> str:
        """Tells how many rows of each table have been read, of how many."""
        return missing_rows(mark, self._counts(self.distinct))


def missing_rows(mark: TransactionMark, there: Mapping[str, int]) -> str:
    """Tells for people which rows of a transaction lack."""
    counts = mark.tables.items()
    short = [f"{name}: {there.get(name, 0)} of {rows}" for name, rows in counts if there.get(name, 0) < rows]
    return ", ".join(short) or f"{sum(there.values())} rows that are not the {mark.count} that it counts"


@dataclass(frozen=True)
class ToldRows:
    """Rows (EVENT_SCHEMA) with what they tell of their places.

    table: the rows, as they were read.
    batches: in which micro-batch each came.
    """

    table: pa.Table
    batches: Longs

    @classmethod
    def none(cls, table: pa.Table) -> ToldRows:
        """No rows; table: any events."""
        return cls(table.slice(0, 0), np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.batches)

    def and_those(self, others: ToldRows) -> ToldRows:
        """Gives these rows and those behind them."""
        if not len(self) or not len(others):
            return others if not len(self) else self
        return ToldRows(pa.concat_tables([self.table, others.table]), np.concatenate([self.batches, others.batches]))

    def only(self, which: Bools) -> ToldRows:
        """Gives those of a mask."""
        if which.all():
            return self
        return ToldRows(masked(self.table, which), self.batches[which])

    @cached_property
    def _parts(self) -> tuple[pa.Array, ...]:
        texts = pc.fill_null(self.table["place"], "").combine_chunks()
        flat = pc.list_flatten(pc.split_pattern(texts, "\n", max_splits=PLACE_PARTS - 1))
        if isinstance(flat, pa.ChunkedArray):
            flat = flat.combine_chunks()
        at = np.arange(len(self)) * PLACE_PARTS
        return tuple(flat.take(pa.array(at + part)) for part in range(PLACE_PARTS))

    def _numbers(self, part: int) -> Longs:
        found: Longs = pc.cast(self._parts[part], pa.int64()).to_numpy(zero_copy_only=False)
        return found

    @cached_property
    def servers(self) -> list[str]:
        """Whose binlogs they name."""
        found: list[str] = pc.unique(self._parts[0]).to_pylist()
        return found

    @cached_property
    def numbers(self) -> Longs:
        """The file and position of each."""
        return self._numbers(1)

    @cached_property
    def _ids(self) -> pa.DictionaryArray:
        return self._parts[4].dictionary_encode()

    @cached_property
    def ids(self) -> list[str]:
        """The transactions, "" for rows of none."""
        found: list[str] = self._ids.dictionary.to_pylist()
        return found

    @cached_property
    def codes(self) -> Longs:
        """For each row, the number of its transaction among `ids`."""
        codes: Longs = self._ids.indices.to_numpy().astype(np.int64)
        return codes

    @cached_property
    def kinds(self) -> Longs:
        """The kind of each event."""
        kinds: Longs = self.table["kind"].to_numpy().astype(np.int64)
        return kinds

    @cached_property
    def is_loose(self) -> Bools:
        """Which rows are of no transaction."""
        code = self.ids.index("") if "" in self.ids else _OTHER_NONE
        is_loose: Bools = self.codes == code
        return is_loose

    @cached_property
    def transactions(self) -> dict[str, TransactionRows]:
        """The rows of each transaction, without copies."""
        at = np.flatnonzero(~self.is_loose)
        if not len(at):
            return {}
        rows, orders = self._numbers(2), self._numbers(3)
        of_table = self._parts[5].dictionary_encode()
        names, tables = of_table.dictionary.to_pylist(), of_table.indices.to_numpy().astype(np.int64)
        columns = [part[at] for part in (self.kinds, orders, rows, self.numbers, self.codes)]
        sorting = np.lexsort([at, *columns])
        kinds, orders, rows, numbers, codes = (part[sorting] for part in columns)
        at = at[sorting]
        is_copy = np.zeros(len(at), np.bool_)
        is_copy[1:] = (
            (codes[1:] == codes[:-1]) & (numbers[1:] == numbers[:-1]) & (rows[1:] == rows[:-1])
            & (orders[1:] == orders[:-1]) & (kinds[1:] == kinds[:-1])
        )  # fmt: skip
        at, kinds, orders, rows, numbers, codes = (part[~is_copy] for part in (at, kinds, orders, rows, numbers, codes))
        tables = tables[at]
        bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
        found = {}
        for start, end in pairwise(bounds):
            part = slice(start, end)
            found[self.ids[int(codes[start])]] = TransactionRows(
                at[part], numbers[part], rows[part], orders[part], kinds[part], tables[part], names
            )
        return found

    def firsts(self) -> dict[PartitionId, int]:
        """Gives the first offset of each partition."""
        if not len(self):
            return {}
        found = self.table.select(["topic", "partition", "offset"]).group_by(["topic", "partition"])
        firsts = found.aggregate([("offset", "min")])
        names = ("topic", "partition", "offset_min")
        return {(t, p): o for t, p, o in zip(*(firsts[name].to_pylist() for name in names), strict=True)}
