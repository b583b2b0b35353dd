"""Which schema changes a filter lets through to the policy."""

from __future__ import annotations

from itertools import product
from random import Random

import pyarrow as pa
import pytest

from bridge.commands.check.protocol import Decoded, judge_old_values
from bridge.events import Event, Kind, LeftOut, RowChange
from bridge.filters.routes import IgnoredRows, RowRules
from bridge.filters.table_filter import TableFilter
from bridge.model import PartitionId, SchemaChange, TableName
from bridge.pipeline.order import is_wanted
from bridge.protocols.batch_decode import ruled
from bridge.tso import ms_tso
from tests.support.pipelines import admin, run_all, sql
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change

ORDERS = TableFilter(("shop.orders",))
WANTED = [
    ("RENAME TABLE orders TO _orders_del, _orders_gho TO orders", "shop", True),
    ("RENAME TABLE `shop`.`_orders_gho` TO `shop`.`orders`", "", True),
    ("DROP TABLE other.x, orders", "other", True),
    ("DROP TABLE other.x, shop.y", "other", False),
    ("ALTER TABLE orders ADD x INT", "", True),
    ("ALTER TABLE y ADD x INT", "", False),
    ("RENAME TABLE orders TO other.x", "other", True),
    ("CREATE TABLE _orders_gho LIKE orders", "shop", False),
    *(("OPTIMISE orders IN shop", "shop", True), ("OPTIMISE shop.orders", "other", True)),
    *(("OPTIMISE x", "shop", False), ("OPTIMISE orders", "", True), ("ALTER TABLE `shop", "shop", True)),
    ("ALTER TABLE `shop", "other", False),
]


@pytest.mark.parametrize(("text", "schema", "expected"), WANTED)
def test_what_may_lie_half_inside_of_the_filter_is_wanted(text: str, schema: str, expected: bool) -> None:
    """So that it is recorded; what lies outside is passed over."""
    assert is_wanted(SchemaChange(5, schema, "", text, "t/0/1"), ORDERS, set()) is expected


ACCOUNT = LeftOut("mysql", "global_priv", "it is in one of the server's own databases")
PROGRESS = ACCOUNT._replace(schema="_bridge", table="progress", reason="it is in the bridge's own database")
UNWANTED = ACCOUNT._replace(schema="app", table="log", reason=None)


@pytest.mark.parametrize("by_time", [False, True])
def test_they_are_counted_and_said_once(target: str, capsys: pytest.CaptureFixture[str], by_time: bool) -> None:
    """In either order: the rows beside them are written, and a line names table and position once; where the filter
    leaves something out, nothing is said."""
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.k (id INT PRIMARY KEY)")

    def row(ts: int) -> RowChange:
        return row_change(ms_tso(ts), "k", ["id"], ["id"], after=[ts])._replace(by_time=by_time)

    edges = [] if by_time else [boundary(ms_tso(4))]
    events = [ACCOUNT, row(1), UNWANTED, ACCOUNT, PROGRESS, row(3), ACCOUNT, *edges, UNWANTED, PROGRESS]
    pipeline = run_all(target, in_one_partition(events), batch=4)
    counts = pipeline.applier.counts
    assert sql(target, "SELECT id FROM m.k ORDER BY id") == [(1,), (3,)]
    assert counts.left_out == {TableName("mysql", "global_priv"): 3, TableName("_bridge", "progress"): 2}
    assert TableName("app", "log") in counts.tables
    said = [line for line in capsys.readouterr().out.splitlines() if "rows_left_out" in line]
    assert len(said) == 2
    assert "mysql.global_priv" in said[0]
    assert "cdc/0/0" in said[0]


INSERT = row_change(10, "t", ["a", "b"], [], after=[1, 1])
HIDDEN = row_change(11, "t", ["a", "b"], [], after=[1, 2])
UPDATE = row_change(11, "t", ["a", "b"], [], before=[1, 1], after=[1, 2])
OF_ANOTHER = row_change(12, "k", ["a"], ["a"], before=[1], after=[1])
KEYED = row_change(10, "k", ["a"], ["a"], after=[1])
CASES: dict[str, tuple[str, list[Event], bool]] = {
    "an update that looks like an insert": ("open-protocol", [INSERT, HIDDEN], True),
    "an update": ("open-protocol", [INSERT, UPDATE], False),
    "an update of another table": ("open-protocol", [INSERT, KEYED, OF_ANOTHER], False),
    "no table without a key": ("open-protocol", [KEYED], False),
    "another format": ("canal-json", [INSERT, HIDDEN], False),
}
"""The format, the messages, and whether `run` and `check` warn."""


@pytest.mark.parametrize("case", CASES)
def test_it_is_said(target: str, capsys: pytest.CaptureFixture[str], case: str) -> None:
    """By `run` once for each table, and by `check`; not where any update shows that the changefeed sends old values."""
    protocol, changes, is_warned = CASES[case]
    made = [schema_change(5, "CREATE TABLE t (a INT, b INT)"), schema_change(6, "CREATE TABLE k (a INT PRIMARY KEY)")]
    again = [change._replace(commit_ts=21) for change in changes if change is INSERT]
    events = in_one_partition([*made, *changes, boundary(20), *again, boundary(30)])
    sql(target, "CREATE DATABASE m")
    run_all(target, events, protocol=protocol)
    warned = [line for line in capsys.readouterr().out.splitlines() if "updates_may_be_hidden" in line]
    assert len(warned) == is_warned
    where: PartitionId = ("cdc", 0)
    judged = list(judge_old_values(Decoded(protocol, {where: changes}, {}, is_mysql_born=False)))
    assert [finding.check for finding in judged] == ["old values"] * is_warned


COLUMNS, KEY = ["id", "v"], ["id"]
STEPS = 14
HISTORIES = 2


def history(random: Random, *, by_time: bool) -> list[Event]:
    """What an upstream with few keys may do: rows come, change, move to other keys, go, and come back."""
    rows: dict[int, int] = {}
    events = []
    for step in range(1, STEPS + 1):
        id_, other = random.sample(range(1, 5), 2)
        before = [id_, rows.pop(id_)] if id_ in rows else None
        after = None
        if before is None or random.random() < 0.6:
            moves = before is not None and other not in rows and random.random() < 0.3
            after = [other if moves else id_, step]
            rows[after[0]] = step
        change = row_change(ms_tso(step), "t", COLUMNS, KEY, before=before, after=after)
        events += [change._replace(by_time=True)] if by_time else [change, boundary(ms_tso(step) + 1)]
    return events


def contents(target: str, events: pa.Table, ignored: Kind, name: str) -> list[tuple[int, int]]:
    """What a pipeline of its own makes of these events."""
    rules = RowRules((IgnoredRows(TableFilter(("m.*",)), frozenset({ignored})),))
    sql(target, "TRUNCATE m.t", "SELECT 1")
    run_all(target, ruled(events, rules), name=name, batch=5)
    return [(int(id_), int(v)) for id_, v in sql(target, "SELECT id, v FROM m.t ORDER BY id")]


@pytest.mark.parametrize("ignored", [Kind.DELETE, Kind.UPDATE, Kind.INSERT])
def test_it_comes_to_what_once_comes_to(target: str, ignored: Kind) -> None:
    """With boundaries nothing of it is applied again; without them all of it is, and ends where it ended before."""
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY, v INT)", "SELECT 1")
    for seed, by_time in product(range(HISTORIES), (False, True)):
        events = history(Random(seed), by_time=by_time)
        once = contents(target, in_one_partition(events), ignored, f"once-{seed}-{by_time}")
        twice = contents(target, in_one_partition([*events, *events]), ignored, f"twice-{seed}-{by_time}")
        assert twice == once, (seed, by_time)
        assert once
