"""Compares one table between two sides: checksums over ranges of keys, bisected where they differ, down to rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from bridge.verify.checksums import (
    Fingerprint,
    bucket_query,
    fingerprint_of,
    fingerprint_query,
    readable,
    row_hash,
    token,
)
from bridge.verify.chunks import Pace
from bridge.verify.definitions import ColumnInfo
from bridge.verify.keys import KeyPart, Values, any_of, between, boundary_query
from bridge.verify.reader import Reader
from bridge.verify.rows import Difference, Row, Shape, as_multisets, by_key, without_moved

LEAF_ROWS: Final = 1_000
"""Ranges of at most so many rows are fetched and compared row by row."""
_FAN: Final = 8
"""Into how many parts a range that differs is divided."""
_BUCKETS: Final = 4_096
_BUCKETS_PER_FETCH: Final = 64
KEYS_PER_FETCH: Final = 200


@dataclass(frozen=True)
class PartlyKnown:
    """Which columns are known differs from row to row.

    code: SQL of a number that tells; columns: the columns known by that number.
    """

    code: str
    columns: tuple[frozenset[int], ...]


@dataclass(frozen=True)
class Side:
    """A table as one server has it.

    rows: FROM clause; condition: which of its rows take part; alias: of the table that holds the columns, "" for none.
    partly: set when some rows have columns of unknown value.
    absent: numbers of columns that this side does not have; True where NULL would be their value.
    """

    reader: Reader
    rows: str
    columns: tuple[ColumnInfo, ...]
    key: tuple[KeyPart, ...]
    condition: str = "1=1"
    alias: str = ""
    partly: PartlyKnown | None = None
    absent: Mapping[int, bool] = field(default_factory=dict)

    def source(self, more: str = "1=1") -> str:
        """FROM and WHERE."""
        return f"FROM {self.rows} WHERE ({self.condition}) AND ({more})"

    def tokens(self) -> list[str]:
        """How each value stands in its row's text; U where it is unknown."""
        return [self._token(i, column) for i, column in enumerate(self.columns)]

    def fetch(self, more: str) -> list[Row]:
        """The rows under a further condition."""
        values = [self._readable(i, column) for i, column in enumerate(self.columns)]
        code = self.partly.code if self.partly else "NULL"
        found = self.reader.rows(f"SELECT {','.join(values)},{code} {self.source(more)}")
        return [Row(unhexed(row[:-1]), self._known(row[-1])) for row in found]

    def _known(self, code: int | None) -> frozenset[int] | None:
        return None if self.partly is None or code is None else self.partly.columns[int(code)]

    def _token(self, i: int, column: ColumnInfo) -> str:
        if i in self.absent:
            return "'N'" if self.absent[i] else "'U'"
        return self._if_known(i, token(column, self.alias), "'U'")

    def _readable(self, i: int, column: ColumnInfo) -> str:
        if i in self.absent:
            return "NULL" if self.absent[i] else "HEX('no such column')"
        return self._if_known(i, readable(column, self.alias), "NULL")

    def _if_known(self, i: int, expression: str, otherwise: str) -> str:
        if self.partly is None:
            return expression
        codes = [str(code) for code, columns in enumerate(self.partly.columns) if i in columns]
        if len(codes) == len(self.partly.columns):
            return expression
        return f"IF({self.partly.code} IN ({','.join(codes)}),{expression},{otherwise})" if codes else otherwise


def unhexed(values: Sequence[object]) -> Values:
    """Values as `checksums.readable` gives them."""
    return tuple(None if value is None else bytes.fromhex(str(value)) for value in values)


Range = tuple[Values | None, Values | None]
"""Keys above the first, not above the second."""


@dataclass
class Tally:
    """What the comparison of a table has come to so far."""

    rows: int = 0
    chunks: int = 0
    differences: list[Difference] = field(default_factory=list)
    upto: Values | None = None
    """Everything up to this key has been looked at, and was equal."""

    def add(self, chunk: Range, rows: int, found: Sequence[Difference]) -> None:
        """One chunk is done."""
        self.rows += rows
        self.chunks += 1
        self.differences += found
        if not self.differences and chunk[1] is not None:
            self.upto = chunk[1]


T = TypeVar("T")


class Comparison:
    """Compares two sides of one table.

    pool: runs the queries of both sides at once; pause: called before each chunk, may wait;
    on_chunk: told how it stands after each chunk.
    scout: finds where chunks end, ahead of the comparison, on a session of its own; at whatever moment, since it does
        not matter where the key space is cut.
    """

    def __init__(
        self,
        shape: Shape,
        expected: Side,
        actual: Side,
        *,
        pool: Executor,
        pace: Pace,
        pause: Callable[[], None],
        on_chunk: Callable[[Tally], None],
        scout: Reader | None = None,
    ) -> None:
        self._shape, self._expected, self._actual = shape, expected, actual
        self._pool, self._pace, self._pause, self._on_chunk = pool, pace, pause, on_chunk
        self._scout = replace(expected, reader=scout) if scout else None

    def run(self, tally: Tally) -> Tally:
        """Goes through the table, beginning behind tally.upto."""
        if not self._shape.key:
            return self._as_multisets(tally)
        for chunk in self._chunks(tally.upto):
            self._pause()
            began = time.monotonic()
            rows, differences = self._compare(chunk)
            self._pace.took(time.monotonic() - began)
            tally.add(chunk, rows, differences)
            self._on_chunk(tally)
        tally.differences = without_moved(self._shape, tally.differences)
        return tally

    def again(self, keys: Sequence[Values]) -> list[Difference]:
        """Looks at some keys again."""
        found: list[Difference] = []
        for start in range(0, len(keys), KEYS_PER_FETCH):
            some = keys[start : start + KEYS_PER_FETCH]
            left, right = self._both(lambda side, some=some: side.fetch(any_of(side.key, some)))  # type: ignore[misc]
            found += by_key(self._shape, left, right)
        return found

    def _both(self, look: Callable[[Side], T]) -> tuple[T, T]:
        """Both sides at once; one after the other when they share a session."""
        if self._expected.reader is self._actual.reader:
            return look(self._expected), look(self._actual)
        later = self._pool.submit(look, self._expected)
        try:
            actual = look(self._actual)
        finally:
            expected = later.result()
        return expected, actual

    def _chunks(self, low: Values | None) -> Iterator[Range]:
        """Chunks of the key space, of as many rows as take about the pace's seconds; the last one is open."""
        upcoming = self._looked_ahead(low)
        while True:
            high = upcoming()
            if high is not None:
                upcoming = self._looked_ahead(high)
            yield low, high
            if high is None:
                return
            low = high

    def _looked_ahead(self, low: Values | None) -> Callable[[], Values | None]:
        """Where the chunk above `low` ends, found by the scout while the one before is compared."""
        if self._scout is None:
            return lambda: self._boundary(self._expected, (low, None), self._pace.rows - 1)
        return self._pool.submit(self._boundary, self._scout, (low, None), self._pace.rows - 1).result

    def _boundary(self, side: Side, within: Range, offset: int) -> Values | None:
        found = side.reader.rows(boundary_query(side.key, side.source(between(side.key, *within)), offset))
        return unhexed(found[0]) if found else None

    def _compare(self, chunk: Range) -> tuple[int, list[Difference]]:
        """How many rows the range should have, and what differs in it."""
        expected, actual = self._both(lambda side: self._fingerprint(side, chunk))
        if expected == actual and expected.is_whole:
            return expected.rows, []
        rows = max(expected.rows, actual.rows)
        larger = self._expected if expected.rows >= actual.rows else self._actual
        parts = list(self._divided(larger, chunk, rows)) if rows > LEAF_ROWS else []
        if len(parts) <= 1:
            left, right = self._both(lambda side: side.fetch(between(side.key, *chunk)))
            return expected.rows, by_key(self._shape, left, right)
        return expected.rows, [difference for part in parts for difference in self._compare(part)[1]]

    def _fingerprint(self, side: Side, chunk: Range) -> Fingerprint:
        rows = side.source(between(side.key, *chunk))
        return fingerprint_of(side.reader.rows(fingerprint_query(side.tokens(), rows))[0])

    def _divided(self, side: Side, chunk: Range, rows: int) -> Iterator[Range]:
        low, high = chunk
        for _ in range(_FAN - 1):
            middle = self._boundary(side, (low, high), max(0, -(-rows // _FAN) - 1))
            if middle is None or middle == high:
                break
            yield low, middle
            low = middle
        yield low, high

    def _as_multisets(self, tally: Tally) -> Tally:
        """A table without a key has no ranges: rows go into buckets by their hash."""
        self._pause()
        left, right = self._both(self._buckets)
        differing = [
            bucket
            for bucket in left.keys() | right.keys()
            if left.get(bucket) != right.get(bucket) or not left[bucket].is_whole
        ]
        found: list[Difference] = []
        if differing:
            found = self._in_buckets(differing)
        tally.add((None, None), sum(fingerprint.rows for fingerprint in left.values()), found)
        self._on_chunk(tally)
        return tally

    def _buckets(self, side: Side) -> dict[int | None, Fingerprint]:
        found = side.reader.rows(bucket_query(side.tokens(), side.source(), _BUCKETS))
        return {None if row[0] is None else int(row[0]): fingerprint_of(row[1:]) for row in found}

    def _in_buckets(self, buckets: Sequence[int | None]) -> list[Difference]:
        """The rows of these buckets, all of them before any is compared: JSON of one meaning may have two hashes."""
        left: list[Row] = []
        right: list[Row] = []
        for start in range(0, len(buckets), _BUCKETS_PER_FETCH):
            some = [bucket for bucket in buckets[start : start + _BUCKETS_PER_FETCH] if bucket is not None]
            numbers = ",".join(map(str, some or [-1]))
            fetched = self._both(lambda side, numbers=numbers: side.fetch(_of_buckets(side, numbers)))  # type: ignore[misc]
            left += fetched[0]
            right += fetched[1]
        if None in buckets:
            fetched = self._both(lambda side: side.fetch(f"{row_hash(side.tokens())} IS NULL"))
            left += fetched[0]
            right += fetched[1]
        return as_multisets(self._shape, left, right)


def _of_buckets(side: Side, numbers: str) -> str:
    return f"{row_hash(side.tokens())}%{_BUCKETS} IN ({numbers})"
