"""The values that all parts of the bridge share: tables, positions, schema changes, steps of progress.

Nothing here uses Spark, a server or its driver.

Quotes names for SQL.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain, count
from types import MappingProxyType
from typing import Final, NamedTuple

from bridge.events import Position, RowChange

PartitionId = tuple[str, int]
"""Topic and partition."""
NO_ENDS: Final[Mapping[PartitionId, int]] = MappingProxyType({})
"""End offsets of no partitions."""

UNUSED: Final = -1
"""In the place of a boundary (TSO): the sender does not write to the partition."""
_NAMELESS_MEMBER: Final = re.compile(r"set\((?:.*,)?''[,)]", re.DOTALL)
"""A SET with a member without letters, which every server loses where it copies a column, or by VALUES() (tried on
MariaDB, MySQL and TiDB)."""
_EIGHT_BYTES: Final = re.compile(r"bit\((?:5[7-9]|6[0-4])\)")
"""TiDB's VALUES() takes the eight bytes of a BIT for an integer whose lowest byte comes first: ON DUPLICATE KEY UPDATE
stores 39 as 2810246167479189504, or refuses it (tried on v8.5)."""
WHOLE_MESSAGE: Final = -1
"""The index of a quarantine entry that is a whole message."""


class TableName(NamedTuple):
    """A table as the messages name it."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def folded(self) -> TableName:
        """The name for comparison: the case of letters counts for nothing, as in TiDB."""
        return TableName(self.schema.lower(), self.table.lower())


@dataclass(frozen=True)
class Column:
    """A column of the target.  `charset` and `collation` are None for types without one."""

    name: str
    type: str
    charset: str | None
    generated: bool
    nullable: bool = True
    collation: str | None = None

    @property
    def has_nameless_member(self) -> bool:
        """Whether it is a SET with a member without letters, which only the number of a value tells."""
        return _NAMELESS_MEMBER.match(self.type) is not None


@dataclass(frozen=True)
class Table:
    """A table of the target.

    name: as messages, or those who ask for it, call it.
    stored_name: as the target calls it, None when that is the same.
    columns: the columns by lower-case name, in the order of the table.
    keys: the candidate keys as lower-case column names: the primary key, then unique keys of NOT NULL columns.
    uniques: every unique key (the primary key included), as lower-case column names; a key on an expression
        or a hidden column holds ``""`` for that part.
    prefixes: of unique keys that hold the beginnings of columns only, how long each part is, None for a whole column.
    counts: whether it has an AUTO_INCREMENT column.
    keeps_gone: whether rows may stay in it that are gone upstream.
    primary: the primary key, which is then the first of `keys`; () when there is none.
    is_tidb: whether its server is TiDB.
    guards_spelling: whether no row may be overwritten by one whose key is spelled otherwise.
    """

    name: TableName
    columns: Mapping[str, Column]
    keys: tuple[tuple[str, ...], ...] = ()
    uniques: tuple[tuple[str, ...], ...] = field(default=())
    prefixes: Mapping[tuple[str, ...], tuple[int | None, ...]] = field(default_factory=dict)
    counts: bool = False
    stored_name: TableName | None = None
    keeps_gone: bool = False
    is_tidb: bool = False
    primary: tuple[str, ...] = ()
    guards_spelling: bool = False

    @property
    def stored(self) -> TableName:
        """What the target calls it."""
        return self.stored_name or self.name

    def called(self, name: TableName) -> Table:
        """Gives the table under another name by which the target finds it."""
        return self if name == self.name else replace(self, name=name, stored_name=self.stored)

    @cached_property
    def writes_anew(self) -> bool:
        """Whether rows have to be deleted before they are written, as ON DUPLICATE KEY UPDATE would change a value."""
        return any(
            column.has_nameless_member or (self.is_tidb and _EIGHT_BYTES.match(column.type))
            for column in self.columns.values()
        )

    @cached_property
    def copies_zeros(self) -> bool:
        """Whether it has an ENUM whose error value must be copied from another column."""
        return self.is_tidb and any(column.type.startswith("enum(") for column in self.columns.values())

    @cached_property
    def written_names(self) -> frozenset[str]:
        """The names of the columns that are not generated."""
        return frozenset(name for name, column in self.columns.items() if not column.generated)


class PartitionStart(NamedTuple):
    """Where a restart begins in one partition.

    offset: the first offset to read; everything before it is in the target or below the start of the pipeline.
    boundary: the last boundary before that offset (TSO), 0 when there was none, UNUSED when none is waited for.
    read: the offset after the last one read so far; a change at or after it is late if it is below applied_ts.
    floor: changes at or after `offset` with a TSO below it are in the target already.  None when that is applied_ts.  A
        number means the order of the partitions, in which applied_ts is only a counter.
    begin: where the topic began (TSO), 0 if with the pipeline; everything below it counts as in the target.
    place, place_ts: the place (`RowChange.place`) and the time (TSO) of the last row in the target that named one, ""
    and 0 where none has.  In the order of transactions every partition has the place of the last transaction in the
    target, and `read` is the offset before which all its rows and schema changes of no transaction are in the target.
    seen: in the order of the partitions, the highest time (TSO) of what lies before `offset`, as far as it is known.
    rows, again: how many rows of that place are in the target, and how many of them the producer has still to send
        again, as it has begun to send again what is before them.
    """

    offset: int
    boundary: int
    read: int
    floor: int | None = None
    begin: int = 0
    place: str = ""
    place_ts: int = 0
    seen: int = 0
    rows: int = 0
    again: int = 0


Positions = Mapping[PartitionId, PartitionStart]


def goes_by_partition(positions: Positions) -> bool:
    """Tells whether changes are applied in the order of the partitions instead of commit ts."""
    return any(start.floor is not None for start in positions.values())


def goes_by_transactions(positions: Positions) -> bool:
    """Tells whether changes are applied in the order of Debezium's transactions."""
    return any(start.floor is None and start.place for start in positions.values())


def topic_begins(positions: Positions) -> dict[str, int]:
    """Returns where each topic began (TSO), 0 for those that began with the pipeline."""
    begins: dict[str, int] = {}
    for (topic, _), start in positions.items():
        begins[topic] = max(begins.get(topic, 0), start.begin)
    return begins


@dataclass(frozen=True)
class SchemaChange:
    """One schema change of the upstream; its copies in several partitions count as one.

    position: topic/partition/offset of its first copy.
    place: where it is in the upstream's log, as messages without a commit ts tell it; "" when they do not.
    doubt: why only the operator can tell whether it is to run; "" when nothing speaks against it.
    """

    commit_ts: int
    schema: str
    table: str
    text: str
    position: str
    place: str = ""
    doubt: str = ""

    @property
    def read_at(self) -> Position:
        """Where its first copy was read."""
        topic, partition, offset = self.position.rsplit("/", 2)
        return Position(topic, int(partition), int(offset))

    @property
    def statement_hash(self) -> str:
        """Distinguishes schema changes of the same commit_ts."""
        return hashlib.sha1(
            f"{self.schema}\0{self.text}".encode(errors="surrogatepass"), usedforsecurity=False
        ).hexdigest()

    @property
    def id(self) -> str:
        """What the operator calls it."""
        return f"{self.commit_ts}-{self.statement_hash[:8]}"


@dataclass(frozen=True)
class Entry:
    """A message, or one of its row changes, that has to be quarantined.

    commit_ts: of a row change, its own; of a message, whose own cannot be read, the boundary before it.
    key, value: those of the message in base64, None when they are null; both None for a row change.
    change: the row change, None for a message.
    schemas: the schemas of a message in Avro, as JSON; None where it has none.
    """

    position: Position
    code: str
    reason: str
    commit_ts: int = 0
    protocol: str = ""
    key: str | None = None
    value: str | None = None
    change: RowChange | None = None
    schemas: str | None = None

    @property
    def index(self) -> int:
        """The index of the row change in its message, WHOLE_MESSAGE for a message."""
        return self.change.index if self.change else WHOLE_MESSAGE


@dataclass(frozen=True)
class Advance:
    """What one target transaction changes in the progress row, and quarantines.

    bounds: new_ts must not exceed the first, nor each of them the next: the end of the segment, then the resolved ts.
    """

    old_ts: int
    new_ts: int
    positions: Positions
    pending: tuple[SchemaChange, ...] = ()
    quarantined: tuple[Entry, ...] = ()
    bounds: tuple[int, ...] = ()

    def check(self) -> None:
        """Raises ProgressOrderError when progress would go back, or beyond what is complete."""
        moments = (self.old_ts, self.new_ts, *self.bounds)
        if list(moments) != sorted(moments):
            raise ProgressOrderError(
                f"progress had to move from commit ts {self.old_ts} to {self.new_ts}, but segment and resolved ts"
                f" end at {', '.join(map(str, self.bounds))}; nothing was written"
            )


class ProgressOrderError(Exception):
    """Progress would go back, or beyond what is complete: a bug of the bridge, which no retry cures."""


@lru_cache(maxsize=100_000)
def quote_name(*parts: str) -> str:
    """Returns the identifier with each part in backticks, joined by dots."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def free_name(name: str, others: Collection[str]) -> str:
    """Returns a name for a column beside others: this one, with a number if another has it, in whatever case."""
    in_use = {other.lower() for other in others}
    candidates = chain([name], (f"{name} {number}" for number in count(2)))
    return next(candidate for candidate in candidates if candidate.lower() not in in_use)


def has_long_characters(name: str) -> bool:
    """Tells whether a name has characters of four bytes, such as emojis, which MySQL and MariaDB take in no name."""
    return any(char > "\uffff" for char in name)


class RowCounts(NamedTuple):
    """How many row changes of one table there are."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0

    def plus(self, addends: Iterable[int], sign: int = 1) -> RowCounts:
        """Adds numbers, or takes them off."""
        return RowCounts(*(count + sign * addend for count, addend in zip(self, addends, strict=True)))
