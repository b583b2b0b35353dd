"""Whatever a sender dates its schema changes by, and wherever it goes on, the target ends as the upstream is.

Random histories of senders whose schema changes are in a partition without the rows, and are dated by when they began:
rows that come before them have later times.  A sender may go on with another server, whose binlog begins anew.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from bridge.errors import AheadOfTargetError, HeldError, RefusedRowsError
from bridge.events import Event, Kind
from bridge.protocols.values.event_time import place_in_binlog, place_in_gtid_set
from bridge.tso import ms_tso
from tests.pipeline.by_partitions.test_sent_again import (
    Sender,
    Stamp,
    Upstream,
    as_sql,
    in_topic,
    messages,
    tables_of,
)
from tests.support.models import FEW, MANY
from tests.support.pipelines import run_all, sql

ONE, TWO = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "00000000-71ca-11e1-9e33-c80aa9429562"
FAILOVER = 9
"""The number of the first event of the other server."""
OUTAGE_MS = 60_000


class ColumnUpstream(Upstream):
    """One in which only columns come and go."""

    def _change_schema(self) -> None:
        if not self.columns:
            super()._change_schema()
        else:
            name = self.random.choice(sorted(self.columns))
            self.random.choice((self._add_column, self._drop_column))(name, [])


def dated(place: Callable[[int, int], str | None]) -> Stamp:
    """Dates events by whole seconds, schema changes by when they began; place: takes the event's number, and its server
    (1, then 2)."""

    def stamp(event: Event, number: int, ms: int) -> Event:
        server = 1 if number < FAILOVER else 2
        began = number * 7919 % 5 * 1000 if event.kind is Kind.SCHEMA_CHANGE else 0
        moment = ms + OUTAGE_MS * (server - 1) - began
        return event._replace(commit_ts=ms_tso(moment // 1000 * 1000), by_time=True, place=place(number, server))

    return stamp


def _file(number: int, server: int, gtid: str | None = None) -> str | None:
    return place_in_binlog("up", f"binlog.{120 if server == 1 else 3:06}", number, server, gtid)


def _sets(number: int, server: int) -> str | None:
    other = f",{TWO}:1-{number - FAILOVER + 1}" if server == 2 else ""
    return place_in_gtid_set(f"{ONE}:1-{min(number, FAILOVER - 1)}{other}")


STEPS = (0, 1, 300, 1500)
SENDERS = {
    "debezium": (Upstream, Sender(dated(_file), STEPS, apart=True)),
    "debezium, mariadb's gtids": (
        Upstream,
        Sender(dated(lambda number, server: _file(number, server, f"0-{server}-{number}")), STEPS, apart=True),
    ),
    "debezium, mysql's gtids": (
        Upstream,
        Sender(
            dated(lambda number, server: _file(number, server, f"{ONE if server == 1 else TWO}:{number}")),
            STEPS,
            apart=True,
        ),
    ),
    "canal, sets of gtids": (Upstream, Sender(dated(_sets), STEPS)),
    "canal without gtids, columns alone": (ColumnUpstream, Sender(dated(lambda *_: None), STEPS)),
}


def interleaved(events: pa.Table, random: Random) -> pa.Table:
    """The messages as they are read when partitions are not read equally fast."""
    waiting = [events.filter(pa.compute.equal(events["partition"], p)) for p in set(events["partition"].to_pylist())]
    parts = []
    while waiting:
        one = random.randrange(len(waiting))
        count = random.randint(1, 9)
        parts.append(waiting[one].slice(0, count))
        waiting[one] = waiting[one].slice(count)
        waiting = [table for table in waiting if table.num_rows]
    return pa.concat_tables(parts)


def check(url: str, name: str, random: Random, *, is_read_together: bool) -> None:
    """One history; a schema change that is read behind rows which come after it may be held, or such a row stops the
    bridge where the target cannot take it yet: started again, it has read the schema change too.  Where only columns
    tell on which side of a schema change a row is, the bridge may stop at such a row."""
    kind, sender = SENDERS[name]
    upstream: Any = kind(random)
    for _ in range(random.randint(5, 30)):
        upstream.happen()
    sql(url, *(f"DROP DATABASE IF EXISTS {schema}" for schema in ("_bridge", "m", "up")), "CREATE DATABASE m")
    sql(url, "CREATE DATABASE up", "USE up", *map(as_sql, upstream.done))
    sent = messages(upstream, sender, random.randint(1, 4), random)
    events = in_topic([one for told in sent for one in told])
    if is_read_together:
        try:
            run_all(url, events, boundary_seconds=60)
        except AheadOfTargetError:
            assert "columns alone" in name
            return
    else:
        read = interleaved(events, random)
        with suppress(HeldError):
            try:
                run_all(url, read, batch=random.choice((1, 3, 10)), boundary_seconds=60)
            except RefusedRowsError:
                run_all(url, read, boundary_seconds=60)
            assert tables_of(url, "m") == tables_of(url, "up")
        return
    assert tables_of(url, "m") == tables_of(url, "up")


@pytest.mark.parametrize("name", SENDERS)
def test_the_end_is_the_upstreams(target: str, name: str) -> None:
    """All of it read together, as by `bridge replay`, or a bridge that catches up."""

    @settings(FEW, max_examples=4)
    @given(number=st.integers(0, 2**32))
    def holds(number: int) -> None:
        check(target, name, Random(number), is_read_together=True)

    holds()


@pytest.mark.parametrize("name", [name for name in SENDERS if "without" not in name])
def test_the_end_is_the_upstreams_or_it_is_held(target: str, name: str) -> None:
    """Partitions are not read equally fast, so that a schema change may come behind rows that it should come before."""

    @settings(FEW, max_examples=4)
    @given(number=st.integers(0, 2**32))
    def holds(number: int) -> None:
        check(target, name, Random(number), is_read_together=False)

    holds()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("is_read_together", [True, False])
@pytest.mark.parametrize("name", SENDERS)
def test_many_histories(target: str, name: str, *, is_read_together: bool) -> None:
    """The same, for longer."""

    @seed(1)
    @settings(MANY, max_examples=300)
    @given(number=st.integers(0, 2**32))
    def holds(number: int) -> None:
        check(target, name, Random(number), is_read_together=is_read_together or "without" in name)

    holds()
