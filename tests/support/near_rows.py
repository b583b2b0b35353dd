"""Rows that tasks of Spark's executors write (`parallel`), as tasks do it, in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from bridge.model import Table, TableName
from bridge.mysql.parallel.executor_writer import ExecutorWriter
from bridge.rows.amount import Amount
from bridge.rows.keys.key_spellings import KnownSpellings
from bridge.rows.order_and_slices import DriverRows, WindowRows
from bridge.rows.sql.statement import NotWrittenError, Rendering, WritePart
from bridge.spark.kept_rows.shards import Shards


class _Rows(NamedTuple):
    """A chunk in memory."""

    table: pa.Table

    def rows(self) -> pa.Table:
        """All of it."""
        return self.table


class NearRows(NamedTuple):
    """Rows that were given to tasks, which are done one after the other.  most: for one transaction."""

    table: pa.Table
    most: Amount
    trace: Callable[[str], None]

    def written_apart(
        self, catalog: Mapping[TableName, Table], rendering: Rendering, write: WritePart, connections: int
    ) -> None:
        """Divides the rows, and writes each shard."""
        assert isinstance(write, ExecutorWriter)
        count = connections * -(-Amount.of(self.table).pieces(self.most) // connections)
        shards = Shards.of(catalog, rendering, KnownSpellings({}), count, None, is_apart=True)
        divided = shards.divide(iter([_Rows(self.table)]))
        failed = list(shards.write(replace(write, trace=self.trace), divided))
        if failed:
            raise NotWrittenError(min(failed, key=lambda one: one.waits))


class NearExecutors(NamedTuple):
    """Executors that write everything, however little.  most: how much in one transaction."""

    most: Amount
    trace: Callable[[str], None]

    def write(self, rows: WindowRows) -> bool:
        """Whatever there is."""
        return rows.count > 0

    def given(self, rows: WindowRows) -> NearRows:
        """Takes them."""
        assert isinstance(rows, DriverRows)
        return NearRows(rows.table, self.most, self.trace)
