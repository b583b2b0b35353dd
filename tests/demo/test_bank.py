"""The bank of the demo: what it promises to the demo, to tests and to benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.demo.bank import LEDGER, SCHEMA, Bank
from bridge.demo.model import (
    BankSchemaChange,
    BankStep,
    Transaction,
)
from bridge.tso import ms_tso

START_MS = 1_700_000_000_000
seeds = st.integers(0, 2**32)


def life(bank: Bank, transfers: int = 150) -> Iterator[BankStep]:
    """A bank's steps, with a new column after a third of the transfers and a new table after two."""
    yield from bank.schema()
    for i in range(transfers):
        if i == transfers // 3:
            yield bank.add_column()
        if i == 2 * transfers // 3:
            yield bank.create_table()
        yield bank.transfer()


def steps_of(seed: int, transfers: int = 150, accounts: int = 20) -> list[BankStep]:
    return list(life(Bank(seed, accounts=accounts, start_ms=START_MS), transfers))


@given(seeds)
@settings(max_examples=10, deadline=None)
def test_a_transaction_has_two_to_ten_rows_in_several_tables(seed: int) -> None:
    """No row stands twice in a transaction, but as the delete and the insert of a changed unique key."""
    for step in steps_of(seed, transfers=400):
        if isinstance(step, Transaction):
            assert 2 <= len(step.changes) <= 10
            assert len({change.shape.name for change in step.changes}) > 1
            removed = [(c.shape.name, c.shape.key_of(c.before)) for c in step.changes if c.before is not None]
            written = [(c.shape.name, c.shape.key_of(c.after)) for c in step.changes if c.after is not None]
            assert len(set(removed)) == len(removed)
            assert len(set(written)) == len(written)


def test_every_kind_of_change_occurs() -> None:
    """Inserts, updates and deletes in every table of accounts, exchanged numbers, accounts in the new table."""
    steps = steps_of(1, transfers=2000, accounts=40)
    changes = [change for step in steps if isinstance(step, Transaction) for change in step.changes]
    kinds = {(c.shape.name, c.before is not None, c.after is not None) for c in changes}
    accounts = {"checking", "savings", "brokerage", "pension"}
    assert kinds >= {(name, *kind) for name in accounts for kind in ((False, True), (True, True), (True, False))}
    assert kinds >= {(LEDGER, False, True), (LEDGER, True, False)}
    noted = [c.after for c in changes if c.shape.name == "checking" and "note" in c.shape.at and c.after]
    assert len({row[-1] for row in noted}) > 3


def test_the_clock_only_goes_forward() -> None:
    """commit_ts rise from the start on; some share a millisecond; a boundary is never above a later step."""
    bank = Bank(7, accounts=20, start_ms=START_MS)
    stamps = [change.commit_ts for change in bank.schema()]
    stamps += [bank.transfer().commit_ts for _ in range(100)]
    for _ in range(100):
        boundary = bank.boundary()
        stamps.append(bank.transfer().commit_ts)
        assert stamps[-2] < boundary <= stamps[-1]
    assert all(one < other for one, other in pairwise(stamps))
    assert stamps[0] > ms_tso(START_MS)
    assert any(one >> 18 == other >> 18 for one, other in pairwise(stamps))
    bank.advance_to(START_MS + 3_600_000)
    bank.advance_to(START_MS)
    assert bank.boundary() <= bank.transfer().commit_ts < ms_tso(START_MS + 3_600_002)


def test_the_same_seed_gives_the_same_steps() -> None:
    assert steps_of(3) == steps_of(3)
    assert steps_of(3) != steps_of(4)


def test_schema_changes_name_their_table() -> None:
    """The statements as TiDB prints them, unqualified."""
    statements = {
        change.shape.name if change.shape else "": change.statement
        for change in steps_of(1)
        if isinstance(change, BankSchemaChange)
    }
    assert statements[""] == f"CREATE DATABASE `{SCHEMA}`"
    assert statements["checking"] == "ALTER TABLE `checking` ADD COLUMN `note` VARCHAR(60) DEFAULT _UTF8MB4'none'"
    assert statements["savings"] == (
        "CREATE TABLE `savings` (`id` BIGINT PRIMARY KEY,`iban` VARCHAR(34) NOT NULL UNIQUE KEY,"
        "`balance` BIGINT NOT NULL,`moves` INT NOT NULL)"
    )


def test_a_bank_needs_accounts() -> None:
    with pytest.raises(ValueError, match="10 accounts"):
        Bank(1, accounts=9)
