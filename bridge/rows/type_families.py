"""Tells whether a column of the target would store values of the upstream's type as other values.

Types are written as servers write them: ``decimal(10,2) unsigned``.  Messages leave details out (most of TiCDC's name
no lengths).  The answer is yes only if no column that the message could mean would keep its values, since a false
alarm stops a pipeline.  Widths are not compared: every value is checked (`type_check`), and a strict server refuses
those that are too long or out of range.  A type into which a rule for schema changes turns another one (JSON or VECTOR
to LONGTEXT) keeps its values.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from bridge.rows.sql.members import UNSURE, member_names


class _Type(NamedTuple):
    """The parts of a type that matter.  size: None where the type names none."""

    word: str
    size: int | None
    members: tuple[str, ...]


@lru_cache(maxsize=4096)
def stores_otherwise(source: str, target: str) -> bool:
    """Tells whether a column of type `target` (information_schema's column_type) would store some value of one of type
    `source` as another value; "" is a source that is not known."""
    upstream, here = _read(source), _read(target)
    families = _FAMILIES.get(upstream.word), _FAMILIES.get(here.word)
    if None in families:
        return False
    if families not in _KEPT:
        return True
    if here.word == "binary":  # which is padded
        return upstream.word != "binary" or upstream.size not in {None, here.size}
    if here.word == "timestamp":  # of which other sessions see another time
        return upstream.word != "timestamp"
    if families == ("text", "json"):  # which servers write in their own way; MariaDB's JSON is a LONGTEXT
        return upstream.word != "longtext"
    return bool(upstream.members) and _have_other_places(upstream.members, here.members)


def _have_other_places(source: tuple[str, ...], target: tuple[str, ...]) -> bool:
    """Tells whether members of ENUM or SET are in other places, as values may come as numbers.  It does not judge
    members that servers write differently: those with a backslash, or with a character that information_schema shows as
    a question mark."""
    pairs = zip(source, target, strict=False)
    return not UNSURE.search("".join((*source, *target))) and any(member != other for member, other in pairs)


def as_bytes(source: str) -> str:
    """Gives what a server makes of a text type that is declared with CHARACTER SET binary; any other type as it is."""
    return _TEXT_WORD.sub(lambda match: (match[1] or "") + _OF_BYTES[match[2].lower()], source, count=1)


_TEXT_WORD: Final = re.compile(r"^(var|tiny|medium|long)?(char|text)\b", re.IGNORECASE)
_OF_BYTES: Final = {"char": "binary", "text": "blob"}
_TYPE: Final = re.compile(r"\s*([a-z][a-z0-9_]*)(?:\s*\((.*)\))?[^()]*", re.DOTALL | re.IGNORECASE)
_OTHER_WORDS: Final = {
    **{"integer": "int", "bool": "tinyint", "boolean": "tinyint", "real": "double"},
    **dict.fromkeys(("dec", "numeric", "fixed"), "decimal"),
}


def _read(text: str) -> _Type:
    match = _TYPE.fullmatch(text)
    if match is None:
        return _Type("", None, ())
    word, inside = match[1].lower(), match[2] or ""
    return _Type(_OTHER_WORDS.get(word, word), int(inside) if inside.isdecimal() else None, tuple(member_names(inside)))


_FAMILIES: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), "integer"),
    **dict.fromkeys(("float", "double"), "float"),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), "text"),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "binary"),
    **dict.fromkeys(("datetime", "timestamp"), "datetime"),
    **{word: word for word in ("decimal", "bit", "year", "enum", "set", "date", "time", "json", "vector")},
}
"""The family of each type; types of one family differ in width alone.  A type that is missing is not judged."""
_KEPT: Final = {
    *((source, target) for source in ("integer", "decimal", "bit", "year") for target in ("integer", "decimal")),
    *((source, "bit") for source in ("integer", "bit")),
    *((source, "float") for source in ("integer", "decimal", "float")),
    *((source, "text") for source in ("text", "enum", "set", "date", "datetime", "time", "vector", "json")),
    *((source, "binary") for source in ("text", "binary", "vector", "json")),
    *((source, "datetime") for source in ("date", "datetime")),
    *((source, source) for source in ("year", "enum", "set", "date", "time", "json", "vector")),
    *(("float", "decimal"), ("text", "json")),
}
"""The families of two types of which the second may keep the values of the first."""
