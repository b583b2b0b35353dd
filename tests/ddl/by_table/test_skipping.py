"""What would be wrong in silence without a schema change that is to be skipped."""

from __future__ import annotations

import pytest

from bridge.ddl.by_table.skipping import removed_names, wrong_without
from bridge.ddl.parser import Classified, classify

THERE = {
    "e": "enum('a','b') DEFAULT NULL",
    "ts": "timestamp NULL DEFAULT NULL",
    "dt": "datetime DEFAULT NULL",
    "n": "int(11) NOT NULL DEFAULT 5",
    "z": "int DEFAULT NULL",
    "p": "decimal(9,2) DEFAULT NULL",
    "b": "varbinary(9) DEFAULT NULL",
    "d": "date DEFAULT NULL",
    "f": "float DEFAULT NULL",
    "g": "int GENERATED ALWAYS AS (`n` + 1) STORED",
}


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("MODIFY e ENUM('b','a')", "other members of e"),
        ("MODIFY e ENUM('a','b','c')", "other members of e"),
        ("MODIFY e SET('a','b','c')", "other members of e"),
        ("MODIFY e ENUM('a')", ""),
        ("MODIFY e VARCHAR(9)", "other members of e"),
        ("CHANGE dt d2 TIMESTAMP NULL", "dt is a TIMESTAMP"),
        ("MODIFY ts DATETIME", "ts is no TIMESTAMP"),
        ("CHANGE n z INT, CHANGE z n INT", "each other's columns"),
        ("ADD COLUMN n INT NOT NULL DEFAULT 7", "may hold another value"),
        ("ADD n BIGINT NOT NULL DEFAULT 5 AFTER s", "may hold another value"),
        ("ADD COLUMN z INT DEFAULT NULL", "may hold another value"),
        ("ADD COLUMN (other INT, n INT DEFAULT 7)", "may hold another value"),
        ("DROP COLUMN n, ADD COLUMN n INT NOT NULL DEFAULT 5", "may hold another value"),
        ("DROP COLUMN n, RENAME COLUMN z TO n", "may hold another value"),
        ("DROP COLUMN n, CHANGE z n INT", "may hold another value"),
        ("DROP COLUMN other, ADD COLUMN other INT", ""),
        ("EXCHANGE PARTITION p WITH TABLE m.u", "each other's tables"),
        *(("ADD COLUMN other INT DEFAULT 3", ""), ("DROP COLUMN n", ""), ("MODIFY n BIGINT", "")),
        ("ADD INDEX (n)", ""),
        ("RENAME COLUMN n TO other", ""),
        ("RENAME COLUMN n TO z", "may hold another value"),
        ("MODIFY g INT", "the target computes"),
        ("MODIFY g INT AS (n + 1) STORED NOT NULL", ""),
        *((f"MODIFY p {kind}", "") for kind in ("DECIMAL(12,2)", "NUMERIC(9, 2) NOT NULL", "decimal(9,2) unsigned")),
        *((f"MODIFY p {kind}", "had another type") for kind in ("DECIMAL(9,4)", "DECIMAL(9)", "DECIMAL", "INT")),
        *(("MODIFY dt DATETIME(3)", ""), ("MODIFY dt DATETIME(6)", "had another type")),
        *((f"MODIFY d {kind}", "had another type") for kind in ("DATETIME", "INT", "VARCHAR(9)")),
        *(("MODIFY b BLOB", ""), ("MODIFY b VARCHAR(9)", "had another type"), ("MODIFY f DOUBLE", "had another type")),
    ],
)
def test_what_would_be_wrong(action: str, words: str) -> None:
    """Values that mean something else in the column as it stays, and values that rows should have got."""
    found = _wrong_without(f"ALTER TABLE m.t {action}")
    assert words in found
    assert bool(words) == bool(found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("RENAME TABLE m.t TO m.u", ""),
        ("RENAME TABLE m.t TO m.u, m.v TO m.w", ""),
        ("RENAME TABLE m.t TO m.old, m.new TO m.T", "each other's tables"),
        ("RENAME TABLE m.t TO m.x, m.u TO m.t, m.x TO m.u", "each other's tables"),
        ("CREATE TABLE m.t (e ENUM('a','b'), n INT)", ""),
        ("CREATE TABLE m.t (e ENUM('b','a'))", "other members of e"),
        ("DROP TABLE m.t", ""),
        *(("RENAME TABLE m.there TO m.u", ""), ("RENAME TABLE m.t TO m.there", "")),
        ("RENAME TABLE m.there TO m.both", "m.both already"),
        ("ALTER TABLE m.there RENAME TO m.both", "m.both already"),
    ],
)
def test_what_would_be_wrong_without_others(text: str, words: str) -> None:
    """Rows that would go to another table, or to one that is there already."""
    found = _wrong_without(text)
    assert words in found
    assert bool(words) == bool(found)


def _wrong_without(text: str) -> str:
    is_there = lambda name: name.table in {"there", "both"}  # noqa: E731
    return wrong_without(
        text, _classified(text), lambda _, name: THERE.get(name), is_there, is_utc=False, is_debezium=True
    )


def _classified(text: str) -> Classified:
    found = classify(text, "m")
    assert isinstance(found, Classified)
    return found


@pytest.mark.parametrize(
    ("skipped", "made", "kept"),
    [
        ("ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD COLUMN V INT", True),
        ("ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD COLUMN w INT", False),
        ("ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD INDEX (v)", False),
        ("ALTER TABLE t RENAME COLUMN v TO w", "ALTER TABLE t ADD COLUMN v INT", True),
        ("ALTER TABLE t RENAME COLUMN IF EXISTS v TO w", "ALTER TABLE t ADD COLUMN v INT", True),
        ("ALTER TABLE t DROP COLUMN v", "ALTER TABLE u ADD COLUMN v INT", False),
        ("DROP TABLE T", "CREATE TABLE t (id INT)", True),
        ("DROP TABLE t", "CREATE TABLE u (id INT)", False),
        ("ALTER TABLE t RENAME TO u", "CREATE TABLE t (id INT)", True),
        ("DROP DATABASE m", "CREATE TABLE t (id INT)", True),
        ("DROP TABLE t", "CREATE INDEX i ON t (id)", False),
    ],
)
def test_what_removed_names(skipped: str, made: str, kept: bool) -> None:
    """What is there, since a statement was skipped, under the name of what a later one makes."""
    assert bool(removed_names(made, _classified(made), skipped, _classified(skipped))) == kept
