"""What tells rows apart once they have been read."""

from __future__ import annotations

import pytest

from bridge.verify.definitions import ColumnInfo
from bridge.verify.rows import Finding, Row, Shape, as_multisets, by_key, parsed_json, without_moved


def column(name: str, data_type: str, collation: str = "") -> ColumnInfo:
    return ColumnInfo(name, data_type, data_type, "utf8mb4" if collation else "", collation, True, False, False)


ID, NAME, VALUE = column("id", "int"), column("name", "varchar", "utf8mb4_general_ci"), column("v", "double")
SHAPE = Shape((ID, VALUE), (ID, VALUE), (0,))
NAMED = Shape((NAME, VALUE), (NAME, VALUE), (0,))


def rows(*texts: str) -> list[Row]:
    """`a,b` rows; `-` is NULL."""
    return [Row(tuple(None if part == "-" else part.encode() for part in text.split(","))) for text in texts]


JSON = [
    ('{"a": 1, "b": [1, 2]}', '{"b":[1,2],"a":1}', True),
    ("[1, 2]", "[2, 1]", False),
    ("2", "2.0", True),
    ("1", "true", False),
    ("0", "false", False),
    ("null", '"null"', False),
    ('"1"', "1", False),
    ("9007199254740993", "9007199254740992", False),
    ("[]", "{}", False),
    ('{"a": null}', "{}", False),
    ('"a"', '"A"', False),
]


@pytest.mark.parametrize(("left", "right", "equal"), JSON)
def test_json_compares_by_its_parsed_form(left: str, right: str, equal: bool) -> None:
    """Spacing, order of members and the spelling of a number do not count, anything else does."""
    assert (parsed_json(left.encode()) == parsed_json(right.encode())) is equal


def test_findings_by_key() -> None:
    """A key on one side only is missing or extra; on both sides with other values, different."""
    found = by_key(SHAPE, rows("1,1", "2,2", "3,-"), rows("1,1.0", "2,3", "4,4", "3,0"))
    assert [(d.key, d.finding) for d in found] == [
        ((b"2",), Finding.DIFFERENT), ((b"3",), Finding.DIFFERENT), ((b"4",), Finding.EXTRA)
    ]  # fmt: skip


def test_keys_that_differ_in_case_only_are_one_row() -> None:
    """The target could not hold both."""
    [difference] = by_key(NAMED, rows("Ab,1"), rows("aB ,1"))
    assert difference.finding is Finding.DIFFERENT
    assert NAMED.differing(*(row for row in (difference.expected, difference.actual) if row)) == [0]


def test_unknown_values_are_not_compared() -> None:
    """A column that no message of the row has may hold anything."""
    assert by_key(SHAPE, [Row((b"1", None), frozenset({0}))], rows("1,5")) == []


def test_rows_that_two_servers_order_differently_are_not_wrong() -> None:
    """Missing in one range of keys and extra in another."""
    apart = [*by_key(SHAPE, rows("1,1", "2,2"), []), *by_key(SHAPE, [], rows("1,1", "2,3"))]
    assert [(d.key, d.finding) for d in without_moved(SHAPE, apart)] == [((b"2",), Finding.DIFFERENT)]


def test_multisets() -> None:
    """Equal rows are counted."""
    found = as_multisets(Shape((ID, VALUE), (ID, VALUE), ()), rows("1,1", "1,1.0", "2,2"), rows("1,1", "3,3", "3,3"))
    assert {(d.key[0], d.finding, d.copies) for d in found} == {
        (b"1", Finding.MISSING, 1), (b"2", Finding.MISSING, 1), (b"3", Finding.EXTRA, 2)
    }  # fmt: skip
