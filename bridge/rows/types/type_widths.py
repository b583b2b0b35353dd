"""Tells whether a column of the target can hold all values of a column of the upstream's type.

Types are written as servers write them: ``decimal(10,2) unsigned``.  Messages leave details out (most of TiCDC's name
no lengths).  The answer is NARROWER or DIFFERENT only if no column that the message could mean would fit, since a false
alarm stops a pipeline, and values are also checked one by one (`type_check`).  A type into which a rule for schema
changes turns another one (JSON or VECTOR to LONGTEXT) fits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple


class Fit(StrEnum):
    """Whether a type holds every value of another."""

    FITS = "fits"
    NARROWER = "narrower"
    """Some values do not fit; the check of values finds these."""
    DIFFERENT = "different"
    """It would store some values as other values."""
    UNKNOWN = "unknown"


class _Type(NamedTuple):
    """The parts of a type that matter for widths; `size` and `scale` are None where the type does not name them."""

    word: str
    size: int | None
    scale: int | None
    unsigned: bool
    members: tuple[str, ...]


@lru_cache(maxsize=4096)
def fit_of(source: str, target: str) -> Fit:
    """Tells whether a column of type `target` (information_schema's column_type) holds what one of type `source` can
    hold; UNKNOWN for a source of ""."""
    upstream, here = _read(source), _read(target)
    families = _FAMILIES.get(upstream.word), _FAMILIES.get(here.word)
    if None in families:
        return Fit.UNKNOWN
    rule = _RULES.get(families)  # type: ignore[arg-type]  # neither family is None
    return rule(upstream, here) if rule else Fit.DIFFERENT


def as_bytes(source: str) -> str:
    """Gives what a server makes of a text type that is declared with CHARACTER SET binary; any other type as it is."""
    return _TEXT_WORD.sub(lambda match: (match[1] or "") + _OF_BYTES[match[2].lower()], source, count=1)


_TEXT_WORD: Final = re.compile(r"^(var|tiny|medium|long)?(char|text)\b", re.IGNORECASE)
_OF_BYTES: Final = {"char": "binary", "text": "blob"}
_TYPE: Final = re.compile(r"\s*([a-z][a-z0-9_]*)(?:\s*\((.*)\))?([^()]*)", re.DOTALL | re.IGNORECASE)
_MEMBER: Final = re.compile(r"'((?:[^']|'')*)'")
_SIZES: Final = re.compile(r"\s*(\d{1,9})\s*(?:,\s*(\d{1,9})\s*)?")
_OTHER_WORDS: Final = {
    **{"integer": "int", "bool": "tinyint", "boolean": "tinyint", "real": "double"},
    **dict.fromkeys(("dec", "numeric", "fixed"), "decimal"),
}


def _read(text: str) -> _Type:
    match = _TYPE.fullmatch(text)
    if match is None:
        return _Type("", None, None, False, ())
    word, inside, behind = match[1].lower(), match[2] or "", (match[3] or "").lower()
    sizes = _SIZES.fullmatch(inside)
    size, scale = (int(sizes[1]), int(sizes[2]) if sizes[2] else None) if sizes else (None, None)
    members = tuple(name.replace("''", "'") for name in _MEMBER.findall(inside))
    return _Type(
        _OTHER_WORDS.get(word, word),
        size,
        scale,
        "unsigned" in behind or "zerofill" in behind,
        () if sizes else members,
    )


_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_BYTES: Final = {
    **{"tinytext": 255, "text": 65535, "mediumtext": (1 << 24) - 1, "longtext": (1 << 32) - 1},
    **{"tinyblob": 255, "blob": 65535, "mediumblob": (1 << 24) - 1, "longblob": (1 << 32) - 1},
}
_VECTOR_BYTES: Final = 1 << 20
"""The longest text of a vector: 16,383 numbers of 32 bits."""
_FLOAT_BITS: Final = {"float": 24, "double": 53}
_FLOAT_DIGITS: Final = {"float": 6, "double": 15}
"""The bits of an integer, and the decimal digits, that a float stores exactly."""
_CHARACTER_BYTES: Final = 4


def _sure(fits: bool) -> Fit:
    return Fit.FITS if fits else Fit.NARROWER


def _maybe(may_fit: bool) -> Fit:
    return Fit.UNKNOWN if may_fit else Fit.NARROWER


def _same(size: int, target_size: int) -> Fit:
    return Fit.FITS if size == target_size else Fit.DIFFERENT


def _bounds(of: _Type) -> tuple[int, int]:
    """Gives the least and the greatest integer of an integer type."""
    bits = _BITS[of.word]
    return (0, (1 << bits) - 1) if of.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _holds_sign(source: _Type, target: _Type) -> bool:
    """Tells whether no value is lost because of its sign.  TiCDC's Debezium does not say whether a DECIMAL is
    unsigned."""
    has_unknown_sign = source.word == "decimal" and source.size is None
    return source.unsigned or not target.unsigned or has_unknown_sign


def _integer_to_integer(source: _Type, target: _Type) -> Fit:
    (low, high), (least, most) = _bounds(source), _bounds(target)
    return _sure(least <= low and high <= most)


def _whole_digits(of: _Type) -> int | None:
    return None if of.size is None else of.size - (of.scale or 0)


def _integer_to_decimal(source: _Type, target: _Type) -> Fit:
    digits = _whole_digits(target) or 0
    return _sure(len(str(_bounds(source)[1])) <= digits and _holds_sign(source, target))


def _integer_to_float(source: _Type, target: _Type) -> Fit:
    bits = _BITS[source.word] - (not source.unsigned)
    return _sure(bits <= _FLOAT_BITS[target.word] and target.scale is None and _holds_sign(source, target))


def _integer_to_bit(source: _Type, target: _Type) -> Fit:
    return _sure(source.unsigned and _BITS[source.word] <= (target.size or 1))


def _decimal_to_integer(source: _Type, target: _Type) -> Fit:
    digits = _whole_digits(source)
    if digits is None:
        return _maybe(_holds_sign(source, target))
    return _sure(not source.scale and 10**digits - 1 <= _bounds(target)[1] and _holds_sign(source, target))


def _decimal_to_decimal(source: _Type, target: _Type) -> Fit:
    digits, target_digits = _whole_digits(source), _whole_digits(target)
    if not _holds_sign(source, target):
        return Fit.NARROWER
    if digits is None or target_digits is None:
        return Fit.UNKNOWN
    return _sure(digits <= target_digits and (source.scale or 0) <= (target.scale or 0))


def _decimal_to_float(source: _Type, target: _Type) -> Fit:
    if source.size is None or target.scale is not None:
        return _maybe(_holds_sign(source, target))
    return _sure(source.size <= _FLOAT_DIGITS[target.word] and _holds_sign(source, target))


def _float_to_float(source: _Type, target: _Type) -> Fit:
    if _FLOAT_BITS[source.word] > _FLOAT_BITS[target.word] or not _holds_sign(source, target):
        return Fit.NARROWER
    if target.scale is None:
        return Fit.FITS
    return Fit.UNKNOWN if source.scale is None else _decimal_to_decimal(source, target)


def _bit_to_bit(source: _Type, target: _Type) -> Fit:
    return Fit.UNKNOWN if source.size is None else _sure(source.size <= (target.size or 1))


def _bit_to_integer(source: _Type, target: _Type) -> Fit:
    return Fit.UNKNOWN if source.size is None else _sure((1 << source.size) - 1 <= _bounds(target)[1])


def _year_to_integer(source: _Type, target: _Type) -> Fit:
    del source
    return _sure(_BITS[target.word] > 8)


def _shortest(of: _Type) -> int:
    """Gives the least number of bytes or characters that the longest value has."""
    return _BYTES.get(of.word, of.size or 0)


def _longest(of: _Type) -> int | None:
    """Gives the most bytes that the longest value may have; None when that is not known."""
    if of.word in _BYTES or of.size is None:
        return _BYTES.get(of.word)
    return of.size * (_CHARACTER_BYTES if of.word in {"char", "varchar"} else 1)


def _string_to_string(source: _Type, target: _Type) -> Fit:
    """Compares texts with texts, binary strings with binary strings; CHAR loses blanks at the end, and BINARY is
    padded."""
    ends = {"char": "char", "binary": "binary"}.get(target.word)
    if ends and source.word != ends:
        return Fit.DIFFERENT
    if target.word == "binary":
        return Fit.UNKNOWN if source.size is None else _same(source.size, target.size or 1)
    if target.word in _BYTES:
        room, longest = _BYTES[target.word], _longest(source)
        return Fit.FITS if longest is not None and longest <= room else _maybe(_shortest(source) <= room)
    if source.word not in _BYTES and source.size is None:
        return Fit.UNKNOWN
    return _sure(_shortest(source) <= (target.size or 1))


def _text_to_binary(source: _Type, target: _Type) -> Fit:
    room = _BYTES.get(target.word, target.size or 1)
    return Fit.DIFFERENT if target.word == "binary" else _maybe(_shortest(source) <= room)


def _text_to_json(source: _Type, target: _Type) -> Fit:
    """Treats a LONGTEXT as MariaDB's JSON, which is a LONGTEXT."""
    del target
    return _maybe(source.word == "longtext")


def _members(source: _Type, target: _Type) -> Fit:
    """Compares the members of ENUM or SET, which must be in the same positions, as values may come as numbers.  It does
    not judge members that servers write differently: those with a backslash, or with a character that
    information_schema shows as a question mark."""
    if not source.members or _ODD.search("".join((*source.members, *target.members))):
        return Fit.UNKNOWN
    common = min(len(source.members), len(target.members))
    if source.members[:common] != target.members[:common]:
        return Fit.DIFFERENT
    return _sure(common == len(source.members))


_ODD: Final = re.compile("[\\\\?\U00010000-\U0010ffff]")


def _to_date(source: _Type, target: _Type) -> Fit:
    del target
    return _sure(source.word == "date")


def _to_datetime(source: _Type, target: _Type) -> Fit:
    """Compares dates with times.  A TIMESTAMP in a DATETIME is stored in UTC, which may be intended."""
    if source.word == "date":
        return _sure(target.word == "datetime")
    if target.word == "timestamp" and source.word == "datetime":
        return Fit.NARROWER
    return _fraction(source, target)


def _fraction(source: _Type, target: _Type) -> Fit:
    if (source.size or 0) > (target.size or 0):
        return Fit.NARROWER
    is_sure = source.word == target.word and (source.size is not None or target.size == _MOST_FRACTION)
    return Fit.FITS if is_sure else Fit.UNKNOWN


_MOST_FRACTION: Final = 6


def _json_to_string(source: _Type, target: _Type) -> Fit:
    del source
    return Fit.FITS if target.word == "longtext" else _maybe(target.word == "longblob")


def _vector_to_string(source: _Type, target: _Type) -> Fit:
    del source
    return Fit.FITS if _BYTES.get(target.word, 0) >= _VECTOR_BYTES else Fit.UNKNOWN


def _always(source: _Type, target: _Type) -> Fit:
    del source, target
    return Fit.FITS


def _unjudged(source: _Type, target: _Type) -> Fit:
    """Does not judge: values are checked one by one."""
    del source, target
    return Fit.UNKNOWN


_FAMILIES: Final = {
    **dict.fromkeys(_BITS, "integer"),
    **dict.fromkeys(_FLOAT_BITS, "float"),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), "text"),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "binary"),
    **dict.fromkeys(("datetime", "timestamp"), "datetime"),
    **{word: word for word in ("decimal", "bit", "year", "enum", "set", "date", "time", "json", "vector")},
}
"""The family of each type; types of one family differ in width alone.  A type that is missing is not judged."""

_FitRule = Callable[[_Type, _Type], Fit]
_RULES: Final[dict[tuple[str, str], _FitRule]] = {
    ("integer", "integer"): _integer_to_integer,
    ("integer", "decimal"): _integer_to_decimal,
    ("integer", "float"): _integer_to_float,
    ("integer", "bit"): _integer_to_bit,
    ("decimal", "decimal"): _decimal_to_decimal,
    ("decimal", "integer"): _decimal_to_integer,
    ("decimal", "float"): _decimal_to_float,
    ("float", "float"): _float_to_float,
    ("float", "decimal"): _unjudged,
    ("bit", "bit"): _bit_to_bit,
    ("bit", "integer"): _bit_to_integer,
    ("bit", "decimal"): _unjudged,
    ("year", "year"): _always,
    ("year", "integer"): _year_to_integer,
    ("year", "decimal"): _unjudged,
    ("text", "text"): _string_to_string,
    ("text", "binary"): _text_to_binary,
    ("text", "json"): _text_to_json,
    ("binary", "binary"): _string_to_string,
    ("enum", "enum"): _members,
    ("enum", "text"): _unjudged,
    ("set", "set"): _members,
    ("set", "text"): _unjudged,
    ("date", "date"): _to_date,
    ("date", "datetime"): _to_datetime,
    ("date", "text"): _unjudged,
    ("datetime", "datetime"): _to_datetime,
    ("datetime", "text"): _unjudged,
    ("time", "time"): _fraction,
    ("time", "text"): _unjudged,
    ("json", "json"): _always,
    ("json", "text"): _json_to_string,
    ("json", "binary"): _json_to_string,
    ("vector", "vector"): _always,
    ("vector", "text"): _vector_to_string,
    ("vector", "binary"): _vector_to_string,
}
"""The rules by the families of both types; without a rule, the types do not fit."""
