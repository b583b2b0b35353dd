"""Whole logs, as events, against real targets: hashes first, then values."""

from __future__ import annotations

import pytest

from bridge.errors import SourceError
from bridge.sources.source import TopicNow
from tests.generated.verifying import InMemory, verify_events
from tests.support.pipelines import run_all
from tests.support.upstreams import Literal, boundary, in_one_partition, row_change, schema_change
from tests.support.verify_servers import execute


def test_rows_count_once(target: str) -> None:
    """Also those that hashes call equal and that lie between others that have to be loaded."""
    spelled = ["1.00", "2.0", "3.00", "4.00", "5.00", "6.0", "7.0", "8.00", "9.0"]
    log = [schema_change(5, "CREATE TABLE t (id INT PRIMARY KEY, v DECIMAL(9,2))")]
    log += [row_change(10, "t", ["id", "v"], ["id"], after=[n, Literal(v)]) for n, v in enumerate(spelled)]
    events = in_one_partition([*log, boundary(11)])
    execute(target, "CREATE DATABASE m")
    run_all(target, events)
    [table] = verify_events(target, events).tables
    assert (table.is_equal, table.rows) == (True, len(spelled))


def test_a_topic_that_was_made_anew(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages tell of another history, by which verify would call right rows different, and put others in their
    place: it says so instead."""
    execute(target, "CREATE DATABASE m; CREATE TABLE m.t (id INT PRIMARY KEY)")
    old = in_one_partition([row_change(10, "t", ["id"], ["id"], after=[1]), boundary(11)])
    new = in_one_partition([row_change(9, "t", ["id"], ["id"], before=[1]), boundary(11)])
    run_all(target, old)
    execute(target, """UPDATE _bridge.progress SET topics = '{"cdc": "one", "gone": "two"}'""")
    for now in ({}, {"cdc": TopicNow("one", 1)}, {"cdc": TopicNow("", 1)}):
        monkeypatch.setattr(InMemory, "topics", lambda _, now=now: now)
        assert verify_events(target, old).is_equal
    monkeypatch.setattr(InMemory, "topics", lambda _: {"cdc": TopicNow("another", 1)})
    with pytest.raises(SourceError, match=r"whose id was one and is now another; fix: .* --against upstream"):
        verify_events(target, new)
