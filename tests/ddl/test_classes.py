"""Every class of schema change, and what becomes of it on each flavour."""

from __future__ import annotations

import pytest

from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.parser import Classified, classify
from tests.support.ddl_words import ALL, HELD, M10, M11, MY8, MY57, NOTHING, SAME, words

# The list of docs.pingcap.com/tidb/stable/ticdc-ddl, in its order, then what the messages hold besides.
CLASSES: list[tuple[C, str]] = [
    (C.CREATE_DATABASE, "CREATE DATABASE `x`"),
    (C.DROP_DATABASE, "DROP DATABASE `x`"),
    (C.ALTER_DATABASE, "ALTER DATABASE `x` CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin"),
    (C.ADD_INDEX, "CREATE INDEX `i` ON `t` (`a`)"),
    (C.ADD_INDEX, "ALTER TABLE `t` ADD INDEX `i`(`a`)"),
    (C.DROP_INDEX, "DROP INDEX `i` ON `t`"),
    (C.ADD_PRIMARY_KEY, "ALTER TABLE `t` ADD PRIMARY KEY(`id`)"),
    (C.DROP_PRIMARY_KEY, "ALTER TABLE `t` DROP PRIMARY KEY"),
    (C.CREATE_TABLE, "CREATE TABLE `t` (`id` INT PRIMARY KEY)"),
    (C.DROP_TABLE, "DROP TABLE `app`.`t`"),
    (C.ADD_COLUMN, "ALTER TABLE `t` ADD COLUMN `c` INT AFTER `id`"),
    (C.DROP_COLUMN, "ALTER TABLE `t` DROP COLUMN `c`"),
    (C.TRUNCATE_TABLE, "TRUNCATE TABLE `t`"),
    (C.MODIFY_COLUMN, "ALTER TABLE `t` MODIFY COLUMN `c` BIGINT"),
    (C.RENAME_TABLE, "RENAME TABLE `app`.`t` TO `app2`.`u`"),
    (C.COLUMN_DEFAULT, "ALTER TABLE `t` ALTER COLUMN `c` SET DEFAULT 1"),
    (C.TABLE_COMMENT, "ALTER TABLE `t` COMMENT = 'x'"),
    (C.RENAME_INDEX, "ALTER TABLE `t` RENAME INDEX `i` TO `j`"),
    (C.ADD_PARTITION, "ALTER TABLE `t` ADD PARTITION (PARTITION `p` VALUES LESS THAN (9))"),
    (C.DROP_PARTITION, "ALTER TABLE `t` DROP PARTITION `p`,`q`"),
    (C.TRUNCATE_PARTITION, "ALTER TABLE `t` TRUNCATE PARTITION `p`"),
    (C.CREATE_VIEW, "CREATE OR REPLACE VIEW `v` AS SELECT 1"),
    (C.DROP_VIEW, "DROP VIEW `app`.`v`"),
    (C.TABLE_CHARSET, "ALTER TABLE `t` CONVERT TO CHARACTER SET UTF8MB4 COLLATE UTF8MB4_BIN"),
    (C.RECOVER_TABLE, "RECOVER TABLE `t`"),
    (C.AUTO_ID, "ALTER TABLE `t` AUTO_INCREMENT = 1000"),
    (C.INDEX_VISIBILITY, "ALTER TABLE `t` ALTER INDEX `i` INVISIBLE"),
    (C.EXCHANGE_PARTITION, "ALTER TABLE `app`.`t` EXCHANGE PARTITION `p` WITH TABLE `app`.`u`"),
    (C.REORGANIZE_PARTITION, "ALTER TABLE `t` REORGANIZE PARTITION `p`,`q` INTO (PARTITION `r` VALUES LESS THAN (9))"),
    (C.TTL, "ALTER TABLE `t` TTL = `c` + INTERVAL 30 DAY, TTL_ENABLE = 'OFF'"),
    (C.REMOVE_TTL, "ALTER TABLE `t` REMOVE TTL"),
    (C.ADD_FOREIGN_KEY, "ALTER TABLE `t` ADD CONSTRAINT `f` FOREIGN KEY (`a`) REFERENCES `u`(`id`)"),
    (C.DROP_FOREIGN_KEY, "ALTER TABLE `t` DROP FOREIGN KEY `f`"),
    (C.ADD_CHECK, "ALTER TABLE `t` ADD CONSTRAINT `k` CHECK (`a`>0)"),
    (C.ALTER_CHECK, "ALTER TABLE `t` ALTER CHECK `k` NOT ENFORCED"),
    (C.DROP_CONSTRAINT, "ALTER TABLE `t` DROP CHECK `k`"),
    (C.PARTITIONING, "ALTER TABLE `t` PARTITION BY HASH (`id`) PARTITIONS 3"),
    (C.PARTITIONING, "ALTER TABLE `t` REMOVE PARTITIONING"),
    (C.PARTITIONING, "ALTER TABLE `t` COALESCE PARTITION 1"),
    (C.TABLE_OPTION, "ALTER TABLE `t` SHARD_ROW_ID_BITS = 2"),
    (C.NOTHING, "ALTER TABLE `t`"),
]

NOT_AS_IT_CAME: dict[tuple[str, str], str] = {
    **{(f, "CREATE OR REPLACE VIEW `v` AS SELECT 1"): "CREATE OR REPLACE SQL SECURITY INVOKER VIEW `v` AS SELECT 1"
       for f in ALL},
    **{(f, "CREATE DATABASE `x`"): "CREATE DATABASE `x` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
       for f in (M11, M10, MY8, MY57)},
    **{(f, "RECOVER TABLE `t`"): HELD for f in (M11, M10, MY8, MY57)},
    **{(f, "ALTER TABLE `t` ALTER INDEX `i` INVISIBLE"): "ALTER TABLE `t` ALTER INDEX `i` IGNORED" for f in (M11, M10)},
    (MY57, "ALTER TABLE `t` ALTER INDEX `i` INVISIBLE"): NOTHING,
    **{(f, statement): NOTHING for f in (M11, M10, MY8, MY57) for statement in (
        "ALTER TABLE `t` TTL = `c` + INTERVAL 30 DAY, TTL_ENABLE = 'OFF'", "ALTER TABLE `t` REMOVE TTL",
        "ALTER TABLE `t` SHARD_ROW_ID_BITS = 2")},
    **{(f, statement): NOTHING for f in ALL for statement in (
        "ALTER TABLE `t` ADD CONSTRAINT `k` CHECK (`a`>0)", "ALTER TABLE `t` ALTER CHECK `k` NOT ENFORCED",
        "ALTER TABLE `t` DROP CHECK `k`")},
    **{(f, "ALTER TABLE `t`"): NOTHING for f in ALL},
}  # fmt: skip


@pytest.mark.parametrize(("change", "statement"), CLASSES, ids=[statement for _, statement in CLASSES])
def test_classes(change: C, statement: str) -> None:
    """Every class has its name; what a flavour knows is sent as it came."""
    known = classify(statement, "app")
    assert isinstance(known, Classified)
    assert known.classes == (change,)
    for flavour in ALL:
        assert words(flavour, statement) == NOT_AS_IT_CAME.get((flavour, statement), SAME), flavour


def test_every_class_is_in_the_table() -> None:
    """The table above is complete."""
    assert {change for change, _ in CLASSES} == set(C)
