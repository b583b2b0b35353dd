"""The demo's judges: the watcher of snapshots and the comparison of the end.  They must be able to say no."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from bridge.demo import run
from bridge.demo.bank import SCHEMA, Bank
from bridge.demo.compare import ComparedTable, compare
from bridge.demo.model import Change, Transaction
from bridge.demo.result import DemoResult
from bridge.demo.watcher import Watcher
from bridge.exits import INTERRUPTED
from bridge.local import Kafka
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from tests.support.command import Process, bridge
from tests.support.pipelines import sql
from tests.support.producers import ordered_producer

WAIT_SECONDS = 30.0


class Copy:
    """A target that is written by hand."""

    def __init__(self, session: Session, watcher: Watcher) -> None:
        self.session, self.watcher = session, watcher
        self.bank = Bank(1, accounts=20, start_ms=1_700_000_000_000)
        session.execute(f"CREATE DATABASE {SCHEMA}")
        session.execute(f"USE {SCHEMA}")
        for change in self.bank.schema()[1:]:
            session.execute(change.statement)

    def transfer(self) -> Transaction:
        """The bank's next transaction; not yet in the target."""
        transaction = self.bank.transfer()
        self.watcher.expect(transaction)
        return transaction

    def write(self, changes: tuple[Change, ...]) -> None:
        """One target transaction."""
        for shape, before, _ in changes:
            if before is not None:
                where = f"{shape.name} WHERE {shape.handle.name} = %s"
                assert self.session.execute(f"DELETE FROM {where}", (shape.key_of(before),)) == 1
        for shape, _, after in changes:
            if after is not None:
                self.session.execute(f"INSERT INTO {shape.name} VALUES ({','.join(['%s'] * len(after))})", after)
        self.session.commit()

    def looked_at(self) -> None:
        """Waits until the watcher has begun and ended a look since now."""
        seen, until = self.watcher.snapshots, time.monotonic() + WAIT_SECONDS
        while self.watcher.snapshots < seen + 2:
            self.watcher.check()
            assert time.monotonic() < until
            time.sleep(0.01)


@pytest.fixture
def copy(target: str) -> Iterator[Copy]:
    session = Target(target).connect()
    try:
        with Watcher(Target(target)) as watcher:
            yield Copy(session, watcher)
    finally:
        session.close()


def test_true_states_are_no_violations(copy: Copy) -> None:
    """Whole transactions, one or several at a time, an ALTER TABLE and a CREATE TABLE: all as it should be."""
    for i in range(40):
        copy.write(copy.transfer().changes)
        if i % 8 == 0:
            copy.looked_at()
        if i == 20:
            copy.session.execute(copy.bank.add_column().statement)
            copy.session.execute(copy.bank.create_table().statement)
    copy.looked_at()
    assert copy.watcher.first_violations == []
    assert copy.watcher.violations == 0
    assert [table.difference for table in compare(copy.session, SCHEMA, copy.bank.tables)] == [""] * 5


def test_half_a_transaction_is_a_violation(copy: Copy) -> None:
    """Whichever half of it."""
    for _ in range(5):
        copy.write(copy.transfer().changes)
    copy.looked_at()
    assert copy.watcher.violations == 0
    changes = copy.transfer().changes
    copy.write(changes[:1])
    copy.looked_at()
    assert copy.watcher.violations >= 1
    copy.write(changes[1:])
    copy.looked_at()
    after = copy.watcher.violations
    copy.looked_at()
    assert copy.watcher.violations == after


def test_going_back_in_time_is_a_violation(copy: Copy) -> None:
    """A state that the upstream had, but before one that was seen already."""
    for _ in range(5):
        copy.write(copy.transfer().changes)
    last = copy.transfer().changes
    copy.write(last)
    copy.looked_at()
    assert copy.watcher.violations == 0
    copy.write(tuple(Change(shape, after, before) for shape, before, after in last))
    copy.looked_at()
    assert copy.watcher.violations >= 1


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("UPDATE checking SET balance = balance + 1 ORDER BY id LIMIT 1", "1 rows are missing"),
        ("DELETE FROM savings ORDER BY id LIMIT 1", "1 rows are missing"),
        ("INSERT INTO ledger VALUES (999999, 1, NOW(3), NULL)", "1 are extra"),
        ("ALTER TABLE ledger ADD COLUMN surplus INT", "its columns are"),
        ("DROP TABLE brokerage", "doesn't exist"),
        ("CREATE TABLE surplus (id INT PRIMARY KEY)", "the upstream has no such table"),
    ],
)
def test_every_damage_is_a_difference(copy: Copy, damage: str, words: str) -> None:
    """Only in the table that has it."""
    for _ in range(10):
        copy.write(copy.transfer().changes)
    copy.session.execute(damage)
    copy.session.commit()
    differences = [table.difference for table in compare(copy.session, SCHEMA, copy.bank.tables) if table.difference]
    assert len(differences) == 1
    assert words in differences[0]


GOOD = DemoResult(
    tables=(ComparedTable("ledger", 200, ""),),
    transactions=10,
    schema_changes=7,
    row_changes=1000,
    sending_seconds=2.0,
    kills=1,
    snapshots=5,
    violations=0,
    first_violations=(),
    latency=None,
    verified="equal after 1 s",
    seconds=60.0,
)
BAD = {
    "no table": replace(GOOD, tables=()),
    "a table": replace(GOOD, tables=(ComparedTable("ledger", 200, "1 rows are missing"),)),
    "no verify": replace(GOOD, verified=""),
    "no snapshot": replace(GOOD, snapshots=0),
    "a torn snapshot": replace(GOOD, violations=1, first_violations=("money was made",)),
}


def test_a_good_end(capsys: pytest.CaptureFixture[str]) -> None:
    """All facts, and nothing on stderr; the document holds the same."""
    GOOD.print()
    said = capsys.readouterr()
    assert ("result          equal" in said.out, said.err) == (True, "")
    assert "1,000, 500 a second" in said.out
    document = json.loads(json.dumps(GOOD.document()))
    assert (document["result"], document["tables"][0]["rows"], document["latency"]) == ("equal", 200, None)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_end(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Whatever was not as it should be."""
    BAD[name].print()
    said = capsys.readouterr()
    assert "result          NOT EQUAL" in said.out
    assert BAD[name].document()["result"] == "NOT EQUAL"
    assert bool(said.err) == (name in {"a table", "a torn snapshot"})


class _SignalledWhenFinalised:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_while_an_object_is_finalised_is_not_lost() -> None:
    """Python throws away what a finaliser raises: the next wait raises it again."""
    with run.interruptible() as interruption:
        _SignalledWhenFinalised()
        with pytest.raises(run.DemoInterrupted):
            interruption.check()


def test_an_error_that_a_signal_became_is_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """librdkafka raises an error of its own where a signal interrupts one of its callbacks."""

    def replaced(*_: object, **__: object) -> int:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except run.DemoInterrupted:
            raise KafkaException("a callback failed") from None
        return 0

    monkeypatch.setattr(run, "_run", replaced)
    assert run.run_demo() == INTERRUPTED
    assert capsys.readouterr().err.endswith("interrupted; everything is stopped\n")


def test_a_second_signal_does_not_interrupt_the_clean_up() -> None:
    """Only the first signal raises."""
    with run.interruptible() as interruption:
        with pytest.raises(run.DemoInterrupted):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert interruption.has_come


PROGRAM = (sys.executable, "-m", "bridge.demo")


def sent(kafka: Kafka, topic: str, folder: Path) -> None:
    """Runs the producer until it has sent something, and stops it as `docker compose down` does."""
    arguments = ("--bootstrap-servers", kafka.bootstrap_servers, "--topic", topic)
    with Process(folder, *arguments, program=PROGRAM) as producer:
        producer.says("sending to the topic")
        producer.signal(signal.SIGTERM)
        assert producer.wait() == 0, producer.end_of_log


@pytest.mark.usefixtures("spark")
def test_a_trial_that_is_started_again_goes_on(
    kafka: Kafka, topic: Callable[..., str], target: str, tmp_path: Path
) -> None:
    """The bank opens anew in the same topic, and the bridge follows."""
    name = topic(3)
    replay = ("replay", "--bootstrap-servers", kafka.bootstrap_servers, "--topic", name, "--target", target)
    for _ in range(2):
        sent(kafka, name, tmp_path)
        ended = bridge(*replay)
        assert ended.code == 0, ended.err
        assert sql(target, "SELECT SUM(balance) FROM bank.checking")[0][0] is not None
    ran = sql(target, "SELECT COUNT(*) FROM _bridge.schema_changes WHERE statement LIKE 'CREATE DATABASE%'")
    assert ran == [(2,)]


def test_a_topic_of_somebody_else_is_left_alone(kafka: Kafka, topic: Callable[..., str], tmp_path: Path) -> None:
    """Whoever reads their own topic with the trial finds nothing of the bank in it."""
    name = topic(1)
    producer = ordered_producer(kafka.bootstrap_servers)
    producer.produce(name, b"{}")
    assert producer.flush(60) == 0
    arguments = ("--bootstrap-servers", kafka.bootstrap_servers, "--topic", name)
    for _ in range(2):
        with Process(tmp_path, *arguments, program=PROGRAM) as process:
            assert process.wait() == 0
            assert f"the topic {name} has messages of somebody else" in process.log
