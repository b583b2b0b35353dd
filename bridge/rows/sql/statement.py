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
    """How several connections may share the statements of a transaction."""

    ANY = auto()
    """Any connection may run it, before or after the others: it touches keys that no other touches."""
    TABLE = auto()
    """One connection runs it with the others of its table, in their order."""
    ONCE = auto()
    """Only the transaction that moves progress runs it: a second time it would have another effect."""


class Statement(NamedTuple):
    """One statement.

    expect: how many rows it must match, None when any number is right.
    load: the rows of a LOAD DATA, None for other statements.
    is_part: the messages hold only a part of its rows.
    """

    stage: Stage
    table: TableName
    sql: str
    expect: int | None = None
    sharing: Sharing = Sharing.ONCE
    load: Load | None = None
    is_part: bool = False

    @property
    def size(self) -> int:
        """About how many bytes it takes to send."""
        return len(self.sql) + (self.load.body.size if self.load else 0)


@dataclass(frozen=True)
class Rendering:
    """How to render.

    scratch_schema: the database of temporary tables.
    safe_mode: rows that hold any unique value about to be written are deleted first (for a target that is ahead of the
        log).
    load_bytes: about how much is sent by one LOAD DATA, where it does what INSERT does; 0: no loads.
    piece: the number of this piece, where several are rendered apart and run by one session.
    same_keys: asks the server which keys are one to it.
    loadable: the tables into which the target takes loads.
    checked_types: which column lists fit, kept by whoever renders.
    """

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
