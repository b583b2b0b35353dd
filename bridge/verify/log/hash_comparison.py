"""Compares tables by the hashes of their rows' literals, so that only ranges that differ have to be loaded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final

from bridge.verify.compare.checksums import Fingerprint, fingerprint_of
from bridge.verify.compare.key_ranges import ChunkSize, KeyRange, RangeWalk, Tally
from bridge.verify.compare.key_sql import KeyValues, between, boundary_query
from bridge.verify.compare.row_diff import Difference
from bridge.verify.compare.side import unhexed
from bridge.verify.compare.worker_pool import WorkerPool
from bridge.verify.load_throttle import Throttle
from bridge.verify.log.expected_tables import WHOLE, KeyNumbers
from bridge.verify.log.literal_hashes import literals_query
from bridge.verify.log.log_tables import LoggedTable
from bridge.verify.snapshot_reader import SnapshotReader

_FIRST_ROWS: Final = 200_000
"""Ranges that should hold up to so many rows are one chunk."""


Recomputed = Future[Mapping[int, Sequence[Fingerprint]]]
"""What the ranges of each table should hold, by the tables' numbers, once it has been computed."""


@dataclass(frozen=True)
class HashedRange:
    """A range of a table.  numbers: of the first key column; place: its number among the table's ranges."""

    table: LoggedTable
    numbers: KeyNumbers
    place: int
    recomputed: Recomputed

    @property
    def expected(self) -> Fingerprint:
        """The fingerprint of what it should hold; waits until that has been computed, and raises what prevented it."""
        return self.recomputed.result()[self.table.number][self.place]

    @property
    def is_cut(self) -> bool:
        """Whether it has about as many rows as the cuts are apart (`find_cuts`)."""
        return self.numbers != WHOLE and len(self.table.replicated.key) == 1

    @property
    def waits(self) -> bool:
        """Whether nothing is hashed before it is known what the range should hold."""
        return not (self.is_cut and self.table.is_whole)


@dataclass(frozen=True)
class HashedResult:
    """What the comparison of a range has found.  tally: of a range that is equal, None for one that may differ."""

    range: HashedRange
    tally: Tally | None
    seconds: float


@dataclass(frozen=True)
class HashComparison:
    """Compares ranges on the target, each in chunks that take about `seconds`.

    on_rows: is called with a range and how many rows of it were found
    equal.
    """

    throttle: Throttle
    seconds: float
    on_rows: Callable[[HashedRange, int], None]

    def results(
        self,
        ranges: Iterable[HashedRange],
        readers: Sequence[SnapshotReader],
        recomputed: Recomputed,
        compute: Callable[[], Mapping[int, Sequence[Fingerprint]]],
    ) -> list[HashedResult]:
        """Compares ranges, with all readers at once.

        compute: computes what they should hold, while the target hashes what they do hold.
        """

        def recompute() -> None:
            try:
                recomputed.set_result(compute())
            except BaseException as error:
                recomputed.set_exception(error)  # whoever waits for it ends too
                raise

        pool = WorkerPool(sorted(ranges, key=lambda one: one.waits))

        def work(reader: SnapshotReader) -> list[HashedResult]:
            with pool.at_work():
                return [self.result(one, reader) for one in pool.own_tables()]

        return pool.results([partial(work, reader) for reader in readers], self.throttle, recompute)

    def result(self, one: HashedRange, reader: SnapshotReader) -> HashedResult:
        """Compares a range."""
        began = time.monotonic()
        tally = self._equal_rows(one, reader)
        if tally:
            self.on_rows(one, tally.rows)
        return HashedResult(one, tally, time.monotonic() - began)

    def _equal_rows(self, one: HashedRange, reader: SnapshotReader) -> Tally | None:
        """Gives the tally of a range that is equal.  Where the log may lack rows, they are counted before any is
        hashed."""
        side = one.table.actual_side(reader, one.numbers)
        if not one.table.is_whole and reader.rows(side.query("COUNT(*)"))[0][0] != one.expected.rows:
            return None
        actual = Fingerprint(0, 0, 0)

        def compare(chunk: KeyRange) -> tuple[int, list[Difference]]:
            nonlocal actual
            rows = literals_query(one.table.literals, side.source(between(side.key, *chunk)))
            fingerprint = fingerprint_of(reader.rows(rows)[0])
            actual += fingerprint
            return fingerprint.rows, []

        def boundary(low: KeyValues | None, rows: int) -> KeyValues | None:
            if one.is_cut or one.expected.rows <= _FIRST_ROWS:
                return None
            query = boundary_query(side.key, side.source(between(side.key, low, None)), rows - 1)
            return next(map(unhexed, reader.rows(query)), None)

        walk = RangeWalk(Tally(), boundary, ChunkSize(self.seconds, _FIRST_ROWS), lambda _: None)
        walk.work(compare, self.throttle.wait)
        return walk.finished() if actual == one.expected and actual.is_whole else None


def spans(ranges: Sequence[KeyNumbers], most: int) -> list[KeyNumbers]:
    """Gives at most `most` ranges that together hold these ones, which are in order."""
    size = max(1, -(-len(ranges) // most))
    return [(group[0][0], group[-1][1]) for group in (ranges[i : i + size] for i in range(0, len(ranges), size))]
