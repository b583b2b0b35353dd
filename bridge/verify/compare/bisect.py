"""Compares one table between two sides: checksums over ranges of keys, bisected where they differ, down to rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Final, TypeVar

from bridge.verify.compare.checksums import Fingerprint, fingerprint_of, fingerprint_query
from bridge.verify.compare.key_ranges import ChunkSize, KeyRange, RangeWalk, Tally
from bridge.verify.compare.key_sql import DenseKey, KeyValues, any_of, between, boundary_query
from bridge.verify.compare.keyless import Buckets, in_bucket, stream_buckets
from bridge.verify.compare.row_diff import (
    ComparedColumns,
    Difference,
    as_multisets,
    by_key,
    netted,
    without_moved,
)
from bridge.verify.compare.side import Side, unhexed
from bridge.verify.load_throttle import Throttle
from bridge.verify.snapshot_reader import SnapshotReader

LEAF_ROWS: Final = 1_000
"""Ranges of at most this many rows are fetched and compared row by row."""
_FAN: Final = 8
"""How many parts a range that differs is divided into."""
_BUCKETS_PER_FETCH: Final = 64
KEYS_PER_FETCH: Final = 200

T = TypeVar("T")


class TableComparison:
    """Compares two sides of one table.

    Ranges follow the sides' key: the table's key, the index of a table without one, or nothing.
    pool: runs the queries of both sides at once.
    throttle: may hold each chunk back.
    on_chunk: is called with the tally after each chunk.
    seconds: about how long a chunk may take.
    scout: a reader with a session of its own that finds the ends of chunks ahead of the comparison.  Its snapshot may
    be of any moment, since it does not matter where the key space is cut.
    dense: of a table whose chunks' ends are computed; None where they have to be found.
    """

    def __init__(
        self,
        shape: ComparedColumns,
        expected: Side,
        actual: Side,
        *,
        pool: Executor,
        throttle: Throttle,
        seconds: float,
        on_chunk: Callable[[Tally], None] = lambda _: None,
        scout: SnapshotReader | None = None,
        dense: DenseKey | None = None,
    ) -> None:
        self._shape, self._expected, self._actual = shape, expected, actual
        self._pool, self._throttle, self._seconds, self._on_chunk = pool, throttle, seconds, on_chunk
        self._scout = replace(expected, reader=scout) if scout else None
        self._dense = dense

    @property
    def has_ranges(self) -> bool:
        """Whether there are ranges, which several workers may share."""
        return bool(self._expected.key)

    def walk(self, tally: Tally) -> RangeWalk:
        """Gives the ranges of the table behind tally.upto."""
        boundary = _computed(self._dense) if self._dense else self._looking_ahead(tally.upto)
        return RangeWalk(tally, boundary, ChunkSize(self._seconds), self._on_chunk)

    def work(
        self, walk: RangeWalk, expected: SnapshotReader | None = None, actual: SnapshotReader | None = None
    ) -> None:
        """Compares ranges of the walk beside other workers, with readers of this worker's own."""
        own = TableComparison(
            self._shape,
            replace(self._expected, reader=expected or self._expected.reader),
            replace(self._actual, reader=actual or self._actual.reader),
            pool=self._pool,
            throttle=self._throttle,
            seconds=self._seconds,
        )
        walk.work(own._compare, self._throttle.wait)

    def run(self, tally: Tally) -> Tally:
        """Compares the whole table with one worker."""
        if not self.has_ranges:
            return self._as_streams(tally)
        walk = self.walk(tally)
        self.work(walk)
        return self.result(walk)

    def result(self, walk: RangeWalk) -> Tally:
        """Waits for all workers, and gives the tally."""
        tally = walk.finished()
        settled = without_moved if self._shape.key else netted
        tally.differences = settled(self._shape, tally.differences)
        return tally

    def again(self, keys: Sequence[KeyValues]) -> list[Difference]:
        """Compares the rows of these keys again."""
        differences: list[Difference] = []
        for start in range(0, len(keys), KEYS_PER_FETCH):
            batch = keys[start : start + KEYS_PER_FETCH]
            left, right = self._both(lambda side, batch=batch: side.fetch(any_of(side.key, batch)))  # type: ignore[misc]
            differences += by_key(self._shape, left, right)
        return differences

    def _both(self, look: Callable[[Side], T]) -> tuple[T, T]:
        """Asks both sides at once, or one after the other when they share a session."""
        if self._expected.reader is self._actual.reader:
            return look(self._expected), look(self._actual)
        later = self._pool.submit(look, self._expected)
        try:
            actual = look(self._actual)
        finally:
            expected = later.result()
        return expected, actual

    def _looking_ahead(self, low: KeyValues | None) -> Callable[[KeyValues | None, int], KeyValues | None]:
        """Gives the function that finds where a chunk ends.  With a scout, it finds the next end while this chunk is
        compared."""
        if self._scout is None:
            return lambda low, rows: self._boundary(self._expected, (low, None), rows - 1)
        scout = self._scout

        def look(low: KeyValues | None, rows: int) -> Callable[[], KeyValues | None]:
            return self._pool.submit(self._boundary, scout, (low, None), rows - 1).result

        upcoming = look(low, ChunkSize(self._seconds).rows)

        def boundary(_: KeyValues | None, rows: int) -> KeyValues | None:
            nonlocal upcoming
            high = upcoming()
            if high is not None:
                upcoming = look(high, rows)
            return high

        return boundary

    def _boundary(self, side: Side, within: KeyRange, offset: int) -> KeyValues | None:
        rows, *more = side.sources(between(side.key, *within))
        ends = side.reader.rows(boundary_query(side.key, rows, offset, *more))
        return unhexed(ends[0]) if ends else None

    def _compare(self, chunk: KeyRange) -> tuple[int, list[Difference]]:
        """Tells how many rows the range should have, and what differs in it."""
        expected, actual = self._both(lambda side: self._fingerprint(side, chunk))
        if expected == actual and expected.is_whole:
            return expected.rows, []
        rows = max(expected.rows, actual.rows)
        larger = self._expected if expected.rows >= actual.rows else self._actual
        parts = list(self._divided(larger, chunk, rows)) if rows > LEAF_ROWS else []
        if len(parts) <= 1:
            return expected.rows, self._rows_of(chunk, rows)
        return expected.rows, [difference for part in parts for difference in self._compare(part)[1]]

    def _rows_of(self, chunk: KeyRange, rows: int) -> list[Difference]:
        """Fetches and compares the rows of a range that is not divided."""
        if not self._shape.key and rows > LEAF_ROWS:
            return self._of_equal_keys(chunk)
        left, right = self._both(lambda side: side.fetch(between(side.key, *chunk)))
        return (by_key if self._shape.key else as_multisets)(self._shape, left, right)

    def _of_equal_keys(self, chunk: KeyRange) -> list[Difference]:
        """Compares a range that the index cannot divide, because its rows have equal values there."""
        expected, actual = (
            replace(side, condition=f"({side.condition}) AND ({between(side.key, *chunk)})", key=())
            for side in (self._expected, self._actual)
        )
        narrow = TableComparison(
            self._shape, expected, actual, pool=self._pool, throttle=self._throttle, seconds=self._seconds
        )
        return narrow.run(Tally()).differences

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

    def _as_streams(self, tally: Tally) -> Tally:
        """Compares a table with neither a key nor an index: it has no ranges, so that rows are put into buckets by
        their hash."""
        if tally.is_done:
            return tally
        with self._throttle.streaming():
            left, right = self._both(lambda side: self._buckets(side, tally))
        differences = self._in_buckets(left.differing(right))
        tally.rows, tally.differences, tally.is_done = left.rows, differences, True
        tally.chunks = max(1, tally.chunks)
        self._on_chunk(tally)
        return tally

    def _buckets(self, side: Side, tally: Tally) -> Buckets:
        def pause(rows: int) -> None:
            if side is self._expected and rows:
                tally.rows, tally.chunks = rows, tally.chunks + 1
                self._on_chunk(tally)
            self._throttle.wait()

        return stream_buckets(side, self._seconds, pause)

    def _in_buckets(self, buckets: Sequence[int]) -> list[Difference]:
        """Compares the rows of these buckets.  All are fetched before any is compared, since JSON of one meaning may
        have two hashes."""
        left: list[KeyValues] = []
        right: list[KeyValues] = []
        for start in range(0, len(buckets), _BUCKETS_PER_FETCH):
            batch = list(buckets[start : start + _BUCKETS_PER_FETCH])
            self._throttle.wait()
            fetched = self._both(lambda side, batch=batch: side.fetch(in_bucket(side, batch)))  # type: ignore[misc]
            left += fetched[0]
            right += fetched[1]
        return as_multisets(self._shape, left, right)


def _computed(dense: DenseKey) -> Callable[[KeyValues | None, int], KeyValues | None]:
    """Gives the function that computes where a chunk ends."""

    def boundary(low: KeyValues | None, rows: int) -> KeyValues | None:
        end = dense.end(int(low[0]) if low and low[0] is not None else None, rows)
        return None if end is None else (str(end).encode(),)

    return boundary
