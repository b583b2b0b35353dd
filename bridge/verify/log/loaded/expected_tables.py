"""Makes temporary tables of expected rows, in the target's own types.  They end with their session."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import zip_longest
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP
from bridge.mysql.table_definition import ColumnInfo, Definition
from bridge.protocols.values import literals
from bridge.quoting import free_name, quote_name
from bridge.rows.arrow_images import TEXT, runs
from bridge.rows.sql.enum_zeros import EnumZero, with_zeros, zero_of
from bridge.rows.sql.statement import STATEMENT_BYTES
from bridge.verify.compare.side import LACKS
from bridge.verify.log.keys.key_cuts import WHOLE, KeyNumbers, divided

# The names of the bridge's own columns, as far as the table has none of that name (`ExpectedTable.own`).
GONE: Final = "bridge gone"
KNOWN: Final = "bridge known"
MAY_BE_GONE: Final = "bridge may be gone"
RANK: Final = "bridge rank"
"""Which step of a key counts where the key's type or collation was changed (see `ExpectedTable`): 0 for a step since,
-n for an image from n forms of the key ago, the lowest for a row that went before."""
WENT_IN: Final = "bridge went in"
"""The last of these forms, as a number like n above, in which any spelling of the key went."""
WENT_AT: Final = "bridge went at"
"""The last commit_ts (TSO) at which any spelling of the key went in one of these forms."""
SPELLING: Final = "bridge spelling"
"""The literals of the key."""
COMMIT_TS: Final = "bridge commit_ts"
TOPIC: Final = "bridge topic"
"""Its bytes: topics are in the order of these, and blanks at the end count."""
PARTITION: Final = "bridge partition"
OFFSET: Final = "bridge offset"
INDEX: Final = "bridge index"
_META: Final = (
    (GONE, "BOOL NOT NULL"),
    (KNOWN, "TEXT CHARACTER SET ascii NOT NULL"),
    (MAY_BE_GONE, "BOOL NOT NULL"),
    (RANK, "INT NOT NULL"),
    (WENT_IN, "INT NOT NULL"),
    (WENT_AT, "BIGINT NOT NULL"),
    (SPELLING, "LONGBLOB NOT NULL"),
    (COMMIT_TS, "BIGINT NOT NULL"),
    (TOPIC, "BLOB NOT NULL"),
    (PARTITION, "INT NOT NULL"),
    (OFFSET, "BIGINT NOT NULL"),
    (INDEX, "INT NOT NULL"),
)
_DECIDE: Final = (GONE, INDEX, OFFSET, PARTITION, TOPIC, COMMIT_TS, RANK)
"""The columns that decide which of two steps is the later one, in the order in which MySQL assigns them.  The decision
must stay the same while one column after the other takes the later step's value."""
_REKEYED: Final = (RANK, WENT_IN, WENT_AT, SPELLING)
_ANY: Final = {WENT_IN: "LEAST", WENT_AT: "GREATEST"}
"""The columns that tell something of all spellings of a key, and how two values become one."""
_EVER: Final = 1 << 30
"""More forms than a key ever has."""
_LENGTH: Final = re.compile(r"var(?:char|binary)\((\d+)\)")
_LONG: Final = 1000
"""Text columns of more characters become LONGTEXT, so that a row has room for the columns that are added."""


class Insert(NamedTuple):
    """A statement that loads rows.

    must_fit: whether the table has to take every row.  Otherwise one that it refuses is not there: no row of the target
    can have its key.
    is_converted: whether schema changes have converted the keys of these rows.
    """

    head: str
    rows: list[str]
    tail: str
    must_fit: bool
    is_converted: bool = False

    @property
    def sql(self) -> str:
        """The statement."""
        return f"{self.head}({'),('.join(self.rows)}){self.tail}"

    def halves(self) -> Iterator[Insert]:
        """Gives two statements with half of the rows each; none for a single row."""
        middle = len(self.rows) // 2
        if middle:
            yield self._replace(rows=self.rows[:middle])
            yield self._replace(rows=self.rows[middle:])


@dataclass(frozen=True)
class ExpectedTable:
    """A table of expected rows.

    name: quoted.
    shapes: the lists of columns that messages have, each joined by SEP.
    index: columns of the index that a table without a key is compared by.
    may_be_gone: whether some rows may have been deleted with their table partitions.
    is_rekeyed: whether the type or the collation of the key was changed within the log.
    may_lack: whether the log may not hold a value that a row had.
    ranges: of the first key column, one for each part that is loaded (`key_cuts`).

    Two keys of the log may be one for the target.  Then the last step counts.  Where the key was changed, they may be
    one only since that change.  Then the deletion of one says nothing of the other; and of two images the last one
    counts, since the change would have failed if both rows had been there.
    """

    name: str
    definition: Definition
    key: tuple[str, ...]
    shapes: tuple[str, ...]
    index: tuple[str, ...] = ()
    may_be_gone: bool = False
    is_rekeyed: bool = False
    may_lack: bool = False
    ranges: tuple[KeyNumbers, ...] = (WHOLE,)

    @property
    def named_columns(self) -> list[str]:
        """The columns that any message has, in lower case, in the table's order."""
        named = {name for shape in self.shapes for name in shape.split(SEP)}
        return [name for name in self.definition.columns if name in named]

    @property
    def is_partly_known(self) -> bool:
        """Whether some messages have more columns than others."""
        return len({frozenset(shape.split(SEP)) for shape in self.shapes}) > 1

    def own(self, name: str) -> str:
        """Gives one of the bridge's own columns, quoted.  name: one of those above."""
        return quote_name(free_name(name, self.definition.columns))

    def create(self) -> str:
        """Gives the statement that makes it."""
        lines = [
            _line(column, is_key=name in self.key, is_indexed=name in self.index) for name, column in self._columns()
        ]
        lines += [f"{self.own(name)} {kind}" for name, kind in self._meta()]
        if self.key:
            lines.append(self._index())
        if self.index:
            lines.append(f"KEY ({','.join(quote_name(self.definition.columns[part].name) for part in self.index)})")
        # A key that the target's table has may be too long for the server's default format (MariaDB: 1709).
        return f"CREATE TEMPORARY TABLE {self.name} ({', '.join(lines)}) ENGINE=InnoDB ROW_FORMAT=DYNAMIC"

    def inserts(self, rows: pa.Table) -> Iterator[tuple[int, Insert]]:
        """Gives the statements that load folded steps of this table, each with the number of its part.  The parts take
        turns, so that they can be loaded at once.

        Keys may differ in the messages and be equal on the target (by case, or since a type was changed).  The last
        such row wins.
        """
        for turn in zip_longest(*map(self._inserts, divided(rows, self.ranges))):
            yield from ((part, insert) for part, insert in enumerate(turn) if insert is not None)

    def _inserts(self, rows: pa.Table) -> Iterator[Insert]:
        rows = rows.append_column("is_converted", pc.greater(rows["forms"], 0))
        kinds = ("by_time", "lacks", "names", "may_be_gone", "is_converted")
        for kind in _distinct(rows, *kinds):
            alike = (pc.equal(rows[name], value) for name, value in zip(kinds, kind, strict=True))
            mine = rows.filter(reduce(pc.and_, alike))
            by_time, lacks, names, *_ = kind
            stays = pc.is_valid(mine["image"])
            known = self._known(names, lacks=lacks)
            yield from self._load(mine.filter(stays), names.split(SEP), "image", known, by_time=by_time)
            if self.key:
                yield from self._load(mine.filter(pc.invert(stays)), list(self.key), "key", None, by_time=by_time)

    def _known(self, names: str, *, lacks: bool) -> str:
        """Gives the code of `PartlyKnown` for rows with these columns, "" where every row has all columns."""
        if not (self.is_partly_known or self.may_lack):
            return ""
        mine = names.split(SEP)
        return "".join("1" if name in mine else "0" for name in self.named_columns) + LACKS * lacks

    def _load(
        self, rows: pa.Table, names: Sequence[str], values: str, known: str | None, *, by_time: bool
    ) -> Iterator[Insert]:
        """rows: all of them may be gone, or none.  known: None for rows that are gone.

        A row that is gone, or may be, had its key before the key became NOT NULL, shorter, or of another type."""
        if rows.num_rows == 0:
            return
        columns = [quote_name(self.definition.columns[name].name) for name in names]
        meta = [self.own(name) for name, _ in self._meta()]
        head = f"INSERT INTO {self.name} ({','.join([*columns, *meta])}) VALUES "
        tail = self._last_wins(by_time=by_time) if self.key else ""
        must_fit = known is not None and not rows["may_be_gone"][0].as_py()
        told = {
            GONE: pa.scalar(str(int(known is None)), TEXT),
            KNOWN: pa.scalar(f"'{known or ''}'", TEXT),
            MAY_BE_GONE: pc.if_else(rows["may_be_gone"].combine_chunks(), pa.scalar("1", TEXT), pa.scalar("0", TEXT)),
            COMMIT_TS: rows["commit_ts"].combine_chunks().cast(TEXT),
            TOPIC: _topics(rows),
            PARTITION: rows["partition"].combine_chunks().cast(TEXT),
            OFFSET: rows["offset"].combine_chunks().cast(TEXT),
            INDEX: rows["index"].combine_chunks().cast(TEXT),
        }
        if self.is_rekeyed:
            told |= _forms(rows, is_gone=known is None)
        types = [self.definition.columns[name].type for name in names]
        images = with_zeros(rows[values].combine_chunks(), types)
        bodies = pc.binary_join_element_wise(
            pc.replace_substring(images, SEP, ","),
            *(told[name] for name, _ in self._meta()),
            pa.scalar(",", TEXT),
        )
        for run in runs(_repeated(bodies, rows), STATEMENT_BYTES):
            texts = run.to_pylist()
            rows_of = ["),(".join(texts)] if must_fit else texts
            yield Insert(head, rows_of, tail, must_fit, rows["is_converted"][0].as_py())

    def _last_wins(self, *, by_time: bool) -> str:
        newer = self._later_by_time() if by_time else self._later()
        if self.is_rekeyed:
            rank = self.own(RANK)
            newer = f"VALUES({rank})>{rank} OR (VALUES({rank})={rank} AND ({newer}))"
        meta = [name for name, _ in self._meta()]
        names = [
            *(quote_name(column.name) for _, column in self._columns()),
            *(self.own(name) for name in meta if name not in {*_DECIDE, *_ANY}),
            *(self.own(name) for name in _DECIDE if name in meta),
        ]
        any_of = [(self.own(name), both) for name, both in _ANY.items() if name in meta]
        zeros = {quote_name(column.name): zero_of(column.type) for _, column in self._columns()}
        told = [
            f"{name}=IF({newer},{_as_text(f'VALUES({name})', zeros.get(name))},{_as_text(name, zeros.get(name))})"
            for name in names
        ]
        told += (f"{name}={both}({name},VALUES({name}))" for name, both in any_of)
        return " ON DUPLICATE KEY UPDATE " + ",".join(told)

    def _later(self) -> str:
        """Writes the condition for steps that are later by their commit_ts."""
        ts, gone = self.own(COMMIT_TS), self.own(GONE)
        return f"VALUES({ts})>{ts} OR (VALUES({ts})={ts} AND VALUES({gone})<={gone})"

    def _later_by_time(self) -> str:
        """Decides between steps by event time: within a partition its order counts, between partitions the event time,
        then their own order, in which the bridge merges them."""
        same = [f"VALUES({name})={name}" for name in map(self.own, (TOPIC, PARTITION, OFFSET, INDEX))]
        gone = self.own(GONE)
        in_partition = f"{self._greater(OFFSET, INDEX)} OR ({' AND '.join(same[2:])} AND VALUES({gone})<={gone})"
        return f"IF({' AND '.join(same[:2])},{in_partition},{self._greater(COMMIT_TS, TOPIC, PARTITION)})"

    def _greater(self, first: str, *others: str) -> str:
        """Writes the condition for rows that are later than another one by these columns, the first of which counts
        most."""
        name = self.own(first)
        later = f"VALUES({name})>{name}"
        return f"({later} OR (VALUES({name})={name} AND {self._greater(*others)}))" if others else later

    def _meta(self) -> list[tuple[str, str]]:
        """The columns that are added, and their types: those that would be the same in all rows are left out."""
        differs = {KNOWN: self.is_partly_known or self.may_lack, MAY_BE_GONE: self.may_be_gone}
        differs |= dict.fromkeys(_REKEYED, self.is_rekeyed)
        return [(name, kind) for name, kind in _META if differs.get(name, True)]

    def _columns(self) -> list[tuple[str, ColumnInfo]]:
        """The columns that messages tell: not the generated ones, but for those of the key."""
        columns = self.definition.columns.items()
        return [(name, column) for name, column in columns if name in self.key or not column.generated]

    def _index(self) -> str:
        """Writes the key, which may be one of the beginnings of values."""
        of_key = (i for i in self.definition.indexes.values() if i.unique and set(i.parts) == set(self.key))
        index = min(of_key, key=lambda i: any(i.lengths))
        parts = (
            quote_name(self.definition.columns[part].name) + (f"({length})" if length else "")
            for part, length in zip(index.parts, index.lengths, strict=True)
        )
        return f"PRIMARY KEY ({','.join(parts)})"


def _as_text(value: str, zero: EnumZero | None) -> str:
    """Writes a value that IF makes a text, in which the error value of an ENUM would be refused."""
    return f"IF({value}+0=0,{zero.literal},{value})" if zero else value


def _line(column: ColumnInfo, *, is_key: bool, is_indexed: bool) -> str:
    # TiDB's VALUES() may turn the bytes of a BIT around.
    kind = "bigint unsigned" if column.data_type == "bit" else column.type
    length = _LENGTH.match(kind)
    if not (is_key or is_indexed) and length and int(length[1]) > _LONG:
        kind = "longtext" if column.data_type == "varchar" else "longblob"
    text = f" CHARACTER SET {column.charset} COLLATE {column.collation}" if column.charset else ""
    return f"{quote_name(column.name)} {kind}{text} {'NOT NULL' if is_key else 'NULL'}"


def _distinct(rows: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    found = rows.select(names).group_by(names).aggregate([]).to_pylist()
    return [tuple(row[name] for name in names) for row in found]


def _topics(rows: pa.Table) -> pa.Array:
    """Topics as literals.  A capture file may name its topic in any characters."""
    topics = rows["topic"].combine_chunks().dictionary_encode()
    texts = pa.array([literals.text(topic) for topic in topics.dictionary.to_pylist()], TEXT)
    return texts.take(topics.indices)


def _forms(rows: pa.Table, *, is_gone: bool) -> dict[str, pa.Array]:
    """Gives the values that decide where the key was changed."""
    forms, ts = rows["forms"].combine_chunks(), rows["commit_ts"].combine_chunks()
    went = pc.and_(pc.greater(forms, 0), is_gone)
    return {
        RANK: pc.if_else(went, -_EVER, pc.negate(forms)).cast(TEXT),
        WENT_IN: pc.if_else(went, forms, _EVER).cast(TEXT),
        WENT_AT: pc.if_else(went, ts, -1).cast(TEXT),
        SPELLING: pa.array([f"x'{key.encode().hex()}'" for key in rows["key"].to_pylist()], TEXT),
    }


def _repeated(bodies: pa.Array, rows: pa.Table) -> pa.Array:
    """Gives the rows of a table without a key, each as often as it should be there."""
    copies = [max(1, count) for count in rows["copies"].to_pylist()]
    if max(copies) == 1:
        return bodies
    return bodies.take(pa.array([i for i, count in enumerate(copies) for _ in range(count)]))
