"""What counts as a difference between two definitions of a table, and what is only noted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bridge.config import Settings
from bridge.events import Kind
from bridge.filters.routes import IgnoredRows, RowRules
from bridge.filters.table_filter import TableFilter
from bridge.local import MariaDB
from bridge.model import TableName
from bridge.mysql.table_definition import ColumnInfo, Definition, Index
from bridge.verify.source.schema_diff import (
    column_lines,
    column_plan,
    column_statements,
    compare_schemas,
    index_lines,
    plain_type,
)
from tests.support.pipelines import admin
from tests.support.verify_servers import Pair, execute, said


def column(kind: str, collation: str = "", **more: object) -> ColumnInfo:
    """A column `c`."""
    charset = collation.split("_")[0]
    given = ColumnInfo("c", kind.split("(")[0].split(" ")[0], kind, charset, collation, True, False, False)
    return replace(given, **more)  # type: ignore[arg-type]


def table(found: ColumnInfo, **indexes: Index) -> Definition:
    """A table with `id` and `c`."""
    key = ColumnInfo("id", "int", "int(11)", "", "", False, False, False)
    primary = {"PRIMARY": Index(True, ("id",), (None,))}
    return Definition(TableName("app", "t"), {"id": key, "c": found}, {**primary, **indexes})


SAME = [
    *(("int(11)", "int"), ("bigint(20) unsigned", "bigint unsigned"), ("year(4)", "year")),
    ("tinyint(1)", "tinyint(4)"),
    ("int(6) unsigned zerofill", "int(10) unsigned"),
    (r"enum('a\\b')", r"enum('a\b')"),
    ("set('😀','b')", "set('?','b')"),
    ("decimal(9,2) unsigned zerofill", "decimal(9,2) unsigned"),
]
OTHER = [
    *(("int(11)", "bigint"), ("int unsigned", "int"), ("decimal(10,2)", "decimal(10,3)"), ("datetime", "datetime(3)")),
    *(("varchar(10)", "varchar(11)"), ("enum('int(1)')", "enum('int')"), (r"enum('a\b')", "enum('ab')")),
    ("bit(1)", "bit(2)"),
]


@pytest.mark.parametrize(("left", "right"), SAME)
def test_types_that_servers_only_print_differently(left: str, right: str) -> None:
    """Display widths hold nothing, nor does ZEROFILL, of which TiDB's information_schema tells nothing; it writes a
    backslash once, and an emoji as it is, where others write two, and a question mark."""
    assert plain_type(column(left)) == plain_type(column(right))
    assert compare_schemas(table(column(left)), table(column(right)), ()).differences == ()


@pytest.mark.parametrize(("left", "right"), OTHER)
def test_types_that_hold_other_values(left: str, right: str) -> None:
    """They are differences, and the fix can change the column."""
    found = compare_schemas(table(column(left)), table(column(right)), ())
    assert found.differences == (f"column c is {right} instead of {left}",)
    assert found.changed_columns == ("c",)


def test_mariadbs_json_is_json() -> None:
    """A LONGTEXT with a check there, a type elsewhere."""
    there = column("longtext", "utf8mb4_bin", is_json=True)
    assert compare_schemas(table(column("json", is_json=True)), table(there), ()).differences == ()


def test_a_collation_that_the_target_cannot_have_is_noted() -> None:
    """One that it could have is a difference; utf8 and utf8mb3 are one."""
    source, target = table(column("text", "utf8mb4_0900_ai_ci")), table(column("text", "utf8mb4_general_ci"))
    words = "column c has the collation utf8mb4_general_ci instead of utf8mb4_0900_ai_ci"
    assert compare_schemas(source, target, {"utf8mb4_general_ci"}).notes == (words,)
    assert compare_schemas(source, target, {"utf8mb4_0900_ai_ci"}).differences == (words,)
    old, new = table(column("text", "utf8_bin")), table(column("text", "utf8mb3_bin"))
    assert compare_schemas(old, new, {"utf8mb3_bin"}).differences == ()


COMPUTED = [
    ("(`a` + 1)", "`a` + 1", True),
    ("concat(`a`,_utf8mb4\\'x\\')", "CONCAT(`a`, 'x')", True),
    ("`a` * 2", "`a` * 3", False),
    ("`a` * (2 + 3)", "`a` * 2 + 3", False),
]


@pytest.mark.parametrize(("left", "right", "is_same"), COMPUTED)
def test_how_generated_columns_are_computed(left: str, right: str, *, is_same: bool) -> None:
    """As their values are not compared: a difference between servers of one kind, else a note, as kinds print
    expressions each in its own way."""
    one, other = (table(column("int", generated=True, expression=text)) for text in (left, right))
    words = () if is_same else (f"column c is computed as {right} instead of {left}",)
    assert compare_schemas(one, other, (), is_one_flavour=True).differences == words
    assert compare_schemas(one, other, ()).notes == words


def test_the_targets_own_columns_and_indexes_are_noted() -> None:
    """A unique index of its own refuses rows, and is a difference; the name of an index does not matter."""
    plain, unique = Index(False, ("c",), (None,)), Index(True, ("c",), (None,))
    source, mine = table(column("int"), a=plain), table(column("int"), b=plain)
    assert compare_schemas(source, mine, ()).differences == ()
    assert compare_schemas(table(column("int")), mine, ()).notes == ("index b (c) is the target's own",)
    refusing = table(column("int"), b=unique)
    assert compare_schemas(table(column("int")), refusing, ()).differences == (
        "unique index b (c) is the target's own",
    )


def test_columns_that_cannot_compare_are_left_out() -> None:
    """Text against a number says nothing row by row; generated columns follow from the others, but not those
    that the bridge writes."""
    plan = column_plan(table(column("int")), table(column("varchar(10)", "utf8mb4_bin")))
    assert ([c.name for c in plan.shape.actual], plan.shape.key) == (["id"], (0,))
    assert plan.notes == ("values of column c are not compared: int on the source, varchar(10) on the target",)
    both = table(column("int", generated=True))
    assert len(column_plan(both, both).shape.actual) == len(column_plan(table(column("int")), both).shape.actual) == 1
    assert len(column_plan(both, table(column("int"))).shape.actual) == 2


def test_a_key_must_be_on_both_sides() -> None:
    """Otherwise rows are counted, not matched."""
    source = table(column("int"))
    keyless = Definition(source.name, source.columns)
    assert column_plan(source, keyless).shape.key == ()
    assert column_plan(source, None).shape.key == (0,)


CREATE = """CREATE TABLE `t` (
  `id` int(11) NOT NULL AUTO_INCREMENT,
  `a``b` enum('x,y','KEY `z` (`q`)') DEFAULT 'x,y' COMMENT 'c, d',
  `g` int(11) GENERATED ALWAYS AS (`id` + 1) VIRTUAL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `u` (`a``b`),
  KEY `k` (`id`,`g`) USING BTREE,
  CONSTRAINT `f` FOREIGN KEY (`id`) REFERENCES `p` (`id`)
) ENGINE=InnoDB"""


def test_lines_of_a_create_table() -> None:
    """As the statements that add them need them."""
    assert column_lines(CREATE) == {
        "id": "`id` int(11) NOT NULL AUTO_INCREMENT",
        "a`b": "`a``b` enum('x,y','KEY `z` (`q`)') DEFAULT 'x,y' COMMENT 'c, d'",
        "g": "`g` int(11) GENERATED ALWAYS AS (`id` + 1) VIRTUAL",
    }
    assert index_lines(CREATE) == {
        "PRIMARY": "PRIMARY KEY (`id`)",
        "u": "UNIQUE KEY `u` (`a``b`)",
        "k": "KEY `k` (`id`,`g`) USING BTREE",
    }


def test_a_database_that_only_the_target_has(pair: Pair) -> None:
    """Is named where it is asked for; without rules the target may hold databases of its own."""
    pair.both("CREATE DATABASE app; CREATE TABLE app.a (id INT PRIMARY KEY)")
    pair.damage("CREATE DATABASE left_over; CREATE TABLE left_over.b (id INT PRIMARY KEY)")
    assert said(pair.verify("app.*", "left_*.*")) == {"b: the source has no such table"}
    assert not any(table.name.schema == "left_over" for table in pair.verify().tables)


def test_rules_that_match_no_table(pair: Pair) -> None:
    """Are named: nothing was compared by them, and nothing left out."""
    pair.both("CREATE DATABASE app; CREATE TABLE app.a (id INT PRIMARY KEY)")
    pair.damage("CREATE TABLE app.b (id INT PRIMARY KEY)")
    words = "the filter rule {!r} matches no table of either side"
    report = pair.verify("app.*", "!app.b", "ap.*", "!app.c", fix_file=None)
    assert report.notes == [words.format("ap.*"), words.format("!app.c")]
    assert pair.verify(fix_file=None).notes == []


@pytest.mark.soak
def test_a_target_that_keeps_names_in_lower_case(old_target: str, tmp_path: Path) -> None:
    """Its tables are the source's, whatever their case there."""
    with MariaDB(options=["--lower-case-table-names=1"]) as server:
        pair = Pair(old_target, server.url, tmp_path)
        pair.both("CREATE DATABASE App; CREATE TABLE App.Ab (Id INT PRIMARY KEY); INSERT INTO App.Ab VALUES (1), (2)")
        assert said(pair.verify("App.*")) == set()
        pair.damage("DELETE FROM app.ab WHERE id = 1; CREATE TABLE app.b (id INT)")
        assert said(pair.verify()) == {"Ab 1 missing", "b: the source has no such table"}
        pair.run_fix()
        assert said(pair.verify("app.ab")) == set()


def test_values_that_statements_trip_over(pair: Pair) -> None:
    """Quotes, backslashes, NUL and other bytes in names, keys and values; foreign keys; the whole database lost: the
    fix SQL makes all of it equal."""
    pair.both(
        r"""CREATE DATABASE app CHARACTER SET utf8mb4; USE app; CREATE TABLE `we``ird.%s` (`k``%d` VARBINARY(20)
        PRIMARY KEY, `t x` TEXT, e ENUM('a''b','c\\d','é;--'), s SET('x''','y'), b LONGBLOB, u VARCHAR(20) UNIQUE);
        INSERT INTO `we``ird.%s` VALUES (x'00', CONCAT('a', CHAR(0), 'b\\''"%s'), 1, 3, REPEAT(x'0027225c0a0d1a', 99),
        'a'), (x'ff00', '😀\n-- ;', 2, 1, x'', NULL), (x'', NULL, 3, 0, NULL, 'b');
        CREATE TABLE p (id INT PRIMARY KEY); CREATE TABLE c (id INT PRIMARY KEY, p INT, g INT AS (p + 1) STORED,
        CONSTRAINT f FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE);
        INSERT INTO p VALUES (1), (2); INSERT INTO c (id, p) VALUES (1, 1), (2, 2)"""
    )
    assert said(pair.verify("app.*")) == set()
    for damage in (
        "USE app; DELETE FROM `we``ird.%s`; DELETE FROM p WHERE id = 1; SET foreign_key_checks = 0;"
        "INSERT INTO c (id, p) VALUES (3, 77)",
        "USE app; UPDATE `we``ird.%s` SET `t x` = '', e = 0, s = 0, b = x'01', u = CONCAT(IFNULL(u, ''), 'z')",
        "USE app; DROP TABLE c; DROP TABLE p; DROP TABLE `we``ird.%s`",
        "DROP DATABASE app",
    ):
        pair.damage(damage)
        assert len(said(pair.verify("app.*"))) >= 3
        pair.run_fix()
        assert said(pair.verify("app.*")) == set()


def test_a_table_of_which_an_event_filter_leaves_rows_out(pair: Pair) -> None:
    """It is not compared with the source, which the report says; nor is it fixed."""
    pair.both("CREATE DATABASE app; CREATE TABLE app.log (id INT PRIMARY KEY); CREATE TABLE app.t (id INT PRIMARY KEY)")
    pair.damage("INSERT INTO app.log VALUES (1)")
    rules = RowRules((IgnoredRows(TableFilter(("app.log",)), frozenset({Kind.DELETE})),))
    report = pair.verify(row_rules=rules)
    assert [str(table.name) for table in report.tables] == ["app.t"]
    assert any("app.log is not compared" in note for note in report.notes)
    assert "INSERT" not in pair.fix.read_text()
    assert "DELETE" not in pair.fix.read_text()
    assert {str(table.name) for table in pair.verify().tables} == {"app.log", "app.t"}


def test_tables_with_other_names_on_the_target(pair: Pair) -> None:
    """Each is compared with the one that it goes to, and fixed there; only the target's names are written."""
    execute(pair.source, "CREATE DATABASE app; CREATE TABLE app.t (id INT PRIMARY KEY, v INT);"
                         "INSERT INTO app.t VALUES (1, 1), (2, 2); CREATE TABLE app.u (id INT PRIMARY KEY);"
                         "INSERT INTO app.u VALUES (7)")  # fmt: skip
    execute(
        pair.target,
        "CREATE DATABASE there; CREATE TABLE there.t (id INT PRIMARY KEY, v INT);"
        "INSERT INTO there.t VALUES (1, 1), (2, 3), (4, 4); CREATE TABLE there.own (id INT PRIMARY KEY)",
    )
    rules = RowRules(routes=Settings(route=("app.u -> far.of_u", "app.* -> there.*")).table_routes)
    report = pair.verify(row_rules=rules)
    assert said(report) == {
        "t 2 different v", "t 4 extra", "u: the table is missing", "own: the source has no such table", "u 7 missing",
    }  # fmt: skip
    pair.run_fix()
    execute(pair.target, "DROP TABLE there.own")
    assert all(table.is_equal for table in pair.verify(row_rules=rules).tables)
    with admin(pair.target) as session:
        assert session.rows("SELECT id FROM far.of_u") == [(7,)]
        assert session.rows("SHOW DATABASES LIKE 'app'") == []


COLUMNS = [
    ("varchar(9)", "NOT NULL", "varchar(9) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL"),
    ("enum('a','it''s')", "DEFAULT 'a'", "enum('a','it''s') CHARACTER SET latin1 COLLATE latin1_bin DEFAULT 'a'"),
    ("text", "", "text CHARACTER SET latin1 COLLATE latin1_bin"),
    ("text", "COLLATE latin1_bin COMMENT 'x'", "text COLLATE latin1_bin COMMENT 'x'"),
    ("char(3)", "CHARACTER SET latin1 COLLATE latin1_bin", "char(3) CHARACTER SET latin1 COLLATE latin1_bin"),
]


@pytest.mark.parametrize(("kind", "rest", "wanted"), COLUMNS)
def test_the_collation_of_the_table_is_written_out(kind: str, rest: str, wanted: str) -> None:
    """SHOW CREATE TABLE leaves it out of a column that has it, and the target's table may have another one."""
    column = ColumnInfo("c", kind.split("(")[0], kind, "latin1", "latin1_bin", True, False, False)
    create = f"CREATE TABLE `t` (\n  `c` {kind} {rest}".rstrip() + "\n)"
    [statement] = column_statements(Definition(TableName("m", "t"), {"c": column}, {}), create, [], ["c"])
    assert statement == f"ALTER TABLE `m`.`t` MODIFY COLUMN `c` {wanted}"


def test_columns_get_the_collation_of_the_source(pair: Pair) -> None:
    """Those that are changed and those that are added, where the target's table has another one by default."""
    pair.both(
        "CREATE DATABASE app; CREATE TABLE app.t (id INT PRIMARY KEY, v VARCHAR(9), w ENUM('a','b') DEFAULT 'a')"
        " COLLATE utf8mb4_bin; INSERT INTO app.t VALUES (1, 'x', 'b')"
    )
    pair.damage("ALTER TABLE app.t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, DROP COLUMN w")
    assert not pair.verify().is_equal
    pair.run_fix()
    assert said(pair.verify()) == {"t 1 different w"}
    pair.run_fix()
    assert pair.verify().is_equal
    assert execute(pair.target, "SELECT * FROM app.t") == [(1, "x", "b")]
