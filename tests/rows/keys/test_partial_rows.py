"""Messages that hold parts of rows, against real servers: an absent column of an update is as it was.

The upstream is a list of rows that is changed row by row; what the target holds afterwards must be equal, whatever the
windows, the steps and the connections were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from bridge.errors import RefusedRowsError
from bridge.events import Code, Kind, RowChange
from bridge.mysql.connection.session import Session
from bridge.protocols import DecodeOptions, decode_message, make_decoder
from bridge.tso import ms_tso
from tests.support.debezium_wire import NATIVE_SOURCE, native
from tests.support.histories import folded, literal, same
from tests.support.pipelines import admin, run_all, session_after
from tests.support.upstreams import Literal, boundary, in_one_partition, row_change

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
    events: list[RowChange] = field(default_factory=list)

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

    def _event(self, old: Row | None, new: Row | None) -> RowChange:
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


session = session_after("CREATE DATABASE m DEFAULT CHARSET utf8mb4")


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 60), marks=pytest.mark.soak)], ids=["few", "many"])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("writers", [0, 2], ids=["atomic", "parallel"])
def test_parts_of_rows_give_the_upstream_rows(
    target: str, session: Session, name: str, writers: int, seeds: range
) -> None:
    """Updates without the columns that stay as they are, of keys that move, come back, swap and are respelled, in
    windows of any size: afterwards the target holds the upstream's rows."""
    shape = SHAPES[name]
    for seed in seeds:
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


def by_time(*events: RowChange) -> pa.Table:
    """Events of one partition without a commit ts, a millisecond apart."""
    return in_one_partition([e._replace(commit_ts=ms_tso(i), by_time=True) for i, e in enumerate(events, 1)])


T = ("id", "n", "doc")
PARTS = ("id", "n")
BOTH = "CREATE TABLE m.t (id INT PRIMARY KEY, n INT UNIQUE, doc TEXT NOT NULL)"


def t(before: list[Any] | None, after: list[Any] | None, columns: tuple[str, ...] = T) -> RowChange:
    return row_change(0, "t", columns, ["id"], before=before, after=after)


REFUSED = {
    "row not there": ([t([1, 1], [1, 2], PARTS)], 0),
    "row not there, its key moves": ([t([1, 1], [5, 1], PARTS)], 0),
    "row not there, another change follows": ([t([1, 1], [1, 2], PARTS), t([1, 2], [1, 3], PARTS)], 0),
    "row deleted before": ([t(None, [1, 1, "x"]), t([1, 1], None, PARTS), t([1, 1], [1, 2], PARTS)], 2),
    "row that moved away": ([t(None, [1, 1, "x"]), t([1, 1], [5, 1], PARTS), t([1, 1], [6, 2], PARTS)], 2),
}


@pytest.mark.parametrize("writers", [0, 2], ids=["atomic", "parallel"])
@pytest.mark.parametrize(("events", "to_blame"), REFUSED.values(), ids=list(REFUSED))
def test_a_part_without_its_row_stops_the_bridge(
    target: str, session: Session, events: list[RowChange], to_blame: int, writers: int
) -> None:
    """What the message does not hold is not known then: nothing is written, and the error says where."""
    session.execute(BOTH)
    session.execute("INSERT INTO m.t VALUES (7, 7, 'kept')")
    with pytest.raises(RefusedRowsError, match=f"cdc/0/{to_blame}") as refused:
        run_all(target, by_time(*events), writers=writers)
    assert refused.value.code == Code.ROW_NOT_FOUND
    assert session.rows("SELECT * FROM m.t") == [(7, 7, "kept")]


@pytest.mark.parametrize(("events", "to_blame"), REFUSED.values(), ids=list(REFUSED))
def test_a_part_without_its_row_is_quarantined(
    target: str, session: Session, events: list[RowChange], to_blame: int
) -> None:
    """The rest of its transaction is applied; a row whose key moves is quarantined as one change."""
    session.execute(BOTH)
    session.execute("INSERT INTO m.t VALUES (7, 7, 'kept')")
    run_all(target, by_time(*events, t([7, 7], [8, 8], PARTS)), quarantine=True)
    aside = session.rows("SELECT `offset`, code FROM _bridge.quarantine ORDER BY `offset`")
    assert (to_blame, Code.ROW_NOT_FOUND) in aside
    assert len(aside) == len(events) - to_blame
    assert (8, 8, "kept") in session.rows("SELECT * FROM m.t")


@pytest.mark.parametrize("writers", [0, 2], ids=["atomic", "parallel"])
def test_a_new_row_has_nothing_of_the_old_one(target: str, session: Session, writers: int) -> None:
    """An insert after a delete of its key, in one window: a column that it lacks has its default."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, n INT, doc TEXT)")
    session.execute("INSERT INTO m.t VALUES (1, 1, 'old'), (2, 2, 'kept')")
    run_all(target, by_time(t([1, 1], None, PARTS), t(None, [1, 5], PARTS), t([2, 2], [2, 3], PARTS)), writers=writers)
    assert session.rows("SELECT * FROM m.t ORDER BY id") == [(1, 5, None), (2, 3, "kept")]


@pytest.mark.parametrize("writers", [0, 2], ids=["atomic", "parallel"])
def test_a_part_comes_to_a_key_that_a_whole_row_has_left(target: str, session: Session, writers: int) -> None:
    """In one window, in which the row that was there is written whole at another key: nothing is in the way."""
    session.execute(BOTH)
    session.execute("INSERT INTO m.t VALUES (1, 1, 'left'), (2, 2, 'kept')")
    changes = [t([1, 1, "left"], [1, 1, "new"]), t([1, 1], [3, 1], PARTS), t([2, 2], [1, 2], PARTS)]
    counts = run_all(target, by_time(*changes), writers=writers).writer.counts
    assert session.rows("SELECT * FROM m.t ORDER BY id") == [(1, 2, "kept"), (3, 1, "new")]
    assert counts.safe_mode == 0


@pytest.mark.parametrize("event", [t([1, 1], [1, 2], PARTS), t([1, 1], None, PARTS)], ids=["update", "delete"])
def test_a_part_of_a_row_without_a_key_is_refused(target: str, session: Session, event: RowChange) -> None:
    """It may mean any row that is alike in what it holds."""
    session.execute("CREATE TABLE m.t (id INT, n INT, doc TEXT)")
    session.execute("INSERT INTO m.t VALUES (1, 1, 'a'), (1, 1, 'b')")
    with pytest.raises(RefusedRowsError, match="has no key") as refused:
        run_all(target, by_time(event))
    assert refused.value.code == Code.LOST_VALUE
    assert session.value("SELECT COUNT(*) FROM m.t") == 2


def test_target_only_columns_are_those_of_each_column_list(target: str, session: Session) -> None:
    """Rows with a commit ts whose unique values change places, one of which names more columns than the other: each
    keeps what it does not name."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, n INT UNIQUE, doc TEXT, mine INT)")
    session.execute("INSERT INTO m.t VALUES (1, 1, 'a', 10), (2, 2, 'b', 20)")
    swap = [
        row_change(5, "t", PARTS, ["id"], before=[1, 1], after=[1, 2]),
        row_change(5, "t", T, ["id"], before=[2, 2, "b"], after=[2, 1, "c"]),
        boundary(9),
    ]
    run_all(target, in_one_partition(swap))
    assert session.rows("SELECT * FROM m.t ORDER BY id") == [(1, 2, "a", 10), (2, 1, "c", 20)]


def test_safe_mode_knows_parts(target: str, session: Session) -> None:
    """A target ahead of the log holds the unique value of a row that is updated in parts: it is taken from the other
    row, and the rest of the updated row is kept."""
    session.execute(BOTH)
    session.execute("INSERT INTO m.t VALUES (1, 1, 'a'), (2, 2, 'b')")
    run_all(target, by_time(t([1, 1], [1, 2], PARTS)))
    assert session.rows("SELECT * FROM m.t") == [(1, 2, "a")]


@pytest.mark.parametrize("writers", [0, 2], ids=["atomic", "parallel"])
def test_safe_mode_keeps_what_rows_have_that_trade_values(url: str, writers: int) -> None:
    """A target ahead of the log holds the unique value of a new row; the other rows of its transaction, which trade
    theirs, keep the column that only the target has."""
    with admin(url) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, n INT UNIQUE, mine TEXT)")
        session.execute("INSERT INTO m.t VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 5, 'ahead')")
        trade = [
            row_change(5, "t", PARTS, ["id"], before=[1, 1], after=[1, 2]),
            row_change(5, "t", PARTS, ["id"], before=[2, 2], after=[2, 1]),
            row_change(5, "t", PARTS, ["id"], after=[4, 5]),
            boundary(9),
        ]
        assert run_all(url, in_one_partition(trade), writers=writers).writer.counts.safe_mode == 1
        assert session.rows("SELECT * FROM m.t ORDER BY id") == [(1, 2, "a"), (2, 1, "b"), (4, 5, None)]


def test_every_server_takes_parts(url: str) -> None:
    """What stays and what is written anew is exact on each server."""
    shape = SHAPES["types that are exact as they are"]
    with admin(url) as session:
        session.execute("CREATE DATABASE m DEFAULT CHARSET utf8mb4")
        session.execute(f"CREATE TABLE m.t ({shape.ddl}, at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP"
                        " ON UPDATE CURRENT_TIMESTAMP, v INT UNIQUE, twice INT AS (v * 2) VIRTUAL)")  # fmt: skip
        values = {name: literal_of(domain[0]) for name, domain in shape.domains.items()} | {
            "at": "'2001-01-01 00:00:00'",
            "v": "1",
        }
        for id_ in (1, 2, 3):
            row = {**values, "id": str(id_), "v": str(id_)}
            session.execute(f"INSERT INTO m.t ({','.join(row)}) VALUES ({','.join(row.values())})")
        names = [name for name in values if name not in {"id", "v", "c"}]
        before = session.rows(f"SELECT {','.join(names)} FROM m.t")
        parts = ("id", "v", "c")
        run_all(
            url,
            by_time(
                row_change(0, "t", parts, ["id"], before=[1, 1, "é"], after=[9, 1, "ü"]),
                row_change(0, "t", parts, ["id"], before=[2, 2, "é"], after=[2, 7, "ü"]),
                row_change(0, "t", parts, ["id"], before=[3, 3, "é"], after=[3, 3, "ü"]),
            ),
        )
        assert session.rows(f"SELECT {','.join(names)} FROM m.t") == before
        assert session.rows("SELECT id, v, c FROM m.t ORDER BY id") == [(2, 7, "ü"), (3, 3, "ü"), (9, 1, "ü")]


def test_debezium_without_the_values_that_the_log_did_not_hold(target: str, session: Session) -> None:
    """The connector's placeholder is no value: the text stays, also where the key moves."""
    session.execute("CREATE DATABASE d")
    session.execute("CREATE TABLE d.t (id INT PRIMARY KEY, n INT, doc TEXT NOT NULL)")
    session.execute("INSERT INTO d.t VALUES (5, 5, 'there')")
    gone = "__debezium_unavailable_value"
    rows: list[tuple[str, Row, Row | None]] = [
        ("c", {"id": 1, "n": 1, "doc": "precious"}, None),
        ("u", {"id": 1, "n": 2, "doc": gone}, {"id": 1, "n": 1, "doc": gone}),
        ("u", {"id": 6, "n": 5, "doc": gone}, {"id": 5, "n": 5, "doc": gone}),
        ("u", {"id": 1, "n": 2, "doc": "new"}, {"id": 1, "n": 2, "doc": gone}),
        ("u", {"id": 1, "n": 3, "doc": gone}, None),
    ]
    decoder = make_decoder("debezium", DecodeOptions("UTC"))
    values = [
        native(op, row, None, source=NATIVE_SOURCE | {"pos": pos}, **({"before": before} if op == "u" else {}))
        for pos, (op, row, before) in enumerate(rows, 484)
    ]
    events = [event for value in values for event in decode_message(decoder, b'{"payload":{"id":1}}', value)]
    run_all(target, in_one_partition(events))
    assert session.rows("SELECT * FROM d.t ORDER BY id") == [(1, 3, "new"), (6, 5, "there")]


def test_parts_are_made_again_in_smaller_steps(target: str, session: Session) -> None:
    """In `parallel` a process dies after the connections have written, before progress has moved, and the next one
    reads less at a time: a row that went in the end must still be there when its earlier change comes again."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, n INT, doc TEXT NOT NULL)")
    session.execute("INSERT INTO m.t VALUES (1, 1, 'a'), (2, 2, 'b')")
    events = by_time(t([1, 1], [1, 3], PARTS), t([1, 3], None, PARTS), t([2, 2], [2, 1], PARTS))

    steps: list[str] = []

    def die(step: str) -> None:
        steps.append(step)
        if step == "before commit" and {"statement", "part committed"} & set(steps):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(target, events, writers=2, trace=die)
    run_all(target, events, writers=2, batch=1)
    assert session.rows("SELECT * FROM m.t") == [(2, 1, "b")]
