"""Rows among schema changes, for processes that die at any step of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from bridge.events import DdlStatement, RowChange
from bridge.mysql.connection.session import Session
from tests.support.pipelines import drop_all
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change


def t_row(ts: int, id_: int, v: int, **fields: Any) -> RowChange:
    return row_change(ts, "t", ["id", "v", *fields], ["id"], after=[id_, v, *fields.values()])


def k_row(ts: int, a: int) -> RowChange:
    return row_change(ts, "k", ["a"], [], after=[a])


T = "CREATE TABLE m.t (id INT PRIMARY KEY, v INT)"
K = "CREATE TABLE m.k (a INT)"

SCENARIOS: dict[str, tuple[list[str], list[RowChange | DdlStatement]]] = {
    "add column": (
        [T, K],
        [
            t_row(10, 1, 1), k_row(10, 1), k_row(10, 1),
            schema_change(11, "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 7"),
            t_row(12, 2, 2, c=5), k_row(12, 1),
            schema_change(13, "ALTER TABLE t DROP COLUMN c"),
            t_row(14, 3, 3),
        ],
    ),
    "create": (
        [],
        [
            schema_change(10, "CREATE DATABASE IF NOT EXISTS `m`", table=""),
            schema_change(11, "CREATE TABLE t (id INT PRIMARY KEY, v INT)"),
            t_row(12, 1, 1),
            schema_change(12, "CREATE TABLE k LIKE t", table="k"),
            schema_change(13, "CREATE VIEW w AS SELECT id FROM t", table="w"),
            schema_change(13, "ALTER TABLE k RENAME TO k2", table="k2"),
        ],
    ),
    "swap by three renames of one commit_ts": (
        [T, "CREATE TABLE m.u LIKE m.t", "INSERT INTO m.u VALUES (9, 9)"],
        [
            t_row(10, 1, 1),
            schema_change(11, "RENAME TABLE `m`.`t` TO `m`.`tmp`;", table="tmp"),
            schema_change(11, "RENAME TABLE `m`.`u` TO `m`.`t`;", table="t"),
            schema_change(11, "RENAME TABLE `m`.`tmp` TO `m`.`u`;", table="u"),
            t_row(12, 2, 2),
        ],
    ),
    "truncate": (
        [T, K],
        [
            t_row(10, 1, 1), k_row(10, 1),
            schema_change(10, "TRUNCATE TABLE t"),
            t_row(11, 2, 2), k_row(11, 2),
            schema_change(12, "TRUNCATE TABLE k", table="k"),
            k_row(13, 3),
        ],
    ),
    "drop and create of one name": (
        [T],
        [
            t_row(10, 1, 1),
            schema_change(11, "DROP TABLE `m`.`t`"),
            schema_change(12, "CREATE TABLE t (id INT PRIMARY KEY, v INT)"),
            t_row(13, 2, 2),
            schema_change(14, "DROP TABLE `m`.`t`"),
            schema_change(14, "CREATE TABLE t (id INT PRIMARY KEY, v INT, c INT)"),
            t_row(15, 3, 3, c=3),
        ],
    ),
    "drop of two": ([T, K], [t_row(10, 1, 1), schema_change(11, "DROP TABLE `m`.`t`, `m`.`k`")]),
    "several of one commit_ts": (
        [T],
        [
            t_row(11, 1, 1),
            schema_change(11, "ALTER TABLE t ADD COLUMN c INT"),
            schema_change(11, "ALTER TABLE t ADD COLUMN d INT AFTER c"),
            schema_change(11, "ALTER TABLE t ADD COLUMN c INT"),
            schema_change(12, "ALTER TABLE t ADD UNIQUE (v)"),
            t_row(13, 2, 2, c=1, d=1),
        ],
    ),
    "drop database": (
        [T],
        [
            t_row(10, 1, 1),
            schema_change(11, "DROP DATABASE m", table=""),
            schema_change(12, "CREATE DATABASE m", table=""),
            schema_change(13, "CREATE TABLE t (id INT PRIMARY KEY, v INT)"),
            t_row(14, 2, 2),
        ],
    ),
}  # fmt: skip


def setup_and_events(scenario: str) -> tuple[list[str], pa.Table]:
    """The statements that make the target as it is before, and what comes then."""
    setup, changes = SCENARIOS[scenario]
    return setup, in_one_partition([*changes, boundary(changes[-1].commit_ts + 1)])


def begin(session: Session, setup: list[str]) -> None:
    """Makes the target as it is before."""
    drop_all(session)
    if setup:
        session.execute("CREATE DATABASE m")
    for statement in setup:
        session.execute(statement)
