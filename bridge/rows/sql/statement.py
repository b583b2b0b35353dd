"""Defines statements that write rows, and how they are rendered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP
from bridge.model import TableName
from bridge.rows.literal_offsets import TEXT, runs
from bridge.rows.sql.load_format import Load
from bridge.rows.types.type_check import CheckedTypes

_SHOWN = 300
_BETWEEN_ROWS = "),("
STATEMENT_BYTES = 512 * 1024
"""Statements are cut at about this many bytes; longer ones are no faster on MariaDB (measured)."""


class Stage(IntEnum):
    """When a statement runs within its transaction."""

    DELETE = 0
    WRITE = 1


class Statement(NamedTuple):
    """One statement.

    sql: in UTF-8, as it is sent; of many rows it is made without a Python object for each.
    expect: how many rows it must match, None when any number is right.  0: it is a query, and a row that it finds has a
        key spelled otherwise than the messages have it.
    is_once: whether only the transaction that moves progress may run it, since it would have another effect the second
        time.
    load: the rows of a LOAD DATA, None for other statements.
    joins: whether it may be sent together with others, in one exchange: any number of rows is right.
    otherwise: the statements that are tried one after the other where this one, and those before, match no row.
    is_part: whether the messages hold only parts of its rows.
    """

    stage: Stage
    table: TableName
    sql: bytes
    expect: int | None = None
    is_once: bool = True
    load: Load | None = None
    is_part: bool = False
    otherwise: tuple[bytes, ...] = ()
    joins: bool = False

    @property
    def beginning(self) -> str:
        """The first characters, for an error message."""
        return self.sql[:_SHOWN].decode(errors="replace")

    @property
    def size(self) -> int:
        """About how many bytes are sent for it."""
        return len(self.sql) + (self.load.body.size if self.load else 0)


class NotWritten(NamedTuple):
    """Why statements were not committed by the process that has their rows.

    fix: what to do about it, "" where there is nothing.
    refused_load: the table that refused a load.  cannot_connect: whether the process cannot reach the target.
    waits: whether another transaction holds their rows, and has for as long as the server waits.
    """

    why: str
    fix: str = ""
    refused_load: TableName | None = None
    cannot_connect: bool = False
    waits: bool = False


class NotWrittenError(Exception):
    """Raised when other processes have not written all that they were to write."""

    def __init__(self, reason: NotWritten) -> None:
        super().__init__(reason)  # it is pickled
        self.reason = reason


WritePart = Callable[[Sequence[Statement]], NotWritten | None]
"""Commits statements in one transaction, and tells why not when it cannot; it may be sent to another process."""


@dataclass(frozen=True)
class Rendering:
    """How statements are rendered.

    scratch_schema: the database of temporary tables.
    safe_mode: whether rows with a unique value that is about to be written are deleted first (for a target that is
        ahead of the log).
    load_bytes: about how many bytes one LOAD DATA sends, where it does what INSERT does; 0: no loads.
    in_order: tables that go by transaction in any case (`rows.grains`).
    loadable: the tables into which the target accepts loads.
    checked_types: the column lists whose types were found to fit.
    by_transaction: the tables that have gone by transaction, and why; rendering adds to it.
    """

    scratch_schema: str
    safe_mode: bool = False
    load_bytes: int = 0
    loadable: frozenset[TableName] = frozenset()
    in_order: frozenset[TableName] = frozenset()
    checked_types: CheckedTypes = field(default_factory=CheckedTypes, compare=False)
    by_transaction: dict[str, str] = field(default_factory=dict, compare=False)


def cut_to_rows(images: pa.Array) -> Iterator[bytes]:
    """Joins images, in order, to the rows of statements: what stands between the first and the last bracket behind
    VALUES; about STATEMENT_BYTES each."""
    for run in runs(images, STATEMENT_BYTES):
        rows = pc.binary_join_element_wise(run, pa.scalar("", TEXT), pa.scalar(_BETWEEN_ROWS, TEXT))
        size = int(np.frombuffer(rows.buffers()[1], np.int64)[len(rows)]) - len(_BETWEEN_ROWS)
        yield rows.buffers()[2][:size].to_pybytes().replace(SEP.encode(), b",")


def cut_to_statements(texts: pa.Array, separator: str, most: int | None = None) -> Iterator[str]:
    """Joins texts, in order, to bodies of statements: about STATEMENT_BYTES each, of at most `most` texts."""
    return (separator.join(run.to_pylist()) for run in runs(texts, STATEMENT_BYTES, most))
