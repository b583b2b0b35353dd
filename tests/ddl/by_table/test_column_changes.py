"""Reading an ALTER TABLE as far as columns and rows go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.ddl.by_table.column_changes import ColumnChanges, column_changes
from bridge.ddl.parser import Classified, classify

CASES = [
    ("ALTER TABLE t ADD COLUMN a INT", {}, set(), set(), False),
    ("ALTER TABLE t DROP COLUMN a", {}, {"a"}, set(), False),
    ("ALTER TABLE `s`.`t` DROP A, DROP COLUMN IF EXISTS `b`", {}, {"a", "b"}, set(), False),
    ("ALTER TABLE t DROP INDEX a, DROP PRIMARY KEY, DROP FOREIGN KEY f, DROP CHECK d", {}, set(), set(), False),
    ("ALTER TABLE t DROP `index`", {}, {"index"}, set(), False),
    ("ALTER TABLE t RENAME COLUMN A TO b", {"a": "b"}, set(), set(), False),
    ("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a", {"a": "b", "b": "a"}, set(), set(), False),
    ("ALTER TABLE t RENAME COLUMN IF EXISTS a TO b, DROP c", {"a": "b"}, {"c"}, set(), False),
    ("ALTER TABLE t /*T! SHARD_ROW_ID_BITS = 4 */, DROP a, /*T![ttl] REMOVE TTL */, DROP b", {}, {"a", "b"}, set(),
     False),
    ("ALTER TABLE t RENAME INDEX a TO b", {}, set(), set(), False),
    ("ALTER TABLE t RENAME TO u", {}, set(), set(), False),
    ("ALTER TABLE t CHANGE a b DECIMAL(10,2) NOT NULL", {"a": "b"}, set(), {"a"}, False),
    ("ALTER TABLE t CHANGE COLUMN a A BIGINT", {}, set(), {"a"}, False),
    ("ALTER TABLE t MODIFY COLUMN a ENUM('x,y','z') AFTER b, MODIFY c INT", {}, set(), {"a", "c"}, False),
    ("ALTER TABLE t ADD (a INT, b DECIMAL(5,2)), DROP c", {}, {"c"}, set(), False),
    ("ALTER TABLE t DROP PARTITION p0, p1", {}, set(), set(), True),
    ("ALTER TABLE t TRUNCATE PARTITION p0", {}, set(), set(), True),
    ("ALTER TABLE t ADD PARTITION (PARTITION p1 VALUES LESS THAN (10))", {}, set(), set(), False),
    ("ALTER TABLE t /* DROP COLUMN a */ COMMENT = 'x, DROP COLUMN a'", {}, set(), set(), False),
]  # fmt: skip


def changes_of(statement: str) -> ColumnChanges:
    """The effects of a statement."""
    classified = classify(statement, "s")
    assert isinstance(classified, Classified)
    return column_changes(statement, classified)


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_effects(case: tuple[str, dict[str, str], set[str], set[str], bool]) -> None:
    """Columns that are renamed, dropped or retyped, and partitions that go with their rows."""
    statement, renamed, dropped, retyped, loses_rows = case
    found = replace(changes_of(statement), changes_keys=False)
    assert found == ColumnChanges(renamed, frozenset(dropped), frozenset(retyped), loses_rows)


@pytest.mark.parametrize(
    ("change", "changes_keys"),
    [
        ("DROP PRIMARY KEY", True), ("ADD CONSTRAINT `p` PRIMARY KEY (a)", True), ("ADD UNIQUE u (a)", True),
        ("ADD COLUMN a INT, ADD COLUMN b INT UNIQUE", True), ("DROP KEY u", True), ("DROP INDEX IF EXISTS u", True),
        ("DROP CONSTRAINT u", True), ("ADD INDEX (a)", False), ("ADD COLUMN a INT COMMENT 'UNIQUE'", False),
        ("DROP COLUMN a", False), ("MODIFY a BIGINT", False), ("DROP FOREIGN KEY f", False),
    ],
)  # fmt: skip
def test_keys_are_changed(change: str, changes_keys: bool) -> None:
    """By what makes or drops a unique key, or may do so."""
    assert changes_of(f"ALTER TABLE t {change}").changes_keys is changes_keys


@pytest.mark.parametrize(
    "charset", ["CHARACTER SET utf8mb4", "CHARSET latin1 COLLATE latin1_bin", "CHARACTER SET DEFAULT"]
)
def test_texts_are_converted(charset: str) -> None:
    """By CONVERT TO, and not by the default of new columns."""
    assert changes_of(f"ALTER TABLE t ADD COLUMN a INT, CONVERT TO {charset}").converts_texts
    assert not changes_of(f"ALTER TABLE t DEFAULT {charset}").converts_texts


@pytest.mark.parametrize(
    ("change", "gone", "come"),
    [
        ("ADD COLUMN a INT, ADD b INT FIRST, ADD COLUMN IF NOT EXISTS C INT", set(), {"a", "b", "c"}),
        ("ADD COLUMN (a INT, b DECIMAL(5,2) NOT NULL)", set(), {"a", "b"}),
        ("ADD INDEX (a), ADD CONSTRAINT c CHECK (a > 0), ADD PARTITION (PARTITION p VALUES IN (1))", set(), set()),
        ("DROP a, DROP COLUMN b", {"a", "b"}, set()),
        ("DROP a, ADD a BIGINT", set(), {"a"}),
        ("RENAME COLUMN a TO b, CHANGE c d INT, CHANGE e e INT", {"a", "c"}, {"b", "d"}),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", set(), {"a", "b"}),
    ],
)  # fmt: skip
def test_names_that_come_and_go(change: str, gone: set[str], come: set[str]) -> None:
    """By which a row shows on which side of the statement it is."""
    found = changes_of(f"ALTER TABLE t {change}")
    assert (found.gone, found.come) == (gone, come)
