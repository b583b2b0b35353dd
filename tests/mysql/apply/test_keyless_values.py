"""Rows without a key are found by their values, of every type, on every server."""

from __future__ import annotations

from typing import Any

from tests.support.pipelines import admin, run_all
from tests.support.upstreams import Literal, boundary, in_one_partition, row_change

COLUMNS = {
    "i": ("BIGINT UNSIGNED", "18446744073709551615", "18446744073709551614"),
    "de": ("DECIMAL(20,10)", "0.1000000001", "0.1"),
    "f": ("FLOAT", "0.10000000149011612e0", "1.5e0"),
    "d": ("DOUBLE", "0.1e0", "1.7976931348623157e308"),
    "n": ("BIT(64)", "18446744073709551615", "1"),
    "y": ("YEAR", "0", "2024"),
    "e": ("ENUM('x','y')", "1", "2"),
    "s": ("SET('p','q')", "0", "3"),
    "c": ("CHAR(9) COLLATE utf8mb4_general_ci", "'a'", "'A'"),
    "t": ("TEXT CHARACTER SET latin1", "'é'", "'e'"),
    "b": ("VARBINARY(9)", "x'00'", "x'0000'"),
    "at": ("DATETIME(6)", "'2024-01-01 00:00:00.123456'", "'0000-00-00 00:00:00.000000'"),
    "o": ("TIME(3)", "'-838:59:58.999'", "'00:00:00.000'"),
    "j": ("JSON", """'{"k": [1, "a"]}'""", """'{"k": [1.0, "A"]}'"""),
}
"""A type, and two values as decoders write them."""


def test_a_row_is_found_by_each_value(url: str) -> None:
    """Of rows that differ in one value the one meant is deleted, and of equal ones as many as went."""
    first = [Literal(one) for _, one, _ in COLUMNS.values()]
    others = [[*first[:i], Literal(two), *first[i + 1 :]] for i, (_, _, two) in enumerate(COLUMNS.values())]
    nulls = [[*first[:i], None, *first[i + 1 :]] for i in range(len(first))]
    rows: list[list[Any]] = [first, first, *others, *nulls]
    names = list(COLUMNS)
    inserts = [row_change(100, "t", names, [], after=row) for row in rows]
    with admin(url) as session:
        session.execute("CREATE DATABASE m DEFAULT CHARSET utf8mb4")
        session.execute("CREATE TABLE m.t (" + ", ".join(f"{name} {COLUMNS[name][0]}" for name in names) + ")")
        run_all(url, in_one_partition([*inserts, boundary(101)]))
        before = session.value("SELECT COUNT(*) FROM m.t")
        deletes = [row_change(200, "t", names, [], before=row) for row in rows[1:]]
        run_all(url, in_one_partition([*inserts, boundary(101), *deletes, boundary(201)]))
        left = session.rows("SELECT i, c, y FROM m.t")
    assert before == len(rows)
    assert left == [(18446744073709551615, "a", 0)]
