"""Lists collations: those of a target, the nearest to one that it does not know, and the defaults of sources."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple


class SourceDefaults(NamedTuple):
    """What the statements of a source mean when they name no character set or no collation.

    charset, collation: the defaults of a database.  by_charset: the default collations of character sets; one that is
    not listed has the target's own default.  compares_bytes: whether texts of all collations are compared byte by byte,
    blanks at the end included.  are_configured: whether the operator has set them.
    """

    charset: str
    collation: str
    by_charset: Mapping[str, str]
    compares_bytes: bool = False
    are_configured: bool = False

    def but(self, defaults: Mapping[str, str]) -> SourceDefaults:
        """Gives those of a server with other settings: the collation of its databases (`server`), and of charsets."""
        by_name = {name.lower(): collation.lower() for name, collation in defaults.items()}
        collation = by_name.pop("server", self.collation)
        charset = self.charset if collation == self.collation else collation.partition("_")[0]
        by_charset = {**self.by_charset, **by_name}
        return self._replace(charset=charset, collation=collation, by_charset=by_charset, are_configured=bool(defaults))


_TIDB: Final = {
    "utf8mb4": "utf8mb4_bin", "utf8": "utf8_bin", "utf8mb3": "utf8_bin", "latin1": "latin1_bin", "ascii": "ascii_bin",
    "gbk": "gbk_chinese_ci", "gb18030": "gb18030_chinese_ci",
}  # fmt: skip

SOURCES: Final[dict[str, SourceDefaults]] = {
    # docs.pingcap.com/tidb/stable/character-set-and-collation
    "tidb": SourceDefaults("utf8mb4", "utf8mb4_bin", _TIDB),
    # The same page, "Old framework for collations": new_collations_enabled_on_first_bootstrap is false.
    "tidb-old-collations": SourceDefaults(
        "utf8mb4", "utf8mb4_bin", {**_TIDB, "gbk": "gbk_bin", "gb18030": "gb18030_bin"}, compares_bytes=True
    ),
    # dev.mysql.com/doc/refman/8.0/en/charset-server.html, charset-unicode-sets.html
    "mysql-8": SourceDefaults("utf8mb4", "utf8mb4_0900_ai_ci", {"utf8mb4": "utf8mb4_0900_ai_ci"}),
    # dev.mysql.com/doc/refman/5.7/en/charset-server.html
    "mysql-5.7": SourceDefaults("latin1", "latin1_swedish_ci", {"utf8mb4": "utf8mb4_general_ci"}),
    # mariadb.com/kb/en/supported-character-sets-and-collations (before 11.5)
    "mariadb": SourceDefaults("latin1", "latin1_swedish_ci", {"utf8mb4": "utf8mb4_general_ci"}),
}
OLD_COLLATIONS: Final = (
    'if mysql.tidb of the upstream says that new_collation_enabled is False, set ddl.source = "tidb-old-collations",'
    " copy the table into one whose columns have a collation that compares bytes (utf8mb4_0900_bin, or MariaDB's"
    " utf8mb4_nopad_bin), and start the bridge again; otherwise "
)
UNKNOWN_DEFAULTS: Final = SourceDefaults("", "", {"utf8mb4": ""})
"""The defaults in which MySQL 8, MySQL 5.7 and MariaDB differ."""


def is_tidb(source: str) -> bool:
    """Tells whether a name in SOURCES is TiDB's."""
    return source.partition("-")[0] == "tidb"


@dataclass(frozen=True)
class KnownCollations:
    """The collations of a target.

    names: all collations.  defaults: the default of each character set.  server: the default of databases.
    """

    names: frozenset[str]
    defaults: Mapping[str, str]
    server: str = ""

    def knows(self, name: str) -> bool:
        """Tells whether the target has a collation of that name."""
        return name.lower() in self.names

    @property
    def compares_bytes(self) -> bool:
        """Whether all collations compare bytes, as those of a TiDB that has no other."""
        return bool(self.names) and not self.knows("utf8mb4_general_ci")


@dataclass(frozen=True)
class CollationRules:
    """Tells how collations are chosen: by the defaults of `source`, and by names that the operator maps to others."""

    source: SourceDefaults = SOURCES["tidb"]
    mapped: Mapping[str, str] = field(default_factory=dict)

    def on(self, target: KnownCollations, name: str) -> str | None:
        """Gives the collation that `name` becomes on a target; None when no collation there is near enough."""
        name = name.lower()
        if self.source.compares_bytes and target.compares_bytes:
            return self.mapped.get(name, name)
        candidates = (*([self.mapped[name]] if name in self.mapped else []), *self._candidates(target, name))
        return next((candidate for candidate in candidates if target.knows(candidate)), None)

    def charset_on(self, target: KnownCollations, name: str) -> str:
        """Gives the character set that `name` becomes on a target: utf8mb4 where it has none that holds the same texts,
        or none with a collation that compares them as the source does."""
        if name in {"default", "binary"}:
            return name
        collation = self.on(target, f"{name}_bin") or ""
        is_wider = collation.startswith("utf8mb4_") and (self.source.compares_bytes or self._is_utf8(target, name))
        return "utf8mb4" if is_wider or name not in target.defaults else name

    def _is_utf8(self, target: KnownCollations, charset: str) -> bool:
        """TiDB's latin1 holds whatever utf8mb4 does (TiDB manual, "Character Set and Collation")."""
        is_latin1 = target.knows("latin1_swedish_ci")
        is_tidb = self.source.by_charset.get("latin1") == "latin1_bin" and not self.source.are_configured
        return charset == "latin1" and is_latin1 and is_tidb

    def _candidates(self, target: KnownCollations, name: str) -> Iterator[str]:
        charset = "utf8mb4" if self._is_utf8(target, _charset(name)) else _charset(name)
        if self.source.compares_bytes and not target.compares_bytes and name != "binary":
            yield from _comparing_bytes(charset)
            return
        if charset != _charset(name):
            yield "utf8mb4_bin"
        yield name
        yield from _near(name)


_LANGUAGES: Final = {
    "cs": "czech", "da": "danish", "de_pb": "german2", "eo": "esperanto", "es": "spanish", "es_trad": "spanish2",
    "et": "estonian", "hr": "croatian", "hu": "hungarian", "is": "icelandic", "la": "roman", "lt": "lithuanian",
    "lv": "latvian", "pl": "polish", "ro": "romanian", "sk": "slovak", "sl": "slovenian", "sv": "swedish",
    "tr": "turkish", "vi": "vietnamese",
}  # fmt: skip
_0900: Final = re.compile(r"utf8mb4_(?:([a-z_]+)_)?0900_(ai_ci|as_ci|as_cs|bin)")
_UCA1400: Final = re.compile(r"(?:utf8mb[34]_)?uca1400_(nopad_|)(ai_ci|as_ci|as_cs)")


def _comparing_bytes(charset: str) -> Iterator[str]:
    """Gives collations that compare the texts of a character set byte by byte, with blanks at the end; those of
    utf8mb4 hold all characters."""
    yield f"{charset}_nopad_bin"
    if charset in {"utf8", "utf8mb3"}:
        yield from ("utf8mb3_nopad_bin", "utf8_nopad_bin")
    yield from ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")


def _near(name: str) -> Iterator[str]:
    """Gives other names of a collation, then the nearest collations under which no two values are equal that it tells
    apart.

    utf8mb4_unicode_ci and utf8mb4_general_ci are never among them: under these, all characters outside of the BMP are
    equal (MySQL manual, Unicode Character Sets), so that keys would collide.  Nor is one that passes over blanks at the
    end near one of MariaDB's that do not.
    """
    if name.startswith(("utf8_", "utf8mb3_")):
        yield ("utf8mb3_" if name.startswith("utf8_") else "utf8_") + name.partition("_")[2]
    if modern := _0900.fullmatch(name):
        yield from _near_0900(modern[1], modern[2])
    if uca := _UCA1400.fullmatch(name):
        yield f"utf8mb4_uca1400_{uca[1]}{uca[2]}"
        yield f"utf8mb4_0900_{uca[2]}"
    if re.match("(?:utf8mb4.*|uca1400)_(?:nopad|0900)_", name):
        yield from ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")
    if "_nopad_" not in name:
        yield from (name.partition("_")[0] + "_bin", "utf8mb4_bin")


def _near_0900(language: str | None, suffix: str) -> Iterator[str]:
    if language:
        language_name = _LANGUAGES.get(language, language)
        yield f"utf8mb4_uca1400_{language_name}_nopad_{suffix}"
        if suffix == "ai_ci":
            yield f"utf8mb4_{language_name}_ci"
    else:
        yield f"utf8mb4_uca1400_nopad_{suffix}"
        if suffix == "ai_ci":
            yield "utf8mb4_unicode_520_nopad_ci"
            yield "utf8mb4_unicode_520_ci"


_COMMON_CHARSETS: Final = ("latin1", "ascii", "utf8mb4", "utf8", "gbk", "latin2", "cp1251", "big5", "sjis", "ujis")
_UNICODE: Final = ("general_ci", "unicode_ci", "unicode_520_ci", "bin")


class _Documented(NamedTuple):
    """From version `since` on, a flavour knows `names` besides those of earlier rows; `source` says so."""

    flavour: str
    since: tuple[int, ...]
    names: tuple[str, ...]
    source: str


_CLASSIC: Final = (
    *(f"{charset}_bin" for charset in _COMMON_CHARSETS),
    *(f"{charset}_{end}" for charset in ("utf8mb4", "utf8") for end in _UNICODE),
    *(f"{charset}_{name}_ci" for charset in ("utf8mb4", "utf8") for name in sorted(set(_LANGUAGES.values()))),
    *("latin1_swedish_ci", "latin1_general_ci", "ascii_general_ci", "gbk_chinese_ci", "big5_chinese_ci", "binary"),
    *("latin2_general_ci", "cp1251_general_ci", "sjis_japanese_ci", "ujis_japanese_ci"),
)
_MODERN: Final = (
    *(f"utf8mb4_0900_{end}" for end in ("ai_ci", "as_ci", "as_cs", "bin")),
    *(f"utf8mb4_{code}_0900_{end}" for code in _LANGUAGES for end in ("ai_ci", "as_cs")),
)
_DOCUMENTED: Final = (
    _Documented("mysql", (), _CLASSIC, "dev.mysql.com/doc/refman/5.7/en/charset-charsets.html"),
    _Documented(
        "mysql", (5, 7), ("gb18030_chinese_ci", "gb18030_bin"),
        "dev.mysql.com/doc/refman/5.7/en/charset-gb18030.html",
    ),
    _Documented("mysql", (8, 0), _MODERN, "dev.mysql.com/doc/refman/8.0/en/charset-unicode-sets.html"),
    _Documented("mysql", (8, 0, 30), tuple(f"utf8mb3_{end}" for end in _UNICODE), "MySQL 8.0.30 release notes"),
    _Documented("mariadb", (), _CLASSIC, "mariadb.com/kb/en/supported-character-sets-and-collations"),
    _Documented(
        "mariadb", (10, 2),
        (*(f"{c}_nopad_bin" for c in _COMMON_CHARSETS), "utf8mb4_unicode_520_nopad_ci", "utf8mb4_general_nopad_ci"),
        "mariadb.com/kb/en/supported-character-sets-and-collations",
    ),
    _Documented("mariadb", (10, 6), tuple(f"utf8mb3_{end}" for end in _UNICODE), "mariadb.com/kb/en/unicode"),
    _Documented(
        "mariadb", (10, 10),
        (
            *(f"utf8mb4_uca1400_{pad}{end}" for pad in ("", "nopad_") for end in ("ai_ci", "as_ci", "as_cs")),
            *(f"utf8mb4_uca1400_{name}_nopad_{end}" for name in sorted(set(_LANGUAGES.values()))
              for end in ("ai_ci", "as_cs")),
        ),
        "mariadb.com/kb/en/mariadb-10-10-1-release-notes",
    ),
    _Documented("mariadb", (11, 4, 5), _MODERN, "mariadb.com/kb/en/mariadb-11-4-5-release-notes (MDEV-20912)"),
    _Documented(
        "tidb", (),
        ("ascii_bin", "binary", "gbk_bin", "gbk_chinese_ci", "latin1_bin", "utf8_bin", "utf8_general_ci",
         "utf8_unicode_ci", "utf8mb4_bin", "utf8mb4_general_ci", "utf8mb4_unicode_ci"),
        "docs.pingcap.com/tidb/stable/sql-statement-show-collation",
    ),
    _Documented("tidb", (7, 4), ("utf8mb4_0900_ai_ci", "utf8mb4_0900_bin"), "docs.pingcap.com/tidb/v7.4/release-7.4.0"),
)  # fmt: skip
_DEFAULT_ENDS: Final = {"latin1": "swedish", "gbk": "chinese", "big5": "chinese", "gb18030": "chinese",
                        "sjis": "japanese", "ujis": "japanese"}  # fmt: skip


def documented_collations(flavour: str, version: tuple[int, ...]) -> KnownCollations:
    """Gives the common collations of a server by its manual, not all of them."""
    names = _current({n for row in _DOCUMENTED if row.flavour == flavour and version >= row.since for n in row.names})
    series = "mysql-8" if version >= (8,) else "mysql-5.7"
    source = SOURCES["tidb" if flavour == "tidb" else series if flavour == "mysql" else "mariadb"]
    usual = {charset: f"{charset}_{_DEFAULT_ENDS.get(charset, 'general')}_ci" for charset in map(_charset, names)}
    defaults = {charset: name for charset, name in {**usual, **source.by_charset}.items() if name in names}
    return KnownCollations(frozenset(names), both_utf8(defaults), source.collation)


def _charset(collation: str) -> str:
    return collation.partition("_")[0]


def _current(names: set[str]) -> set[str]:
    """Renames collations of utf8: a server that calls the character set utf8mb3 lists none by its older name."""
    has_new = any(_charset(name) == "utf8mb3" for name in names)
    return {re.sub("^utf8_", "utf8mb3_", name) for name in names} if has_new else names


def both_utf8(defaults: Mapping[str, str]) -> dict[str, str]:
    """Gives utf8 and utf8mb3, two names of one character set, the same default."""
    either = defaults.get("utf8") or defaults.get("utf8mb3")
    return {**defaults, **({"utf8": either, "utf8mb3": either} if either else {})}
