"""Unique keys that the target would keep, if a schema change were left out."""

from __future__ import annotations

import pytest

from bridge.ddl.by_table.skipping import dropped_key, kept_key
from bridge.ddl.parser import Classified, classify

NAMES = ("online", "vector", "hybrid", "columnar", "offline")
"""Words that may be names."""
KEYS = {"primary": ("id",), "m": ("mail",), "ab": ("a", "b"), "e": ("",), **dict.fromkeys(NAMES, ("n",))}
THERE = {"mail": "varchar(40) COLLATE utf8mb4_general_ci DEFAULT NULL", "id": "int NOT NULL", "a": "int", "b": "int"}


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ALTER TABLE t DROP PRIMARY KEY", "the primary key (id)"),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)", "the primary key (id)"),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD CONSTRAINT `p` PRIMARY KEY (a)", "the primary key (id)"),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (`ID`)", ""),
        ("DROP INDEX `PRIMARY` ON t", "the primary key (id)"),
        ("DROP INDEX m ON t", "the unique key m (mail)"),
        ("DROP INDEX IF EXISTS M ON x.t", "the unique key m (mail)"),
        ("DROP INDEX other ON t", ""),
        ("ALTER TABLE t DROP INDEX m", "the unique key m (mail)"),
        ("ALTER TABLE t DROP KEY `m`, ADD COLUMN z INT", "the unique key m (mail)"),
        ("ALTER TABLE t DROP KEY m, ADD UNIQUE m (mail, a)", "the unique key m (mail)"),
        ("ALTER TABLE t DROP KEY m, ADD UNIQUE KEY m (mail(9))", "the unique key m (mail)"),
        ("ALTER TABLE t DROP KEY m, ADD UNIQUE KEY m (mail DESC) COMMENT 'x'", ""),
        ("ALTER TABLE t DROP KEY m, ADD KEY m (mail)", "the unique key m (mail)"),
        ("ALTER TABLE t DROP CONSTRAINT m", "the unique key m (mail)"),
        ("ALTER TABLE t DROP CONSTRAINT k", ""),
        ("ALTER TABLE t DROP COLUMN a", "the unique key ab (a, b)"),
        ("ALTER TABLE t DROP COLUMN IF EXISTS `b`, ADD INDEX (x)", "the unique key ab (a, b)"),
        ("ALTER TABLE t DROP x", ""),
        ("ALTER TABLE t DROP INDEX e", "the unique key e (an expression)"),
        ("CREATE OR REPLACE INDEX m ON t (mail)", "the unique key m (mail)"),
        ("CREATE UNIQUE INDEX q ON t (x)", ""),
        ("ALTER TABLE t ADD COLUMN m INT", ""),
        ("DROP TABLE t", ""),
        *((f"DROP INDEX {name} ON t", f"the unique key {name} (n)") for name in NAMES),
        *((f"ALTER TABLE t DROP INDEX {name}", f"the unique key {name} (n)") for name in NAMES),
        *((f"ALTER TABLE t DROP KEY {name}, ADD UNIQUE {name} (n)", "") for name in NAMES),
        *((f"ALTER TABLE t DROP KEY {name}, ADD UNIQUE KEY {name} USING BTREE (n)", "") for name in NAMES),
        *((f"CREATE OR REPLACE UNIQUE INDEX {name} USING BTREE ON t (a)", f"key {name} (n)") for name in NAMES),
    ],
)
def test_keys_that_a_statement_drops(statement: str, words: str) -> None:
    """Whatever takes a unique key of the target away; not what only makes it anew, nor an index that is not unique."""
    found = dropped_key(statement, _classified(statement), lambda _: KEYS)
    assert words in found
    assert bool(words) == bool(found)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ALTER TABLE t DROP INDEX m", "the unique key m (mail), which the upstream drops"),
        ("ALTER TABLE t RENAME INDEX m TO n", "has another name upstream"),
        ("ALTER TABLE t RENAME INDEX x TO n", ""),
        ("ALTER TABLE t MODIFY mail VARCHAR(50) COLLATE utf8mb4_bin", "in another way"),
        ("ALTER TABLE t MODIFY mail VARCHAR(50) COLLATE utf8mb4_general_ci", ""),
        ("ALTER TABLE t CHANGE mail mail2 VARCHAR(50) BINARY", "in another way"),
        ("ALTER TABLE t MODIFY mail VARCHAR(50)", ""),
        ("ALTER TABLE t MODIFY other VARCHAR(50) COLLATE utf8mb4_bin", ""),
        ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "in another way"),
        ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE = utf8mb4_general_ci", ""),
        ("ALTER TABLE t DEFAULT CHARACTER SET latin1", ""),
        ("ALTER TABLE t MODIFY id BIGINT", ""),
    ],
)
def test_keys_that_merge_rows(statement: str, words: str) -> None:
    """Besides dropped keys: texts that the upstream tells apart from then on, and names by which a key is dropped."""
    found = kept_key(statement, _classified(statement), lambda _: KEYS, lambda _, name: THERE.get(name))
    assert words in found
    assert bool(words) == bool(found)


def _classified(statement: str) -> Classified:
    found = classify(statement, "m")
    assert isinstance(found, Classified)
    return found
