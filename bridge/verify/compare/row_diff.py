"""Compares rows of two servers.  Pure."""

from __future__ import annotations

import json
import math
import struct
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final

from bridge.mysql.table_definition import ColumnInfo, ValueClass
from bridge.verify.compare.checksums import KeyValues, real_number

_FLOAT32: Final = struct.Struct("f")


class DifferenceKind(StrEnum):
    """What is wrong with a row of the target."""

    DIFFERENT = "different"
    MISSING = "missing"
    EXTRA = "extra"


@dataclass(frozen=True)
class Difference:
    """One row that is not as it should be; for a table without a key, one of `copies` equal rows."""

    finding: DifferenceKind
    key: KeyValues
    expected: KeyValues | None
    actual: KeyValues | None
    copies: int = 1


@dataclass(frozen=True)
class ComparedColumns:
    """The compared columns of both sides, and which of them are the key; without one the rows are a multiset."""

    expected: tuple[ColumnInfo, ...]
    actual: tuple[ColumnInfo, ...]
    key: tuple[int, ...]

    def key_of(self, values: Sequence[bytes | None]) -> KeyValues:
        """Gives the key of a row."""
        return tuple(values[i] for i in self.key)

    def comparable(self, i: int, value: bytes | None) -> Hashable:
        """Gives a value in a form in which equal values are equal: JSON parsed, numbers by their value."""
        if value is None:
            return None
        classes = {self.expected[i].value_class, self.actual[i].value_class}
        if ValueClass.JSON in classes:
            return parsed_json(value)
        try:
            if ValueClass.FLOAT in classes:
                return _float32(real_number(value))
            if ValueClass.DOUBLE in classes:
                return real_number(value)
            if ValueClass.DECIMAL in classes:
                return Decimal(value.decode())
            if ValueClass.TEMPORAL in classes:
                return self._moment(i, value)
            return value
        except (ValueError, ArithmeticError):
            return value

    def _moment(self, i: int, value: bytes) -> bytes:
        """Gives a date or time without zeros at the end of its fraction, and beside a DATE column without midnight."""
        value = value.rstrip(b"0").rstrip(b".") if b"." in value else value
        if "date" in {self.expected[i].data_type, self.actual[i].data_type}:
            return value.removesuffix(b" 00:00:00")
        return value

    def identity(self, key: KeyValues) -> Hashable:
        """Gives the key in a form in which equal keys are equal, however many digits each side's columns have."""
        return tuple(self.comparable(i, value) for i, value in zip(self.key, key, strict=True))

    def spelling(self, key: KeyValues) -> Hashable:
        """Gives the key in a form in which two keys are equal when the target may take them for the same key, because
        of how it compares letters and blanks."""
        return tuple(
            _folded(value.decode(errors="replace"), self.actual[i].collation)
            if value is not None and self.actual[i].value_class is ValueClass.TEXT
            else self.comparable(i, value)
            for i, value in zip(self.key, key, strict=True)
        )

    def is_equal(self, expected: KeyValues, actual: KeyValues) -> bool:
        """Tells whether two rows are equal."""
        return not self.differing(expected, actual)

    def differing(self, expected: KeyValues, actual: KeyValues) -> list[int]:
        """Gives the numbers of the columns whose values differ."""
        return [
            i
            for i, (left, right) in enumerate(zip(expected, actual, strict=True))
            if left != right and self.comparable(i, left) != self.comparable(i, right)
        ]


def _float32(value: float) -> float:
    try:
        return float(_FLOAT32.unpack(_FLOAT32.pack(value))[0])
    except OverflowError:
        return value


def parsed_json(text: bytes) -> Hashable:
    """Parses JSON into a form in which documents of equal meaning are equal: the order of members and spacing do not
    count, and 2 is 2.0.  A name that comes twice counts twice.  Text that is not JSON stays as it is."""
    try:
        return _frozen(json.loads(text, object_pairs_hook=_Members, parse_float=_number))
    except (ValueError, RecursionError):
        return text


class _Members(list[tuple[str, object]]):
    """The members of a JSON object.  Servers do not agree which of two members with one name counts."""


def _number(text: str) -> float | Decimal:
    """Reads a number as servers do; beyond their range, it stays as it is written."""
    number = float(text)
    return number if math.isfinite(number) else Decimal(text)


def _frozen(value: object) -> Hashable:
    match value:
        case _Members():
            return ("object", frozenset(Counter((name, _frozen(member)) for name, member in value).items()))
        case list():
            return ("array", tuple(map(_frozen, value)))
        case bool() | None:
            return ("constant", value)  # True is 1 to Python
        case str():
            return ("text", value)
        case int() | float() | Decimal():
            return ("number", value)
    raise AssertionError(type(value))


def by_key(shape: ComparedColumns, expected: Iterable[KeyValues], actual: Iterable[KeyValues]) -> list[Difference]:
    """Tells what differs between the rows of one range of keys.  Rows whose keys differ in case or trailing blanks only
    cannot both be on the target: they count as one row that differs."""
    differences: list[Difference] = []
    missing, extra = list(expected), list(actual)
    for look in (tuple, shape.identity, shape.spelling):
        pairs, missing, extra = _pair_rows(shape, missing, extra, look)
        differences += (
            Difference(DifferenceKind.DIFFERENT, shape.key_of(row), row, target_row)
            for row, target_row in pairs
            if not shape.is_equal(row, target_row)
        )
    differences += (Difference(DifferenceKind.MISSING, shape.key_of(row), row, None) for row in missing)
    differences += (Difference(DifferenceKind.EXTRA, shape.key_of(row), None, row) for row in extra)
    return sorted(differences, key=lambda difference: [value or b"" for value in difference.key])


def _pair_rows(
    shape: ComparedColumns,
    expected: Sequence[KeyValues],
    actual: Sequence[KeyValues],
    look: Callable[[KeyValues], Hashable],
) -> tuple[list[tuple[KeyValues, KeyValues]], list[KeyValues], list[KeyValues]]:
    """Pairs the rows of both sides whose keys are equal in the form of `look`; gives each side's others as well."""
    by_form: dict[Hashable, list[KeyValues]] = {}
    for row in actual:
        by_form.setdefault(look(shape.key_of(row)), []).append(row)
    pairs, unpaired = [], []
    for row in expected:
        candidates = by_form.get(look(shape.key_of(row)))
        if candidates:
            pairs.append((row, candidates.pop()))
        else:
            unpaired.append(row)
    return pairs, unpaired, [row for rows in by_form.values() for row in rows]


def without_moved(shape: ComparedColumns, differences: Iterable[Difference]) -> list[Difference]:
    """Compares all rows that differ once more: one that two servers order differently is missing in one range and extra
    in another, but the target has it."""
    rows = [(difference.expected, difference.actual) for difference in differences]
    return by_key(shape, [row for row, _ in rows if row], [row for _, row in rows if row])


def _folded(text: str, collation: str) -> str:
    """Gives a text in a form in which texts are equal that a collation may take for equal.  The collation's name tells
    what it ignores: case and accents, unless the name has _bin, _cs or _as; trailing blanks, unless it has NO PAD or
    0900."""
    if not ("nopad" in collation or "_0900_" in collation):
        text = text.rstrip(" ")
    if collation.endswith(("_bin", "_cs")):
        return text
    text = text.casefold()
    if "_as_" in collation:
        return text
    return "".join(letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))


def as_multisets(
    shape: ComparedColumns, expected: Iterable[KeyValues], actual: Iterable[KeyValues]
) -> list[Difference]:
    """Tells what differs between rows without keys: a row that differs is one missing and one extra."""
    expected_rows, actual_rows = list(expected), list(actual)
    balance = Counter(_identity_of(shape, row) for row in expected_rows)
    balance.subtract(_identity_of(shape, row) for row in actual_rows)
    examples = {_identity_of(shape, row): row for row in (*actual_rows, *expected_rows)}
    differences = []
    for identity, copies in balance.items():
        row = examples[identity]
        if copies > 0:
            differences.append(Difference(DifferenceKind.MISSING, row, row, None, copies))
        elif copies < 0:
            differences.append(Difference(DifferenceKind.EXTRA, row, None, row, -copies))
    return differences


def _identity_of(shape: ComparedColumns, row: KeyValues) -> tuple[Hashable, ...]:
    return tuple(shape.comparable(i, value) for i, value in enumerate(row))
