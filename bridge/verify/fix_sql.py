"""Turns differences into the statements that fix them: the writer's own statements, in one transaction.

A missing row of which the log does not hold every value is not written: what is left out would become NULL or a
default, and no later comparison would see it.  The file names such a row in a comment, and then deletes no extra row of
its table.  For an extra row may be the missing one, under another key or with another value, and so the only place that
has the values which the log lacks.  Nor does the file write a row that the target would refuse because a row that stays
may have its value of a further unique key; it names that row too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from bridge.errors import UsageError
from bridge.events import SEP
from bridge.model import Table, TableName
from bridge.mysql.connection.session import SESSION_SETTINGS
from bridge.rows.arrow_images import TEXT
from bridge.rows.net_changes import Image, KeyedChanges, KeylessChanges, NetChanges, WrittenRows, other_uniques
from bridge.rows.sql.render import render, update_of_row
from bridge.rows.sql.statement import Rendering, Stage, Statement
from bridge.verify.client_text import GUARD, OPTIONS, commented, sendable
from bridge.verify.compare.key_sql import any_of, key_parts, literal_of
from bridge.verify.compare.row_diff import ComparedColumns, ComparedRow, Difference, DifferenceKind
from bridge.verify.unique_conflicts import unwritable


def net_changes(table: Table, shape: ComparedColumns, differences: Sequence[Difference]) -> NetChanges:
    """Turns differences into the net changes that the writer would write.

    A row that is written is deleted first in two cases: it is in the target under another spelling of its key, or the
    table has other unique keys, whose values rows may have taken from one another.
    """
    if not shape.key:
        return _keyless(table, shape, differences)
    key = tuple(shape.actual[i].name.lower() for i in shape.key)
    absent = [_key_literals(shape, d.actual) for d in differences if d.actual and _is_in_the_way(shape, d)]
    by_columns: dict[str, tuple[list[str], list[str]]] = {}
    has_others = bool(other_uniques(table, key))
    for difference in differences:
        if difference.expected is not None:
            images, freed = by_columns.setdefault(_names(shape, difference.expected), ([], []))
            is_freed = has_others or _is_in_the_way(shape, difference)
            (freed if is_freed else images).append(_image(shape, difference.expected))
    written = tuple(
        WrittenRows(columns, *(pa.array(images, TEXT) for images in both)) for columns, both in by_columns.items()
    )
    return KeyedChanges(table, key, pa.array(absent, TEXT), written)


def _is_in_the_way(shape: ComparedColumns, difference: Difference) -> bool:
    """Tells whether the target's row must go: it is extra, or has another spelling of the key."""
    return difference.actual is not None and (
        difference.finding is DifferenceKind.EXTRA
        or shape.identity(shape.key_of(difference.actual.values)) != shape.identity(difference.key)
    )


class _Sorted(NamedTuple):
    """Differences by what becomes of them.

    whole: fixed by writing or deleting whole rows.
    parts: rows of the target that are updated in place, because only a part of their expected values is known.
    unknown: missing rows that cannot be written.
    kept: extra rows that stay, as each may be what became of an unknown one.
    refused: rows whose values of a further unique key a row that stays may have.
    """

    whole: list[Difference]
    parts: list[Difference]
    unknown: list[ComparedRow]
    kept: list[ComparedRow]
    refused: list[Difference]


def _sorted(table: Table, shape: ComparedColumns, differences: Iterable[Difference]) -> _Sorted:
    whole, parts, unknown = [], [], []
    has_others = len(shape.actual) < sum(not column.generated for column in table.columns.values())
    for difference in differences:
        row = difference.expected
        is_known = row is None or all(map(row.knows, range(len(row.values))))
        if row and row.lacks and difference.actual is None and (has_others or not is_known):
            unknown.append(row)
        elif is_known or not shape.key or difference.actual is None:
            whole.append(difference)
        else:
            parts.append(difference)
    kept = [one.actual for one in whole if one.expected is None and one.actual] if unknown else []
    whole = [one for one in whole if one.expected or not unknown]
    refused = unwritable(table, shape, whole, parts, kept)
    left = {id(one) for one in refused}
    whole, parts = ([one for one in some if id(one) not in left] for some in (whole, parts))
    return _Sorted(whole, parts, unknown, kept, refused)


def _told(shape: ComparedColumns, row: ComparedRow) -> str:
    """Writes what identifies a row: its key, or all that is known of it."""
    told = shape.key or [i for i in range(len(row.values)) if row.knows(i)]
    return ", ".join(literal_of(shape.actual[i], row.values[i]) for i in told)


def _update(table: Table, shape: ComparedColumns, difference: Difference) -> Statement:
    assert difference.expected is not None
    assert difference.actual is not None
    columns = [shape.actual[i] for i in shape.key]
    condition = any_of(key_parts(columns, columns), [shape.key_of(difference.actual.values)])
    row = difference.expected
    return update_of_row(table, Image(_names(shape, row), _image(shape, row)), condition)


def _keyless(table: Table, shape: ComparedColumns, differences: Iterable[Difference]) -> KeylessChanges:
    copies: dict[Image, int] = {}
    for difference in differences:
        row = difference.expected or difference.actual
        assert row is not None
        image = Image(_names(shape, row), _image(shape, row))
        copies[image] = copies.get(image, 0) + (difference.copies if difference.expected else -difference.copies)
    return KeylessChanges(table, {image: count for image, count in copies.items() if count})


def _names(shape: ComparedColumns, row: ComparedRow) -> str:
    return SEP.join(column.name for i, column in enumerate(shape.actual) if row.knows(i))


def _image(shape: ComparedColumns, row: ComparedRow) -> str:
    return SEP.join(literal_of(column, row.values[i]) for i, column in enumerate(shape.actual) if row.knows(i))


def _key_literals(shape: ComparedColumns, row: ComparedRow) -> str:
    return SEP.join(literal_of(shape.actual[i], row.values[i]) for i in shape.key)


class FixFile:
    """Collects the statements that fix the target, then writes them: schema changes first, as they cannot be in a
    transaction."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before: list[str] = []
        self._after: list[str] = []
        self._cannot: list[str] = []
        self._differing: dict[TableName, tuple[Table, ComparedColumns, list[Difference]]] = {}
        self._statements: dict[Stage, list[Statement]] = {stage: [] for stage in Stage}
        try:
            path.touch()
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}", fix="see --fix-sql") from error

    def add_schema(self, before: Sequence[str], after: Sequence[str] = ()) -> None:
        """Takes schema changes that come before the rows, and those that come after them.  No transaction can hold
        them."""
        self._before += before
        self._after += after

    def add_impossible(self, words: str) -> None:
        """Takes a difference that no statement of the file fixes, and the reason."""
        self._cannot.append(words)

    def add_rows(self, table: Table, shape: ComparedColumns, differences: Sequence[Difference]) -> None:
        """Takes the differing rows of a table, or of a part of it."""
        self._differing.setdefault(table.name, (table, shape, []))[2].extend(differences)

    def _render_rows(self, table: Table, shape: ComparedColumns, differences: Sequence[Difference]) -> None:
        """Makes the statements of a table, all at once: those of two parts would use one temporary table."""
        found = _sorted(table, shape, differences)
        for statement in render(net_changes(table, shape, found.whole), Rendering(table.name.schema)):
            self._statements[statement.stage].append(statement)
        self._statements[Stage.WRITE] += (_update(table, shape, part) for part in found.parts)
        for row in found.unknown:
            self._cannot.append(
                f"{table.name} lacks the row {_told(shape, row)}, of which the log holds only a part: copy it by hand"
            )
        for row in found.kept:
            self._cannot.append(
                f"{table.name} has the row {_told(shape, row)} too much; it may be a damaged form of one that is to be"
                " copied by hand, with values that the log lacks: when that is there, delete this one by hand, or have"
                " verify write a new file"
            )
        for one in found.refused:
            assert one.expected is not None
            self._cannot.append(
                f"{table.name}: the row {_told(shape, one.expected)} is not written, as a row that stays may have its"
                " value of a further unique key: once that one is gone, have verify write a new file"
            )

    def write(self, heading: str) -> int:
        """Writes the file; gives how many statements it holds."""
        for table, shape, differences in self._differing.values():
            self._render_rows(table, shape, differences)
        lines = list(self._lines(heading))
        self._path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
        return len(self._before) + len(self._after) + sum(map(len, self._statements.values()))

    def _lines(self, heading: str) -> Iterator[str]:
        yield commented(heading)
        yield f"-- Read it first, then run: mysql {OPTIONS} ... < this file.  Nothing in it has been run."
        yield from map(commented, self._cannot)
        yield from GUARD
        yield "SET NAMES utf8mb4;"
        yield from (f"{setting};" for setting in SESSION_SETTINGS)
        yield from sendable(self._before)
        yield "START TRANSACTION;"
        for stage in Stage:
            yield from sendable(statement.sql.decode() for statement in self._statements[stage])
        yield "COMMIT;"
        yield from sendable(self._after)
