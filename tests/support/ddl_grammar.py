"""Schema changes at random in the grammar of TiDB, MySQL 8 or MariaDB, of the clauses that not every server knows."""

from __future__ import annotations

import random
from collections.abc import Sequence

DIALECTS = ("tidb", "mysql", "mariadb")

TYPES = ["INT", "BIGINT UNSIGNED", "VARCHAR(9)", "DECIMAL(9, 2)", "DATETIME(3)", "TEXT", "ENUM('a,b', 'c')", "BLOB"]
ATTRIBUTES = [
    *("NOT NULL", "NULL", "COMMENT 'x, (y'", "UNIQUE", "UNIQUE KEY", "CHECK (1 > 0)"),
    *("CONSTRAINT `k,1` CHECK (2 > 1)", "DEFAULT NULL"),
]
ATTRIBUTES_OF = {
    "tidb": [
        *("UNIQUE KEY GLOBAL", "UNIQUE LOCAL", "UNIQUE /*T![global_index] GLOBAL */", "DEFAULT (NEXTVAL(`s`))"),
        *("DEFAULT NEXT VALUE FOR b.s", "REFERENCES u (id)", "CHECK (3 > 2) NOT ENFORCED"),
        "REFERENCES `b`.`u` (`id`) ON DELETE SET NULL ON UPDATE CASCADE",
    ],
    "mysql": [*("CHECK (4 > 3) NOT ENFORCED", "/*!80016 CHECK (5 > 4) NOT ENFORCED */")],
    "mariadb": [],
}
LAST_ATTRIBUTES = ["", "", " REFERENCES u (id)", " REFERENCES u (id) MATCH SIMPLE ON UPDATE NO ACTION"]
"""MySQL takes them at the end only."""
SPECIAL_COLUMNS = {
    "tidb": [
        *("{} BIGINT AUTO_RANDOM(5) PRIMARY KEY CLUSTERED", "{} INT KEY NONCLUSTERED", "{} VECTOR(3) NOT NULL"),
        *("{} BIGINT PRIMARY KEY /*T![clustered_index] CLUSTERED */ COMMENT 'x'", "{} VECTOR<FLOAT>"),
    ],
    "mysql": ["{} INT AS (1 + 1) STORED NOT NULL"],
    "mariadb": ["{} INT AS (1 + 1) STORED"],
}
INDEX_OPTIONS = ["", " USING BTREE", " COMMENT 'x'", " KEY_BLOCK_SIZE = 4"]
INDEX_OPTIONS_OF = {
    "tidb": [
        *(" GLOBAL", " LOCAL", " INVISIBLE", " PRE_SPLIT_REGIONS = 4", " PRE_SPLIT_REGIONS (BY (1), (2)) GLOBAL"),
        *(" /*T![pre_split] PRE_SPLIT_REGIONS=4 */", " GLOBAL COMMENT 'y'", " INVISIBLE GLOBAL"),
    ],
    "mysql": [" INVISIBLE", " VISIBLE"],
    "mariadb": [],
}
TABLE_OPTIONS = [
    *("ENGINE=InnoDB", "COMMENT='x, y'", "ROW_FORMAT = DYNAMIC", "AUTO_INCREMENT 5", "CHARSET=utf8mb4"),
    *("DEFAULT CHARACTER SET = latin1", "STATS_PERSISTENT=0", "COLLATE utf8mb4_bin"),
    *("DATA DIRECTORY = '/x'", "INDEX DIRECTORY='/y'", "KEY_BLOCK_SIZE=4"),
]
TABLE_OPTIONS_OF = {
    "tidb": [
        *("SHARD_ROW_ID_BITS=4", "PRE_SPLIT_REGIONS 2", "AUTO_ID_CACHE = 1", "TTL=`c0` + INTERVAL 3 DAY"),
        *("TTL_ENABLE='ON'", "TTL_JOB_INTERVAL '1h'", "PLACEMENT POLICY=`p`", "PLACEMENT POLICY DEFAULT"),
        *("/*T! SHARD_ROW_ID_BITS=2 */", "/*T![placement] PLACEMENT POLICY=`p` */", "STATS_BUCKETS=9"),
        *("AUTO_RANDOM_BASE=9", "COMPRESSION='zlib'", "ENCRYPTION='N'"),
    ],
    "mysql": [
        *("COMPRESSION='NONE'", "ENCRYPTION='N'", "TABLESPACE = innodb_file_per_table"),
        "/*!80016 ENCRYPTION='N' */",
    ],
    "mariadb": [
        *("PAGE_CHECKSUM=1", "TRANSACTIONAL=1", "PAGE_COMPRESSED=0", "PAGE_COMPRESSION_LEVEL=5"),
        "/*!100100 `PAGE_COMPRESSED`='ON' */",
    ],
}
PARTITIONS = [
    "",
    "",
    " PARTITION BY HASH (c0) PARTITIONS 2",
    " PARTITION BY RANGE (c0) (PARTITION p VALUES LESS THAN (9))",
]
PARTITIONS_OF = {
    "tidb": [" PARTITION BY LIST (c0) (PARTITION p VALUES IN (9) PLACEMENT POLICY=`x`,PARTITION q VALUES IN (1, 2))"],
    "mysql": [" /*!50100 PARTITION BY LIST (c0) (PARTITION p VALUES IN (1, 2) TABLESPACE = innodb_file_per_table) */"],
    "mariadb": [],
}
ACTIONS = [
    *("DROP COLUMN v", "RENAME COLUMN v TO w", "DROP INDEX i", "FORCE", "ALTER COLUMN v SET DEFAULT 1", "RENAME TO x"),
]
ACTIONS_OF = {
    "tidb": [
        *("SET TIFLASH REPLICA 1", "REMOVE TTL", "FORCE AUTO_INCREMENT = 5", "ALTER INDEX i INVISIBLE", "NOCACHE"),
        *("ATTRIBUTES 'x'", "PARTITION p PLACEMENT POLICY=`x`", "PARTITION `p` ATTRIBUTES DEFAULT"),
        *("ADD COLUMN IF NOT EXISTS z INT", "DROP COLUMN IF EXISTS v", "ADD INDEX g (v) WHERE v IS NOT NULL"),
        *(
            "ADD VECTOR INDEX ((VEC_COSINE_DISTANCE(e)))",
            "ADD COLUMNAR INDEX q (v)",
            "PARTITION BY HASH (v) PARTITIONS 2",
        ),
    ],
    "mysql": [
        *("ALTER INDEX i VISIBLE", "ALTER CHECK k NOT ENFORCED", "DROP CHECK k", "ALGORITHM=INSTANT", "LOCK = NONE"),
        "CONVERT TO CHARACTER SET gb18030",
    ],
    "mariadb": [
        *("ADD COLUMN IF NOT EXISTS z INT", "DROP COLUMN IF EXISTS v", "DROP CONSTRAINT k"),
        *("MODIFY COLUMN IF EXISTS v BIGINT", "DROP INDEX IF EXISTS i", "ADD INDEX IF NOT EXISTS g (v)"),
        "DROP FOREIGN KEY IF EXISTS f",
    ],
}
WHOLE = {
    "tidb": [
        *("ALTER DATABASE x PLACEMENT POLICY=DEFAULT", "ALTER DATABASE PLACEMENT POLICY `p` CHARSET utf8mb4"),
        "CREATE DATABASE IF NOT EXISTS y PLACEMENT POLICY = p COLLATE utf8mb4_bin",
        "ALTER DATABASE x SET TIFLASH REPLICA 1",
        "DROP TABLE `app`.`t`, `app`.`u`",
        "CREATE ALGORITHM = UNDEFINED DEFINER = `root`@`%` SQL SECURITY DEFINER VIEW `v` (`a`) AS SELECT 1 FROM `t`",
        *("CREATE FULLTEXT INDEX f ON t (e)", "DROP VIEW app.v, v2"),
        "CREATE UNIQUE INDEX g ON t (v) GLOBAL COMMENT 'x'",
    ],
    "mysql": [
        "ALTER DATABASE x ENCRYPTION 'N' COLLATE utf8mb4_0900_ai_ci",
        "CREATE DATABASE y /*!80016 DEFAULT ENCRYPTION='N' */",
        "CREATE /*!50013 DEFINER=`a`@`b` SQL SECURITY DEFINER */ /*!50001 VIEW `v` AS SELECT 1 AS `FROM` */",
        *("CREATE INDEX g ON t (v DESC) INVISIBLE ALGORITHM=INPLACE LOCK=NONE", "RENAME TABLE t TO x, u TO t"),
    ],
    "mariadb": [
        "CREATE INDEX IF NOT EXISTS g ON t (v)",
        *("DROP TABLE t WAIT 3", "TRUNCATE t NOWAIT", "RENAME TABLE IF EXISTS t WAIT 3 TO x"),
        "DROP INDEX i ON t NOWAIT",
        *("ALTER ONLINE TABLE t WAIT 5 DROP COLUMN v", "CREATE INDEX g ON t WAIT 5 (v)"),
        *("CREATE VIEW IF NOT EXISTS v AS SELECT 1", "DROP INDEX IF EXISTS g ON t"),
    ],
}  # fmt: skip


class Grammar:
    """Statements of one dialect."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.dialect = self._random.choice(DIALECTS)

    def statement(self) -> str:
        """One of them."""
        return self._random.choice([self._create, self._create, self._alter, self._alter, self._whole])()

    def _one(self, common: Sequence[str], of: dict[str, list[str]]) -> str:
        return self._random.choice([*common, *of[self.dialect], *of[self.dialect]])

    def _some(self, most: int, common: Sequence[str], of: dict[str, list[str]]) -> list[str]:
        found = list(dict.fromkeys(self._one(common, of) for _ in range(self._random.randrange(most + 1))))
        kinds = {part.replace("/*T! ", "").split("=")[0].split()[0] for part in found}
        return found if len(kinds) == len(found) else found[:1]  # nothing twice

    def _column(self, name: str) -> str:
        if self._random.random() < 0.25:
            return self._random.choice(SPECIAL_COLUMNS[self.dialect]).format(name)
        attributes = " ".join(self._some(3, ATTRIBUTES, ATTRIBUTES_OF))
        last = self._random.choice(LAST_ATTRIBUTES) if "REFERENCES" not in attributes else ""
        return f"{name} {self._random.choice(TYPES)} {attributes}".rstrip() + last

    def _index(self) -> str:
        option = self._one(INDEX_OPTIONS, INDEX_OPTIONS_OF)
        kind = self._random.choice(["KEY i{}", "UNIQUE INDEX i{}", "CONSTRAINT `i{}` UNIQUE"]).format(
            self._random.randrange(9)
        )
        return f"{kind} (c0, c1 DESC){option}"

    def _create(self) -> str:
        parts = [self._column(f"c{i}") for i in range(1 + self._random.randrange(3))]
        parts += [self._index()] * (self._random.random() < 0.5)
        options = self._random.choice([" ", ", "]).join(self._some(5, TABLE_OPTIONS, TABLE_OPTIONS_OF))
        exists = self._random.choice(["", "IF NOT EXISTS "])
        separator = self._random.choice([",", ", ", "\n,"])
        return (
            f"CREATE TABLE {exists}n ({separator.join(parts)}) {options}{self._one(PARTITIONS, PARTITIONS_OF)}".rstrip()
        )

    def _alter(self) -> str:
        made = [
            lambda: f"ADD COLUMN {self._column('n0')}",
            lambda: f"ADD COLUMN ({self._column('n1')}, {self._column('n2')})",
            lambda: f"MODIFY COLUMN {self._column('v')}",
            lambda: f"ADD {self._index()}",
            lambda: self._one(TABLE_OPTIONS, TABLE_OPTIONS_OF),
            lambda: " ".join(self._some(3, TABLE_OPTIONS, TABLE_OPTIONS_OF)) or "FORCE",
            lambda: self._one(ACTIONS, ACTIONS_OF),
            lambda: self._one(ACTIONS, ACTIONS_OF),
        ]
        actions = [self._random.choice(made)() for _ in range(1 + self._random.randrange(3))]
        alone = [action for action in actions if "PARTITION" in action or action in {"SECONDARY_UNLOAD", "NOCACHE"}]
        return f"ALTER TABLE t {', '.join(alone[:1] or actions)}"

    def _whole(self) -> str:
        return self._random.choice(WHOLE[self.dialect])
