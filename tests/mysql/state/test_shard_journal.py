"""What the journal of a pipeline says of its shards, read as schema changes come."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from bridge.config import Settings
from bridge.ddl.by_table.shards import ShardStatement, ShardVerdict, shard_statement
from bridge.model import SchemaChange
from bridge.mysql.connection.session import Session
from bridge.mysql.state.ddl_journal import Journal, JournalState, ShardJournal
from bridge.mysql.state.progress import ProgressTable
from tests.support.pipelines import admin

ROUTES = Settings(route=("s?.t => s.t", "s?.u => s.u")).table_routes
TEXTS = (
    *("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)"),
    *(f"ALTER TABLE {table} ADD COLUMN {column} INT" for table in "tu" for column in "ab"),
)
FATES = (JournalState.DONE, JournalState.CONFIRMED, JournalState.SKIPPED, JournalState.IGNORED)


@pytest.fixture
def session(target: str) -> Iterator[Session]:
    """A session on a server with the bridge's own tables."""
    with admin(target) as session:
        ProgressTable("bridge").create(session)
        yield session


class Counting:
    """A session that counts the rows that it gives."""

    def __init__(self, session: Session) -> None:
        self._session, self.count = session, 0

    def rows(self, sql: str, args: Any = ()) -> list[tuple[Any, ...]]:
        """Those of a query."""
        found = self._session.rows(sql, args)
        self.count += len(found)
        return found


def change(ts: int, shard: str, text: str) -> SchemaChange:
    """A schema change of a shard."""
    return SchemaChange(ts, shard, "", text, f"x/0/{ts}")


def statement(one: SchemaChange) -> ShardStatement:
    """What is read of it."""
    found = shard_statement(one.text, one.schema, ROUTES)
    assert found is not None
    return found


def test_each_row_is_read_once(session: Session) -> None:
    """However many schema changes come: the last ones take no longer than the first."""
    journal, counting = Journal("bridge", "_bridge"), Counting(session)
    shards = ShardJournal(journal, ROUTES)
    changes = [change(10 + n, f"s{n % 5}", f"ALTER TABLE t ADD COLUMN c{n // 5} INT") for n in range(100)]
    for number, one in enumerate(changes):
        shards.begin(one)
        ruling = shards.ruling(counting, statement(one))  # type: ignore[arg-type]
        is_first = number % 5 == 0
        assert ruling.verdict is (ShardVerdict.RUN if is_first else ShardVerdict.CONFIRM)
        journal.record(session, one, JournalState.DONE if is_first else JournalState.CONFIRMED)
    assert counting.count < 3 * len(changes)


@pytest.mark.parametrize("seed", range(12))
def test_it_rules_as_it_would_after_a_restart(session: Session, seed: int) -> None:
    """Whatever the order in which schema changes come, and when the target goes back, so that some come again."""
    random, journal = Random(seed), Journal("bridge", "_bridge")
    shards, ts, ran = ShardJournal(journal, ROUTES), 100, list[SchemaChange]()
    coming: list[SchemaChange] = []
    for number in range(100):
        if random.random() < 0.1:
            lost, ran = ran[-3:], ran[:-3]
            coming = lost + coming
            for one in lost:
                session.execute("DELETE FROM _bridge.schema_changes WHERE statement_hash = %s AND commit_ts = %s",
                                (one.statement_hash, one.commit_ts))  # fmt: skip
        ts += random.choice((0, 1, 1, 1, -3))
        one = coming.pop(0) if coming else change(ts, f"s{random.randrange(3)}", random.choice(TEXTS))
        if journal.find(session, one) is not None:
            continue
        shards.begin(one)
        if random.random() < 0.8:  # others are left out, or make the merged table
            fresh = ShardJournal(journal, ROUTES).ruling(session, statement(one))
            assert shards.ruling(session, statement(one)) == fresh
        journal.record(session, one, random.choice(FATES))
        ran.append(one)
        session.execute(
            "UPDATE _bridge.schema_changes SET started_at = FROM_UNIXTIME(%s) WHERE statement_hash = %s"
            " AND commit_ts = %s",
            (1_700_000_000 + number, one.statement_hash, one.commit_ts),
        )
