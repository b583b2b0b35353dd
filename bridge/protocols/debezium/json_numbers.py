"""Writes numbers in JSON documents so that a server reads the number that the upstream has.

Debezium's connector for MySQL takes a document out of the binlog and writes a DOUBLE in it with all digits of its
binary value: 1e100 has 101 of them (mysql-binlog-connector, JsonStringFormatter).  MySQL reads numbers of many digits
inexactly: of those digits it makes 1.0000000000000006e100 (RapidJSON without full precision, which `_mysql_reads`
follows).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from bridge.protocols.values import literals

_MANY_DIGITS: Final = re.compile("[0-9][0-9.]{17}")
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9]+(?:[.][0-9]+)?(?![0-9.eE])')
_EXACT_DIGITS: Final = 17
"""A text of so many digits may be another number than the double that is nearest to it."""
_LONGEST: Final = 1100
"""No double has more digits."""
_INTEGERS: Final = range(-(1 << 63), 1 << 64)
"""Integers that servers store as such."""
_LARGEST_POWER: Final = 308
_STEPS: Final = (0, 1, -1, 2, -2, 3, -3)


def document(value: str) -> str:
    """Converts a JSON document."""
    if type(value) is str and _MANY_DIGITS.search(value):
        value = _TOKEN.sub(lambda match: _number(match[0]), value)
    return literals.text(value)


def _number(token: str) -> str:
    if (
        token[0] == '"'
        or not _EXACT_DIGITS < len(token) < _LONGEST
        or (token.lstrip("-").isdigit() and int(token) in _INTEGERS)
    ):
        return token
    double = float(token)
    if Decimal(token) != Decimal(double):  # a DECIMAL of the upstream, which no double holds, or beyond all doubles
        return token
    return next((text for text in _spellings(double) if _mysql_reads(text) == double), repr(double))


def _spellings(double: float) -> Iterator[str]:
    """Yields texts that are close to a double: the shortest, then integers of 15 to 19 digits with an exponent."""
    _, digits, exponent = Decimal(repr(double)).as_tuple()
    shortest = int("".join(map(str, digits)))
    sign = "-" if double < 0 else ""
    yield f"{sign}{shortest}e{exponent}"
    first = len(digits) + int(exponent)
    for size in range(15, 20):
        near = int(Decimal(abs(double)).scaleb(size - first).to_integral_value())
        unit = 1 << max(0, near.bit_length() - sys.float_info.mant_dig)
        for steps in _STEPS:
            yield f"{sign}{near + steps * unit}e{first - size}"


def _mysql_reads(text: str) -> float:
    """Returns the number that MySQL makes of an integer with an exponent."""
    digits, _, power = text.partition("e")
    exponent, number = int(power), float(int(digits))
    if exponent < -_LARGEST_POWER:
        number, exponent = number / float(f"1e{_LARGEST_POWER}"), exponent + _LARGEST_POWER
    return number * float(f"1e{exponent}") if exponent >= 0 else number / float(f"1e{-exponent}")
