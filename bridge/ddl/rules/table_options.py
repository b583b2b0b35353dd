"""Rewrites options that only some servers know: how rows are stored, the system of coordinates, IF EXISTS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.classes import StatementKind
from bridge.ddl.clauses import ADDS_COLUMN, ADDS_KEY, Item, StatementParts, at, closing, with_depth
from bridge.ddl.lexer import Token
from bridge.ddl.rule import (
    Edit,
    Omission,
    Site,
    UnsupportedError,
    option_scopes,
    remove,
    take_out,
    without_options,
)
from bridge.ddl.server_features import Feature

_OF_TABLES: Final = {
    Feature.TABLE_COMPRESSION: {"COMPRESSION"},
    Feature.AUTOEXTEND_SIZE: {"AUTOEXTEND_SIZE"},
    Feature.SECONDARY_ENGINE_ATTRIBUTE: {"SECONDARY_ENGINE_ATTRIBUTE"},
    Feature.MARIADB_SYNTAX: {
        *("PAGE_CHECKSUM", "TRANSACTIONAL", "TABLE_CHECKSUM", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL"),
        *("ENCRYPTED", "ENCRYPTION_KEY_ID", "SEQUENCE"),
    },
}
_SECOND: Final = "the target decides itself whether another engine has a copy"
_WHY: Final = "the target has no such option; it says how rows are stored, not what they are"


def never_run(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Removes how long to wait for a lock (MariaDB), and where files are."""
    del site
    for span in statement.classified.never_run:
        yield Edit(*span, "", "the target decides itself how long it waits, and where it keeps its files")


def of_tables(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Removes table options that the target lacks, and those of a second engine beside InnoDB."""
    for feature, names in _OF_TABLES.items():
        if not site.target.has(feature):
            yield from without_options(statement, names, _WHY)
    yield from _of_other_engines(statement, site)
    if statement.classified.database and not site.target.has(Feature.MARIADB_SYNTAX):
        yield from without_options(statement, {"COMMENT"}, "the target has no comments of databases")
    yield from without_options(statement, {"ENGINE_ATTRIBUTE"}, "only for engines other than InnoDB")
    yield from without_options(statement, {"SECONDARY_ENGINE"}, _SECOND)
    for item in statement.items:
        if item.tokens[0].word in {"SECONDARY_LOAD", "SECONDARY_UNLOAD"}:
            yield Omission(item, _SECOND)


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
        if not all(size in sizes | {"0"} for size in _block_sizes(scopes)):  # 0 takes back the size that it had
            yield from without_options(statement, {"KEY_BLOCK_SIZE"}, why)
    if site.target.has(Feature.MARIADB_SYNTAX):
        return
    for scope in scopes:
        for i, token, depth in with_depth(scope):
            if depth == 0 and token.kind == "quoted" and at(scope, i + 1).text == "=":
                yield from take_out(statement, scope, i, i + 3, _WHY)


def _block_sizes(scopes: Iterable[Sequence[Token]]) -> Iterator[str]:
    for scope in scopes:
        for i, token in enumerate(scope):
            if token.word == "KEY_BLOCK_SIZE":
                yield at(scope, i + 1 + (at(scope, i + 1).text == "=")).text


def of_columns_and_indexes(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Removes ENGINE_ATTRIBUTE, COLUMN_FORMAT, STORAGE; COMPRESSED of MariaDB and Percona; PRE_SPLIT_REGIONS of
    TiDB."""
    for item in statement.items:
        found = item.definition
        for i, _, depth in with_depth(found):
            is_option = depth == 0 and i > 1 and item.change in ADDS_COLUMN | ADDS_KEY
            end = _option_end(found, i, item, site) if is_option else None
            if end is not None:
                yield remove(found[i:end], _WHY)


def _option_end(found: Sequence[Token], i: int, item: Item, site: Site) -> int | None:
    """Tells where the option ends that begins at `i`; None when no option begins there that the target lacks."""
    word, equals = found[i].word, at(found, i + 1).text == "="
    is_lacking = word == "SECONDARY_ENGINE_ATTRIBUTE" and not site.target.has(Feature.SECONDARY_ENGINE_ATTRIBUTE)
    if word == "ENGINE_ATTRIBUTE" or is_lacking:
        return i + 2 + equals
    if word == "PRE_SPLIT_REGIONS" and item.change in ADDS_KEY and not site.target.has(Feature.TIDB_SYNTAX):
        value = i + 1 + equals
        return closing(found, value) + 1 if at(found, value).text == "(" else value + 1
    if item.change not in ADDS_COLUMN:
        return None
    kind = at(found, i + 1).word
    if word == "COLUMN_FORMAT" and (kind == "COMPRESSED" or not site.target.has(Feature.COLUMN_FORMAT)):
        return i + 2 + 3 * ([at(found, i + n).word for n in (2, 3)] == ["WITH", "COMPRESSION_DICTIONARY"])
    if word == "STORAGE" and kind in {"DISK", "MEMORY", "DEFAULT"} and not site.target.has(Feature.COLUMN_FORMAT):
        return i + 2
    if word == "COMPRESSED" and at(found, i - 1).word != "COLUMN_FORMAT":
        return None if site.target.has(Feature.MARIADB_SYNTAX) else i + 1 + 2 * equals
    return None


def coordinates(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Replaces MySQL's SRID n by MariaDB's REF_SYSTEM_ID = n, right behind the type, and the other way round."""
    for item in statement.items:
        column = item.definition
        for i, token, depth in with_depth(column):
            if item.change not in ADDS_COLUMN or depth != 0 or i < 2 or token.word not in {"SRID", "REF_SYSTEM_ID"}:
                continue
            value = i + 1 + (at(column, i + 1).text == "=")
            if site.target.has(Feature.SRID if token.word == "SRID" else Feature.REF_SYSTEM_ID):
                continue
            why = f"the target has no {token.word}"
            yield remove(column[i : value + 1], why)
            if site.target.has(Feature.REF_SYSTEM_ID):
                yield Edit(column[1].span[1], column[1].span[1], f" REF_SYSTEM_ID={at(column, value).text}", why)
            elif site.target.has(Feature.SRID):
                yield Edit(column[1].span[1], column[1].span[1], f" SRID {at(column, value).text}", why)


def geometry_collections(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Replaces GEOMCOLLECTION, as which MySQL 8 shows GEOMETRYCOLLECTION, by the name that all servers know."""
    if site.target.has(Feature.GEOMCOLLECTION):
        return
    for item in statement.items:
        kind = at(item.definition, 1)
        if item.change in ADDS_COLUMN and kind.word == "GEOMCOLLECTION":
            yield Edit(*kind.span, "GEOMETRYCOLLECTION", "the target calls the type so")


_BEFORE_IF: Final = frozenset({"COLUMN", "INDEX", "KEY", "CONSTRAINT", "PARTITION", "ADD", "DROP", "MODIFY", "CHANGE"})
_KIND_OF: Final = {
    **dict.fromkeys((C.ADD_COLUMN, C.DROP_COLUMN, C.MODIFY_COLUMN, C.COLUMN_DEFAULT), "column"),
    **dict.fromkeys((C.ADD_INDEX, C.DROP_INDEX, C.RENAME_INDEX, C.INDEX_VISIBILITY), "index"),
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
        is_whole = token.span[0] < name and statement.classified.kind in _ALTERS
        idle = [item] if item is not None and not is_whole else _whole(statement)
        exists = _exists(statement, item, found[end:], site, is_whole=is_whole) if idle else None
        if exists is (found[i + 1].word == "NOT"):
            yield from (Omission(one, WAS_THERE if exists else _WAS_NOT_THERE) for one in idle)
        elif _lacks_if(statement, found[i - 1], token, name, site):
            yield remove(found[i:end], _WHY_IF)


_ALTERS: Final = frozenset({StatementKind.ALTER_TABLE, StatementKind.EXCHANGE_PARTITION, StatementKind.RENAME_TABLE})


def _whole(statement: StatementParts) -> list[Item]:
    """Gives what has to be left out so that nothing of a statement about one table is left."""
    if statement.classified.kind is StatementKind.RENAME_TABLE:
        return [Item(C.RENAME_TABLE, statement.tokens)] if len(statement.classified.touched) == 2 else []
    return list(statement.lists[0]) if statement.lists and statement.classified.kind in _ALTERS else []


def _if_end(found: Sequence[Token], i: int) -> int | None:
    """Tells where IF [NOT] EXISTS ends that begins at `i`; None when it does not begin there."""
    end = i + 2 + (at(found, i + 1).word == "NOT")
    return end if found[i].word == "IF" and at(found, end - 1).word == "EXISTS" else None


def _exists(
    statement: StatementParts, item: Item | None, behind: Sequence[Token], site: Site, *, is_whole: bool
) -> bool | None:
    """Tells whether the object of an IF is there; None where it is not known.  behind: what follows the IF."""
    table = statement.classified.tables[0]
    if is_whole:
        return site.around.exists(table, "table")
    kind = "" if item is None else _KIND_OF.get(item.change, "")
    name = at(behind, 0).name
    if not kind or not name or site.around.exists(table, "table") is not True:
        return None
    return site.around.exists(table, kind, name)


def _lacks_if(statement: StatementParts, before: Token, token: Token, name: int, site: Site) -> bool:
    kind = statement.classified.kind
    if kind in {StatementKind.CREATE_VIEW, *_ALTERS} and token.span[0] < name:
        return not site.target.has(Feature.MARIADB_SYNTAX)
    if site.target.has(Feature.IF_EXISTS):
        return False
    if kind in {StatementKind.CREATE_INDEX, StatementKind.DROP_INDEX}:
        return True
    return kind is StatementKind.ALTER_TABLE and token.span[0] > name and before.word in _BEFORE_IF


def replacing(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Refuses CREATE OR REPLACE TABLE for other targets than MariaDB."""
    is_other = statement.classified.kind is not StatementKind.CREATE_VIEW
    if is_other and not site.target.has(Feature.MARIADB_SYNTAX):
        words = [token.word for token in statement.tokens[:4]]
        if words[:3] == ["CREATE", "OR", "REPLACE"]:
            raise UnsupportedError(
                f"the target has no CREATE OR REPLACE {words[3]}; drop what is there by hand, then replace the"
                " statement by one without OR REPLACE"
            )
    yield from ()


def versioning(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Refuses system-versioned tables, which keep their old rows, for other targets than MariaDB."""
    words = [token.word for token in statement.tokens]
    pairs = set(pairwise(words))
    if not site.target.has(Feature.MARIADB_SYNTAX) and pairs & {("SYSTEM", "VERSIONING"), ("PERIOD", "FOR")}:
        raise UnsupportedError(
            "the target keeps no old rows of a table by itself (SYSTEM VERSIONING, PERIOD FOR); replace the statement"
            " by one without that, or skip it"
        )
    yield from ()


def interval_partitions(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Refuses PARTITION BY ... INTERVAL for other targets: it is TiDB's short form of many partitions, which only TiDB
    expands."""
    if site.target.has(Feature.TIDB_SYNTAX):
        return
    clauses = [statement.options, *(item.tokens for item in statement.items if item.change is C.PARTITIONING)]
    for clause in clauses:
        for i, token, depth in with_depth(clause):
            if depth == 0 and token.word == "INTERVAL" and at(clause, i + 1).text == "(":
                raise UnsupportedError(
                    "the target has no partitioning by INTERVAL; replace the statement by one with the partitions"
                    " written out, as the upstream's SHOW CREATE TABLE has them"
                )
    yield from ()
