"""Rows that tasks of Spark's executors write (`parallel`), as tasks do it, in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from bridge.mysql.parallel import ExecutorWriter
from bridge.rows.gathering import Amount
from bridge.rows.order_and_slices import RowChanges, RowStatements
from bridge.rows.sql.statement import Rendering, WritePart
from bridge.spark.shards import Shards, check_written


class NearExecutors(NamedTuple):
    """Executors that write everything, however little.  most: how much in one transaction."""

    most: Amount
    trace: Callable[[str], None]

    def write(self, rows: RowChanges) -> bool:
        """Whatever there is."""
        return rows.count > 0

    def write_apart(self, source: RowStatements, rendering: Rendering, write: WritePart, connections: int) -> None:
        """Divides the rows, and writes each shard."""
        assert isinstance(write, ExecutorWriter)
        shards = Shards.apart(source, rendering, self.most, connections)
        check_written(list(shards.write(replace(write, trace=self.trace), shards.divide([source.rows.table]))))
