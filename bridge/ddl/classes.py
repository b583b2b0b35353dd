"""Names the classes of schema changes, by which a policy decides."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


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
