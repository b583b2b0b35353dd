"""Removes syntax that only TiDB has, plain or in /*T! ... */ comments, for other targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bridge.ddl.classes import TIDB_OPTIONS, StatementKind
from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.clauses import ADDS_COLUMN, ADDS_KEY, Item, StatementParts, at, closing, outer, outer_words, with_depth
from bridge.ddl.lexer import Token, tidb_comments
from bridge.ddl.rule import (
    Edit,
    OmittedObject,
    Site,
    UnsupportedError,
    beginning,
    option_scopes,
    partition_scopes,
    remove,
    value_at,
)

_WHY: Final = "only TiDB has it: it says how rows are stored, not what they are"
_OPTIONS: Final = frozenset({*TIDB_OPTIONS, "AUTO_RANDOM_BASE", "TTL_ENABLE", "TTL_JOB_INTERVAL"})
"""Options of the form NAME [=] value."""
_ACTIONS: Final = frozenset({"CACHE", "NOCACHE", "ATTRIBUTES", "PARTITION"})


def comments(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Removes `/*T![feature] ... */`, a comment to other servers, so that the journal tells what was left out."""
    for feature, (start, end) in tidb_comments(statement.text):
        yield Edit(start - (statement.text[start - 1] == " "), end, "", f"TiDB's alone: {feature}")


def columns(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Removes AUTO_RANDOM, CLUSTERED and NONCLUSTERED, GLOBAL, LOCAL and PRE_SPLIT_REGIONS of indexes."""
    for item, i in statement.in_columns("AUTO_RANDOM"):
        has_bits = at(item.definition, i + 1).text == "("
        end = closing(item.definition, i + 1) if has_bits else i
        yield remove(item.definition[i : end + 1], _WHY)
    for item in statement.items:
        for i, token in list(outer(item.definition))[1:]:
            if _is_key_option(item, i):
                yield remove([token], _WHY)
                if token.word == "GLOBAL" and (
                    "PARTITION" in outer_words(statement.options)
                    or site.around.partition_method(statement.classified.tables[0])
                ):
                    yield from _unique_over_partitions(item)
            elif item.change in ADDS_KEY and token.word == "PRE_SPLIT_REGIONS":
                value = value_at(item.definition, i)
                end = closing(item.definition, value) if at(item.definition, value).text == "(" else value
                yield remove(item.definition[i : end + 1], _WHY)
            elif item.change is C.ADD_INDEX and token.word == "WHERE":
                omission = OmittedObject("index", item.name or "")
                yield remove(item.tokens, "the target has no index on some rows only", omission)


def _unique_over_partitions(item: Item) -> Iterator[Edit]:
    """Leaves out a unique index that holds over all partitions, of which other servers have none: it changes no row.
    Without the primary key rows would not be found."""
    if item.change is not C.ADD_INDEX:
        raise UnsupportedError(
            "the target has no primary key, nor a unique key in a column's definition, that holds over all partitions"
            " (GLOBAL): replace the statement by one without partitions, or with a key that holds their columns"
        )
    if any(token.word == "UNIQUE" for token in item.definition[:3]):
        omission = OmittedObject("index", item.name or "")
        yield remove(item.tokens, "the target has no unique index over all partitions", omission)


def shard_indexes(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Removes TIDB_SHARD(column) from the columns of an index: it scatters what the columns behind it hold, and says
    nothing of a row that they do not."""
    for item in statement.items:
        for i, token in enumerate(item.definition if item.change is C.ADD_INDEX else ()):
            if token.word == "TIDB_SHARD" and i > 1 and item.definition[i - 1].text == "(":
                end = closing(item.definition, i - 1) + 1
                if at(item.definition, end).text == ",":
                    yield remove(item.definition[i - 1 : end + 1], _WHY)


def _is_key_option(item: Item, i: int) -> bool:
    word, before = item.definition[i].word, item.definition[i - 1]
    if item.change in ADDS_COLUMN:
        unique = before.word == "UNIQUE" or (before.word == "KEY" and item.definition[i - 2].word == "UNIQUE")
        is_clustered = word in {"CLUSTERED", "NONCLUSTERED"} and before.word == "KEY"
        return i > 2 and (is_clustered or (unique and word in {"GLOBAL", "LOCAL"}))
    words = {"CLUSTERED", "NONCLUSTERED", "GLOBAL", "LOCAL"}
    return item.change in ADDS_KEY and word in words and any(t.text == ")" for t in item.definition[:i])


def options(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Removes TiDB's options of tables and databases, and its actions of ALTER TABLE."""
    for item in statement.items:
        is_action = item.tokens[0].word in _ACTIONS or [t.word for t in item.tokens[:2]] == ["SET", "TIFLASH"]
        if item.change is C.REMOVE_TTL or (item.change is C.TABLE_OPTION and is_action):
            yield remove(item.tokens, _WHY)
    yield from _of_partitions(statement)
    for scope in option_scopes(statement):
        if scope[0].word not in {*_ACTIONS, "SET"} or statement.classified.kind is StatementKind.CREATE_TABLE:
            behind_last = 0
            for i, _ in outer(scope):
                if i >= behind_last and (end := _option_end(scope, i)):
                    yield remove(scope[beginning(scope, i) : end], _WHY)
                    behind_last = end
        elif statement.classified.kind is StatementKind.ALTER_DATABASE:
            yield remove(statement.tokens, _WHY)


def _of_partitions(statement: StatementParts) -> Iterator[Edit]:
    """Removes PLACEMENT POLICY of partition definitions, and UPDATE INDEXES behind PARTITION BY."""
    for clause in partition_scopes(statement):
        for i, token, depth in with_depth(clause):
            following = at(clause, i + 1).word
            if depth > 0 and (token.word, following) == ("PLACEMENT", "POLICY"):
                yield remove(clause[i : value_at(clause, i + 1) + 1], _WHY)
            elif depth == 0 and (token.word, following) == ("UPDATE", "INDEXES"):
                yield remove(clause[i : closing(clause, i + 2) + 1], _WHY)


def _option_end(scope: Sequence[Token], i: int) -> int | None:
    """Tells where an option of TiDB's that begins at `i` ends; None when none begins there."""
    word = scope[i].word
    if word == "FORCE" and at(scope, i + 1).word == "AUTO_INCREMENT":
        return i + 1
    if word == "FORCE" and at(scope, i + 1).word == "AUTO_RANDOM_BASE":
        return _option_end(scope, i + 1)
    if word == "PLACEMENT" and at(scope, i + 1).word == "POLICY":
        return value_at(scope, i + 1) + 1
    if word == "TTL":
        return value_at(scope, i) + 5  # column + INTERVAL 3 DAY
    if word in _OPTIONS:
        return value_at(scope, i) + 1
    return None
