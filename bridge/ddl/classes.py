"""Names the classes of schema changes, by which a policy decides.

Finds the actions of an ALTER TABLE: where each one ends, and what it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import chain, combinations
from typing import Final, NamedTuple

from bridge.ddl.lexer import NotUnderstoodError, Token


class StatementKind(StrEnum):
    """What a statement is as a whole."""

    CREATE_DATABASE = "create database"
    ALTER_DATABASE = "alter database"
    DROP_DATABASE = "drop database"
    CREATE_TABLE = "create table"
    ALTER_TABLE = "alter table"
    EXCHANGE_PARTITION = "exchange partition"
    DROP_TABLE = "drop table"
    RENAME_TABLE = "rename table"
    TRUNCATE_TABLE = "truncate table"
    RECOVER_TABLE = "recover table"
    CREATE_VIEW = "create view"
    DROP_VIEW = "drop view"
    CREATE_INDEX = "create index"
    DROP_INDEX = "drop index"


class ChangeClass(StrEnum):
    """What a statement, or one action of an ALTER TABLE, does.  The names are those of TiCDC's list of schema changes
    (docs.pingcap.com/tidb/stable/ticdc-ddl) as far as it has them."""

    CREATE_DATABASE = "create database"
    ALTER_DATABASE = "alter database"
    DROP_DATABASE = "drop database"
    CREATE_TABLE = "create table"
    DROP_TABLE = "drop table"
    TRUNCATE_TABLE = "truncate table"
    RENAME_TABLE = "rename table"
    RECOVER_TABLE = "recover table"
    CREATE_VIEW = "create view"
    DROP_VIEW = "drop view"
    ADD_COLUMN = "add column"
    DROP_COLUMN = "drop column"
    MODIFY_COLUMN = "modify column"
    COLUMN_DEFAULT = "alter column default value"
    ADD_INDEX = "add index"
    DROP_INDEX = "drop index"
    RENAME_INDEX = "rename index"
    INDEX_VISIBILITY = "alter table index visibility"
    ADD_PRIMARY_KEY = "add primary key"
    DROP_PRIMARY_KEY = "drop primary key"
    ADD_FOREIGN_KEY = "add foreign key"
    DROP_FOREIGN_KEY = "drop foreign key"
    ADD_CHECK = "add check"
    ALTER_CHECK = "alter check"
    DROP_CONSTRAINT = "drop constraint"
    ADD_PARTITION = "add partition"
    DROP_PARTITION = "drop partition"
    TRUNCATE_PARTITION = "truncate partition"
    EXCHANGE_PARTITION = "exchange partition"
    REORGANIZE_PARTITION = "reorganize partition"
    PARTITIONING = "alter table partitioning"
    TABLE_COMMENT = "alter table comment"
    TABLE_CHARSET = "alter table character set"
    AUTO_ID = "rebase auto id"
    TABLE_OPTION = "alter table option"
    TTL = "alter table ttl"
    REMOVE_TTL = "alter table remove ttl"
    NOTHING = "nothing"


C = ChangeClass

TIDB_OPTIONS: Final = (
    *("SHARD_ROW_ID_BITS", "PRE_SPLIT_REGIONS", "AUTO_ID_CACHE", "AFFINITY", "ATTRIBUTES", "STATS_BUCKETS"),
    *("STATS_TOPN", "STATS_SAMPLE_RATE", "STATS_COL_CHOICE", "STATS_COL_LIST", "STATS_OPTIONS"),
)
"""Options of tables, NAME [=] value, that only TiDB has."""
ACTIONS: Final[dict[tuple[str, ...], ChangeClass]] = {
    ("ADD", "COLUMN"): C.ADD_COLUMN,
    **{("ADD", kind): C.ADD_INDEX for kind in ("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL")},
    **{("ADD", kind, "INDEX"): C.ADD_INDEX for kind in ("VECTOR", "COLUMNAR", "HYBRID")},
    ("ADD", "PRIMARY"): C.ADD_PRIMARY_KEY,
    ("ADD", "FOREIGN"): C.ADD_FOREIGN_KEY,
    ("ADD", "CHECK"): C.ADD_CHECK,
    ("ADD", "PARTITION"): C.ADD_PARTITION,
    ("DROP", "COLUMN"): C.DROP_COLUMN,
    **{("DROP", word): C.DROP_INDEX for word in ("INDEX", "KEY")},
    ("DROP", "PRIMARY"): C.DROP_PRIMARY_KEY,
    ("DROP", "FOREIGN"): C.DROP_FOREIGN_KEY,
    **{("DROP", word): C.DROP_CONSTRAINT for word in ("CHECK", "CONSTRAINT")},
    ("DROP", "PARTITION"): C.DROP_PARTITION,
    ("MODIFY",): C.MODIFY_COLUMN,
    ("CHANGE",): C.MODIFY_COLUMN,
    ("RENAME", "COLUMN"): C.MODIFY_COLUMN,
    **{("RENAME", word): C.RENAME_INDEX for word in ("INDEX", "KEY")},
    ("RENAME",): C.RENAME_TABLE,
    **{("ALTER", word): C.INDEX_VISIBILITY for word in ("INDEX", "KEY")},
    **{("ALTER", word): C.ALTER_CHECK for word in ("CHECK", "CONSTRAINT")},
    ("ALTER",): C.COLUMN_DEFAULT,
    ("TRUNCATE", "PARTITION"): C.TRUNCATE_PARTITION,
    ("EXCHANGE", "PARTITION"): C.EXCHANGE_PARTITION,
    ("REORGANIZE", "PARTITION"): C.REORGANIZE_PARTITION,
    ("COALESCE", "PARTITION"): C.PARTITIONING,
    **{(verb, "PARTITION"): C.NOTHING for verb in ("ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR")},
    ("UPGRADE", "PARTITIONING"): C.NOTHING,
    ("COMPACT",): C.NOTHING,
    ("REMOVE", "PARTITIONING"): C.PARTITIONING,
    ("PARTITION", "BY"): C.PARTITIONING,
    ("CONVERT", "TO"): C.TABLE_CHARSET,
    ("REMOVE", "TTL"): C.REMOVE_TTL,
    ("ADD",): C.ADD_COLUMN,
    ("DROP",): C.DROP_COLUMN,
    ("CHARACTER", "SET"): C.TABLE_CHARSET,
    **{(word,): C.TABLE_CHARSET for word in ("DEFAULT", "CHARSET", "COLLATE")},
    ("COMMENT",): C.TABLE_COMMENT,
    **{(*force, word): C.AUTO_ID for word in ("AUTO_INCREMENT", "AUTO_RANDOM_BASE") for force in ((), ("FORCE",))},
    **{(word,): C.TTL for word in ("TTL", "TTL_ENABLE", "TTL_JOB_INTERVAL")},
    **{
        (option,): C.TABLE_OPTION
        for option in (
            *("ALGORITHM", "LOCK", "ENGINE", "ROW_FORMAT", "KEY_BLOCK_SIZE", "AVG_ROW_LENGTH", "CHECKSUM"),
            *("COMPRESSION", "DELAY_KEY_WRITE", "ENCRYPTION", "INSERT_METHOD", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS"),
            *("STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "FORCE", "ORDER", "ENABLE", "DISABLE"),
            *TIDB_OPTIONS,
            *("PLACEMENT", "CACHE", "NOCACHE", "TABLESPACE", "WITH", "WITHOUT", "AUTOEXTEND_SIZE", "ENGINE_ATTRIBUTE"),
            *("SECONDARY_ENGINE_ATTRIBUTE", "SECONDARY_ENGINE", "SECONDARY_LOAD", "SECONDARY_UNLOAD"),
            *("PAGE_CHECKSUM", "TRANSACTIONAL", "TABLE_CHECKSUM", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL"),
            *("ENCRYPTED", "ENCRYPTION_KEY_ID"),
        )
    },
    ("SET", "TIFLASH"): C.TABLE_OPTION,
}
"""What the actions of ALTER TABLE do, by their first words; the longest entry that matches counts."""

CONSTRAINTS: Final[dict[str, ChangeClass]] = {
    "PRIMARY": C.ADD_PRIMARY_KEY,
    "UNIQUE": C.ADD_INDEX,
    "FOREIGN": C.ADD_FOREIGN_KEY,
    "CHECK": C.ADD_CHECK,
}
"""What `ADD CONSTRAINT [name]` adds."""

RUNS_ON: Final = frozenset({C.DROP_PARTITION, C.TRUNCATE_PARTITION, C.REORGANIZE_PARTITION, C.PARTITIONING, C.NOTHING})
"""Actions that take lists of names: what follows a comma may still belong to them."""

OF_INDEXES: Final = frozenset({C.ADD_INDEX, C.DROP_INDEX, C.DROP_CONSTRAINT})
"""What may make or drop a unique key besides the primary key."""
LEAVES_ROWS: Final = OF_INDEXES | {
    *(C.COLUMN_DEFAULT, C.RENAME_INDEX, C.INDEX_VISIBILITY, C.ADD_FOREIGN_KEY, C.DROP_FOREIGN_KEY, C.ADD_CHECK),
    *(C.ALTER_CHECK, C.ADD_PARTITION, C.REORGANIZE_PARTITION, C.PARTITIONING, C.TABLE_COMMENT, C.AUTO_ID),
    *(C.TABLE_OPTION, C.TTL, C.REMOVE_TTL, C.NOTHING),
}
"""What leaves the rows of a table as they are, with its columns, their types and its primary key."""


class ColumnNames(NamedTuple):
    """What actions do to names of columns, in lower case.  renamed: old and new names; freed: names that columns lose;
    given: names that columns get."""

    renamed: list[tuple[str, str]]
    freed: set[str]
    given: set[str]

    @property
    def gone(self) -> set[str]:
        """The names that no column has any more."""
        return self.freed - self.given

    @property
    def dropped(self) -> set[str]:
        """The columns that are gone; one of that name may come again with other values."""
        return self.freed - {old for old, _ in self.renamed}


def swaps_columns(actions: Sequence[Sequence[Token]]) -> bool:
    """Tells whether a column gets the name that another one had, while its own name is given again: CHANGE a b ...,
    CHANGE b a ...; or DROP b, CHANGE a b ..., ADD a ...."""
    renamed, freed, given = column_names(actions)
    return any(old in given and new in freed for old, new in renamed)


def takes_name_early(actions: Sequence[Sequence[Token]]) -> bool:
    """Tells whether an action gives a column the name that another column loses by a later one."""
    names = [column_names([action]) for action in actions]
    return any(earlier.given & later.freed for earlier, later in combinations(names, 2))


def comes_after_later_name(actions: Sequence[Sequence[Token]]) -> bool:
    """Tells whether an action puts a column AFTER another by the name that this one gets by a later action."""
    afters = [_lower(action[-1:]) if [token.word for token in action[-2:-1]] == ["AFTER"] else "" for action in actions]
    renamed = [{new for _, new in column_names([action]).renamed} for action in actions]
    return any(after in later for (after, _), (_, later) in combinations(zip(afters, renamed, strict=True), 2))


def columns_if_not_there(action: Sequence[Token]) -> list[tuple[Token, ...]]:
    """Gives the definitions of the columns that ADD COLUMN IF NOT EXISTS adds, from their names on."""
    behind = behind_verb(action)
    if "NOT" not in {token.word for token in action[: -len(behind)]}:
        return []
    return split_at_commas(behind[1:-1]) if behind[0].text == "(" else [behind]


def column_names(actions: Sequence[Sequence[Token]]) -> ColumnNames:
    """Tells which names of columns the actions of an ALTER TABLE take away, and which they give."""
    renamed: list[tuple[str, str]] = []
    freed, given = set[str](), set[str]()
    for action in chain.from_iterable(map(additions, actions)):
        change, behind = action_class(action), behind_verb(action)
        if pair := behind[:2] if action[0].word == "CHANGE" else renamed_column(action):
            renamed.append((_lower(pair[:1]), _lower(pair[1:])))
        elif change is ChangeClass.DROP_COLUMN:
            freed.add(_lower(behind[:1]))
        elif change is ChangeClass.ADD_COLUMN:
            given.add(_lower(behind[:1]))
    renamed = [(old, new) for old, new in renamed if old != new]
    return ColumnNames(renamed, freed | {old for old, _ in renamed}, given | {new for _, new in renamed})


def renamed_column(action: Sequence[Token]) -> tuple[Token, Token] | None:
    """Gives the old and the new name of RENAME COLUMN [IF EXISTS] old TO new; None for another action."""
    names = behind_verb(action)
    if [token.word for token in action[:2]] != ["RENAME", "COLUMN"] or len(names) < 3:
        return None
    return names[0], names[2]


def behind_verb(action: Sequence[Token]) -> tuple[Token, ...]:
    """Gives what follows ADD, DROP, MODIFY, CHANGE or RENAME, from the column's name on."""
    words = [token.word for token in action[:5]]
    at = 1 + (words[1:2] == ["COLUMN"])
    if words[at : at + 1] == ["IF"]:
        at += 2 + (words[at + 1 : at + 2] == ["NOT"])
    return tuple(action[at:])


def _lower(name: Sequence[Token]) -> str:
    return "".join(token.name or "" for token in name).lower()


def additions(action: Sequence[Token]) -> list[Sequence[Token]]:
    """Gives ADD (...) as one action for each column, key or check that it adds, and any other action as it is."""
    behind = behind_verb(action)
    if [token.text for token in behind[:1]] != ["("] or action_class(action) is not ChangeClass.ADD_COLUMN:
        return [action]
    return [(action[0], *part) for part in split_at_commas(behind[1:-1])]


def alter_actions(tokens: Sequence[Token]) -> list[tuple[Token, ...]]:
    """Gives the actions of an ALTER TABLE from the tokens behind the table's name; those in a comment do not count."""
    actions: list[list[Token]] = []
    for part in filter(None, split_at_commas([token for token in tokens if token.text != ";"])):
        goes_on = _prefix(part) is None  # one more name of a list: DROP PARTITION a, b; ORDER BY a, b
        if actions and action_class(tuple(actions[-1])) in RUNS_ON | {ChangeClass.TABLE_OPTION} and goes_on:
            actions[-1].extend(part)
        else:
            actions.append(list(part))
    return [tuple(action) for action in actions]


def split_at_commas(tokens: Sequence[Token]) -> list[tuple[Token, ...]]:
    """Splits tokens at the commas outside of parentheses; gives no part where there are no tokens."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [tuple(part) for part in parts] if tokens else []


def action_class(action: Sequence[Token]) -> ChangeClass:
    """Tells what one action of ALTER TABLE does.  Raises NotUnderstoodError for an action that is not known."""
    if [token.word for token in action[:2]] == ["ADD", "CONSTRAINT"]:
        words = [token.word for token in without_if(action)[2:4]]
        change = next((CONSTRAINTS[word] for word in words if word in CONSTRAINTS), None)
    else:
        change = _prefix(action)
    if change is None:
        raise NotUnderstoodError(
            "the bridge does not know this action of ALTER TABLE: " + " ".join(token.text for token in action[:6])
        )
    return change


def without_if(action: Sequence[Token]) -> tuple[Token, ...]:
    """Gives an action without its IF NOT EXISTS."""
    words = [token.word for token in action[:6]]
    at = next((i for i in range(len(words)) if words[i : i + 3] == ["IF", "NOT", "EXISTS"]), None)
    return tuple(action) if at is None else (*action[:at], *action[at + 3 :])


def _prefix(action: Sequence[Token]) -> ChangeClass | None:
    words = tuple(token.word for token in action[:3])
    if words[:1] == ("PARTITION",) and words[2:] in {("PLACEMENT",), ("ATTRIBUTES",)}:
        return ChangeClass.TABLE_OPTION
    if action[0].kind == "quoted" and [token.text for token in action[1:2]] == ["="]:
        return ChangeClass.TABLE_OPTION  # MariaDB's `name`='value' for an engine
    return next((ACTIONS[words[:n]] for n in (3, 2, 1) if words[:n] in ACTIONS), None)
