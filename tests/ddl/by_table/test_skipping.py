"""What would be wrong in silence without a schema change that is to be skipped."""

from __future__ import annotations

import pytest

from bridge.ddl.by_table.skipping import wrong_without
from bridge.ddl.parser import Classified, classify

THERE = {
    "e": "enum('a','b') DEFAULT NULL",
    "ts": "timestamp NULL DEFAULT NULL",
    "dt": "datetime DEFAULT NULL",
    "n": "int(11) NOT NULL DEFAULT 5",
    "m": "int DEFAULT '-5'",
    "s": "varchar(9) DEFAULT 'a'",
    "z": "int DEFAULT NULL",
    "c": "timestamp NOT NULL DEFAULT current_timestamp()",
}


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("MODIFY e ENUM('b','a')", "other members of e"),
        ("MODIFY e ENUM('a','b','c')", ""),
        ("MODIFY e SET('a','b','c')", "other members of e"),
        ("MODIFY e ENUM('a')", ""),
        ("MODIFY e VARCHAR(9)", "other members of e"),
        ("CHANGE dt d2 TIMESTAMP NULL", "dt is a TIMESTAMP"),
        ("MODIFY ts DATETIME", "ts is no TIMESTAMP"),
        ("CHANGE n z INT, CHANGE z n INT", "each other's columns"),
        ("ADD COLUMN n INT NOT NULL DEFAULT 7", "another default"),
        ("ADD COLUMN n INT", "another default"),
        ("ADD n BIGINT NOT NULL DEFAULT 5 AFTER s", ""),
        ("ADD COLUMN m INT DEFAULT -5", ""),
        ("ADD COLUMN m INT DEFAULT +5", "another default"),
        ('ADD COLUMN s VARCHAR(9) DEFAULT "a"', ""),
        ("ADD COLUMN z INT", ""),
        ("ADD COLUMN z INT DEFAULT NULL", ""),
        ("ADD COLUMN c TIMESTAMP DEFAULT CURRENT_TIMESTAMP", ""),
        ("ADD COLUMN other INT DEFAULT 3", ""),
        ("DROP COLUMN n", ""),
        ("MODIFY n BIGINT", ""),
        ("ADD INDEX (n)", ""),
    ],
)
def test_what_would_be_wrong(action: str, words: str) -> None:
    """Values that mean something else in the column as it stays, and values that rows should have got."""
    text = f"ALTER TABLE m.t {action}"
    classified = classify(text, "m")
    assert isinstance(classified, Classified)
    found = wrong_without(text, classified, lambda _, name: THERE.get(name), is_utc=False)
    assert words in found
    assert bool(words) == bool(found)
