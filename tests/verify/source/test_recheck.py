"""Rows that differ while the source moves: which of them are wrong."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count

from bridge.verify.compare.key_sql import KeyValues
from bridge.verify.compare.row_diff import ComparedColumns, Difference, DifferenceKind, by_key
from bridge.verify.source.recheck import SecondsLeft, settle
from tests.verify.compare.test_row_diff import SHAPE, rows


def differing(source: str, target: str) -> list[Difference]:
    """Row 1 as both have it; `-` is none."""
    left, right = ([] if value == "-" else rows(f"1,{value}") for value in (source, target))
    return by_key(SHAPE, left, right)


def within(seconds: float) -> SecondsLeft:
    """So many seconds from now."""
    end = time.monotonic() + seconds
    return lambda _: end - time.monotonic()


def test_a_row_that_comes_to_agree_was_on_its_way() -> None:
    """However late within the time."""
    looks = count()

    def look(keys: Sequence[KeyValues]) -> list[Difference]:
        assert keys == [(b"1",)]
        return differing("5", "5" if next(looks) == 3 else "4")

    assert settle(SHAPE, differing("5", "4"), look, within(5.0)) == []


def test_a_row_that_never_stands_still_agrees_when_the_target_follows() -> None:
    """The target shows what the source had some looks before; also when the row comes and goes."""
    looks = count(10)
    assert settle(SHAPE, differing("9", "6"), lambda _: differing(str(n := next(looks)), str(n - 3)), within(5.0)) == []
    states = iter(["5", "-", "6", "7"])
    targets = iter(["1", "1", "1", "-"])
    assert settle(SHAPE, differing("5", "1"), lambda _: differing(next(states), next(targets)), within(5.0)) == []


def test_a_row_that_stays_wrong_is_wrong() -> None:
    """Whatever the source does meanwhile; the last look is what is reported."""
    looks = count(10)
    [left] = settle(SHAPE, differing("9", "4"), lambda _: differing(str(next(looks)), "4"), within(0.1))
    assert left.actual == rows("1,4")[0]
    [extra] = settle(SHAPE, differing("-", "4"), lambda _: differing("-", "4"), within(0.1))
    assert extra.expected is None


def test_rows_without_a_key_must_be_wrong_at_every_look() -> None:
    """A row is its own key."""
    shape = ComparedColumns(SHAPE.expected, SHAPE.actual, ())
    extra = Difference(DifferenceKind.EXTRA, rows("1,4")[0], None, rows("1,4")[0])
    answers = iter([[extra], []])
    assert settle(shape, [extra], lambda _: next(answers), within(5.0)) == []
    assert settle(shape, [extra], lambda _: [extra], within(0.2)) == [extra]
