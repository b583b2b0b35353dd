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

from bridge.rows.sql.members import UNSURE, member_names


class Fit(StrEnum):
    """Whether a type may hold every value of another."""

    NARROWER = "narrower"
    """Some values do not fit; the check of values finds these."""
    DIFFERENT = "different"
    """It would store some values as other values."""
    MAY_FIT = "may fit"


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
    hold; "" is a source that is not known."""
    upstream, here = _read(source), _read(target)
    families = _FAMILIES.get(upstream.word), _FAMILIES.get(here.word)
    if None in families:
        return Fit.MAY_FIT
    fits = _RULES.get(families)  # type: ignore[arg-type]  # neither family is None
    if fits is None or _changes_ends(upstream, here):
        return Fit.DIFFERENT
    outcome = fits(upstream, here)
    return outcome if isinstance(outcome, Fit) else Fit.MAY_FIT if outcome else Fit.NARROWER


def as_bytes(source: str) -> str:
    """Gives what a server makes of a text type that is declared with CHARACTER SET binary; any other type as it is."""
    return _TEXT_WORD.sub(lambda found: (found[1] or "") + _OF_BYTES[found[2].lower()], source, count=1)


_TEXT_WORD: Final = re.compile(r"^(var|tiny|medium|long)?(char|text)\b", re.IGNORECASE)
_OF_BYTES: Final = {"char": "binary", "text": "blob"}
_TYPE: Final = re.compile(r"\s*([a-z][a-z0-9_]*)(?:\s*\((.*)\))?([^()]*)", re.DOTALL | re.IGNORECASE)
_SIZES: Final = re.compile(r"\s*(\d{1,9})\s*(?:,\s*(\d{1,9})\s*)?")
_OTHER_WORDS: Final = {
    **{"integer": "int", "bool": "tinyint", "boolean": "tinyint", "real": "double"},
    **dict.fromkeys(("dec", "numeric", "fixed"), "decimal"),
}


def _read(text: str) -> _Type:
    found = _TYPE.fullmatch(text)
    if found is None:
        return _Type("", None, None, False, ())
    word, inside, behind = found[1].lower(), found[2] or "", (found[3] or "").lower()
    sizes = _SIZES.fullmatch(inside)
    size, scale = (int(sizes[1]), int(sizes[2]) if sizes[2] else None) if sizes else (None, None)
    members = tuple(member_names(inside))
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
_FLOAT_BITS: Final = {"float": 24, "double": 53}
_FLOAT_DIGITS: Final = {"float": 6, "double": 15}
"""The bits of an integer, and the decimal digits, that a float stores exactly."""
_LAST_YEAR: Final = 2155


class _Numbers(NamedTuple):
    """The numbers that a type holds: the least and the greatest whole number, and the digits of a fraction."""

    low: int
    high: int
    scale: int

    def hold(self, other: _Numbers) -> bool:
        """Tells whether all of another type's are among them."""
        return self.low <= other.low and other.high <= self.high and other.scale <= self.scale


def _numbers(of: _Type) -> _Numbers | None:
    """Gives the numbers of a type; None for a DECIMAL, FLOAT or BIT that names no size, and for a FLOAT of any."""
    if of.word in _BITS:
        bits = _BITS[of.word]
        return _Numbers(0, (1 << bits) - 1, 0) if of.unsigned else _Numbers(-(1 << bits - 1), (1 << bits - 1) - 1, 0)
    if of.word == "year":
        return _Numbers(0, _LAST_YEAR, 0)
    if of.size is None or (of.word in _FLOAT_BITS and of.scale is None):
        return None
    if of.word == "bit":
        return _Numbers(0, (1 << of.size) - 1, 0)
    high, scale = 10 ** max(0, of.size - (of.scale or 0)) - 1, of.scale or 0
    return _Numbers(0 if of.unsigned else -high, high, scale)


def _number_to_exact(source: _Type, target: _Type) -> bool:
    own = _numbers(target if target.size or target.word != "bit" else target._replace(size=1))
    numbers = _numbers(source)
    return numbers is None or own is None or own.hold(numbers)


def _number_to_float(source: _Type, target: _Type) -> bool:
    """TiCDC's Debezium does not say whether a DECIMAL is unsigned."""
    is_unsaid = source.word == "decimal" and source.size is None
    if target.unsigned and not source.unsigned and not is_unsaid:
        return False
    if source.word in _BITS:
        return _BITS[source.word] - (not source.unsigned) <= _FLOAT_BITS[target.word] and target.scale is None
    if source.word in _FLOAT_BITS:
        return _FLOAT_BITS[source.word] <= _FLOAT_BITS[target.word] and _number_to_exact(source, target)
    return target.scale is not None or (source.size or 0) <= _FLOAT_DIGITS[target.word]


def _changes_ends(source: _Type, target: _Type) -> bool:
    """Tells whether a column changes the ends of texts and bytes: CHAR loses blanks, and BINARY is padded."""
    if target.word == "binary" and source.word == "binary":
        return source.size not in {None, 1 if target.size is None else target.size}
    return target.word == "binary" or (target.word == "char" and source.word in _TEXTS - {"char"})


def _string_to_string(source: _Type, target: _Type) -> bool:
    """Compares the bytes, or characters, that the longest value has at least."""
    if source.word not in _BYTES and source.size is None:
        return True
    return _BYTES.get(source.word, source.size or 0) <= _BYTES.get(target.word, target.size or 1)


def _members(source: _Type, target: _Type) -> Fit | bool:
    """Compares the members of ENUM or SET, which must be in the same positions, as values may come as numbers.  It does
    not judge members that servers write differently: those with a backslash, or with a character that
    information_schema shows as a question mark."""
    if not source.members or UNSURE.search("".join((*source.members, *target.members))):
        return True
    common = min(len(source.members), len(target.members))
    return common == len(source.members) if source.members[:common] == target.members[:common] else Fit.DIFFERENT


def _to_datetime(source: _Type, target: _Type) -> bool:
    """Compares dates with times.  A TIMESTAMP in a DATETIME is stored in UTC, which may be intended."""
    return (target.word == "datetime" or source.word == "timestamp") and _fraction(source, target)


def _fraction(source: _Type, target: _Type) -> bool:
    return (source.size or 0) <= (target.size or 0)


def _any(source: _Type, target: _Type) -> bool:
    """Does not judge: all values fit, or they are checked one by one."""
    del source, target
    return True


_TEXTS: Final = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"))
_FAMILIES: Final = {
    **dict.fromkeys(_BITS, "integer"),
    **dict.fromkeys(_FLOAT_BITS, "float"),
    **dict.fromkeys(_TEXTS, "text"),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "binary"),
    **dict.fromkeys(("datetime", "timestamp"), "datetime"),
    **{word: word for word in ("decimal", "bit", "year", "enum", "set", "date", "time", "json", "vector")},
}
"""The family of each type; types of one family differ in width alone.  A type that is missing is not judged."""

_RULES: Final[dict[tuple[str, str], Callable[[_Type, _Type], Fit | bool]]] = {
    **{
        (source, target): _number_to_exact
        for source in ("integer", "decimal", "bit", "year")
        for target in ("integer", "decimal")
    },
    **{(source, "bit"): _number_to_exact for source in ("integer", "bit")},
    **{(source, "float"): _number_to_float for source in ("integer", "decimal", "float")},
    **{(source, target): _string_to_string for source in ("text", "binary") for target in (source, "binary")},
    ("text", "json"): lambda source, _: source.word == "longtext",  # MariaDB's JSON is a LONGTEXT
    **{(source, source): _members for source in ("enum", "set")},
    **{(source, "datetime"): _to_datetime for source in ("date", "datetime")},
    ("time", "time"): _fraction,
    **{(source, "text"): _any for source in ("enum", "set", "date", "datetime", "time", "vector")},
    **{(source, source): _any for source in ("year", "date", "json", "vector")},
    ("json", "text"): lambda _, target: target.word == "longtext",
    ("json", "binary"): lambda _, target: target.word == "longblob",
    **dict.fromkeys((("float", "decimal"), ("vector", "binary")), _any),
}
"""Tells by the families of both types whether values may fit; without a rule, they do not."""
