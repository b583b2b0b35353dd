"""Rows that LOAD DATA writes are those that INSERT writes, or it says that they are not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymysql.err import MySQLError

from bridge.errors import ApplyError
from bridge.events import SEP, RowChange
from bridge.model import Column, Table, TableName, quote_name
from bridge.mysql.apply import load_data
from bridge.mysql.apply.load_data import LoadRefusedError, objection, run, shortfall, transactional
from bridge.mysql.catalog import load_tables
from bridge.mysql.connection.session import LoadAnswer, Session
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import REFUSED_VALUE, TRANSIENT, error_code
from bridge.protocols.values import literals
from bridge.rows.literal_offsets import TEXT, runs
from bridge.rows.net_changes import KeyedChanges, WrittenRows
from bridge.rows.sql import render
from bridge.rows.sql.statement import Rendering, load_of, load_statement, may_load, readable
from bridge.rows.type_check import column_fit
from tests.support.fixtures import SERVERS
from tests.support.pipelines import admin, opened, run_all
from tests.support.upstreams import Literal, boundary, in_one_partition, row_change

NAMES = ("id", "v")
TYPES = (
    *("TINYINT", "TINYINT UNSIGNED", "SMALLINT", "MEDIUMINT UNSIGNED", "INT", "BIGINT", "BIGINT UNSIGNED"),
    *("INT(5) ZEROFILL", "DECIMAL(10,2)", "DECIMAL(65,30) UNSIGNED", "FLOAT", "DOUBLE", "FLOAT(7,3)", "DOUBLE(20,4)"),
    *("DATE", "TIME", "TIME(3)", "DATETIME", "DATETIME(6)", "TIMESTAMP(6) NULL", "TIMESTAMP NULL"),
    *("CHAR(9)", "VARCHAR(9)", "VARCHAR(9) CHARACTER SET latin1", "VARCHAR(99) CHARACTER SET gbk", "LONGTEXT"),
    *("VARCHAR(99) CHARACTER SET ucs2", "TEXT CHARACTER SET ascii", "TINYTEXT", "TEXT CHARACTER SET utf8"),
    *("MEDIUMTEXT CHARACTER SET sjis", "TEXT CHARACTER SET utf32 COLLATE utf32_bin", "VARCHAR(99) CHARACTER SET big5"),
    *("BLOB", "TINYBLOB", "LONGBLOB", "VARBINARY(9)", "BINARY(9)", "BIT(1)", "BIT(8)", "BIT(64)", "YEAR", "JSON"),
    *("ENUM('a','b','NULL','x',\"it's\",'a,b','c1')", "ENUM('a','','é')", "ENUM('1','0','12','-1','a')"),
    *("ENUM('2','1')", "ENUM('²','٢') CHARACTER SET utf8", "ENUM('é','a') CHARACTER SET latin1 COLLATE latin1_bin"),
    *("SET('a','b','NULL','x','it''s','c1')", "SET('1','2','12')", "SET('中','a') CHARACTER SET gbk", "SET('', 'b')"),
)
COUNTED = ("BIT", "ENUM", "SET")
"""LOAD refuses numbers of these that are not natural ones, which INSERT rounds; they then go by INSERT."""
NUMBERS = (
    *("0", "1", "-1", "00012", "127", "128", "-128", "-129", "255", "256", "65535", "65536", "8388608", "16777215"),
    *("2147483647", "2147483648", "-2147483649", "4294967295", "4294967296", "9223372036854775807"),
    *("-9223372036854775808", "9223372036854775808", "18446744073709551615", "18446744073709551616"),
    *("1.0", "1.5", "-0.05", "0.1", "0.10", "0.005", "99999999.99", "99999999.995", "100000000.00", "-0", "-0.00"),
    *("9" * 35 + "." + "9" * 30, "9" * 36, "0." + "1" * 40, "1" * 66, "123456789012345.678"),
    *("0.0e0", "-0.0e0", "1.0e0", "0.1e0", "0.005e0", "2.5e0", "3.5e0", "123456.7891e0", "1e+22", "1e2", "1.5e+300"),
    *("0.30000001192092896e0", "3.4028234663852886e+38", "3.5e+38", "1.401298464324817e-45", "1.7976931348623157e+308"),
    *("2.2250738585072014e-308", "5e-324", "0.1234567890123456e0", "99999999.995e0", "1e400"),
)
TEXTS = (
    *(
        *("", " ", "a", "a ", "a" * 9, "a" * 10, "a        b", "1", "1.0", "-1", "1e2", "12abc", "NULL", "null", "N"),
        "\\N",
    ),
    *("'", "''", "'''", "\\", "\\\\", "\\'", "a'", "'a", "a\\", "\0", "a\0b", "\0'", "\\0", "\n", "\r\n", "\t", "\b"),
    *("\x1a", ",", "',\n'", "'\0'", "\\n", "\\t", "\\Z", "%", "\\%", "\\_", "x'00'", "\x7f", "\x80", "é", "ÿ", "€"),
    *("中", "丂", "表", "ソ", "é" * 9, "é" * 10, "😀", "a😀b", "\ufeff", "\ufffd", "\uffff", "\U0010ffff", "\u2028"),
    *("b" * 300, "中" * 200, "c" * 70_000, "中" * 66_000, "\n" * 300, "'" * 300, "\\" * 300, '"', "`", "--", "/*", ";"),
    *("2024-01-01", "2024-02-31", "2024-13-01", "0000-00-00", "2024-00-10", "0001-01-01", "9999-12-31", "10000-01-01"),
    *("2024-01-01 00:00:00", "2024-01-01 23:59:59.999999", "2024-01-01 23:59:59.9", "0000-00-00 00:00:00"),
    *(
        *("1970-01-01 00:00:00", "1970-01-01 00:00:01", "2038-01-19 03:14:07", "2038-01-19 03:14:08"),
        "2106-02-07 06:28:16",
    ),
    *("9999-12-31 23:59:59.999999", "2024-03-10 02:30:00", "2024-01-01 10:10:10+05:30", "2024-01-01T10:10:10"),
    *(
        *("12:34:56", "-12:34:56.789", "-12:34:56.7891", "838:59:59", "838:59:59.999999", "-838:59:59", "839:00:00"),
        "00:00:00.000001",
    ),
    *("25:00:00", "-00:00:01", "1 10:00:00", "12:60:00"),
)
BYTES = (
    *(b"\0", b"a", b"'", b"\\", b"\n", b"\xff", b"\0\1\xfe", b"\xc3\xa9", b" ", b"a ", b"123456789", b"1234567890"),
    *(bytes(range(256)), b"\\N", b"NULL", b"x'00'", b"\xf0\x9f" * 40_000, b"\0" * 256),
)
DOCUMENTS = ("{}", "[]", '{"a": "it\'s \\"fine\\"\\n"}', "null", '"é"', '{"a": 1.0, "b": [true, "\\u0000"]}', '{"a": ')
NAMES_TOGETHER = ("a,b", "b,a", "x,it's", "a,a", "a,z", "12,1", ",b", "中,a", "-1", "²", "٢", "c1", "C1", "é", "it's")
LITERALS = ("NULL", *NUMBERS, *map(literals.text, (*TEXTS, *DOCUMENTS, *NAMES_TOGETHER)), *map(literals.binary, BYTES))


@pytest.fixture(params=["target", *(pytest.param(name, marks=pytest.mark.soak) for name in list(SERVERS)[1:])])
def url(request: pytest.FixtureRequest) -> str:
    """MariaDB 11.4; in long runs each server."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def session(url: str) -> Iterator[Session]:
    with admin(url) as session:
        before = session.value("SELECT @@GLOBAL.local_infile")
        session.execute("CREATE DATABASE m DEFAULT CHARSET utf8mb4")
        session.execute("SET GLOBAL local_infile = ON")
        yield session
        session.execute("SET GLOBAL local_infile = %s", (before,))


@pytest.fixture
def however_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever may be loaded is."""
    monkeypatch.setattr(render, "MIN_BYTES", 0)


def column(column_type: str, charset: str | None = None, *, nullable: bool = True, generated: bool = False) -> Column:
    return Column("v", column_type, charset, generated, nullable)


INT = column("int(11)", nullable=False)
TEXT_COLUMN = column("varchar(9)", "utf8mb4")


def table(key: dict[str, Column], *others: Column, **given: Any) -> Table:
    named = key | {f"v{i}": other for i, other in enumerate(others)}
    columns = {name: replace(one, name=name) for name, one in named.items()}
    given = {"keys": (tuple(key),), "uniques": (tuple(key),)} | given
    return Table(TableName("m", "t"), columns, **given)


LOADED = (
    table({"id": INT}, TEXT_COLUMN),
    table({"id": INT, "at": column("timestamp(6)", nullable=False)}, column("float"), column("double(7,3)")),
    table({"id": column("decimal(20,0) unsigned", nullable=False)}, column("longtext", "gbk"), column("time(3)")),
    table({"id": column("bigint(20) unsigned zerofill", nullable=False)}, column("date"), column("char(36)", "latin1")),
)
INSERTED = {
    "another unique key": table({"id": INT}, INT, uniques=(("id",), ("v0",))),
    "a key of texts": table({"id": TEXT_COLUMN}),
    "a key of floats": table({"id": column("double", nullable=False)}),
    "a period in the key": table({"id": INT, "e": column("date"), "s": column("date")}),
    "generated": table({"id": INT}, column("int", generated=True)),
    **{
        f"{word} {charset}": table({"id": INT}, column(word, charset))
        for word, charset in [
            *(("year(2)", None), ("enum('a')", "binary"), ("point", None), ("uuid", None), ("inet6", None)),
            *(("varchar(9)", "binary"), ("int", "utf8mb4"), ("varchar(9)", None), ("vector(3)", None)),
            *(("timestamp /* mariadb-5.3 */", None), ("text /*M!100301 COMPRESSED*/", "utf8mb4"), ("interval", None)),
        ]
    },
}


@pytest.mark.parametrize("one", LOADED)
def test_tables_that_are_loaded(one: Table) -> None:
    """Their key is of exact values and the only one, and LOAD reads every type of theirs as INSERT does."""
    assert may_load(one, one.keys[0], list(one.columns))
    assert not may_load(one, one.keys[0], list(one.columns)[:-1]), "REPLACE would take the column's value away"


@pytest.mark.parametrize("one", INSERTED.values(), ids=INSERTED)
def test_tables_that_are_not(one: Table) -> None:
    """A rule of any column, or of the table, is enough."""
    assert not may_load(one, one.keys[0], list(one.columns))


@pytest.mark.usefixtures("however_little")
def test_rows_that_cannot_be_loaded_go_by_insert() -> None:
    """They alone; nothing is loaded unless it is asked for."""
    rows = pa.array([SEP.join(row) for row in (("1", "'a'"), ("2", "x'42'"), ("3", "NULL"), ("4", "5"))], TEXT)
    net = KeyedChanges(LOADED[0], ("id",), rows.slice(0, 0), (WrittenRows(f"id{SEP}v0", rows, rows.slice(0, 0)),))
    loadable = frozenset({LOADED[0].name})
    *given_loads, inserted = render.render(net, Rendering("_bridge", load_bytes=10, loadable=loadable))
    assert [(load.rows, load.body.to_pybytes()) for load in (given.load for given in given_loads) if load] == [
        (1, b"1\0'a'\n"),
        (1, b"3\0NULL\n"),
    ]
    assert "VALUES (2,x'42'),(4,5) ON DUPLICATE" in inserted.sql.decode()
    for rendering in (
        Rendering("_bridge", loadable=loadable),
        Rendering("_bridge", load_bytes=10),  # the table is not of InnoDB, is versioned, or has refused a load
    ):
        (whole,) = render.render(net, rendering)
        assert "VALUES (1,'a'),(2,x'42'),(3,NULL),(4,5) ON DUPLICATE" in whole.sql.decode()


MARIADB = {"version": "11.4.5-MARIADB", "local_infile": "ON", "wsrep_on": "OFF", "sql_notes": "ON"}


@pytest.mark.parametrize(
    "version",
    [
        *("11.4.5-MariaDB", "10.11.6-MariaDB-0+deb12u1-log", "8.0.31", "5.7.22-log"),
        *("8.0.36-0ubuntu0.22.04.1", "8.0.35-27", "5.7.44-48-log", "8.4.3-commercial", "9.1.0-debug"),
    ],
)
def test_servers_that_are_known(version: str) -> None:
    """By their versions."""
    assert objection(MARIADB | {"version": version}) == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("version", "8.0.11-TiDB-v8.5.1"), ("version", "5.7.25-OceanBase-v4.2.1.8"), ("version", "8.0.30-Vitess")),
        *(("version", "5.6.29-PXC-5.4.13"), ("version", "8.0.mysql_aurora.3.04.0"), ("version", "")),
        *(("local_infile", "OFF"), ("local_infile", ""), ("wsrep_on", "ON"), ("sql_notes", "OFF")),
        ("show_gipk_in_create_table_and_information_schema", "OFF"),
    ],
)
def test_servers_that_are_not_loaded_into(name: str, value: str) -> None:
    """The reason names what it is about; what a server does not say is not taken for granted."""
    assert (value if name == "version" else name) in objection(MARIADB | {name: value})
    assert objection({})


@pytest.mark.parametrize(
    ("image", "is_readable"),
    [
        *((("1", "'a'", "1.0e0"), True), (("-1", "NULL", "NULL"), True), (("1", "'x''NULL'", "5e-324"), True)),
        *((("NULL", "'a'", "1e2"), False), (("1", "x'c3'", "1e2"), False), (("1", "1", "1e2"), False)),
        *((("'1'", "'a'", "1e2"), False), (("1", "'a'", "'1'"), False), (("1", "'a'", "-0.0"), False)),
        *((("1", "_utf8'a'", "1e2"), False), (("1", "'a'", "CAST(1 AS DOUBLE)"), False), (("1", "'a'", "-1"), True)),
    ],
)
def test_rows_that_are_loaded(image: tuple[str, ...], is_readable: bool) -> None:
    """Wherever they lie among others: no NULL where there must be a value, no bytes, no number in a text."""
    others = [SEP.join(("7", "'NULL'", "NULL"))] * 2
    images = pa.array(["cut off", *others, SEP.join(image), *others], TEXT).slice(1)
    columns = [INT, TEXT_COLUMN, column("double")]
    assert readable(images, columns).tolist() == [True, True, is_readable, True, True]
    assert readable(images.slice(2, 1), columns).tolist() == [is_readable]


@pytest.mark.parametrize(
    ("warnings", "said", "is_taken"),
    [
        *(
            (0, b"Records: 3  Deleted: 0  Skipped: 0  Warnings: 0", True),
            (0, b"Records: 3  Deleted: 2  S: 0  W: 0", True),
        ),
        (0, b"0Datens\xc3\xa4tze: 3  Gel\xc3\xb6scht: 0  Ausgelassen: 0  Warnungen: 0", True),
        *((1, b"Records: 3  Deleted: 0  Skipped: 0  Warnings: 0", False), (0, b"R: 3  D: 0  S: 0  W: 1", False)),
        *((0, b"Records: 3  Deleted: 0  Skipped: 1  Warnings: 0", False), (0, b"R: 2  D: 0  S: 0  W: 0", False)),
        *((0, b"Records: 4  Deleted: 0  Skipped: 0  Warnings: 0", False), (0, b"", False), (0, b"3 0 0", False)),
    ],
)
def test_answers(warnings: int, said: bytes, is_taken: bool) -> None:
    """All rows, and not a word of warning; the words are in any language, and may stand behind their length."""
    assert (shortfall(LoadAnswer(warnings, said), 3) == "") is is_taken


def make(session: Session, name: str, column: str) -> Table:
    """A table of a key and one column."""
    session.execute(f"CREATE TABLE {quote_name('m', name)} (id INT PRIMARY KEY, v {column})")
    return load_tables(session, [TableName("m", name)])[TableName("m", name)]


def passing(column: Column) -> list[str]:
    """Literals that get as far as a load into the column."""
    keeps = column_fit(column.type).keeps
    fitting = [literal for literal in LITERALS if not keeps or keeps(literal)]
    is_readable = readable(pa.array(fitting, TEXT), [column]).tolist()
    return [literal for literal, loaded in zip(fitting, is_readable, strict=True) if loaded]


def insert(session: Session, table: Table, literal: str, key: int) -> bool:
    name = quote_name(*table.name)
    try:
        sql = f"INSERT INTO {name} (id,v) VALUES ({key},{literal}) ON DUPLICATE KEY UPDATE v=VALUES(v)"
        session.write(sql.encode())
    except MySQLError as error:
        if error_code(error) not in REFUSED_VALUE:
            raise
        session.execute(f"DELETE FROM {name} WHERE id = %s", (key,))  # refused for a note
        return False
    return True


def load(session: Session, table: Table, literal: str, key: int) -> bool:
    rows = load_of(table, pa.array([f"{key}{SEP}{literal}"], TEXT))
    try:
        run(session, load_statement(table, NAMES), rows)
    except LoadRefusedError:
        session.execute(f"DELETE FROM {quote_name(*table.name)} WHERE id = %s", (key,))
        return False
    return True


def values(session: Session, table: Table) -> dict[int, str]:
    """As they are, to the sign of 0."""
    rows = session.rows(f"SELECT id, v, HEX(v), CONCAT(v), v * 1e0 FROM {quote_name(*table.name)}")
    return {row[0]: repr(row[1:]) for row in rows}


def test_a_value_is_loaded_as_it_is_inserted(session: Session) -> None:
    """Of every type, every value that gets so far is written alike by both, or refused by both, or by LOAD alone."""
    for number, column in enumerate(TYPES):
        inserted, loaded = (make(session, f"{name} {number}", column) for name in ("inserted", "loaded"))
        literals = list(enumerate(passing(loaded.columns["v"])))
        session.begin()
        by_insert = {literal for key, literal in literals if insert(session, inserted, literal, key)}
        by_load = {literal for key, literal in literals if load(session, loaded, literal, key)}
        session.commit()
        assert by_load, column
        assert by_load <= by_insert, column
        assert not [one for one in by_insert - by_load if not column.startswith(COUNTED) or one.isdecimal()], column
        both = {key for key, literal in literals if literal in by_load}
        by_key = values(session, inserted)
        assert values(session, loaded) == {key: by_key[key] for key in both}, column
        assert may_load(loaded, ("id",), NAMES), column


ROWS = st.lists(
    st.tuples(
        st.integers(-9, 9),
        st.text(st.sampled_from("a\\'\n\0,\t\r\"NxZ0b\x1aé中😀"), max_size=9),
        st.binary(min_size=1, max_size=9),
        st.integers(1, 3),
        st.text(max_size=5),
        st.integers(0, 511),
    ),
    min_size=1,
    max_size=40,
    unique_by=lambda row: row[0],
)


@pytest.fixture(scope="module")
def mixed(mariadb: Any) -> Iterator[tuple[Session, Table]]:
    with admin(mariadb.url) as session:
        session.execute("CREATE DATABASE t DEFAULT CHARSET utf8mb4")
        session.execute(
            "CREATE TABLE t.t (id INT PRIMARY KEY, a LONGTEXT, b BLOB, c ENUM('a','it''s','x'), d TINYTEXT, e BIT(9))"
        )
        yield session, load_tables(session, [TableName("t", "t")])[TableName("t", "t")]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=ROWS, load_bytes=st.integers(1, 300))
def test_rows_come_out_as_they_went_in(mixed: tuple[Session, Table], rows: list[Any], load_bytes: int) -> None:
    """Whatever a text or bytes hold of what ends fields and rows, and however rows are cut to loads."""
    session, table = mixed
    images = pa.array(
        [
            SEP.join((str(key), literals.text(a), literals.binary(b), str(c), literals.text(d), str(e)))
            for key, a, b, c, d, e in rows
        ],
        TEXT,
    )
    assert readable(images, list(table.columns.values())).all()
    for part in runs(images, load_bytes):
        run(session, load_statement(table, list(table.columns)), load_of(table, part))
    keys = ",".join(str(row[0]) for row in rows)
    assert sorted(session.rows(f"SELECT id, a, b, c+0, d, e+0 FROM t.t WHERE id IN ({keys})")) == sorted(rows)


def test_long_texts(session: Session) -> None:
    """Characters of several bytes lie across whatever pieces a server reads, and loads across packets."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, v LONGTEXT)")
    table = load_tables(session, [TableName("m", "t")])[TableName("m", "t")]
    rows = [(number, "'" * number + "中😀\n" * 40_000) for number in range(9)]
    part = load_of(table, pa.array([f"{key}{SEP}{literals.text(text)}" for key, text in rows], TEXT))
    run(session, load_statement(table, NAMES), part)
    assert session.rows("SELECT * FROM m.t") == rows


def test_long_bytes(url: str, session: Session) -> None:
    """Bytes go through an expression, whose result a server might cut at max_allowed_packet: they come out whole."""
    before = session.value("SELECT @@GLOBAL.max_allowed_packet")
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, v LONGBLOB)")
    table = load_tables(session, [TableName("m", "t")])[TableName("m", "t")]
    content = bytes(range(256)) * 12_000
    session.execute("SET GLOBAL max_allowed_packet = %s", (1 << 20,))
    try:
        with admin(url) as small:
            rows = pa.array([f"1{SEP}{literals.binary(content)}"], TEXT)
            run(small, load_statement(table, NAMES), load_of(table, rows))
            small.commit()
    finally:
        session.execute("SET GLOBAL max_allowed_packet = %s", (before,))
    assert session.rows("SELECT v FROM m.t") == [(content,)]


def loaded(session: Session) -> int:
    return int(session.rows("SHOW GLOBAL STATUS LIKE 'Com_load'")[0][1])


def changes(ts: int, *rows: list[object]) -> list[RowChange]:
    return [row_change(ts, "t", ["id", "v"], ["id"], after=row) for row in rows]


@pytest.mark.parametrize("writers", [0, 2])
@pytest.mark.usefixtures("however_little")
def test_rows_are_loaded_over_those_that_are_there(url: str, session: Session, writers: int) -> None:
    """The ones that LOAD cannot read go by INSERT beside them; children of a foreign key stay.  Each writer loads its
    part of both steps."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, v TEXT)")
    session.execute("CREATE TABLE m.child (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES m.t (id) ON DELETE CASCADE)")
    events = [*changes(10, [0, "a"], [1, "b"], [2, None]), boundary(11)]
    again = [*changes(20, [0, "A"], [1, Literal("x'42'")], [3, "c"]), boundary(21)]
    before = loaded(session)
    run_all(url, in_one_partition(events), writers=writers)
    session.execute("INSERT INTO m.child VALUES (0), (1)")
    run_all(url, in_one_partition([*events, *again]), writers=writers)
    assert loaded(session) == before + 2 * max(writers, 1)
    assert session.rows("SELECT * FROM m.t") == [(0, "A"), (1, "B"), (2, None), (3, "c")]
    assert session.rows("SELECT * FROM m.child") == [(0,), (1,)]


@pytest.mark.parametrize("writers", [0, 2])
@pytest.mark.usefixtures("however_little")
def test_a_load_may_lock_a_table_that_counts(url: str, session: Session, writers: int) -> None:
    """For as long as it runs, so that several writers would wait for one another; 0 is not the next number."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT)")
    waits = writers and session.value("SELECT @@innodb_autoinc_lock_mode") < 2
    before = loaded(session)
    run_all(url, in_one_partition([*changes(10, [0, "a"], [7, "b"]), boundary(11)]), writers=writers)
    assert loaded(session) == before + (0 if waits else writers or 1)
    assert session.rows("SELECT * FROM m.t") == [(0, "a"), (7, "b")]


REFUSALS = {
    "too long": ("v VARCHAR(2)", "abc"),
    "not of the character set": ("v TEXT CHARACTER SET latin1", "中"),
    "digits lost": ("v DECIMAL(4,1)", Literal("1.23")),
    "blanks lost": ("v VARCHAR(2)", "ab  "),
    "NULL": ("v INT NOT NULL", None),
    "NULL for a moment": ("v TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP", None),
    "a constraint": ("v INT, CHECK (v < 9)", 9),
    "a constraint of JSON": ("v JSON", "{"),
    "no partition": ("v INT) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (2)", 1),
}


@pytest.mark.parametrize("writers", [0, 2])
@pytest.mark.parametrize(("definition", "value"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_is_that_of_insert(
    url: str, session: Session, monkeypatch: pytest.MonkeyPatch, definition: str, value: object, writers: int
) -> None:
    """The error is the one that there would have been without loads, and nothing of the transaction stays."""
    if "CHECK" in definition and session.value("SELECT VERSION()").startswith("5.7"):
        pytest.skip("it reads over constraints")
    session.execute(f"CREATE TABLE m.t (id INT PRIMARY KEY, {definition})")
    events = in_one_partition([*changes(10, [1, 1], [2, value]), boundary(11)])
    said = []
    for least in (1 << 30, 0):
        monkeypatch.setattr(render, "MIN_BYTES", least)
        with pytest.raises(ApplyError) as raised:
            run_all(url, events, name=f"from {least}", writers=writers)
        said.append(str(raised.value))
        if not writers:  # several may have committed other parts
            assert session.rows("SELECT * FROM m.t") == []
    assert said[0] == said[1]


@pytest.mark.usefixtures("however_little")
@pytest.mark.parametrize("writers", [0, 1])
def test_after_a_refusal_rows_of_the_table_go_by_insert(
    url: str, session: Session, monkeypatch: pytest.MonkeyPatch, writers: int
) -> None:
    """A load that only INSERT takes (its note is no error there) is not tried again and again."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, v INT)")
    monkeypatch.setattr(load_data, "shortfall", lambda *_: "it was said")
    with opened(url, [("cdc", 0)], writers=writers) as pipeline:
        events = [*changes(10, [1, 1]), boundary(11), *changes(20, [2, 2]), boundary(21)]
        before = loaded(session)
        pipeline.take(in_one_partition(events[:2]))
        pipeline.take(in_one_partition(events[2:], start=2))
    assert loaded(session) == before + 1
    assert session.rows("SELECT * FROM m.t") == [(1, 1), (2, 2)]


@pytest.mark.usefixtures("however_little")
@pytest.mark.parametrize("writers", [0, 1])
def test_a_connection_lost_in_the_middle_of_a_load(
    url: str, session: Session, monkeypatch: pytest.MonkeyPatch, writers: int
) -> None:
    """Nothing of it stays; the transaction is done anew, by INSERT, as the load may be why.  An executor tries its part
    once more as it is."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, v LONGTEXT)")
    kept: list[object] = []
    write_packet = pymysql.connections.Connection.write_packet

    def cut(connection: Any, payload: bytes | memoryview) -> None:
        write_packet(connection, payload)
        if isinstance(payload, memoryview) and not kept:
            kept.extend(session.rows("SELECT * FROM m.t"))
            kept.append("looked")
            session.execute(f"KILL {connection.thread_id()}")

    before = loaded(session)
    monkeypatch.setattr(pymysql.connections.Connection, "write_packet", cut)
    run_all(url, in_one_partition([*changes(10, [1, "a"], [2, "b" * 300_000]), boundary(11)]), writers=writers)
    assert kept == ["looked"]
    assert loaded(session) == before + 1 + writers
    assert session.rows("SELECT id, LEFT(v, 1) FROM m.t") == [(1, "a"), (2, "b")]


def test_tables_that_are_left_to_insert(target: str) -> None:
    """Views, versions of rows, and engines that cannot roll back."""
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.plain (id INT PRIMARY KEY)")
        session.execute("CREATE TABLE m.versioned (id INT PRIMARY KEY) WITH SYSTEM VERSIONING")
        session.execute("CREATE TABLE m.aria (id INT PRIMARY KEY) ENGINE = Aria")
        session.execute("CREATE VIEW m.view AS SELECT * FROM m.plain")
        names = [TableName("m", name) for name in ("plain", "versioned", "aria", "view", "missing")]
        assert transactional(session, names) == {TableName("m", "plain")}


def test_a_key_over_a_period_is_seen(target: str) -> None:
    """REPLACE would delete the rows that overlap."""
    key = "PERIOD FOR p (s, e), PRIMARY KEY (id, p WITHOUT OVERLAPS)"
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute(f"CREATE TABLE m.t (id INT, s DATE, e DATE, {key})")
        found = load_tables(session, [TableName("m", "t")])[TableName("m", "t")]
    assert found.keys
    assert not any(may_load(found, key, list(found.columns)) for key in found.keys)


def test_a_server_is_given_no_file(url: str, session: Session) -> None:
    """Whatever it asks for in answer to a statement: only `load` sends anything, and that is rows."""
    session.execute("CREATE TABLE m.t (v TEXT)")
    asked = Target(url).connect(autocommit=True)
    with pytest.raises(RuntimeError, match="LOAD_LOCAL"):
        asked.execute(f"LOAD DATA LOCAL INFILE '{__file__}' INTO TABLE m.t")
    asked.close()
    assert session.rows("SELECT * FROM m.t") == []


def test_a_connection_that_fell_out_of_step_is_a_lost_one(
    url: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver closes it and says so in words only; a retry may cure it."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, v INT)")
    asked = Target(url).connect()

    def fall_out(connection: Any) -> None:
        connection._force_close()
        raise pymysql.err.InternalError("Packet sequence number wrong - got 3 expected 2")

    monkeypatch.setattr(pymysql.connections.Connection, "_read_ok_packet", fall_out)
    with pytest.raises(MySQLError) as raised:
        asked.load(b"LOAD DATA LOCAL INFILE 'rows' INTO TABLE m.t", memoryview(b""))
    asked.close()
    assert isinstance(raised.value, TRANSIENT)


def test_a_lost_connection_is_not_held_against_a_table(url: str, session: Session) -> None:
    """A retry may cure it."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, v INT)")
    table = load_tables(session, [TableName("m", "t")])[TableName("m", "t")]
    part = load_of(table, pa.array([f"1{SEP}1"], TEXT))
    lost = Target(url).connect()
    assert load_data.server_objection(lost) == ""
    session.execute(f"KILL {lost.connection_id}")
    with pytest.raises(MySQLError):
        run(lost, load_statement(table, NAMES), part)
    lost.close()


def test_where_it_is_switched_off(url: str, session: Session) -> None:
    """A server that changes its mind refuses, and so does the session."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, v INT)")
    table = load_tables(session, [TableName("m", "t")])[TableName("m", "t")]
    part = load_of(table, pa.array([f"1{SEP}1"], TEXT))
    assert load_data.server_objection(session) == ""
    session.execute("SET GLOBAL local_infile = OFF")
    with pytest.raises(LoadRefusedError) as refusal:
        run(session, load_statement(table, NAMES), part)
    assert session.value("SELECT COUNT(*) FROM m.t") == 0
    assert refusal.value.table == table.name, "by which the writer loads nothing into it again"
    with admin(url) as other:
        assert load_data.server_objection(other) == "local_infile is OFF"
