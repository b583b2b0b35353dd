"""Whole transactions of Debezium's own connector: connector and bridge are killed, and no snapshot of the target shows
a part of a transaction."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient
from pymysql.err import MySQLError

from bridge.local import Kafka, LocalError, MariaDB, MySQL
from bridge.mysql.connection.session import Session
from tests.support.bridges import kafka_arguments, running
from tests.support.command import Process, bridge
from tests.support.debezium_connector import LOSSLESS, MARIADB, MYSQL, OLD, DebeziumConnector, Release, apicurio_jars
from tests.support.pipelines import admin, sql
from tests.support.registry import serving
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(900)

TABLES = ("a", "b", "c", "ledger")
ACCOUNTS, TOTAL = 30, 3 * 30 * 1000
SUM = "SELECT " + " + ".join(f"(SELECT SUM(balance) FROM bank.{table})" for table in "abc")
COUNT = "SELECT COUNT(*) FROM bank.ledger"
BETWEEN = f"{SUM}, (SELECT MIN(applied_ts = applying_ts) FROM _bridge.progress)"
"""The sum, and whether the target is between two steps of `parallel`, as one snapshot."""
IN_BINLOG = ("--log-bin=binlog", "--server-id=1", "--binlog-format=ROW", "--binlog-row-image=FULL")
GTIDS = ("--gtid-mode=ON", "--enforce-gtid-consistency")
IN_OFFSET = "transaction_data_collection_order_"
"""Before the name of a table: how many of its rows in the last transaction the connector has sent."""


MOVES_ON_SECONDS = 3.0
SCHEMA_FAULT = "restart connector with schema recovery mode"
WITH_TRANSACTIONS = {**LOSSLESS, "provide.transaction.metadata": "true"}
USUAL, LARGE = (1, 1, 2, 40), (1, 2, 40, 1500)
"""How many transfers transactions have; of the larger ones several connections write."""


class Run(NamedTuple):
    """A bank: the fixture of its target, its connector, how it is applied, and how often the bridge is killed.

    is_between: whether the connector is killed between two transactions only: all rows of one of MariaDB's have one
    place in the binlog, so that a connector before 3.7 cannot go on within it.
    """

    server: str
    release: Release
    consistency: str = "atomic"
    rounds: int = 1
    is_between: bool = False


@contextmanager
def upstream_of(release: Release, *options: str) -> Iterator[MySQL | MariaDB]:
    """A server of the connector's kind, with a bank of three tables, and a ledger without a key."""
    with (MySQL if release.kind == "mysql" else MariaDB)(options=[*IN_BINLOG, *options]) as server:
        with admin(server.url) as session:
            session.execute("CREATE DATABASE bank")
            for table in "abc":
                session.execute(f"CREATE TABLE bank.{table} (id INT PRIMARY KEY, balance BIGINT NOT NULL)")
                rows = ", ".join(f"({number}, 1000)" for number in range(ACCOUNTS))
                session.execute(f"INSERT INTO bank.{table} VALUES {rows}")
            session.execute("CREATE TABLE bank.ledger (entry INT NOT NULL, amount BIGINT)")
        yield server


class Transfers(threading.Thread):
    """Moves money, each time in one transaction, which also writes rows and deletes them again."""

    def __init__(self, url: str, seed: int, sizes: Sequence[int]) -> None:
        super().__init__(daemon=True)
        self._sizes = sizes
        self._url, self._draw, self.done, self.over = url, random.Random(seed), 0, threading.Event()
        self.turn = threading.Lock()
        """Whoever holds it keeps transactions from beginning."""

    def run(self) -> None:
        """Until it is told to end."""
        with admin(self._url) as session:
            while not self.over.is_set():
                with self.turn:
                    self._transfer(session)
                self.done += 1
                if self.done % 50 == 0:
                    table = self._draw.choice("abc")
                    session.execute(f"ALTER TABLE bank.{table} ADD COLUMN x{self.done} INT DEFAULT 1")
                time.sleep(0.1)

    def _transfer(self, session: Session) -> None:
        draw = self._draw
        session.execute("BEGIN")
        for _ in range(draw.choice(self._sizes)):
            amount = draw.randint(1, 9)
            for sign in (-amount, amount):
                session.execute(
                    f"UPDATE bank.{draw.choice('abc')} SET balance = balance + {sign}"
                    f" WHERE id = {draw.randrange(ACCOUNTS)}"
                )
            session.execute(f"INSERT INTO bank.ledger VALUES ({self.done}, {amount})")
        table, number = draw.choice("abc"), 1000 + draw.randrange(3)
        session.execute(f"INSERT INTO bank.{table} (id, balance) VALUES ({number}, 777)")
        session.execute(f"DELETE FROM bank.{table} WHERE id = {number}")
        session.execute("COMMIT")


class Reader(threading.Thread):
    """Takes snapshots of the target."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url, self.sums, self.over = url, list[int | None](), threading.Event()

    def run(self) -> None:
        """Until it is told to end."""
        while not self.over.is_set():
            with suppress(MySQLError), admin(self._url) as session:
                session.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                while not self.over.is_set():
                    total, is_between = session.rows(BETWEEN)[0]
                    self.sums += [int(total)] if is_between else []
                    time.sleep(0.01)
            time.sleep(0.05)


RUNS = [
    [Run("target", MYSQL)],
    pytest.param([Run("target", MYSQL), Run("mysql_target", MARIADB, is_between=True)], marks=pytest.mark.soak),
    *(pytest.param([run], marks=pytest.mark.soak) for run in [
        Run("target", OLD, rounds=4), Run("mysql_target", OLD, rounds=4), Run("mysql_target", MYSQL, rounds=4),
        Run("target", OLD, "parallel", 8), Run("mysql_target", MYSQL, "parallel", 8),
        Run("target", MARIADB, rounds=4), Run("mysql_target", MARIADB, rounds=4),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(
    "runs", RUNS, ids=lambda runs: ", ".join(f"{run.release.kind} to {run.server}" for run in runs)
)
def test_no_snapshot_shows_a_part(
    runs: list[Run], request: pytest.FixtureRequest, kafka: Kafka, tmp_path: Path
) -> None:
    """The sum is right in every snapshot, once the first one's rows are in; and the end is equal, without a key too.
    Several banks run side by side.  MYSQL writes Avro, by Apicurio's own converter."""
    try:
        for run in runs:
            run.release.jars()
        apicurio_jars()
    except LocalError as error:
        pytest.skip(str(error))
    targets = [request.getfixturevalue(run.server) for run in runs]
    with ExitStack() as stack:
        with ThreadPoolExecutor() as pool:
            ways = [
                pool.submit(bank_runs, run, stack, kafka, target, tmp_path / run.server)
                for run, target in zip(runs, targets, strict=True)
            ]
        for way, target in zip(ways, targets, strict=True):
            if upstream := way.result():
                assert bridge("verify", "--against", "upstream", "--upstream", upstream, "--target", target).code == 0
        if not all(way.result() for way in ways):
            pytest.skip("the connector ended: it reads rows before an ALTER TABLE with the columns behind it")


def bank_runs(run: Run, stack: ExitStack, kafka: Kafka, target: str, folder: Path) -> str:
    """A bank from its beginning to its end, without a wrong sum; gives the URL of its upstream, "" where the connector
    has ended by a fault of its own."""
    upstream = stack.enter_context(upstream_of(run.release))
    servers, prefix = kafka.bootstrap_servers, f"tx{time.time_ns()}{run.release.kind}"
    topics = make_topics(kafka, prefix)
    is_avro = run.release == MYSQL
    reader = Reader(target)
    with serving({}) as registry:
        address = f"{registry.url}/apis/registry/v2" if is_avro else ""
        arguments = [
            *(part for topic in topics for part in ("--topic", topic)),
            *(
                "--protocol",
                "debezium",
                "--set",
                f"ddl.source={'mysql-8' if run.release.kind == 'mysql' else 'mariadb'}",
                "--consistency",
                run.consistency,
            ),
            *(("--registry", address) if is_avro else ()),
        ]
        with DebeziumConnector(
            *(servers, upstream.port, "bank", prefix),
            schemas=False,
            release=run.release,
            registry=address,
            more=WITH_TRANSACTIONS,
        ) as connector:
            bank = Bank(target, upstream.url, connector, lambda: running(folder, servers, prefix, target, *arguments))
            sizes = LARGE if run.consistency == "parallel" else USUAL
            bank.run(reader, Transfers(upstream.url, 3, sizes), run.rounds, is_between=run.is_between)
            has_ended = bank.has_ended()
    reader.over.set()
    reader.join()
    assert is_avro == any("/ids/globalIds/" in path for path in registry.asked)
    print(len(reader.sums), "snapshots")
    assert set(reader.sums) <= {TOTAL}
    assert has_ended or len(reader.sums) > 100
    return "" if has_ended else upstream.url


@dataclass(frozen=True)
class Bank:
    """A bank that a connector and a bridge replicate, which are killed.

    start: starts the bridge, which is killed at the end of the block.
    """

    target: str
    upstream: str
    connector: DebeziumConnector
    start: Callable[[], AbstractContextManager[Process]]

    def run(self, reader: Reader, transfers: Transfers, rounds: int, *, is_between: bool) -> None:
        """A few transfers in each life of the bridge."""
        self._lives(reader, transfers, rounds)
        with transfers.turn if is_between else nullcontext():
            if is_between:
                self._wait_until_all_is_sent()
            self._kill_connector()
        transfers.over.set()
        transfers.join()
        with self.start() as process:
            self._wait_on(process, lambda: are_equal(self.upstream, self.target), "the end", 300)

    def _lives(self, reader: Reader, transfers: Transfers, rounds: int) -> None:
        for number in range(rounds):
            with self.start() as process:
                if number == 0:
                    process.wait_for(lambda: total(self.target) == TOTAL, "the snapshot", 300)
                    reader.start()
                    transfers.start()
                least = count(self.target) + 20
                self._wait(process, lambda: count(self.target) > least, "new transactions", 300)  # noqa: B023
                if number % 2:
                    self._kill_connector()
                time.sleep(random.Random(number).uniform(0, 1))

    def _kill_connector(self) -> None:
        self.connector.kill()
        self.connector.restart()

    def _wait_until_all_is_sent(self) -> None:
        """The connector has kept that it sent a transaction of one row, and all before."""
        sql(self.upstream, "INSERT INTO bank.ledger VALUES (-1, 0)", "SELECT 1")
        ((last,),) = sql(self.upstream, "SELECT @@gtid_binlog_pos")
        counted = f"{IN_OFFSET}bank.ledger"
        wait_for(
            lambda: [self.connector.offset().get(name) for name in ("transaction_id", counted)] == [last, 1], "", 60
        )

    def _wait_on(self, process: Process, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """The upstream is written to now and then: a transaction in whose midst the connector was killed waits for a
        later one."""
        later = time.monotonic() + MOVES_ON_SECONDS

        def is_so() -> bool:
            nonlocal later
            if time.monotonic() > later:
                later = time.monotonic() + MOVES_ON_SECONDS
                sql(self.upstream, "INSERT INTO bank.ledger VALUES (-1, 0)", "SELECT 1")
            return condition()

        self._wait(process, is_so, what, seconds)

    def _wait(self, process: Process, condition: Callable[[], bool], what: str, seconds: float) -> None:
        try:
            process.wait_for(lambda: condition() or self.has_ended(), what, seconds)
        except AssertionError as error:
            error.add_note(f"the connector: {self.connector.status()}")
            raise
        assert process.code is None  # it waits for a connector that is away

    def has_ended(self) -> bool:
        """Whether the connector's task has ended by a fault of its own: killed near an ALTER TABLE, it may recover a
        later schema than that of the rows that it goes on with (3.6.1: 2 of 49 kills)."""
        traces = [task["trace"] for task in self.connector.status().get("tasks", ()) if task["state"] == "FAILED"]
        assert all(SCHEMA_FAULT in trace for trace in traces), traces
        return bool(traces)


def make_topics(kafka: Kafka, prefix: str) -> list[str]:
    """The connector's topics; gives them without that of schema changes, which has the prefix for a name."""
    topics = [f"{prefix}.transaction", *(f"{prefix}.bank.{table}" for table in TABLES)]
    for topic in [*topics, prefix]:
        kafka.create_topic(topic, 3 if topic[-2:] in (".a", ".b", ".c") else 1)
    return topics


@pytest.mark.soak
def test_a_new_pipeline_takes_over(target: str, kafka: Kafka, tmp_path: Path) -> None:
    """As starting.md says: the connector is stopped in order, the old pipeline comes to the end of the topics, these
    are emptied, and a new pipeline begins with whole transactions, while the upstream is written to."""
    servers, prefix = kafka.bootstrap_servers, f"over{time.time_ns()}"
    topics = [prefix, *make_topics(kafka, prefix)]
    arguments = [part for topic in topics[2:] for part in ("--topic", topic)]
    arguments += ["--protocol", "debezium", "--set", "ddl.source=mysql-8"]
    whole = [*arguments, "--topic", topics[1], "--name", "whole"]
    reader = Reader(target)
    with (
        upstream_of(MYSQL, *GTIDS) as upstream,
        DebeziumConnector(servers, upstream.port, "bank", prefix, schemas=False, release=MYSQL, more=LOSSLESS) as one,
    ):
        transfers = Transfers(upstream.url, 3, USUAL)
        with running(tmp_path, servers, prefix, target, *arguments) as process:
            process.wait_for(lambda: total(target) == TOTAL, "the snapshot", 300)
            transfers.start()
            process.wait_for(lambda: count(target) > 100, "transactions", 300)
            stop(one)
        ended = bridge(*kafka_arguments("replay", servers, prefix, target, *arguments))
        assert ended.code == 0, ended.err
        empty(servers, topics)
        there = count(target)
        with running(tmp_path, servers, prefix, target, *whole) as process:
            one.ask("config", {"provide.transaction.metadata": "true"})
            one.ask("resume")  # it sends the END of the last transaction again
            process.wait_for(lambda: count(target) > there, "new transactions", 300)
            reader.start()
            process.wait_for(lambda: count(target) > there + 100, "more transactions", 300)
            transfers.over.set()
            transfers.join()
            process.wait_for(lambda: are_equal(upstream.url, target), "the end", 300)
            assert "whole upstream transactions" in bridge("status", "--name", "whole", "--target", target).out
        reader.over.set()
        reader.join()
    assert set(reader.sums) == {TOTAL}


@pytest.mark.soak
@pytest.mark.parametrize("has_lost", [False, True], ids=["all is there", "a transaction is lost"])
@pytest.mark.parametrize("release", [MYSQL, MARIADB], ids=lambda release: release.kind)
def test_the_upstream_fails_over(
    release: Release, target: str, kafka: Kafka, tmp_path: Path, *, has_lost: bool
) -> None:
    """The server dies, and the connector is sent to its replica.  The bridge asks that one, and goes on; or stops,
    where it lacks what was read from the other one."""
    servers, prefix = kafka.bootstrap_servers, f"fail{time.time_ns()}"
    kind = "mysql-8" if release.kind == "mysql" else "mariadb"
    arguments = [part for topic in make_topics(kafka, prefix) for part in ("--topic", topic)]
    arguments += ["--protocol", "debezium", "--set", f"ddl.source={kind}", "--upstream"]
    reader = Reader(target)
    with (
        upstream_of(release, *(GTIDS if release == MYSQL else ())) as upstream,
        replica_of(upstream, release) as replica,
        DebeziumConnector(
            servers, upstream.port, "bank", prefix, schemas=False, release=release, more=WITH_TRANSACTIONS
        ) as one,
        running(tmp_path, servers, prefix, target, *arguments, replica.url) as process,
    ):
        process.wait_for(lambda: total(target) == TOTAL, "the snapshot", 300)
        reader.start()
        first = Transfers(upstream.url, 3, USUAL)
        first.start()
        process.wait_for(lambda: count(target) > 100, "transactions", 300)
        first.over.set()
        first.join()
        wait_for(lambda: are_equal(upstream.url, replica.url), "the replica is behind", 60)
        sql(replica.url, "STOP REPLICA", "SELECT 1")
        if has_lost:
            sql(upstream.url, "INSERT INTO bank.ledger VALUES (-1, 0)", "SELECT 1")
        process.wait_for(lambda: are_equal(upstream.url, target), "all before", 300)
        upstream.kill()
        second = Transfers(replica.url, 4, USUAL)
        second.done = first.done
        if release == MYSQL:
            second.start()
        stop(one)
        one.ask("config", {"database.port": str(replica.port)})
        one.ask("resume")
        if release == MARIADB:  # the connector refuses a server that has committed something since (3.5.0)
            wait_for(lambda: [task["state"] for task in one.status().get("tasks", ())] == ["RUNNING"], "no task", 60)
            second.start()
        if has_lost:
            process.wait(300)
            assert "does not have all of" in process.last_line
        else:
            process.wait_for(lambda: count(target) > first.done + 100, "transactions of the replica", 300)
        second.over.set()
        second.join()
        if not has_lost:
            process.wait_for(lambda: are_equal(replica.url, target), "the end", 300)
        reader.over.set()
        reader.join()
    assert set(reader.sums) == {TOTAL}


@contextmanager
def replica_of(upstream: MySQL | MariaDB, release: Release) -> Iterator[MySQL | MariaDB]:
    """A server that follows another one by GTIDs."""
    is_mysql = release.kind == "mysql"
    options = [*IN_BINLOG, "--server-id=2", *(GTIDS if is_mysql else ("--log-slave-updates",))]
    with (MySQL if is_mysql else MariaDB)(options=options) as replica:
        follow(replica, upstream)
        yield replica


def follow(replica: MySQL | MariaDB, upstream: MySQL | MariaDB) -> None:
    """Makes a server the replica of another one, whose files it was begun with."""
    if isinstance(replica, MySQL):
        (replica.folder / "data" / "auto.cnf").unlink()
        replica.restart()
        source = f"REPLICATION SOURCE TO SOURCE_HOST='{upstream.host}', SOURCE_PORT={upstream.port}, SOURCE_USER='root'"
        sql(replica.url, f"CHANGE {source}, SOURCE_AUTO_POSITION=1", "START REPLICA", "SELECT 1")
    else:
        source = f"MASTER TO MASTER_HOST='{upstream.host}', MASTER_PORT={upstream.port}, MASTER_USER='root'"
        sql(replica.url, f"CHANGE {source}, MASTER_USE_GTID=slave_pos, MASTER_SSL=0", "START REPLICA", "SELECT 1")


def stop(connector: DebeziumConnector) -> None:
    """Stops it in order."""
    connector.ask("stop")
    wait_for(lambda: connector.status()["connector"]["state"] == "STOPPED", "the connector runs", 60)


def are_equal(one: str, other: str) -> bool:
    """Whether the tables have the same rows; False while one is not there."""
    with suppress(MySQLError):
        return all(contents(one, name) == contents(other, name) for name in TABLES)
    return False


def empty(servers: str, topics: Sequence[str]) -> None:
    """Removes all messages of topics, as `kafka-delete-records.sh` with offset -1 does."""
    kafka = AdminClient({"bootstrap.servers": servers})
    known = kafka.list_topics(timeout=30).topics
    ends = [TopicPartition(topic, number, OFFSET_END) for topic in topics for number in known[topic].partitions]
    for done in kafka.delete_records(ends).values():
        done.result(60)


def total(url: str) -> int | None:
    """The sum on the target, None before there are tables."""
    with suppress(MySQLError):
        return int(sql(url, SUM)[0][0] or 0)
    return None


def contents(url: str, table: str) -> list[str]:
    """The rows of a table."""
    return sorted(map(repr, sql(url, f"SELECT * FROM bank.{table}")))


def count(url: str) -> int:
    """How many entries the ledger has."""
    return int(sql(url, COUNT)[0][0])
