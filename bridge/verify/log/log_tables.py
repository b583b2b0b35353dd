"""Plans how a table of the log is compared with the target's: by which key and columns, and with which SQL.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bridge.events import SEP
from bridge.model import Table, TableName
from bridge.mysql.table_definition import Definition, ValueClass
from bridge.quoting import quote_name
from bridge.rows.net_changes import choose_key
from bridge.verify.compare.bisect import Side
from bridge.verify.compare.key_ranges import KeyRange
from bridge.verify.compare.key_sql import between, in_key_order, key_parts
from bridge.verify.compare.row_diff import ComparedColumns
from bridge.verify.log.expected_tables import ROW, STATE, UNSURE, WHOLE, ExpectedTable, KeyNumbers, joined
from bridge.verify.log.literal_hashes import literal
from bridge.verify.log.logged_rows import RowGroup
from bridge.verify.snapshots import SnapshotReader

_EXPECTED = "x"
_ACTUAL = "t"
_NO_KEY = "it has no key that its messages hold"
_OTHER_KEYS = "some of its messages name another key than others, or none"
_OTHER_COLUMNS = "some of its messages hold other columns than others, as updates that leave out a part of their row do"


def key_range(numbers: KeyNumbers) -> KeyRange:
    """Gives a range of the first key column as ranges of keys are written."""
    low, high = (None if number is None else (str(number).encode(),) for number in numbers)
    return low, high


@dataclass(frozen=True)
class LoggedTable:
    """A table of the target that the log names.

    number: the number of the table.
    missing: columns that messages have and the target lacks.
    is_whole: whether the log holds every row; otherwise rows that it never mentioned are not covered.
    since: from when on its rows are compared, and why, "" where they all are.
    uncovered: why none of its rows are compared, "" where some are.
    may_lack: whether updates may have left out the values of columns that no message has.
    """

    number: int
    expected_table: ExpectedTable
    missing: tuple[str, ...]
    is_whole: bool
    since: str
    uncovered: str
    may_lack: bool

    @property
    def name(self) -> TableName:
        """The table's name on the target."""
        return self.definition.name

    @property
    def definition(self) -> Definition:
        """The target's table."""
        return self.expected_table.definition

    @property
    def key(self) -> tuple[str, ...]:
        """The columns, in lower case, by which rows are told apart."""
        return self.expected_table.key

    @property
    def schema_findings(self) -> tuple[str, ...]:
        """What is wrong with the table itself."""
        return tuple(f"column {name} is missing" for name in self.missing)

    @property
    def shape(self) -> ComparedColumns:
        """The columns that are compared: those that the rows of the log have."""
        names = self.expected_table.columns
        columns = tuple(self.definition.columns[name] for name in names)
        return ComparedColumns(columns, columns, tuple(names.index(part) for part in self.key if names))

    def loading(self, ranges: Iterable[KeyNumbers]) -> LoggedTable:
        """Gives the table with these ranges to be loaded."""
        return replace(self, expected_table=replace(self.expected_table, ranges=joined(ranges)))

    def within(self, ranges: Sequence[KeyNumbers], alias: str = _ACTUAL) -> str:
        """Writes the condition for rows of some ranges of the first key column."""
        if WHOLE in ranges:
            return "1=1"
        first = [self.definition.columns[self.key[0]]]
        parts = key_parts(first, first, alias)
        return " OR ".join(f"({between(parts, *key_range(numbers))})" for numbers in ranges)

    @property
    def literals(self) -> list[str]:
        """The SQL of a row's values as the literals of its image, in their order.  [] where hashes of literals do not
        tell whether rows are equal (`literal_hashes`)."""
        table = self.expected_table
        key = [self.definition.columns[name].value_class for name in table.key]
        if set(key) != {ValueClass.INTEGER} or self.missing:
            return []
        written = [literal(self.definition.columns[name], _ACTUAL) for name in table.columns]
        return [one for one in written if one is not None] if None not in written else []

    @property
    def actual(self) -> str:
        """A FROM clause of the target's rows."""
        return f"{quote_name(*self.name)} {_ACTUAL}"

    @property
    def matched(self) -> str:
        """A FROM clause of the target's rows of which the log holds the last state."""
        return (
            f"{self.actual} JOIN {self.expected_table.name} {_EXPECTED} ON {self._same_key} AND {self._state}<>{UNSURE}"
        )

    def unsure_query(self) -> str:
        """Writes the query of how many keys are UNSURE."""
        return f"SELECT COUNT(*) FROM {self.expected_table.name} {_EXPECTED} WHERE {self._state}={UNSURE}"

    @property
    def _same_key(self) -> str:
        names = [quote_name(self.definition.columns[part].name) for part in self.key]
        return " AND ".join(f"{_ACTUAL}.{name}={_EXPECTED}.{name}" for name in names)

    @property
    def _state(self) -> str:
        return f"{_EXPECTED}.{self.expected_table.own(STATE)}"

    def _loaded(self, alias: str = _ACTUAL) -> str:
        return self.within(self.expected_table.ranges, alias)

    def uncovered_query(self) -> str:
        """Writes the query of how many rows of the target the log does not tell."""
        every, matched = (f"SELECT COUNT(*) FROM {rows} WHERE {self._loaded()}" for rows in (self.actual, self.matched))
        return f"SELECT ({every})-({matched})"

    def actual_side(self, reader: SnapshotReader, ranges: Sequence[KeyNumbers]) -> Side:
        """Gives the target's rows in some ranges of the first key column."""
        key = [self.shape.actual[i] for i in self.shape.key]
        parts = key_parts(key, key, _ACTUAL)
        rows = self.actual + in_key_order(self.definition, parts)
        return Side(reader, rows, self.shape.actual, parts, self.within(ranges), _ACTUAL)

    def sides(self, reader: SnapshotReader) -> tuple[Side, Side]:
        """Gives the expected side and the actual side of what is loaded."""
        shape = self.shape
        key = [shape.actual[i] for i in shape.key]
        expected = Side(
            reader,
            f"{self.expected_table.name} {_EXPECTED}",
            shape.expected,
            key_parts(key, key, _EXPECTED),
            condition=f"({self._loaded(_EXPECTED)}) AND {self._state}={ROW}",
            alias=_EXPECTED,
        )
        actual = self.actual_side(reader, self.expected_table.ranges)
        if self.is_whole:
            return expected, actual
        return expected, replace(actual, rows=self.matched)


def choose_log_key(table: Table, groups: Sequence[RowGroup]) -> tuple[tuple[str, ...], str]:
    """Gives the key that the writer finds the rows by; where that is not one for all messages, (), and why."""
    handles = [group.handle(table) for group in groups]
    keys = {choose_key(table, SEP.join(group.names(table)), key) for group, key in zip(groups, handles, strict=True)}
    if len(keys) > 1 or len(set(map(bool, handles))) > 1:
        return (), _OTHER_KEYS
    key = next(iter(keys or table.keys), ())
    return key, "" if key else _NO_KEY


def logged_table(
    number: int,
    schema: str,
    definition: Definition,
    groups: Sequence[RowGroup],
    *,
    is_whole: bool,
    since: str = "",
    uncovered: str = "",
    come_in_parts: bool = False,
) -> LoggedTable:
    """Makes the table from what the log and the target know of it.

    schema: the database for temporary tables.
    is_whole, since, uncovered: as of `LoggedTable`, as far as schema changes and filters tell.
    come_in_parts: whether updates may hold a part of their row.
    """
    table = definition.table
    key, why = choose_log_key(table, groups)
    counting = {name for name, one in table.columns.items() if not one.generated or name in key}
    named = {name for group in groups for name in group.names(table)}
    lists = {frozenset(group.names(table)) & counting for group in groups if group.has_images}
    compared = {name for names in lists for name in names} or named.intersection(key)
    return LoggedTable(
        number,
        ExpectedTable(
            quote_name(schema, f"verify {number}"),
            definition,
            key,
            tuple(name for name in definition.columns if name in compared),
        ),
        tuple(sorted(named - definition.columns.keys())),
        is_whole,
        since,
        uncovered or why or (_OTHER_COLUMNS if len(lists) > 1 else ""),
        come_in_parts and not table.written_names <= compared,
    )
