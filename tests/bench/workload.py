"""The upstreams of the benchmark: rows, transactions and table definitions, the same for the same seed."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from bridge.demo.encode import EncodedMessage, Encoder
from bridge.demo.model import BankColumn, BankRow, BankTotals, Change, TableVersion, Transaction, Value
from tests.bench import real_rows

SCHEMA = "sbtest"
START_TS = 470611868434825218
BOUNDARY_EVERY = 1000
"""Transactions."""
TICK = 1 << 18
"""A millisecond."""
PARTITIONS = 4

_ID = BankColumn("id", "int", key="primary")
_SYSBENCH = (_ID, BankColumn("k", "int"), BankColumn("c", "char", "120"), BankColumn("pad", "char", "60"))
_NO_TOTALS = BankTotals(0, 0, 0, 0)


@dataclass(frozen=True)
class Workload:
    """A topic of 60/30/10 inserts, updates and deletes, 3-10 rows a transaction.

    columns: of each table; 0 stands for sysbench's four, about 200 bytes a row.
    hot_keys: how many rows there are to change; 0: ever new ones.
    tables: over which the rows are spread.
    bound_by: the workload whose ready-made statements are the ceiling, itself by default.
    share: of the row changes asked for; large rows need fewer.
    """

    name: str
    columns: int = 0
    hot_keys: int = 0
    tables: int = 1
    bound_by: str = ""
    share: float = 1.0

    @property
    def shapes(self) -> list[TableVersion]:
        """The tables."""
        columns = _wide(self.columns) if self.columns else _SYSBENCH
        names = [f"t{number}" for number in range(self.tables)] if self.tables > 1 else ["sbtest"]
        return [TableVersion(SCHEMA, name, columns) for name in names]

    @property
    def statements(self) -> list[str]:
        """What makes the database and its tables, afresh."""
        creates = [
            f"CREATE TABLE {SCHEMA}.{shape.name} ({','.join(self._definitions(shape))})" for shape in self.shapes
        ]
        return [f"DROP DATABASE IF EXISTS {SCHEMA}", f"CREATE DATABASE {SCHEMA}", *creates]

    def row(self, key: int, number: int) -> BankRow:
        """The row that a key and a random number of 64 bits make."""
        return _row(self.columns, key, number)

    def at(self, ids: int, drawn: float) -> int:
        """The index of the row that an update goes to: `drawn` is from 0 up to 1."""
        return int(ids * drawn)

    def crc(self, row: BankRow) -> int:
        """What `fingerprint_query` sums up of a row."""
        return zlib.crc32(",".join(map(str, row)).encode())

    def _definitions(self, shape: TableVersion) -> list[str]:
        return [column.ddl() for column in shape.columns]


class RealWorkload(Workload):
    """Rows as shops have them (`real_rows`), in 20 tables with secondary indexes; a few rows get most updates."""

    @property
    def shapes(self) -> list[TableVersion]:
        """The tables."""
        return [TableVersion(SCHEMA, name, columns) for name, columns in real_rows.TABLES.items()]

    def row(self, key: int, number: int) -> BankRow:
        """The row that a key and a random number of 64 bits make."""
        tables = list(real_rows.TABLES.values())
        return real_rows.row(tables[key % len(tables)], key, number)

    def at(self, ids: int, drawn: float) -> int:
        """By Zipf's law: the row of rank r in one of r draws."""
        return min(ids - 1, int(ids**drawn) - 1)

    def crc(self, row: BankRow) -> int:
        """What `fingerprint_query` sums up of a row."""
        return zlib.crc32(b",".join(real_rows.printed(row)))

    def _definitions(self, shape: TableVersion) -> list[str]:
        return [*super()._definitions(shape), *real_rows.INDEXES]


WORKLOADS = {
    workload.name: workload
    for workload in (
        RealWorkload("real", share=0.3),
        Workload("sysbench"),
        Workload("hot", hot_keys=1000, bound_by="sysbench"),
        Workload("wide", columns=60, share=0.3),
    )
}


def _wide(count: int) -> tuple[BankColumn, ...]:
    """A key, then numbers and texts in turn."""
    kinds = (("int", ""), ("bigint", ""), ("varchar", "24"), ("char", "8"))
    return (_ID, *(BankColumn(f"c{i}", *kinds[i % 4]) for i in range(1, count)))


def _row(columns: int, key: int, number: int) -> BankRow:
    """The row that a key and a random number of 64 bits make."""
    if not columns:
        return key, number & 0x7FFFFFF, f"{number:020d}-" * 5 + "c" * 15, f"{number:020d}-" * 2 + "p" * 18
    cells: tuple[Value, ...] = (number & 0x7FFFFFF, number >> 2, f"v{number}", f"{number & 0xFFFFFFF:08x}")
    return (key, *(cells[i % 4] for i in range(1, columns)))


@dataclass
class Upstream:
    """Draws transactions; `numbers` is its state after those drawn so far: key -> what its row is made from."""

    workload: Workload
    seed: int = 1
    numbers: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._shapes = self.workload.shapes
        self._ids: list[int] = []
        self._free = list(range(self.workload.hot_keys, 0, -1))
        self._freed: list[int] = []
        self._next = 1

    def transactions(self, events: int) -> Iterator[Transaction]:
        """Transactions of about so many row changes together, each row at most once in each."""
        ts, sent = START_TS, 0
        while sent < events:
            ts += TICK
            touched: set[int] = set()
            drawn = (self._change(touched) for _ in range(self._random.randint(3, 10)))
            changes = tuple(change for change in drawn if change)
            sent += len(changes)
            self._free, self._freed = [*self._freed, *self._free], []
            if changes:
                yield Transaction(ts, 0, changes, _NO_TOTALS)

    def transaction(self, rows: int, ts: int) -> Transaction:
        """One of just so many row changes, each of another row; for workloads without hot keys."""
        touched: set[int] = set()
        changes: list[Change] = []
        while len(changes) < rows:
            changes += filter(None, (self._change(touched) for _ in range(rows - len(changes))))
        return Transaction(ts, 0, tuple(changes), _NO_TOTALS)

    def rows(self) -> Iterator[BankRow]:
        """All rows there are now."""
        return (self.workload.row(key, number) for key, number in self.numbers.items())

    def fingerprint(self) -> tuple[int, int, int]:
        """What `FINGERPRINT` gives of all tables together."""
        count = total = folded = 0
        for row in self.rows():
            crc = self.workload.crc(row)
            count, total, folded = count + 1, total + crc, folded ^ crc
        return count, total, folded

    def _change(self, touched: set[int]) -> Change | None:
        dice = self._random.random()
        if dice < 0.6 or not self._ids:
            new = self._new_key()
            if new is not None:
                return self._insert(new, touched)
        is_update = dice < 0.9
        drawn = self._random.random()
        at = self.workload.at(len(self._ids), drawn) if is_update else int(len(self._ids) * drawn)
        key = self._ids[at]
        if key in touched:
            return None
        touched.add(key)
        return self._update(key) if is_update else self._delete(key, at)

    def _new_key(self) -> int | None:
        """None when all hot keys are taken."""
        if self.workload.hot_keys:
            return self._free.pop() if self._free else None
        self._next += 1
        return self._next - 1

    def _insert(self, key: int, touched: set[int]) -> Change:
        touched.add(key)
        self._ids.append(key)
        self.numbers[key] = number = self._random.getrandbits(64)
        return Change(self._shape(key), None, self.workload.row(key, number))

    def _update(self, key: int) -> Change:
        before, number = self.numbers[key], self._random.getrandbits(64)
        self.numbers[key] = number
        return Change(self._shape(key), self.workload.row(key, before), self.workload.row(key, number))

    def _delete(self, key: int, at: int) -> Change:
        self._ids[at] = self._ids[-1]
        self._ids.pop()
        if self.workload.hot_keys:
            self._freed.append(key)
        return Change(self._shape(key), self.workload.row(key, self.numbers.pop(key)), None)

    def _shape(self, key: int) -> TableVersion:
        return self._shapes[key % len(self._shapes)]


def fingerprint_query(shape: TableVersion) -> str:
    """Rows, sum and exclusive or of the CRC-32 of each row's values, joined by commas."""
    columns = ",".join(f"`{column.name}`" for column in shape.columns)
    crc = f"CRC32(CONCAT_WS(',',{columns}))"
    return f"SELECT COUNT(*), COALESCE(SUM({crc}), 0), BIT_XOR({crc}) FROM {shape.schema}.{shape.name}"


def messages(
    upstream: Upstream, encoder: Encoder, events: int, boundary_every: int = BOUNDARY_EVERY
) -> Iterator[EncodedMessage]:
    """The messages of a topic, with a boundary each `boundary_every` transactions (0: none) and at the end."""
    ts = START_TS
    for number, transaction in enumerate(upstream.transactions(events), 1):
        yield from encoder.transaction(transaction)
        ts = transaction.commit_ts
        if boundary_every and number % boundary_every == 0:
            yield from encoder.boundary(ts + 1)
    yield from encoder.boundary(ts + 1)
