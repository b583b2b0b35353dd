"""What runs on executors, without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bridge.model import Column, Table, TableName
from bridge.rows.keys.key_spellings import KnownSpellings
from bridge.rows.sql import render
from bridge.rows.sql.statement import Rendering
from bridge.spark.executor_rows import _KEYED_SCHEMA, _render_partition
from tests.support.upstreams import events_table, row_change


def test_statements_are_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that the driver would load go by INSERT: a text is all that comes back from an executor."""
    monkeypatch.setattr(render, "MIN_BYTES", 0)
    name = TableName("m", "t")
    table = Table(name, {"id": Column("id", "int", None, False, False)}, (("id",),), (("id",),))
    changes = events_table([(0, i, row_change(10, "t", ["id"], ["id"], after=[i])) for i in range(3)])
    keys = [pa.array(["id"] * 3), pa.array(["0", "1", "2"])]
    keyed = pa.Table.from_arrays([*changes.columns, *keys], schema=_KEYED_SCHEMA)
    rendering = Rendering("_bridge", load_bytes=1, loadable=frozenset({name}))
    (rendered,) = _render_partition({name: table}, rendering, KnownSpellings({}))(keyed.to_batches())
    (sql,) = rendered.column("sql").to_pylist()
    assert sql.startswith("INSERT INTO `m`.`t` (`id`) VALUES (0),(1),(2)")
