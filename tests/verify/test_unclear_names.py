"""Verify against the log, where it was not certain which tables a schema change meant, or only a part of them is
replicated."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.config import Settings
from bridge.errors import HeldError
from bridge.filters.table_filter import TableFilter
from tests.generated.verifying import verify_events
from tests.support.command import bridge
from tests.support.pipelines import run_all, sql
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change

RENAMED = "RENAME TABLE m.t TO other.u"
EVENTS = in_one_partition([
    schema_change(10, "CREATE TABLE t (id INT PRIMARY KEY)"),
    schema_change(10, "CREATE TABLE t (id INT PRIMARY KEY)", schema="other"),
    *(row_change(11, "t", ["id"], ["id"], after=[n], schema=schema) for n in range(3) for schema in ("m", "other")),
    schema_change(20, "RENAME TABLE t TO other.u", schema="other"),
    row_change(21, "u", ["id"], ["id"], after=[9], schema="other"),
    boundary(30),
])  # fmt: skip


@pytest.mark.parametrize("words", [("replace", RENAMED), ("done", RENAMED), ("done",)], ids=" ".join)
def test_a_name_without_a_database(target: str, words: tuple[str, ...]) -> None:
    """What the operator says is followed; the tables that it meant, or may have meant, are not covered before it, and
    are not called different."""
    sql(target, "CREATE DATABASE m", "CREATE DATABASE other")
    with pytest.raises(HeldError):
        run_all(target, EVENTS)
    if words[0] == "done":
        sql(target, RENAMED)
    word, *more = words
    assert bridge("ddl", word, "20", *more, "--target", target).code == 0
    run_all(target, EVENTS)
    assert {table.name.table: table.not_covered for table in verify_events(target, EVENTS).tables}["u"] == 3
    sql(target, "DELETE FROM other.u WHERE id = 1")
    assert verify_events(target, EVENTS).is_equal
    sql(target, "DELETE FROM other.u WHERE id = 9")
    assert not verify_events(target, EVENTS).is_equal


ONLY = Settings.model_validate({"filter": ["m.t"], "timezone": "UTC"})
MIGRATED = in_one_partition([
    schema_change(10, "CREATE TABLE t (id INT PRIMARY KEY)"),
    row_change(11, "t", ["id"], ["id"], after=[1]),
    schema_change(12, "CREATE TABLE _t_gho (id INT PRIMARY KEY, c INT)"),
    schema_change(20, "RENAME TABLE t TO _t_del, _t_gho TO t"),
    row_change(21, "t", ["id", "c"], ["id"], after=[9, 9]),
    boundary(30),
])  # fmt: skip


@pytest.mark.parametrize("word", ["replace", "done"])
def test_a_migration_half_outside_of_the_filter(target: str, word: str) -> None:
    """Its rename moved tables upstream, and none here."""
    run: dict[str, Any] = {"tables": TableFilter(("m.t",)), "ddl": ONLY.ddl_rules()}
    by_hand = "ALTER TABLE m.t ADD COLUMN c INT"
    sql(target, "CREATE DATABASE m")
    with pytest.raises(HeldError):
        run_all(target, MIGRATED, **run)
    if word == "done":
        sql(target, by_hand)
    assert bridge("ddl", word, "20", *([by_hand] if word == "replace" else []), "--target", target).code == 0
    run_all(target, MIGRATED, **run)
    assert verify_events(target, MIGRATED, settings=ONLY).is_equal
    sql(target, "DELETE FROM m.t WHERE id = 9")
    assert not verify_events(target, MIGRATED, settings=ONLY).is_equal
