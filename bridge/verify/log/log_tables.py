"""Plans how a table of the log is compared with the target's: by which key and columns, and with which SQL.  Pure.

A column that no message has is either the target's own or one that updates left out: where messages go by event time,
they may hold only a part of their rows.  Nothing tells which.  So a row of which the log has only such updates counts
as incomplete; one of which it has the insert is whole, as inserts hold every column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bridge.events import SEP
from bridge.model import Table, TableName
from bridge.mysql.table_definition import Definition, ValueClass
from bridge.quoting import quote_name
from bridge.verify.compare.checksums import row_hash
from bridge.verify.compare.comparable_columns import index_for_ranges
from bridge.verify.compare.key_ranges import KeyRange
from bridge.verify.compare.key_sql import between, in_key_order, key_parts
from bridge.verify.compare.row_diff import ComparedColumns
from bridge.verify.compare.side import PartlyKnown, Side
from bridge.verify.log.changes.lineage import Lineage
from bridge.verify.log.hashes.literal_hashes import literal
from bridge.verify.log.keys.key_cuts import WHOLE, KeyNumbers
from bridge.verify.log.keys.key_eras import key_eras
from bridge.verify.log.loaded.expected_tables import (
    COMMIT_TS,
    GONE,
    KNOWN,
    MAY_BE_GONE,
    RANK,
    SPELLING,
    WENT_AT,
    WENT_IN,
    ExpectedTable,
)
from bridge.verify.log.logged_shapes import LoggedShape
from bridge.verify.log.row_groups import ReplicatedTable
from bridge.verify.log.told_columns import is_surely_told, known_names, unread
from bridge.verify.snapshot_reader import SnapshotReader

_EXPECTED: Final = "x"
_ACTUAL: Final = "t"
_WITHOUT_KEY: Final = (
    "it has no key, and messages hold parts of its rows: the log does not tell which rows they mean, nor what they are"
    " now; compare it with the source (--against upstream)"
)
_OF_UNKNOWN_KEYS: Final = (
    "its key was changed, and the messages do not tell which of its rows those of the earlier key are now; compare it"
    " with the source (--against upstream)"
)


def _of_changed_types(names: Iterable[str]) -> str:
    return (
        f"the type of its key ({', '.join(sorted(names))}) was changed, and the messages do not tell what the earlier"
        " values have become; compare it with the source (--against upstream)"
    )


def key_range(numbers: KeyNumbers) -> KeyRange:
    """Gives a range of the first key column as ranges of keys are written."""
    low, high = (None if number is None else (str(number).encode(),) for number in numbers)
    return low, high


@dataclass(frozen=True)
class LoggedTable:
    """A table of the target that the log names.

    number: the number of the table.
    index: lower-case names of the index columns by whose ranges a table without a key is compared, () without an index.
    missing: columns that messages have and the target lacks.
    is_whole: whether the log holds every row; otherwise rows that it never mentioned are not covered.
    lost: why the log does not say what the rows are, "" where it does.
    doubt: why rows that differ may be right, "" where they are not.
    overwrites: whether an image may have taken the place of another spelling's row, of which no message says that it
    went.
    may_hide_updates: whether it has no key, and its inserts may be updates that do not tell the row before.
    """

    number: int
    replicated: ReplicatedTable
    definition: Definition
    expected_table: ExpectedTable
    index: tuple[str, ...]
    missing: tuple[str, ...]
    is_whole: bool
    lost: str
    overwrites: bool
    may_hide_updates: bool
    doubt: str = ""

    @property
    def name(self) -> TableName:
        """The table's name on the target."""
        return self.definition.name

    @property
    def shape(self) -> ComparedColumns:
        """The columns that are compared: every column that some row of the log has."""
        columns = tuple(self.definition.columns[name] for name in self.expected_table.named_columns)
        names = [column.name.lower() for column in columns]
        return ComparedColumns(columns, columns, tuple(names.index(part) for part in self.replicated.key if names))

    @property
    def order(self) -> tuple[int, ...]:
        """The numbers of the columns that ranges follow."""
        names = [column.name.lower() for column in self.shape.actual]
        return self.shape.key or tuple(names.index(part) for part in self.index if names)

    @property
    def ranges(self) -> list[KeyRange]:
        """The range of the first key column in each part."""
        return [key_range(one) for one in self.expected_table.ranges]

    def divided(self, ranges: Sequence[KeyNumbers]) -> LoggedTable:
        """Gives the table with these parts."""
        return replace(self, expected_table=replace(self.expected_table, ranges=tuple(ranges)))

    def within(self, part: int, alias: str = _ACTUAL) -> str:
        """Writes the condition for rows of a part."""
        if self.expected_table.ranges[part] == WHOLE:
            return "1=1"
        first = [self.definition.columns[self.replicated.key[0]]]
        return between(key_parts(first, first, alias), *self.ranges[part])

    @property
    def literals(self) -> list[str]:
        """The SQL of a row's values as the literals of its image, in their order.  [] where hashes of literals do not
        tell whether rows are equal (`literal_hashes`)."""
        table = self.expected_table
        key = [self.definition.columns[name].value_class for name in table.key]
        if set(key) != {ValueClass.INTEGER} or len(table.shapes) != 1 or table.may_be_gone or self.missing or self.lost:
            return []
        if self.replicated.columns or self.replicated.earlier_keys:  # parts of rows, and earlier keys, need the images
            return []
        written = [literal(self.definition.columns[name], _ACTUAL) for name in table.shapes[0].split(SEP)]
        return [one for one in written if one is not None] if None not in written else []

    @property
    def is_matched(self) -> bool:
        """Whether only those rows of the target are compared that match a row of the log."""
        return bool(self.replicated.key) and not self.is_whole and self._partly is None

    @property
    def actual(self) -> str:
        """A FROM clause of the target's rows."""
        return f"{quote_name(*self.name)} {_ACTUAL}"

    @property
    def matched(self) -> str:
        """A FROM clause of the target's rows that the log names."""
        named = f"{self._same_key} AND {self._is_named()}" if self.expected_table.is_rekeyed else self._same_key
        return f"{self.actual} JOIN {self.expected_table.name} {_EXPECTED} ON {named}"

    def _is_named(self) -> str:
        """Writes the condition for rows of the target that the log names: not those of which it only says that another
        key went, before this one became equal to it.  Where the log holds every row, there was no other."""
        if self.is_whole:
            return "1=1"
        spelled = [literal(self.definition.columns[part], _ACTUAL) for part in self.replicated.key]
        separator = f",x'{SEP.encode().hex()}',"
        texts = [f"CONVERT({one} USING utf8mb4)" for one in spelled if one is not None]
        same = f"CONCAT({separator.join(texts)})={self._own(SPELLING)}" if None not in spelled else "1=0"
        return f"({self._own(WENT_AT)}<0 OR {self._own(GONE)}=0 OR {same})"

    def _own(self, name: str) -> str:
        return f"{_EXPECTED}.{self.expected_table.own(name)}"

    @property
    def _same_key(self) -> str:
        names = [quote_name(self.definition.columns[part].name) for part in self.replicated.key]
        return " AND ".join(f"{_ACTUAL}.{name}={_EXPECTED}.{name}" for name in names)

    def actual_side(self, reader: SnapshotReader, numbers: KeyNumbers) -> Side:
        """Gives the target's rows in a range of the first key column."""
        key = [self.shape.actual[i] for i in self.order]
        parts = key_parts(key, key, _ACTUAL)
        condition = "1=1" if numbers == WHOLE else between(parts[:1], *key_range(numbers))
        rows = self.actual + in_key_order(self.definition, parts)
        return Side(reader, rows, self.shape.actual, parts, condition, _ACTUAL)

    def sides(self, reader: SnapshotReader, part: int = 0) -> tuple[Side, Side]:
        """Gives the expected side and the actual side of a part."""
        shape = self.shape
        key = [shape.actual[i] for i in self.order]
        partly = self._partly
        whole = None
        if self.expected_table.may_lack:
            whole = PartlyKnown(self._own(KNOWN), frozenset(range(len(shape.expected))))
        expected = Side(
            reader,
            f"{self.expected_table.name} {_EXPECTED}",
            shape.expected,
            key_parts(key, key, _EXPECTED),
            condition=f"{self.within(part, _EXPECTED)} AND {self._expected_rows()}",
            alias=_EXPECTED,
            partly=partly or whole,
        )
        actual = self.actual_side(reader, self.expected_table.ranges[part])
        if not self.replicated.key:
            return expected, actual if self.is_whole or partly else replace(
                actual, condition=_also_in(actual, expected)
            )
        if self.is_whole and partly is None:
            return expected, actual
        if self.is_whole:
            outer = self.matched.replace(f" {_ACTUAL} JOIN ", f" {_ACTUAL} LEFT JOIN ", 1)
            return expected, replace(actual, rows=outer, partly=partly)
        return expected, replace(actual, rows=self.matched, partly=partly)

    @property
    def _partly(self) -> PartlyKnown | None:
        if not self.expected_table.is_partly_known:
            return None
        common = frozenset.intersection(*(frozenset(shape.split(SEP)) for shape in self.expected_table.shapes))
        always = frozenset(i for i, name in enumerate(self.expected_table.named_columns) if name in common)
        return PartlyKnown(self._own(KNOWN), always)

    def _expected_rows(self) -> str:
        stays = f"{self._own(GONE)}=0"
        doubts = list(self._doubts())
        if not doubts:
            return stays
        there = f"EXISTS (SELECT 1 FROM {quote_name(*self.name)} {_ACTUAL} WHERE {self._same_key})"
        return f"{stays} AND (NOT ({' OR '.join(doubts)}) OR {there})"

    def _doubts(self) -> Iterator[str]:
        """Writes the conditions for rows that may be there or not."""
        rank, went_in, went_at, commit_ts, may_be_gone = (
            self._own(name) for name in (RANK, WENT_IN, WENT_AT, COMMIT_TS, MAY_BE_GONE)
        )
        if self.expected_table.may_be_gone:
            yield f"{may_be_gone}=1"
        if self.expected_table.is_rekeyed:
            yield f"({rank}<0 AND {went_in}<-{rank})"  # another spelling went in a later form, in which they may be one
        if self.expected_table.is_rekeyed and self.overwrites:
            yield f"({rank}<0 AND {went_at}>={commit_ts})"


def _also_in(actual: Side, expected: Side) -> str:
    return f"{row_hash(actual.tokens())} IN (SELECT {row_hash(expected.tokens())} {expected.source()})"


def choose_log_key(table: Table, definition: Definition, shapes: Sequence[LoggedShape]) -> tuple[str, ...]:
    """Gives the key to fold by: one of the target's keys that the messages hold, preferably the one they name, and one
    of whole columns; () without any."""
    held = [frozenset(shape.columns.split(SEP)) for shape in shapes]
    latest = min((shape.altered for shape in shapes), default=0)
    named = [frozenset(shape.handle.split(SEP)) for shape in shapes if shape.altered == latest]
    keys = sorted(table.keys, key=lambda key: key not in definition.keys)
    usable = [key for key in keys if not shapes or any(columns.issuperset(key) for columns in held)]
    handles = [key for key in usable if frozenset(key) in named]
    return next(iter([*handles, *usable]), ())


def logged_table(
    number: int,
    schema: str,
    table: Table,
    definition: Definition,
    shapes: Sequence[LoggedShape],
    lineage: Lineage,
    *,
    hides_updates: bool = False,
    is_utc: bool = True,
) -> LoggedTable:
    """Makes the table from what the log and the target know of it.

    schema: the database for temporary tables.
    hides_updates: as of `LogPlan`; is_utc: as of `ReplicatedTable`.
    """
    key = lineage.key_of(table.name)
    may_be_gone = any(shape.may_be_gone for shape in shapes)
    replicated, lost = _in_eras(
        ReplicatedTable(table, choose_log_key(table, definition, shapes), is_utc=is_utc),
        shapes,
        may_be_gone=may_be_gone,
    )
    known = {_known(replicated, shape) for shape in shapes}
    is_whole = key in lineage.whole and "" not in known and bool(replicated.key or not may_be_gone)
    is_rekeyed = any(_is_rekeyed(replicated, shape) for shape in shapes)
    others = _left_out(replicated, shapes, known)
    everywhere = frozenset.intersection(*(frozenset(names.split(SEP)) for names in known)) if known else frozenset()
    index = index_for_ranges(definition, definition, everywhere) if is_whole and not replicated.key else ()
    expected_table = ExpectedTable(
        quote_name(schema, f"verify {number}"),
        definition,
        replicated.key,
        tuple(sorted(known - {""})),
        index,
        may_be_gone and bool(replicated.key),
        is_rekeyed,
        bool(others) or any(_lacks_values(replicated, shape) for shape in shapes),
    )
    return LoggedTable(
        number,
        replace(replicated, columns=others.union(expected_table.named_columns), common=everywhere)
        if others or expected_table.is_partly_known
        else replicated,
        definition,
        expected_table,
        index,
        tuple(sorted(set(_names(shapes)) - definition.columns.keys())),
        is_whole,
        lost,
        any(shape.overwrites or shape.hides_updates for shape in shapes),
        hides_updates and not replicated.key and bool(shapes) and not any(shape.updates for shape in shapes),
        _doubt(replicated, shapes),
    )


def _names(shapes: Sequence[LoggedShape]) -> Iterator[str]:
    """Gives the columns of the messages; a shape has none when all of its columns are gone."""
    for shape in shapes:
        yield from filter(None, shape.columns.split(SEP))


def _in_eras(
    replicated: ReplicatedTable, shapes: Sequence[LoggedShape], *, may_be_gone: bool
) -> tuple[ReplicatedTable, str]:
    """Gives the table with the keys that it had, and why the log does not say what its rows are."""
    eras = key_eras(replicated.key, shapes, lambda shape: _known_names(replicated, shape), may_be_gone=may_be_gone)
    if eras is None:
        return replicated, _OF_UNKNOWN_KEYS
    replicated = replace(replicated, earlier_keys=eras.earlier_keys, key_numbers=eras.key_numbers)
    return replicated, _WITHOUT_KEY if not replicated.key and _hold_parts(shapes) else ""


def _is_rekeyed(replicated: ReplicatedTable, shape: LoggedShape) -> bool:
    """Tells whether `rekeyed` says so of some span with this shape."""
    return bool(set(replicated.key) & set(shape.retyped.split(SEP))) or (
        shape.converted and any(replicated.table.columns[part].charset for part in replicated.key)
    )


def _doubt(replicated: ReplicatedTable, shapes: Sequence[LoggedShape]) -> str:
    """Gives the reason why keys of the log may not be those that the target's rows have now, "" where they are."""
    columns = replicated.table.columns
    unsure = {
        name
        for shape in shapes
        for name, look in shape.looks
        if name in replicated.key and name in _known_names(replicated, shape)
        if not is_surely_told(columns[name], look)
    }
    return _of_changed_types(columns[name].name for name in unsure) if unsure else ""


def _hold_parts(shapes: Sequence[LoggedShape]) -> bool:
    """Tells whether some changes of existing rows lack a column that an earlier message has."""
    return any(
        other.first < shape.in_place and not set(other.columns.split(SEP)).issubset(shape.columns.split(SEP))
        for shape in shapes
        for other in shapes
    )


def _left_out(replicated: ReplicatedTable, shapes: Sequence[LoggedShape], known: Collection[str]) -> frozenset[str]:
    """Gives the columns of the target that no message has, where updates may have left them out.  known: the columns
    that are loaded, as of `_known`."""
    if not replicated.key or all(shape.in_place < 0 for shape in shapes):
        return frozenset()
    mine = {name for name, column in replicated.table.columns.items() if not column.generated}
    return frozenset(mine.difference(*(names.split(SEP) for names in known)))


def _lacks_values(replicated: ReplicatedTable, shape: LoggedShape) -> bool:
    """Tells whether `unread` says so of some span with this shape."""
    untold = {name for some in (shape.retyped, shape.undefaulted, shape.worded) for name in some.split(SEP)}
    return unread(replicated, untold, _known_names(replicated, shape))


def _known(replicated: ReplicatedTable, shape: LoggedShape) -> str:
    """Gives the columns that are loaded; "" for rows whose key the messages do not hold."""
    kept = _known_names(replicated, shape)
    return SEP.join(kept) if set(replicated.key) <= set(kept) else ""


def _known_names(replicated: ReplicatedTable, shape: LoggedShape) -> list[str]:
    names = shape.columns.split(SEP)
    retyped, by_number, by_text = (some.split(SEP) for some in (shape.retyped, shape.numbered, shape.worded))
    return [names[i] for i in known_names(replicated, retyped, by_number, by_text, names)]
