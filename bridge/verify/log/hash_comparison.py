"""Compares tables by the hashes of their rows' literals, so that only ranges that differ have to be loaded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from bridge.verify.compare.checksums import Fingerprint, fingerprint_of
from bridge.verify.compare.worker_pool import WorkerPool
from bridge.verify.load_throttle import Throttle
from bridge.verify.log.expected_tables import KeyNumbers
from bridge.verify.log.literal_hashes import literals_query
from bridge.verify.log.log_tables import LoggedTable
from bridge.verify.snapshot_reader import SnapshotReader

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


class HashedResult(NamedTuple):
    """What was found of a range.  rows: of one that is equal, None for one that may differ."""

    range: HashedRange
    rows: int | None
    seconds: float


@dataclass(frozen=True)
class HashComparison:
    """Compares ranges on the target, each by one query.

    on_rows: is called with a range and how many rows of it were found equal.
    """

    throttle: Throttle
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

        pool = WorkerPool(sorted(ranges, key=lambda one: not one.table.is_whole))

        def work(reader: SnapshotReader) -> list[HashedResult]:
            with pool.at_work():
                return [self.result(one, reader) for one in pool.own_tables()]

        return pool.results([partial(work, reader) for reader in readers], self.throttle, recompute)

    def result(self, one: HashedRange, reader: SnapshotReader) -> HashedResult:
        """Compares a range.  Where the log may lack rows, they are counted before any is hashed."""
        began = time.monotonic()
        self.throttle.wait()
        side, rows = one.table.actual_side(reader, [one.numbers]), None
        if one.table.is_whole or reader.rows(side.query("COUNT(*)"))[0][0] == one.expected.rows:
            actual = fingerprint_of(reader.rows(literals_query(one.table.literals, side.source()))[0])
            if actual == one.expected and actual.is_whole:
                rows = actual.rows
                self.on_rows(one, rows)
        return HashedResult(one, rows, time.monotonic() - began)
