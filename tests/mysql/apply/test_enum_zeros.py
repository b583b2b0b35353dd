"""The error value of an ENUM, which a server stores where its SQL mode is not strict, reaches every target as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count, product
from pathlib import Path

import pyarrow as pa
import pytest

from bridge.rows.sql.members import zero_of
from tests.generated.verifying import verify_events
from tests.support.clients import run_file
from tests.support.debezium_wire import ID, NATIVE_SOURCE, named, native
from tests.support.pipelines import run_all, sql
from tests.support.upstreams import Literal, boundary, in_one_partition, row_change, schema_change
from tests.support.wire import ROW_KEY, as_ckafka, canal, compact, decoded_lot, frame, open_key

POSITIONS = count(484)
"""Each message of Debezium has a place of its own in the binlog."""
SERVERS = ("target", "old_target", "mysql_target", "old_mysql_target")
MEMBERS = ("'a','b'", "'0','','00'", "'1','2','０００'", "'0','00','000','0000','b'")
"""Of columns: texts of zeros may be members, or may be equal to one under the column's collation."""
TABLES = {
    "a key": "id INT PRIMARY KEY, e {enum}, n {enum} NOT NULL",
    "part of a key": "id INT, e {enum}, n {enum} NOT NULL, PRIMARY KEY (n, id)",
    "no key": "id INT, e {enum}, n {enum} NOT NULL",
}
KEYS: dict[str, Sequence[str]] = {"a key": ["id"], "part of a key": ["n", "id"], "no key": []}


@pytest.mark.parametrize(
    ("column_type", "literal"),
    [
        *(("enum('a','b')", "'0'"), ("enum('0','b')", "'00'"), ("enum('00','b')", "'0'"), ("enum('０','00')", "'000'")),
        *(("enum('0 ','.00','0-0-0')", "'0000'"), ("enum('0','00','000','0000','00000')", None), ("set('a')", None)),
        ("int", None),
    ],
)
def test_the_literal(column_type: str, literal: str | None) -> None:
    """A text of zeros that no collation takes for a member."""
    zero = zero_of(column_type)
    assert (zero and zero.literal) == literal


def row(number: int, one: int, other: int) -> list[object]:
    return [number, Literal(str(one)), Literal(str(other))]


@pytest.mark.parametrize("server", [*SERVERS, "tidb_target"])
def test_rows_get_it_and_lose_it(server: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """As numbers: of new rows and of rows that are there, which go by it as well; verify finds other values where
    there is a key, and its fix writes the right ones.  In a table of each kind."""
    url = request.getfixturevalue(server)
    columns = ["id", "e", "n"]
    before = {1: (1, 1), 2: (0, 1), 3: (2, 2), 4: (0, 0), 5: (0, 2)}
    after = {1: (0, 1), 2: (2, 0), 3: (0, 0), 5: (0, 2), 6: (0, 0), 7: (1, 2)}
    tables = {f"t{n}": kind for n, kind in enumerate(product(TABLES, MEMBERS))}
    made, first, second = [], [], []
    for name, (table, members) in tables.items():
        key = KEYS[table]
        definition = TABLES[table].format(enum=f"ENUM({members})")
        made.append(schema_change(len(made), f"CREATE TABLE {name} ({definition})"))
        first += [row_change(20, name, columns, key, after=row(n, *pair)) for n, pair in before.items()]
        second += [
            row_change(30, name, columns, key, before=row(n, *before[n]), after=row(n, *after[n])) for n in (1, 2, 3)
        ]
        second.append(row_change(30, name, columns, key, before=row(4, *before[4])))
        second += [row_change(30, name, columns, key, after=row(n, *after[n])) for n in (6, 7)]
    events = in_one_partition([*made, *first, boundary(25), *second, boundary(35)])
    sql(url, "CREATE DATABASE m COLLATE utf8mb4_unicode_ci")
    run_all(url, events, batch=7)
    rows = [(n, *pair) for n, pair in after.items()]
    right = dict.fromkeys(tables, rows)
    assert numbers_of(url, tables) == right
    if server == "tidb_target":
        return  # it takes the value from a column alone, which verify has not
    assert verify_events(url, events).is_equal
    keyed = [name for name, (table, _) in tables.items() if KEYS[table]]
    sql(url, *(f"UPDATE m.{name} SET e = 2" for name in keyed))
    report = verify_events(url, events, fixes=tmp_path / "fix.sql")
    assert [table.name.table for table in report.tables if table.result != "DIFFERENT"] == sorted(tables.keys() - keyed)
    run_file(url, tmp_path / "fix.sql")
    assert numbers_of(url, tables) == right


def numbers_of(url: str, tables: Iterable[str]) -> dict[str, list[tuple[int, ...]]]:
    """The rows of each table, their values as numbers."""
    return {name: sql(url, f"SELECT id, e + 0, n + 0 FROM m.{name} ORDER BY id") for name in tables}


@pytest.mark.parametrize("url", SERVERS, indirect=True)
def test_loads(url: str) -> None:
    """Also by LOAD DATA, among many rows."""
    log = [schema_change(5, f"CREATE TABLE t ({TABLES['a key'].format(enum=f'ENUM({MEMBERS[0]})')})")]
    log += [row_change(10, "t", ["id", "e", "n"], ["id"], after=row(n, n % 3, (n + 1) % 3)) for n in range(30_000)]
    sql(url, "CREATE DATABASE m")
    run_all(url, in_one_partition([*log, boundary(15)]))
    assert sql(url, "SELECT COUNT(*) FROM m.t WHERE e + 0 = id % 3 AND n + 0 = (id + 1) % 3") == [(30_000,)]


def by_canal(number: int, value: str | None) -> tuple[bytes | None, bytes]:
    columns = {"id": ("int", str(number)), "e": ("enum('a','b')", value)}
    return None, canal("INSERT", columns, database="m", _tidb={"commitTs": 10})


def by_ckafka(number: int, value: str | None) -> tuple[bytes | None, bytes]:
    return None, as_ckafka(by_canal(number, value)[1])


def by_open(number: int, value: int | None) -> tuple[bytes | None, bytes]:
    columns = {"id": {"t": 3, "f": 11, "h": True, "v": number}, "e": {"t": 247, "f": 64, "v": value}}
    return open_key(ROW_KEY | {"scm": "m", "ts": 10}), frame(compact({"u": columns}))


def by_debezium(number: int, value: str | None, *, has_schema: bool = True) -> tuple[bytes | None, bytes]:
    fields = [ID, named("string", "data.Enum", parameters={"allowed": "a,b"}) | {"field": "e"}]
    row, source = {"id": number, "e": value}, NATIVE_SOURCE | {"db": "m", "pos": next(POSITIONS)}
    message = native("c", row, fields if has_schema else None, source=source)
    return b'{"payload":{"id":1}}', message


WAYS: dict[str, tuple[str, list[tuple[bytes | None, bytes]]]] = {
    "canal-json": ("canal-json", [by_canal(1, "1"), by_canal(2, "0"), by_canal(3, None)]),
    "open-protocol": ("open-protocol", [by_open(1, 1), by_open(2, 0), by_open(3, None)]),
    "debezium": ("debezium", [by_debezium(1, "a"), by_debezium(2, ""), by_debezium(3, None)]),
    "debezium without schema": (
        "debezium",
        [by_debezium(n, value, has_schema=False) for n, value in ((1, "a"), (2, ""), (3, None))],
    ),
    "ckafka": ("ckafka", [by_ckafka(1, "a"), by_ckafka(2, ""), by_ckafka(3, None)]),
}


@pytest.mark.parametrize("url", ["target", "mysql_target", "old_mysql_target", "tidb_target"], indirect=True)
@pytest.mark.parametrize("way", WAYS)
def test_every_protocol(url: str, way: str) -> None:
    """By its number, or by '' where the format has names."""
    protocol, messages = WAYS[way]
    sql(url, "CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY, e ENUM('a','b'))")
    keys, values = zip(*messages, strict=True)
    events = decoded_lot(protocol, values, keys)
    has_boundaries = protocol in ("canal-json", "open-protocol")
    run_all(url, pa.concat_tables([events, in_one_partition([boundary(15)], len(messages))][: 1 + has_boundaries]))
    assert sql(url, "SELECT id, e + 0 FROM m.t ORDER BY id") == [(1, 1), (2, 0), (3, None)]
