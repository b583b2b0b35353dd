"""One side of a comparison: the SQL that reads a table of one server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from bridge.mysql.table_definition import ColumnInfo
from bridge.verify.compare.checksums import readable, row_hash, token
from bridge.verify.compare.key_sql import KeyPart, KeyValues

if TYPE_CHECKING:
    from bridge.verify.snapshot_reader import SnapshotReader  # brings the driver, which executors do without

_PER_BUCKET: Final = 1 << 52
"""How many hashes have one bucket, of 4,096."""
_NO_HASH: Final = -1
"""The bucket of rows whose text was too long to be hashed."""


@dataclass(frozen=True)
class Side:
    """A table as one server has it.

    rows: FROM clause; condition: which of its rows take part; alias: of the table that holds the columns, "" for none.
    others: FROM clauses of further tables whose rows count as well.
    """

    reader: SnapshotReader
    rows: str
    columns: tuple[ColumnInfo, ...]
    key: tuple[KeyPart, ...]
    condition: str = "1=1"
    alias: str = ""
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
        """Tells how each value is written in its row's text."""
        return [token(column, self.alias) for column in self.columns]

    def fetch(self, more: str) -> list[KeyValues]:
        """Gives the rows under a further condition."""
        values = [readable(column, self.alias) for column in self.columns]
        return [unhexed(row) for row in self.reader.rows(self.query(",".join(values), more))]

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
