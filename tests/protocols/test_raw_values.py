"""Raw values: each form's rules, one case per kind of column."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bridge.events import Kind, RowChange
from bridge.protocols.debezium.recognition import TICDC_MODES
from bridge.protocols.debezium.values import decimal_of_double
from bridge.protocols.decoder import DecodeError
from bridge.protocols.values.column_types import ColumnType, column_type, unquoted
from bridge.protocols.values.literals import text
from bridge.protocols.values.row_image import raw_converter, split_forms, with_forms

TICDC = "json:double,adaptive_time_microseconds,base64"
CONNECT = "json:precise,connect,bytes"
ADAPTIVE = "json:string,adaptive,hex"
NANOS = "json:precise,nanoseconds,base64-url-safe"

CASES = [
    # integers: only BIGINT UNSIGNED can differ from its digits
    (TICDC, "tinyint(4)", "-128", "-128"), (TICDC, "int(10) unsigned", "4294967295", "4294967295"),
    (TICDC, "bigint(20)", "-9223372036854775808", "-9223372036854775808"),
    (TICDC, "bigint(20) unsigned", "-1", "18446744073709551615"),
    (TICDC, "bigint unsigned", "-9223372036854775808", "9223372036854775808"),
    (TICDC, "bigint unsigned", "9223372036854775807", "9223372036854775807"),
    (CONNECT, "bigint unsigned", "'AP//////////'", "18446744073709551615"),
    ("int64", "bigint unsigned", "-2", "18446744073709551614"), ("int64", "bigint", "-2", "-2"),
    ("int64", "int unsigned", "7", "7"), ("int64", "datetime", "7", "7"),
    # decimals: float64, text, or Base64 of the digits
    (TICDC, "decimal(12,2)", "3.1e0", "3.10"), (TICDC, "decimal(12,2)", "100", "100.00"),
    (TICDC, "decimal(10,0)", "9999999999", "9999999999"), (TICDC, "decimal(20,4) unsigned", "0.0001e0", "0.0001"),
    (TICDC, "decimal(65,30)", "1e-30", "0.000000000000000000000000000001"), (TICDC, "decimal(65,0)", "0", "0"),
    ("float64", "decimal(10,3) unsigned zerofill", "12.5e0", "12.500"),
    (CONNECT, "decimal(10,2)", "'MDk='", "123.45"), (CONNECT, "decimal(10,2)", "'/w=='", "-0.01"),
    (CONNECT, "decimal(5,0)", "'AA=='", "0"), (CONNECT, "decimal(10,2)", "'-1.50'", "-1.50"),
    (CONNECT, "decimal(10,2)", "1.5e0", "1.50"), (ADAPTIVE, "decimal(10,0)", "'1234'", "1234"),
    ("string:precise,adaptive,bytes", "decimal(10,2)", "'123.40'", "123.40"),
    ("string:precise,adaptive,bytes", "decimal(20,0)", "'1234'", "1234"),
    ("json:,connect,", "decimal(10,2)", "'MDk='", "123.45"), ("json:,connect,", "decimal(10,2)", "'1.50'", "1.50"),
    # as connectors of Debezium before 1.9 print small ones (DBZ-4730)
    (ADAPTIVE, "decimal(20,10)", "'0E-10'", "0.0000000000"), (ADAPTIVE, "decimal(30,8)", "'-1.5E-8'", "-0.000000015"),
    ("string:,connect,", "decimal(65,0)", "'9.99E+64'", "999" + "0" * 62),
    ("json:,connect,", "blob", "'AP8='", "x'00ff'"), ("json:,connect,", "decimal(10,2)", "1.5e0", "1.50"),
    # the native connector adds 1900 to the 0 that the binlog holds
    (CONNECT, "year(4)", "1900", "0"), (TICDC, "year", "0", "0"), (TICDC, "year", "1901", "1901"),
    ("enum", "enum('a',',')", "''", "''"), ("enum", "enum('','a')", "NULL", "NULL"),
    ("ckafka:,", "enum('a')", "''", "''"),
    # texts of official Canal, and of the Open Protocol without flags, which may be bytes
    ("utf8", "varchar(10)", r"'ä\\'", r"'ä\\'"), ("utf8", "binary(4)", r"'ä\0'", "x'c3a40000'"),
    ("utf8", "varbinary(10)", r"'\\'", "x'5c'"), ("utf8", "blob", "''", "''"), ("utf8", "binary(2)", "NULL", "NULL"),
    ("quoted", "varchar(10)", r"'\\x89'", r"'\\x89'"), ("quoted", "varbinary(9)", r"'\\x89PNG\\r'", "x'89504e470d'"),
    ("quoted", "binary(3)", r"'\\x89'", "x'890000'"), ("quoted", "blob", "NULL", "NULL"),
    # floats
    (TICDC, "float", "3.4028235e+38", "3.4028234663852886e+38"), (TICDC, "float(7,3)", "1", "1.0e0"),
    (TICDC, "double", "1e-10", "1e-10"), (TICDC, "double unsigned", "16777216", "16777216.0e0"),
    ("float64", "float", "0.1e0", "0.10000000149011612e0"), ("float64", "double", "0.1e0", "0.1e0"),
    # bit
    (TICDC, "bit(1)", "1", "1"), (TICDC, "bit(8)", "'/w=='", "255"), (TICDC, "bit(9)", "'AAE='", "256"),
    (TICDC, "bit(64)", "'AQAAAAAAAIA='", "9223372036854775809"),
    (TICDC, "bit(64)", "'//////////8='", "18446744073709551615"),
    # bytes
    (TICDC, "varbinary(32)", "'AP8='", "x'00ff'"), (TICDC, "blob", "''", "''"),
    (CONNECT, "longblob", "'//4='", "x'fffe'"),
    (NANOS, "binary(2)", "'__4='", "x'fffe'"), (ADAPTIVE, "tinyblob", "'00ff'", "x'00ff'"),
    ("string:precise,adaptive,hex", "mediumblob", "'ff'", "x'ff'"), ("string", "varchar(10)", "'AP8='", "'AP8='"),
    # text and names stay
    (TICDC, "varchar(300)", r"'it\'s \\ \0'", r"'it\'s \\ \0'"), (TICDC, "longtext", "'{}'", "'{}'"),
    (TICDC, "enum('a','b')", "'b'", "'b'"), (TICDC, "set('a','b')", "'a,b'", "'a,b'"),
    (TICDC, "json", "'null'", "'null'"),
    # dates and times
    (TICDC, "date", "19782", "'2024-02-29'"), (TICDC, "date", "-354285", "'1000-01-01'"),
    (TICDC, "date", "2932896", "'9999-12-31'"), (TICDC, "date", "0", "'1970-01-01'"),
    (TICDC, "time", "45296000000", "'12:34:56'"), (TICDC, "time(6)", "-3020398999999", "'-838:59:58.999999'"),
    (TICDC, "time(3)", "-1500000", "'-00:00:01.500000'"), (TICDC, "time(6)", "-1", "'-00:00:00.000001'"),
    (CONNECT, "time(3)", "1500", "'00:00:01.500000'"), (ADAPTIVE, "time(3)", "1500", "'00:00:01.500000'"),
    (ADAPTIVE, "time(4)", "1500", "'00:00:00.001500'"), (NANOS, "time", "1000000000", "'00:00:01'"),
    (TICDC, "datetime", "1709210096000", "'2024-02-29 12:34:56'"),
    (TICDC, "datetime(3)", "-30610223999999", "'1000-01-01 00:00:00.001000'"),
    (TICDC, "datetime(4)", "1718445600100000", "'2024-06-15 10:00:00.100000'"),
    (TICDC, "datetime(6)", "253402300799999999", "'9999-12-31 23:59:59.999999'"),
    (CONNECT, "datetime(6)", "1709210096789", "'2024-02-29 12:34:56.789000'"),
    (NANOS, "datetime", "1709210096000000000", "'2024-02-29 12:34:56'"),
    (TICDC, "datetime", "'2024-02-29T12:34:56.500Z'", "'2024-02-29 12:34:56.5'"),
    (TICDC, "date", "'2024-02-29Z'", "'2024-02-29'"), (TICDC, "time(3)", "'12:34:56.789'", "'12:34:56.789'"),
    (TICDC, "timestamp", "'2024-02-29T12:34:56Z'", "'2024-02-29 12:34:56'"),
    (TICDC, "timestamp(6)", "'2024-02-29T12:34:56.789010Z'", "'2024-02-29 12:34:56.78901'"),
    (TICDC, "timestamp", "'2024-02-29T12:34:56+08:00'", "'2024-02-29 04:34:56'"),
    (TICDC, "timestamp(3)", "'1970-01-01T00:00:00Z'", "'0000-00-00 00:00:00'"),
    (TICDC, "year(4)", "2155", "2155"), (TICDC, "year(4)", "0", "0"),
    # MySQL's calendar has a year 0
    (TICDC, "date", "-719528", "'0000-01-01'"), (TICDC, "date", "-719469", "'0000-02-29'"),
    (TICDC, "date", "-719163", "'0000-12-31'"), (TICDC, "date", "-719162", "'0001-01-01'"),
    (TICDC, "datetime", "-62167219200000", "'0000-01-01 00:00:00'"),
    ("epoch", "date", "'2020-02-20'", "'2020-02-20'"),
]  # fmt: skip


def converted(form: str, column: ColumnType, literal: str) -> tuple[str, list[str]]:
    """The ready literal, and what was said to be lost."""
    said: list[str] = []
    convert = raw_converter(form, column, said.append)
    return (convert(literal) if convert else literal), said


@pytest.mark.parametrize(
    ("charset", "raw", "ready"),
    [
        ("utf8mb4", "'ä'", "'ä'"), ("utf8mb3", "'ä\ufffd'", "'ä\ufffd'"), ("ascii", "'a'", "'a'"),
        ("latin1", r"'a\''", r"'a\''"), ("latin1", "NULL", "NULL"),
        ("utf16", r"'\0a'", "x'0061'"), ("ucs2", "''", "''"), ("utf32", "NULL", "NULL"), ("gbk", "NULL", "NULL"),
    ],
)  # fmt: skip
def test_texts_of_canal(charset: str, raw: str, ready: str) -> None:
    """Official Canal reads the bytes of each text as UTF-8: in a column of UTF-16 they are its bytes."""
    assert converted("utf8", column_type("varchar(9)", nullable=True, charset=charset), raw) == (ready, [])


@pytest.mark.parametrize("charset", ["latin1", "gbk"])
def test_texts_of_canal_that_may_be_of_another_character_set(charset: str) -> None:
    """A text beyond ASCII is refused: upstream, the column may be utf8mb4, as its server's default."""
    with pytest.raises(DecodeError, match="make the column utf8mb4 on the target"):
        converted("utf8", column_type("varchar(9)", nullable=True, charset=charset), "'日本'")


@pytest.mark.parametrize(("column", "charset"), [("varchar(9)", "latin1"), ("char(9)", "utf16"), ("binary(9)", None)])
def test_bytes_that_canal_lost(column: str, charset: str | None) -> None:
    """Bytes that are no UTF-8 are not in the message."""
    with pytest.raises(DecodeError, match="what Canal makes of bytes"):
        converted("utf8", column_type(column, nullable=True, charset=charset), "'\ufffd'")


@pytest.mark.parametrize(("form", "column", "raw", "ready"), CASES)
def test_form(form: str, column: str, raw: str, ready: str) -> None:
    """Each form's raw literal becomes the column's literal, with nothing lost; NULL stays NULL."""
    assert converted(form, column_type(column, nullable=True), raw) == (ready, [])
    assert converted(form, column_type(column, nullable=True), "NULL") == ("NULL", [])


@pytest.mark.parametrize(
    ("form", "column", "raw", "ready", "words"),
    [
        (TICDC, "decimal(20,4)", "1234567890123456.8e0", "1234567890123456.8000", "DECIMAL(20,4)"),
        (TICDC, "decimal(65,30)", "1e+35", "9" * 35 + "." + "9" * 30, "float64"),
        (TICDC, "decimal(65,30)", "-1e+35", "-" + "9" * 35 + "." + "9" * 30, "float64"),
        (TICDC, "decimal(65,0)", "1e+65", "9" * 65, "float64"),
        (TICDC, "decimal(30,30)", "-1", "-0." + "9" * 30, "float64"),
        (TICDC, "decimal(30,30)", "0.1111111111111111e0", "0." + "1" * 16 + "0" * 14, "float64"),
        (TICDC, "date not null", "0", "'1970-01-01'", "zero date"),
        (CONNECT, "datetime not null", "0", "'1970-01-01 00:00:00'", "zero date"),
        ("epoch", "date", "'1970-01-01'", "'1970-01-01'", "zero date"),
        *((form, "enum('a','')", "''", "''", "error value") for form in (TICDC, CONNECT, "enum", "ckafka:,")),
    ],
)
def test_losses_are_said(form: str, column: str, raw: str, ready: str, words: str) -> None:
    """Where the format has lost a part of a value, the nearest that the column can hold is written, and it is said."""
    literal, [said] = converted(form, column_type(column, nullable="not null" not in column), raw)
    assert literal == ready
    assert words in said


@pytest.mark.parametrize("form", [TICDC, CONNECT])
@pytest.mark.parametrize(
    ("column", "raw", "words"),
    [
        ("date not null", "NULL", "zero date"), ("datetime(3) not null", "NULL", "zero date"),
        ("date", "99999999", "out of range"), ("datetime", "1709210096000000", "out of range"),
        ("time", "9" * 13, "TIME"),
        ("timestamp", "'2024-02-29 12:34:56'", "zone"), ("timestamp", "1709210096000", "not a string"),
        ("binary(2)", "'abc'", "Base64"), ("binary(2)", "5", "not a string"), ("bit(9)", "'AAAAAAAAAAAA'", "64 bits"),
        ("date", "-719529", "out of range"), ("date", "1.5e0", "not an integer"), ("date", "1e+300", "not an integer"),
        ("year(4)", "5", "not a YEAR"), ("year(4)", "2156", "not a YEAR"), ("year(4)", "2024.5e0", "not an integer"),
        ("bigint unsigned", "-9.223372036854776e+18", "not an integer"),
        ("float", "'NaN'", "not a number"), ("double", "'Infinity'", "not a number"),
        ("decimal(9,2)", "1.239e0", "would cut it"), ("decimal(65,0)", "0.5e0", "would cut it"),
        ("decimal(9,2)", "'1E-66'", "65 digits"), ("decimal(9,2)", "'1E-9999'", "65 digits"),
        ("decimal(9,2)", "'x'", "Base64"), ("decimal(9,2)", "'1.x'", "decimal"), ("datetime", "'2024'", "ISO 8601"),
    ],
)  # fmt: skip
def test_refused(form: str, column: str, raw: str, words: str) -> None:
    """What the column cannot have held is refused, not guessed."""
    with pytest.raises((DecodeError, OverflowError), match=words):
        converted(form, column_type(column, nullable="not null" not in column), raw)


@pytest.mark.parametrize(
    ("column", "raw", "setting"),
    [
        ("decimal(9,0)", "'1234'", "decimal"), ("blob", "'00ff'", "binary"),
        ("binary(2)", "'00ff'", "binary"), ("binary(4)", "'Test'", "binary"),
    ],
)  # fmt: skip
def test_a_value_in_two_modes_is_refused_until_one_is_told(column: str, raw: str, setting: str) -> None:
    """Digits may be a number, or Base64 of another; bytes may be Base64, hexadecimal digits, or come as text."""
    with pytest.raises(DecodeError, match=f"debezium.{setting}_handling_mode"):
        converted("json:,connect,", column_type(column, nullable=True), raw)


@pytest.mark.parametrize(
    ("column", "raw"), [("time", "3600000"), ("time", "-1"), ("time(2)", "3661005"), ("time(5)", "1000001")]
)
def test_a_time_that_its_column_cannot_hold_is_of_another_mode(column: str, raw: str) -> None:
    """The milliseconds of time.precision.mode=connect or adaptive, read as microseconds, have digits that a column of
    fewer digits cannot have had upstream."""
    with pytest.raises(DecodeError, match="time_precision_mode"):
        converted("json:,adaptive_time_microseconds,", column_type(column, nullable=True), raw)


@pytest.mark.parametrize(
    ("column", "raw"),
    [
        ("time(6)", "45296123"), ("time(3)", "45296000"), ("time", "30000000"), ("time(6)", "-1"),
        ("datetime(6)", "1709210096789"), ("datetime(4)", "-1"),
        ("datetime(6) not null", "253402300799999"), ("datetime(5)", "-62167219200000"),
    ],
)  # fmt: skip
def test_a_moment_in_two_units_is_refused_until_the_mode_is_told(column: str, raw: str) -> None:
    """Milliseconds of `connect`, read as microseconds, are times of less than 86.4 s, and moments of 1968 to 1978.
    What is told is read so."""
    kind = column_type(column, nullable="not null" not in column)
    with pytest.raises(DecodeError, match="time_precision_mode"):
        converted("json:,,", kind, raw)
    converted("json:,connect,", kind, raw)


@pytest.mark.parametrize(
    ("column", "raw", "ready"),
    [
        ("time(6)", "45296123456", "'12:34:56.123456'"), ("time", "45296000000", "'12:34:56'"),
        ("time(6)", "0", "'00:00:00'"), ("datetime(6)", "0", "'1970-01-01 00:00:00'"),
        ("time(3)", "86400000", "'00:01:26.400000'"), ("time(6)", "-86399999999", "'-23:59:59.999999'"),
        ("time", "108000000000", "'30:00:00'"), ("time(6)", "-3020398999999", "'-838:59:58.999999'"),
        ("datetime(6)", "1709210096789012", "'2024-02-29 12:34:56.789012'"),
        ("datetime(6)", "253402300800000", "'1978-01-11 21:31:40.800000'"),
        ("datetime(4)", "-62167219200100", "'1968-01-12 11:19:40.799900'"),
        ("datetime(3)", "5", "'1970-01-01 00:00:00.005000'"),
    ],
)  # fmt: skip
def test_the_usual_moments_are_of_the_default_mode(column: str, raw: str, ready: str) -> None:
    """Nothing has to be told for them."""
    assert converted("json:,,", column_type(column, nullable=True), raw) == (ready, [])


@pytest.mark.parametrize(
    ("mode", "raw", "right"),
    [
        ("", "'AP8='", "x'00ff'"), ("bytes", "'AP8='", "x'00ff'"), ("base64", "'AP8='", "x'00ff'"),
        ("base64-url-safe", "'AP8='", "x'00ff'"), ("hex", "'00ff'", "x'00ff'"), ("", "''", "''"),
        ("bytes", "'Test'", ""), ("base64", "'Test'", ""), ("hex", "'ff'", ""),
    ],
)  # fmt: skip
def test_a_fixed_number_of_bytes_tells_bytes_from_text(mode: str, raw: str, right: str) -> None:
    """The connector sends all bytes of a BINARY(n), so that text of the character set binary is not taken for them."""
    form, column = f"json:,connect,{mode}", column_type("binary(2)", nullable=True)
    if right:
        assert converted(form, column, raw) == (right, [])
    else:
        with pytest.raises(DecodeError, match="character set binary"):
            converted(form, column, raw)


def test_the_bytes_of_ticdc_are_of_any_length() -> None:
    """TiDB fills them up when they are written, not when a default gives them."""
    assert converted(f"json:{TICDC_MODES}", column_type("binary(4)", nullable=True), "'AP8='") == ("x'00ff'", [])


@given(st.integers(1, 65).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, min(p, 30)))), st.data())
def test_a_decimal_is_exact_or_said(shape: tuple[int, int], data: st.DataObject) -> None:
    """Of any DECIMAL that became a double, the very value comes back, or the loss is said."""
    precision, scale = shape
    digits = data.draw(st.integers(1 - 10**precision, 10**precision - 1))
    value = Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))
    said: list[str] = []
    literal = decimal_of_double(float(value), precision, scale, said.append)
    assert Decimal(literal) == value or said
    assert not said or precision > 15


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_in_a_decimal_column_is_that_double(value: float) -> None:
    """Whatever the double, the literal is the same double again, or it is refused as the column would cut it."""
    assume(abs(value) < 1e60)
    if int(Decimal(repr(value)).normalize().as_tuple().exponent) < -5:
        with pytest.raises(DecodeError, match="would cut"):
            decimal_of_double(value, 65, 5, lambda _: None)
    else:
        assert float(decimal_of_double(value, 65, 5, lambda _: None)) == value


@given(st.text())
def test_strings_survive(value: str) -> None:
    """A converter reads from a raw literal what the message held."""
    assert unquoted(text(value)) == value


def test_forms_travel_behind_the_names() -> None:
    """One form for all columns, or one for each, "" for a ready literal; without any, all are ready."""
    assert split_forms("id\0v") == ("id\0v", ["", ""])
    assert split_forms(with_forms("id\0v", ["json"])) == ("id\0v", ["json", "json"])
    assert split_forms(with_forms("id\0v", ["", "int64"])) == ("id\0v", ["", "int64"])
    assert split_forms(with_forms("v", ["string"])) == ("v", ["string"])
    assert RowChange(Kind.INSERT, 1, 0, "", "", with_forms("v", ["string"]), "", None, None).columns == "v\0\0string"


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("decimal(20,4) unsigned", ColumnType("decimal", 20, 4, unsigned=True)),
        ("decimal", ColumnType("decimal", 10, 0)), ("bit", ColumnType("bit", 1)),
        ("BIGINT(20)", ColumnType("bigint", 20)),
        ("datetime", ColumnType("datetime")), ("timestamp(6)", ColumnType("timestamp", 6)),
        ("enum('unsigned')", ColumnType("enum")),
        ("double unsigned", ColumnType("double", unsigned=True)),
    ],
)  # fmt: skip
def test_column_types(said: str, read: ColumnType) -> None:
    """information_schema's words, with the defaults of those that leave numbers out."""
    assert column_type(said, nullable=True) == read
