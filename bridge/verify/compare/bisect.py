"""Compares one table between two sides: checksums over ranges of keys, bisected where they differ, down to rows.

Lets workers compare tables side by side; a worker that has no table left helps with the large ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Condition
from typing import Final, Generic, TypeVar

from bridge.mysql.table_definition import ColumnInfo
from bridge.verify.compare.checksums import (
    Fingerprint,
    KeyPart,
    KeyValues,
    any_of,
    between,
    boundary_query,
    fingerprint_of,
    fingerprint_query,
    readable,
    row_hash,
    token,
)
from bridge.verify.compare.key_ranges import ChunkSize, KeyRange, RangeWalk, Tally
from bridge.verify.compare.row_diff import ComparedColumns, Difference, as_multisets, by_key, without_moved
from bridge.verify.snapshots import SnapshotReader, Throttle

_PER_BUCKET: Final = 1 << 52
"""How many hashes have one bucket, of 4,096."""
_NO_HASH: Final = -1
"""The bucket of rows whose text was too long to be hashed."""
LEAF_ROWS: Final = 1_000
"""Ranges of at most this many rows are fetched and compared row by row."""
_FAN: Final = 8
"""How many parts a range that differs is divided into."""
KEYS_PER_FETCH: Final = 200

T = TypeVar("T")


@dataclass(frozen=True)
class Side:
    """A table as one server has it.

    rows: FROM clause; condition: which of its rows take part; alias: of the table that holds the columns, "" for none.
    more_rows: FROM clauses of further tables whose rows count as well.
    """

    reader: SnapshotReader
    rows: str
    columns: tuple[ColumnInfo, ...]
    key: tuple[KeyPart, ...]
    condition: str = "1=1"
    alias: str = ""
    more_rows: tuple[str, ...] = ()

    def source(self, condition: str = "1=1") -> str:
        """FROM and WHERE."""
        return f"FROM {self.rows} WHERE ({self.condition}) AND ({condition})"

    def sources(self, condition: str = "1=1") -> list[str]:
        """FROM and WHERE of each table."""
        return [self.source(condition), *(replace(self, rows=rows).source(condition) for rows in self.more_rows)]

    def query(self, values: str, condition: str = "1=1") -> str:
        """The query of these expressions over all rows."""
        return " UNION ALL ".join(f"SELECT {values} {source}" for source in self.sources(condition))

    def tokens(self) -> list[str]:
        """Tells how each value is written in its row's text."""
        return [token(column, self.alias) for column in self.columns]

    def fetch(self, condition: str) -> list[KeyValues]:
        """Gives the rows under a further condition."""
        values = [readable(column, self.alias) for column in self.columns]
        return [unhexed(row) for row in self.reader.rows(self.query(",".join(values), condition))]

    def buckets(self) -> dict[int, tuple[int, int]]:
        """Gives how many rows there are in each bucket of hashes, and the sum of these."""
        hashes = self.query(f"{row_hash(self.tokens())} AS hash")
        values = f"COALESCE(hash DIV {_PER_BUCKET},{_NO_HASH}) AS bucket,COUNT(*),COALESCE(SUM(hash),0)"
        counts = self.reader.rows(f"SELECT {values} FROM ({hashes}) hashes GROUP BY bucket")
        return {int(bucket): (int(count), int(total)) for bucket, count, total in counts}

    def in_bucket(self, buckets: Sequence[int]) -> str:
        """Writes the condition for rows of these buckets."""
        numbers = ",".join(map(str, buckets))
        return f"COALESCE({row_hash(self.tokens())} DIV {_PER_BUCKET},{_NO_HASH}) IN ({numbers})"


def unhexed(values: Sequence[object]) -> KeyValues:
    """Turns the hex that `checksums.readable` gives back into values."""
    return tuple(None if value is None else bytes.fromhex(str(value)) for value in values)


@dataclass(frozen=True, eq=False)
class TableComparison:
    """Compares two sides of one table.

    Ranges follow the sides' key; a table without a key is one range.
    pool: runs the queries of both sides at once.
    throttle: may hold each chunk back.
    on_chunk: is called with the rows of each chunk.
    seconds: about how long a chunk may take.
    """

    shape: ComparedColumns
    expected: Side
    actual: Side
    pool: Executor
    throttle: Throttle
    seconds: float
    on_chunk: Callable[[int], None] = lambda _: None

    @property
    def has_ranges(self) -> bool:
        """Whether there are ranges, which several workers may share."""
        return bool(self.expected.key)

    def walk(self) -> RangeWalk:
        """Gives the ranges of the table."""
        return RangeWalk(ChunkSize(self.seconds), self.on_chunk)

    def work(
        self, walk: RangeWalk, expected: SnapshotReader | None = None, actual: SnapshotReader | None = None
    ) -> None:
        """Compares ranges of the walk beside other workers, with readers of this worker's own."""
        own_comparison = replace(
            self,
            expected=replace(self.expected, reader=expected or self.expected.reader),
            actual=replace(self.actual, reader=actual or self.actual.reader),
        )
        walk.work(own_comparison._compare, own_comparison._chunk_end, self.throttle.wait)

    def run(self) -> Tally:
        """Compares the whole table with one worker."""
        if not self.has_ranges:
            return self._as_one()
        walk = self.walk()
        self.work(walk)
        return self.result(walk)

    def result(self, walk: RangeWalk) -> Tally:
        """Waits for all workers, and gives the tally."""
        tally = walk.finished()
        tally.differences = without_moved(self.shape, tally.differences)
        return tally

    def compare_again(self, keys: Sequence[KeyValues]) -> list[Difference]:
        """Compares the rows of these keys again; without a key, all rows."""
        if not self.has_ranges:
            meant = set(keys)
            return [difference for difference in self._as_one().differences if difference.key in meant]
        differences: list[Difference] = []
        for start in range(0, len(keys), KEYS_PER_FETCH):
            batch = keys[start : start + KEYS_PER_FETCH]
            expected, actual = self._from_both(lambda side, batch=batch: side.fetch(any_of(side.key, batch)))  # type: ignore[misc]
            differences += by_key(self.shape, expected, actual)
        return differences

    def _from_both(self, look: Callable[[Side], T]) -> tuple[T, T]:
        """Asks both sides at once, or one after the other when they share a session."""
        if self.expected.reader is self.actual.reader:
            return look(self.expected), look(self.actual)
        later = self.pool.submit(look, self.expected)
        try:
            actual = look(self.actual)
        finally:
            expected = later.result()
        return expected, actual

    def _chunk_end(self, low: KeyValues | None, rows: int) -> KeyValues | None:
        """Finds where a chunk ends."""
        return self._boundary(self.expected, (low, None), rows - 1)

    def _boundary(self, side: Side, within: KeyRange, offset: int) -> KeyValues | None:
        rows, *more_sources = side.sources(between(side.key, *within))
        ends = side.reader.rows(boundary_query(side.key, rows, offset, *more_sources))
        return unhexed(ends[0]) if ends else None

    def _compare(self, chunk: KeyRange) -> tuple[int, list[Difference]]:
        """Tells how many rows the range should have, and what differs in it."""
        expected, actual = self._from_both(lambda side: self._fingerprint(side, chunk))
        if expected.is_surely(actual):
            return expected.rows, []
        rows = max(expected.rows, actual.rows)
        larger = self.expected if expected.rows >= actual.rows else self.actual
        parts = list(self._divided(larger, chunk, rows)) if rows > LEAF_ROWS else []
        if len(parts) <= 1:
            expected_rows, actual_rows = self._from_both(lambda side: side.fetch(between(side.key, *chunk)))
            return expected.rows, by_key(self.shape, expected_rows, actual_rows)
        return expected.rows, [difference for part in parts for difference in self._compare(part)[1]]

    def _fingerprint(self, side: Side, chunk: KeyRange) -> Fingerprint:
        rows = side.sources(between(side.key, *chunk))
        return fingerprint_of(side.reader.rows(fingerprint_query(side.tokens(), *rows))[0])

    def _divided(self, side: Side, chunk: KeyRange, rows: int) -> Iterator[KeyRange]:
        low, high = chunk
        for _ in range(_FAN - 1):
            middle = self._boundary(side, (low, high), max(0, -(-rows // _FAN) - 1))
            if middle is None or middle == high:
                break
            yield low, middle
            low = middle
        yield low, high

    def _as_one(self) -> Tally:
        """Compares a table without a key.  Of one that differs, the rows of all buckets that differ are fetched before
        any is compared, since JSON of one meaning may have two hashes."""
        self.throttle.wait()
        expected, actual = self._from_both(lambda side: self._fingerprint(side, (None, None)))
        tally = Tally(expected.rows, 1)
        if not expected.is_surely(actual):
            left, right = self._from_both(Side.buckets)
            unlike = [bucket for bucket in {**left, **right} if bucket < 0 or left.get(bucket) != right.get(bucket)]
            rows = self._from_both(lambda side: side.fetch(side.in_bucket(unlike))) if unlike else ((), ())
            tally.differences = as_multisets(self.shape, *rows)
        self.on_chunk(expected.rows)
        return tally


R = TypeVar("R")
Shared = tuple[TableComparison, RangeWalk]


class WorkerPool(Generic[T]):
    """Workers and the tables that they share.  tables: in the order in which they are begun."""

    def __init__(self, tables: Iterable[T]) -> None:
        self._tables = deque(tables)
        self._changed = Condition()
        self._shared: list[Shared] = []
        self._owners = 0
        self._is_stopped = False
        self._failure: BaseException | None = None

    def results(
        self,
        workers: Sequence[Callable[[], list[R]]],
        throttle: Throttle,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> list[R]:
        """Runs the workers at once, and `meanwhile` in this thread; raises the first failure when all have ended."""
        with ThreadPoolExecutor(len(workers), thread_name_prefix="tables") as pool:
            futures = [pool.submit(worker) for worker in workers]
            try:
                meanwhile()
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                self.stop()
                throttle.stop()
        if self._failure:
            raise self._failure
        return [result for future in futures for result in future.result()]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Surrounds all that one worker does: when it fails, all workers end."""
        try:
            yield
        except BaseException as error:
            with self._changed:
                self._failure = self._failure or error
            raise

    def stop(self) -> None:
        """Ends the pool: no worker begins anything more."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def own_tables(self) -> Iterator[T]:
        """Hands tables to one worker until none is left."""
        while True:
            with self._changed:
                if self._is_stopped or not self._tables:
                    return
                table = self._tables.popleft()
                self._owners += 1
            try:
                yield table
            finally:
                with self._changed:
                    self._owners -= 1
                    self._changed.notify_all()

    @contextmanager
    def shared(self, comparison: TableComparison, walk: RangeWalk) -> Iterator[None]:
        """Surrounds the comparison of a table that other workers may help with."""
        with self._changed:
            self._shared.append((comparison, walk))
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._shared.remove((comparison, walk))

    def unfinished_tables(self) -> Iterator[Shared]:
        """Gives tables that other workers have begun and that have ranges left, until all are compared."""
        while (shared := self._next_shared()) is not None:
            yield shared

    def _next_shared(self) -> Shared | None:
        with self._changed:
            while not self._is_stopped and (self._owners or self._open()):
                if shared := self._open():
                    return shared
                self._changed.wait()
            return None

    def _open(self) -> Shared | None:
        return next((shared for shared in self._shared if shared[1].has_more), None)
