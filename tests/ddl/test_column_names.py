"""Which columns an ALTER TABLE takes away, and which it makes."""

from __future__ import annotations

import pytest

from bridge.ddl.alter_actions import ColumnNames
from bridge.ddl.clauses import column_names_in
from bridge.ddl.parser import Classified, classify

CASES = [
    ("ALTER TABLE t ADD COLUMN a INT", {}, set()),
    ("ALTER TABLE t DROP COLUMN a", {}, {"a"}),
    ("ALTER TABLE `s`.`t` DROP A, DROP COLUMN IF EXISTS `b`", {}, {"a", "b"}),
    ("ALTER TABLE t DROP INDEX a, DROP PRIMARY KEY, DROP FOREIGN KEY f, DROP CHECK d", {}, set()),
    ("ALTER TABLE t DROP `index`", {}, {"index"}),
    ("ALTER TABLE t RENAME COLUMN A TO b", {"a": "b"}, set()),
    ("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a", {"a": "b", "b": "a"}, set()),
    ("ALTER TABLE t RENAME COLUMN IF EXISTS a TO b, DROP c", {"a": "b"}, {"c"}),
    ("ALTER TABLE t /*T! SHARD_ROW_ID_BITS = 4 */, DROP a, /*T![ttl] REMOVE TTL */, DROP b", {}, {"a", "b"}),
    ("ALTER TABLE t RENAME INDEX a TO b", {}, set()),
    ("ALTER TABLE t RENAME TO u", {}, set()),
    ("ALTER TABLE t CHANGE a b DECIMAL(10,2) NOT NULL", {"a": "b"}, set()),
    ("ALTER TABLE t CHANGE COLUMN a A BIGINT", {}, set()),
    ("ALTER TABLE t MODIFY COLUMN a ENUM('x,y','z') AFTER b, MODIFY c INT", {}, set()),
    ("ALTER TABLE t ADD (a INT, b DECIMAL(5,2)), DROP c", {}, {"c"}),
    ("ALTER TABLE t DROP PARTITION p0, p1", {}, set()),
    ("ALTER TABLE t /* DROP COLUMN a */ COMMENT = 'x, DROP COLUMN a'", {}, set()),
]  # fmt: skip


def names_in(statement: str) -> ColumnNames:
    """The names of a statement."""
    classified = classify(statement, "s")
    assert isinstance(classified, Classified)
    return column_names_in(statement, classified)


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_columns_that_are_renamed_or_dropped(case: tuple[str, dict[str, str], set[str]]) -> None:
    """Whatever else the statement does."""
    statement, renamed, dropped = case
    found = names_in(statement)
    assert (dict(found.renamed), found.dropped) == (renamed, dropped)


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
    found = names_in(f"ALTER TABLE t {change}")
    assert (found.gone, found.given) == (gone, come)
