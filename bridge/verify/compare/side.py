"""One side of a comparison: the SQL that reads a table of one server; and tables with neither a key nor an index,
of which each side is a stream of hashes, counted in buckets.

Such a table has no ranges to ask for, so the server scans it once.  It scans only as fast as the hashes are read.  They
are read in pieces that take some time each, with a wait between two pieces while the server is busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from bridge.mysql.table_definition import ColumnInfo
from bridge.verify.compare.checksums import readable, row_hash, streamed_hash, token
from bridge.verify.compare.key_sql import KeyPart, KeyValues

if TYPE_CHECKING:
    from bridge.verify.snapshot_reader import SnapshotReader  # brings the driver, which executors do without


@dataclass(frozen=True)
class Side:
    """A table as one server has it.

    rows: FROM clause; condition: which of its rows take part; alias: of the table that holds the columns, "" for none.
    others: FROM clauses of further tables whose rows count as well.
    absent: numbers of columns that this side does not have; True where NULL would be their value.
    """

    reader: SnapshotReader
    rows: str
    columns: tuple[ColumnInfo, ...]
    key: tuple[KeyPart, ...]
    condition: str = "1=1"
    alias: str = ""
    absent: Mapping[int, bool] = field(default_factory=dict)
    others: tuple[str, ...] = ()

    def source(self, more: str = "1=1") -> str:
        """FROM and WHERE."""
        return f"FROM {self.rows} WHERE ({self.condition}) AND ({more})"

    def sources(self, more: str = "1=1") -> list[str]:
        """FROM and WHERE of each table."""
        return [self.source(more), *(replace(self, rows=rows).source(more) for rows in self.others)]

    def query(self, values: str, more: str = "1=1") -> str:
        """The query of these expressions over all rows."""
        return " UNION ALL ".join(f"SELECT {values} {source}" for source in self.sources(more))

    def tokens(self) -> list[str]:
        """Tells how each value is written in its row's text; U where this side has no such column."""
        return [self._token(i, column) for i, column in enumerate(self.columns)]

    def fetch(self, more: str) -> list[KeyValues]:
        """Gives the rows under a further condition."""
        values = [self._readable(i, column) for i, column in enumerate(self.columns)]
        return [unhexed(row) for row in self.reader.rows(self.query(",".join(values), more))]

    def _token(self, i: int, column: ColumnInfo) -> str:
        if i in self.absent:
            return "'N'" if self.absent[i] else "'U'"
        return token(column, self.alias)

    def _readable(self, i: int, column: ColumnInfo) -> str:
        if i in self.absent:
            return "NULL" if self.absent[i] else "HEX('no such column')"
        return readable(column, self.alias)


def unhexed(values: Sequence[object]) -> KeyValues:
    """Turns the hex that `checksums.readable` gives back into values."""
    return tuple(None if value is None else bytes.fromhex(str(value)) for value in values)


BUCKETS: Final = 4_096
_NO_HASH: Final = BUCKETS
"""The bucket of rows whose text was too long to be hashed."""


class Buckets:
    """The count, XOR and sum (modulo 2^64) of the hashes of each bucket."""

    def __init__(self) -> None:
        self.rows = 0
        self._counts = np.zeros(BUCKETS + 1, np.int64)
        self._xors = np.zeros(BUCKETS, np.uint64)
        self._sums = np.zeros(BUCKETS, np.uint64)

    def add(self, hashes: list[bytes | None]) -> None:
        """Counts rows by their hashes of 8 bytes each."""
        self.rows += len(hashes)
        present = [one for one in hashes if one is not None]
        self._counts[_NO_HASH] += len(hashes) - len(present)
        if not present:
            return
        numbers = np.sort(np.frombuffer(b"".join(present), ">u8").astype(np.uint64))
        buckets = (numbers // np.uint64(1 << 52)).astype(np.int64)
        starts = np.flatnonzero(np.diff(buckets, prepend=-1))
        touched = buckets[starts]
        self._counts[:BUCKETS] += np.bincount(buckets, minlength=BUCKETS)
        self._xors[touched] ^= np.bitwise_xor.reduceat(numbers, starts)
        self._sums[touched] += np.add.reduceat(numbers, starts)

    def differing(self, other: Buckets) -> list[int]:
        """Gives the buckets that are not equal, and the bucket of rows without a hash where there are such rows."""
        unlike = (
            (self._counts[:BUCKETS] != other._counts[:BUCKETS])
            | (self._xors != other._xors)
            | (self._sums != other._sums)
        )
        differing: npt.NDArray[np.intp] = np.flatnonzero(unlike)
        unhashed = self._counts[_NO_HASH] or other._counts[_NO_HASH]
        return [*map(int, differing), *([_NO_HASH] if unhashed else [])]


def stream_buckets(side: Side, seconds: float, pause: Callable[[int], None]) -> Buckets:
    """Reads all rows of one side into buckets.  pause: is called before each piece of about `seconds`, with the number
    of rows so far, and may wait."""
    buckets = Buckets()
    pause(0)
    for piece in _pieces(side.reader.stream(side.query(streamed_hash(side.tokens()))), seconds):
        buckets.add([row[0] for row in piece])
        pause(buckets.rows)
    return buckets


def _pieces(blocks: Iterator[list[tuple[Any, ...]]], seconds: float) -> Iterator[list[tuple[Any, ...]]]:
    piece: list[tuple[Any, ...]] = []
    began = time.monotonic()
    for block in blocks:
        piece += block
        if time.monotonic() - began >= seconds:
            yield piece
            piece, began = [], time.monotonic()
    if piece:
        yield piece


def in_bucket(side: Side, buckets: list[int]) -> str:
    """Writes the condition for rows of these buckets."""
    numbers = ",".join(str(bucket) for bucket in buckets if bucket != _NO_HASH)
    conditions = [f"{row_hash(side.tokens())} DIV {1 << 52} IN ({numbers})"] if numbers else []
    if _NO_HASH in buckets:
        conditions.append(f"{row_hash(side.tokens())} IS NULL")
    return " OR ".join(conditions)
