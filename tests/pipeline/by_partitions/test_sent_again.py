"""What a producer that restarts sends again, rows and schema changes, leaves the target as the upstream is.

Random histories of each sender are in tests/generated/test_senders.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from bridge.errors import ApplyError, SchemaChangeError, SourceError
from bridge.events import NO_PRIMARY_KEY
from bridge.pipeline.order import OrderChanged
from bridge.protocols.values.event_time import place_in_binlog, place_in_gtid_set, place_of_sending
from bridge.tso import ms_tso
from tests.support.pipelines import opened, run_all, sql
from tests.support.upstreams import Change, events_table, row_change, schema_change

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
MAKE = "CREATE TABLE t (id INT PRIMARY KEY)"
Placed = tuple[int, Change]


Stamp = Callable[[Change, int, int], Change]
"""Gives an event the time and the place that its sender tells: the number of the event, and its moment (ms)."""


def _seconds(ms: int) -> int:
    return ms_tso(ms // 1000 * 1000)


def _debezium(name: str, ts: Callable[[int], int], gtid: str | None = None) -> Stamp:
    def stamp(event: Change, number: int, ms: int) -> Change:
        place = place_in_binlog(name, "binlog.000003", number, 1, gtid and f"{gtid}:{number}")
        return event._replace(commit_ts=ts(ms), by_time=True, place=place)

    return stamp


STAMPS: dict[str, Stamp] = {
    "debezium of ticdc": lambda event, number, ms: event._replace(commit_ts=ms_tso(ms) + number),
    # An event time that is a whole second stands for all of it, so none of these milliseconds is one.
    "canal-json of ticdc": lambda event, _, ms: event._replace(commit_ts=ms_tso(2 * ms + 1), by_time=True),
    "debezium, whole seconds": _debezium("up", _seconds),
    "debezium, milliseconds": _debezium("up", ms_tso),
    "debezium, gtids": _debezium("up", _seconds, UUID),
    "canal, gtids": lambda event, number, ms: event._replace(
        commit_ts=_seconds(ms), by_time=True, place=place_in_gtid_set(f"{UUID}:1-{number}")
    ),
    "canal": lambda event, _, ms: event._replace(commit_ts=_seconds(ms), by_time=True),
}
"""How each sender's messages tell their moments."""


def in_topic(placed: Sequence[Placed]) -> pa.Table:
    offsets: dict[int, int] = {}
    rows = []
    for partition, event in placed:
        offsets[partition] = offsets.get(partition, -1) + 1
        rows.append((partition, offsets[partition], event))
    return events_table(rows)


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


def _of_two_servers(event: Change, number: int, ms: int, shared: int = 2) -> Change:
    """As of Canal with GTIDs behind a failover, to a server that has the first transactions of the old one."""
    gtids = f"{UUID}:1-{number}" if number < 3 else f"00{UUID[2:]}:1-{number - 2},{UUID}:1-{shared}"
    return event._replace(commit_ts=_seconds(ms), by_time=True, place=place_in_gtid_set(gtids))


@pytest.mark.parametrize(
    "stamp", [*(STAMPS[name] for name in ("debezium, whole seconds", "canal, gtids")), _of_two_servers]
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
        *((name, 1) for name in STAMPS),
        *((name, 0) for name in STAMPS if name.startswith("debezium,") or "gtids" in name),
    ],
)
def test_rows_that_come_first_behind_a_schema_change(target: str, name: str, seconds: int) -> None:
    """A sender was killed when it had sent a schema change, and not all rows before it, and was away for so long that
    the change ran: such a row would be left out, or stay in a table that was emptied.  seconds: behind the first row;
    in the same one only places tell.  The partition has shown rows before, or none at all."""
    stamp, since = STAMPS[name], 1_790_000_000_000
    first, second = (
        stamp(row_change(0, "t", ["id"], ["id"], after=[number]), number, since + (number - 1) * seconds * 1000)
        for number in (1, 2)
    )
    change = stamp(schema_change(0, "TRUNCATE TABLE t"), 3, since + 3 * seconds * 1000)
    for sent, again in (([(1, first), (0, change)], [first, second]), ([(0, change)], [second])):
        stops_at_the_first(target, sent, [(1, row) for row in again])


@pytest.mark.parametrize("is_restarted", [False, True])
def test_rows_that_come_first_though_dated_later(target: str, is_restarted: bool) -> None:
    """A schema change has the time of its start.  One that waited for rows is behind them by its place alone; so it is
    where the bridge was started anew since."""
    since, partitions = 1_790_000_000_000, [("cdc", 0), ("cdc", 1)]
    for name, has_first in product(("debezium, whole seconds", "debezium, gtids", "canal, gtids"), (True, False)):
        stamp = STAMPS[name]
        rows = [(1, stamp(row_change(0, "t", ["id"], ["id"], after=[n]), n, since + 1000 * n)) for n in (1, 2)]
        change, made = (
            stamp(schema_change(0, "TRUNCATE TABLE t"), 3, since),
            stamp(schema_change(0, MAKE), 0, since - 9000),
        )
        texts = ("DROP DATABASE IF EXISTS _bridge", "DROP DATABASE IF EXISTS m", "CREATE DATABASE m")
        sql(target, *texts)
        events = in_topic([(0, made), *rows[:has_first], (0, change), *rows[not has_first :]])
        run_all(target, events.slice(0, 1), partitions=partitions, boundary_seconds=0)
        with ExitStack() as stack:
            pipeline = stack.enter_context(opened(target, partitions, boundary_seconds=0, writers=2 * has_first))
            for at in range(1, events.num_rows - 1):
                pipeline.take(events.slice(at, 1))
            pipeline.applier.tick()
            assert pipeline.changes_run == 1
            if is_restarted:
                stack.close()
                pipeline = stack.enter_context(opened(target, partitions, boundary_seconds=0))
            with pytest.raises(SourceError, match="before a schema change that has run already"):
                pipeline.take(events.slice(events.num_rows - 1))
        assert sql(target, "SELECT * FROM m.t") == []


@pytest.mark.parametrize("name", ["canal, gtids", "debezium, gtids"])
def test_the_last_transaction_comes_again_behind_a_schema_change_that_waited_for_it(target: str, name: str) -> None:
    """The schema change has the time of its start, before that of the row: by its place the row is older, and as it is
    of the last transaction in the target, it is a copy."""
    since, stamp, partitions = 1_790_000_000_000, STAMPS[name], [("cdc", 0), ("cdc", 1)]
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY)")
    row = stamp(row_change(0, "t", ["id"], ["id"], after=[1]), 2, since + 1000)
    events = in_topic([(1, row), (0, stamp(schema_change(0, "TRUNCATE TABLE t"), 3, since)), (1, row)])
    for end in (2, 3):
        run_all(target, events.slice(0, end), partitions=partitions, boundary_seconds=0)
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
    since, stamp = 1_790_000_000_000, STAMPS["debezium, whole seconds"]
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


@pytest.mark.parametrize(
    ("values", "gtids", "named"),
    [
        ([1, 2, 1, 2, 5], "33333", ["m.k"]),
        ([1, 1], "33", ["m.k"]),
        ([1, 2, 1, 5], "3333", []),
        ([1, 2, 1, 2], "3344", []),
    ],
)
def test_a_transaction_that_comes_twice_before_any_of_it_is_applied(
    target: str, values: list[int], gtids: str, named: list[str]
) -> None:
    """MariaDB's connector numbers no rows, so that rows of a table without a key may be twice: the log names it."""
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.k (a INT)")
    rows = [
        _at(1_790_000_000_000, row_change(0, "k", ["a"], [NO_PRIMARY_KEY], after=[a]))._replace(
            place=place_in_binlog("up", "binlog.000001", int(number), 1, f"0-1-{number}")
        )
        for a, number in zip(values, gtids, strict=True)
    ]
    with capture_logs() as said:
        run_all(target, in_topic([(0, event) for event in rows]), boundary_seconds=0)
    assert [line["table"] for line in said if line["event"] == "rows_may_be_twice"] == named
    assert sql(target, "SELECT a FROM m.k ORDER BY a") == [(a,) for a in sorted(values)]


def test_a_canal_that_tells_gtids_no_more_is_named_anew(target: str) -> None:
    """It was started by a place in the binlog, from where all rows may come again: a transaction that came in parts
    before, which is named for the same reason, hides nothing of that."""
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.k (a INT)")
    places = [place_in_gtid_set("u:1-7"), place_in_gtid_set("u:1-7"), *(place_of_sending(1_790_000_000_000, 1),) * 2]
    rows = [
        _at(1_790_000_000_000, row_change(0, "k", ["a"], [NO_PRIMARY_KEY], after=[a]))._replace(place=place)
        for a, place in enumerate(places)
    ]
    with capture_logs() as said:
        run_all(target, in_topic([(0, event) for event in rows]), batch=1, boundary_seconds=0)
    assert [line["behind"] for line in said if line["event"] == "rows_may_be_twice"] == ["cdc/0/1", "cdc/0/2"]


@pytest.mark.parametrize("place", [place_of_sending(1_790_000_001_000, 7), None])
@pytest.mark.parametrize(
    "event",
    [row_change(0, "k", ["a"], [], before=[1], after=[2]), schema_change(0, "ALTER TABLE k DROP COLUMN b", table="k")],
)
def test_what_may_be_a_copy_says_so(target: str, event: Change, place: str | None) -> None:
    """A Canal without GTIDs that was restarted sends again an UPDATE of a table without a key, or a schema change in
    its second behind another one: what they change is gone.  Errors of other senders say nothing of it."""
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.k (a INT)", "INSERT INTO m.k VALUES (2)")
    first = row_change(0, "k", ["a"], [], after=[3])
    sent = [(0, _at(1_790_000_000_000, one)._replace(place=place)) for one in (first, event)]
    for _ in range(2):
        with pytest.raises((ApplyError, SchemaChangeError)) as stopped:
            run_all(target, in_topic(sent), rows_per_transaction=1)
        assert ("if Canal was restarted, this may be a copy" in str(stopped.value)) == bool(place)


def _at(ms: int, event: Change) -> Change:
    return event._replace(commit_ts=ms_tso(ms), by_time=True)
