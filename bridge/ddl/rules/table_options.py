"""Rewrites options that only some servers know: how rows are stored, IF EXISTS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from bridge.ddl.alter_actions import split_at_commas
from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.classes import StatementKind
from bridge.ddl.clauses import Item, StatementParts, at, span_of, with_depth
from bridge.ddl.lexer import Token
from bridge.ddl.rule import Edit, Omission, Site, option_scopes, remove, take_out, value_at, without_options
from bridge.ddl.server_features import Feature

_OF_TABLES: Final = {
    Feature.TABLE_COMPRESSION: {"COMPRESSION"},
    Feature.MARIADB_SYNTAX: {
        *("PAGE_CHECKSUM", "TRANSACTIONAL", "TABLE_CHECKSUM", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL"),
        *("ENCRYPTED", "ENCRYPTION_KEY_ID", "SEQUENCE"),
    },
}
_WHY: Final = "the target has no such option; it says how rows are stored, not what they are"


def never_run(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Removes how long to wait for a lock (MariaDB), and where files are."""
    for span in statement.classified.never_run:
        yield Edit(*span, "", "the target decides itself how long it waits, and where it keeps its files")


def of_tables(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Removes table options that the target lacks."""
    for feature, names in _OF_TABLES.items():
        if not site.target.has(feature):
            yield from without_options(statement, names, _WHY)
    yield from _of_other_engines(statement, site)
    if statement.classified.database and not site.target.has(Feature.MARIADB_SYNTAX):
        yield from without_options(statement, {"COMMENT"}, "the target has no comments of databases")


_OTHER_FORMATS: Final = frozenset({"FIXED", "PAGE"})
"""Formats of rows of MyISAM, MEMORY and Aria; those of TokuDB begin with its name."""
_BLOCKS: Final = frozenset({"1", "2", "4", "8", "16"})
"""How many KiB a compressed block of InnoDB may have."""


def _of_other_engines(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Removes options that InnoDB refuses in its strict mode: formats of rows of other engines, the size of a
    compressed block where no rows are compressed, and what MariaDB writes as `name`='value' for an engine."""
    why = "InnoDB has no such option; it says how rows are stored, not what they are"
    scopes = list(option_scopes(statement))
    words = [token.word for scope in scopes for token in scope]
    if not site.target.has(Feature.TIDB_SYNTAX):
        other = next((word for word in words if word in _OTHER_FORMATS or word.startswith("TOKUDB_")), "")
        if other and "ROW_FORMAT" in words:
            yield from without_options(statement, {"ROW_FORMAT"}, why)
        sizes = _BLOCKS if "COMPRESSED" in words else frozenset[str]()
        asked = {at(s, value_at(s, i)).text for s in scopes for i, t in enumerate(s) if t.word == "KEY_BLOCK_SIZE"}
        if not asked <= sizes | {"0"}:  # 0 takes back the size that it had
            yield from without_options(statement, {"KEY_BLOCK_SIZE"}, why)
    if site.target.has(Feature.MARIADB_SYNTAX):
        return
    for scope in scopes:
        for i, token, depth in with_depth(scope):
            if depth == 0 and token.kind == "quoted" and at(scope, i + 1).text == "=":
                yield from take_out(statement, scope, i, i + 3, _WHY)


_BEFORE_IF: Final = frozenset(
    {"COLUMN", "INDEX", "KEY", "CONSTRAINT", "PARTITION", "ADD", "ALTER", "DROP", "MODIFY", "CHANGE"}
)
_KIND_OF: Final = {
    **dict.fromkeys((C.ADD_COLUMN, C.DROP_COLUMN, C.MODIFY_COLUMN, C.COLUMN_DEFAULT), "column"),
    **dict.fromkeys((C.ADD_INDEX, C.ADD_PRIMARY_KEY, C.DROP_INDEX, C.RENAME_INDEX, C.INDEX_VISIBILITY), "index"),
    **dict.fromkeys(
        (C.ADD_CHECK, C.ADD_FOREIGN_KEY, C.DROP_FOREIGN_KEY, C.DROP_CONSTRAINT, C.ALTER_CHECK), "constraint"
    ),
    **dict.fromkeys((C.ADD_PARTITION, C.DROP_PARTITION), "partition"),
}
"""What IF of an action asks for."""
_WHY_IF: Final = "the target has no such IF; an object that exists already counts as made"
WAS_THERE: Final = "it did nothing upstream, by its IF NOT EXISTS, as what it makes was there"
_WAS_NOT_THERE: Final = "it did nothing upstream, by its IF EXISTS, as what it changes was not there"


def if_exists(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Removes IF EXISTS and IF NOT EXISTS where the target lacks them, and leaves out what did nothing upstream by
    them: the target has what the upstream had."""
    found = statement.tokens
    name = statement.classified.touched[0].span[0] if statement.classified.touched else 0
    for i, token, depth in with_depth(found):
        end = _if_end(found, i) if depth == 0 else None
        if end is None:
            continue
        item = next((item for item in statement.items if token in item.tokens), None)
        is_alter = statement.classified.kind in _ALTERS
        is_whole = token.span[0] < name and is_alter
        idle = [item] if item is not None and not is_whole else [*statement.lists[0]] if is_alter else []
        is_not = found[i + 1].word == "NOT"
        why = WAS_THERE if is_not else _WAS_NOT_THERE
        things = [found[end:]] if item is None or is_whole or not idle else _things(item, found[end:])
        if statement.classified.kind is StatementKind.RENAME_TABLE:
            things = [one.tokens for one in idle]
        is_idle = [_exists(statement, item, one, site, is_whole=is_whole) is is_not for one in things if idle]
        if is_idle and all(is_idle):
            yield from (Omission(one, why) for one in idle)
            continue
        if any(is_idle):
            yield from _without_idle(statement, things, is_idle, why)
        if _lacks_if(statement, found[i - 1], token, name, site):
            yield remove(found[i:end], _WHY_IF)


_ALTERS: Final = frozenset({StatementKind.ALTER_TABLE, StatementKind.EXCHANGE_PARTITION, StatementKind.RENAME_TABLE})


def _if_end(found: Sequence[Token], i: int) -> int | None:
    """Tells where IF [NOT] EXISTS ends that begins at `i`; None when it does not begin there."""
    end = i + 2 + (at(found, i + 1).word == "NOT")
    return end if found[i].word == "IF" and at(found, end - 1).word == "EXISTS" else None


def _things(item: Item, behind: Sequence[Token]) -> Sequence[Sequence[Token]]:
    """Gives what follows an IF, apart for each name of a list of partitions, and each column in parentheses."""
    mine = item.tokens[item.tokens.index(behind[0]) :]
    if item.change is C.DROP_PARTITION:
        return [(token,) for token in mine if token.text != ","]
    is_list = item.change is C.ADD_COLUMN and mine[0].text == "("
    return split_at_commas(mine[1:-1]) if is_list else [behind]


def _without_idle(
    statement: StatementParts, things: Sequence[Sequence[Token]], is_idle: Sequence[bool], why: str
) -> Iterator[Edit | Omission]:
    """Removes things of a list that do nothing; one of them stays."""
    items = {item.tokens: item for item in statement.items}
    spans, first = [span_of(one) for one in things], is_idle.index(False)
    for i, (start, end) in enumerate(spans):
        if is_idle[i] and (item := items.get(tuple(things[i]))):
            yield Omission(item, why)
        elif is_idle[i]:
            yield Edit(start, spans[i + 1][0], "", why) if i < first else Edit(spans[i - 1][1], end, "", why)


def _exists(
    statement: StatementParts, item: Item | None, behind: Sequence[Token], site: Site, *, is_whole: bool
) -> bool | None:
    """Tells whether the object of an IF is there; None where it is not known.  behind: what follows the IF."""
    table = statement.classified.tables[0]
    if is_whole:
        touched = statement.classified.touched
        n = next(n for n, one in enumerate(touched) if one.span[0] >= behind[0].span[0])
        is_made = touched[n].table.folded in {one.table.folded for one in touched[1:n:2]}  # by RENAME, just before
        return is_made or site.around.exists(touched[n].table, "table")
    kind = "" if item is None else _KIND_OF.get(item.change, "")
    names = [at(behind, 0).name]
    if item is not None and item.change is C.ADD_PRIMARY_KEY:
        names = ["PRIMARY"]
    elif item is not None and item.change is C.ADD_PARTITION:  # where one is there, none is made
        names = [token.name for before, token in pairwise(behind) if before.word == "PARTITION"]
    if not kind or not all(names) or site.around.exists(table, "table") is not True:
        return None
    found = [site.around.exists(table, kind, name or "") for name in names]
    return True if True in found else None if None in found else False


def _lacks_if(statement: StatementParts, before: Token, token: Token, name: int, site: Site) -> bool:
    kind = statement.classified.kind
    if kind in {StatementKind.CREATE_VIEW, *_ALTERS} and token.span[0] < name:
        return not site.target.has(Feature.MARIADB_SYNTAX)
    if site.target.has(Feature.IF_EXISTS):
        return False
    if kind in {StatementKind.CREATE_INDEX, StatementKind.DROP_INDEX}:
        return True
    return kind is StatementKind.ALTER_TABLE and token.span[0] > name and before.word in _BEFORE_IF
