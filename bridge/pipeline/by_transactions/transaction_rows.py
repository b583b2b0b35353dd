"""The rows of transactions by their places (`protocols.debezium.transactions`), and which transactions are whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import EVENT_SCHEMA
from bridge.model import PartitionId
from bridge.protocols.debezium.transactions import NO_TRANSACTION, PLACE_PARTS, TransactionMark
from bridge.protocols.values.event_time import SNAPSHOT_SERVER
from bridge.rows.gathering import Amount, Bools, Longs, distinct, masked, partitions_of, position_of
from bridge.rows.order_and_slices import TableChunk
from bridge.spark.kept_rows import spilled

_OF_MARIADB: Final = re.compile(r"[0-9]+-[0-9]+-")
"""The id of a transaction of MariaDB 11.4, all rows of which have one place in the binlog."""
_NONE = -1
_TEXTS = {0: "table of", 1: "server", 5: "transaction"}
_NUMBERS = {2: "number", 3: "row", 4: "order"}


@dataclass(frozen=True)
class TransactionRows:
    """The rows of one transaction that have been read, in the order of the binlog.

    at: their numbers among the rows.  numbers, rows, orders, kinds, tables: of each the file and position, the row in
        the event, the number in the transaction, the kind, and the number of its table among `names`.
    """

    names: Sequence[str]
    at: Longs
    numbers: Longs
    rows: Longs
    orders: Longs
    kinds: Longs
    tables: Longs

    @cached_property
    def distinct(self) -> Longs:
        """Which of them are no copies with another number, in order."""
        _, firsts = np.unique(np.stack([self.numbers, self.rows, self.kinds]), axis=1, return_index=True)
        return np.sort(firsts).astype(np.int64)

    def are_with_rest(self, mark: TransactionMark) -> bool:
        """Tells whether these are all rows of a transaction in whose midst a connector before 3.7 began anew, which
        numbers the rest from 1 on then, and counts it alone (Debezium dbz#633).

        The last row of each number is taken: these must ascend as the binlog does, be as many as the END counts, and no
        other row may stand behind the first of them.
        """
        last = {order: place for place, order in enumerate(self.orders.tolist())}
        chosen = np.array([last.get(order, _NONE) for order in range(1, mark.count + 1)], np.int64)
        if (chosen == _NONE).any() or (np.diff(chosen) <= 0).any():
            return False
        identities = list(zip(self.numbers.tolist(), self.rows.tolist(), self.kinds.tolist(), strict=True))
        behind = set(identities[int(chosen[0]) :]) if mark.count else set()
        return behind == {identities[place] for place in chosen.tolist()} and self.counts(chosen) == mark.tables

    def counts(self, which: Longs) -> dict[str, int]:
        """Tells how many of some of them each table has."""
        counts = np.bincount(self.tables[which], minlength=1)
        return {self.names[table]: int(counts[table]) for table in np.flatnonzero(counts).tolist()}


def missing_rows(mark: TransactionMark, there: Mapping[str, int]) -> str:
    """Tells for people which rows of a transaction lack."""
    counts = mark.tables.items()
    short = [f"{name}: {there.get(name, 0)} of {rows}" for name, rows in counts if there.get(name, 0) < rows]
    return ", ".join(short) or f"{sum(there.values())} rows that are not the {mark.count} that it counts"


@dataclass(frozen=True)
class Transactions:
    """The rows of all transactions, without copies; sorted by transaction, and in each by their numbers.

    every: the rows.  bounds: where each transaction begins, and the end of all.  ids: the transactions, by number.
    """

    every: TransactionRows
    bounds: Longs
    ids: Mapping[str, int]

    @cached_property
    def firsts(self) -> list[int]:
        """The file and position of the first row of each transaction."""
        firsts: list[int] = (
            np.minimum.reduceat(self.every.numbers, self.bounds[:-1]).tolist() if len(self.sizes) else []
        )
        return firsts

    @cached_property
    def lasts(self) -> list[int]:
        """The same of its last row."""
        lasts: list[int] = np.maximum.reduceat(self.every.numbers, self.bounds[:-1]).tolist() if len(self.sizes) else []
        return lasts

    @cached_property
    def sizes(self) -> Longs:
        """How many rows each has."""
        return np.diff(self.bounds)

    @cached_property
    def are_numbered(self) -> Bools:
        """Whether the rows of each are numbered from 1 on without a gap, in the order of the binlog."""
        wrong = self.every.orders - 1 != np.arange(len(self.every.orders)) - np.repeat(self.bounds[:-1], self.sizes)
        wrong[1:] |= (self.every.numbers[1:] < self.every.numbers[:-1]) & (self.every.orders[1:] > 1)
        are_numbered: Bools = np.ones(len(self.sizes), np.bool_)
        are_numbered[np.repeat(np.arange(len(self.sizes)), self.sizes)[wrong]] = False
        return are_numbered

    @cached_property
    def are_at_one_place(self) -> list[bool]:
        """Whether each is of MariaDB."""
        return [_OF_MARIADB.match(id_) is not None for id_ in self.ids]

    @cached_property
    def _counts(self) -> list[dict[str, int]]:
        """How many rows of each table each transaction has."""
        width = max(1, len(self.every.names))
        pairs, counts = np.unique(
            np.repeat(np.arange(len(self.sizes)), self.sizes) * width + self.every.tables, return_counts=True
        )
        counts_of: list[dict[str, int]] = [{} for _ in self.sizes]
        which, tables = np.divmod(pairs, width)
        for number, table, count in zip(which.tolist(), tables.tolist(), counts.tolist(), strict=True):
            counts_of[number][self.every.names[table]] = count
        return counts_of

    def __getitem__(self, number: int) -> TransactionRows:
        """The rows of a transaction, by its number, in the order of the binlog."""
        start, end = self.bounds[number : number + 2].tolist()
        rows = self.every
        numbers = rows.orders if self.are_at_one_place[number] else rows.numbers
        part = start + np.lexsort([column[start:end] for column in (rows.kinds, rows.orders, rows.rows, numbers)])
        columns = (rows.at, numbers, rows.rows, rows.orders, rows.kinds, rows.tables)
        return TransactionRows(rows.names, *(column[part] for column in columns))

    def are_all(self, number: int, mark: TransactionMark) -> bool:
        """Tells whether all rows of a transaction are there, of which an END counts all."""
        if self.are_numbered[number] or self.are_at_one_place[number]:
            return bool(self.are_numbered[number]) and self._counts[number] == mark.tables
        rows = self[number]
        return len(rows.distinct) == mark.count and rows.counts(rows.distinct) == mark.tables

    def distinct(self, which: Longs) -> tuple[Longs, Longs]:
        """Gives the numbers, among the rows, of those of some transactions that are no copies; and how many each
        has."""
        if self.are_numbered[which].all():
            sizes = self.sizes[which]
            firsts = np.repeat(self.bounds[which] - (np.cumsum(sizes) - sizes), sizes)
            return self.every.at[firsts + np.arange(len(firsts))], sizes
        parts = [rows.at[rows.distinct] for rows in map(self.__getitem__, which.tolist())]
        return np.concatenate(parts), np.array([len(part) for part in parts])


@dataclass(frozen=True)
class PlacedRows:
    """Rows as they were read (EVENT_SCHEMA), with the parts of `place` as columns."""

    parts: tuple[TableChunk, ...]

    @classmethod
    def of(cls, events: pa.Table) -> PlacedRows:
        """Makes them of row changes (EVENT_SCHEMA), all of which tell their place."""
        parts = pc.list_flatten(pc.split_pattern(events["place"].combine_chunks(), "\n"))
        if isinstance(parts, pa.ChunkedArray):
            parts = parts.combine_chunks()
        table, firsts = events.drop_columns(["place"]), np.arange(events.num_rows) * PLACE_PARTS
        for part, name in _TEXTS.items():
            table = table.append_column(name, parts.take(pa.array(firsts + part)))
        for part, name in _NUMBERS.items():
            table = table.append_column(name, pc.cast(parts.take(pa.array(firsts + part)), pa.int64()))
        return cls((TableChunk(table),))

    def __len__(self) -> int:
        return sum(part.table.num_rows for part in self.parts)

    @cached_property
    def table(self) -> pa.Table:
        """All of them, without a copy."""
        return pa.concat_tables([part.table for part in self.parts])

    @property
    def in_memory(self) -> Amount:
        """How much of them is not on disk."""
        return Amount.total(part.amount for part in self.parts if part.is_here)

    def position(self, row: int) -> str:
        """Gives the position of the message of a row."""
        return str(position_of(self.table, row))

    def only(self, which: Bools) -> PlacedRows:
        """Gives those of a mask."""
        if which.all():
            return self
        masks = np.split(which, np.cumsum([part.table.num_rows for part in self.parts])[:-1])
        pairs = zip(self.parts, masks, strict=True)
        chunks = [part if mask.all() else TableChunk(masked(part.table, mask)) for part, mask in pairs if mask.any()]
        return PlacedRows(tuple(chunks) or (TableChunk(self.table.slice(0, 0)),))

    def to_disk(self) -> PlacedRows:
        """Moves what is in memory to mapped files."""
        return PlacedRows(tuple(map(spilled, self.parts)))

    def events(self, table: pa.Table) -> pa.Table:
        """Gives rows of `table` as they were read, but for their place."""
        at = EVENT_SCHEMA.get_field_index("place")
        events = table.select([name for name in EVENT_SCHEMA.names if name != "place"])
        return events.add_column(at, EVENT_SCHEMA.field(at), pa.nulls(table.num_rows, pa.string()))

    @cached_property
    def numbers(self) -> Longs:
        """The file and position of each."""
        numbers: Longs = self.table["number"].to_numpy()
        return numbers

    @cached_property
    def _of_transaction(self) -> tuple[list[tuple[str, ...]], Longs]:
        return distinct(self.table, ("transaction",))

    @cached_property
    def ids(self) -> list[str]:
        """The transactions, NO_TRANSACTION for rows of none."""
        return [id_ for (id_,) in self._of_transaction[0]]

    @cached_property
    def codes(self) -> Longs:
        """For each row, the number of its transaction among `ids`."""
        return self._of_transaction[1]

    @cached_property
    def is_loose(self) -> Bools:
        """Which rows are of no transaction."""
        is_loose: Bools = self.codes == (self.ids.index(NO_TRANSACTION) if NO_TRANSACTION in self.ids else _NONE)
        return is_loose

    @cached_property
    def is_of_first_snapshot(self) -> Bools:
        """Which rows are of a snapshot that is no incremental one."""
        return self.are_of(lambda server: server.endswith(f"/{SNAPSHOT_SERVER}"))

    def are_of(self, is_match: Callable[[str], bool]) -> Bools:
        """Tells which rows are of a server of which `is_match` is true."""
        names, codes = self.of_servers
        are_of: Bools = np.array([is_match(name) for name in names], np.bool_)[codes]
        return are_of

    @cached_property
    def of_servers(self) -> tuple[list[str], Longs]:
        """The servers in whose binlogs they are, and for each row the number of its own."""
        servers, codes = distinct(self.table, ("server",))
        return [name for (name,) in servers], codes

    @cached_property
    def _is_again(self) -> Bools:
        """Which rows of MariaDB's transactions stand in their partition behind a number that is not lower.  A connector
        before 3.7 that was restarted sends the rest of a transaction again, numbered anew."""
        is_again = np.zeros(len(self), np.bool_)
        at = np.flatnonzero(np.array([_OF_MARIADB.match(id_) is not None for id_ in self.ids], np.bool_)[self.codes])
        if len(at):
            offsets, orders = (self.table[name].to_numpy()[at] for name in ("offset", "order"))
            where, partitions = partitions_of(self.table)
            groups = self.codes[at] * len(where) + partitions[at]
            sorting = np.lexsort([offsets, groups])
            ascending = groups[sorting] * (orders.max() + 1) + orders[sorting]
            is_again[at[sorting[1:]]] = ascending[1:] <= np.maximum.accumulate(ascending)[:-1]
        return is_again

    @cached_property
    def transactions(self) -> Transactions:
        """The rows of all transactions, without copies."""
        at = np.flatnonzero(~(self.is_loose | self._is_again))
        rows, orders, kinds = (self.table[name].to_numpy().astype(np.int64) for name in ("row", "order", "kind"))
        names, tables = distinct(self.table, ("table of",))
        columns = [part[at] for part in (kinds, rows, self.numbers, orders, self.codes)]
        sorting = np.lexsort(columns)
        columns, at = [part[sorting] for part in columns], at[sorting]
        is_new = np.ones(len(at), np.bool_)
        is_new[1:] = np.logical_or.reduce([part[1:] != part[:-1] for part in columns])
        kinds, rows, numbers, orders, codes = (part[is_new] for part in columns)
        at = at[is_new]
        firsts = np.flatnonzero(np.diff(codes, prepend=_NONE))
        ids = {self.ids[code]: number for number, code in enumerate(codes[firsts].tolist())}
        table_names = [name for (name,) in names]
        every = TransactionRows(table_names, at, numbers, rows, orders, kinds, tables[at])
        return Transactions(every, np.append(firsts, len(at)), ids)

    def firsts(self) -> dict[PartitionId, int]:
        """Gives the first offset of each partition."""
        where, codes = partitions_of(self.table)
        firsts = np.full(len(where), np.iinfo(np.int64).max)
        np.minimum.at(firsts, codes, self.table["offset"].to_numpy())
        return dict(zip(where, firsts.tolist(), strict=True))
