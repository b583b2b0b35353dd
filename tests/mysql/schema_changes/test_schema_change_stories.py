"""Rows and schema changes that lie close together, onto both servers: what is there at the end."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from bridge.ddl.policy import DdlRules
from bridge.events import Event, RowChange
from bridge.tso import ms_tso
from tests.support.pipelines import admin, run_all
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change

TS = ms_tso(1_700_000_000_000)
MOMENTS = "defaults of the moment"
MOMENT = datetime(2023, 11, 14, 22, 13, 20)  # a DATETIME has no zone


class Story(NamedTuple):
    """Tables on the target, events a commit_ts apart, and the rows of the tables at the end."""

    setup: list[str]
    events: list[Event]
    rows: dict[str, list[tuple[Any, ...]]]


def row(after: int, table: str = "t", schema: str = "m", **values: object) -> RowChange:
    """An insert of (id, ...) so long after the first moment."""
    columns = ["id", *(name for name in values if name != "id")]
    return row_change(TS + after, table, columns, ["id"], after=[values[name] for name in columns], schema=schema)


def ddl(after: int, text: str, table: str = "t", schema: str = "m") -> Any:
    return schema_change(TS + after, text, schema=schema, table=table)


T = "CREATE TABLE t (id INT PRIMARY KEY)"
STORIES = {
    "drop and create anew": Story(
        [T],
        [row(0, id=1), ddl(1, "DROP TABLE `m`.`t`"), ddl(2, "CREATE TABLE t (id VARCHAR(9) PRIMARY KEY)"),
         row(3, id="x")],
        {"m.t": [("x",)]},
    ),
    "truncate between rows": Story(
        [T],
        [row(0, id=1), ddl(1, "TRUNCATE TABLE `t`"), row(2, id=2), ddl(3, "TRUNCATE TABLE `t`"), row(4, id=3)],
        {"m.t": [(3,)]},
    ),
    "truncate at the commit_ts of rows": Story(
        [T], [row(0, id=1), ddl(0, "TRUNCATE TABLE `t`"), row(1, id=2)], {"m.t": [(2,)]}
    ),
    "create like": Story(
        ["CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY (v))", "CREATE DATABASE n"],
        [ddl(0, "CREATE TABLE `l` LIKE `t`", "l"), row(1, "l", id=2, v=3),
         ddl(2, "CREATE TABLE `n`.`l` LIKE `m`.`t`", "l", "n"), row(3, "l", "n", id=4, v=5)],
        {"m.l": [(2, 3)], "n.l": [(4, 5)]},
    ),
    "rename to another database": Story(
        [T, "CREATE DATABASE n"],
        [row(0, id=1), ddl(1, "RENAME TABLE `m`.`t` TO `n`.`t`", schema="n"), row(2, "t", "n", id=2)],
        {"n.t": [(1,), (2,)]},
    ),
    "two renames of one commit_ts": Story(
        ["CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY)"],
        [row(0, "a", id=1), row(0, "b", id=2), ddl(1, "RENAME TABLE `m`.`a` TO `m`.`c`;", "c"),
         ddl(1, "RENAME TABLE `m`.`b` TO `m`.`a`;", "a"), row(2, "a", id=3), row(2, "c", id=4)],
        {"m.a": [(2,), (3,)], "m.c": [(1,), (4,)]},
    ),
    "a table changed by a copy, as pt-online-schema-change does": Story(
        [T],
        [ddl(0, "CREATE TABLE `_t_new` (id INT PRIMARY KEY, v INT)", "_t_new"),
         ddl(1, "RENAME TABLE `m`.`t` TO `m`.`_t_old`, `m`.`_t_new` TO `m`.`t`"), row(2, id=1, v=1)],
        {"m.t": [(1, 1)], "m._t_old": []},
    ),
    "a column renamed with rows around": Story(
        ["CREATE TABLE t (id INT PRIMARY KEY, a INT)"],
        [row(0, id=1, a=1), ddl(1, "ALTER TABLE `t` RENAME COLUMN `a` TO `b`"), row(2, id=2, b=2),
         ddl(3, "ALTER TABLE `t` CHANGE COLUMN `b` `a` BIGINT"), row(4, id=3, a=2**40)],
        {"m.t": [(1, 1), (2, 2), (3, 2**40)]},
    ),
    "two columns that swap their names": Story(
        ["CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(3))"],
        [row(0, id=1, a=1, b="x"), ddl(1, "ALTER TABLE `t` RENAME COLUMN `a` TO `b`, RENAME COLUMN `b` TO `a`"),
         row(2, id=2, b=2, a="y")],
        {"m.t": [(1, 1, "x"), (2, 2, "y")]},
    ),
    "a type that grows": Story(
        ["CREATE TABLE t (id INT PRIMARY KEY, v TINYINT)"],
        [row(0, id=1, v=1), ddl(1, "ALTER TABLE t MODIFY v BIGINT UNSIGNED"), row(2, id=2, v=2**63)],
        {"m.t": [(1, 1), (2, 2**63)]},
    ),
    "another primary key": Story(
        ["CREATE TABLE t (id INT, v INT, PRIMARY KEY (id))"],
        [row(0, id=1, v=1), ddl(1, "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v)"),
         row(2, id=1, v=2)._replace(key="v")],
        {"m.t": [(1, 1), (1, 2)]},
    ),
    MOMENTS: Story(
        [T, "INSERT INTO t VALUES (1)"],
        [ddl(0, "ALTER TABLE `t` ADD COLUMN `c` TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3),"
                " ADD COLUMN d DATE DEFAULT (CURRENT_DATE), ADD COLUMN e DATETIME DEFAULT NOW() ON UPDATE NOW()")],
        {"m.t": [(1, MOMENT, date(2023, 11, 15), MOMENT + timedelta(hours=8))]},
    ),
    "a partition that comes and one that goes": Story(
        ["CREATE TABLE t (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10))"],
        [row(0, id=1), ddl(1, "ALTER TABLE `t` ADD PARTITION (PARTITION `p1` VALUES LESS THAN (20))"), row(2, id=15),
         ddl(3, "ALTER TABLE `t` DROP PARTITION `p0`"), row(4, id=16)],
        {"m.t": [(15,), (16,)]},
    ),
    "a generated column": Story(
        ["CREATE TABLE t (id INT PRIMARY KEY, j JSON)"],
        [ddl(0, "ALTER TABLE `t` ADD COLUMN `g` INT GENERATED ALWAYS AS (`j`->'$.a') VIRTUAL NOT NULL,"
                " ADD INDEX `ig`(`g`)"), row(1, id=1, j='{"a": 3}')],
        {"m.t": [(1, '{"a": 3}', 3)]},
    ),
    "what SHOW CREATE of MySQL 8 says": Story(
        [],
        [ddl(0, "CREATE DATABASE `n` /*!40100 DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci */"
                " /*!80016 DEFAULT ENCRYPTION='N' */", "", "n"),
         ddl(1, "CREATE TABLE `t` (`id` bigint unsigned NOT NULL AUTO_INCREMENT, `s` varchar(20) CHARACTER SET utf8mb4"
                " COLLATE utf8mb4_0900_ai_ci DEFAULT NULL, `j` json DEFAULT NULL, `g` varchar(10) GENERATED ALWAYS AS"
                " (json_unquote(json_extract(`j`,_utf8mb4'$.a'))) STORED NOT NULL, PRIMARY KEY (`id`),"
                " KEY `f` ((lower(`s`))), KEY `iv` (`s`) /*!80000 INVISIBLE */,"
                " CONSTRAINT `t_chk_1` CHECK ((`s` <> _utf8mb4'y'))"
                " /*!80016 NOT ENFORCED */) ENGINE=InnoDB AUTO_INCREMENT=5 DEFAULT CHARSET=utf8mb4"
                " COLLATE=utf8mb4_0900_ai_ci /*!80016 ENCRYPTION='N' */", schema="n"),
         row(2, "t", "n", id=7, s="x", j='{"a": "b"}')],
        {"n.t": [(7, "x", '{"a": "b"}', "b")]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STORIES)
def test_stories(url: str, name: str) -> None:
    """Rows go to the table, and the columns, that their names meant at their commit_ts."""
    story = STORIES[name]
    with admin(url) as session:
        if name == MOMENTS and str(session.value("SELECT VERSION()")).startswith("5.7"):
            pytest.skip("MySQL 5.7 has no expressions as defaults: the statement is held")
        session.execute("CREATE DATABASE m COLLATE utf8mb4_bin")
        session.execute("USE m")
        for statement in story.setup:
            session.execute(statement)
        run_all(url, in_one_partition([*story.events, boundary(TS + 9)]), ddl=DdlRules(timezone="+08:00"))
        found = {table: sorted(session.rows(f"SELECT * FROM {table}")) for table in story.rows}
    assert found == story.rows
