"""A target that begins with a dump, taken while the upstream was written to: real servers, real dumps."""

from __future__ import annotations

import base64
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pymysql
import pytest
from sqlalchemy import make_url

from bridge.errors import UsageError
from bridge.local import MariaDB, MySQL
from bridge.settings.dump_metadata import begin_after
from bridge.tso import ms_tso
from tests.support import dumpling, tidb
from tests.support.captures import Line, write_lines
from tests.support.clients import mariadb_dump, mysqldump
from tests.support.command import bridge
from tests.support.tidb import TiDB
from tests.support.verify_servers import execute
from tests.support.wire import canal, compact

SETUP: Final = """
CREATE DATABASE m;
CREATE TABLE m.accounts (id INT PRIMARY KEY, code INT UNIQUE, balance INT NOT NULL, owner VARCHAR(40));
CREATE TABLE m.notes (writer INT NOT NULL, text VARCHAR(40));
"""
ROWS: Final = 40
"""How many accounts a writer has at most."""
Row = tuple[int | str | None, ...]


class RowChange(NamedTuple):
    """One row change; an image is None where there is no row."""

    table: str
    before: Row | None
    after: Row | None


class Transaction(NamedTuple):
    """A transaction; at: its commit ts, or the time of its commit."""

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

    def transaction(self, *, with_notes: bool) -> list[tuple[str, RowChange]]:
        """A few statements, each with the row change that it makes."""
        made = [self._any_change() for _ in range(self.random.randint(1, 4))]
        if with_notes:
            self.notes += 1
            note = (self.number, f"note {self.notes % 3}")  # rows of a table without a key may be the same
            made.append((f"INSERT INTO m.notes VALUES {note}", RowChange("notes", None, note)))
        return made

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
def write_load(
    url: str, committed_at: Callable[[Any], int], *, writers: int = 3, with_notes: bool = True
) -> Iterator[list[Transaction]]:
    """Writes until the block ends; gives what was committed, which is complete after the block.

    committed_at: tells when the transaction was committed that a cursor has just committed.
    """
    log: list[Transaction] = []
    failures: list[BaseException] = []
    stop = threading.Event()

    def work(number: int) -> None:
        writer, parts = Writer(number, Random(number)), make_url(url)
        connection: Any = pymysql.connect(host=parts.host, port=parts.port or 3306, user=parts.username)
        try:
            with connection.cursor() as cursor:
                while not stop.wait(0.005):
                    made = writer.transaction(with_notes=with_notes)
                    cursor.execute("BEGIN")
                    for statement, _ in made:
                        cursor.execute(statement)
                    cursor.execute("COMMIT")
                    log.append(Transaction(committed_at(cursor), number, tuple(change for _, change in made)))
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(writers)]
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


def millisecond(cursor: Any) -> int:
    """The upstream's time, after the commit."""
    cursor.execute("SELECT FLOOR(UNIX_TIMESTAMP(NOW(3)) * 1000)")
    return int(cursor.fetchone()[0])


def wait_for(log: list[Transaction], more: int, until_ms: int = 0) -> None:
    """Waits until so many more transactions were committed, and one at `until_ms`."""
    wanted, limit = len(log) + more, time.monotonic() + 120
    while len(log) < wanted or log[-1].at < until_ms:
        assert time.monotonic() < limit, f"{len(log)} of {wanted} transactions"
        time.sleep(0.01)


def message(change: RowChange, at: int, *, with_ts: bool) -> bytes:
    """A message of Canal-JSON, as TiCDC writes it with the extension, or as Canal does: whole seconds, no commit ts."""
    types = COLUMNS[change.table]

    def row(values: Any) -> dict[str, str | None]:
        return {name: None if value is None else str(value) for name, value in zip(types, values, strict=True)}

    kind = "INSERT" if change.before is None else "DELETE" if change.after is None else "UPDATE"
    columns = {name: (types[name], text) for name, text in row(change.after or change.before).items()}
    old = [row(change.before)] if kind == "UPDATE" else None
    where = {"database": "m", "table": change.table, "old": old}
    if with_ts:
        return canal(kind, columns, **where, es=at >> 18, _tidb={"commitTs": at})
    return canal(kind, columns, **where, es=at // 1000 * 1000, _tidb=None)


def watermark(ts: int) -> bytes:
    """TiCDC's boundary."""
    return compact(
        {
            "id": 0, "database": "", "table": "", "pkNames": None, "isDdl": False, "type": "TIDB_WATERMARK",
            "es": ts >> 18, "ts": 2, "sql": "", "sqlType": None, "mysqlType": None, "old": None, "data": None,
            "_tidb": {"watermarkTs": ts},
        }
    )  # fmt: skip


def lines(placed: Iterable[tuple[int, bytes]]) -> list[Line]:
    """Messages with their partitions, as a capture."""
    offsets: dict[int, int] = defaultdict(int)
    made = []
    for partition, value in placed:
        made.append({
            "partition": partition, "offset": offsets[partition], "timestamp": 0, "key": None,
            "value": base64.b64encode(value).decode(),
        })  # fmt: skip
        offsets[partition] += 1
    return made


def of_ticdc(log: Iterable[Transaction]) -> list[Line]:
    """The change log with commit ts and boundaries; the rows of a transaction lie in several partitions."""
    placed: list[tuple[int, bytes]] = []
    ordered = sorted(log)
    for number, transaction in enumerate(ordered):
        for change in transaction.changes:
            row = change.after or change.before or ()
            placed.append((int(row[0] or 0) % PARTITIONS, message(change, transaction.at, with_ts=True)))
        if number % 50 == 0 or number == len(ordered) - 1:
            placed += [(partition, watermark(transaction.at + 1)) for partition in range(PARTITIONS)]
    return lines(placed)


def of_canal(log: Iterable[Transaction]) -> list[Line]:
    """The change log without commit ts, a partition for each writer."""
    return lines(
        (transaction.writer, message(change, transaction.at, with_ts=False))
        for transaction in log
        for change in transaction.changes
    )


def dump_tidb(upstream: TiDB, folder: Path, *more: str) -> None:
    """Runs dumpling with its defaults, or more options."""
    options = ["-h", "127.0.0.1", "-P", str(upstream.port), "-u", "root", "-f", "m.*", "--filetype", "sql"]
    command = [str(dumpling.build()), *options, "-o", str(folder), *more]
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
    dumpling.build()
    with write_load(upstream.url, commit_ts) as log:
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


Dumped = tuple[type[MariaDB] | type[MySQL], Callable[[], list[str]], str, str]
OF_MARIADB: Final[Dumped] = (MariaDB, mariadb_dump, "--skip-ssl", "mariadb")
OF_MYSQL: Final[Dumped] = (MySQL, mysqldump, "--default-character-set=utf8mb4", "mysql-8")
"""The upstream, what dumps it, an option of that, and `ddl.source`."""


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("dumped_by", [OF_MARIADB, OF_MYSQL], ids=["mariadb-dump", "mysqldump"])
def test_an_overlapping_start_converges(target: str, tmp_path: Path, dumped_by: Dumped) -> None:
    """Changes without a commit ts are applied from shortly before a dump of a server that is written to: keys that are
    ahead of the log come right, with unique values that moved between rows.  Rows without a key double, and the fix SQL
    of verify takes them back."""
    start, program, option, source = dumped_by
    with start(options=["--log-bin=binlog", "--binlog-format=ROW", "--server-id=1"]) as server:
        execute(server.url, SETUP)
        how = "VIA" if start is MariaDB else "WITH"
        execute(server.url, f"CREATE USER dumper IDENTIFIED {how} mysql_native_password; GRANT ALL ON *.* TO dumper")
        with write_load(server.url, millisecond) as log:
            wait_for(log, 100)
            begin = log[-1].at // 1000 * 1000 - 1000
            wait_for(log, 100, begin + 4000)
            options = ["--host=127.0.0.1", f"--port={server.port}", "--user=dumper", option]
            command = [*program(), *options, "--single-transaction", "--master-data=2", "--databases", "m"]
            dumped = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
            dumped_at = datetime.now(UTC).timestamp() * 1000
            wait_for(log, 200)
        assert "CHANGE MASTER TO MASTER_LOG_FILE='binlog.00000" in dumped
        assert sum(begin <= at < dumped_at for at, *_ in log) >= 100
        (tmp_path / "dump.sql").write_text(dumped)
        execute(target, dumped)
        capture = write_lines(tmp_path / "changes.jsonl", of_canal(log))
        moment = datetime.fromtimestamp(begin / 1000, UTC).isoformat()
        ended = bridge(
            *("replay", "--protocol", "canal-json", "--input", str(capture), "--target", target),
            *("--timezone", "UTC", "--set", f"ddl.source={source}", "--from", moment),
        )
        assert ended.code == 0, ended.err
        assert ms_tso(begin) in execute(target, "SELECT start_ts FROM _bridge.progress")[0]
        assert verified(target, server.url, "--filter", "m.accounts") == 0
        fix = tmp_path / "fix.sql"
        assert verified(target, server.url, "--fix-sql", str(fix)) == 1
        execute(target, f"USE m; {fix.read_text()}")
        assert verified(target, server.url) == 0
