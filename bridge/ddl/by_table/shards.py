"""Reads schema changes of shards, which are merged into one table, and rules on the next one by those of all shards.

What only adds something runs at the first shard.  A statement that ran for another shard, and that this one has not
had, is confirmed without running.  Everything else is held.  All of it follows from the journal, also after a restart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Final, NamedTuple

from bridge.ddl.by_table.routing import RoutingError, routed_statement
from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.classes import StatementKind
from bridge.ddl.clauses import Item, at, closing, statement_parts
from bridge.ddl.lexer import Token, UnreadableError, open_comments, read_tokens
from bridge.ddl.parser import Classified, Refused, classify
from bridge.filters.routes import Routes
from bridge.model import TableName

_KINDS: Final = frozenset(
    {StatementKind.CREATE_TABLE, StatementKind.ALTER_TABLE, StatementKind.CREATE_INDEX, StatementKind.DROP_INDEX}
)
_OF_ALL_SHARDS: Final = frozenset(
    {
        *(C.DROP_TABLE, C.TRUNCATE_TABLE, C.RENAME_TABLE, C.RECOVER_TABLE),
        *(C.DROP_PARTITION, C.TRUNCATE_PARTITION, C.EXCHANGE_PARTITION),
    }
)
"""What one shard does to its own rows, and what would be done to those of all shards."""
_CONFIRMED: Final = frozenset(
    {
        *(C.ADD_COLUMN, C.MODIFY_COLUMN, C.COLUMN_DEFAULT, C.ADD_INDEX, C.DROP_INDEX, C.RENAME_INDEX),
        *(C.INDEX_VISIBILITY, C.ADD_CHECK, C.ALTER_CHECK, C.DROP_CONSTRAINT, C.ADD_FOREIGN_KEY, C.DROP_FOREIGN_KEY),
        *(C.TABLE_COMMENT, C.TABLE_CHARSET, C.TABLE_OPTION, C.AUTO_ID, C.TTL, C.REMOVE_TTL),
    }
)
"""What the merged table has for all shards once it ran for one, so that an equal statement has nothing to do."""
_NOT_A_TYPE: Final = frozenset({"", "SERIAL", "LONG", "NATIONAL", "AS", "GENERATED"})
_MARKS: Final = {"string": "'", "quoted": "`"}
"""What stands for a token in `_ATTRIBUTE`, whatever it holds."""
_ATTRIBUTE: Final = re.compile(
    r"(UNSIGNED|SIGNED|ZEROFILL|FIRST|NULL|NOT NULL|(?:COLLATE|CHARSET|AFTER|CHARACTER SET) \S+|COMMENT '"
    r"|DEFAULT (?:'|NULL|TRUE|FALSE|(?:[-+] )?\d+(?: \. \d+)?)) "
)


@dataclass(frozen=True)
class ShardStatement:
    """A schema change of a shard.

    text: what it says, apart from the shard's name and from blanks.  like: the shard that it copies.
    why_never: why it is never run as it came; "" when it may be.
    runs_first: whether it may run at the first shard.
    is_confirmed: whether an equal statement of another shard has nothing left to do.
    """

    shard: TableName
    target: TableName
    text: str
    classes: tuple[C, ...] = ()
    like: TableName | None = None
    why_never: str = ""
    runs_first: bool = False
    is_confirmed: bool = False

    @property
    def makes(self) -> bool:
        """Whether it makes the shard."""
        return C.CREATE_TABLE in self.classes


@lru_cache(maxsize=1 << 16)
def shard_statement(statement: str, schema: str, routes: Routes) -> ShardStatement | None:
    """Reads a statement; None when it names no shard, or cannot be read with the target's names."""
    if not any(route.merges for route in routes.routes):
        return None
    try:
        text = open_comments(statement)
        classified = classify(text, schema)
        if isinstance(classified, Refused):
            return None
        like = classified.like.table if classified.like else None
        shard = next(filter(routes.merges, [*classified.tables, *([like] if like else [])]), None)
        if shard is None:
            return None
        target = routes.target(shard)
        if why_never := _why_never(classified, routes):
            return ShardStatement(shard, target, text, classified.classes, why_never=why_never)
        routed = routed_statement(text, classified, schema, routes, tidb=False)
        after = classify(routed.text, routed.schema, is_certain=True)
    except (RoutingError, UnreadableError):
        return None
    assert isinstance(after, Classified), routed.text  # `routed_statement` has classified it
    items = list(statement_parts(routed.text, after, tidb=False).items)
    return ShardStatement(
        shard,
        target,
        _text_without_name(routed.text, after),
        classified.classes,
        like=like if like and routes.merges(like) else None,
        runs_first=bool(items) and all(map(_is_additive, items)),
        is_confirmed=_CONFIRMED.issuperset(classified.classes) and all(map(_leaves_rows, items)),
    )


def _why_never(classified: Classified, routes: Routes) -> str:
    if classified.like and routes.merges(classified.like.table):
        copies = [name for name in classified.tables if routes.target(name) != routes.target(classified.like.table)]
        if copies:
            return f"it copies {classified.like.table}, of which the target only has the table of all its shards"
    is_alone = classified.kind in _KINDS and len(classified.tables) == 1
    if is_alone and not _OF_ALL_SHARDS & set(classified.classes):
        return ""
    return "it is about one shard, and the target has the rows of all shards in one table"


def _text_without_name(text: str, classified: Classified) -> str:
    """Gives the words of a statement without the name of its table."""
    start, end = classified.touched[0].span
    tokens = [token for token in read_tokens(text) if token.text != ";" and not start <= token.span[0] < end]
    return " ".join(token.word or token.text for token in tokens)


# --- single actions


def _is_additive(item: Item) -> bool:
    """Tells whether an action adds something without which rows can be written as well, and from which no row gets a
    value that depends on the moment."""
    if item.change is C.ADD_INDEX:
        return item.definition[0].word in {"INDEX", "KEY"}
    if item.change is C.ADD_COLUMN:  # IF NOT EXISTS would pass over another shard's column, of whatever default
        return _is_plain_column(item.definition) and not any(token.word == "EXISTS" for token in item.tokens)
    return item.change is C.TABLE_COMMENT


def _leaves_rows(item: Item) -> bool:
    """Tells whether an action does nothing to rows when the merged table has it already."""
    if item.change is C.ADD_COLUMN:
        return _is_plain_column(item.definition)
    return item.change is not C.MODIFY_COLUMN or item.tokens[0].word == "MODIFY"


def _is_plain_column(definition: Sequence[Token]) -> bool:
    """Tells whether a new column holds NULL or a constant in the rows that do not name it."""
    kind = at(definition, 1).word
    behind = definition[closing(definition, 2) + 1 if at(definition, 2).text == "(" else 2 :]
    text = "".join(f"{_MARKS.get(token.kind) or token.word or token.text} " for token in behind)
    attributes = _ATTRIBUTE.findall(text)
    if kind in _NOT_A_TYPE or "".join(f"{attribute} " for attribute in attributes) != text:
        return False
    has_default = any(attribute.startswith("DEFAULT ") and attribute != "DEFAULT NULL" for attribute in attributes)
    if "NOT NULL" in attributes:
        return has_default
    return kind != "TIMESTAMP" or has_default or not {"NULL", "DEFAULT NULL"}.isdisjoint(attributes)


_FIX: Final = "skip it, approve it, or replace it by what the merged table needs"


class ShardVerdict(Enum):
    """What is done with a schema change.  COMPARE: it makes a shard, and is confirmed when the merged table is what it
    makes, or run when there is none."""

    RUN = auto()
    CONFIRM = auto()
    COMPARE = auto()
    HOLD = auto()


class Ruling(NamedTuple):
    """A verdict, and why."""

    verdict: ShardVerdict
    why: str = ""


def compared(change: ShardStatement, *, is_equal: bool) -> Ruling:
    """Rules on a statement that makes a shard, after the merged table was compared with what it makes."""
    if is_equal:
        return Ruling(ShardVerdict.CONFIRM, f"confirmed: {change.target} is what it makes")
    return Ruling(
        ShardVerdict.HOLD,
        f"{change.shard} is merged into {change.target}, which has other columns, keys or options; approve it if rows"
        " of the shard fit that table all the same, or alter the table and approve it then",
    )


def misread(change: ShardStatement, misreading: str) -> str:
    """Says why a statement is held that is not to be approved.  misreading: as of `misread_values`."""
    return (
        f"{change.shard} is merged with other shards, and {misreading}, in silence; where no such row comes before all"
        " shards are alike, replace it by what the merged table needs, maybe by itself"
    )


def kept_rows(change: ShardStatement, left_out: str) -> str:
    """Says why a statement is held: rows of its shard have its column from before.  left_out: why, in words."""
    return (
        f"rows of {change.shard} hold in {change.target} what they held before, as {left_out}; give them,"
        " and the table, by hand what this statement gave them upstream, and say `bridge ddl done`"
    )


def ruling(change: ShardStatement, past: Iterable[tuple[ShardStatement, bool]]) -> Ruling:
    """Rules on the next schema change.  past: those before, in order, each with whether it ran; of a table that was
    made anew only what came since."""
    if change.why_never:
        return Ruling(ShardVerdict.HOLD, f"{change.why_never}; skip it, or replace it by what the merged table needs")
    equal: list[tuple[ShardStatement, bool]] = []
    for earlier, did_run in past:
        if earlier.target == change.target and earlier.makes and did_run:
            equal = []
        if (earlier.target, earlier.text) == (change.target, change.text) and not earlier.why_never:
            equal.append((earlier, did_run))
    shards_run = [earlier.shard for earlier, did_run in equal if did_run]
    if change.makes and change.like is not None:
        return Ruling(ShardVerdict.CONFIRM, f"confirmed, as {change.like} was merged")
    is_new = all(earlier.shard != change.shard for earlier, _ in equal)
    if shards_run and (change.makes or (change.is_confirmed and is_new)):
        return Ruling(ShardVerdict.CONFIRM, f"confirmed, as run for {shards_run[-1]}")
    if change.makes:
        return Ruling(ShardVerdict.COMPARE)
    return Ruling(ShardVerdict.RUN) if change.runs_first else Ruling(ShardVerdict.HOLD, _why_held(change))


def _why_held(change: ShardStatement) -> str:
    names = ", ".join(change_class.value for change_class in change.classes)
    if C.DROP_COLUMN in change.classes:
        return (
            f"{change.shard} is merged with other shards, whose rows may still need what it takes away ({names});"
            " skip it for each shard but the last, and approve it for the last"
        )
    return (
        f"{change.shard} is merged with other shards, whose rows may not fit what it makes of the table ({names});"
        f" {_FIX}: what runs for the first shard is confirmed for the others, where a second run would do nothing"
    )
