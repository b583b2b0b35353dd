"""A target that begins with a dump, taken while the upstream was written to: real servers, real dumps."""

from __future__ import annotations

import base64
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pymysql
import pytest
from sqlalchemy import make_url

from bridge.cache import cached
from bridge.errors import UsageError
from bridge.local import LocalError
from bridge.local.server import run_tool
from bridge.settings.dump_metadata import begin_after
from tests.support import tidb
from tests.support.captures import Line, write_lines
from tests.support.command import bridge
from tests.support.tidb import TiDB
from tests.support.verify_servers import execute
from tests.support.wire import canal

SETUP: Final = """
CREATE DATABASE m;
CREATE TABLE m.accounts (id INT PRIMARY KEY, code INT UNIQUE, balance INT NOT NULL, owner VARCHAR(40));
CREATE TABLE m.notes (writer INT NOT NULL, text VARCHAR(40));
"""
ROWS: Final = 40
"""How many accounts a writer has at most."""
WRITERS: Final = 3
Row = tuple[int | str | None, ...]


class RowChange(NamedTuple):
    """One row change; an image is None where there is no row."""

    table: str
    before: Row | None
    after: Row | None


class Transaction(NamedTuple):
    """A transaction; at: its commit ts."""

    at: int
    writer: int
    changes: tuple[RowChange, ...]


@dataclass
class Writer:
    """Changes accounts of its own: ids, codes and notes that no other writer touches; codes move between its rows."""

    number: int
    random: Random
    rows: dict[int, Row] = field(default_factory=dict)
    notes: int = 0

    def transaction(self) -> list[tuple[str, RowChange]]:
        """A few statements, each with the row change that it makes."""
        made = [self._any_change() for _ in range(self.random.randint(1, 4))]
        self.notes += 1
        note = (self.number, f"note {self.notes % 3}")  # rows of a table without a key may be the same
        return [*made, (f"INSERT INTO m.notes VALUES {note}", RowChange("notes", None, note))]

    def _any_change(self) -> tuple[str, RowChange]:
        id_ = self.number * 1000 + self.random.randrange(ROWS)
        before = self.rows.get(id_)
        if before is not None and self.random.random() < 0.3:
            del self.rows[id_]
            return f"DELETE FROM m.accounts WHERE id = {id_}", RowChange("accounts", before, None)
        free = {self.number * 1000 + n for n in range(ROWS)} - {row[1] for row in self.rows.values()}
        code = self.random.choice(sorted(free))
        after: Row = (id_, code, self.random.randrange(1_000_000), f"owner {self.random.randrange(99)}")
        self.rows[id_] = after
        if before is None:
            return f"INSERT INTO m.accounts VALUES {after}", RowChange("accounts", None, after)
        text = f"UPDATE m.accounts SET code = {code}, balance = {after[2]}, owner = '{after[3]}' WHERE id = {id_}"
        return text, RowChange("accounts", before, after)


@contextmanager
def write_load(url: str) -> Iterator[list[Transaction]]:
    """Writes until the block ends; gives what was committed, which is complete after the block."""
    log: list[Transaction] = []
    failures: list[BaseException] = []
    stop = threading.Event()

    def work(number: int) -> None:
        writer, parts = Writer(number, Random(number)), make_url(url)
        connection: Any = pymysql.connect(host=parts.host, port=parts.port or 3306, user=parts.username)
        try:
            with connection.cursor() as cursor:
                while not stop.wait(0.005):
                    made = writer.transaction()
                    cursor.execute("BEGIN")
                    for statement, _ in made:
                        cursor.execute(statement)
                    cursor.execute("COMMIT")
                    log.append(Transaction(commit_ts(cursor), number, tuple(change for _, change in made)))
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield log
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not failures, failures


COMMIT_TS: Final = "SELECT JSON_EXTRACT(@@tidb_last_txn_info, '$.commit_ts')"
COLUMNS: Final = {
    "accounts": {"id": "int", "code": "int", "balance": "int", "owner": "varchar(40)"},
    "notes": {"writer": "int", "text": "varchar(40)"},
}
PARTITIONS: Final = 3
DUMPLING: Final = "github.com/pingcap/tidb/dumpling/cmd/dumpling"

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.fixture
def upstream() -> Iterator[TiDB]:
    """A TiDB of the test's own."""
    if not tidb.is_built():
        pytest.skip(f"TiDB is not built: {tidb.NEEDS}")
    with TiDB() as server:
        execute(server.url, SETUP)
        yield server


def commit_ts(cursor: Any) -> int:
    """The commit ts of the last transaction, from TiDB itself."""
    cursor.execute(COMMIT_TS)
    return int(cursor.fetchone()[0])


def wait_for(log: list[Transaction], more: int) -> None:
    """Waits until so many more transactions were committed."""
    wanted, limit = len(log) + more, time.monotonic() + 120
    while len(log) < wanted:
        assert time.monotonic() < limit, f"{len(log)} of {wanted} transactions"
        time.sleep(0.01)


def message(change: RowChange, at: int) -> bytes:
    """A message of Canal-JSON, as TiCDC writes it with the extension."""
    types = COLUMNS[change.table]

    def row(values: Any) -> dict[str, str | None]:
        return {name: None if value is None else str(value) for name, value in zip(types, values, strict=True)}

    kind = "INSERT" if change.before is None else "DELETE" if change.after is None else "UPDATE"
    columns = {name: (types[name], text) for name, text in row(change.after or change.before).items()}
    old = [row(change.before)] if kind == "UPDATE" else None
    where = {"database": "m", "table": change.table, "old": old}
    return canal(kind, columns, **where, es=at >> 18, _tidb={"commitTs": at})


def watermark(ts: int) -> bytes:
    """TiCDC's boundary."""
    return canal("TIDB_WATERMARK", {}, database="", table="", data=None, es=ts >> 18, _tidb={"watermarkTs": ts})


def of_ticdc(log: Iterable[Transaction]) -> list[Line]:
    """The change log with commit ts and boundaries; the rows of a transaction lie in several partitions."""
    placed: list[tuple[int, bytes]] = []
    ordered = sorted(log)
    for number, transaction in enumerate(ordered):
        for change in transaction.changes:
            row = change.after or change.before or ()
            placed.append((int(row[0] or 0) % PARTITIONS, message(change, transaction.at)))
        if number % 50 == 0 or number == len(ordered) - 1:
            placed += [(partition, watermark(transaction.at + 1)) for partition in range(PARTITIONS)]
    offsets = Counter[int]()
    lines = []
    for partition, value in placed:
        where = {"partition": partition, "offset": offsets[partition], "timestamp": 0, "key": None}
        lines.append({**where, "value": base64.b64encode(value).decode()})
        offsets[partition] += 1
    return lines


def dumpling() -> Path:
    """The program.  Where it is absent it is built from TiDB's modules, which takes a minute after TiDB was built.

    Raises LocalError without Go, and with the compiler's last words.
    """
    return cached(tidb.versioned("dumpling"), _build_dumpling) / "dumpling"


def _build_dumpling(folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise LocalError("dumpling cannot be built: there is no Go on this machine", fix=tidb.NEEDS)
    for source in ("go.mod", "go.sum"):
        shutil.copy(Path(tidb.__file__).parent / source, folder)
    command = ["nice", "-n", "5", go, "build", "-mod=readonly", "-ldflags=-s -w", "-o", "dumpling", DUMPLING]
    run_tool(["env", "GOTOOLCHAIN=local", *command], folder, failed="dumpling cannot be built", needs=tidb.NEEDS)


def dump_tidb(upstream: TiDB, folder: Path, *more: str) -> None:
    """Runs dumpling with its defaults, or more options."""
    options = ["-h", "127.0.0.1", "-P", str(upstream.port), "-u", "root", "-f", "m.*", "--filetype", "sql"]
    command = [str(dumpling()), *options, "-o", str(folder), *more]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]


def load(target: str, folder: Path) -> None:
    """Runs the dump's files: databases, tables, rows."""
    for path in folder.glob("*-schema-create.sql"):
        execute(target, path.read_text())
    for path in folder.glob("m.*-schema.sql"):
        execute(target, f"USE m; {path.read_text()}")
    for path in folder.glob("m.*.0*.sql"):
        execute(target, f"USE m; {path.read_text()}")


def verified(target: str, source: str, *more: str) -> int:
    """What `bridge verify --against upstream` ends with."""
    return bridge("verify", "--against", "upstream", "--upstream", source, "--target", target, *more).code


@pytest.mark.usefixtures("spark")
def test_a_dump_of_dumpling_and_the_changes_after_it(upstream: TiDB, target: str, tmp_path: Path) -> None:
    """The dump's TSO is exact: rows of a table without a key are neither doubled nor lost.  A pipeline that begins
    below it doubles them, and verify says so."""
    dump = tmp_path / "dump"
    dumpling()
    with write_load(upstream.url) as log:
        wait_for(log, 150)
        dump_tidb(upstream, dump)
        wait_for(log, 150)
    dump_tidb(upstream, tmp_path / "timed", "--snapshot", execute(upstream.url, "SELECT CAST(NOW() AS CHAR)")[0][0])
    with pytest.raises(UsageError, match="is no TSO"):
        begin_after(tmp_path / "timed")
    begin = begin_after(dump)
    assert sum(at < begin for at, *_ in log) >= 150
    assert sum(at >= begin for at, *_ in log) >= 150
    load(target, dump)
    capture = write_lines(tmp_path / "changes.jsonl", of_ticdc(log))
    arguments = ("replay", "--input", str(capture), "--target", target, "--timezone", "UTC", "--from-dump", str(dump))
    for _ in range(2):  # a pipeline that is known goes on
        ended = bridge(*arguments)
        assert ended.code == 0, ended.err
    assert execute(target, "SELECT start_ts FROM _bridge.progress") == [(begin,)]
    assert verified(target, upstream.url) == 0

    execute(target, "DROP DATABASE m")
    load(target, dump)
    ended = bridge(*arguments[:-2], "--name", "early", "--from", "earliest")
    assert ended.code == 0, ended.err
    assert verified(target, upstream.url, "--name", "early", "--filter", "m.accounts") == 0
    assert verified(target, upstream.url, "--name", "early", "--filter", "m.notes") == 1
