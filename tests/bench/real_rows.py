"""Rows as shops have them: 20 tables of 12 to 40 columns, 300 to 3,000 bytes a row, and one row of a hundred larger.

JSON documents, texts with quotes, newlines, backslashes and many scripts, NULLs, decimals, datetimes with fractions,
enums, and a blob in one row of ten.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Final

from bridge.demo.model import BankColumn, BankRow, Value

_NAMES: Final = (
    *("orders", "order_lines", "payments", "shipments", "customers", "addresses", "products", "prices", "stock"),
    *("carts", "cart_lines", "sessions", "page_views", "events", "coupons", "reviews", "returns_", "invoices"),
    *("suppliers", "messages"),
)
_FEWEST, _MOST = 12, 40
_STATES: Final = ("new", "paid", "sent", "it's back", "lost")
_KINDS: Final = (
    *(("bigint", ""), ("varchar", "120"), ("decimal", "12,2"), ("datetime", "3"), ("json", ""), ("tinyint", "")),
    *(("enum", ",".join("'{}'".format(state.replace("'", "''")) for state in _STATES)), ("text", "")),
    *(("int", ""), ("varchar", "40"), ("datetime", "6"), ("varchar", "60")),
)
"""Of the columns after the key and the blob, in turn."""
_TEXTS: Final = (
    "plain words in a row that say nothing at all",
    'it\'s "quoted", twice: \'\' and ""',
    "two lines\nand a tab\there, then C:\\temp\\new",
    *("Grüße aus Köln, café, naïve, Ærøskøbing", "Привет, как дела? Заказ отправлен", "你好，世界。订单已发货"),
    *("こんにちは、ありがとうございます", "مرحبا بكم في المتجر", "नमस्ते, धन्यवाद", "😀 thanks 🎉 & <b>see you</b>"),
    "50 % off; DROP TABLE students; --",
    "https://shop.example/p/4711?a=1&b=2#top",
)
_DAY: Final = datetime(2024, 1, 1)
_PRIMES: Final = (1, 7919, 104729, 1299709, 15485863, 32452843, 49979687, 67867967)
LARGE: Final = 20_000
"""Characters more in one row of a hundred."""


def _columns(count: int) -> tuple[BankColumn, ...]:
    kinds = (_KINDS[number % len(_KINDS)] for number in range(count - 2))
    more = (BankColumn(f"c{n}", *kind, nullable=n % 3 > 0) for n, kind in enumerate(kinds, 1))
    return (BankColumn("id", "bigint", key="primary"), BankColumn("picture", "blob", nullable=True), *more)


TABLES: Final = {
    name: _columns(_FEWEST + number * (_MOST - _FEWEST) // (len(_NAMES) - 1)) for number, name in enumerate(_NAMES)
}
"""Table -> columns, the key first."""


INDEXES: Final = ("KEY by_c1 (c1)", "KEY by_c2 (c2, c4)")
"""Of every table: on the first number, and on the first text with the first time."""


def row(columns: tuple[BankColumn, ...], key: int, number: int) -> BankRow:
    """The row that a key and a random number of 64 bits make."""
    cells = (_cell(column, number * _PRIMES[at % len(_PRIMES)] + at * 977) for at, column in enumerate(columns[2:]))
    blob = random.Random(number).randbytes(200).decode("latin-1") if number % 10 == 0 else None
    return (key, blob, *_enlarged(list(cells), number))


def _enlarged(cells: list[Value], number: int) -> list[Value]:
    if number % 100 == 1:
        cells[7] = 'long and "quoted" ' * (LARGE // 18)
    return cells


def _cell(column: BankColumn, number: int) -> Value:
    if column.nullable and number % 7 == 0:
        return None
    match column.mysql_type:
        case "bigint" | "int":
            return number % 2_000_000_011
        case "tinyint":
            return number % 128
        case "decimal":
            return Decimal(number % 1_000_000_007).scaleb(-2)
        case "datetime":
            return _moment(number % 86_400_000_000, int(column.size))
        case "enum":
            return _STATES[number % len(_STATES)]
        case "json":
            return _document(number)
        case "varchar":
            return f"{_TEXTS[number % len(_TEXTS)]} {number % 100_003}"[: int(column.size)]
        case _:
            return " / ".join(_TEXTS[(number >> shift) % len(_TEXTS)] for shift in range(0, 4 + number % 5, 2))


def _moment(microseconds: int, digits: int) -> datetime:
    return _DAY + timedelta(microseconds=microseconds - microseconds % 10 ** (6 - digits))


def _document(number: int) -> str:
    """As TiDB prints it."""
    tags = ", ".join(f'"{tag}"' for tag in ("sale", "new", "b2b")[: number % 4])
    said = 'it\'s \\"fine\\"\\n' if number % 3 else "gut für 你好"
    return (
        f'{{"amount": {number % 9973}.5, "said": "{said}", "tags": [{tags}], "to": {{"zip": "{number % 99991:05d}"}}}}'
    )


def printed(row: BankRow) -> Iterator[bytes]:
    """The values as the server prints them, without the NULLs, by the form of the column."""
    columns = _by_width()[len(row)]
    return (_printed(column, value) for column, value in zip(columns, row, strict=True) if value is not None)


@lru_cache(maxsize=1)
def _by_width() -> dict[int, tuple[BankColumn, ...]]:
    return {len(columns): columns for columns in TABLES.values()}


def _printed(column: BankColumn, value: Value) -> bytes:
    if column.mysql_type == "blob":
        return str(value).encode("latin-1")
    if isinstance(value, datetime):
        return value.isoformat(" ", "microseconds")[: 20 + int(column.size)].encode()
    return str(value).encode()
