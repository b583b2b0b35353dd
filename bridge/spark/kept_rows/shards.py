"""Divides the row changes of a window into shards by the keys of their rows, and renders each: what tasks do; the
statements come to the driver as Arrow data.

An error of the bridge comes to the driver as it is, in the place of a shard: as the error of a Spark task it would
arrive without its table and code.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import RDD

from bridge.errors import BridgeError
from bridge.events import EVENT_SCHEMA
from bridge.model import Table, TableName
from bridge.rows.amount import Amount
from bridge.rows.net_changes import fold
from bridge.rows.order_and_slices import RowStatements, in_order, in_stages
from bridge.rows.sql.load_format import Load
from bridge.rows.sql.render import render
from bridge.rows.sql.statement import NotWritten, NotWrittenError, Rendering, Stage, Statement, WritePart
from bridge.spark.event_transfer import export_events, exported, opened, read_events
from bridge.spark.kept_rows.row_keys import KeyedRows, divided, keyed, shards_of

_ERROR: Final = b"E"
"""The first byte of a pickled error in the place of events."""
Shard = tuple[int, bytes]
"""The number of a shard, and some of its events, or an error."""
Spread = Callable[[Callable[[Iterator[pa.Table]], Iterable[Shard]]], RDD[Shard]]
"""Has tasks call the function with chunks of row changes, in order each, some for each task."""
_STATEMENTS: Final = pa.schema([("statement", pa.large_binary()), ("body", pa.large_binary())])
"""A pickled statement with the number of the rows that it loads, and the body of its load, without a copy of it."""


class Rendered(NamedTuple):
    """The statements of one stage of one shard.

    size: about how many bytes they send.  value: the statements (`event_transfer.exported`).
    """

    shard: int
    stage: Stage
    size: int
    value: bytes


def check_written(failed: Collection[NotWritten]) -> None:
    """Raises NotWrittenError with one of the reasons why shards were not written, if there are any."""
    if failed:
        raise NotWrittenError(min(failed, key=lambda one: one.waits))


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

    @classmethod
    def apart(
        cls, source: RowStatements, rendering: Rendering, most: Amount, connections: int, folder: str | None = None
    ) -> Shards:
        """Makes shards that are transactions of about so much each, equally many for each connection."""
        count = connections * -(-source.rows.amount.pieces(most) // connections)
        return cls(dict(source.catalog), rendering, count, folder, is_apart=True)

    def rendered(self, spread: Spread) -> RDD[Rendered | BridgeError]:
        """Has tasks divide and render the row changes: one Spark partition for each shard."""
        return spread(self.divide).partitionBy(self.count, int).mapPartitionsWithIndex(self._render)

    def divide(self, chunks: Iterable[pa.Table]) -> Iterator[Shard]:
        """Divides chunks of row changes in order.  An error comes with every shard, so that none is written."""
        for chunk in chunks:
            try:
                tables = list(keyed(self.catalog, chunk, self.rendering.checked_types))
                self._refuse_torn(tables)
            except (BridgeError, NotWrittenError) as error:
                yield from ((number, _ERROR + pickle.dumps(error)) for number in range(self.count))
                return
            changes = pa.concat_tables([EVENT_SCHEMA.empty_table(), *(rows.changes for rows in tables)])
            numbers = [shards_of(rows.table, rows.keys, self.count) for rows in tables]
            for number, shard in divided(changes, np.concatenate([np.empty(0, np.int64), *numbers])):
                yield number, export_events(shard, self.folder)

    def _refuse_torn(self, tables: Iterable[KeyedRows]) -> None:
        """Raises NotWrittenError for halves of changes that only one transaction can put together."""
        torn = next((rows.table.name for rows in tables if rows.is_torn), None) if self.is_apart else None
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

    def written(self, spread: Spread, write: WritePart, connections: int) -> None:
        """Has tasks, as many as connections, divide and write the row changes: one transaction for each shard.  Raises
        NotWrittenError when some are not written."""
        shards = spread(self.divide).partitionBy(min(connections, self.count), int)
        check_written(shards.mapPartitions(partial(self.write, write)).collect())

    def write(self, write: WritePart, shards: Iterable[Shard]) -> Iterator[NotWritten]:
        """Writes shards, each in one transaction; gives why one is not written, and ends then."""
        for number, shard in groupby(sorted(shards, key=itemgetter(0)), key=itemgetter(0)):
            try:
                statements = list(self._statements(number, shard))
            except BridgeError as error:
                yield NotWritten(error.what, error.fix)
                return
            except NotWrittenError as error:
                yield error.reason
                return
            once = any(one.is_once for one in statements)
            failure = NotWritten("rows may be written only once") if once else write(statements)
            if failure is not None:
                yield failure
                return


# --- statements as Arrow data, in which they come from tasks to the driver


def export_statements(shard: int, statements: Iterator[Statement], folder: str | None) -> Iterator[Rendered]:
    """Exports statements, which come stage by stage."""
    for stage, of_stage in groupby(statements, key=lambda one: one.stage):
        batches, size = [], 0
        for statement in of_stage:
            batches.append(_batch(statement))
            size += statement.size

        def write(sink: pa.NativeFile, batches: list[pa.RecordBatch] = batches) -> None:
            with pa.ipc.new_stream(sink, _STATEMENTS) as stream:
                for batch in batches:
                    stream.write_batch(batch)

        yield Rendered(shard, stage, size, exported(write, size, folder))


def read_statements(rendered: Rendered, catalog: Mapping[TableName, Table]) -> Iterator[Statement]:
    """Reads exported statements, one after the other."""
    for batch in pa.ipc.open_stream(opened(rendered.value)):
        pickled, body = (column[0] for column in batch.columns)
        statement, rows = pickle.loads(pickled.as_buffer())  # of `_batch`
        load = None if rows is None else Load(catalog[statement.table], rows, body.as_buffer())
        yield statement._replace(load=load)


def _batch(one: Statement) -> pa.RecordBatch:
    rows, body = (None, None) if one.load is None else (one.load.rows, one.load.body)
    pickled = pa.array([pickle.dumps((one._replace(load=None), rows))], pa.large_binary())
    return pa.RecordBatch.from_arrays([pickled, _binary(body)], schema=_STATEMENTS)


def _binary(body: pa.Buffer | None) -> pa.Array:
    """Makes an array of one value, without a copy of it."""
    if body is None:
        return pa.nulls(1, pa.large_binary())
    ends = pa.array([0, body.size], pa.int64()).buffers()[1]
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, body])
