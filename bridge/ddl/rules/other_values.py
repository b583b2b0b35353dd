"""Finds statements that give rows which are there other values on the target than upstream; no message tells those."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from itertools import chain, pairwise
from typing import Final, NamedTuple

from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.classes import StatementKind, columns_if_not_there, comes_after_later_name, takes_name_early
from bridge.ddl.clauses import ADDS_COLUMN, Item, StatementParts, at, outer, outer_words, span_of
from bridge.ddl.lexer import Token
from bridge.ddl.rule import Feature, Flavour, Site, UnsupportedError, former_definition, former_name
from bridge.model import quote_name

_COUNTING: Final = frozenset({"AUTO_INCREMENT", "SERIAL"})
_OTHER_EACH_TIME: Final = frozenset(
    {
        *("RAND", "RANDOM_BYTES", "UUID", "UUID_SHORT", "UUID_V4", "UUID_V7", "SYS_GUID", "NEXTVAL", "LASTVAL"),
        *("CONNECTION_ID", "LAST_INSERT_ID", "USER", "CURRENT_USER", "SESSION_USER", "SYSTEM_USER", "SYSDATE"),
    }
)
"""Functions that give a server's rows other values than another server's."""
MOMENTS: Final = frozenset({"CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"})
_MAY_FILL: Final = frozenset({"mysql-5.7", "mariadb"})
_pattern: Final = partial(re.compile, flags=re.IGNORECASE)
_SCALED: Final = r"(?:float[48]?|double(?:\s+precision)?|real)\s*\(\s*\d+\s*,"
_KINDS: Final = {
    "scaled": _pattern(_SCALED),
    "filled": _pattern(r"[^']*\bzerofill\b"),
    "integer": _pattern(r"(?:(?:tiny|small|medium|middle|big)?int(?:eger|[12348])?|bool(?:ean)?|serial)\b"),
    "exact": _pattern(r"(?:dec(?:imal)?|numeric|fixed)\b"),
    "fraction": _pattern(r"(?:float[48]?|double|real)\b"),
    "bits": _pattern(r"bit\b"),
    "json": _pattern(r"json\b|longtext\b.*\bjson_valid\("),
    "bytes": _pattern(r"(?:long\s+)?(?:(?:var)?binary|\w*blob)\b|.*\b(?:char)?set\s+binary\b|[^']*\bbyte\b"),
    "text": _pattern(r"(?:n?(?:var)?char(?:acter)?|national|(?:tiny|medium|long)?text|long)\b"),
    "members": _pattern(r"(?:enum|set)\b"),
    "year": _pattern(r"year\b"),
    "date": _pattern(r"date\b"),
    "time": _pattern(r"time\b"),
    "moment": _pattern(r"(?:datetime|timestamp)\b"),
}
"""By the definition of a column, from its type on, what it holds; the first that matches."""
_ALIKE: Final = {
    "integer": {"exact", "fraction", "text"},
    "exact": {"integer", "text"},
    "year": {"integer"},
    "members": {"text"},
    "date": {"moment", "text"},
    "time": {"text"},
    "moment": {"text"},
}
"""What all servers convert alike, besides a column that goes on holding the same.  Of other conversions TiDB, MariaDB
and MySQL make other values here and there (tried): 16777216 or 16777200, 0 or 0000, 2.67 or 2.68."""
_ANEW: Final = (
    "approve it, have the connector read its tables anew, and have bridge verify --against upstream fix what differs"
)
_FRACTION_DIGITS: Final = 6
_DIGITS: Final = _pattern(r"(?:datetime|timestamp|time)\b(?:\s*\(\s*(\d)\s*\))?")


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
    # The year 2000, or 0000.
    _Default(_pattern(r"year\b"), _pattern(r"(?:0x|x'|b'|0b)?[0.]+\b|false\b"), Flavour.TIDB),
    # The fraction is cut, or rounded to the next day.
    _Default(_pattern(r"date\b"), _pattern(r"'[^']*\.\d"), Flavour.MARIADB),
)


class _OtherValues(NamedTuple):
    """What the target makes of a column otherwise than the upstream.

    where: the condition of the rows that get other values; why: says so, and what to do.
    """

    where: str
    why: str


def refuse_other_values(statement: StatementParts, site: Site) -> None:
    """Refuses an ALTER TABLE that gives rows which are there other values than the upstream's, which no message
    tells; or, by what official Canal or Debezium make of it, rows behind it."""
    if site.is_approved or statement.classified.kind is not StatementKind.ALTER_TABLE:
        return
    actions = [item.tokens for item in statement.lists[0]]
    if (site.is_of_canal or site.is_of_debezium) and comes_after_later_name(actions):
        raise UnsupportedError(
            "it puts a column AFTER a name that a later action gives, which Canal and Debezium's connectors do not know"
            f" yet: they put it elsewhere, and rows behind it may have the values of each other's columns; {_ANEW}"
        )
    if site.is_of_canal and takes_name_early(actions):
        raise UnsupportedError(
            "Canal renames one column after the other, and may give rows behind it the values of each other's columns:"
            " approve it, have Canal read its tables anew, and have bridge verify --against upstream fix what differs"
        )
    if site.is_of_canal and C.RENAME_TABLE in statement.classified.classes and len(actions) > 1:
        raise UnsupportedError(
            "Canal forgets a table that is renamed beside other actions, and reads it as it is when its next row comes,"
            " so that rows until its next schema change may have the values of each other's columns: approve it, and"
            " have bridge verify --against upstream fix what differs"
        )
    words = {token.word for token in statement.tokens}
    if site.is_of_debezium and "AFTER" in words and "``" in statement.text:
        raise UnsupportedError(
            "Debezium's connector finds no column with a backquote in its name, and may put the one that comes AFTER it"
            f" first: {_ANEW}"
        )
    table = statement.classified.tables[0]
    for column in chain.from_iterable(map(columns_if_not_there, actions)):
        definition = site.around.column_definition(table, column[0].name or "") if site.is_of_debezium else None
        words = set(outer_words(column))
        read_anew = _debezium_reads(_text_from(statement, column[1:]))
        if definition and (words & {"FIRST", "AFTER"} or _debezium_reads(definition) != read_anew):
            raise UnsupportedError(
                f"{column[0].text} was there upstream, and Debezium's connector takes it to be as this statement says:"
                f" rows behind it may have NULL, or the values of each other's columns; {_ANEW}"
            )
    for look in (_values_of_their_own, _implicit_moment, _other_conversion, _other_default):
        for item in statement.items:
            other_values = look(item, statement, site)
            if other_values and site.around.has_rows(table, other_values.where):
                raise UnsupportedError(other_values.why)


def _values_of_their_own(item: Item, statement: StatementParts, site: Site) -> _OtherValues | None:
    """Finds a column for which each server makes up the values: it numbers rows in the order in which it keeps them,
    asks a function, or takes a moment that is not told."""
    column = item.definition if item.change in ADDS_COLUMN else ()
    word = _generator_word(column) or _moment_word(column, site)
    where = _rows_it_fills(item, statement, site) if word else ""
    if not where:
        return None
    return _OtherValues(
        where,
        f"each server makes up its own values of {item.definition[0].text} ({word}) for the rows that are there: add"
        " the column with the values that the upstream's rows have, then say bridge ddl done; or approve it if they"
        " will be the same",
    )


def _implicit_moment(item: Item, statement: StatementParts, site: Site) -> _OtherValues | None:
    """Finds a TIMESTAMP that a server may make NOT NULL, and fill, by its defaults, since it does not say NULL."""
    words = outer_words(item.definition)
    is_new = item.change is C.ADD_COLUMN
    tells = {"DEFAULT": is_new, "NULL": not is_new or "NOT" not in words, "AS": True}
    if site.source not in _MAY_FILL or words[1:2] != ["TIMESTAMP"] or any(tells.get(word) for word in words[2:]):
        return None
    return _OtherValues(
        "TRUE" if is_new else f"{quote_name(former_name(item))} IS NULL",
        "with explicit_defaults_for_timestamp=OFF (by default in MySQL 5.7, MariaDB before 10.10) rows that are there"
        f" got the moment, or a zero date, in {item.definition[0].text}: replace it by one with the column of SHOW"
        " CREATE TABLE upstream, or make its change by hand and say bridge ddl done; approve it if that is ON there",
    )


def _other_default(item: Item, statement: StatementParts, site: Site) -> _OtherValues | None:
    """Finds a new column with a default of which the target makes another value."""
    if item.change is not C.ADD_COLUMN:
        return None
    column, kind = item.definition, _text_from(statement, item.definition[1:])
    values = [_text_from(statement, column[i + 1 :]) for i, token in outer(column) if token.word == "DEFAULT"]
    defaults = [default for default in _DEFAULTS if _is_apart(default.flavour, site) and default.kind.match(kind)]
    from_mariadb = site.source == Flavour.MARIADB and _is_apart(Flavour.MARIADB, site)
    is_empty_text = from_mariadb and takes_no_null(item)  # which is no JSON
    if not is_empty_text and not any(default.value.match(value) for default in defaults for value in values):
        return None
    return _OtherValues(
        "TRUE",
        f"the target gives the rows that are there other values of {column[0].text} than the upstream: add the column"
        " with the values that the upstream's rows have, then say bridge ddl done; or approve it, and have bridge"
        " verify --against upstream fix what differs",
    )


def takes_no_null(item: Item) -> bool:
    """Tells whether it makes a JSON column that takes no NULL, and does not say what the rows that are there get."""
    words = outer_words(item.definition)
    says_value = not {"DEFAULT", "AS"}.isdisjoint(words)
    return (
        item.change is C.ADD_COLUMN and words[1:2] == ["JSON"] and ("NOT", "NULL") in pairwise(words) and not says_value
    )


def _other_conversion(item: Item, statement: StatementParts, site: Site) -> _OtherValues | None:
    """Finds a change of a column's type between unlike servers that may make other values of what rows hold."""
    column, becomes = item.definition, _text_from(statement, item.definition[1:])
    if item.change is not C.MODIFY_COLUMN or not column or not any(_is_apart(flavour, site) for flavour in Flavour):
        return None
    former = former_definition(item, statement, site)
    if not former or _type(former) == _type(becomes):
        return None
    before, after = _kind(former), _kind(becomes)
    where = "{0} IS NOT NULL"
    if before == after and after in {"time", "moment"}:
        where = _shortened(after, becomes, site)
    elif (before == after and after != "scaled") or after in _ALIKE.get(before, ()):
        where = ""
    if not where:
        return None
    return _OtherValues(
        where.replace("{0}", quote_name(former_name(item))),
        f"the target may make other values of {column[0].text} than the upstream when it becomes {column[1].word}:"
        " alter the table by hand, with the upstream's values, and say bridge ddl done; or approve it, and have bridge"
        " verify --against upstream fix what differs",
    )


def _shortened(kind: str, becomes: str, site: Site) -> str:
    """Gives the condition of the rows whose time gets another fraction.  MariaDB cuts digits off, other servers round;
    some have a mode for the other way (Feature.FRACTION_MODE).  Half a second below 0 is rounded down or up."""
    digits = _DIGITS.match(becomes)
    unit = 10 ** (_FRACTION_DIGITS - int(digits[1] or 0)) if digits else 1
    loses = f"MICROSECOND({{0}}) MOD {unit} <> 0"
    if _is_apart(Flavour.MARIADB, site) and not site.target.has(Feature.FRACTION_MODE):
        return loses
    return f"{{0}} < '00:00:00' AND {loses}" if kind == "time" and _is_apart(Flavour.TIDB, site) else ""


def _kind(definition: str) -> str:
    """Tells what a column holds; its type for what is none of `_KINDS`."""
    kinds = (kind for kind, pattern in _KINDS.items() if pattern.match(definition))
    return next(kinds, _type(definition).partition("(")[0])


def _is_apart(flavour: Flavour, site: Site) -> bool:
    """Tells whether one of source and target is of that flavour, and the other is not."""
    source = Flavour(site.source.partition("-")[0])
    return (flavour is source) != (flavour is site.target.flavour)


def _text_from(statement: StatementParts, tokens: Sequence[Token]) -> str:
    return statement.text[slice(*span_of(tokens))] if tokens else ""


def _type(definition: str) -> str:
    """Gives the type with its length, as in double(9,2)."""
    match = re.match(r"\w+(?:\s*\([^)]*\))?", definition)
    return "".join(match[0].lower().split()) if match else ""


def _debezium_reads(definition: str) -> tuple[str, bool, bool, str]:
    """Gives what Debezium takes from the definition of a column: its type, whether it is UNSIGNED, whether it is NOT
    NULL, and its character set."""
    text = re.sub(r"int(?:eger)?(?:\s*\(\d+\))?", "int", re.sub(r"\bbool(?:ean)?\b", "tinyint", definition.lower()))
    charset = re.search(r"\b(?:character set|charset) (\w+)", text)
    kind = "json" if _kind(text) == "json" else _type(text)
    return kind, " unsigned" in text, " not null" in text, charset[1] if charset and kind != "json" else ""


def _rows_it_fills(item: Item, statement: StatementParts, site: Site) -> str:
    """Gives the condition of the rows whose values the server makes up, "" for none.  AUTO_INCREMENT numbers rows with
    NULL, and those with 0 unless the session's mode forbids it, which no message tells."""
    if item.change is C.ADD_COLUMN:
        return "TRUE"
    former = former_definition(item, statement, site)
    if not former or "AUTO_INCREMENT" in former or not any(token.word in _COUNTING for token in item.definition[1:]):
        return ""
    column = quote_name(former_name(item))
    return f"{column} IS NULL OR {column} = 0"


def _generator_word(column: Sequence[Token]) -> str:
    """Gives the word that makes a server choose the values of a column, "" when none does."""
    for i, token in enumerate(column):
        is_called = at(column, i + 1).text == "(" or token.word == "CURRENT_USER"
        is_function = i > 1 and token.word in _OTHER_EACH_TIME and is_called
        is_sequence = [at(column, i + n).word for n in range(3)] == ["NEXT", "VALUE", "FOR"]
        if (i > 0 and token.word in _COUNTING) or is_function or is_sequence:
            return token.word
    return ""


def _moment_word(column: Sequence[Token], site: Site) -> str:
    """Gives the word by which a column gets the moment at which its statement began, where no message tells that: a
    binlog has its second, and Debezium's connector for MySQL 8 tells when the statement had ended."""
    for i, token in enumerate(() if site.is_from_tidb else column):
        is_default = i > 0 and token.word in MOMENTS and at(column, i - 1).word != "UPDATE"
        has_fraction = at(column, i + 1).text == "(" and at(column, i + 2).text not in {"0", ")"}
        if is_default and (has_fraction or not site.tells_second):
            return token.word
    return ""
