"""A topic that is sent again as a whole, at new offsets, while event filters leave some of its row changes out."""

from __future__ import annotations

from itertools import product
from random import Random

import pyarrow as pa
import pytest

from bridge.events import Event, Kind
from bridge.filters.routes import IgnoredRows, RowRules
from bridge.filters.table_filter import TableFilter
from bridge.protocols.ruled_rows import ruled
from bridge.tso import ms_tso
from tests.support.pipelines import run_all, sql
from tests.support.upstreams import boundary, in_one_partition, row_change

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
