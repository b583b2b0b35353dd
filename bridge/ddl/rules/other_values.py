"""Finds statements that give rows which are there other values on the target than upstream; no message tells those."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.classes import StatementKind
from bridge.ddl.clauses import ADDS_COLUMN, Item, StatementParts, at, span_of, with_depth
from bridge.ddl.lexer import Token
from bridge.ddl.rule import Edit, Omission, Site, UnsupportedError, former_definition, former_name
from bridge.ddl.server_features import Feature, Flavour
from bridge.quoting import quote_name

_COUNTING: Final = frozenset({"AUTO_INCREMENT", "SERIAL"})
_OTHER_EACH_TIME: Final = frozenset(
    {
        *("RAND", "RANDOM_BYTES", "UUID", "UUID_SHORT", "UUID_V4", "UUID_V7", "SYS_GUID", "NEXTVAL", "LASTVAL"),
        *("CONNECTION_ID", "LAST_INSERT_ID", "USER", "CURRENT_USER", "SESSION_USER", "SYSTEM_USER", "SYSDATE"),
    }
)
"""Functions that give a server's rows other values than another server's."""


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


_INTEGERS: Final = r"(?:tiny|small|medium|big)?int(?:eger)?\b"
_FRACTIONS: Final = r"(?:float|double|real|dec(?:imal)?|numeric|fixed)\b"
_SCALED: Final = r"(?:float|double(?:\s+precision)?|real)\s*\(\s*\d+\s*,"
_CHARS: Final = r"(?:n?(?:var)?char(?:acter)?|(?:tiny|medium|long)?text)\b"
_BYTES: Final = r"(?:(?:var)?binary|(?:tiny|medium|long)?blob)\b"
_TEXTS: Final = rf"(?:{_CHARS}|{_BYTES}|(?:long|enum|set)\b)"


class _Conversion(NamedTuple):
    """A change of a column's type in which one flavour makes other values than the others.

    was: matches the definition of the column; becomes: its new one, from the type on.
    where: the condition of the rows that get other values; {} stands for the column.
    """

    was: re.Pattern[str]
    becomes: re.Pattern[str]
    flavour: Flavour
    where: str = "TRUE"


_CONVERSIONS: Final = (
    # Of a FLOAT 16777216 or 16777200; all digits or 1e20; of a YEAR 0 or 0000; 7 or 0007.
    _Conversion(_pattern(r"(?:float|double|year)\b|[^']*\bzerofill\b"), _pattern(_TEXTS), Flavour.TIDB),
    # The same in a document; 0 or 0.0.
    _Conversion(_pattern(_FRACTIONS), _pattern(r"json\b"), Flavour.TIDB),
    # 2.675 is rounded to 2.68 or to 2.67, or is left as it is.
    _Conversion(_pattern(""), _pattern(_SCALED), Flavour.TIDB),
    # The number in digits, or the bytes.
    _Conversion(_pattern(r"bit\b"), _pattern(r"(?:tiny|medium|long)?(?:text|blob)\b"), Flavour.TIDB),
    # TiDB keeps latin1 as UTF-8.
    _Conversion(
        _pattern(_CHARS),
        _pattern(rf"(?:{_BYTES}|.*\b(?:character\s+set|charset)\s+binary\b)"),
        Flavour.TIDB,
        "CHARSET({0}) = 'latin1' AND CHAR_LENGTH({0}) < LENGTH(CONVERT({0} USING utf8mb4))",
    ),
    # Members in another order, 1 or 1.0, a text as it came.
    *(
        _Conversion(_pattern(r"json\b|longtext\b.*\bjson_valid\("), _pattern(_TEXTS), flavour)
        for flavour in (Flavour.MARIADB, Flavour.TIDB)
    ),
    # The text true, or a time in a text, is 0 where the mode is not strict.
    _Conversion(
        _pattern(r"json\b"),
        _pattern(rf"(?:{_INTEGERS}|{_FRACTIONS}|(?:bit|year|date|datetime|timestamp|time)\b)"),
        Flavour.TIDB,
        "CAST({0} AS CHAR) NOT REGEXP '^-?[0-9]{1,18}$'",
    ),
    # All digits, or those of a DOUBLE.
    _Conversion(_pattern(_FRACTIONS), _pattern(r"json\b"), Flavour.MARIADB, "CHAR_LENGTH(CAST({0} AS CHAR)) > 15"),
    # TiDB takes the day from its clock, whatever the time of the session.
    _Conversion(_pattern(r"time\b"), _pattern(r"(?:date|datetime|timestamp)\b"), Flavour.TIDB),
    # The fraction is rounded to the next day, or cut.
    _Conversion(_pattern(r"(?:datetime|timestamp|time)\([1-6]\)"), _pattern(r"date\b"), Flavour.MYSQL),
    # Half a second below nothing is rounded down or up.
    _Conversion(
        _pattern(r"time\([1-6]\)"),
        _pattern(r"time\b"),
        Flavour.TIDB,
        "{0} < '00:00:00' AND MICROSECOND({0}) REGEXP '50*$'",
    ),
    # The tenth of no month is 240 hours or none.
    _Conversion(
        _pattern(r"date\b"),
        _pattern(r"time\b"),
        Flavour.MYSQL,
        "YEAR({0}) > 0 AND (MONTH({0}) = 0 OR DAYOFMONTH({0}) = 0)",
    ),
    # A day is its year, or 0 where the mode is not strict.
    _Conversion(_pattern(r"(?:date|datetime|timestamp)\b"), _pattern(r"year\b"), Flavour.MYSQL),
    # The fraction is cut, or rounded; to 60 seconds or to the next minute.
    _Conversion(
        _pattern(r"(?:datetime|timestamp|time)\([1-6]\)"), _pattern(rf"(?:{_INTEGERS}|bit\b)"), Flavour.MARIADB
    ),
    _Conversion(_pattern(r"(?:datetime|timestamp|time)\([1-6]\)"), _pattern(_INTEGERS), Flavour.TIDB),
    # The largest number, or the least.
    _Conversion(
        _pattern(r"(?:float|double)\b"), _pattern(r"(?:bigint|bit)\b"), Flavour.MYSQL, "ABS({0}) >= 9223372036854775807"
    ),
    # MySQL looks for a member of that name first.
    _Conversion(_pattern(rf"(?:{_INTEGERS}|year\b)"), _pattern(r"enum\b.*'[\d.]+'"), Flavour.MYSQL),
    # 1.5 is the year 2001 or 2002, 00:20:24 the year 0 or 2024.
    _Conversion(_pattern(r"(?:float|double|time)\b"), _pattern(r"year\b"), Flavour.MARIADB),
    # The highest bit is a sign or not.
    _Conversion(
        _pattern(r"bit\(64\)"), _pattern(r"(?:float|double|real)\b"), Flavour.MARIADB, "{0} >= 9223372036854775808"
    ),
    # Numbers that are no time: 00:00:00, 838:59:59 or NULL.
    *(
        _Conversion(_pattern(rf"(?:{_INTEGERS}|{_FRACTIONS})"), _pattern(r"time\b"), flavour, "ABS({0}) > 8385959")
        for flavour in (Flavour.MARIADB, Flavour.TIDB)
    ),
    # Without the strict mode MySQL has no number 1.5 of a member.
    _Conversion(_pattern(_FRACTIONS), _pattern(r"(?:enum|set)\b"), Flavour.MYSQL),
    _Conversion(_pattern(r"[^']*\bzerofill\b"), _pattern(r"(?:date|datetime|timestamp)\b"), Flavour.MYSQL),
    # Without the strict mode MariaDB ends at the first character that is no digit.
    _Conversion(
        _pattern(rf"(?:{_CHARS}|json\b)"),
        _pattern(rf"(?:{_INTEGERS}|bit\b|dec|numeric|fixed)"),
        Flavour.MARIADB,
        "CAST({0} AS CHAR) NOT REGEXP '^-?[0-9]{1,18}$'",
    ),
    # A zone behind the time, a T before it, 1e2.
    *(
        _Conversion(
            _pattern(_CHARS),
            _pattern(r"(?:time|datetime|timestamp|year)\b"),
            flavour,
            "CAST({0} AS CHAR) REGEXP '[^-0-9:. ]|^-0'",
        )
        for flavour in (Flavour.MARIADB, Flavour.TIDB)
    ),
)


class _Shortened(NamedTuple):
    """A value that becomes a time, and may have more digits of a fraction than that has.  MariaDB cuts them off, other
    servers round; some can be told to do what the upstream does (Feature.FRACTION_MODE).

    where: as of a conversion; {1} stands for so many microseconds as the time cannot have a part of.
    """

    was: re.Pattern[str]
    where: str


_FRACTION_DIGITS: Final = 6
_MOMENT: Final = _pattern(r"(?:datetime|timestamp|time)\b(?:\s*\(\s*(\d)\s*\))?")
_SHORTENED: Final = (
    _Shortened(_pattern(r"(?:datetime|timestamp|time)\([1-6]\)"), "MICROSECOND({0}) MOD {1} <> 0"),
    _Shortened(_pattern(_FRACTIONS), "{0} <> FLOOR({0})"),
    _Shortened(_pattern(rf"(?:{_CHARS}|json\b)"), "INSTR(CAST({0} AS CHAR), '.') > 0"),
)


class _Default(NamedTuple):
    """A default of which one flavour gives the rows that are there another value than the others do.

    kind: matches the definition of the column from its type on; value: from its default on.
    """

    kind: re.Pattern[str]
    value: re.Pattern[str]
    flavour: Flavour


_DEFAULTS: Final = (
    # 2.675 is rounded to 2.68 or to 2.67.
    _Default(_pattern(_SCALED), _pattern(r"['-]*\d*\.\d"), Flavour.TIDB),
    # Bytes that are no UTF-8 become U+FFFD.
    _Default(
        _pattern(r"(?:var)?(?:char|binary)\b"),
        _pattern(r"(?:0x|x')[\da-f]*[89a-f][\da-f](?:[\da-f]{2})*\b|(?:0b|b')[01]*1[01]{7}(?:[01]{8})*\b"),
        Flavour.TIDB,
    ),
    # The fraction is cut, or rounded to the next day.
    _Default(_pattern(r"date\b"), _pattern(r"'[^']*\.\d"), Flavour.MARIADB),
)


class _OtherValues(NamedTuple):
    """What the target makes of a column otherwise than the upstream.

    where: the condition of the rows that get other values; why: says so, and what to do.
    """

    where: str
    why: str


def refuse_other_values(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Refuses an ALTER TABLE that gives rows which are there other values than the upstream's, which no message
    tells."""
    if site.is_approved or statement.classified.kind is not StatementKind.ALTER_TABLE:
        return
    for look in (_values_of_their_own, _other_conversion, _other_default):
        for item in statement.items:
            found = look(item, statement, site)
            if found and site.around.has_rows(statement.classified.tables[0], found.where):
                raise UnsupportedError(found.why)
    yield from ()


def _values_of_their_own(item: Item, statement: StatementParts, site: Site) -> _OtherValues | None:
    """Finds a column for which each server makes up the values: it numbers rows in the order in which it keeps them, or
    asks a function."""
    word = _made_up(item.definition) if item.change in ADDS_COLUMN else ""
    where = _rows_it_fills(item, statement, site) if word else ""
    if not where:
        return None
    return _OtherValues(
        where,
        f"each server makes up its own values of {item.definition[0].text} ({word}) for the rows that are there: add"
        " the column with the values that the upstream's rows have, then skip the statement; or approve it if they will"
        " be the same",
    )


def _other_default(item: Item, statement: StatementParts, site: Site) -> _OtherValues | None:
    """Finds a new column with a default of which the target makes another value."""
    if item.change is not C.ADD_COLUMN:
        return None
    column, kind = item.definition, _text_from(statement, item.definition[1:])
    values = [_text_from(statement, column[i + 1 :]) for i, t, d in with_depth(column) if (t.word, d) == ("DEFAULT", 0)]
    some = [one for one in _DEFAULTS if _is_apart(one.flavour, site) and one.kind.match(kind)]
    if not any(one.value.match(value) for one in some for value in values):
        return None
    return _OtherValues(
        "TRUE",
        f"the target gives the rows that are there other values of {column[0].text} than the upstream: add the column"
        " with the values that the upstream's rows have, then skip the statement; or approve it, and have bridge verify"
        " --against upstream fix what differs",
    )


def _other_conversion(item: Item, statement: StatementParts, site: Site) -> _OtherValues | None:
    """Finds a change of a column's type of which the target makes other values."""
    column, becomes = item.definition, _text_from(statement, item.definition[1:])
    if item.change is not C.MODIFY_COLUMN or not column:
        return None
    some = list(_apart(becomes, site))
    was = former_definition(item, statement, site) if some else ""
    if not was or _type(was) == _type(becomes):
        return None
    name = quote_name(former_name(item))
    where = [condition.replace("{0}", name) for kind, condition in some if kind.match(was)]
    if not where:
        return None
    return _OtherValues(
        " OR ".join(where),
        f"the target makes other values of {column[0].text} than the upstream when it becomes {column[1].word}: alter"
        " the table by hand, with the upstream's values, and skip the statement; or approve it, and have bridge verify"
        " --against upstream fix what differs",
    )


def _apart(becomes: str, site: Site) -> Iterator[tuple[re.Pattern[str], str]]:
    """Gives what source and target make unlike values of when it becomes this: a definition, and a condition."""
    for one in _CONVERSIONS:
        if _is_apart(one.flavour, site) and one.becomes.match(becomes):
            yield one.was, one.where
    moment = _MOMENT.match(becomes)
    if moment and _is_apart(Flavour.MARIADB, site) and not site.target.has(Feature.FRACTION_MODE):
        unit = 10 ** (_FRACTION_DIGITS - int(moment[1] or 0))
        yield from ((one.was, one.where.replace("{1}", str(unit))) for one in _SHORTENED)


def _is_apart(flavour: Flavour, site: Site) -> bool:
    """Tells whether one of source and target is of that flavour, and the other is not."""
    source = Flavour(site.source.partition("-")[0])
    return (flavour is source) != (flavour is site.target.flavour)


def _text_from(statement: StatementParts, found: Sequence[Token]) -> str:
    return statement.text[slice(*span_of(found))] if found else ""


def _type(definition: str) -> str:
    """Gives the type with its length, as in double(9,2)."""
    found = re.match(r"\w+(?:\s*\([^)]*\))?", definition)
    return "".join(found[0].lower().split()) if found else ""


def _rows_it_fills(item: Item, statement: StatementParts, site: Site) -> str:
    """Gives the condition of the rows whose values the server makes up, "" where there are none.  A column that becomes
    AUTO_INCREMENT has the rows with NULL numbered, and those with 0 where the session's mode does not forbid it, which
    no message tells."""
    if item.change is C.ADD_COLUMN:
        return "TRUE"
    was = former_definition(item, statement, site)
    if not was or "AUTO_INCREMENT" in was or not any(token.word in _COUNTING for token in item.definition[1:]):
        return ""
    column = quote_name(former_name(item))
    return f"{column} IS NULL OR {column} = 0"


def _made_up(column: Sequence[Token]) -> str:
    """Gives the word that makes a server choose the values of a column, "" when none does."""
    for i, token in enumerate(column):
        is_called = at(column, i + 1).text == "(" or token.word == "CURRENT_USER"
        is_function = i > 1 and token.word in _OTHER_EACH_TIME and is_called
        is_sequence = [at(column, i + n).word for n in range(3)] == ["NEXT", "VALUE", "FOR"]
        if (i > 0 and token.word in _COUNTING) or is_function or is_sequence:
            return token.word
    return ""
