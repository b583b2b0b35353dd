"""Checksums that no arrangement of values can fool, on a real server."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import inf, nextafter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.model import TableName
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.table_definition import Definition, load_definitions
from bridge.protocols.values import literals
from bridge.verify.compare.checksums import (
    KeyValues,
    between,
    boundary_query,
    fingerprint_of,
    fingerprint_query,
    key_parts,
    readable,
    real_number,
    row_hash,
    token,
)
from tests.support.fixtures import SERVERS
from tests.support.verify_servers import execute

TABLE = """
CREATE DATABASE app; USE app;
CREATE TABLE t (a VARCHAR(20), b VARBINARY(20), i INT, c CHAR(5) CHARACTER SET latin1, x LONGTEXT);
CREATE TABLE k (a INT, b VARCHAR(20) COLLATE utf8mb4_general_ci, d DECIMAL(6,2), t TIMESTAMP(2),
    PRIMARY KEY (a, b, d, t));
INSERT INTO k SELECT seq % 3, CONCAT(CHAR(60 + seq % 60), seq % 5), seq / 100,
    TIMESTAMP('2024-01-01') + INTERVAL seq SECOND FROM seq_1_to_1000;
"""


@pytest.fixture
def session(target: str) -> Iterator[Session]:
    execute(target, f"SET time_zone = '+00:00'; {TABLE}")
    opened = Target(target).connect(autocommit=True)
    yield opened
    opened.close()


def definition(session: Session, table: str) -> Definition:
    name = TableName("app", table)
    return load_definitions(session, [name])[name]


TRICKY = st.text(alphabet="N,:0123'\\ aA\0é", max_size=6)
ROW = st.tuples(
    st.none() | TRICKY,
    st.none() | TRICKY,
    st.none() | st.integers(-11, 11),
    st.none() | st.text(alphabet="N,:1aé", max_size=4),
    st.none() | TRICKY | st.just("N" * 70_000),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(left=ROW, right=ROW)
def test_rows_have_one_hash_only_when_they_are_equal(
    session: Session, left: tuple[object, ...], right: tuple[object, ...]
) -> None:
    """Whatever separators, lengths, letters N or NULLs their values hold."""
    session.execute("TRUNCATE app.t")
    for row in (left, right):
        values = ",".join("NULL" if v is None else str(v) if isinstance(v, int) else literals.text(str(v)) for v in row)
        session.execute(f"INSERT INTO app.t VALUES ({values})")
    tokens = [token(column) for column in definition(session, "t").columns.values()]
    hashes = {value for (value,) in session.rows(f"SELECT {row_hash(tokens)} FROM app.t")}
    assert None not in hashes
    assert (len(hashes) == 1) is (left == right)
    found = fingerprint_of(session.rows(fingerprint_query(tokens, "FROM app.t"))[0])
    assert (found.rows, found.hashed, found.total) == (2, 2, sum(hashes) * (2 if len(hashes) == 1 else 1))


OF_EACH_SERVER = ("utf8mb4_bin", "utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb3_bin", "utf8mb3_general_ci")
MIXED = {
    "target": (*OF_EACH_SERVER, "utf8mb4_nopad_bin", "utf8mb3_nopad_bin"),
    "mysql_target": (*OF_EACH_SERVER, "utf8mb4_0900_bin", "utf8mb4_0900_ai_ci"),
    "tidb_target": ("utf8mb4_bin", "utf8mb4_general_ci", "utf8mb4_0900_bin", "utf8_bin"),
}
AS_BYTES = ("ascii_bin", "latin1_bin", "gbk_bin", "binary")
"""One such column makes all of the row's text bytes."""


@pytest.mark.parametrize("kind", ["VARCHAR(9)", "MEDIUMTEXT"])
@pytest.mark.parametrize("others", [(), AS_BYTES])
@pytest.mark.parametrize("server", ["target", "mysql_target", pytest.param("tidb_target", marks=pytest.mark.soak)])
def test_collations_of_all_kinds_in_one_row(
    request: pytest.FixtureRequest, server: str, others: tuple[str, ...], kind: str
) -> None:
    """A row has the hash that it has where all its columns have one collation."""
    url, mixed = request.getfixturevalue(server), [*MIXED[server], *others]
    execute(url, "CREATE DATABASE app")
    hashes = set()
    session = Target(url).connect(autocommit=True)
    try:
        for name, collations in (("mixed", mixed), ("same", ["utf8mb4_bin"] * len(mixed))):
            columns = [f"c{n} {kind} COLLATE {one}" for n, one in enumerate(collations)]
            session.execute(f"CREATE TABLE app.{name} ({', '.join(columns)})")
            session.execute(f"INSERT INTO app.{name} VALUES ({','.join(f'CHAR(65 + {n})' for n in range(len(mixed)))})")
            tokens = [token(column) for column in definition(session, name).columns.values()]
            hashes.update(session.rows(f"SELECT {row_hash(tokens)} FROM app.{name}"))
    finally:
        session.close()
    assert len(hashes) == 1


@pytest.mark.parametrize("server", [*SERVERS, pytest.param("tidb_target", marks=pytest.mark.soak)])
def test_neighbouring_doubles_have_texts_of_their_own(request: pytest.FixtureRequest, server: str) -> None:
    """Of whatever size and sign, and each text is that of its number alone."""
    url, dice = request.getfixturevalue(server), random.Random(2)
    numbers = [sign * dice.uniform(1, 9) * 10.0**size for size in range(-308, 308, 4) for sign in (1, -1)]
    numbers += [0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 1e-99, -1e-99, 1e15, 1e-5]
    pairs = [(number, nextafter(number, inf if number < 1 else 0)) for number in numbers]
    execute(url, "CREATE DATABASE app; CREATE TABLE app.d (id INT PRIMARY KEY, a DOUBLE, b DOUBLE)")
    rows = (",".join(map(literals.double_number, pair)) for pair in pairs)
    execute(url, "INSERT INTO app.d VALUES " + ",".join(f"({n},{row})" for n, row in enumerate(rows)))
    session = Target(url).connect(autocommit=True)
    try:
        columns = list(definition(session, "d").columns.values())[1:]
        found = session.rows(f"SELECT {','.join(map(readable, columns))} FROM app.d ORDER BY id")
    finally:
        session.close()
    assert [tuple(real_number(bytes.fromhex(str(text))) for text in row) for row in found] == pairs


@pytest.mark.parametrize("has_own_order", [True, False])
def test_ranges_divide_the_keys(session: Session, has_own_order: bool) -> None:
    """Every key is in exactly one of the ranges between any bounds, in the column's order and in utf8mb4_bin's."""
    table = definition(session, "k")
    columns = [table.columns[name] for name in table.keys[0]]
    others = columns if has_own_order else [replace(column, collation="another") for column in columns]
    parts = key_parts(columns, others)
    dice = random.Random(1)
    for _ in range(10):
        offsets = sorted(dice.sample(range(1000), 3))
        bounds: list[KeyValues | None] = [None]
        for offset in offsets:
            [row] = session.rows(boundary_query(parts, "FROM app.k", offset))
            bounds.append(tuple(bytes.fromhex(str(value)) for value in row))
        bounds.append(None)
        counts = [
            session.value(f"SELECT COUNT(*) FROM app.k WHERE {between(parts, low, high)}")
            for low, high in pairwise(bounds)
        ]
        ends = [offset + 1 for offset in offsets]
        assert counts == [end - start for start, end in zip([0, *ends], [*ends, 1000], strict=True)]
