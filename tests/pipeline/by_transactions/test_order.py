"""Whole transactions of a real connector (golden/debezium-restarts) on servers: every state that a reader sees is one
that the upstream had, wherever the bridge dies."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bridge.mysql.connection.session import Session
from bridge.spark.decoded_batch import DecodedBatch
from tests.pipeline.by_transactions.feeding import Feed
from tests.pipeline.test_crash_points import bank_total
from tests.support.dying import Died, DyingAtNumber
from tests.support.pipelines import admin, decoded, opened
from tests.support.selection import some_of

PREFIX = "nextring-bank-json-64504"
TOPIC = (f"{PREFIX}.transaction", 0)
TOTALS = {None, 60_000, 120_000, 180_000}
"""The accounts open in three transactions."""


@pytest.fixture(scope="module")
def events(real_senders: Path) -> pa.Table:
    """All messages, in the order in which Kafka took them."""
    return decoded(real_senders / "debezium-restarts" / "bank.jsonl", "debezium", transactions=True)


def rows_there(session: Session, expected: dict[str, object]) -> dict[str, list[list[str]]]:
    """The rows of the tables, as the capture's end state has them."""
    found = {}
    for name, table in expected.items():
        columns = ", ".join(f"CAST({column['expr']} AS CHAR)" for column in table["columns"])  # type: ignore[index]
        found[name] = sorted([str(value) for value in row] for row in session.rows(f"SELECT {columns} FROM {name}"))
    return found


def run(url: str, feed: Feed, trace: Callable[[str], None], **options: Any) -> None:
    """One process from where progress says to the end."""
    with opened(url, feed.partitions, trace=trace, transactions=TOPIC, ends=feed.sent, **options) as pipeline:
        order = pipeline.applier.order
        feed.begin({where: start.offset for where, start in order.positions.items()})
        while (batch := feed.next()) is not None:
            pipeline.applier.take(DecodedBatch.of(batch.events, batch.ends))
        pipeline.applier.finish()


@pytest.fixture
def end_state(real_senders: Path) -> dict[str, object]:
    """The upstream's tables at the end."""
    text = (real_senders / "debezium-restarts" / "bank.expected.json").read_text(encoding="utf-8")
    tables: dict[str, object] = json.loads(text)["tables"]
    return tables


def as_expected(tables: dict[str, object]) -> dict[str, list[list[str]]]:
    """Its rows."""
    return {name: sorted(map(list, table["rows"])) for name, table in tables.items()}  # type: ignore[index]


class Reader:
    """Looks at the bank whenever the bridge does anything, but for the midst of a step of `parallel`."""

    def __init__(self, session: Session, inner: Callable[[str], None] = lambda _: None) -> None:
        self._session, self._inner, self.totals = session, inner, list[int | None]()
        self._alone = threading.Lock()

    def __call__(self, step: str) -> None:
        with self._alone:  # several connections write
            self._session.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            self.totals.append(bank_total(self._session, "(SELECT applied_ts = applying_ts FROM _bridge.progress)"))
            self._session.rollback()
        self._inner(step)


@pytest.fixture
def session(request: pytest.FixtureRequest, server: str) -> Iterator[Session]:
    """A reader's session."""
    with admin(request.getfixturevalue(server)) as one:
        yield one


@pytest.mark.parametrize("server", ["target", "mysql_target"])
@pytest.mark.parametrize("seed", some_of([1, 2, 3], 1))
def test_every_state_is_one_of_the_upstream(
    server: str,
    request: pytest.FixtureRequest,
    session: Session,
    events: pa.Table,
    end_state: dict[str, object],
    seed: int,
) -> None:
    """Whatever partition is read ahead of others, in whatever micro-batches, while messages are still being sent."""
    url, draw = request.getfixturevalue(server), random.Random(seed)
    reader = Reader(session)
    run(url, Feed(events, draw), reader, rows_per_transaction=50)
    assert set(reader.totals) <= TOTALS
    assert rows_there(session, end_state) == as_expected(end_state)


@pytest.mark.parametrize(
    ("server", "writers"),
    [
        *(("target", 3), ("mysql_target", 0)),
        *(pytest.param(*case, marks=pytest.mark.soak) for case in (("target", 0), ("mysql_target", 3))),
    ],
)
def test_a_bridge_that_dies_again_and_again(
    server: str,
    writers: int,
    request: pytest.FixtureRequest,
    session: Session,
    events: pa.Table,
    end_state: dict[str, object],
) -> None:
    """Each process dies a few steps further on; the next one goes on from the target alone."""
    url, draw, reader, deaths = request.getfixturevalue(server), random.Random(7), Reader(session), 0
    for _ in range(400):
        reader = Reader(session, DyingAtNumber(draw.randint(1, 60 * (1 + writers))))  # each has steps of its own
        with suppress(Died):
            run(
                url,
                Feed(events, draw),
                reader,
                rows_per_transaction=draw.choice([10, 50]),
                take_over=True,
                writers=writers,
            )
            break
        deaths += 1
        assert set(reader.totals) <= TOTALS
    assert deaths > 8
    assert rows_there(session, end_state) == as_expected(end_state)
