"""Messages that hold parts of rows, against real servers: an absent column of an update is as it was.

The upstream is a list of rows that is changed row by row; what the target holds afterwards must be equal, whatever the
windows, the steps and the connections were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from bridge.events import Event, Kind, ms_tso
from bridge.target.session import Session
from tests.stream.pipelines import admin, run_all
from tests.stream.upstreams import Literal, in_one_partition, row_change
from tests.target.histories import folded, literal, same

Row = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """A table.  domains: values by column, the key's first; long: columns that may be absent from the row as it was.
    uniques: besides the key."""

    ddl: str
    key: tuple[str, ...]
    domains: dict[str, tuple[Any, ...]]
    long: tuple[str, ...]
    uniques: tuple[tuple[str, ...], ...] = ()
    compared: Callable[[object], object] = same

    def identity(self, row: Row, names: tuple[str, ...]) -> tuple[object, ...] | None:
        """What may be there once."""
        found = tuple(self.compared(row[name]) for name in names)
        return None if None in found else found


SHAPES = {
    "texts that must be there": Shape(
        "id INT PRIMARY KEY, n INT, doc TEXT NOT NULL, extra_doc MEDIUMTEXT CHARACTER SET latin1,"
        " at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP",
        ("id",),
        {"id": (1, 2, 3, 4), "n": tuple(range(20)), "doc": ("a", "é", "'", ""), "extra_doc": (None, "x", "é"),
         "at": ("2001-01-01 00:00:00", "2002-02-02 00:00:00")},
        ("doc", "extra_doc"),
    ),
    "other unique values": Shape(
        "id INT PRIMARY KEY, u INT, v INT, n INT, doc TEXT NOT NULL, j BLOB, UNIQUE (u), UNIQUE (v, n),"
        " twice INT AS (n * 2) STORED",
        ("id",),
        {"id": (1, 2, 3, 4), "u": (None, 1, 2, 3), "v": (None, 1, 2), "n": (1, 2, 3), "doc": ("a", "b", "c"),
         "j": (None, b"\xff\x00", b"")},
        ("doc", "j"), (("u",), ("v", "n")),
    ),
    "a key in several spellings": Shape(
        "k VARCHAR(20) COLLATE utf8mb4_general_ci, n INT, u INT, doc TEXT NOT NULL, PRIMARY KEY (k), UNIQUE (u)",
        ("k",),
        {"k": ("a", "A", "á", "b", "b ", "B"), "n": tuple(range(20)), "u": (None, 1, 2, 3), "doc": ("a", "b", "c")},
        ("doc",), (("u",),),
        lambda value: str(folded(value)).replace("á", "a") if isinstance(value, str) else value,
    ),
    "a long unique value": Shape(
        "a INT NOT NULL, b DECIMAL(6,2) NOT NULL, n INT, doc TEXT NOT NULL, PRIMARY KEY (a, b), UNIQUE (doc(5))",
        ("a", "b"),
        {"a": (1, 2), "b": (Literal("1.00"), Literal("-0.50")), "n": tuple(range(20)),
         "doc": ("a", "b", "c", "d", "e")},
        ("doc",), (("doc",),),
    ),
    "types that are exact as they are": Shape(
        "id BIGINT UNSIGNED PRIMARY KEY, e ENUM('p','q') NOT NULL, s SET('x','y') NOT NULL, b BIT(8) NOT NULL,"
        " c CHAR(4) CHARACTER SET latin1 NOT NULL, f FLOAT NOT NULL, y YEAR NOT NULL, t TIME(3) NOT NULL,"
        " x BINARY(3) NOT NULL, j JSON NOT NULL",
        ("id",),
        {"id": (1, 2, 3), "e": (1, 2), "s": (0, 3), "b": (0, 255), "c": ("é", "abc"), "f": (0.5, 1.5),
         "y": (2000, 2024), "t": ("00:00:01.500", "-10:00:00.000"), "x": (b"\x01\x00\x02", b"abc"),
         "j": ('{"a": 1}', "[1, 2]")},
        ("e", "s", "b", "c", "f", "y", "t", "x", "j"),
    ),
}  # fmt: skip


@dataclass
class Upstream:
    """Rows, and the events that made them."""

    shape: Shape
    random: Random
    rows: list[Row] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def change(self) -> None:
        """One row more, less, or other, if no unique value is taken then."""
        dice = self.random.random()
        if not self.rows or dice < 0.25:
            self._try(None, self._any())
        elif dice < 0.4:
            self._try(self.random.choice(self.rows), None)
        else:
            row = self.random.choice(self.rows)
            names = self.random.sample(list(row), self.random.choice((1, 1, 2, 3)))
            if self.random.random() < 0.4:
                names += self.shape.key
            new = {**row, **{name: value for name, value in self._any().items() if name in names}}
            if new != row:
                self._try(row, new)

    def _any(self) -> Row:
        return {name: self.random.choice(values) for name, values in self.shape.domains.items()}

    def _try(self, old: Row | None, new: Row | None) -> None:
        rows = [row for row in self.rows if row is not old] + ([new] if new else [])
        for unique in (self.shape.key, *self.shape.uniques):
            found = [identity for row in rows if (identity := self.shape.identity(row, unique)) is not None]
            if len(found) > len(set(found)):
                return
        self.rows = rows
        self.events.append(self._event(old, new))

    def _event(self, old: Row | None, new: Row | None) -> Event:
        """As Canal has it: the columns of the row as it is that the log holds, those of the row as it was that changed
        and are in the log; the others are completed."""
        ts = ms_tso(len(self.events) // 2 + 1)
        row = new or old or {}
        absent = {n for n in self.shape.long if old and (not new or old[n] == new[n]) and self.random.random() < 0.7}
        names = [name for name in row if name not in absent]
        was = {name: value for name, value in (old or {}).items() if name not in self.shape.long or not new}
        before = {**row, **was} if old else None
        return row_change(
            ts, "t", names, self.shape.key,
            before=None if before is None else [Literal(literal_of(before[name])) for name in names],
            after=None if new is None else [Literal(literal_of(new[name])) for name in names],
        )._replace(by_time=True, kind=Kind.UPDATE if old and new else Kind.DELETE if old else Kind.INSERT)  # fmt: skip


def literal_of(value: object) -> str:
    return value if isinstance(value, Literal) else literal(value)


def in_words(shape: Shape) -> str:
    """A row's values as one text each, as their literals say them."""
    return ",".join(
        f"HEX(CAST({name} AS BINARY))" if isinstance(values[-1], bytes) else f"CAST({name} AS CHAR)"
        for name, values in shape.domains.items()
    )


def rows_of(session: Session, shape: Shape) -> list[tuple[Any, ...]]:
    return sorted(session.rows(f"SELECT {in_words(shape)} FROM m.t"), key=repr)


def written(session: Session, shape: Shape, rows: list[Row]) -> list[tuple[Any, ...]]:
    """The rows as a table of the same columns holds them."""
    session.execute("CREATE OR REPLACE TABLE m.expected LIKE m.t")
    for row in rows:
        session.execute(
            f"INSERT INTO m.expected ({','.join(row)}) VALUES ({','.join(literal_of(v) for v in row.values())})"
        )
    return sorted(session.rows(f"SELECT {in_words(shape)} FROM m.expected"), key=repr)


@pytest.fixture
def session(target: str) -> Iterator[Session]:
    with admin(target) as session:
        session.execute("CREATE DATABASE m DEFAULT CHARSET utf8mb4")
        yield session


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("writers", [0, 2], ids=["atomic", "parallel"])
def test_parts_of_rows_give_the_upstream_rows(target: str, session: Session, name: str, writers: int) -> None:
    """Updates without the columns that stay as they are, of keys that move, come back, swap and are respelled, in
    windows of any size: afterwards the target holds the upstream's rows."""
    shape = SHAPES[name]
    for seed in range(25):
        session.execute("CREATE OR REPLACE TABLE m.t (" + shape.ddl + ") DEFAULT CHARSET utf8mb4")
        random = Random(seed)
        upstream = Upstream(shape, random)
        for _ in range(random.choice((6, 12, 30))):
            upstream.change()
        if not upstream.events:
            continue
        run_all(
            target, in_one_partition(upstream.events), name=f"p{seed}", writers=writers,
            batch=random.choice((1, 3, 7, None)), rows_per_transaction=random.choice((1, 4, 1000)),
        )  # fmt: skip
        assert rows_of(session, shape) == written(session, shape, upstream.rows), f"seed {seed}"


def by_time(*events: Event) -> pa.Table:
    """Events of one partition without a commit ts, a millisecond apart."""
    return in_one_partition([e._replace(commit_ts=ms_tso(i), by_time=True) for i, e in enumerate(events, 1)])
