"""Rows that tasks of Spark's executors write (`parallel`), as tasks do it, in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from bridge.model import Table, TableName
from bridge.mysql.parallel.executor_writer import ExecutorWriter
from bridge.rows.amount import Amount
from bridge.rows.order_and_slices import RowChanges
from bridge.rows.sql.statement import NotWrittenError, Rendering, WritePart
from bridge.spark.kept_rows.shards import Shards


class NearExecutors(NamedTuple):
    """Executors that write everything, however little.  most: how much in one transaction."""

    most: Amount
    trace: Callable[[str], None]

    def write(self, rows: RowChanges) -> bool:
        """Whatever there is."""
        return rows.count > 0

    def write_apart(
        self,
        rows: RowChanges,
        catalog: Mapping[TableName, Table],
        rendering: Rendering,
        write: WritePart,
        connections: int,
    ) -> None:
        """Divides the rows, and writes each shard."""
        assert isinstance(write, ExecutorWriter)
        count = connections * -(-rows.amount.pieces(self.most) // connections)
        shards = Shards(catalog, rendering, count, None, is_apart=True)
        failed = list(shards.write(replace(write, trace=self.trace), shards.divide([rows.table])))
        if failed:
            raise NotWrittenError(min(failed, key=lambda one: one.waits))
