"""Shards that are merged, by the command: replayed, verified, inspected, checked."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bridge.config import Settings
from bridge.errors import ApplyError
from bridge.protocols.ruled_rows import ruled
from tests.support.captures import write_lines
from tests.support.command import bridge
from tests.support.kept import executors_of, kept_batch
from tests.support.pipelines import opened, sql
from tests.support.upstreams import boundary, in_one_partition, row_change
from tests.support.verify_servers import execute

pytestmark = pytest.mark.usefixtures("spark")

ROUTE = ("--route", "s?.t => s.t")
ADD = "ALTER TABLE t ADD COLUMN a INT DEFAULT 5"


@pytest.fixture(autouse=True)
def _own_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def message(kind: str, shard: str, **more: Any) -> dict[str, Any]:
    return {
        "id": 0, "database": shard, "table": "t", "pkNames": None, "isDdl": False, "type": kind, "es": 1, "ts": 2,
        "sql": "", "sqlType": None, "mysqlType": None, "data": None, "old": None, **more,
    }  # fmt: skip


def row(ts: int, shard: str, old: dict[str, str] | None = None, **columns: str) -> dict[str, Any]:
    return message(
        "INSERT" if old is None else "UPDATE", shard, pkNames=["id"], sqlType=dict.fromkeys(columns, 4),
        mysqlType=dict.fromkeys(columns, "int"), data=[columns], old=None if old is None else [old],
        _tidb={"commitTs": ts},
    )  # fmt: skip


def change(ts: int, shard: str, text: str) -> dict[str, Any]:
    return message("QUERY", shard, isDdl=True, sql=text, _tidb={"commitTs": ts})


def write(folder: Path, *messages: dict[str, Any]) -> str:
    lines = [
        {"partition": 0, "offset": i, "key": None, "value": base64.b64encode(json.dumps(one).encode()).decode()}
        for i, one in enumerate(messages)
    ]
    return str(write_lines(folder / "shards.jsonl", lines))


MADE = "CREATE TABLE t (id INT PRIMARY KEY, v INT)"
HISTORY = (
    change(11, "s1", MADE),
    change(12, "s2", MADE),
    *(row(20, "s1", id=str(2 * i), v="1") for i in range(40)),
    *(row(20, "s2", id=str(2 * i + 1), v="1") for i in range(40)),
    change(30, "s1", ADD),
    row(31, "s1", id="100", v="2", a="7"),
    row(32, "s2", {"v": "1"}, id="1", v="9"),
    change(33, "s2", ADD),
    row(34, "s2", {"v": "1"}, id="3", v="1", a="8"),
)
END = message("TIDB_WATERMARK", "", database="", table="", _tidb={"watermarkTs": 90})


def test_merged_by_the_command(target: str, tmp_path: Path) -> None:
    """Verify finds rows that came since all shards have the new column equal to the messages, and others not covered;
    inspect names both names."""
    execute(target, "CREATE DATABASE s")
    capture = write(tmp_path, *HISTORY, END)
    arguments = ("--protocol", "canal-json", "--input", capture, "--target", target, *ROUTE)
    ended = bridge("replay", *arguments)
    assert ended.code == 0, ended.err
    assert sql(target, "SELECT COUNT(*), SUM(v), SUM(a) FROM s.t") == [(81, 90, 5 * 79 + 7 + 8)]
    ended = bridge("verify", *arguments, "--json")
    [table] = json.loads(ended.out)["tables"]
    assert (ended.code, table["table"], table["rows"], table["not_covered"]) == (0, "s.t", 1, 80)
    shown = bridge("inspect", "--protocol", "canal-json", "--input", capture, *ROUTE, "--json").out
    assert '"goes_to":"s.t"' in shown.replace(" ", "")


def test_on_executors(target: str, spark: SparkSession) -> None:
    """Rows name their shard there as well: the error is the same wherever they are folded."""
    execute(target, "CREATE DATABASE s; CREATE TABLE s.t (id INT PRIMARY KEY)")
    settings = Settings(route=("s?.t => s.t",))
    rows = [row_change(10 + i % 2, "t", ["id"], ["id"], after=[i], schema=f"s{1 + i % 2}") for i in range(40)]
    met = row_change(12, "t", ["id"], ["id"], after=[6], schema="s2")

    def apply(events: pa.Table) -> None:
        rows_of = executors_of(spark).rows_of
        with opened(target, [("cdc", 0)], rows_of=rows_of, ddl=settings.ddl_rules()) as pipeline:
            pipeline.applier.take(kept_batch(spark, ruled(events, settings.row_rules)))
            pipeline.applier.finish()

    with pytest.raises(
        ApplyError, match=r"two shards of s.t have a row with the same key \(id = 6\): s1.t .* and s2.t"
    ):
        apply(in_one_partition([*rows, met, boundary(20)]))
    apply(in_one_partition([*rows, boundary(20)]))
    assert sql(target, "SELECT COUNT(*) FROM s.t") == [(40,)]
