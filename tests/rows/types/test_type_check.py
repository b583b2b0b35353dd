"""What rows need and the target's table does not have is told before anything of their transaction is written."""

from __future__ import annotations

import re
from decimal import Decimal

import numpy as np
import pytest
from pymysql.err import MySQLError

from bridge.errors import ApplyError, RefusedRowsError
from bridge.events import RowChange
from bridge.model import Column, Table, TableName
from bridge.mysql.catalog import load_tables
from bridge.mysql.connection.session import Session
from bridge.protocols.values.row_image import with_declared_types
from bridge.rows.literal_offsets import Cells, whole
from bridge.rows.type_check import check_needs, true_names
from tests.support.pipelines import run_all, session_after
from tests.support.upstreams import Literal, boundary, image, in_one_partition, row_change, schema_change

KEPT = row_change(10, "u", ["id"], ["id"], after=[1])


session = session_after("CREATE DATABASE m", "CREATE TABLE m.u (id INT PRIMARY KEY)")


def refusal(url: str, columns: list[str], values: list[object]) -> str:
    """How a bridge ends that comes to this row, in a transaction with another table's."""
    events = [KEPT, row_change(10, "t", columns, ["id"], after=values), boundary(11)]
    with pytest.raises(ApplyError) as raised:
        run_all(url, in_one_partition(events))
    return str(raised.value)


def test_a_missing_table(target: str, session: Session) -> None:
    """Named with the commit ts; nothing of the transaction is written."""
    said = refusal(target, ["id"], [1])
    assert "no table m.t" in said
    assert "commit ts 10 " in said
    assert session.rows("SELECT * FROM m.u") == []


def test_a_missing_column(target: str, session: Session) -> None:
    """Named with table and commit ts; nothing of the transaction is written."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY)")
    said = refusal(target, ["id", "c"], [1, 2])
    assert "m.t lacks the column c" in said
    assert "commit ts 10 " in said
    assert session.rows("SELECT * FROM m.u") == []


def test_a_column_whose_name_debezium_changed(target: str, session: Session) -> None:
    """The refusal names the column that it may be, and the connector's setting."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, `a-b` INT, `1st` INT)")
    for sent, name in ("a_b", "a-b"), ("_1st", "1st"):
        said = refusal(target, ["id", sent], [1, 2])
        assert f"lacks the column {sent}" in said
        assert f"if it is the column {name}, Debezium has changed its name (field.name.adjustment.mode)" in said


@pytest.mark.parametrize(
    ("columns", "sent", "names"),
    [
        ("id a-b 1st", "ID a_b _1st", "ID a-b 1st"),
        ("id \u65e5\u672c", "id __", "id \u65e5\u672c"),
        ("id sel`ect", "id sel__ect", "id sel`ect"),
        ("id a_b", "id a_b", "id a_b"),
        ("id a-b a+b", "id a_b", "id a_b"),  # which of the two?
        ("id a-b a+b", "id a_b c", "id a_b c"),
        ("id a-b x", "id a_b", "id a_b"),  # a schema change may be missing
        ("id ab", "id _ab", "id _ab"),  # which nobody changes so
        ("id a-b", "id c", "id c"),
    ],
)
def test_names_that_debezium_changed(columns: str, sent: str, names: str) -> None:
    """Are the table's own where the row has all its columns, and each changed name can be of one of them only."""
    table = Table(TableName("m", "t"), {name: Column(name, "int", None, False) for name in columns.split()})
    assert true_names(table, sent.split()) == names.split()


SAID_BY_THE_SERVER = [
    *(("TINYINT", 300), ("INT UNSIGNED", -1), ("VARCHAR(3)", "abcd"), ("VARCHAR(3)", "abc ")),
    *(("DECIMAL(5,2)", "1.005"), ("DATE", "2024-01-01 10:00:00"), ("YEAR", 2200)),
    ("VARCHAR(9) CHARACTER SET latin1", "中"),
]

CHANGED_IN_SILENCE = [
    *(("DATETIME", "2024-01-01 00:00:00.25"), ("DATETIME(3)", "2024-01-01 00:00:00.123456"), ("DATETIME", "10:00:00")),
    *(("TIMESTAMP", "2024-01-01 00:00:00.5"), ("TIME(1)", "10:00:00.55"), ("TIME", "-838:59:58.999999")),
    *(("INT", Literal("1.5")), ("BIGINT UNSIGNED", Literal("1.5e0")), ("INT", "007"), ("BIT(9)", "a"), ("YEAR", 70)),
    *(("FLOAT", Literal("0.1e0")), ("FLOAT", 2**24 + 1), ("DOUBLE", 2**53 + 1)),
    ("DOUBLE", Literal("1.2345678901234567890123")),
    *(("DOUBLE(9,2)", Literal("1.005e0")), ("DOUBLE(9,2)", Literal("-1234567.891e0")), ("DECIMAL(9,2)", "007")),
    *(("CHAR(9)", "ab  "), ("VARCHAR(9)", 3), ("LONGTEXT", 3), ("VARBINARY(9)", 3)),
]
"""The last three: BIT, ENUM and SET values come as numbers, which a text would keep as digits."""


@pytest.mark.parametrize(("column_type", "value"), SAID_BY_THE_SERVER + CHANGED_IN_SILENCE)
def test_a_narrower_type(target: str, session: Session, column_type: str, value: object) -> None:
    """A column that cannot hold a value, or would change it, is named with its table, the commit_ts and the position of
    the row, wherever it lies in a transaction that holds many; and nothing of the transaction is written."""
    session.execute(f"CREATE TABLE m.t (id INT PRIMARY KEY, narrow {column_type}, u TEXT)")
    rows = [
        row_change(10 + i, "t", ["id", "narrow", "u"], ["id"], after=[i, None, Literal(r"' \' '")]) for i in range(30)
    ]
    rows[20] = rows[20]._replace(after=image([99, value, Literal(r"' \' '")]))
    with pytest.raises(ApplyError) as raised:
        run_all(target, in_one_partition([KEPT, *rows, boundary(99)]))
    said = str(raised.value)
    for named in ("m.t", "narrow", "commit ts 30 ", "cdc/0/21"):
        assert named in said
    assert session.rows("SELECT * FROM m.u") == []
    assert session.rows("SELECT * FROM m.t") == []


def test_a_narrow_last_column(target: str, session: Session) -> None:
    """The last column of a table is looked at to its end, and a row that is overwritten later counts too."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, v TIME)")
    rows = [row_change(ts, "t", ["id", "v"], ["id"], after=[1, value]) for ts, value in ((10, "1:00:00.5"), (11, None))]
    with pytest.raises(ApplyError, match=r"column v .* '1:00:00.5'.*commit ts 10 "):
        run_all(target, in_one_partition([*rows, boundary(12)]))


def test_a_key_that_is_taken(target: str, session: Session) -> None:
    """A row that the target refuses for what it holds already is named by its own commit_ts, too."""
    session.execute("CREATE TABLE m.t (id INT)")
    rows = [row_change(10 + i, "t", ["id"], [], before=[99] if i == 7 else None, after=[i]) for i in range(20)]
    with pytest.raises(ApplyError, match=r"which has no key, is not on the target.*cdc/0/7, commit ts 17 "):
        run_all(target, in_one_partition([*rows, boundary(99)]))


def test_a_refused_row_quarantined(target: str, session: Session) -> None:
    """With a quarantine a value that would be changed goes there, like one that the server refuses."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, v TIME)")
    rows = [row_change(10 + i, "t", ["id", "v"], ["id"], after=[i, "1:00:00.5" if i == 2 else None]) for i in range(4)]
    run_all(target, in_one_partition([*rows, boundary(99)]), quarantine=True)
    assert [row[0] for row in session.rows("SELECT id FROM m.t")] == [0, 1, 3]


WIDE_ENOUGH = [
    *(("DATETIME", "2024-01-01 00:00:00.000"), ("DECIMAL(5,2)", Literal("1.500")), ("VARCHAR(4)", "abcd")),
    *(("FLOAT", Literal("0.5e0")), ("BIGINT", 2**62), ("DATE", "2024-01-01"), ("DATE", "2024-01-01 00:00:00")),
    *(("DATETIME", "2024-01-01"), ("DATETIME(3)", "2024-01-01 00:00:00.123000")),
    *(("DATETIME(6)", "0000-00-00 00:00:00.000000"), ("TIME", "-838:59:59.000"), ("INT", Literal("-1.000"))),
    *(("BIT(9)", 257), ("YEAR", 0), ("FLOAT", Literal("0.10000000149011612e0"))),
    ("FLOAT", Literal("-3.4028234663852886e+38")),
    ("DOUBLE", Literal("1.7976931348623157e+308")),
    ("DOUBLE", 2**49),
    ("DOUBLE(9,2)", Literal("1.25e0")),
    ("DOUBLE(9,2)", Literal("-7.0e0")),
    ("DOUBLE(10,2)", Literal("-0.010000000000000009e0")),
    ("DOUBLE(10,6)", Literal("1e-06")),
    ("DOUBLE(20,4)", Literal("-9.999999999998899e-05")),
    ("DOUBLE(15,2)", Literal("1234567890123.45e0")),
    ("DECIMAL(65,30)", Literal("-0.000000000000000000000000000001")),
    *(("CHAR(9)", " a x"), ("CHAR(9)", ""), ("VARCHAR(9)", "ab  "), ("TEXT", Literal("x'c3a9'")), ("ENUM('a','b')", 2)),
    *(("ENUM('a','b')", "b"), ("SET('a','b')", 3)),
    ("POINT", Literal("x'000000000101000000000000000000f03f000000000000f03f'")),
]


def test_wide_enough(target: str, session: Session) -> None:
    """A type that differs but holds the value is no error."""
    columns, values = [f"c{n}" for n in range(len(WIDE_ENOUGH))], [value for _, value in WIDE_ENOUGH]
    made = ", ".join(f"{name} {kind}" for name, (kind, _) in zip(columns, WIDE_ENOUGH, strict=True))
    session.execute(f"CREATE TABLE m.t (id INT PRIMARY KEY, {made})")
    row = row_change(10, "t", ["id", *columns], ["id"], after=[1, *values])
    run_all(target, in_one_partition([row, boundary(11)]))
    assert session.rows("SELECT COUNT(*) FROM m.t") == [(1,)]


def declared(change: RowChange, *types: str) -> RowChange:
    """The row change with the types that its message declares."""
    return change._replace(columns=with_declared_types(change.columns or "", [""] * len(types), types))


OTHER_THAN_DECLARED = [
    *(("ENUM('a','b')", "int", 2), ("ENUM('a','b')", "enum('b','a')", 2), ("TIMESTAMP", "datetime", "2024-01-01")),
    *(("BINARY(4)", "varbinary", Literal("x'61'")), ("BINARY(4)", "binary", Literal("x'616263'"))),
]


@pytest.mark.parametrize(("column_type", "type_upstream", "value"), OTHER_THAN_DECLARED)
def test_a_type_other_than_declared(
    target: str, session: Session, column_type: str, type_upstream: str, value: object
) -> None:
    """Though the values are taken; named with table, both types and the first commit_ts; nothing of the transaction is
    written.  The bridge goes on once the column is as upstream."""
    session.execute(f"CREATE TABLE m.t (id INT PRIMARY KEY, v {column_type})")
    rows = [
        declared(row_change(ts, "t", ["id", "v"], ["id"], after=[ts, value]), "int", type_upstream) for ts in (10, 11)
    ]
    events = in_one_partition([KEPT, *rows, boundary(12)])
    with pytest.raises(ApplyError) as raised:
        run_all(target, events, quarantine=True)
    said = str(raised.value)
    for named in ("m.t", "column v ", f"is {column_type.lower()}", f"upstream: {type_upstream}", "commit ts 10 "):
        assert named in re.sub(r"\((10|11)\)( unsigned)?", r"\2", said)
    assert session.rows("SELECT * FROM m.u") == []
    session.execute(f"ALTER TABLE m.t DROP COLUMN v, ADD COLUMN v {MADE.get(type_upstream, type_upstream)}")
    run_all(target, events)
    assert session.value("SELECT COUNT(*) FROM m.t") == 2


def test_changes_without_a_commit_ts(target: str, session: Session) -> None:
    """A column that keeps them otherwise is an error for them as well; but official Canal that is behind may call a
    TIMESTAMP what it became later."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, v TIMESTAMP, e ENUM('a'))")
    row = ["'2024-01-31 10:00:00'", "1"]
    changes = [
        declared(
            row_change(ts, "t", ["id", "v", "e"], ["id"], after=[ts, *map(Literal, row)]), "int", "datetime", kind
        )._replace(by_time=True)
        for ts, kind in ((10, "enum('a','b')"), (11, "int"))
    ]
    with pytest.raises(
        ApplyError, match=r"column e .* is enum\('a'\), which stores some values differently.* commit ts 11 "
    ):
        run_all(target, in_one_partition(changes))
    assert session.rows("SELECT id FROM m.t") in ([], [(10,)])


MADE = {"varbinary": "VARBINARY(9)", "binary": "BINARY(3)"}


def test_declared_types_follow_schema_changes(target: str, session: Session) -> None:
    """Rows are compared with the table of their own moment; a narrower column is none, and neither is a generated
    one."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, n INT, e ENUM('a'), g TINYINT AS (1))")
    rows = [
        declared(
            row_change(ts, "t", ["id", "n", "e", "g"], ["id"], after=[ts, 5, 1, 1]),
            "int",
            "bigint",
            "enum('a')",
            "date",
        )
        for ts in (10, 12)
    ]
    change = schema_change(11, "ALTER TABLE t MODIFY COLUMN e ENUM('b','a')")
    with pytest.raises(ApplyError, match="differently than upstream: enum"):
        run_all(target, in_one_partition([rows[0], change, rows[1], boundary(13)]))
    assert session.value("SELECT COUNT(*) FROM m.t") == 1


def test_a_length_that_no_value_tells_yet(target: str, session: Session) -> None:
    """TiCDC says BINARY without its length: the first value tells it."""
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, b BINARY(4))")
    rows = [
        declared(row_change(ts, "t", ["id", "b"], ["id"], after=[ts, value]), "int", "binary")
        for ts, value in ((10, None), (20, Literal("x'61626364'")), (30, None), (40, Literal("x'61'")))
    ]
    run_all(target, in_one_partition([rows[0], boundary(11), rows[1], boundary(21), rows[2], boundary(31)]))
    assert session.value("SELECT COUNT(*) FROM m.t") == 3
    session.execute("DELETE FROM m.t")
    session.execute("ALTER TABLE m.t MODIFY b BINARY(2)")
    with pytest.raises(ApplyError, match=r"is binary\(2\), which stores .* differently than upstream: binary\(1\)"):
        run_all(target, in_one_partition([rows[3], boundary(41)], start=6))


KINDS = [
    *("TINYINT", "INT UNSIGNED", "BIGINT", "DECIMAL(6,2)", "DOUBLE", "DOUBLE(9,2)", "YEAR", "BIT(9)"),
    *("DATE", "DATETIME", "DATETIME(3)", "TIMESTAMP(1)", "TIME", "TIME(2)", "CHAR(6)", "VARCHAR(6)", "TEXT"),
    *("VARBINARY(6)", "BLOB", "FLOAT", "FLOAT(9,2)"),
]
SOME_LITERALS = [
    *("0", "1", "-1", "70", "255", "2024", "16777217", "9007199254740993", "1.5", "1.00", "-0.125", "1.005", "1.5e0"),
    *("0.1e0", "0.5e0", "1e+20", "1.25e-05", "'7'", "'007'", "' 7'", "''", "' '", "'a'", "'a '", "'ab  '", "'é'"),
    *("'10:00:00'", "'10:00:00.5'", "'-1:00:00.25'", "'2024-01-31'", "'2024-01-31 10:00:00'", "'2024-01-31 00:00:00'"),
    *("'2024-01-31 10:00:00.125'", "'2024-01-31 10:00:00.100000'", "'0000-00-00'", "x'61'", "x'c3a9'", "x'ff'"),
]


def told(literal: str, kind: str) -> object:
    """The value of a literal, or of what a server shows for one in a column of that kind: equal when they mean the
    same."""
    if literal[0] == "x":
        return bytes.fromhex(literal[2:-1])
    if literal[0] != "'":
        return Decimal(literal)
    moment = re.fullmatch(r"'(-?[\d:-]+)( \d\d:\d\d:\d\d)?(?:\.(\d*))?'", literal)
    if moment and kind[:4] in {"DATE", "TIME"}:
        return moment[1].replace("-01:", "-1:"), moment[2] or " 00:00:00", (moment[3] or "").rstrip("0")
    return literal[1:-1].encode()


@pytest.mark.parametrize("kind", KINDS)
def test_what_passes_is_kept(session: Session, kind: str) -> None:
    """A literal that is let through, and that a strict server takes, is read back as it was."""
    session.execute(f"CREATE TABLE m.t (id INT PRIMARY KEY, v {kind})")
    table = load_tables(session, [TableName("m", "t")])[TableName("m", "t")]
    kept = 0
    for number, literal in enumerate(SOME_LITERALS):
        event = row_change(10, "t", ["id", "v"], ["id"], after=[number, Literal(literal)])
        try:
            change = in_one_partition([event])
            shape_of = np.zeros(1, np.int64)
            after = Cells(whole(change["after"]), shape_of, [2])
            check_needs([(table, ["id", "v"])], after, shape_of, change)
            session.write(f"INSERT INTO m.t VALUES ({number}, {literal})".encode())
        except (RefusedRowsError, MySQLError):
            continue
        is_number = literal[0] not in "'x"
        read = {"FLOAT": "v + 0e0", "FLOAT(9,2)": "v + 0e0", "BIT(9)": "v + 0"}.get(
            kind, "v" if is_number else "CAST(v AS BINARY)"
        )
        value = session.value(f"SELECT {read} FROM m.t WHERE id = {number}")
        is_time = kind[:4] in {"DATE", "TIME"}
        found = Decimal(str(value)) if is_number else told(f"'{value.decode()}'", kind) if is_time else value
        assert found == told(literal, kind), literal
        kept += 1
    assert kept > 0
