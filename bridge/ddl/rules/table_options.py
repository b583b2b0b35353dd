"""Removes options that only some servers know, or that the target decides itself; and handles IF EXISTS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.classes import StatementKind, split_at_commas
from bridge.ddl.clauses import Item, StatementParts, at, outer, span_of, with_depth
from bridge.ddl.lexer import Token
from bridge.ddl.rule import Edit, Feature, Site, beginning, option_scopes, partition_scopes, remove, value_at

HINTS: Final = ("ALGORITHM", "LOCK")
HOW: Final = "the target decides itself how to do it"
"""A target that cannot run a statement in the way of its hints would refuse it."""
_OF_MARIADB: Final = (
    *("PAGE_CHECKSUM", "TRANSACTIONAL", "TABLE_CHECKSUM", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL"),
    *("ENCRYPTED", "ENCRYPTION_KEY_ID", "SEQUENCE"),
)
_OTHER_FORMATS: Final = ("FIXED", "PAGE", "TOKUDB_")
"""How formats of rows of MyISAM, MEMORY, Aria and TokuDB begin."""
_BLOCKS: Final = frozenset({"1", "2", "4", "8", "16"})
"""How many KiB a compressed block of InnoDB may have."""
_WHY: Final = "the target has no such option; it says how rows are stored, not what they are"
_INNODB: Final = "InnoDB has no such option; it says how rows are stored, not what they are"
_FILES: Final = "the target decides itself where it keeps its files, and how"


def never_run(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Removes how long to wait for a lock (MariaDB), and where files are."""
    for span in statement.classified.never_run:
        yield Edit(*span, "", "the target decides itself how long it waits, and where it keeps its files")


def options(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Removes options [DEFAULT] NAME [=] value of tables, databases and partitions that the target lacks or decides
    itself; and what MariaDB writes as `name`='value' for an engine."""
    left_out = {name: why for names, why in _left_out(statement, site) for name in names}
    is_mariadb = site.target.has(Feature.MARIADB_SYNTAX)
    for scope in option_scopes(statement):
        for i, token in outer(scope):
            if why := left_out.get(token.word):
                yield remove(scope[beginning(scope, i) : value_at(scope, i) + 1], why)
            elif token.kind == "quoted" and at(scope, i + 1).text == "=" and not is_mariadb:
                yield remove(scope[i : i + 3], _WHY)
    for scope in partition_scopes(statement):
        for i, token, depth in with_depth(scope):
            if token.word == "TABLESPACE" and depth > 0:
                yield remove(scope[i : value_at(scope, i) + 1], _FILES)


def _left_out(statement: StatementParts, site: Site) -> Iterator[tuple[Sequence[str], str]]:
    """Gives the names of options that are left out, and why."""
    target, classified = site.target, statement.classified
    if classified.kind in {StatementKind.ALTER_TABLE, StatementKind.EXCHANGE_PARTITION}:
        yield HINTS, HOW
    values = {
        (token.word, at(scope, value_at(scope, i)).text.strip("'\"").upper())
        for scope in option_scopes(statement)
        for i, token in enumerate(scope)
    }
    yield ["TABLESPACE", "AUTOEXTEND_SIZE"], _FILES
    if ("START", "TRANSACTION") in values:  # with which MySQL logs CREATE TABLE ... SELECT (8.0.21)
        yield ["START"], "the rows come as row changes"
    if not target.has(Feature.MARIADB_SYNTAX):
        yield _OF_MARIADB, _WHY
        if classified.database:
            yield ["COMMENT"], "the target has no comments of databases"
    if not target.has(Feature.MYSQL_SYNTAX):
        yield ["COMPRESSION"], _WHY
    is_table = classified.kind in {StatementKind.CREATE_TABLE, StatementKind.ALTER_TABLE}
    knows_encryption = target.has(Feature.MYSQL_SYNTAX if is_table else Feature.DATABASE_ENCRYPTION)
    if not knows_encryption or (("ENCRYPTION", "Y") in values and not target.encrypts):
        yield ["ENCRYPTION"], _FILES
    if not target.encrypts:
        yield ["ENCRYPTED", "ENCRYPTION_KEY_ID"], _FILES
    if target.has(Feature.TIDB_SYNTAX):
        return
    # What InnoDB refuses in its strict mode.
    if any(name == "ROW_FORMAT" and value.startswith(_OTHER_FORMATS) for name, value in values):
        yield ["ROW_FORMAT"], _INNODB
    sizes = _BLOCKS if ("ROW_FORMAT", "COMPRESSED") in values else frozenset[str]()
    if not {value for name, value in values if name == "KEY_BLOCK_SIZE"} <= sizes | {"0"}:  # 0 takes back what it had
        yield ["KEY_BLOCK_SIZE"], _INNODB


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


def if_exists(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Removes IF EXISTS and IF NOT EXISTS where the target lacks them, and leaves out what did nothing upstream by
    them: the target has what the upstream had."""
    tokens = statement.tokens
    name = statement.classified.touched[0].span[0] if statement.classified.touched else 0
    for i, token in outer(tokens):
        end = i + 2 + (at(tokens, i + 1).word == "NOT")
        if token.word != "IF" or at(tokens, end - 1).word != "EXISTS":
            continue
        item = next((item for item in statement.items if token in item.tokens), None)
        is_alter = statement.classified.kind in _ALTERS
        is_whole = token.span[0] < name and is_alter
        idle = [item] if item is not None and not is_whole else [*statement.lists[0]] if is_alter else []
        is_not = tokens[i + 1].word == "NOT"
        why = WAS_THERE if is_not else _WAS_NOT_THERE
        objects = [tokens[end:]] if item is None or is_whole or not idle else _objects(item, tokens[end:])
        if statement.classified.kind is StatementKind.RENAME_TABLE:
            objects = [action.tokens for action in idle]
        is_idle = [_exists(statement, item, object_, site, is_whole=is_whole) is is_not for object_ in objects if idle]
        if is_idle and all(is_idle):
            yield from (remove(action.tokens, why) for action in idle)
            continue
        if any(is_idle):
            yield from _without_idle(statement, objects, is_idle, why)
        if _lacks_if(statement, token, name, site):
            yield remove(tokens[i:end], _WHY_IF)


_ALTERS: Final = frozenset({StatementKind.ALTER_TABLE, StatementKind.EXCHANGE_PARTITION, StatementKind.RENAME_TABLE})


def _objects(item: Item, behind: Sequence[Token]) -> Sequence[Sequence[Token]]:
    """Gives what follows an IF, apart for each name of a list of partitions, and each column in parentheses."""
    tokens = item.tokens[item.tokens.index(behind[0]) :]
    if item.change is C.DROP_PARTITION:
        return [(token,) for token in tokens if token.text != ","]
    is_list = item.change is C.ADD_COLUMN and tokens[0].text == "("
    return split_at_commas(tokens[1:-1]) if is_list else [behind]


def _without_idle(
    statement: StatementParts, objects: Sequence[Sequence[Token]], is_idle: Sequence[bool], why: str
) -> Iterator[Edit]:
    """Removes objects of a list to which nothing happens; one of them stays."""
    items = {item.tokens: item for item in statement.items}
    spans, first = [span_of(object_) for object_ in objects], is_idle.index(False)
    for i, (start, end) in enumerate(spans):
        if is_idle[i] and (item := items.get(tuple(objects[i]))):
            yield remove(item.tokens, why)
        elif is_idle[i]:
            yield Edit(start, spans[i + 1][0], "", why) if i < first else Edit(spans[i - 1][1], end, "", why)


def _exists(
    statement: StatementParts, item: Item | None, behind: Sequence[Token], site: Site, *, is_whole: bool
) -> bool | None:
    """Tells whether the object of an IF is there; None where it is not known.  behind: what follows the IF."""
    table = statement.classified.tables[0]
    if is_whole:
        touched = statement.classified.touched
        n = next(n for n, mention in enumerate(touched) if mention.span[0] >= behind[0].span[0])
        is_made = touched[n].table.folded in {name.table.folded for name in touched[1:n:2]}  # by RENAME, just before
        return is_made or site.around.exists(touched[n].table, "table")
    kind = "" if item is None else _KIND_OF.get(item.change, "")
    names = [at(behind, 0).name]
    if item is not None and item.change is C.ADD_PRIMARY_KEY:
        names = ["PRIMARY"]
    elif item is not None and item.change is C.ADD_PARTITION:  # where one is there, none is made
        names = [token.name for before, token in pairwise(behind) if before.word == "PARTITION"]
    if not kind or not all(names) or site.around.exists(table, "table") is not True:
        return None
    answers = [site.around.exists(table, kind, name or "") for name in names]
    return True if True in answers else None if None in answers else False


def _lacks_if(statement: StatementParts, token: Token, name: int, site: Site) -> bool:
    kind = statement.classified.kind
    if kind in {StatementKind.CREATE_VIEW, *_ALTERS} and token.span[0] < name:
        return not site.target.has(Feature.MARIADB_SYNTAX)
    of_parts = {StatementKind.CREATE_INDEX, StatementKind.DROP_INDEX, StatementKind.ALTER_TABLE}
    return kind in of_parts and not site.target.has(Feature.IF_EXISTS)
