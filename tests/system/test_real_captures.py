"""Genuine messages of real senders (tests/golden/real-senders.tar.xz): what the target holds of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import bridge
from tests.support.pipelines import sql

MYSQL = ("--set", "ddl.source=mysql-8", "--timezone", "UTC")

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.parametrize("server", ["target", "mysql_target"])
def test_a_connector_that_restarts_again_and_again(
    real_senders: Path, server: str, request: pytest.FixtureRequest
) -> None:
    """Debezium sends rows again after each of its restarts: every table ends with the upstream's rows."""
    target = request.getfixturevalue(server)
    folder = real_senders / "debezium-restarts"
    ended = bridge("replay", "--input", str(folder), "--protocol", "debezium", "--target", target, *MYSQL)
    assert ended.code == 0, ended.err
    state = json.loads((folder / "bank.expected.json").read_text(encoding="utf-8"))
    for name, table in state["tables"].items():
        columns = ", ".join(f"CAST({column['expr']} AS CHAR)" for column in table["columns"])
        assert as_text(sql(target, f"SELECT {columns} FROM {name}")) == as_text(table["rows"]), name


def as_text(rows: Any) -> list[tuple[str | None, ...]]:
    """Rows, sorted."""
    return sorted((tuple(None if value is None else str(value) for value in row) for row in rows), key=repr)
