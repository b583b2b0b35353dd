"""Plans how a table of the log is compared with the target's: by which key and columns, and with which SQL.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bridge.events import SEP
from bridge.model import Table, TableName
from bridge.mysql.table_definition import Definition, ValueClass
from bridge.quoting import quote_name
from bridge.verify.compare.checksums import row_hash
from bridge.verify.compare.comparable_columns import index_for_ranges
from bridge.verify.compare.key_ranges import KeyRange
from bridge.verify.compare.key_sql import between, in_key_order, key_parts
from bridge.verify.compare.row_diff import ComparedColumns
from bridge.verify.compare.side import Side
from bridge.verify.log.expected_tables import PART, ROW, STATE, WHOLE, ExpectedTable, KeyNumbers
from bridge.verify.log.literal_hashes import literal
from bridge.verify.log.logged_rows import LoggedShape, ReplicatedTable
from bridge.verify.snapshot_reader import SnapshotReader

_EXPECTED = "x"
_ACTUAL = "t"
_OF_OTHER_KEYS = (
    "its key was changed: some of its messages name one, and others none; compare it with the source (--against"
    " upstream)"
)


def key_range(numbers: KeyNumbers) -> KeyRange:
    """Gives a range of the first key column as ranges of keys are written."""
    low, high = (None if number is None else (str(number).encode(),) for number in numbers)
    return low, high


@dataclass(frozen=True)
class LoggedTable:
    """A table of the target that the log names.

    number: the number of the table.
    shapes: the lists of columns that the images of its rows have, each joined by SEP.
    missing: columns that messages have and the target lacks.
    is_whole: whether the log holds every row; otherwise rows that it never mentioned are not covered.
    since: from when on its rows are compared, and why, "" where they all are.
    lost: why the messages do not tell its rows apart, "" where they do.
    uncovered: why none of its rows are compared, "" where some are.
    may_lack: whether updates may have left out the values of columns that no message has.
    may_hide_updates: whether it has no key, and its inserts may be updates that do not tell the row before.
    """

    number: int
    replicated: ReplicatedTable
    definition: Definition
    expected_table: ExpectedTable
    shapes: tuple[str, ...]
    missing: tuple[str, ...]
    is_whole: bool
    since: str
    lost: str
    uncovered: str
    may_lack: bool
    may_hide_updates: bool

    @property
    def name(self) -> TableName:
        """The table's name on the target."""
        return self.definition.name

    @property
    def schema_findings(self) -> tuple[str, ...]:
        """What is wrong with the table itself."""
        return (*(f"column {name} is missing" for name in self.missing), *filter(None, [self.lost]))

    @property
    def shape(self) -> ComparedColumns:
        """The columns that are compared: every column that some row of the log has."""
        names = self.expected_table.columns
        columns = tuple(self.definition.columns[name] for name in names)
        return ComparedColumns(columns, columns, tuple(names.index(part) for part in self.replicated.key if names))

    @property
    def order(self) -> tuple[int, ...]:
        """The numbers of the columns that ranges follow."""
        return self.shape.key or tuple(self.expected_table.columns.index(part) for part in self.expected_table.index)

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
    def is_partial(self) -> bool:
        """Whether some messages hold only a part of a row.  Then none is extra: it may be one of these, damaged."""
        return bool(self.replicated.key) and len({frozenset(names.split(SEP)) for names in self.shapes}) > 1

    @property
    def literals(self) -> list[str]:
        """The SQL of a row's values as the literals of its image, in their order.  [] where hashes of literals do not
        tell whether rows are equal (`literal_hashes`)."""
        table = self.expected_table
        key = [self.definition.columns[name].value_class for name in table.key]
        if set(key) != {ValueClass.INTEGER} or len(self.shapes) != 1 or self.missing or self.lost:
            return []
        written = [literal(self.definition.columns[name], _ACTUAL) for name in self.shapes[0].split(SEP)]
        return [one for one in written if one is not None] if None not in written else []

    @property
    def actual(self) -> str:
        """A FROM clause of the target's rows."""
        return f"{quote_name(*self.name)} {_ACTUAL}"

    @property
    def matched(self) -> str:
        """A FROM clause of the target's rows of which the log holds the last state."""
        return (
            f"{self.actual} JOIN {self.expected_table.name} {_EXPECTED} ON {self._same_key} AND {self._state}<>{PART}"
        )

    def partial_query(self, part: int) -> str:
        """Writes the query of how many rows of a part are known only partly, and how many of these the target lacks."""
        first = quote_name(_ACTUAL, self.definition.columns[self.replicated.key[0]].name)
        return (
            f"SELECT COUNT(*),COALESCE(SUM({first} IS NULL),0) FROM {self.expected_table.name} {_EXPECTED}"
            f" LEFT JOIN {self.actual} ON {self._same_key}"
            f" WHERE {self.within(part, _EXPECTED)} AND {self._state}={PART}"
        )

    @property
    def _same_key(self) -> str:
        names = [quote_name(self.definition.columns[part].name) for part in self.replicated.key]
        return " AND ".join(f"{_ACTUAL}.{name}={_EXPECTED}.{name}" for name in names)

    @property
    def _state(self) -> str:
        return f"{_EXPECTED}.{self.expected_table.own(STATE)}"

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
        expected = Side(
            reader,
            f"{self.expected_table.name} {_EXPECTED}",
            shape.expected,
            key_parts(key, key, _EXPECTED),
            condition=f"{self.within(part, _EXPECTED)} AND {self._state}={ROW}",
            alias=_EXPECTED,
        )
        actual = self.actual_side(reader, self.expected_table.ranges[part])
        if self.is_whole:
            return expected, actual
        if not self.replicated.key:
            return expected, replace(actual, condition=_also_in(actual, expected))
        return expected, replace(actual, rows=self.matched)


def _also_in(actual: Side, expected: Side) -> str:
    return f"{row_hash(actual.tokens())} IN (SELECT {row_hash(expected.tokens())} {expected.source()})"


def choose_log_key(table: Table, definition: Definition, shapes: Sequence[LoggedShape]) -> tuple[str, ...]:
    """Gives the key to fold by: one of the target's keys that the messages hold, preferably the one they name, and one
    of whole columns; () without any."""
    held = [frozenset(shape.columns.split(SEP)) for shape in shapes]
    named = [frozenset(shape.handle.split(SEP)) for shape in shapes]
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
    *,
    is_whole: bool,
    since: str = "",
    uncovered: str = "",
    hides_updates: bool = False,
) -> LoggedTable:
    """Makes the table from what the log and the target know of it.

    schema: the database for temporary tables.
    is_whole, since, uncovered: as of `LoggedTable`, as far as schema changes and filters tell.
    hides_updates: whether the format's inserts may be updates.
    """
    shapes = [shape.of(table) for shape in shapes]
    key = choose_log_key(table, definition, shapes)
    columns = frozenset(name for name, one in table.columns.items() if not one.generated or name in key)
    replicated = ReplicatedTable(table, key, columns)
    lists = [shape.columns.split(SEP) for shape in shapes if shape.has_images or not key]
    images = [[names[i] for i in replicated.kept(names)] for names in lists] or [list(key)] * bool(shapes)
    is_whole = is_whole and all(set(key) <= set(names) for names in images) and len(set(map(frozenset, images))) < 2
    images = [names for names in images if names and set(key) <= set(names)]
    compared = frozenset(name for names in images for name in names)
    if not key:  # rows are told apart by all values that messages have, which a column of the target's own is not among
        replicated = replace(replicated, columns=compared)
    index = index_for_ranges(definition, definition, compared) if is_whole and not key else ()
    named = {name for shape in shapes for name in shape.columns.split(SEP)}
    return LoggedTable(
        number,
        replicated,
        definition,
        ExpectedTable(
            quote_name(schema, f"verify {number}"),
            definition,
            key,
            tuple(name for name in definition.columns if name in compared),
            index,
        ),
        tuple(sorted({SEP.join(names) for names in images})),
        tuple(sorted(named - definition.columns.keys())),
        is_whole,
        since,
        _OF_OTHER_KEYS if key and frozenset({""}) < {shape.handle for shape in shapes} else "",
        uncovered or ("" if key else _why_uncountable(definition, images)),
        any(shape.in_place for shape in shapes) and not table.written_names <= compared,
        hides_updates and not key and bool(shapes) and not any(shape.updates for shape in shapes),
    )


def _why_uncountable(definition: Definition, images: Sequence[Sequence[str]]) -> str:
    """Tells why equal rows of a table without a key do not have equal images, "" where they do."""
    if len({frozenset(names) for names in images}) > 1:
        return "it has no key, and some of its messages lack columns"
    if any(definition.columns[name].data_type == "json" for names in images for name in names):
        # Debezium's snapshot writes a document as the server prints it, a change as its reader of the binlog does.
        return "it has no key, and messages may spell one JSON document in several ways"
    return ""
