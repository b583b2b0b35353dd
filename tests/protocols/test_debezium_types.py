"""Debezium's types: one case per row of the seed "TiCDC Debezium", and of the native connector's own page."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.protocols import DecodeError
from bridge.protocols.debezium.recognition import DebeziumModes
from bridge.protocols.values.column_types import column_type
from bridge.protocols.values.row_image import raw_converter
from tests.support.debezium_wire import ID, connect, event_of, named, native, plain, raw_row, ticdc

STRING = "string:double,adaptive_time_microseconds,base64"
OPEN_STRING = "string:,,"
INT64 = "int64:double,adaptive_time_microseconds,base64"
FLOAT64 = "float64:double,adaptive_time_microseconds,base64"
NOT_NULL = {"optional": False}

TICDC_TYPES = [
    # numbers (types-seen: ints, bits, decs, floats)
    (plain("int16"), -128, "-128", ""), (plain("int16"), 255, "255", ""), (plain("int16"), -32768, "-32768", ""),
    (plain("int32"), 65535, "65535", ""), (plain("int32"), 16777215, "16777215", ""),
    (plain("int32", "int"), -2147483648, "-2147483648", ""),
    (plain("int64", "int unsigned"), 4294967295, "4294967295", ""),
    (plain("int64", "bigint"), -9223372036854775808, "-9223372036854775808", ""),
    (plain("int64", "bigint"), 9007199254740993, "9007199254740993", ""),
    (plain("int64", "bigint unsigned"), -1, "18446744073709551615", ""),
    (plain("int64", "bigint unsigned"), -9223372036854775808, "9223372036854775808", ""),
    (plain("int64"), -2, "-2", INT64),
    (plain("boolean", "bit"), True, "1", ""), (plain("boolean"), False, "0", ""),
    (named("bytes", "data.Bits", parameters={"length": "9"}), "AAE=", "256", ""),
    (named("bytes", "data.Bits"), "//////////8=", "18446744073709551615", ""),
    (plain("double", "decimal"), 3.1, "3.1e0", FLOAT64), (plain("double"), 1e35, "1e+35", FLOAT64),
    (plain("double", "decimal unsigned"), 0, "0.0e0", FLOAT64),
    (plain("float", "float"), 3.4028235e38, "3.4028234663852886e+38", ""),
    (plain("float"), 0.1, "0.10000000149011612e0", ""),
    (plain("double", "float"), 9999.999, "9999.9990234375e0", ""),
    (plain("double", "double unsigned"), 1e22, "1e+22", ""),
    # text and bytes (strs, cs, gbk_t, bins)
    (plain("string", "char"), "quo'te \"dq\"", "'quo\\'te \"dq\"'", ""),
    (plain("string", "varchar"), "\\", r"'\\'", ""),
    (plain("string", "mediumtext"), "nul\0byte", r"'nul\0byte'", ""),
    (plain("string", "longtext"), "漢字😀", "'漢字😀'", ""),
    (plain("string", "tinytext"), "", "''", ""), (plain("string", "text"), "   x", "'   x'", ""),
    (plain("string"), "AP8=", "'AP8='", STRING),
    (plain("string", "binary"), "YWIA", "x'616200'", ""), (plain("string", "varbinary"), "", "''", ""),
    (plain("string", "tinyblob"), "/wD/", "x'ff00ff'", ""), (plain("string", "blob"), "4oCC", "x'e28082'", ""),
    (plain("string", "mediumblob"), "8JCAgA==", "x'f0908080'", ""),
    (plain("string", "longblob"), "//4=", "x'fffe'", ""),
    # dates and times (times, tsdef)
    (named("int32", "time.Date"), 19782, "'2024-02-29'", ""),
    (named("int32", "time.Date"), -354285, "'1000-01-01'", ""),
    (named("int32", "time.Date", **NOT_NULL), 0, "'1970-01-01'", "epoch"),
    (named("int64", "time.MicroTime"), -3020398999999, "'-838:59:58.999999'", ""),
    (named("int64", "time.Timestamp"), 253402300799000, "'9999-12-31 23:59:59'", ""),
    (named("int64", "time.Timestamp", **NOT_NULL), 1704070923000, "'2024-01-01 01:02:03'", "epoch"),
    (named("int64", "time.MicroTimestamp"), -30610223999999999, "'1000-01-01 00:00:00.000001'", ""),
    (named("string", "time.ZonedTimestamp"), "2038-01-19T03:14:07.999Z", "'2038-01-19 03:14:07.999'", ""),
    (named("string", "time.ZonedTimestamp", **NOT_NULL), "1970-01-01T00:00:00Z", "'0000-00-00 00:00:00'", ""),
    (named("int32", "time.Year"), 2155, "2155", ""), (named("int32", "time.Year"), 0, "0", ""),
    # names, JSON, vectors (enums, jsons, vecs)
    (named("string", "data.Enum", parameters={"allowed": "a,g\\,h"}), "g,h", "'g,h'", ""),
    (named("string", "data.Enum", parameters={"allowed": "a,,\\,"}), "", "''", "enum"),
    (named("string", "data.Enum"), "a", "'a'", "enum"),
    (named("string", "data.EnumSet"), "x,y,z,w w,q'q", r"'x,y,z,w w,q\'q'", ""),
    (named("string", "data.EnumSet"), "", "''", ""),
    (named("string", "data.Json"), '{"a": 1}', """'{"a": 1}'""", ""),
    (named("string", "data.Json"), "null", "'null'", ""),
    (named("string", "data.TiDBVectorFloat32"), "[1,2,3.5]", "'[1,2,3.5]'", ""),
]  # fmt: skip

NATIVE_TYPES = [
    # basic types
    (plain("boolean"), True, "1", ""), (plain("int16"), 255, "255", ""), (plain("int32"), 16777215, "16777215", ""),
    (plain("int64"), 4294967295, "4294967295", "int64:,,"),
    (plain("float"), 5.610000133514404, "5.610000133514404e0", "float32:,,"),
    (plain("bytes"), "AP8=", "x'00ff'", ""), (plain("string"), "00ff", "'00ff'", OPEN_STRING),
    (named("string", "data.Json"), "{}", "'{}'", ""), (named("int32", "time.Year"), 2018, "2018", ""),
    (named("int32", "time.Year"), 1900, "0", ""), (named("int32", "time.Year"), 1901, "1901", ""),
    (named("string", "time.ZonedTimestamp"), "2018-06-20T13:37:03+08:00", "'2018-06-20 05:37:03'", ""),
    # decimal.handling.mode=precise, bigint.unsigned.handling.mode=precise
    (connect("bytes", "Decimal", parameters={"scale": "2", "connect.decimal.precision": "10"}), "MDk=", "123.45", ""),
    (connect("bytes", "Decimal", parameters={"scale": "2"}), "/w==", "-0.01", ""),
    (connect("bytes", "Decimal", parameters={"scale": "0"}), "AP//////////", "18446744073709551615", ""),
    (connect("bytes", "Decimal", parameters={"scale": "2"}), 123.45, "123.45", ""),
    (named("struct", "data.VariableScaleDecimal"), {"scale": 1, "value": "Dw=="}, "1.5", ""),
    # time.precision.mode: adaptive, connect, nanoseconds, isostring
    (named("int32", "time.Time"), 1500, "'00:00:01.500000'", ""),
    (named("int64", "time.NanoTime"), -1000, "'-00:00:00.000001'", ""),
    (named("int64", "time.NanoTimestamp"), 1529476623000000000, "'2018-06-20 06:37:03'", ""),
    (connect("int32", "Date"), 17702, "'2018-06-20'", ""),
    (connect("int32", "Time"), 86399999, "'23:59:59.999000'", ""),
    (connect("int64", "Timestamp", **NOT_NULL), 1529476623123, "'2018-06-20 06:37:03.123000'", "epoch"),
    (named("string", "time.IsoDate"), "2018-06-20Z", "'2018-06-20'", ""),
    (named("string", "time.IsoTime"), "06:37:03.5Z", "'06:37:03.5'", ""),
    (named("string", "time.IsoTimestamp"), "2018-06-20T06:37:03Z", "'2018-06-20 06:37:03'", ""),
    # spatial types and vectors
    (named("struct", "data.geometry.Point"), {"x": 1.0, "y": 2.0, "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": None},
     "x'000000000101000000000000000000f03f0000000000000040'", ""),
    (named("struct", "data.geometry.Geometry"), {"wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": 4326},
     "x'e61000000101000000000000000000f03f0000000000000040'", ""),
    (named("array", "data.FloatVector"), [1.0, 2.5], "'[1.0,2.5]'", ""),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["", "bytes", "base64", "hex"])
def test_text_in_a_binary_column(mode: str) -> None:
    """With a schema, bytes are of their own type in the connector's default mode: text is then a column of the
    character set binary, and what looks like Base64 is not.  Other modes are set."""
    column = column_type("varbinary(9)", nullable=True)
    convert = raw_converter(f"string:,adaptive_time_microseconds,{mode}", column, lambda _: None)
    assert convert is not None
    assert [convert("NULL"), convert("''")] == ["NULL", "''"]
    if mode in ("", "bytes"):
        with pytest.raises(DecodeError, match="binary_handling_mode"):
            convert("'test'")
    else:
        text = {"base64": "'AP8='", "hex": "'00ff'"}[mode]
        assert convert(text) == "x'00ff'"


def test_a_real_that_comes_as_a_float() -> None:
    """It has lost digits, which nobody can tell from the value; a FLOAT needs no conversion."""
    [of_float, of_double] = (
        raw_converter("float32:,adaptive_time_microseconds,", column_type(kind, nullable=True), lambda _: None)
        for kind in ("float", "double")
    )
    assert of_float is None
    assert of_double is not None
    assert of_double("NULL") == "NULL"
    with pytest.raises(DecodeError, match="REAL"):
        of_double("0.10000000149011612e0")


@pytest.mark.parametrize(("field", "value", "literal", "form"), TICDC_TYPES)
def test_type_of_ticdc(field: dict[str, Any], value: Any, literal: str, form: str) -> None:
    """Each type of TiCDC's schema becomes its literal, or a raw one where the schema leaves something open."""
    event = event_of(ticdc("c", {"id": 1, "v": value}, [ID, field | {"field": "v"}]))
    assert raw_row(event, event.after) == {"id": ("1", ""), "v": (literal, form)}
    event = event_of(ticdc("d", {"id": 1, "v": None}, [ID, field | {"field": "v"}]))
    assert raw_row(event, event.before) == {"id": ("1", ""), "v": ("NULL", form)}


@pytest.mark.parametrize(("field", "value", "literal", "form"), NATIVE_TYPES)
def test_type_of_the_native_connector(field: dict[str, Any], value: Any, literal: str, form: str) -> None:
    """The same for the native connector's schemas."""
    event = event_of(native("c", {"id": 1, "v": value}, [ID, field | {"field": "v"}]), b'{"id":1}')
    assert raw_row(event, event.after) == {"id": ("1", ""), "v": (literal, form)}


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (-9223372036854775808, "-9223372036854775808"), (18446744073709551615, "18446744073709551615"), (True, "1"),
        (1e-05, "1e-05"), (0.1, "0.1e0"), ("it's", r"'it\'s'"), ("a\0b", r"'a\0b'"), (None, "NULL"),
        ([1, 2.5], "'[1,2.5]'"),
        ({"scale": 1, "value": "Dw=="}, "1.5"), ({"wkb": "AA==", "srid": None}, "x'0000000000'"),
    ],
)  # fmt: skip
def test_without_schema(value: Any, literal: str) -> None:
    """Without a schema a value is raw, by its JSON type; the form tells TiCDC's modes, or the connector's as set."""
    event = event_of(ticdc("c", {"id": 1, "v": value}))
    assert raw_row(event, event.after)["v"] == (literal, "json:double,adaptive_time_microseconds,base64")
    event = event_of(native("c", {"id": 1, "v": value}), b'{"id":1}', DebeziumModes("string", "connect", "hex"))
    assert raw_row(event, event.after)["v"] == (literal, "json:string,connect,hex")
