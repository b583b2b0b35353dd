"""Compares tables by the hashes of their rows' literals, so that only ranges that differ have to be loaded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from bridge.verify.compare.checksums import Fingerprint, fingerprint_of
from bridge.verify.compare.worker_pool import WorkerPool
from bridge.verify.log.expected_tables import KeyNumbers
from bridge.verify.log.literal_hashes import literals_query
from bridge.verify.log.log_tables import LoggedTable
from bridge.verify.snapshot_reader import SnapshotReader, Throttle

Recomputed = Future[Mapping[int, Sequence[Fingerprint]]]
"""What the ranges of each table should hold, by the tables' numbers, once it has been computed."""


@dataclass
class HashedRange:
    """A range of a table.

    numbers: of the first key column.  place: its number among the table's ranges.
    rows: how many were found equal; None where it may differ.  seconds: how long that took.
    """

    table: LoggedTable
    numbers: KeyNumbers
    place: int
    recomputed: Recomputed
    rows: int | None = None
    seconds: float = 0.0

    @property
    def expected(self) -> Fingerprint:
        """The fingerprint of what it should hold; waits until that has been computed, and raises what prevented it."""
        return self.recomputed.result()[self.table.number][self.place]


@dataclass(frozen=True)
class HashComparison:
    """Compares ranges on the target, each by one query.

    on_rows: is called with a range and how many rows of it were found equal.
    """

    throttle: Throttle
    on_rows: Callable[[HashedRange, int], None]

    def compare(
        self,
        ranges: Iterable[HashedRange],
        readers: Sequence[SnapshotReader],
        recomputed: Recomputed,
        compute: Callable[[], Mapping[int, Sequence[Fingerprint]]],
    ) -> None:
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

        def work(reader: SnapshotReader) -> list[None]:
            with pool.at_work():
                for one in pool.own_tables():
                    self.compare_range(one, reader)
            return []

        pool.results([partial(work, reader) for reader in readers], self.throttle, recompute)

    def compare_range(self, one: HashedRange, reader: SnapshotReader) -> None:
        """Compares a range.  Where the log may lack rows, they are counted before any is hashed."""
        began = time.monotonic()
        self.throttle.wait()
        side = one.table.actual_side(reader, [one.numbers])
        if one.table.is_whole or reader.rows(side.query("COUNT(*)"))[0][0] == one.expected.rows:
            actual = fingerprint_of(reader.rows(literals_query(one.table.literals, side.source()))[0])
            if actual == one.expected and actual.is_whole:
                one.rows = actual.rows
                self.on_rows(one, actual.rows)
        one.seconds = time.monotonic() - began
