"""Tables of what should be, beside what is: temporary, of the target's own types, gone with their session."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP
from bridge.protocols import literals
from bridge.target.images import TEXT, groups
from bridge.target.render import STATEMENT_BYTES
from bridge.target.session import quote_name
from bridge.verify.definitions import ColumnInfo, Definition

GONE: Final = "bridge gone"
SHAPE: Final = "bridge shape"
PERHAPS: Final = "bridge perhaps"
COMMIT_TS: Final = "bridge commit_ts"
POSITION: Final = "bridge position"
_META: Final = (
    (GONE, "BOOL NOT NULL"),
    (SHAPE, "INT NOT NULL"),
    (PERHAPS, "BOOL NOT NULL"),
    (COMMIT_TS, "BIGINT NOT NULL"),
    (POSITION, "TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"),
)
_LENGTH: Final = re.compile(r"var(?:char|binary)\((\d+)\)")
_LONG: Final = 1000
"""Text columns of more characters become LONGTEXT, so that a row has room for the columns that are added."""


@dataclass(frozen=True)
class Scratch:
    """A table of expected rows.

    name: quoted; shapes: the columns that rows have, by number, joined by SEP; index: columns of an index, of a table
    without a key.
    """

    name: str
    definition: Definition
    key: tuple[str, ...]
    shapes: tuple[str, ...]
    index: tuple[str, ...] = ()

    def create(self) -> str:
        """The statement that makes it."""
        lines = [
            _line(column, is_key=name in self.key, is_indexed=name in self.index) for name, column in self._columns()
        ]
        lines += [f"{quote_name(name)} {kind}" for name, kind in _META]
        if self.key:
            lines.append(self._index())
        if self.index:
            lines.append(f"KEY ({','.join(quote_name(self.definition.columns[part].name) for part in self.index)})")
        return f"CREATE TEMPORARY TABLE {self.name} ({', '.join(lines)}) ENGINE=InnoDB"

    def inserts(self, rows: pa.Table) -> Iterator[str]:
        """The statements that load folded steps of this table.

        Of rows whose keys differ to the messages and not to the target (case, a type that was changed) the last wins.
        """
        for names in pc.unique(rows["names"]).to_pylist():
            mine = rows.filter(pc.equal(rows["names"], names))
            stays = pc.is_valid(mine["image"])
            yield from self._load(mine.filter(stays), names.split(SEP), "image", gone=False)
            if self.key:
                yield from self._load(mine.filter(pc.invert(stays)), list(self.key), "key", gone=True)

    def _load(self, rows: pa.Table, names: Sequence[str], values: str, *, gone: bool) -> Iterator[str]:
        if rows.num_rows == 0:
            return
        columns = [quote_name(self.definition.columns[name].name) for name in names]
        meta = [quote_name(name) for name, _ in _META]
        shape = 0 if gone else self.shapes.index(SEP.join(names))
        head = f"INSERT INTO {self.name} ({','.join([*columns, *meta])}) VALUES ("
        tail = ")" + (self._last_wins() if self.key else "")
        bodies = pc.binary_join_element_wise(
            pc.replace_substring(rows[values].combine_chunks(), SEP, ","),
            pa.scalar(f"{int(gone)},{shape}", TEXT),
            pc.if_else(rows["perhaps"].combine_chunks(), pa.scalar("1", TEXT), pa.scalar("0", TEXT)),
            rows["commit_ts"].combine_chunks().cast(TEXT),
            _positions(rows),
            pa.scalar(",", TEXT),
        )
        for body in groups(_repeated(bodies, rows), "),(", STATEMENT_BYTES):
            yield f"{head}{body}{tail}"

    def _last_wins(self) -> str:
        ts, gone = quote_name(COMMIT_TS), quote_name(GONE)
        newer = f"VALUES({ts})>{ts} OR (VALUES({ts})={ts} AND VALUES({gone})<={gone})"
        names = [
            *(quote_name(column.name) for _, column in self._columns()),
            *(quote_name(name) for name, _ in _META if name != COMMIT_TS),
            quote_name(COMMIT_TS),  # last: assignments run from left to right, and all of them look at it
        ]
        return " ON DUPLICATE KEY UPDATE " + ",".join(f"{name}=IF({newer},VALUES({name}),{name})" for name in names)

    def _columns(self) -> list[tuple[str, ColumnInfo]]:
        return [(name, column) for name, column in self.definition.columns.items() if not column.generated]

    def _index(self) -> str:
        index = next(i for i in self.definition.indexes.values() if set(i.parts) == set(self.key))
        return f"PRIMARY KEY ({','.join(quote_name(self.definition.columns[part].name) for part in index.parts)})"


def _line(column: ColumnInfo, *, is_key: bool, is_indexed: bool) -> str:
    kind = column.type
    length = _LENGTH.match(kind)
    if not (is_key or is_indexed) and length and int(length[1]) > _LONG:
        kind = "longtext" if column.data_type == "varchar" else "longblob"
    text = f" CHARACTER SET {column.charset} COLLATE {column.collation}" if column.charset else ""
    return f"{quote_name(column.name)} {kind}{text} {'NOT NULL' if is_key else 'NULL'}"


def _positions(rows: pa.Table) -> pa.Array:
    """'topic/partition/offset' as a literal; a capture file may call its topic anything."""
    topics = rows["topic"].combine_chunks().dictionary_encode()
    begun = pa.array([literals.text(topic)[:-1] for topic in topics.dictionary.to_pylist()], TEXT)
    numbers = [rows[name].combine_chunks().cast(TEXT) for name in ("partition", "offset")]
    where = pc.binary_join_element_wise(begun.take(topics.indices), *numbers, pa.scalar("/", TEXT))
    return pc.binary_join_element_wise(where, pa.scalar("'", TEXT), pa.scalar("", TEXT))


def _repeated(bodies: pa.Array, rows: pa.Table) -> pa.Array:
    """Rows of a table without a key, as often as they are there."""
    copies = [max(1, count) for count in rows["copies"].to_pylist()]
    if max(copies) == 1:
        return bodies
    return bodies.take(pa.array([i for i, count in enumerate(copies) for _ in range(count)]))
