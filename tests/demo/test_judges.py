"""The demo's judges: the watcher of snapshots and the comparison of the end.  They must be able to say no."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from bridge.demo.bank import SCHEMA, Bank
from bridge.demo.compare import compare
from bridge.demo.model import Change, Transaction
from bridge.demo.watcher import Watcher
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target

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
