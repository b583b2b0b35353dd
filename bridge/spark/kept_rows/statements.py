"""Statements as Arrow data, in which they come from tasks to the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final, NamedTuple

import pyarrow as pa

from bridge.model import Table, TableName
from bridge.rows.sql.load_format import Load
from bridge.rows.sql.statement import Stage, Statement
from bridge.spark.event_transfer import exported, opened

_SCHEMA: Final = pa.schema(
    [
        pa.field("schema", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("sql", pa.large_binary(), nullable=False),
        pa.field("expect", pa.int64()),
        pa.field("is_once", pa.bool_(), nullable=False),
        pa.field("is_part", pa.bool_(), nullable=False),
        pa.field("guarded", pa.string(), nullable=False),
        pa.field("load_rows", pa.int64()),
        pa.field("load", pa.large_binary()),
    ]
)


class Rendered(NamedTuple):
    """The statements of one stage of one shard.

    size: about how many bytes they send.  value: the statements (`event_transfer.exported`).
    """

    shard: int
    stage: Stage
    size: int
    value: bytes


def export_statements(shard: int, statements: Iterator[Statement], folder: str | None) -> Iterator[Rendered]:
    """Exports statements, which come stage by stage."""
    for stage, some in groupby(statements, key=lambda one: one.stage):
        batches, size = [], 0
        for statement in some:
            batches.append(_batch(statement))
            size += statement.size

        def write(sink: pa.NativeFile, batches: list[pa.RecordBatch] = batches) -> None:
            with pa.ipc.new_stream(sink, _SCHEMA) as stream:
                for batch in batches:
                    stream.write_batch(batch)

        yield Rendered(shard, stage, size, exported(write, size, folder))


def read_statements(rendered: Rendered, catalog: Mapping[TableName, Table]) -> Iterator[Statement]:
    """Reads exported statements, one after the other."""
    for batch in pa.ipc.open_stream(opened(rendered.value)):
        *columns, bodies = batch.columns
        schema, table, sql, expect, is_once, is_part, guarded, rows = (column[0].as_py() for column in columns)
        name = TableName(schema, table)
        load = None if rows is None else Load(catalog[name], rows, bodies[0].as_buffer())
        yield Statement(rendered.stage, name, sql, expect, is_once, load, is_part, guarded)


def _batch(one: Statement) -> pa.RecordBatch:
    rows, body = (None, None) if one.load is None else (one.load.rows, one.load.body)
    values = (*one.table, one.sql, one.expect, one.is_once, one.is_part, one.guarded, rows)
    arrays = [pa.array([value], field.type) for value, field in zip(values, _SCHEMA, strict=False)]
    return pa.RecordBatch.from_arrays([*arrays, _binary(body)], schema=_SCHEMA)


def _binary(body: pa.Buffer | None) -> pa.Array:
    """Makes an array of one value, without a copy of it."""
    if body is None:
        return pa.nulls(1, pa.large_binary())
    ends = pa.array([0, body.size], pa.int64()).buffers()[1]
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, body])
