"""Rewrites character sets and collations: to names that the target knows, with the source's defaults written out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bridge.ddl.classes import StatementKind
from bridge.ddl.clauses import StatementParts, at, closing, outer, outer_words
from bridge.ddl.lexer import Token
from bridge.ddl.rule import Edit, Feature, Site, UnsupportedError, option_scopes, value_at

_UNICODE: Final = frozenset({"_utf8mb4", "_utf8", "_utf8mb3"})
_NATIONAL: Final = {"NATIONAL": "", "NCHAR": "CHAR", "NVARCHAR": "VARCHAR"}
_LATIN1: Final = "TiDB's latin1 holds all characters"
_TEXTS: Final = (
    "Debezium's connector sends a CHAR, VARCHAR or TEXT of the character set binary as text, which may look like other"
    " bytes: make them BINARY, VARBINARY or BLOB upstream, or leave the table out with --filter; or approve the"
    " statement if it makes no such column"
)
OF_SOURCE: Final = "the default of the source"
_AS_BYTES: Final = "the source compares bytes, with blanks at the end (ddl.source)"


def names(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Replaces collations that the target does not know by the nearest ones that it knows."""
    for i, word in enumerate(statement.tokens):
        if word.word == "COLLATE":
            token = at(statement.tokens, value_at(statement.tokens, i))
            name = _plain(token)
            collation = _on_target(site, name)
            if collation != name:
                yield Edit(*token.span, collation, f"the target has no collation {name}")


def charsets(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Replaces character sets that the target does not know by utf8mb4, which holds all characters; also TiDB's latin1,
    whose texts are utf8mb4, and those without a collation that compares like the source's.  Refuses bytes as texts:
    BYTE behind a column's type means `CHARACTER SET binary`."""
    refuses_bytes = site.is_of_debezium and not site.is_approved
    if refuses_bytes and any(statement.in_columns("BYTE")):
        raise UnsupportedError(_TEXTS)
    for scope in _scopes(statement):
        for token in _charset_names(scope):
            name, charset = _plain(token), site.collations.charset_on(site.target.collations, _plain(token))
            if refuses_bytes and name == "binary":
                raise UnsupportedError(_TEXTS)
            if name not in site.target.collations.defaults and name not in {"default", "binary"}:
                yield Edit(*token.span, "utf8mb4", f"the target has no character set {name}")
            elif charset != name:
                why = _AS_BYTES if site.collations.source.compares_bytes and name != "latin1" else _LATIN1
                yield Edit(*token.span, charset, why)


def short_forms(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Writes out what else says a character set or a collation in a column of TiDB's: BINARY, where the target has it
    compared with blanks at the end; ASCII, which is latin1; NATIONAL, which means nothing to TiDB (its parser,
    NationalOpt)."""
    is_same = site.target.collations.compares_bytes == site.collations.source.compares_bytes
    if not site.is_from_tidb or (site.target.has(Feature.TIDB_SYNTAX) and is_same):
        return
    for item in statement.columns:
        for i, token in list(outer(item.definition))[1:]:
            yield from _short_form(item.definition, i, token, site)


def _short_form(column: Sequence[Token], i: int, token: Token, site: Site) -> Iterator[Edit]:
    # What says how a text is compared, not a character set nor a part of an expression
    is_attribute = column[i - 1].word not in {"SET", "CHARSET", "DEFAULT"} and column[i - 1].text != "="
    if i == 1:
        if token.word in _NATIONAL:
            yield Edit(*token.span, _NATIONAL[token.word], "to TiDB, NATIONAL means nothing")
        return
    behind_type = column[i - 1].text == ")" or i == 2
    if token.word == "ASCII" and behind_type:
        collation = _on_target(site, "latin1_bin")
        yield Edit(*token.span, f"CHARACTER SET {collation.partition('_')[0]} COLLATE {collation}", "it means latin1")
    elif token.word == "BINARY" and site.collations.source.compares_bytes and is_attribute:
        charset = next((_plain(name) for name in _charset_names(column[1:])), "")
        collation = f"COLLATE {_on_target(site, f'{charset}_bin')}" if charset else ""
        yield Edit(*token.span, collation, _AS_BYTES)


def defaults(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Writes out the source's default collation behind a character set without one; the target's default may differ."""
    for scope in _scopes(statement):
        words = set(outer_words(scope))
        for token in _charset_names(scope):
            if words & {"COLLATE", "BINARY"}:
                continue
            collation = _default_of(site, _plain(token))
            if collation:
                yield Edit(token.span[1], token.span[1], f" COLLATE {collation}", _why(site))


def databases(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Writes out the source's defaults for a new database without a character set and a collation."""
    words = {token.word for token in statement.options}
    if statement.classified.kind is not StatementKind.CREATE_DATABASE or words & {"CHARACTER", "CHARSET", "COLLATE"}:
        return
    collation = _on_target(site, site.collations.source.collation)
    if collation != site.target.collations.server:
        end = statement.options[0].span[0] if statement.options else statement.tokens[-1].span[1]
        text = f" CHARACTER SET {site.collations.source.charset} COLLATE {collation} "
        yield Edit(end, end, text if statement.options else text.rstrip(), _why(site))


def tables(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Writes out the source's defaults for a new table, unless somebody chose the default of its target database."""
    words = set(outer_words(statement.options))
    if statement.classified.kind is not StatementKind.CREATE_TABLE or words & {"CHARACTER", "CHARSET", "COLLATE"}:
        return
    source = site.collations.source
    is_sure = source.compares_bytes and not site.target.collations.compares_bytes
    if statement.lists and (is_sure or site.around.default_is_nobodys(statement.classified.tables[0].schema)):
        opening = next(i for i, token in enumerate(statement.tokens) if token.text == "(")
        end = statement.tokens[closing(statement.tokens, opening)].span[1]
        text = f" DEFAULT CHARACTER SET {source.charset} COLLATE {_on_target(site, source.collation)}"
        why = ", and the database on the target has that of its server"
        yield Edit(end, end, text, _why(site) + ("" if is_sure else why))


def introducers(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Removes the introducer of `_utf8mb4'x'` where servers accept only a plain string, or where the target does not
    know the character set.  The connection uses utf8mb4 anyway."""
    of_target = {f"_{charset}" for charset in site.target.collations.defaults} | {"_binary"}
    for i, token in enumerate(statement.tokens):
        following = at(statement.tokens, i + 1)
        if not token.word.startswith("_") or following.kind != "string":
            continue
        charset = token.text.lower()
        if charset not in _UNICODE and not following.text.isascii():
            raise UnsupportedError(
                f"the text {token.text}{following.text[:40]} holds bytes of another character set, which the message"
                " has turned into characters"
            )
        if _takes_plain_string(statement.tokens, i) or (charset not in of_target and following.text.isascii()):
            yield Edit(*token.span, "", "a plain string: the connection uses utf8mb4")


def _takes_plain_string(tokens: Sequence[Token], i: int) -> bool:
    before = at(tokens, i - 1)
    if before.text == "=":
        before = at(tokens, i - 2)
    if before.word == "COMMENT":
        return True
    opening = i - 1
    while (token := at(tokens, opening)).text == "," or token.kind == "string" or token.word[:1] == "_":
        opening -= 1
    return at(tokens, opening).text == "(" and at(tokens, opening - 1).word in {"ENUM", "SET"}


def _scopes(statement: StatementParts) -> Iterator[Sequence[Token]]:
    """Gives the tokens in which a character set is an attribute: options, and columns behind their names."""
    yield from option_scopes(statement)
    yield from (item.definition[1:] for item in statement.columns)


def _charset_names(scope: Sequence[Token]) -> Iterator[Token]:
    for i, token in outer(scope):
        is_set = token.word == "CHARACTER" and at(scope, i + 1).word == "SET"
        if is_set or token.word == "CHARSET":
            yield at(scope, value_at(scope, i + is_set))


def _plain(token: Token) -> str:
    return token.text.strip("'\"`").lower()


def _on_target(site: Site, name: str) -> str:
    if not name:
        raise UnsupportedError(
            "it means the default collation of the upstream, and the messages do not tell which server that is: set"
            " ddl.source to mysql-8, mysql-5.7 or mariadb, as SELECT VERSION() says there, and start the bridge again"
        )
    if name in {"default", "binary"}:
        return name
    collation = site.collations.on(site.target.collations, name)
    if collation is None and site.collations.source.compares_bytes:
        raise UnsupportedError(
            f"the source compares the bytes of {name}, with blanks at the end, and the target has no collation that"
            f' does: if no two keys differ in blanks at the end only, set {name} = "{name.partition("_")[0]}_bin" in'
            " [ddl.collations]"
        )
    if collation is None:
        raise UnsupportedError(f"the target has no collation like {name}; map it to one in [ddl.collations]")
    return collation


def _default_of(site: Site, charset: str) -> str | None:
    """Gives the collation to add to a character set; None when the target's own default is right."""
    collation = site.collations.source.by_charset.get(charset)
    if collation is None or charset == "default":
        return None
    on_target = _on_target(site, collation)
    collations = site.target.collations
    return None if on_target == collations.defaults.get(site.collations.charset_on(collations, charset)) else on_target


def _why(site: Site) -> str:
    return f"{OF_SOURCE} ({site.source})"
