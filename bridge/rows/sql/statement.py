"""Statements that write rows, and how they are to be rendered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import NamedTuple

import pyarrow as pa

from bridge.model import TableName
from bridge.rows.arrow_images import groups
from bridge.rows.keys.key_spellings import SameKeys, asks_nobody
from bridge.rows.sql.load_format import Load
from bridge.rows.types.type_check import CheckedTypes

STATEMENT_BYTES = 512 * 1024
"""Statements are cut at about this many characters: beyond it MariaDB gains nothing (measured)."""


class Stage(IntEnum):
    """When a statement runs within its transaction."""

    KEEP = 0
    DELETE = 1
    WRITE = 2
    RESTORE = 3


class Sharing(Enum):
    """How a statement may be run beside others of its transaction, by several connections."""

    ANY = auto()
    """By any connection, before or after the others: it touches keys that no other touches."""
    TABLE = auto()
    """By one connection with the others of its table, in their order."""
    ONCE = auto()
    """Only in the transaction that moves progress: run again, it would do something else."""


class Statement(NamedTuple):
    """One statement; `expect` is the number of rows it must match, None when any number is right; `is_part`: they are
    rows of which the messages hold a part; `load`: the rows of a LOAD DATA."""

    stage: Stage
    table: TableName
    sql: str
    expect: int | None = None
    sharing: Sharing = Sharing.ONCE
    load: Load | None = None
    is_part: bool = False

    @property
    def size(self) -> int:
        """About how many bytes are sent."""
        return len(self.sql) + (self.load.body.size if self.load else 0)


@dataclass(frozen=True)
class Rendering:
    """How to render: `scratch_schema` holds temporary tables, `safe_mode` deletes rows that hold any unique value
    about to be written first (for a target that is ahead of the log); where LOAD DATA does the same as INSERT, rows
    are sent by it, about `load_bytes` at a time (0: never).

    piece: of several that are rendered apart and run by one session; `same_keys` asks the server.
    loadable: the tables into which the target takes loads.
    checked_types: what was found to fit, kept by who renders."""

    scratch_schema: str
    safe_mode: bool = False
    load_bytes: int = 0
    piece: int = 0
    same_keys: SameKeys = asks_nobody
    loadable: frozenset[TableName] = frozenset()
    checked_types: CheckedTypes = field(default_factory=CheckedTypes, compare=False)


def cut_to_statements(texts: pa.Array, separator: str, most: int | None = None) -> Iterator[str]:
    """Joins texts, in order, to bodies of statements: about STATEMENT_BYTES each, of at most `most` texts."""
    return groups(texts, separator, STATEMENT_BYTES, most)
