"""Numbers in JSON documents of Debezium's connector: a MySQL target holds the double that the upstream has."""

from __future__ import annotations

import random
import struct
from decimal import Decimal

import pytest

from bridge.protocols.debezium.columns import document
from tests.support.pipelines import admin


def plain(double: float) -> str:
    """As the connector writes it: all digits of its binary value."""
    return format(Decimal(double), "f")


@pytest.mark.parametrize(
    ("came", "written"),
    [
        (f'{{"a": {plain(1e100)}}}', '{"a": 1e100}'),
        (f"[{plain(-1e100)}, {plain(1e22)}]", "[-1e100, 1e22]"),
        (f"{plain(1e-05)}", "1e-5"),
        ("[18446744073709551615, -9223372036854775808]", "[18446744073709551615, -9223372036854775808]"),
        ("18446744073709551617", "18446744073709551617"),
        ("1234567890123456789012345678.5", "1234567890123456789012345678.5"),
        ("0.30000000000000004", "0.30000000000000004"),
        (f'{{"{10**30}": "{10**30}"}}', f'{{"{10**30}": "{10**30}"}}'),
        (f'"\\\\\\"{10**30}"', f'"\\\\\\"{10**30}"'),
        (f"1{'0' * 400}", f"1{'0' * 400}"),
        (f"1{'0' * 9000}", f"1{'0' * 9000}"),
        (f"{plain(1e30)}e5", f"{plain(1e30)}e5"),
    ],
)
def test_what_is_written(came: str, written: str) -> None:
    """Only a number that is exactly a double, with more digits than it needs; nothing within strings and keys, no
    integer of 64 bits, no DECIMAL that a double would round."""
    assert document(came) == "'" + written.replace("\\", "\\\\") + "'"


def test_mysql_reads_the_same_double(mysql_target: str) -> None:
    """Nearly every one; as the connector writes them, it reads every second one otherwise."""
    bits = random.Random(11)
    drawn = (struct.unpack("<d", struct.pack("<Q", bits.getrandbits(64)))[0] for _ in range(400))
    doubles = [1e100, 1e22, 2.0**64, 1e-5, *(one for one in drawn if 1e-300 < abs(one) < 1e308)]
    with admin(mysql_target) as session:
        session.execute("CREATE DATABASE d")
        session.execute("CREATE TABLE d.t (id INT PRIMARY KEY, j JSON)")
        rows = ",".join(f"({number}, {document(plain(one))})" for number, one in enumerate(doubles))
        session.execute(f"INSERT INTO d.t VALUES {rows}")
        read = [float(text) for (text,) in session.rows("SELECT CAST(j AS CHAR) FROM d.t ORDER BY id")]
    assert read[:4] == doubles[:4]
    assert sum(one != other for one, other in zip(read, doubles, strict=True)) <= len(doubles) // 100
