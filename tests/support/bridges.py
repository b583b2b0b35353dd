"""A pipeline from Kafka under test: arguments, and looks at the target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pymysql
from pymysql.constants import ER

from bridge.commands.status import PipelineStatus, read_status
from bridge.demo.bank import SCHEMA, Bank
from bridge.demo.compare import compare
from bridge.mysql.connection.target import Target
from bridge.mysql.state.progress import ProgressTable
from tests.support.command import PROGRAM, Process
from tests.support.pipelines import admin, connected, sql

PARTITIONS = 4
_NOT_THERE: Final = {ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE}


def kafka_arguments(command: str, bootstrap_servers: str, topic: str, target: str, *more: str) -> list[str]:
    """`bridge run` or `bridge replay` on a topic."""
    protocol = [] if "--protocol" in more else ["--protocol", "canal-json"]
    return [command, "--bootstrap-servers", bootstrap_servers, "--topic", topic, "--target", target, *protocol, *more]


@contextmanager
def running(
    folder: Path,
    bootstrap_servers: str,
    topic: str,
    target: str,
    *more: str,
    environment: Mapping[str, str] | None = None,
    program: Sequence[str] = PROGRAM,
    temporary: Path | None = None,
) -> Iterator[Process]:
    """`bridge run` as a process; killed at the end.  temporary: its temporary folder, if it is another."""
    arguments = kafka_arguments("run", bootstrap_servers, topic, target, *more)
    folder.mkdir(exist_ok=True)
    temporary = temporary or folder
    local = {"local.dir": temporary, "driver.extraJavaOptions": f"-Djava.io.tmpdir={temporary}"}
    places = [part for name, value in local.items() for part in ("--set", f"spark.spark.{name}={value}")]
    with Process(
        folder, *arguments, *places, environment={"TMPDIR": str(temporary), **(environment or {})}, program=program
    ) as process:
        yield process


def status(url: str, name: str = "bridge") -> PipelineStatus | None:
    """What `bridge status` sees."""
    return read_status(Target(url), ProgressTable(name))


def applied_ts(url: str) -> int:
    """How far the pipeline is, 0 before it is known.  Tests that wait ask many times a second: one query, where
    `status` has a dozen."""
    with closing(connected(url)) as connection, connection.cursor() as cursor:
        try:
            cursor.execute("SELECT applied_ts FROM _bridge.progress WHERE name = 'bridge'")
        except pymysql.MySQLError as error:
            if error.args[0] not in _NOT_THERE:
                raise
            return 0
        found = cursor.fetchone()
    return int(found[0]) if found else 0


def assert_equal(url: str, bank: Bank) -> None:
    """Every table of the target against the upstream's, row by row."""
    with admin(url) as session:
        compared = compare(session, SCHEMA, bank.tables)
    assert [(table.table, table.difference) for table in compared if table.difference] == []
    assert sum(table.rows for table in compared) > 100


def assert_ran_once(url: str, count: int) -> None:
    """Each schema change has run, and none was found to be there before it ran."""
    outcomes = sql(url, "SELECT state, outcome FROM _bridge.schema_changes ORDER BY commit_ts")
    assert len(outcomes) == count
    assert set(outcomes) <= {("done", "ran"), ("done", "found on the target after an interruption")}


def owner(url: str) -> dict[str, Any]:
    """Who runs the pipeline."""
    found = status(url)
    assert found is not None
    return found.owner
