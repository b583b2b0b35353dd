"""Table filters in TiCDC's rule syntax."""

from __future__ import annotations

import pickle
import warnings
from contextlib import suppress
from pathlib import Path

import pytest
from pymysql.err import MySQLError

from bridge.errors import UsageError
from bridge.filters.table_filter import (
    DEFAULT_SCHEMA,
    SYSTEM_SCHEMAS,
    GoRegexpError,
    ReservedSchemas,
    TableFilter,
    compiled,
)
from bridge.local import MariaDB
from bridge.model import quote_name
from tests.support.pipelines import sql

WANTED = [
    *(([], "any.thing"), (["db.t"], "db.t"), (["db.t"], "DB.T"), (["db.*"], "db.t"), (["*.*"], "db.t")),
    *((["d?.t[0-9]"], "db.t7"), (["db.t[!0-9]"], "db.tx"), (["db?.t"], "db1.t"), (["*.log_*"], "db.log_1")),
    *((["`a.b`.`c*`"], "a.b|c*"), (["表.*"], "表.值"), (["db.a", "db.b"], "db.b"), (["db.*", "!db.t", "db.t"], "db.t")),
    *((["!db.t"], "db.other"), (["!db.t"], "other.t"), (["*.*", "!db.*"], "db2.t"), (["`db`.`a+b`"], "db.a+b")),
    *((["!db.t", "!db.u"], "db.v"), (["*.*", "!S.D[!a-d]"], "s|da")),
    (["[!a-z].[^a-z]"], "1|^"),  # ^ is not special
    ([r"\\\..*"], r"\.|a"),
    (["p_123$.45"], "p_123$|45"),
    (["!*.t", "*.*"], "db.t"),
    (["/b/.*"], "db01|t"),  # anywhere in the name
    ([r"/a\/b/./t$/"], "a/b|xt"),
    (["/^DB$/.*"], "db.t"),
    (["  db.t\t"], "db.t"),
    (["# all of it", "", "db.*"], "db.t"),
]

LEFT_OUT = [
    *((["db.t"], "db.t2"), (["db.t"], "xdb.t"), (["db.t?"], "db.t"), (["db.t[0-9]"], "db.tx")),
    *((["db.t[!0-9]"], "db.t5"), (["db.*", "!db.t"], "db.t"), (["!db.t"], "db.t"), (["!db.t"], "DB.T")),
    *((["*.*", "!*.log_*"], "db.log_1"), (["!db.*", "db.t"], "db.u"), (["`c*`.*"], "cx.t")),
    (["!db.t", "other.*"], "third.t"),  # as in TiDB, when any rule takes something in
    *((["*.*", "!S.D[!a-d]"], "s|d1"), (["[!a-z].[^a-z]"], "1|9"), (["p_123$.45"], "p_123|45"), (["/^b/.*"], "db01|t")),
    ([r"/^db\d$/.*"], "db\u0661|t"),  # Go's digits are ASCII
    (["/^db$/.*"], "db\n|t"),  # and its $ is the end of the name, not the last line's
]

UNREADABLE = [
    *("db", ".", "db.", ".t", "a.b.c", "`db.t", '"db.t', "`db`*.*", "a%b.c", "db.a+b", "my-db.t", "db.t #"),
    *(r"a\tb.c", "db\\", "[].*", "[!].*", "[.*", r"[\d\D].*", "[z-a].*", "!", "!!a.b", "! a.b", '"this is "invalid*.*'),
    *("/db.*", "//.*", "/^t[0-9]+((?!_copy).)*$/.*", "/^t[0-9]+sp(?=copy).*/.*", r"/a\Z/.*"),
    *("/a++/.*", "/a**/.*", r"/(a)\1/.*", "/(a/.*", "/a{2,1}/.*", "/[[:odd:]]/.*"),
    *("/(?>a)/.*", "/(?#a)/.*", "/*a/.*", "/a{1001}/.*"),
]

DOCUMENTED = [
    # TiDB, Table Filter: rules, a table, whether it is replicated
    (["db1.tbl1", "db2.tbl2", "db3.tbl3"], "db2|tbl2", True),
    (["db1.tbl1", "db2.tbl2", "db3.tbl3"], "db2|tbl3", False),
    (["foo*.*", "bar*.*"], "foo1|t", True),
    (["foo*.*", "bar*.*"], "bar|t", True),
    (["foo*.*", "bar*.*"], "xfoo|t", False),
    (["db[0-9].tbl[0-9a-f][0-9a-f]"], "db7|tblc0", True),
    (["db[0-9].tbl[0-9a-f][0-9a-f]"], "db7|tblg0", False),
    *((["data.*"], "data|", True), (["*.backup_*"], "any|backup_1", True), (["*.backup_*"], "any|backups", False)),
    *((["db.?"], "db|\u00e9", True), (["db.?"], "db|e\u0301", False)),
    (["db.?????"], "db|\U0001f926\U0001f3ff\u200d\u2640\ufe0f", True),
    (["*.*", "!*.Password", "!employees.salaries"], "hr|password", False),
    (["*.*", "!*.Password", "!employees.salaries"], "employees|salaries", False),
    (["*.*", "!*.Password", "!employees.salaries"], "employees|titles", True),
    ([r"db\.with\.dots.*"], "db.with.dots|t", True),
    ([r"db\.with\.dots.*"], "db-with-dots|t", False),
    ([r'"db.with.dots"."tbl\1"'], r"db.with.dots|tbl\1", True),
    ([r"`db.with.dots`.`tbl\2`"], r"db.with.dots|tbl\2", True),
    (['"foo""bar".`foo``bar`'], 'foo"bar|foo`bar', True),
    ([r"foo\"bar.foo\`bar"], 'foo"bar|foo`bar', True),
    ([r"/^db\d{2,}$/./^tbl\d{2,}$/"], "db12|tbl345", True),
    ([r"/^db\d{2,}$/./^tbl\d{2,}$/"], "db1|tbl345", False),
    (["/b/.*"], "db01|t", True),
    (["employees.*", "!*.dep*", "*.departments"], "irrelevant|table", False),
    (["employees.*", "!*.dep*", "*.departments"], "employees|employees", True),
    (["employees.*", "!*.dep*", "*.departments"], "employees|dept_emp", False),
    (["employees.*", "!*.dep*", "*.departments"], "employees|departments", True),
    (["employees.*", "!*.dep*", "*.departments"], "else|departments", True),
    (["!*.Password"], "hr|password", False),
    (["!*.Password"], "hr|people", True),
]


def named(name: str) -> tuple[str, str]:
    schema, _, table = name.partition("|") if "|" in name else name.partition(".")
    return schema, table


@pytest.mark.parametrize(("rules", "name"), WANTED)
def test_wanted(rules: list[str], name: str) -> None:
    """The last rule that matches decides, without regard to case; when the first leaves out, the rest stays in."""
    assert TableFilter(tuple(rules))(*named(name))


@pytest.mark.parametrize(("rules", "name"), LEFT_OUT)
def test_left_out(rules: list[str], name: str) -> None:
    """What no rule takes in, or a later one leaves out, is not replicated."""
    assert not TableFilter(tuple(rules))(*named(name))


@pytest.mark.parametrize("rule", UNREADABLE)
def test_unreadable(rule: str) -> None:
    """A rule that cannot be read is named at once, with how to write it."""
    with pytest.raises(UsageError) as raised:
        TableFilter(("db.t", rule))
    assert repr(rule) in str(raised.value)
    assert "db.table" in raised.value.fix


@pytest.mark.parametrize(("rules", "name", "wanted"), DOCUMENTED)
def test_documented(rules: list[str], name: str, wanted: bool) -> None:
    """TiDB's own examples mean what its documentation says.  One is another here: where all rules leave something out,
    everything would be, which nobody can want; the other tables stay in."""
    assert TableFilter(tuple(rules))(*named(name)) == wanted


def test_rules_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stand in the place of `@file`, relative to the working directory; who gets the filter needs no file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "filter.txt"
    path.write_text("# what we want\r\n\r\n  employees.*\r\n*.WorkOrder\n", encoding="utf-8")
    given = TableFilter(("a.*", "@config/filter.txt", "!employees.salaries"))
    path.unlink()
    tables = pickle.loads(pickle.dumps(given))
    assert tables.rules == ("a.*", "employees.*", "*.WorkOrder", "!employees.salaries")
    assert [tables(*named(name)) for name in ("employees.t", "x.workorder", "employees.salaries", "x.y")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_a_byte_order_mark_is_no_part_of_a_rule(tmp_path: Path) -> None:
    """Otherwise the first rule would match no table, without a word at the start."""
    path = tmp_path / "rules.txt"
    path.write_text("shop.*\r\n!shop.log\r\n", encoding="utf-8-sig")
    given = TableFilter((f"@{path}",))
    assert given("shop", "orders")
    assert not given("shop", "log")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *((None, "cannot be read: No such file"), (b"a.b\n@other.txt", "1.txt:2"), (b"a.b\n\nno-dot\n", "1.txt:3")),
        (b"\xff.*", "not UTF-8"),
        (b"# nothing but this\n", "holds no rule"),
        (b"", "holds no rule"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, content: bytes | None, said: str) -> None:
    """A missing file, one that names another, and one without a rule, which would mean everything, are refused."""
    path = tmp_path / "1.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        TableFilter((f"@{path}",))
    assert said in str(raised.value)


def test_rules_that_match_nothing() -> None:
    """Of the rules, whatever they decide, those that are of no table that was seen."""
    tables = TableFilter(("app.*", "!app.secrt", "!*.log_*", "/^old/.*"))
    assert tables.unmatched({("App", "t"), ("x", "log_1")}) == ("!app.secrt", "/^old/.*")


@pytest.mark.parametrize(
    ("rules", "schema", "accepted"),
    [
        *(([], "db", True), (["db.t"], "db", True), (["db.t"], "other", False), (["*.*", "!db.*"], "db", False)),
        *((["*.*", "!db.t"], "db", True), (["!db.t"], "db", True), (["!db.*"], "db", False)),
        (["!db.*", "db.t"], "db", True),
    ],
)
def test_database_level_changes(rules: list[str], schema: str, accepted: bool) -> None:
    """A change of a database is wanted when any of its tables may be."""
    assert TableFilter(tuple(rules)).accepts_schema(schema) == accepted


MATCHES = [
    *((r"^db\d+$", "db12"), (r"^db\d{2,}$", "db12"), ("b", "db01"), ("^DB$", "db"), ("^é$", "É"), (r"\.", "a.b")),
    *((r"^\x41\x{e9}$", "aé"), (r"^\Qa.b*\E+$", "a.b**"), ("^[[:alpha:]]+$", "ab"), ("^[^[:digit:]x]$", "y")),
    *(
        *((r"^[\D5]$", "5"), (r"^[^\D5]$", "6"), ("^[]a]+$", "]a"), ("^[a-]+$", "a-"), ("^[a&&b]+$", "&")),
        ("^[[a]+$", "[a"),
    ),
    *(("^a{,2}$", "a{,2}"), ("^a{01}$", "a{01}"), ("^a{2}$", "aa"), ("^a{0,2}?$", "aa"), ("^a|b$", "xb"), ("^}$", "}")),
    *(("(?i)^A|B$", "b"), ("(?m)^a$", "x\na"), ("^(?s:.)$", "\n"), ("(?U)^a+$", "aa"), ("^(?P<n>a)(?<m>b)$", "ab")),
    *((r"\bé", "aé"), (r"\Aab\z", "ab"), ("^(?i-s:A)$", "a"), ("^((?i)a|B)$", "b"), (r"^\w+$", "a_1"), ("^$", "")),
    *((r"^\pL$", "é"), (r"^\P{Greek}$", "a"), ("^a(?i)B$", "ab"), (r"^\07$", "\a"), ("^*", "")),
]
NO_MATCHES = [
    *((r"^db\d$", "db\u0661"), ("^db$", "db\n"), (r"^\w$", "é"), (r"^\s$", "\u00a0"), ("^a{,2}$", "aa"), (".", "\n")),
    *((r"^[^\D5]$", "5"), ("^[^a]$", "a"), (r"\Bb", "b"), ("(?-i)A", "a"), ("^[[:^alpha:]]$", "a"), (r"a\z", "a\n")),
]
REFUSED_AS_BY_GO = [
    *("(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(?#a)", r"(a)\1", "a++", "a*+", "a**", "a{1}{2}", "a{1001}"),
    *("a{2,1}", r"\Z", r"\e", r"\é", "[a-", "[]", "[z-a]", r"[a-\d]", "[[:odd:]]", "(a", "a)", "*a", "(?", "a|*"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "name"), MATCHES)
def test_matches(pattern: str, name: str) -> None:
    """Anywhere in the name, without regard to case; without a warning of Python's."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(pattern).search(name.lower())


@pytest.mark.parametrize(("pattern", "name"), NO_MATCHES)
def test_does_not_match(pattern: str, name: str) -> None:
    r"""Classes are ASCII, `$` is the end of the name, and a repetition is one only as Go writes it."""
    assert not compiled(pattern).search(name.lower())


@pytest.mark.parametrize("pattern", REFUSED_AS_BY_GO)
def test_refused(pattern: str) -> None:
    """What is none in Go: nothing is read as something else."""
    with pytest.raises(GoRegexpError):
        compiled(pattern)


SPELLINGS = [
    *(
        *("_bridge", "_BRIDGE", "_Bridge", "_br\u0130dge", "_bridge ", " _bridge", "\u3000_bridge", "`_bridge`"),
        "_bridge\t",
    ),
    *("#mysql50#_bridge", "#MySQL50#_bridge", "#mysql50##mysql50#_bridge"),
]
OTHERS = [
    *("bridge", "_bridge2", "my_bridge", "_bridg\u00e9", "_bridge.", "mysql_", "sysbench", "tidb_cdc", "", "mysql50"),
]


@pytest.mark.parametrize("schema", SPELLINGS)
def test_the_bridges_own(schema: str) -> None:
    """Its usual name counts also where another is set: the target may be another pipeline's too."""
    assert ReservedSchemas().why(schema)
    assert ReservedSchemas("_second").why(schema)
    assert ReservedSchemas("Br\u00fccke").why(schema.replace("_bridge", "BR\u00dcCKE"))


@pytest.mark.parametrize("schema", sorted(SYSTEM_SCHEMAS))
def test_the_servers_own(schema: str) -> None:
    """Those that TiDB's tools leave out, too."""
    assert all(ReservedSchemas().why(spelt) for spelt in (schema, schema.upper(), f"`{schema}` ", f"#mysql50#{schema}"))


@pytest.mark.parametrize("schema", OTHERS)
def test_databases_like_any_other(schema: str) -> None:
    """What only looks like one of them is replicated."""
    assert not ReservedSchemas().why(schema)


@pytest.mark.server
def test_what_a_server_takes_for_it_is_one() -> None:
    """No spelling by which a server finds the database is missing; this one keeps names in lower case."""
    found = set()
    with MariaDB(options=["--lower-case-table-names=1"]) as server:
        sql(server.url, f"CREATE DATABASE {DEFAULT_SCHEMA}", "CREATE TABLE _bridge.progress (a INT)")
        for schema in (*SPELLINGS, *OTHERS):
            with suppress(MySQLError):
                sql(server.url, f"SELECT * FROM {quote_name(schema, 'progress')}")
                found.add(schema)
    assert {"_bridge", "_BRIDGE", "_br\u0130dge", "#mysql50#_bridge"} <= found
    assert found <= set(SPELLINGS)
