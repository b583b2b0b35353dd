"""A source and a target under test, and verifications of one against the other."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pymysql
from pymysql.constants import CLIENT
from sqlalchemy import make_url

from bridge.config import VerifySection
from bridge.filters.routes import RowRules
from bridge.filters.table_filter import TableFilter
from bridge.model import TableName
from bridge.mysql.connection.target import Target
from bridge.mysql.state.progress import ProgressTable
from bridge.verify.options import ProgressListener, VerifyOptions
from bridge.verify.report import Report
from bridge.verify.source.verification import SourceVerification

_DIGITS = "(SELECT 0 AS n" + "".join(f" UNION ALL SELECT {n}" for n in range(1, 10)) + ")"


def portable(script: str) -> str:
    """MariaDB's tables of numbers, up to 9,999, as any server can select them."""
    numbers = f"(SELECT 1 + a.n + 10 * b.n + 100 * c.n + 1000 * d.n AS seq FROM {_DIGITS} a, {_DIGITS} b, {_DIGITS} c,"
    return re.sub(r"\bseq_1_to_(\d+)\b", rf"{numbers} {_DIGITS} d HAVING seq <= \1 ORDER BY seq) numbers", script)


def execute(url: str, script: str) -> list[tuple[Any, ...]]:
    """Runs a script of statements as a client would; gives the last one's rows."""
    parts = make_url(url)
    connection: Any = pymysql.connect(
        host=parts.host, port=parts.port or 3306, user=parts.username, password=parts.password or "",
        charset="utf8mb4", autocommit=True, client_flag=CLIENT.MULTI_STATEMENTS,
    )  # fmt: skip
    try:
        with connection.cursor() as cursor:
            cursor.execute(script)
            rows = list(cursor.fetchall())
            while cursor.nextset():
                rows = list(cursor.fetchall())
            return rows
    finally:
        connection.close()


class Quiet:
    """A watcher that nobody listens to."""

    def stage(self, words: str) -> None:
        """Nothing."""

    def plan(self, rows: int) -> None:
        """Nothing."""

    def done(self, table: TableName, rows: int) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Pair:
    """source, target: URLs; folder: for the fix SQL."""

    source: str
    target: str
    folder: Path

    @property
    def fix(self) -> Path:
        """Where the fixing statements go."""
        return self.folder / "fix.sql"

    def both(self, script: str) -> None:
        """Runs a script on both."""
        execute(self.source, script)
        execute(self.target, script)

    def damage(self, script: str) -> None:
        """Runs a script on the target alone."""
        execute(self.target, f"SET SESSION sql_mode = '', time_zone = '+00:00'; {script}")

    def run_fix(self, client: list[str] | None = None, *options: str) -> None:
        """Runs the fix SQL as an operator does."""
        from tests.support.clients import run_file

        ended = run_file(self.target, self.fix, client, *options)
        assert ended.returncode == 0, ended.stderr.decode()

    def verify(self, *rules: str, listener: ProgressListener | None = None, **options: Any) -> Report:
        """Compares the target with the source."""
        named = {name: options.pop(name) for name in {"workers", "chunk_seconds", "grace_seconds"} & options.keys()}
        section = VerifySection(shown_rows=options.pop("shown_rows", 100), **named)
        own = options.pop("row_rules", RowRules())
        options["row_rules"] = replace(own, routes=replace(own.routes, tables=TableFilter(rules)))
        told = VerifyOptions(section, **{"fix_file": self.fix, **options})
        return SourceVerification(
            Target(self.target),
            Target(self.source, role="upstream"),
            ProgressTable("bridge"),
            told,
            listener or Quiet(),
        ).run()


def said(report: Report) -> set[str]:
    """Everything found: `table: schema words`, `table key finding [columns]`."""
    found = {f"{table.name.table}: {words}" for table in report.tables for words in table.schema}
    for table in report.tables:
        for row in table.first_rows:
            key = ",".join(row.key.values()) or " ".join(str(c.expected or c.actual) for c in row.columns)
            columns = " ".join(cell.column for cell in row.columns) if row.finding == "different" else ""
            copies = f" x{row.copies}" if row.copies > 1 else ""
            found.add(f"{table.name.table} {key} {row.finding}{copies} {columns}".strip())
    return found
