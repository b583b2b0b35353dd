"""What tells rows apart once they have been read."""

from __future__ import annotations

import pytest

from bridge.errors import StoppedError
from bridge.mysql.table_definition import ColumnInfo
from bridge.verify.compare.checksums import KeyValues
from bridge.verify.compare.row_diff import (
    ComparedColumns,
    DifferenceKind,
    as_multisets,
    by_key,
    parsed_json,
    without_moved,
)
from bridge.verify.snapshots import Throttle
from tests.support.verify_servers import Pair, said


def column(name: str, data_type: str, collation: str = "") -> ColumnInfo:
    return ColumnInfo(name, data_type, data_type, "utf8mb4" if collation else "", collation, True, False, False)


ID, NAME, VALUE = column("id", "int"), column("name", "varchar", "utf8mb4_general_ci"), column("v", "double")
SHAPE = ComparedColumns((ID, VALUE), (ID, VALUE), (0,))
NAMED = ComparedColumns((NAME, VALUE), (NAME, VALUE), (0,))


def rows(*texts: str) -> list[KeyValues]:
    """`a,b` rows; `-` is NULL."""
    return [tuple(None if part == "-" else part.encode() for part in text.split(",")) for text in texts]


JSON = [
    ('{"a": 1, "b": [1, 2]}', '{"b":[1,2],"a":1}', True),
    *(("[1, 2]", "[2, 1]", False), ("2", "2.0", True), ("1", "true", False), ("0", "false", False)),
    *(("null", '"null"', False), ('"1"', "1", False)),
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
        ((b"2",), DifferenceKind.DIFFERENT), ((b"3",), DifferenceKind.DIFFERENT), ((b"4",), DifferenceKind.EXTRA)
    ]  # fmt: skip


def test_keys_that_differ_in_case_only_are_one_row() -> None:
    """The target could not hold both."""
    [difference] = by_key(NAMED, rows("Ab,1"), rows("aB ,1"))
    assert difference.finding is DifferenceKind.DIFFERENT
    assert NAMED.differing(*(row for row in (difference.expected, difference.actual) if row)) == [0]


KEYS = [
    ("decimal", "decimal", "", "1.0", "1.00", True),
    ("int", "decimal", "", "1", "1.000", True),
    ("float", "double", "", "1.5", "1.50", True),
    ("datetime", "datetime", "", "2024-01-01 00:00:00", "2024-01-01 00:00:00.000", True),
    ("date", "datetime", "", "2024-01-01", "2024-01-01 00:00:00.000", True),
    ("time", "time", "", "10:00:00", "10:00:00.10", False),
    ("datetime", "datetime", "", "2024-01-01 00:00:00", "2024-01-01", False),
    ("varchar", "varchar", "utf8mb4_bin", "1.0", "1.00", False),
]


@pytest.mark.parametrize(("left", "right", "collation", "one", "other", "same"), KEYS)
def test_keys_of_other_scales(left: str, right: str, collation: str, one: str, other: str, *, same: bool) -> None:
    """Keys compare by their value, as their type does: digits that only one side's column shows do not count."""
    shape = ComparedColumns((column("k", left, collation), VALUE), (column("k", right, collation), VALUE), (0,))
    equal = by_key(shape, rows(f"{one},1"), rows(f"{other},1"))
    differs = by_key(shape, rows(f"{one},1"), rows(f"{other},2"))
    both = {DifferenceKind.MISSING, DifferenceKind.EXTRA}
    assert {d.finding for d in equal} == (set() if same else both)
    assert {d.finding for d in differs} == ({DifferenceKind.DIFFERENT} if same else both)
    apart = [*by_key(shape, rows(f"{one},1"), []), *by_key(shape, [], rows(f"{other},1"))]
    assert (without_moved(shape, apart) == []) is same


def test_keys_that_only_one_side_can_tell_apart() -> None:
    """Of two keys of the target that are one to the source's type, one is its row and the other is extra."""
    shape = ComparedColumns((column("k", "float"), VALUE), (column("k", "double"), VALUE), (0,))
    [extra] = by_key(shape, rows("1.5,1"), rows("1.50000000001,1", "1.5,1"))
    assert (extra.finding, extra.key) == (DifferenceKind.EXTRA, (b"1.50000000001",))


SPELLINGS = [
    ("utf8mb4_general_ci", "\u00c4b", "aB ", True),
    ("utf8mb4_0900_ai_ci", "\u00c4b", "aB", True),
    ("utf8mb4_0900_ai_ci", "ab", "ab ", False),
    ("utf8mb4_0900_as_ci", "\u00e4b", "ab", False),
    *(("utf8mb4_0900_as_ci", "Ab", "aB", True), ("utf8mb4_0900_as_cs", "Ab", "aB", False)),
    *(("utf8mb4_bin", "Ab", "aB", False), ("utf8mb4_bin", "ab", "ab ", True)),
    ("utf8mb4_nopad_bin", "ab", "ab ", False),
]


@pytest.mark.parametrize(("collation", "one", "other", "same"), SPELLINGS)
def test_what_may_be_one_key_to_the_target(collation: str, one: str, other: str, *, same: bool) -> None:
    """Two spellings that can stand side by side are two rows, one missing and one extra."""
    name = column("k", "varchar", collation)
    found = {d.finding for d in by_key(ComparedColumns((name,), (name,), (0,)), rows(one), rows(other))}
    assert found == ({DifferenceKind.DIFFERENT} if same else {DifferenceKind.MISSING, DifferenceKind.EXTRA})


def test_rows_that_two_servers_order_differently_are_not_wrong() -> None:
    """Missing in one range of keys and extra in another."""
    apart = [*by_key(SHAPE, rows("1,1", "2,2"), []), *by_key(SHAPE, [], rows("1,1", "2,3"))]
    assert [(d.key, d.finding) for d in without_moved(SHAPE, apart)] == [((b"2",), DifferenceKind.DIFFERENT)]


def test_multisets() -> None:
    """Equal rows are counted."""
    found = as_multisets(
        ComparedColumns((ID, VALUE), (ID, VALUE), ()), rows("1,1", "1,1.0", "2,2"), rows("1,1", "3,3", "3,3")
    )
    assert {(d.key[0], d.finding, d.copies) for d in found} == {
        (b"1", DifferenceKind.MISSING, 1), (b"2", DifferenceKind.MISSING, 1), (b"3", DifferenceKind.EXTRA, 2)
    }  # fmt: skip


PLAIN = (
    "CREATE DATABASE app; USE app; CREATE TABLE k (a INT, b VARCHAR(30));"
    "INSERT INTO k SELECT seq, CONCAT('b', seq % 10) FROM seq_1_to_40000;"
)
QUERIES = [
    ("UPDATE k SET b = 'x' WHERE a = 17", "k 17 'b7' missing", "k 17 'x' extra"),
    ("UPDATE k SET b = NULL WHERE a = 17", "k 17 'b7' missing", "k 17 NULL extra"),
    ("INSERT INTO k SELECT * FROM k WHERE a IN (5, 6)", "k 5 'b5' extra", "k 6 'b6' extra"),
    ("UPDATE k SET b = 'B7' WHERE a = 17", "k 17 'b7' missing", "k 17 'B7' extra"),
    ("DELETE FROM k WHERE a = 39999", "k 39999 'b9' missing"),
]


def test_rows_that_differ(pair: Pair) -> None:
    """They are named and fixed, however often they are there."""
    pair.both(PLAIN)
    for damage, *expected in QUERIES:
        pair.damage(f"USE app; {damage}")
        report = pair.verify("app.*")
        assert said(report) == set(expected)
        assert report.tables[0].rows == 40_000
        pair.run_fix()
    assert said(pair.verify("app.*")) == set()


def test_rows_that_are_too_long_for_a_hash(pair: Pair) -> None:
    """They are fetched and compared, as no checksum holds them."""
    pair.both(
        "CREATE DATABASE app; USE app; CREATE TABLE k (a INT, b VARCHAR(9)); INSERT INTO k VALUES (1,'x'),(2,'x')"
    )
    pair.damage("USE app; UPDATE k SET b = 'y' WHERE a = 2")
    with pytest.MonkeyPatch.context() as patch:
        for module in ("checksums", "bisect"):
            patch.setattr(f"bridge.verify.compare.{module}.row_hash", lambda *_: "NULL")
        assert said(pair.verify("app.*")) == {"k 2 'x' missing", "k 2 'y' extra"}


def test_who_waits_is_let_go_when_the_verification_ends() -> None:
    """With an error, so that no chunk is begun."""
    throttle = Throttle({}, {}, print)
    throttle.stop()
    with pytest.raises(StoppedError, match="given up"):
        throttle.wait()
