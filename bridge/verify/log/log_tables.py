"""Tables of the target that the log names: by which key, columns and SQL each is compared, and its temporary table of
expected rows, in the target's own types, which ends with its session.

Of a large table only ranges may be loaded.  Then both sides are the rows whose first key column is in one of these, as
the target sees it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP
from bridge.model import Table, TableName, free_name, quote_name
from bridge.mysql.table_definition import ColumnInfo, Definition
from bridge.protocols.values import literals
from bridge.protocols.values.row_image import split_forms
from bridge.rows.gathering import Bools, Longs
from bridge.rows.literal_offsets import TEXT, parts_of, runs
from bridge.rows.net_changes import choose_key
from bridge.rows.sql.members import with_zeros
from bridge.rows.sql.statement import STATEMENT_BYTES
from bridge.rows.type_check import true_names
from bridge.verify.compare.checksums import between, key_parts
from bridge.verify.compare.row_diff import ComparedColumns

if TYPE_CHECKING:
    from bridge.mysql.connection.session import Session  # brings the driver, which executors do without

EXPECTED: Final = "x"
ACTUAL: Final = "t"
"""The aliases of the two tables."""
_NO_KEY: Final = "it has no key that its messages hold"
_OTHER_KEYS: Final = "some of its messages name another key than others, or none"
_OTHER_COLUMNS: Final = (
    "some of its messages hold other columns than others, as updates that leave out a part of their row do"
)
# The names of the bridge's own columns, as far as the table has none of that name (`LoggedTable.own`).
STATE: Final = "bridge state"
COMMIT_TS: Final = "bridge commit_ts"
PLACE: Final = "bridge place"
"""Topic, partition and offset of the last change."""
_META: Final = ((STATE, "TINYINT NOT NULL"), (COMMIT_TS, "BIGINT NOT NULL"), (PLACE, "BLOB NOT NULL"))
ROW, UNSURE, GONE = range(3)
"""What STATE tells of a key: its row is there; nothing tells which is its last message, or several keys of the log are
one to the target; it is gone."""
_LENGTH: Final = re.compile(r"var(?:char|binary)\((\d+)\)")
_LONG: Final = 1000
"""Text columns of more characters become LONGTEXT, so that a row has room for the columns that are added."""
_RANGE_ROWS: Final = 50_000
"""A range has about this many rows."""
_PLAIN: Final = "^-?[0-9]{1,18}$"
"""Literals that any integer column takes as the number that they are."""
_CUT: Final = range(-(10**18), 10**18)
KeyNumbers = tuple[int | None, int | None]
"""A range of the first key column: above the first number, and not above the second; None is no bound."""
WHOLE: Final[KeyNumbers] = (None, None)


@dataclass(frozen=True)
class LoggedTable:
    """A table of the target that the log names.

    number: the number of the table.  expected: the quoted name of the temporary table.
    key: the columns, in lower case, by which rows are told apart.
    columns: those that the messages have and that count, in lower case, in the table's order; others the target does
        not have, or generates.
    ranges: of the first key column; the rows that are loaded.
    findings: what is wrong with the table itself.
    is_whole: whether the log holds every row; otherwise rows that it never mentioned are not covered.
    since: from when on its rows are compared, and why, "" where they all are.
    uncovered: why none of its rows are compared, "" where some are.
    may_lack: whether updates may have left out the values of columns that no message has.
    """

    number: int
    expected: str
    definition: Definition
    key: tuple[str, ...]
    columns: tuple[str, ...]
    ranges: tuple[KeyNumbers, ...] = (WHOLE,)
    findings: tuple[str, ...] = ()
    is_whole: bool = False
    since: str = ""
    uncovered: str = ""
    may_lack: bool = False

    @cached_property
    def table(self) -> Table:
        """The table as the writer sees it."""
        return self.definition.table

    @property
    def name(self) -> TableName:
        """The table's name on the target."""
        return self.definition.name

    def own(self, name: str) -> str:
        """Gives one of the bridge's own columns, quoted.  name: one of those above."""
        return quote_name(free_name(name, self.definition.columns))

    def create(self) -> str:
        """Gives the statement that makes it."""
        lines = [
            _line(column, is_key=name in self.key)
            for name, column in self.definition.columns.items()
            if name in self.key or not column.generated
        ]
        lines += [*(f"{self.own(name)} {kind}" for name, kind in _META), self._index()]
        # A key that the target's table has may be too long for the server's default format (MariaDB: 1709).
        return f"CREATE TEMPORARY TABLE {self.expected} ({', '.join(lines)}) ENGINE=InnoDB ROW_FORMAT=DYNAMIC"

    def inserts(self, rows: pa.Table) -> Iterator[str]:
        """Gives the statements that load last steps of this table."""
        rows = within(rows, self.ranges)
        is_unsure, is_gone = rows["is_unsure"].combine_chunks(), pc.is_null(rows["image"]).combine_chunks()
        yield from self._load(rows.filter(is_unsure), "key", UNSURE)
        yield from self._load(rows.filter(pc.and_not(is_gone, is_unsure)), "key", GONE)
        yield from self._load(rows.filter(pc.invert(pc.or_(is_gone, is_unsure))), "image", ROW)

    def _load(self, rows: pa.Table, values_of: str, state: int) -> Iterator[str]:
        names = self.key if values_of == "key" else self.columns
        columns = [quote_name(self.definition.columns[name].name) for name in names]
        meta = [self.own(name) for name, _ in _META]
        head = f"INSERT INTO {self.expected} ({','.join([*columns, *meta])}) VALUES ("
        tail = f") ON DUPLICATE KEY UPDATE {self.own(STATE)}={UNSURE}"
        position = (rows[name].combine_chunks().cast(TEXT) for name in ("topic", "partition", "offset"))
        places = pc.binary_join_element_wise(*position, pa.scalar("/", TEXT))
        values = {
            STATE: pa.scalar(str(state), TEXT),
            COMMIT_TS: rows["commit_ts"].combine_chunks().cast(TEXT),
            PLACE: pa.array(map(literals.text, places.to_pylist()), TEXT),
        }
        types = [self.definition.columns[name].type for name in names]
        images = with_zeros(rows[values_of].combine_chunks(), types)
        bodies = pc.binary_join_element_wise(
            pc.replace_substring(images, SEP, ","), *(values[name] for name, _ in _META), pa.scalar(",", TEXT)
        )
        for run in runs(bodies, STATEMENT_BYTES):
            yield f"{head}{'),('.join(run.to_pylist())}{tail}"

    def _index(self) -> str:
        """Writes the key, which may be one of the beginnings of values."""
        of_key = (i for i in self.definition.indexes.values() if i.unique and set(i.parts) == set(self.key))
        index = min(of_key, key=lambda i: any(i.lengths))
        parts = (
            quote_name(self.definition.columns[part].name) + (f"({length})" if length else "")
            for part, length in zip(index.parts, index.lengths, strict=True)
        )
        return f"PRIMARY KEY ({','.join(parts)})"

    @property
    def shape(self) -> ComparedColumns:
        """The columns that are compared: those that the rows of the log have."""
        columns = tuple(self.definition.columns[name] for name in self.columns)
        return ComparedColumns(columns, columns, tuple(self.columns.index(part) for part in self.key if self.columns))

    def within(self, ranges: Sequence[KeyNumbers], alias: str = ACTUAL) -> str:
        """Writes the condition for rows of some ranges of the first key column."""
        if WHOLE in ranges:
            return "1=1"
        first = [self.definition.columns[self.key[0]]]
        parts = key_parts(first, first, alias)
        bounds = ([None if number is None else (str(number).encode(),) for number in numbers] for numbers in ranges)
        return " OR ".join(f"({between(parts, low, high)})" for low, high in bounds)

    @property
    def actual(self) -> str:
        """A FROM clause of the target's rows."""
        return f"{quote_name(*self.name)} {ACTUAL}"

    @property
    def matched(self) -> str:
        """A FROM clause of the target's rows of which the log holds the last state."""
        names = [quote_name(self.definition.columns[part].name) for part in self.key]
        same_key = " AND ".join(f"{ACTUAL}.{name}={EXPECTED}.{name}" for name in names)
        return f"{self.actual} JOIN {self.expected} {EXPECTED} ON {same_key} AND {self._state}<>{UNSURE}"

    def unsure_query(self) -> str:
        """Writes the query of how many keys are UNSURE."""
        return f"SELECT COUNT(*) FROM {self.expected} {EXPECTED} WHERE {self._state}={UNSURE}"

    @property
    def are_rows(self) -> str:
        """The condition for what is loaded of rows that should be there."""
        return f"({self.within(self.ranges, EXPECTED)}) AND {self._state}={ROW}"

    @property
    def _state(self) -> str:
        return f"{EXPECTED}.{self.own(STATE)}"

    def uncovered_query(self) -> str:
        """Writes the query of how many rows of the target the log does not tell."""
        is_loaded = self.within(self.ranges)
        total, matched = (f"SELECT COUNT(*) FROM {rows} WHERE {is_loaded}" for rows in (self.actual, self.matched))
        return f"SELECT ({total})-({matched})"


class RowGroup(NamedTuple):
    """Row changes of a table with the same columns and the same handle key, both as the messages have them.

    is_covered: whether they are surely behind the table's cut.  columns: with the forms of their values (`row_image`).
    has_images: whether some change is more than a delete.
    is_unclear: whether nothing tells on which side of the cut they are.
    """

    table: TableName
    is_covered: bool
    columns: str
    key: str
    has_images: bool = True
    is_unclear: bool = False

    def names(self, table: Table) -> list[str]:
        """Gives the columns by the table's own names, in lower case, where Debezium has changed them."""
        joined_names, forms = split_forms(self.columns)
        names = joined_names.split(SEP)
        return [name.lower() for name in (true_names(table, names) if "avro" in forms else names)]

    def handle(self, table: Table) -> str:
        """Gives the columns of the handle key in the same way, joined by SEP; "" where messages name none."""
        own = dict(zip(split_forms(self.columns)[0].lower().split(SEP), self.names(table), strict=True))
        return SEP.join(own.get(name, name) for name in self.key.lower().strip(SEP).split(SEP))


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
    counted_columns = {name for name, column in table.columns.items() if not column.generated or name in key}
    message_names = {name for group in groups for name in group.names(table)}
    lists = {frozenset(group.names(table)) & counted_columns for group in groups if group.has_images}
    compared = {name for names in lists for name in names} or message_names.intersection(key)
    return LoggedTable(
        number,
        quote_name(schema, f"verify {number}"),
        definition,
        key,
        tuple(name for name in definition.columns if name in compared),
        findings=tuple(f"column {name} is missing" for name in sorted(message_names - definition.columns.keys())),
        is_whole=is_whole,
        since=since,
        uncovered=uncovered or why or (_OTHER_COLUMNS if len(lists) > 1 else ""),
        may_lack=come_in_parts and not table.written_names <= compared,
    )


def _line(column: ColumnInfo, *, is_key: bool) -> str:
    kind, length = column.type, _LENGTH.match(column.type)
    if not is_key and length and int(length[1]) > _LONG:
        kind = "longtext" if column.data_type == "varchar" else "longblob"
    text = f" CHARACTER SET {column.charset} COLLATE {column.collation}" if column.charset else ""
    return f"{quote_name(column.name)} {kind}{text} {'NOT NULL' if is_key else 'NULL'}"


def find_cuts(session: Session, definition: Definition, key: Sequence[str]) -> tuple[int, ...]:
    """Gives the values up to which each range but the last reaches, for ranges of about 50,000 rows if keys are spread
    evenly; () for a small table.  key: begins with an integer."""
    if definition.rows < 2 * _RANGE_ROWS:
        return ()
    name = quote_name(definition.columns[key[0]].name)
    [(first, last)] = session.rows(f"SELECT MIN({name}),MAX({name}) FROM {quote_name(*definition.name)}")
    if first is None or int(first) not in _CUT or int(last) not in _CUT:
        return ()
    size = -(-_RANGE_ROWS * (int(last) - int(first) + 1) // definition.rows)
    return tuple(range(int(first) - 1 + size, int(last), size))


def ranges_of(cuts: Sequence[int]) -> tuple[KeyNumbers, ...]:
    """Gives the ranges between cuts."""
    return tuple(pairwise([None, *cuts, None]))


def join_ranges(ranges: Iterable[KeyNumbers]) -> tuple[KeyNumbers, ...]:
    """Joins ranges that follow one another."""
    united: list[KeyNumbers] = []
    for low, high in sorted(ranges, key=lambda bounds: -inf if bounds[0] is None else bounds[0]):
        if united and united[-1][1] == low:
            united[-1] = united[-1][0], high
        else:
            united.append((low, high))
    return tuple(united)


def within(rows: pa.Table, ranges: Sequence[KeyNumbers]) -> pa.Table:
    """Gives the folded steps of some ranges of their table, and those whose place only the target can tell."""
    if WHOLE in ranges:
        return rows
    numbers, is_wanted = numbers_of(rows)
    for low, high in ranges:
        is_above = True if low is None else numbers > low
        is_below = True if high is None else numbers <= high
        is_wanted |= is_above & is_below
    return rows.filter(pa.array(is_wanted))


def numbers_of(rows: pa.Table) -> tuple[Longs, Bools]:
    """Gives the first key column of folded steps, and whether only the target can tell it."""
    [first] = parts_of(rows["key"].combine_chunks(), [0])
    is_plain = pc.match_substring_regex(first, _PLAIN)
    numbers = pc.if_else(is_plain, first, "0").cast(pa.int64()).to_numpy()
    return numbers, ~is_plain.to_numpy(zero_copy_only=False)
