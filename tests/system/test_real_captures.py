"""Genuine messages of real senders (tests/golden/real-senders.tar.xz): what the target holds of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from bridge.quoting import quote_name
from tests.support.command import bridge
from tests.support.pipelines import admin, drop_all, sql

STOPPED: Final = (3, 4)
MYSQL = (
    *("--set", "ddl.source=mysql-8", "--timezone", "UTC"),
    *("--set", "debezium.time_precision_mode=adaptive_time_microseconds"),
)

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.soak
@pytest.mark.parametrize("server", ["target", "mysql_target"])
def test_a_connector_that_restarts_again_and_again(
    real_senders: Path, server: str, request: pytest.FixtureRequest
) -> None:
    """Debezium sends rows again after each of its restarts: every table ends with the upstream's rows, as in the suite
    by test_transactions.py, from Kafka."""
    target = request.getfixturevalue(server)
    folder = real_senders / "debezium-restarts"
    ended = bridge("replay", "--input", str(folder), "--protocol", "debezium", "--target", target, *MYSQL)
    assert ended.code == 0, ended.err
    state = json.loads((folder / "bank.expected.json").read_text(encoding="utf-8"))
    for name, table in state["tables"].items():
        columns = ", ".join(f"CAST({column['expr']} AS CHAR)" for column in table["columns"])
        assert as_text(sql(target, f"SELECT {columns} FROM {name}")) == as_text(table["rows"]), name


@dataclass(frozen=True)
class Capture:
    """Messages of all statements of one upstream.

    left_out: tables that the sender lost, and how.  operator: what an operator does with schema changes that stop the
        bridge: the statement that is right instead, "" where none is.
    """

    folder: str
    protocol: str
    left_out: dict[str, str]
    operator: Mapping[str, str]


_NO_UTF8: Final = "a column of another character set, whose texts it decodes as UTF-8"
_MOVED: Final = {"RENAME TABLE d6c TO app2.d6moved": "RENAME TABLE app.d6c TO app2.d6moved"}
"""Its session was in another database than the message names."""
CANAL: Final = Capture(
    "canal-1.1.7",
    "canal-json",
    {
        "app.txt": _NO_UTF8,
        "app.d3": _NO_UTF8,
        "app.dop": _NO_UTF8,
        "app-3.t": _NO_UTF8,
        "app-3.u": "it leaves ALTER DATABASE out, which made texts utf8mb4",
        "app.d5b": "it forgets a PRIMARY KEY in the definition of a column that is modified",
        "app.dm": "it cannot read its CREATE TABLE",
        "app.d80": "it cannot read its CREATE TABLE, and sends it without a database",
    },
    {
        **_MOVED,
        "ALTER ALGORITHM=UNDEFINED DEFINER=`root`@`%` SQL SECURITY DEFINER VIEW `dv_v` AS SELECT v FROM dv": "",
        "ALTER TABLE dc DROP CONSTRAINT c2": "",  # it could not read the one that added it
        "CREATE TABLE d80 (id INT PRIMARY KEY, v INT DEFAULT (1+1), u CHAR(36) DEFAULT (UUID()), "
        "inv INT INVISIBLE DEFAULT 7, j JSON DEFAULT (JSON_ARRAY()), KEY fx ((v+1)), "
        "KEY dsc (v DESC), KEY ik (inv) INVISIBLE)": "",
        "ALTER TABLE d80 ALTER COLUMN inv SET VISIBLE": "",
        "CREATE TABLE d80s (id INT PRIMARY KEY, p POINT NOT NULL SRID 4326, SPATIAL INDEX (p))": "",
        "ALTER TABLE dm /*!80000 ADD COLUMN z80 INT, */ ADD COLUMN z INT": "",
    },
)
DEBEZIUM: Final = Capture(
    "debezium-3.6.1", "debezium", {"app.dop": "a column of latin1, which it takes for one of utf8mb4"}, _MOVED
)
NOT_ON_MARIADB: Final = {
    "app.kless": "the snapshot's JSON and that of changes are two texts, of a row without a key",
    "app.d80": "it has indexes that MariaDB lacks",
    "app.d80s": "it has a spatial reference system that MariaDB lacks",
}
"""Tables of Debezium's that MariaDB cannot take."""
UNLIKE: Final = {
    "app.d7": "Debezium leaves TRUNCATE out (skipped.operations)",
    "app.jso": "Debezium writes a negative TIME in a JSON wrongly, and types that JSON lacks in a way of its own",
    "app.tim": "Debezium takes a year below 100 for one of this century or the last (enable.time.adjuster)",
    "app.zd": "Debezium has no zero dates",
    "app.zz_mark": "which names each capture",
}
"""Tables in which the senders' messages differ, and why."""


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("server", ["target", "mysql_target"])
def test_two_senders_of_the_same_statements(real_senders: Path, server: str, request: pytest.FixtureRequest) -> None:
    """Canal and Debezium end alike: every table that both have carried whole is there, and has the same rows."""
    target = request.getfixturevalue(server)
    debezium = DEBEZIUM
    if server == "target":
        debezium = replace(DEBEZIUM, left_out=DEBEZIUM.left_out | NOT_ON_MARIADB)
    ends = []
    for capture in (CANAL, debezium):
        with admin(target) as session:
            drop_all(session)
        replay(real_senders, capture, target)
        ends.append(contents(target))
    of_canal, of_debezium = ends
    lost = {*CANAL.left_out, *debezium.left_out}
    assert of_canal.keys() - lost == of_debezium.keys() - lost
    unlike = {name for name in of_canal.keys() & of_debezium.keys() if of_canal[name] != of_debezium[name]}
    assert unlike == set(UNLIKE)


def replay(real_senders: Path, capture: Capture, target: str) -> None:
    """Replays a capture, and does at each stop what an operator would do."""
    if capture.protocol == "debezium":
        sql(target, "CREATE DATABASE app2", "SELECT 1")  # which was empty at the snapshot: its schema topic lacks it
    filters = [part for table in capture.left_out for part in ("--filter", f"!{table}".replace("-", "\\-"))]
    left = dict(capture.operator)
    while True:
        ended = bridge(
            *("replay", "--input", str(real_senders / capture.folder), "--protocol", capture.protocol),
            *("--target", target, *MYSQL, *filters),
        )
        if ended.code == 0:
            return
        assert ended.code in STOPPED, ended.err
        waiting = json.loads(bridge("ddl", "list", "--open", "--json", "--target", target).out)
        assert waiting, ended.last_line
        assert waiting[0]["statement"] in left, ended.last_line
        instead = left.pop(waiting[0]["statement"])
        fix = ("replace", waiting[0]["id"], instead) if instead else ("skip", waiting[0]["id"])
        assert bridge("ddl", *fix, "--target", target).code == 0


def contents(target: str) -> dict[str, tuple[list[str], list[tuple[str | None, ...]]]]:
    """Columns and rows of each table, JSON as the server understands it."""
    tables = {}
    for schema, table in sql(
        target,
        "SELECT table_schema, table_name FROM information_schema.tables"
        " WHERE table_schema LIKE 'app%' AND table_type = 'BASE TABLE'",
    ):
        columns = sql(
            target,
            "SELECT column_name, column_type FROM information_schema.columns"
            f" WHERE table_schema = '{schema}' AND table_name = '{table}' ORDER BY ordinal_position",
        )
        selected = ", ".join(readable(quote_name(name), kind) for name, kind in columns)
        rows = sql(target, f"SELECT {selected} FROM {quote_name(schema, table)}")
        documents = {number for number, (name, kind) in enumerate(columns) if kind == "json" or name == "j"}
        told = ([document(v) if n in documents else v for n, v in enumerate(row)] for row in rows)
        tables[f"{schema}.{table}"] = ([name for name, _ in columns], as_text(told))
    return tables


def readable(name: str, kind: str) -> str:
    """The expression of a column's value as text."""
    if kind.startswith(("float", "double")):
        return f"{name} + 0e0"
    is_text = re.match("bit|.*(binary|blob|geom|point|line|polygon)", kind) is None
    return f"CAST({name} AS CHAR)" if is_text else f"HEX({name})"


def document(text: str | None) -> str | None:
    """A JSON document without the blanks that a sender or server puts into it."""
    return text and json.dumps(json.loads(text, parse_float=str))


def as_text(rows: Any) -> list[tuple[str | None, ...]]:
    """Rows, sorted."""
    return sorted((tuple(None if value is None else str(value) for value in row) for row in rows), key=repr)
