"""Random upstream histories on tables of many shapes: states that a server would allow, and the messages of TiCDC."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bridge.events import SEP, Kind, RowChange
from bridge.protocols.values.literals import double_number

Row = tuple[Any, ...]
Change = tuple[Row | None, Row | None]


def literal(value: object) -> str:
    """A value as the decoders write it."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'" if value else "''"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return double_number(value) if isinstance(value, float) else repr(value)


def same(value: object) -> object:
    """Values compared exactly."""
    return value


def padded(value: object) -> object:
    """Values compared by a PAD SPACE collation that tells letters apart, as utf8mb4_bin."""
    return value.rstrip(" ") if isinstance(value, str) else value


def folded(value: object) -> object:
    """Values compared by a PAD SPACE collation that does not tell upper from lower case."""
    return value.rstrip(" ").lower() if isinstance(value, str) else value


@dataclass(frozen=True)
class Shape:
    """A table and the values its upstream may hold.

    domains: the values of each column of the messages, in message order.
    uniques: column numbers of every unique key, the handle key first; () when there is none.
    compared: how values of a unique key are compared.
    derived: column number of a stored generated column, and what it is of.
    extra: a target-only column, INT NULL.
    names_key: the messages name the handle key; Canal-JSON names none but a primary key.
    """

    ddl: str
    columns: tuple[str, ...]
    domains: tuple[tuple[Any, ...], ...]
    uniques: tuple[tuple[int, ...], ...]
    compared: Callable[[object], object] = same
    derived: tuple[int, Callable[[Row], Any]] | None = None
    extra: str | None = None
    names_key: bool = True

    @property
    def handle(self) -> tuple[int, ...]:
        """Column numbers of the handle key."""
        return self.uniques[0] if self.uniques else ()

    def key_of(self, row: Row) -> Row:
        """The handle key's values."""
        return tuple(row[i] for i in self.handle)

    def random_row(self, random: Random) -> Row:
        """Any row."""
        return self.complete(tuple(random.choice(domain) for domain in self.domains))

    def complete(self, row: Row) -> Row:
        """The row with its generated column."""
        if self.derived is None:
            return row
        at, of = self.derived
        return (*row[:at], of(row), *row[at + 1 :])

    def is_valid(self, rows: list[Row]) -> bool:
        """No unique key is violated."""
        for unique in self.uniques:
            values = [
                tuple(self.compared(row[i]) for i in unique) for row in rows if all(row[i] is not None for i in unique)
            ]
            if len(values) != len(set(values)):
                return False
        return True


SHAPES: dict[str, Shape] = {
    "int primary key": Shape(
        "id INT PRIMARY KEY, v INT, extra INT", ("id", "v"), (tuple(range(5)), tuple(range(100))), ((0,),),
        extra="extra",
    ),
    "composite primary key": Shape(
        "a INT, v INT, b VARBINARY(8), extra INT, PRIMARY KEY (a, b)", ("a", "v", "b"),
        ((1, 2), tuple(range(50)), (b"", b"\x00", b"a'", b"\xff")), ((0, 2),), extra="extra",
    ),
    "only a unique key": Shape(
        "u INT NOT NULL, v INT, UNIQUE (u)", ("u", "v"), (tuple(range(5)), tuple(range(50))), ((0,),), names_key=False
    ),
    "nullable unique keys": Shape(
        "id INT PRIMARY KEY, U INT, w VARCHAR(20) COLLATE utf8mb4_general_ci, x INT, v INT,"
        " at TIMESTAMP NOT NULL DEFAULT '2000-01-01 00:00:00' ON UPDATE CURRENT_TIMESTAMP,"
        " extra INT, UNIQUE (u), UNIQUE (w), UNIQUE (x, v)",
        ("id", "u", "w", "x", "v", "at"),
        (tuple(range(5)), (None, 0, 1, 2, 3), (None, "a", "A", "b", "b "), (None, 1, 2), (None, 1, 2),
         ("2001-01-01 00:00:00", "2002-02-02 00:00:00")),
        ((0,), (1,), (2,), (3, 4)), compared=folded, extra="extra",
    ),
    "two unique keys": Shape(
        "a INT NOT NULL, b INT NOT NULL, v INT, extra INT, UNIQUE kb (b), UNIQUE ka (a)", ("a", "b", "v"),
        (tuple(range(5)), tuple(range(5)), tuple(range(50))), ((0,), (1,)), extra="extra",
    ),
    "two unique keys, the handle not named": Shape(
        "a INT NOT NULL, b INT NOT NULL, v INT, UNIQUE kb (b), UNIQUE ka (a)", ("a", "b", "v"),
        (tuple(range(5)), tuple(range(5)), tuple(range(50))), ((0,), (1,)), names_key=False,
    ),
    "no key": Shape(
        "a INT, s VARCHAR(20) COLLATE utf8mb4_general_ci, f FLOAT, e ENUM('x','y','z'), t SET('p','q') NOT NULL,"
        " c CHAR(4) CHARACTER SET latin1, b BLOB, n BIT(8), d DECIMAL(10,2), at DATETIME(6), y YEAR, INDEX (s)",
        ("a", "s", "f", "e", "t", "c", "b", "n", "d", "at", "y"),
        ((None, 1), (None, "a", "A", "a ", "ä"), (None, 0.10000000149011612, 1.5), (None, 1, 2), (0, 1, 3), ("é", "e"),
         (None, b"\x00\xff"), (1, 255), (1.5,), ("2024-01-01 00:00:00.123456", "0000-00-00 00:00:00.000000"),
         (0, 2024)),
        (),
    ),
    "text primary key": Shape(
        "k VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY, v INT, extra INT", ("k", "v"),
        (("", "a", "A", "ä", "a'\\", "😀", "1", "01"), tuple(range(50))), ((0,),), compared=padded, extra="extra",
    ),
    "text primary key with spaces": Shape(
        "k VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY, v INT", ("k", "v"),
        (("a", "a ", "a  ", "b", "b "), tuple(range(50))), ((0,),), compared=padded,
    ),
    "text primary key, case-insensitive": Shape(
        "k VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY, u INT, v INT, UNIQUE (u)", ("k", "u", "v"),
        (("a", "A", "b", "B", "b "), (None, 1, 2, 3), tuple(range(50))), ((0,), (1,)), compared=folded,
    ),
    "generated columns": Shape(
        "id INT PRIMARY KEY, a INT, st INT AS (a * 2) STORED, vi INT AS (a + 1) VIRTUAL, extra INT,"
        " UNIQUE (st), UNIQUE (vi)",
        ("id", "a", "st"), (tuple(range(5)), (None, 0, 1, 2, 3), (0,)), ((0,), (1,)),
        derived=(2, lambda row: None if row[1] is None else row[1] * 2), extra="extra",
    ),
}  # fmt: skip


@dataclass
class History:
    """One table's upstream: `rows` is its state after all transactions drawn so far."""

    shape: Shape
    random: Random
    rows: list[Row] = field(default_factory=list)

    def transaction(self) -> list[Change]:
        """The net row changes of the next transaction; the rows afterwards are a valid state."""
        for _ in range(50):
            changes = self._changes()
            gone = Counter(before for before, _ in changes if before is not None)
            rows = list((Counter(self.rows) - gone).elements()) + [after for _, after in changes if after is not None]
            if self.shape.is_valid(rows):
                self.rows = rows
                return changes
        return []

    def _changes(self) -> list[Change]:
        random, shape = self.random, self.shape
        if len(self.rows) >= 2 and random.random() < 0.35:
            return self._permuted()
        picked = random.sample(self.rows, k=min(len(self.rows), random.choice((0, 1, 1, 2, 3))))
        changes: list[Change] = []
        for row in picked:
            dice = random.random()
            changes.append((row, None if dice < 0.3 else self._altered(row)))
        changes += [(None, shape.random_row(random)) for _ in range(random.choice((0, 0, 1, 1, 2, 3)))]
        return self._paired([(before, after) for before, after in changes if before != after])

    def _permuted(self) -> list[Change]:
        """Values of some columns change places among rows: swaps, rotations, swapped keys."""
        random, shape = self.random, self.shape
        rows = random.sample(self.rows, k=min(len(self.rows), random.choice((2, 2, 3))))
        columns = random.sample(range(len(shape.columns)), k=random.choice((1, 1, 2)) if len(shape.columns) > 1 else 1)
        moved = rows[1:] + rows[:1]
        after = [
            shape.complete(tuple(other[i] if i in columns else row[i] for i in range(len(row))))
            for row, other in zip(rows, moved, strict=True)
        ]
        return self._paired([(row, new) for row, new in zip(rows, after, strict=True) if row != new])

    def _altered(self, row: Row) -> Row:
        other = self.shape.random_row(self.random)
        columns = self.random.sample(range(len(row)), k=self.random.randint(1, len(row)))
        return self.shape.complete(tuple(other[i] if i in columns else row[i] for i in range(len(row))))

    def _paired(self, changes: list[Change]) -> list[Change]:
        """What the storage makes of it: a deleted and inserted handle key is one update of that key, now and then."""
        if not self.shape.handle or self.random.random() < 0.5:
            return changes
        gone = {self.shape.key_of(b): b for b, _ in changes if b is not None}
        come = {self.shape.key_of(a): a for _, a in changes if a is not None}
        if len(come) != sum(a is not None for _, a in changes):
            return changes
        return [(gone.get(key), come.get(key)) for key in {**gone, **come}]


@dataclass(frozen=True)
class Dialect:
    """How the changefeed writes changes: with updates of unique columns split, with old rows in updates, with deletes
    reduced to the handle key."""

    split: bool
    old_rows: bool
    handle_deletes: bool


def messages(shape: Shape, changes: list[Change], ts: int, dialect: Dialect, random: Random) -> list[RowChange]:
    """The changes of one transaction as row changes, in any order."""
    events = []
    unique_columns = {i for unique in shape.uniques for i in unique}
    for before, after in changes:
        if (
            before is not None
            and after is not None
            and (
                (dialect.split and any(before[i] != after[i] for i in unique_columns))
                or (not dialect.old_rows and shape.key_of(before) != shape.key_of(after))
            )
        ):
            events += [_event(shape, before, None, ts, dialect), _event(shape, None, after, ts, dialect)]
        else:
            events.append(_event(shape, before, after, ts, dialect))
    random.shuffle(events)
    return events


def _event(shape: Shape, before: Row | None, after: Row | None, ts: int, dialect: Dialect) -> RowChange:
    kind = Kind.DELETE if after is None else Kind.INSERT if before is None else Kind.UPDATE
    columns = range(len(shape.columns))
    if kind is Kind.DELETE and dialect.handle_deletes and shape.handle and shape.names_key:
        columns = shape.handle  # type: ignore[assignment]
    if kind is Kind.UPDATE and not dialect.old_rows and shape.handle:
        before = None
    return RowChange(
        kind,
        ts,
        index=0,
        schema="m",
        table="t",
        columns=SEP.join(shape.columns[i] for i in columns),
        key=SEP.join(shape.columns[i] for i in shape.handle) if shape.names_key else "",
        before=None if before is None else SEP.join(literal(before[i]) for i in columns),
        after=None if after is None else SEP.join(literal(after[i]) for i in columns),
    )
