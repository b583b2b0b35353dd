"""Divides the row changes of a window into shards by the keys of their rows, and renders each: what tasks do.

An error of the bridge comes to the driver as it is, in the place of a shard: as the error of a Spark task it would
arrive without its table and code.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark import RDD

from bridge.errors import BridgeError
from bridge.events import EVENT_SCHEMA
from bridge.model import Table, TableName
from bridge.rows.net_changes import fold
from bridge.rows.order_and_slices import in_order, in_stages
from bridge.rows.sql.render import render
from bridge.rows.sql.statement import NotWritten, NotWrittenError, Rendering, Statement, WritePart
from bridge.spark.event_transfer import export_events, read_events
from bridge.spark.kept_rows.row_keys import KeyedRows, divided, keyed, shards_of
from bridge.spark.kept_rows.statements import Rendered, export_statements

_ERROR: Final = b"E"
"""The first byte of a pickled error in the place of events."""
Shard = tuple[int, bytes]
"""The number of a shard, and some of its events, or an error."""
Spread = Callable[[Callable[[Iterator[pa.Table]], Iterable[Shard]]], RDD[Shard]]
"""Has tasks call the function with chunks of row changes, in order each, some for each task."""


@dataclass(frozen=True)
class Shards:
    """How a window is divided and rendered.

    folder: where tasks leave files; None where they may not.
    is_apart: whether each shard is a transaction of its own.
    """

    catalog: Mapping[TableName, Table]
    rendering: Rendering
    count: int
    folder: str | None
    is_apart: bool = False

    def rendered(self, spread: Spread) -> RDD[Rendered | BridgeError]:
        """Has tasks divide and render the row changes: one Spark partition for each shard."""
        return spread(self.divide).partitionBy(self.count, int).mapPartitionsWithIndex(self._render)

    def divide(self, chunks: Iterable[pa.Table]) -> Iterator[Shard]:
        """Divides chunks of row changes in order.  An error comes with every shard, so that none is written."""
        for chunk in chunks:
            try:
                found = list(keyed(self.catalog, chunk, self.rendering.checked_types))
                self._refuse_torn(found)
            except (BridgeError, NotWrittenError) as error:
                yield from ((number, _ERROR + pickle.dumps(error)) for number in range(self.count))
                return
            rows = pa.concat_tables([EVENT_SCHEMA.empty_table(), *(some.changes for some in found)])
            numbers = [shards_of(some.table, some.keys, self.count) for some in found]
            for number, some in divided(rows, np.concatenate([np.empty(0, np.int64), *numbers])):
                yield number, export_events(some, self.folder)

    def _refuse_torn(self, some: Iterable[KeyedRows]) -> None:
        """Raises NotWrittenError for halves of changes that only one transaction can put together."""
        torn = next((rows.table.name for rows in some if rows.is_torn), None) if self.is_apart else None
        if torn is not None:
            raise NotWrittenError(NotWritten(f"rows of {torn} move to other keys, and their messages lack columns"))

    def _render(self, number: int, shard: Iterable[Shard]) -> Iterator[Rendered | BridgeError]:
        """Folds and renders one shard."""
        try:
            yield from export_statements(number, self._statements(number, shard), self.folder)
        except BridgeError as error:
            yield error

    def _statements(self, number: int, shard: Iterable[Shard]) -> Iterator[Statement]:
        """Folds and renders one shard.  One session may run the statements of several, so each gives its scratch tables
        names of its own."""
        values = [value for _, value in shard]
        for value in values:
            if value.startswith(_ERROR):
                raise pickle.loads(value[len(_ERROR) :])  # of `divide`
        changes = in_order(pa.concat_tables([EVENT_SCHEMA.empty_table(), *map(read_events, values)]))
        nets = fold(self.catalog, changes)
        rendering = replace(self.rendering, piece=number)
        return in_stages(render(net, rendering) for net in nets)

    def written(self, spread: Spread, write: WritePart, connections: int) -> list[NotWritten]:
        """Has tasks, as many as connections, divide and write the row changes: one transaction for each shard.  Returns
        why shards were not written."""
        shards = spread(self.divide).partitionBy(min(connections, self.count), int)
        return shards.mapPartitions(partial(self.write, write)).collect()

    def write(self, write: WritePart, shards: Iterable[Shard]) -> Iterator[NotWritten]:
        """Writes shards, each in one transaction; gives why one is not written, and ends then."""
        for number, some in groupby(sorted(shards, key=itemgetter(0)), key=itemgetter(0)):
            try:
                statements = list(self._statements(number, some))
            except BridgeError as error:
                yield NotWritten(error.what, error.fix)
                return
            except NotWrittenError as error:
                yield error.reason
                return
            once = any(one.is_once for one in statements)
            found = NotWritten("rows may be written only once") if once else write(statements)
            if found is not None:
                yield found
                return
