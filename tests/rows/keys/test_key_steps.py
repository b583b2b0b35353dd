"""Keys that rows of two shards have: seen within one transaction, and never written."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest

from bridge.errors import ApplyError
from bridge.events import RowChange
from bridge.filters.routes import Routes, parse_route
from bridge.model import Column, Table, TableName
from bridge.protocols.batch_decode import routed
from bridge.rows import key_steps as module
from bridge.rows.key_steps import key_sums
from bridge.rows.literal_offsets import TEXT
from bridge.rows.net_changes import KeyedChanges, NetChanges, OrderedChanges, fold
from tests.support.upstreams import in_one_partition, row_change

ROUTES = Routes((parse_route("s*.t => s.t"),))
NAME = TableName("s", "t")


def table(*keys: tuple[str, ...]) -> Table:
    columns = {name: Column(name, "int", None, generated=False) for name in ("id", "v")}
    return Table(NAME, columns, keys, keys)


def change(
    shard: str, ts: int, before: int | None, after: int | None, *, v: int = 0, columns: int = 2, key: str = "id"
) -> RowChange:
    before_row, after_row = ([one, v][:columns] if one is not None else None for one in (before, after))
    keys = [key] if key else []
    return row_change(ts, "t", ["id", "v"][:columns], keys, before=before_row, after=after_row)._replace(schema=shard)


def folded(one: Table, *events: RowChange) -> NetChanges:
    [net] = fold({NAME: one}, routed(in_one_partition(events), ROUTES))
    return net


MEETING = [
    (change("s1", 10, None, 1), change("s2", 11, None, 1)),
    (change("s1", 10, None, 1), change("s2", 10, None, 1)),
    (change("s1", 10, None, 1), change("s2", 11, 1, None)),
    (change("s1", 10, None, 1), change("s2", 11, 1, 1, v=3)),
    (change("s1", 10, 1, None), change("s2", 11, 1, None)),
    (change("s1", 10, 1, None), change("s2", 11, 1, 1, v=3)),
    (change("s1", 10, 2, 1), change("s2", 11, None, 1)),
    (change("s1", 10, 1, None), change("s2", 11, None, 1), change("s1", 12, None, 1)),
    (change("s2", 11, None, 1)._replace(by_time=True), change("s1", 12, 1, None)._replace(by_time=True)),
    (change("s1", 11, 1, None)._replace(by_time=True), change("s2", 12, None, 1)._replace(by_time=True)),
]


@pytest.mark.parametrize("events", MEETING)
def test_shards_that_meet(events: tuple[RowChange, ...]) -> None:
    """The error names the key, both shards, and their commit ts."""
    with pytest.raises(ApplyError) as raised:
        folded(table(("id",)), change("s1", 9, None, 7), *events)
    assert all(words in str(raised.value) for words in ("s.t", "id = 1", "s1.t", "s2.t", "commit ts 1"))


APART = [
    (change("s1", 10, None, 1), change("s2", 11, None, 2)),
    (change("s1", 10, 1, None), change("s2", 11, None, 1)),
    (change("s1", 10, 1, None), change("s2", 10, None, 1)),
    (change("s1", 10, 1, 5), change("s2", 11, None, 1)),
    (change("s1", 10, None, 1), change("s1", 11, 1, 1, v=3), change("s1", 12, 1, None)),
]


@pytest.mark.parametrize("events", APART)
def test_shards_that_do_not_meet(events: tuple[RowChange, ...]) -> None:
    """Keys of their own, and a row that goes over from one to the other."""
    assert isinstance(folded(table(("id",)), *events), KeyedChanges)


def test_without_a_key_rows_are_counted() -> None:
    """Equal rows of two shards are two rows, and either may go."""
    net = folded(
        table(), change("s1", 10, None, 1, key=""), change("s2", 11, None, 1, key=""), change("s1", 12, 1, None, key="")
    )
    assert isinstance(net, OrderedChanges)
    assert net.changes.num_rows == 3


def test_without_a_key_all_columns_are_needed() -> None:
    """A row that lacks a column of the merged table may be another shard's row; a new one is no danger."""
    assert folded(table(), change("s1", 10, None, 1, key=""), change("s2", 11, None, 1, key="", columns=1))
    with pytest.raises(ApplyError, match="a row of another shard may be meant"):
        folded(table(), change("s1", 10, None, 1, key=""), change("s2", 11, 1, None, key="", columns=1))


MANY = 3_000
"""Enough for the compiled function."""


@pytest.mark.parametrize("kind", [pa.string(), TEXT])
@pytest.mark.parametrize("start", [0, 1, 0xFFFFFFFF, zlib.crc32(b"m\0t")])
def test_both_ways_give_the_sums_of_zlib(kind: pa.DataType, start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(start)
    keys = ["é\0" * int(rng.integers(40)) + str(number) * int(rng.integers(2)) for number in range(MANY)]
    wanted = [zlib.crc32(key.encode(), start) for key in keys]
    for pays in (False, True):
        monkeypatch.setattr(module._readiness, "pays", lambda _, pays=pays: pays)
        assert key_sums(pa.array(["", *keys], kind)[1:], start).tolist() == wanted
        assert key_sums(pa.array([], kind), start).tolist() == []
