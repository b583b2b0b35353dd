"""The fix SQL as its reader runs it: by the clients of MariaDB and of MySQL, in batch mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.ddl.policy import DdlRules
from bridge.ddl.rule import named_capabilities
from bridge.model import quote_name
from bridge.mysql.connection.target import Target
from bridge.mysql.probe import probe
from bridge.protocols.values import literals
from bridge.verify.source.schema_diff import StatementTranslator
from tests.generated.verifying import verify_events
from tests.support.clients import mariadb_client, mysql_client, run_file
from tests.support.pipelines import run_all
from tests.support.upstreams import Literal, boundary, in_one_partition, row_change, schema_change
from tests.support.verify_servers import Pair, execute, said

CLIENTS: dict[str, Callable[[], list[str]]] = {"mariadb": mariadb_client, "mysql": mysql_client}


@pytest.fixture(params=["mariadb", pytest.param("mysql", marks=pytest.mark.soak)])
def client(request: pytest.FixtureRequest) -> list[str]:
    """Each client; MySQL's, for which 325 MB are fetched, in long runs."""
    return CLIENTS[request.param]()


VALUES = [
    *("a\r\nb", "a\nb", "\r", "a\0b", "\x1a", "it's", 'a"b', "\\", "\\'", "a\\r\\n", "\\\r\n", "\\\\\n", "%s %d %"),
    *(";", "a;\nDELIMITER //\nb", "\\! ls", "\\g", "-- a", "/* a */", "/*! a */", "# a", "`a`", "{}", "\x01\x7f\x85"),
    *("", " ", "中", "中'\\", "😀", "\ufeff", "\u2028", "\ufffd", "NULL", "\n\n\\q\nquit\n", "a\tb", "\b\\b"),
]
"""What a client, a shell or a character set may take for something else."""
TABLES = """
CREATE DATABASE app CHARACTER SET utf8mb4 COLLATE utf8mb4_bin; USE app;
CREATE TABLE t (id INT PRIMARY KEY, v TEXT, b LONGBLOB, g VARCHAR(99) CHARACTER SET latin1 COLLATE latin1_bin,
k VARCHAR(99) NOT NULL, KEY (k)) DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_bin;
CREATE TABLE byname (k VARCHAR(99) COLLATE utf8mb4_bin PRIMARY KEY, b VARBINARY(500));
"""


def filled(pair: Pair, values: list[tuple[str, bytes]]) -> None:
    """The source's rows."""
    pair.both("DROP DATABASE IF EXISTS app;" + TABLES)
    rows = [
        f"({i},{literals.text(v)},{literals.binary(b)},_latin1 {literals.binary(b)},{literals.text(v)})"
        for i, (v, b) in enumerate(values)
    ]
    named = {v.rstrip(" "): b for v, b in values}
    names = [f"({literals.text(v)},{literals.binary(b)})" for v, b in named.items()]
    execute(pair.source, f"USE app;INSERT INTO t VALUES {','.join(rows)}; INSERT INTO byname VALUES {','.join(names)}")


def fixed(pair: Pair, values: list[tuple[str, bytes]], client: list[str], *options: str) -> None:
    """Rows that are missing, other, and too many; values and keys."""
    filled(pair, values)
    assert not pair.verify("app.*").is_equal
    assert not set(b"\r\0\x1a") & set(pair.fix.read_bytes())
    pair.run_fix(client, *options)
    assert said(pair.verify("app.*")) == set()
    pair.damage("USE app; UPDATE t SET v = CONCAT(v, ' '), b = ''; UPDATE IGNORE byname SET k = CONCAT('x', k)")
    pair.verify("app.*")
    pair.run_fix(client, *options)
    assert said(pair.verify("app.*")) == set()


@pytest.mark.parametrize("server", ["target", "old_mysql_target", "mysql_target"])
def test_any_value_by_any_client(
    server: str, client: list[str], old_target: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """What the file says is what the client sends: afterwards all is equal."""
    pair = Pair(old_target, request.getfixturevalue(server), tmp_path)
    fixed(pair, [(value, value.encode() + b"\xff\xfe") for value in VALUES], client)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.tuples(st.text(max_size=30), st.binary(max_size=30)), min_size=1, max_size=60))
def test_whatever_the_values_are(pair: Pair, client: list[str], values: list[tuple[str, bytes]]) -> None:
    """Texts of all characters, and bytes."""
    fixed(pair, values, client)


@pytest.mark.parametrize("charset", ["utf8mb4", "utf8", "latin1", "gbk", "sjis"])
def test_a_client_of_another_character_set(pair: Pair, client: list[str], charset: str) -> None:
    """Either the file does what it says, or its guard stops the client before anything is written."""
    filled(pair, [(value, b"") for value in (*VALUES, "中", "文'", "é\\")])
    pair.verify("app.*")
    ended = run_file(pair.target, pair.fix, client, f"--default-character-set={charset}")
    if charset in ("gbk", "sjis"):
        assert b"the client needs --default-character-set=utf8mb4" in ended.stderr
        assert execute(pair.target, "SELECT COUNT(*) FROM app.t") == [(0,)]
    else:
        assert ended.returncode == 0, ended.stderr
        assert said(pair.verify("app.*")) == set()


@pytest.fixture
def odd_modes(target: str) -> Iterator[None]:
    """A server whose sessions begin with other rules for texts."""
    [(before,)] = execute(target, "SELECT @@GLOBAL.sql_mode")
    execute(target, "SET GLOBAL sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES,PIPES_AS_CONCAT,IGNORE_SPACE'")
    yield
    execute(target, f"SET GLOBAL sql_mode = '{before}'")


@pytest.mark.usefixtures("odd_modes")
def test_a_server_of_other_sql_modes(pair: Pair, client: list[str]) -> None:
    """The file sets its own before the first text."""
    fixed(pair, [(value, value.encode()) for value in VALUES], client)


NAMES = [
    *("a\rb", "a\r\nb", "a\nb", "\x1a", "`", "a\\", "\\'", "it's", '"', "中文", "-- a", "/* a", ";", "%s", "a\tb"),
    "#",
]


def test_names_that_a_client_would_change(pair: Pair, client: list[str]) -> None:
    """A name cannot be escaped: such statements are sent as hex.  So are tables that are missing."""
    columns = ",".join(f"{quote_name(name)} VARCHAR(9)" for name in NAMES)
    tables = [quote_name("app", name) for name in NAMES]
    execute(
        pair.source,
        "CREATE DATABASE app COLLATE utf8mb4_bin;"
        f"CREATE TABLE app.t (id INT PRIMARY KEY, {columns}); INSERT INTO app.t (id) VALUES (1), (2);"
        + "".join(f"CREATE TABLE {table} (id INT PRIMARY KEY); INSERT INTO {table} VALUES (1);" for table in tables),
    )
    execute(pair.target, "CREATE DATABASE app COLLATE utf8mb4_bin")
    for damage in ("DO 0", "UPDATE app.t SET `a\\\\` = 'x', `中文` = 'y'", f"DELETE FROM {tables[1]}"):
        pair.damage(damage.replace("\\\\", "\\"))
        assert not pair.verify("app.*").is_equal
        pair.run_fix(client)
        assert said(pair.verify("app.*")) == set()


def test_the_targets_own_columns_stay(pair: Pair, client: list[str]) -> None:
    """Also of rows that stand under another spelling of their key, and where the target knows no bridge."""
    both = "CREATE DATABASE app; CREATE TABLE app.t (k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, u INT UNIQUE"
    execute(pair.source, f"{both}, n INT); INSERT INTO app.t VALUES ('Alice', 1, 1), ('bob', 2, 2), ('c', 3, 3)")
    execute(
        pair.target,
        f"{both}, n INT, own INT DEFAULT 9);"
        "INSERT INTO app.t VALUES ('ALICE', 1, 1, 5), ('bob ', 3, 2, 6), ('c', 2, 4, 7)",
    )
    assert said(pair.verify("app.*")) >= {"t 'Alice' different k", "t 'bob' different k u", "t 'c' different u n"}
    with pytest.raises(AssertionError, match="Duplicate entry"):  # rows trade values of a further key
        pair.run_fix(client)
    execute(pair.target, "UPDATE app.t SET u = 4 WHERE own = 7")
    pair.verify("app.*")
    pair.run_fix(client)
    assert said(pair.verify("app.*")) <= {"t: column own is the target's own"}
    assert execute(pair.target, "SELECT k, own FROM app.t ORDER BY k") == [("Alice", 5), ("bob", 6), ("c", 7)]


@pytest.mark.parametrize("columns", ["a INT PRIMARY KEY, n VARCHAR(20) NOT NULL", "a INT, n VARCHAR(20)"])
@pytest.mark.parametrize(
    "damage",
    [
        "ALTER TABLE app.t DROP COLUMN n",
        "ALTER TABLE app.t DROP COLUMN a; INSERT INTO app.t VALUES ('x')",
        "ALTER TABLE app.t MODIFY a VARCHAR(9); INSERT INTO app.t VALUES ('9', 'x')",
        "ALTER TABLE app.t CONVERT TO CHARACTER SET latin1; UPDATE app.t SET n = 'ü' WHERE a = 1",
    ],
)
def test_rows_are_put_right_once_the_columns_are(pair: Pair, columns: str, damage: str) -> None:
    """Before that, nothing tells which row is which: they wait for the next file."""
    pair.both(f"CREATE DATABASE app; CREATE TABLE app.t ({columns}); INSERT INTO app.t VALUES (1, 'é'), (2, 'x')")
    if "DROP COLUMN a" in damage and "PRIMARY" in columns:
        damage = "ALTER TABLE app.t DROP PRIMARY KEY, DROP COLUMN a"
    pair.damage(damage)
    assert not pair.verify().is_equal
    assert "-- app.t: once its columns are alike, have verify write a new file" in pair.fix.read_text()
    pair.run_fix()
    pair.verify()
    pair.run_fix()
    assert pair.verify().is_equal


TIDB_TABLE = """CREATE TABLE `t` (
  `id` bigint(20) NOT NULL /*T![auto_rand] AUTO_RANDOM(5) */,
  `v` varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci DEFAULT NULL,
  `j` json DEFAULT NULL,
  PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */,
  KEY `e` ((lower(`v`))) /*!80000 INVISIBLE */
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin /*T![placement] PLACEMENT POLICY=`p` */"""


@pytest.mark.parametrize("url", ["target", "old_target", "mysql_target", "old_mysql_target"], indirect=True)
def test_a_table_of_tidb(url: str) -> None:
    """Its SHOW CREATE TABLE becomes what each target takes."""
    session = Target(url).connect()
    try:
        translator = StatementTranslator(named_capabilities("tidb-8.5"), probe(session), DdlRules())
    finally:
        session.close()
    text, why = translator.translate(TIDB_TABLE, "app")
    assert text is not None, why
    execute(url, f"CREATE DATABASE app; USE app; {text}; INSERT INTO t (id, v) VALUES (1, 'a')")


def test_a_zero_keeps_its_sign(target: str, tmp_path: Path) -> None:
    """-0 is equal to 0, and a fix file writes it as it was."""
    log = [schema_change(5, "CREATE TABLE t (id INT PRIMARY KEY, d DOUBLE, f FLOAT)")]
    log += [
        row_change(10, "t", ["id", "d", "f"], ["id"], after=[n, Literal("-0.0e0"), Literal("-0.0e0")]) for n in (1, 2)
    ]
    events = in_one_partition([*log, boundary(11)])
    execute(target, "CREATE DATABASE m")
    run_all(target, events)
    execute(target, "UPDATE m.t SET d = 0, f = 0 WHERE id = 1")
    assert verify_events(target, events).is_equal
    execute(target, "DELETE FROM m.t WHERE id = 2")
    file = tmp_path / "fix.sql"
    assert not verify_events(target, events, fixes=file).is_equal
    run_file(target, file)
    assert execute(target, "SELECT id, CONCAT(d), CONCAT(f) FROM m.t ORDER BY id") == [(1, "0", "0"), (2, "-0", "-0")]
