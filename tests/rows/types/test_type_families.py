"""Which types of the target store values of types of the upstream as others."""

from __future__ import annotations

import pytest

from bridge.rows.type_families import as_bytes, stores_otherwise

DIFFERENT, MAY_FIT = True, False

PAIRS = [
    # what a source declares, what the target has
    *(("int", "int(11)", MAY_FIT), ("int(11)", "int", MAY_FIT), ("tinyint(1)", "tinyint(4)", MAY_FIT)),
    *(("boolean", "tinyint(1)", MAY_FIT), ("integer", "bigint(20)", MAY_FIT), ("int", "mediumint(9)", MAY_FIT)),
    *(("int", "smallint(6)", MAY_FIT), ("bigint", "int(11)", MAY_FIT), ("bigint unsigned", "bigint(20)", MAY_FIT)),
    *(("int unsigned", "int(11)", MAY_FIT), ("int unsigned", "bigint(20)", MAY_FIT)),
    ("int unsigned zerofill", "int(8) unsigned zerofill", MAY_FIT),
    *(("int zerofill", "int unsigned", MAY_FIT), ("int", "int(10) unsigned", MAY_FIT)),
    *(("tinyint unsigned", "smallint(6)", MAY_FIT), ("int", "decimal(10,0)", MAY_FIT)),
    *(("int", "decimal(9,0)", MAY_FIT), ("int", "decimal(12,2) unsigned", MAY_FIT)),
    ("bigint unsigned", "decimal(20,0) unsigned", MAY_FIT),
    *(("mediumint", "float", MAY_FIT), ("int", "float", MAY_FIT), ("int", "double", MAY_FIT)),
    *(("bigint", "double", MAY_FIT), ("int", "double(9,2)", MAY_FIT), ("int unsigned", "bit(32)", MAY_FIT)),
    *(("int unsigned", "bit(31)", MAY_FIT), ("int", "bit(64)", MAY_FIT), ("int", "enum('a','b')", DIFFERENT)),
    *(("int", "set('a','b')", DIFFERENT), ("int", "varchar(20)", DIFFERENT), ("int", "year(4)", DIFFERENT)),
    *(("int", "date", DIFFERENT), ("decimal", "decimal(10,2)", MAY_FIT), ("decimal(10,2)", "decimal(10,2)", MAY_FIT)),
    *(("decimal(10,2)", "decimal(11,3)", MAY_FIT), ("decimal(10,2)", "decimal(10,3)", MAY_FIT)),
    *(("decimal(10,2)", "decimal(10,1)", MAY_FIT), ("decimal(10,0)", "decimal(10,0)", MAY_FIT)),
    ("decimal", "decimal(10,2) unsigned", MAY_FIT),
    ("decimal unsigned", "decimal(10,2)", MAY_FIT),
    *(("numeric(9,0)", "int(11)", MAY_FIT), ("decimal(10,0)", "int(11)", MAY_FIT)),
    *(("decimal(9,2)", "bigint(20)", MAY_FIT), ("decimal", "bigint(20)", MAY_FIT)),
    *(("decimal", "int unsigned", MAY_FIT), ("decimal(15,2)", "double", MAY_FIT)),
    *(("decimal(16,2)", "double", MAY_FIT), ("decimal", "double", MAY_FIT), ("decimal(6,2)", "float", MAY_FIT)),
    *(("decimal(6,2)", "double(6,2)", MAY_FIT), ("decimal(10,2)", "varchar(40)", DIFFERENT)),
    *(("float", "float", MAY_FIT), ("float", "double", MAY_FIT), ("real", "double", MAY_FIT)),
    *(("double", "float", MAY_FIT), ("double", "double unsigned", MAY_FIT), ("float(7,3)", "float(7,3)", MAY_FIT)),
    *(("float", "float(7,3)", MAY_FIT), ("double(7,3)", "double(6,3)", MAY_FIT), ("float", "decimal(20,10)", MAY_FIT)),
    *(("float", "bigint(20)", DIFFERENT), ("bit(8)", "bit(9)", MAY_FIT), ("bit(8)", "bit(7)", MAY_FIT)),
    *(("bit(2)", "bit", MAY_FIT), ("bit", "bit(1)", MAY_FIT), ("bit(1)", "tinyint(1)", MAY_FIT)),
    *(("bit(8)", "tinyint(4)", MAY_FIT), ("bit", "tinyint(1)", MAY_FIT), ("bit(3)", "decimal(3,0)", MAY_FIT)),
    *(("bit(8)", "varbinary(8)", DIFFERENT), ("year", "year(4)", MAY_FIT), ("year(4)", "smallint(6)", MAY_FIT)),
    *(("year", "tinyint(3) unsigned", MAY_FIT), ("year", "decimal(4,0)", MAY_FIT), ("year", "char(4)", DIFFERENT)),
    *(("char", "char(20)", MAY_FIT), ("char(20)", "char(20)", MAY_FIT), ("char(20)", "char(19)", MAY_FIT)),
    *(("char(20)", "varchar(20)", MAY_FIT), ("varchar(20)", "char(20)", MAY_FIT)),
    *(("varchar", "char(255)", MAY_FIT), ("varchar", "varchar(1)", MAY_FIT), ("varchar(10)", "varchar(9)", MAY_FIT)),
    *(("varchar(10)", "varchar(10)", MAY_FIT), ("varchar(256)", "tinytext", MAY_FIT)),
    *(("varchar(100)", "tinytext", MAY_FIT), ("varchar(63)", "tinytext", MAY_FIT), ("varchar", "tinytext", MAY_FIT)),
    *(("varchar", "longtext", MAY_FIT), ("tinytext", "varchar(255)", MAY_FIT), ("text", "varchar(20000)", MAY_FIT)),
    *(("text", "text", MAY_FIT), ("text", "tinytext", MAY_FIT), ("mediumtext", "text", MAY_FIT)),
    *(("longtext", "mediumtext", MAY_FIT), ("text", "mediumtext", MAY_FIT), ("text", "blob", MAY_FIT)),
    *(("text", "tinyblob", MAY_FIT), ("varchar(10)", "varbinary(9)", MAY_FIT)),
    *(("varchar(10)", "varbinary(40)", MAY_FIT), ("char(4)", "binary(16)", DIFFERENT), ("longtext", "json", MAY_FIT)),
    *(("varchar(10)", "json", DIFFERENT), ("varchar", "int(11)", DIFFERENT), ("varchar", "enum('a')", DIFFERENT)),
    *(("varchar", "datetime", DIFFERENT), ("binary(4)", "binary(4)", MAY_FIT), ("binary(4)", "binary(5)", DIFFERENT)),
    *(("binary(4)", "binary(3)", DIFFERENT), ("binary", "binary(4)", MAY_FIT), ("binary(4)", "varbinary(4)", MAY_FIT)),
    *(
        ("varbinary", "binary(255)", DIFFERENT),
        ("varbinary(9)", "varbinary(8)", MAY_FIT),
        ("binary(0)", "binary(0)", MAY_FIT),
    ),
    *(("varbinary(9)", "tinyblob", MAY_FIT), ("tinyblob", "binary(255)", DIFFERENT)),
    *(("tinyblob", "varbinary(255)", MAY_FIT), ("blob", "tinyblob", MAY_FIT), ("mediumblob", "longblob", MAY_FIT)),
    *(("blob", "longtext", DIFFERENT), ("blob", "json", DIFFERENT), ("enum", "enum('a','b')", MAY_FIT)),
    ("enum('a','b')", "enum('a','b','c')", MAY_FIT),
    ("enum('a','b')", "enum('a')", MAY_FIT),
    ("enum('a','b')", "enum('b','a')", DIFFERENT),
    ("enum('e''f','g,(h')", "enum('e''f','g,(h')", MAY_FIT),
    *((r"enum('g\\')", r"enum('g\')", MAY_FIT), ("enum('😀')", "enum('?')", MAY_FIT)),
    *(("enum('','b')", "enum('','c')", DIFFERENT), ("enum", "varchar(10)", MAY_FIT), ("enum", "int(11)", DIFFERENT)),
    *(("enum", "set('a','b')", DIFFERENT), ("set('x','y')", "set('x','y')", MAY_FIT)),
    *(("set('x','y')", "set('x')", MAY_FIT), ("set", "bigint(20) unsigned", DIFFERENT), ("set", "text", MAY_FIT)),
    *(("date", "date", MAY_FIT), ("date", "datetime", MAY_FIT), ("date", "timestamp", DIFFERENT)),
    *(("date", "varchar(10)", MAY_FIT), ("datetime", "date", DIFFERENT), ("datetime", "datetime", MAY_FIT)),
    *(("datetime", "datetime(6)", MAY_FIT), ("datetime(3)", "datetime(3)", MAY_FIT)),
    *(("datetime(3)", "datetime", MAY_FIT), ("datetime(3)", "datetime(6)", MAY_FIT)),
    *(("datetime", "timestamp(6)", DIFFERENT), ("timestamp", "timestamp", MAY_FIT)),
    *(("timestamp(6)", "timestamp(3)", MAY_FIT), ("timestamp", "datetime(6)", MAY_FIT)),
    *(("timestamp(3)", "datetime", MAY_FIT), ("timestamp", "date", DIFFERENT), ("timestamp", "bigint(20)", DIFFERENT)),
    *(("datetime(3)", "varchar(30)", MAY_FIT), ("time", "time(6)", MAY_FIT), ("time(3)", "time", MAY_FIT)),
    *(("time", "datetime", DIFFERENT), ("time", "varchar(20)", MAY_FIT), ("json", "json", MAY_FIT)),
    *(("json", "longtext", MAY_FIT), ("json", "longblob", MAY_FIT), ("json", "mediumtext", MAY_FIT)),
    *(("json", "varchar(100)", MAY_FIT), ("json", "int(11)", DIFFERENT), ("vector", "vector(3)", MAY_FIT)),
    *(("vector(3)", "longtext", MAY_FIT), ("vector", "text", MAY_FIT), ("vector", "longblob", MAY_FIT)),
    ("vector", "double", DIFFERENT),
    # what is not known, on either side
    *(("", "int(11)", MAY_FIT), ("null", "int(11)", MAY_FIT), ("geometry", "point", MAY_FIT)),
    *(("varchar(39)", "inet6", MAY_FIT), ("varchar(36)", "uuid", MAY_FIT), ("int(", "int(11)", MAY_FIT)),
    ("DECIMAL(10,2) UNSIGNED", "decimal(10,2) unsigned", MAY_FIT),
]


def test_fit() -> None:
    """Only where nothing that the source could mean would be kept."""
    for source, target, expected in PAIRS:
        assert stores_otherwise(source, target) is expected, (source, target)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        *(("CHAR(4)", "binary(4)", MAY_FIT), ("char(4)", "binary(5)", DIFFERENT)),
        *(("VARCHAR(20)", "varbinary(20)", MAY_FIT), ("tinytext", "tinyblob", MAY_FIT), ("LONGTEXT", "blob", MAY_FIT)),
        *(("int", "binary(4)", DIFFERENT), ("enum('char')", "binary(4)", DIFFERENT)),
    ],
)
def test_texts_with_character_set_binary(source: str, target: str, expected: bool) -> None:
    """A text type stands for the type of bytes that a server makes of it."""
    assert stores_otherwise(as_bytes(source), target) is expected
