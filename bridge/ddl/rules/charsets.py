"""Rewrites character sets and collations: to names that the target knows, with the source's defaults written out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bridge.ddl.classes import StatementKind
from bridge.ddl.clauses import ADDS_COLUMN, StatementParts, at, closing, with_depth
from bridge.ddl.lexer import Token
from bridge.ddl.rule import Edit, Omission, Site, UnsupportedError, option_scopes

_UNICODE: Final = frozenset({"_utf8mb4", "_utf8", "_utf8mb3"})


def names(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Replaces collations that the target does not know by the nearest ones that it knows."""
    for i, token in enumerate(statement.tokens):
        if token.word == "COLLATE":
            named = at(statement.tokens, i + 1 + (at(statement.tokens, i + 1).text == "="))
            name = _plain(named)
            chosen = _on_target(site, name)
            if chosen != name:
                yield Edit(*named.span, chosen, f"the target has no collation {name}")


def charsets(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Replaces character sets that the target does not know by utf8mb4, which holds all characters."""
    for scope in _scopes(statement):
        for named in _charset_names(scope):
            if _plain(named) not in site.target.collations.defaults and _plain(named) not in {"default", "binary"}:
                yield Edit(*named.span, "utf8mb4", f"the target has no character set {_plain(named)}")


def defaults(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Writes out the source's default collation behind a character set without one; the target's default may differ."""
    for scope in _scopes(statement):
        words = {token.word for _, token, depth in with_depth(scope) if depth == 0}
        for named in _charset_names(scope):
            if words & {"COLLATE", "BINARY"}:
                continue
            collation = _default_of(site, _plain(named))
            if collation:
                yield Edit(named.span[1], named.span[1], f" COLLATE {collation}", _why(site))


def databases(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Writes out the source's defaults for a new database without a character set and a collation."""
    words = {token.word for token in statement.options}
    if statement.classified.kind is not StatementKind.CREATE_DATABASE or words & {"CHARACTER", "CHARSET", "COLLATE"}:
        return
    collation = _on_target(site, site.collations.source.collation)
    if collation != site.target.collations.server:
        end = statement.options[0].span[0] if statement.options else statement.tokens[-1].span[1]
        text = f" CHARACTER SET {site.collations.source.charset} COLLATE {collation} "
        yield Edit(end, end, text if statement.options else text.rstrip(), _why(site))


def tables(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Writes out the source's defaults for a new table, where nobody has chosen the default of its database on the
    target."""
    words = {token.word for _, token, depth in with_depth(statement.options) if depth == 0}
    if statement.classified.kind is not StatementKind.CREATE_TABLE or words & {"CHARACTER", "CHARSET", "COLLATE"}:
        return
    if statement.lists and site.around.default_is_nobodys(statement.classified.tables[0].schema):
        source = site.collations.source
        end = _end_of_definitions(statement)
        text = f" DEFAULT CHARACTER SET {source.charset} COLLATE {_on_target(site, source.collation)}"
        yield Edit(end, end, text, f"{_why(site)}, and the database on the target has that of its server")


def _end_of_definitions(statement: StatementParts) -> int:
    opening = next(i for i, token in enumerate(statement.tokens) if token.text == "(")
    return statement.tokens[closing(statement.tokens, opening)].span[1]


def introducers(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Removes the introducer of `_utf8mb4'x'` where servers accept only a plain string, or where the target does not
    know the character set.  The connection uses utf8mb4 anyway."""
    known = {f"_{charset}" for charset in site.target.collations.defaults} | {"_binary"}
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
        if _takes_plain_string(statement.tokens, i) or (charset not in known and following.text.isascii()):
            yield Edit(*token.span, "", "a plain string: the connection uses utf8mb4")


def _takes_plain_string(found: Sequence[Token], i: int) -> bool:
    before = at(found, i - 1)
    if before.text == "=":
        before = at(found, i - 2)
    if before.word == "COMMENT":
        return True
    opening = i - 1
    while at(found, opening).text == "," or at(found, opening).kind == "string" or at(found, opening).word[:1] == "_":
        opening -= 1
    return at(found, opening).text == "(" and at(found, opening - 1).word in {"ENUM", "SET"}


def _scopes(statement: StatementParts) -> Iterator[Sequence[Token]]:
    """Gives the tokens in which a character set is an attribute: options, and definitions of columns."""
    yield from option_scopes(statement)
    for item in statement.items:
        if item.change in ADDS_COLUMN:
            yield item.definition


def _charset_names(scope: Sequence[Token]) -> Iterator[Token]:
    for i, token, depth in with_depth(scope):
        is_set = token.word == "CHARACTER" and at(scope, i + 1).word == "SET"
        if depth == 0 and (is_set or token.word == "CHARSET"):
            following = i + 1 + is_set
            yield at(scope, following + (at(scope, following).text == "="))


def _plain(token: Token) -> str:
    return token.text.strip("'\"`").lower()


def _on_target(site: Site, name: str) -> str:
    if name in {"default", "binary"}:
        return name
    chosen = site.collations.on(site.target.collations, name)
    if chosen is None:
        raise UnsupportedError(f"the target has no collation like {name}; map it to one in [ddl.collations]")
    return chosen


def _default_of(site: Site, charset: str) -> str | None:
    """Gives the collation to add to a character set; None when the target's own default is right."""
    wanted = site.collations.source.by_charset.get(charset)
    if wanted is None or charset == "default":
        return None
    on_target = _on_target(site, wanted)
    return None if on_target == site.target.collations.defaults.get(charset) else on_target


def _why(site: Site) -> str:
    return f"the default of the source ({site.source})"
