"""What a producer that restarts sends again, rows and schema changes, leaves the target as the upstream is.

Random histories of each sender, sent again from random points, any number of times; the same statements on the same
server, each once, are the upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from bridge.errors import HeldError, SourceError
from bridge.events import NO_PRIMARY_KEY, Event
from bridge.pipeline.order import OrderChanged
from bridge.protocols.values.event_time import place_in_binlog, place_in_gtid_set
from bridge.tso import ms_tso
from tests.support.models import FEW, MANY
from tests.support.pipelines import admin, opened, run_all, sql
from tests.support.upstreams import events_table, row_change, schema_change

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
MAKE = "CREATE TABLE t (id INT PRIMARY KEY)"
Placed = tuple[int, Event]


@dataclass
class Upstream:
    """Tables of ids and values, with the statements that made them what they are.

    columns: of each table, beside `id`.  rows: of each table, the values by id.
    done: what happened, in order: the statements, and the row changes as (table, before, after).
    """

    random: Random
    columns: dict[str, list[str]] = field(default_factory=dict)
    rows: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    done: list[str | tuple[str, list[str], list[int] | None, list[int] | None]] = field(default_factory=list)
    made: int = 0

    def happen(self) -> None:
        """Something random."""
        if self.random.random() < 0.25 or not self.columns:
            self._change_schema()
        else:
            self._change_row()

    def _change_row(self) -> None:
        table = self.random.choice(sorted(self.columns))
        id_, rows = self.random.randrange(6), self.rows[table]
        before = rows.get(id_)
        after = None if before and self.random.random() < 0.3 else [self._number() for _ in self.columns[table]]
        if after is None:
            del rows[id_]
        else:
            rows[id_] = after
        was, now = (None if image is None else [id_, *image] for image in (before, after))
        self.done.append((table, ["id", *self.columns[table]], was, now))

    def _change_schema(self) -> None:
        free = [name for name in ("t", "u", "w") if name not in self.columns]
        if free and (not self.columns or self.random.random() < 0.4):
            name = self.random.choice(free)
            self.columns[name], self.rows[name] = ["v"], {}
            self.done.append(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)")
            return
        name = self.random.choice(sorted(self.columns))
        self.random.choice((self._truncate, self._drop, self._rename, self._swap, self._add_column, self._drop_column))(
            name, free
        )

    def _truncate(self, name: str, _free: Sequence[str]) -> None:
        self.rows[name] = {}
        self.done.append(f"TRUNCATE TABLE {name}")

    def _drop(self, name: str, _free: Sequence[str]) -> None:
        del self.columns[name], self.rows[name]
        self.done.append(f"DROP TABLE {name}")

    def _rename(self, name: str, free: Sequence[str]) -> None:
        if free:
            self._call(name, free[0])
            self.done.append(f"RENAME TABLE {name} TO {free[0]}")

    def _swap(self, name: str, _free: Sequence[str]) -> None:
        other = next((one for one in sorted(self.columns) if one != name), None)
        if other:
            self._call(name, "tmp")
            self._call(other, name)
            self._call("tmp", other)
            self.done.append(f"RENAME TABLE {name} TO tmp, {other} TO {name}, tmp TO {other}")

    def _call(self, name: str, new: str) -> None:
        self.columns[new], self.rows[new] = self.columns.pop(name), self.rows.pop(name)

    def _add_column(self, name: str, _free: Sequence[str]) -> None:
        column = f"c{self._number()}"
        self.columns[name].append(column)
        self.rows[name] = {id_: [*row, 0] for id_, row in self.rows[name].items()}
        self.done.append(f"ALTER TABLE {name} ADD COLUMN {column} INT NOT NULL DEFAULT 0")

    def _drop_column(self, name: str, _free: Sequence[str]) -> None:
        if len(self.columns[name]) > 1:
            at = self.random.randrange(len(self.columns[name]))
            column = self.columns[name].pop(at)
            self.rows[name] = {id_: row[:at] + row[at + 1 :] for id_, row in self.rows[name].items()}
            self.done.append(f"ALTER TABLE {name} DROP COLUMN {column}")

    def _number(self) -> int:
        self.made += 1
        return self.made


Stamp = Callable[[Event, int, int], Event]
"""Gives an event the time and the place that its sender tells: the number of the event, and its moment (ms)."""


@dataclass(frozen=True)
class Sender:
    """How a sender's messages tell their moments, and where its schema changes go.

    stamp: see Stamp.  steps: by how many milliseconds the upstream's clock goes on between two events.
    broadcasts: whether schema changes go to every partition; otherwise to partition 0, without rows if `apart`.
    may_be_held: whether a swap that is sent again within its second waits for the operator, as nothing tells.
    """

    stamp: Stamp
    steps: tuple[int, ...]
    broadcasts: bool = False
    apart: bool = False
    may_be_held: bool = False


def _seconds(ms: int) -> int:
    return ms_tso(ms // 1000 * 1000)


def _debezium(name: str, ts: Callable[[int], int], gtid: str | None = None) -> Stamp:
    def stamp(event: Event, number: int, ms: int) -> Event:
        place = place_in_binlog(name, "binlog.000003", number, 1, gtid and f"{gtid}:{number}")
        return event._replace(commit_ts=ts(ms), by_time=True, place=place)

    return stamp


SENDERS = {
    "debezium of ticdc": Sender(
        lambda event, number, ms: event._replace(commit_ts=ms_tso(ms) + number), (0, 1, 900), broadcasts=True
    ),
    # An event time that is a whole second stands for all of it, so none of these milliseconds is one.
    "canal-json of ticdc": Sender(
        lambda event, _, ms: event._replace(commit_ts=ms_tso(2 * ms + 1), by_time=True), (1, 2, 900, 1000)
    ),
    "debezium, whole seconds": Sender(_debezium("up", _seconds), (0, 1, 300, 1500), apart=True),
    "debezium, milliseconds": Sender(_debezium("up", ms_tso), (1, 1, 300, 1500), apart=True),
    "debezium, gtids": Sender(_debezium("up", _seconds, UUID), (0, 1, 300, 1500), apart=True),
    "canal, gtids": Sender(
        lambda event, number, ms: event._replace(
            commit_ts=_seconds(ms), by_time=True, place=place_in_gtid_set(f"{UUID}:1-{number}")
        ),
        (0, 1, 300, 1500),
    ),
    "canal": Sender(
        lambda event, _, ms: event._replace(commit_ts=_seconds(ms), by_time=True), (1000, 1000, 3000), may_be_held=True
    ),
}


def messages(upstream: Upstream, sender: Sender, partitions: int, random: Random) -> list[list[Placed]]:
    """What the sender makes of each event: the messages, each with its partition."""
    by_key, ms, found = random.random() < 0.5, 1_790_000_000_000, []
    rows = range(1 if sender.apart else 0, partitions + (1 if sender.apart else 0))
    for number, happened in enumerate(upstream.done, 1):
        ms += random.choice(sender.steps)
        if isinstance(happened, str):
            event = schema_change(0, happened, table="")
            told = list(range(partitions if sender.broadcasts else 1))
        else:
            table, columns, before, after = happened
            event = row_change(0, table, columns, ["id"], before=before, after=after)
            key = (after or before or [0])[0] if by_key else 0
            told = [rows[(key + sum(map(ord, table)) * (not by_key)) % partitions]]
        found.append([(partition, sender.stamp(event, number, ms)) for partition in told])
    return found


def sent_again(sent: Sequence[list[Placed]], random: Random) -> Iterator[Placed]:
    """The messages as a producer sends them that restarts now and then, somewhat before where it was."""
    at, restarts = 0, random.randint(1, 4)
    while at < len(sent):
        yield from sent[at]
        at += 1
        if restarts and random.random() < 0.15:
            restarts -= 1
            at = random.randint(0, at)


def in_topic(placed: Sequence[Placed]) -> pa.Table:
    offsets: dict[int, int] = {}
    rows = []
    for partition, event in placed:
        offsets[partition] = offsets.get(partition, -1) + 1
        rows.append((partition, offsets[partition], event))
    return events_table(rows)


def as_sql(happened: Any) -> str:
    """An event of the upstream as its own statement."""
    if isinstance(happened, str):
        return happened
    table, columns, before, after = happened
    if after is None:
        return f"DELETE FROM {table} WHERE id = {before[0]}"
    return f"REPLACE INTO {table} ({', '.join(columns)}) VALUES ({', '.join(map(str, after))})"


def tables_of(url: str, schema: str) -> dict[str, tuple[list[str], list[tuple[Any, ...]]]]:
    """Columns and rows of each table."""
    found = {}
    with admin(url) as session:
        for (name,) in session.rows(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", [schema]
        ):
            columns = [column for column, *_ in session.rows(f"SHOW COLUMNS FROM {schema}.{name}")]
            found[name] = columns, sorted(session.rows(f"SELECT * FROM {schema}.{name}"))
    return found


def run_until_killed(url: str, events: pa.Table, end: int, batch: int) -> None:
    """Applies what may be applied of the first events, and ends as a process that is killed."""
    partitions = sorted(set(zip(events["topic"].to_pylist(), events["partition"].to_pylist(), strict=True)))
    has_changed = True
    while has_changed:
        with opened(url, partitions, boundary_seconds=0) as pipeline:
            starts = pipeline.applier.order.positions
            names = ("topic", "partition", "offset")
            placed = zip(*(events[name].to_pylist()[:end] for name in names), strict=True)
            rest = events.slice(0, end).filter(pa.array([at >= starts[t, p].offset for t, p, at in placed], pa.bool_()))
            try:
                for start in range(0, rest.num_rows, batch):
                    pipeline.take(rest.slice(start, batch))
                has_changed = False
            except OrderChanged:
                has_changed = True


def check(url: str, name: str, random: Random) -> pa.Table | None:
    """One history: the target ends as the upstream, whatever was sent again, and wherever the bridge restarted.

    Gives its events; None where the bridge waits for the operator.
    """
    sender, upstream, partitions = SENDERS[name], Upstream(random), random.randint(1, 3)
    for _ in range(random.randint(5, 30)):
        upstream.happen()
    sql(url, *(f"DROP DATABASE IF EXISTS {schema}" for schema in ("_bridge", "m", "up")), "CREATE DATABASE m")
    sql(url, "CREATE DATABASE up", "USE up", *map(as_sql, upstream.done))
    placed = list(sent_again(messages(upstream, sender, partitions, random), random))
    events = in_topic(placed)
    ends = sorted(random.sample(range(1, events.num_rows), min(2, events.num_rows - 1)))
    try:
        for end in ends:
            run_until_killed(url, events, end, batch=random.choice((1, 3, 100)))
        run_all(url, events, batch=random.choice((1, 3, 100)), boundary_seconds=0)
    except HeldError as held:
        if sender.may_be_held and "nothing in the message tells" in held.what:
            return None
        raise
    assert tables_of(url, "m") == tables_of(url, "up")
    return events


@pytest.mark.parametrize("sender", SENDERS)
def test_what_is_sent_again_changes_nothing(target: str, sender: str) -> None:
    """Schema changes run once, rows of before them are left out, later rows come right at the end of the copies."""

    @settings(FEW, max_examples=4)
    @given(number=st.integers(0, 2**32))
    def holds(number: int) -> None:
        check(target, sender, Random(number))

    holds()


def _of_two_servers(event: Event, number: int, ms: int, shared: int = 2) -> Event:
    """As of Canal with GTIDs behind a failover, to a server that has the first transactions of the old one."""
    gtids = f"{UUID}:1-{number}" if number < 3 else f"00{UUID[2:]}:1-{number - 2},{UUID}:1-{shared}"
    return event._replace(commit_ts=_seconds(ms), by_time=True, place=place_in_gtid_set(gtids))


@pytest.mark.parametrize(
    "stamp", [*(SENDERS[name].stamp for name in ("debezium, whole seconds", "canal, gtids")), _of_two_servers]
)
def test_rows_without_a_key(target: str, stamp: Stamp) -> None:
    """Where files and positions tell, or GTIDs, they do not double, and deleting one again stops nothing, wherever the
    bridge was killed."""
    told = [([1], None), ([1], None), ([2], None), (None, [2]), ([3], None)]
    rows = [
        stamp(row_change(0, "k", ["a"], [], before=before, after=after), number, 1_790_000_000_000)
        for number, (after, before) in enumerate(told, 1)
    ]
    sent = [*rows[:4], *rows[1:4], *rows[:5], *rows[2:], *rows[3:]]
    events = in_topic([(0, event) for event in sent])
    for cut in range(1, len(sent)):
        sql(target, *(f"DROP DATABASE IF EXISTS {schema}" for schema in ("_bridge", "m")), "CREATE DATABASE m")
        sql(target, "CREATE TABLE m.k (a INT)")
        run_until_killed(target, events, cut, batch=2)
        run_all(target, events, batch=3, rows_per_transaction=1)
        assert sql(target, "SELECT a FROM m.k ORDER BY a") == [(1,), (1,), (3,)], cut


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        *((name, 1) for name in SENDERS),
        *((name, 0) for name in SENDERS if name.startswith("debezium,") or "gtids" in name),
    ],
)
def test_rows_that_come_first_behind_a_schema_change(target: str, name: str, seconds: int) -> None:
    """A sender was killed when it had sent a schema change, and not all rows before it, and was away for so long that
    the change ran: such a row would be left out, or stay in a table that was emptied.  seconds: behind the first row;
    in the same one only places tell.  The partition has shown rows before, or none at all."""
    stamp, since = SENDERS[name].stamp, 1_790_000_000_000
    first, second = (
        stamp(row_change(0, "t", ["id"], ["id"], after=[number]), number, since + (number - 1) * seconds * 1000)
        for number in (1, 2)
    )
    change = stamp(schema_change(0, "TRUNCATE TABLE t"), 3, since + 3 * seconds * 1000)
    for sent, again in (([(1, first), (0, change)], [first, second]), ([(0, change)], [second])):
        stops_at_the_first(target, sent, [(1, row) for row in again])


def test_rows_that_come_first_though_dated_later(target: str) -> None:
    """A schema change has the time of its start.  One that waited for rows is behind them by its place alone; where the
    bridge was started anew since, that may be one of a binlog that began anew."""
    since, partitions = 1_790_000_000_000, [("cdc", 0), ("cdc", 1)]
    for name, has_first in product(("debezium, whole seconds", "debezium, gtids", "canal, gtids"), (True, False)):
        stamp = SENDERS[name].stamp
        rows = [(1, stamp(row_change(0, "t", ["id"], ["id"], after=[n]), n, since + 1000 * n)) for n in (1, 2)]
        change, made = (
            stamp(schema_change(0, "TRUNCATE TABLE t"), 3, since),
            stamp(schema_change(0, MAKE), 0, since - 9000),
        )
        texts = ("DROP DATABASE IF EXISTS _bridge", "DROP DATABASE IF EXISTS m", "CREATE DATABASE m")
        sql(target, *texts)
        events = in_topic([(0, made), *rows[:has_first], (0, change), *rows[not has_first :]])
        run_all(target, events.slice(0, 1), partitions=partitions, boundary_seconds=0)
        with opened(target, partitions, boundary_seconds=0, writers=2 * has_first) as pipeline:
            for at in range(1, events.num_rows - 1):
                pipeline.take(events.slice(at, 1))
            pipeline.applier.tick()
            assert pipeline.changes_run == 1
            with pytest.raises(SourceError, match="before a schema change that has run already"):
                pipeline.take(events.slice(events.num_rows - 1))
        assert sql(target, "SELECT * FROM m.t") == []


def stops_at_the_first(target: str, sent: list[Placed], again: list[Placed]) -> None:
    """The bridge stops at the last row of what was sent again, and the table stays empty."""
    sql(target, *(f"DROP DATABASE IF EXISTS {schema}" for schema in ("_bridge", "m")), "CREATE DATABASE m")
    sql(target, "CREATE TABLE m.t (id INT PRIMARY KEY)")
    events = in_topic([*sent, *again])
    options: dict[str, Any] = {"batch": 1, "boundary_seconds": 0, "partitions": [("cdc", 0), ("cdc", 1)]}
    run_all(target, events.slice(0, len(sent)), **options)
    assert sql(target, "SELECT * FROM m.t") == []
    with pytest.raises(SourceError, match="before a schema change that has run already"):
        run_all(target, events, **options)
    assert sql(target, "SELECT * FROM m.t") == []


def test_rows_that_come_first_behind_what_takes_nothing(target: str) -> None:
    """They end as upstream behind a column that was added, so that nothing stops; not where it takes rows as well."""
    since, stamp = 1_790_000_000_000, SENDERS["debezium, whole seconds"].stamp
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY)")
    row = stamp(row_change(0, "t", ["id"], ["id"], after=[1]), 2, since + 1000)
    texts = {1: "TRUNCATE TABLE t", 3: "ALTER TABLE t ADD COLUMN n INT DEFAULT 7, ADD INDEX (n)"}
    changes = [(0, stamp(schema_change(0, text), at, since + 1000 * at)) for at, text in texts.items()]
    events = in_topic([*changes, (1, row)])
    for end in (2, 3):
        run_all(target, events.slice(0, end), boundary_seconds=0, partitions=[("cdc", 0), ("cdc", 1)])
    assert sql(target, "SELECT * FROM m.t") == [(1, 7)]


def test_rows_of_a_server_that_lost_the_last_transaction(target: str) -> None:
    """The set of its GTIDs is no part of what is in the target: its rows are not taken for rows sent again, though they
    are of the same second."""
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.k (a INT)")
    rows = [
        _of_two_servers(row_change(0, "k", ["a"], [NO_PRIMARY_KEY], after=[a]), number, 1_790_000_000_000, shared=1)
        for a, number in ((1, 1), (2, 2), (3, 3), (4, 3), (5, 4))
    ]
    with capture_logs() as said:
        for cut in range(1, 6):
            run_until_killed(target, in_topic([(0, event) for event in rows]), cut, batch=2)
    assert [line["table"] for line in said if line["event"] == "rows_may_be_twice"] == ["m.k"]
    assert sql(target, "SELECT a FROM m.k ORDER BY a") == [(1,), (2,), (3,), (4,), (5,)]


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("sender", SENDERS)
def test_many_histories(target: str, sender: str) -> None:
    """The same, for longer."""

    @seed(1)
    @settings(MANY, max_examples=300)
    @given(number=st.integers(0, 2**32))
    def holds(number: int) -> None:
        check(target, sender, Random(number))

    holds()
