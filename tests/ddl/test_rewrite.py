"""Statements in the words of each flavour: what becomes of every kind of syntax, and what runs."""

from __future__ import annotations

import contextlib
import inspect
import pkgutil
import re
from dataclasses import replace
from importlib import import_module
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysql.err import MySQLError

from bridge import ddl
from bridge.ddl import by_table, rules
from bridge.ddl.collation_tables import SOURCES, CollationRules, KnownCollations
from bridge.ddl.parser import Classified, Refused, classify
from bridge.ddl.rewrite import RULES, Rewritten, rewrite
from bridge.ddl.rule import Edit, Site, UnsupportedError, named_capabilities
from bridge.mysql.probe import probe
from bridge.mysql.server_errors import error_code
from tests.ddl.test_classes import CLASSES
from tests.support.ddl_words import (
    ALL,
    HELD,
    M10,
    M11,
    MARIADB,
    MY8,
    MY57,
    NOT_TIDB,
    NOTHING,
    SAME,
    TIDB,
    flavours,
    on,
    words,
)
from tests.support.pipelines import admin

REWRITES: list[tuple[str, dict[str, str]]] = [
    # What TiDB alone knows, in comments and bare
    ("CREATE TABLE `t` (`id` INT PRIMARY KEY /*T![clustered_index] NONCLUSTERED */,`v` INT)",
     flavours("CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` INT)", *NOT_TIDB)),
    ("CREATE TABLE `t` (`id` BIGINT /*T![auto_rand] AUTO_RANDOM(5) */ PRIMARY KEY) /*T! AUTO_ID_CACHE = 9 */",
     flavours("CREATE TABLE `t` (`id` BIGINT PRIMARY KEY)", *NOT_TIDB)),
    ("CREATE TABLE t (id BIGINT AUTO_RANDOM(5, 54) PRIMARY KEY CLUSTERED, UNIQUE KEY u (id) GLOBAL)",
     flavours("CREATE TABLE t (id BIGINT PRIMARY KEY, UNIQUE KEY u (id))", *NOT_TIDB)),
    ("CREATE TABLE t (a INT, PRIMARY KEY (a) NONCLUSTERED) SHARD_ROW_ID_BITS=4 PRE_SPLIT_REGIONS=2 COMMENT='x'",
     flavours("CREATE TABLE t (a INT, PRIMARY KEY (a)) COMMENT='x'", *NOT_TIDB)),
    ("CREATE TABLE t (c DATETIME) TTL=`c` + INTERVAL 30 DAY TTL_ENABLE='ON' TTL_JOB_INTERVAL='1h'",
     flavours("CREATE TABLE t (c DATETIME)", *NOT_TIDB)),
    ("CREATE TABLE t (a INT) PLACEMENT POLICY=`pp`", flavours("CREATE TABLE t (a INT)", *NOT_TIDB)),
    ("ALTER TABLE t SHARD_ROW_ID_BITS=2, COMMENT='x'", flavours("ALTER TABLE t COMMENT='x'", *NOT_TIDB)),
    ("ALTER TABLE t COMMENT='x', AUTO_ID_CACHE=3", flavours("ALTER TABLE t COMMENT='x'", *NOT_TIDB)),
    ("ALTER TABLE t FORCE AUTO_INCREMENT = 9", flavours("ALTER TABLE t AUTO_INCREMENT = 9", *NOT_TIDB)),
    ("ALTER TABLE t SET TIFLASH REPLICA 2", flavours(NOTHING, *NOT_TIDB)),
    ("ALTER TABLE t CACHE", flavours(NOTHING, *NOT_TIDB)),
    ("ALTER TABLE t ATTRIBUTES 'merge_option=allow'", flavours(NOTHING, *NOT_TIDB)),
    ("ALTER TABLE t STATS_OPTIONS=DEFAULT", flavours(NOTHING, *NOT_TIDB)),
    ("ALTER TABLE `ttl` /*T![ttl] REMOVE TTL */", flavours(NOTHING, *NOT_TIDB)),
    ("CREATE GLOBAL TEMPORARY TABLE t (id INT) ON COMMIT DELETE ROWS", flavours(NOTHING, *NOT_TIDB)),
    ("CREATE TABLE t (id INT DEFAULT (NEXTVAL(`sq`)),v INT)", flavours("CREATE TABLE t (id INT,v INT)", *ALL)),
    ("ALTER TABLE t ADD COLUMN j JSON NOT NULL, ADD k JSON, ADD l JSON COMMENT 'NOT NULL', MODIFY m JSON NOT NULL",
     flavours("ALTER TABLE t ADD COLUMN j JSON DEFAULT 'null' NOT NULL, ADD k JSON, ADD l JSON COMMENT 'NOT NULL',"
              " MODIFY m JSON NOT NULL", *MARIADB)),
    # What each server makes up for the rows that are there
    ("ALTER TABLE t ADD COLUMN id BIGINT AUTO_INCREMENT PRIMARY KEY", flavours(HELD, *ALL)),
    ("ALTER TABLE t ADD id SERIAL, ADD v INT", flavours(HELD, *ALL)),
    ("ALTER TABLE t ADD (v INT, u CHAR(36) DEFAULT (UUID()))", flavours(HELD, *ALL)),
    ("ALTER TABLE t ADD COLUMN n VARCHAR(99) DEFAULT CURRENT_USER", flavours(HELD, *ALL)),
    ("ALTER TABLE t ADD COLUMN user VARCHAR(9) COMMENT 'uuid()', ADD uuid CHAR(36), ADD `serial` INT", {}),
    ("CREATE TABLE t (id INT DEFAULT NEXT VALUE FOR s NOT NULL)",
     flavours("CREATE TABLE t (id INT NOT NULL)", *ALL)),
    ("FLASHBACK TABLE t TO u", flavours(HELD, *NOT_TIDB)),
    # indexes
    ("CREATE TABLE t (a INT, KEY i (a) INVISIBLE, b INT)",
     flavours("CREATE TABLE t (a INT, KEY i (a) IGNORED, b INT)", *MARIADB)
     | flavours("CREATE TABLE t (a INT, KEY i (a), b INT)", MY57)),
    ("CREATE UNIQUE INDEX i ON t (a) VISIBLE",
     flavours("CREATE UNIQUE INDEX i ON t (a) NOT IGNORED", *MARIADB)
     | flavours("CREATE UNIQUE INDEX i ON t (a)", MY57)),
    ("ALTER TABLE t ADD INDEX e((LOWER(`v`)))", flavours(NOTHING, M11, M10, MY57)),
    ("ALTER TABLE t ADD INDEX e((a + 1), b), ADD COLUMN c INT",
     flavours("ALTER TABLE t ADD COLUMN c INT", M11, M10, MY57)),
    ("CREATE TABLE t (a INT, UNIQUE KEY ((a + 1)), b INT)", flavours("CREATE TABLE t (a INT, b INT)", M11, M10, MY57)),
    ("CREATE TABLE t (j JSON, KEY m ((CAST(j->'$.a' AS UNSIGNED ARRAY))))",
     flavours("CREATE TABLE t (j JSON)", M11, M10, MY57)),
    ("ALTER TABLE t ADD INDEX p (a(10), b DESC) USING BTREE COMMENT '((x))'", {}),
    ("ALTER TABLE t ADD VECTOR INDEX v ((VEC_COSINE_DISTANCE(e))) USING HNSW", flavours(NOTHING, *NOT_TIDB)),
    # columns
    ("CREATE TABLE t (a INT, b INT GENERATED ALWAYS AS (a+1) STORED NOT NULL, c INT AS (a) VIRTUAL NULL COMMENT 'x')",
     flavours("CREATE TABLE t (a INT, b INT GENERATED ALWAYS AS (a+1) STORED, c INT AS (a) VIRTUAL COMMENT 'x')",
              *MARIADB)),
    ("ALTER TABLE t ADD COLUMN b INT AS (`j`->'$.a'), ADD COLUMN c TEXT AS (t.j->>'$.a')",
     flavours("ALTER TABLE t ADD COLUMN b INT AS (JSON_EXTRACT(`j`, '$.a')),"
              " ADD COLUMN c TEXT AS (JSON_UNQUOTE(JSON_EXTRACT(t.j, '$.a')))", *MARIADB)),
    ("CREATE TABLE t (v VECTOR(3), `VECTOR` INT, w VECTOR)",
     flavours("CREATE TABLE t (v LONGTEXT, `VECTOR` INT, w LONGTEXT)", *NOT_TIDB)),
    ("CREATE TABLE t (e ENUM(_UTF8MB4'x','y') DEFAULT _UTF8MB4'x' COMMENT _UTF8MB4'c')",
     flavours("CREATE TABLE t (e ENUM('x','y') DEFAULT _UTF8MB4'x' COMMENT 'c')", *ALL)),
    ("CREATE TABLE t (a VARCHAR(9) DEFAULT _GB18030'x')",
     flavours("CREATE TABLE t (a VARCHAR(9) DEFAULT 'x')", M11, M10, TIDB)),
    ("CREATE TABLE t (a VARCHAR(9) DEFAULT _GBK'中')", flavours(HELD, *ALL)),
    ("ALTER TABLE t RENAME COLUMN a TO c", {MY57: HELD}),
    ("CREATE TABLE t (a INT DEFAULT (1 + 1) NOT NULL, b JSON DEFAULT (JSON_ARRAY()))",
     {MY57: "CREATE TABLE t (a INT NOT NULL, b JSON)"}),
    ("ALTER TABLE t MODIFY COLUMN a INT DEFAULT (1 + 1)", {MY57: "ALTER TABLE t MODIFY COLUMN a INT"}),
    ("ALTER TABLE t ADD COLUMN c INT DEFAULT (1 + 1)", {MY57: HELD}),
    ("ALTER TABLE t ADD COLUMN c INT DEFAULT 1 COMMENT '(x)'", {}),
    # collations and character sets
    ("CREATE TABLE t (a VARCHAR(9) COLLATE utf8mb4_0900_ai_ci)",
     {M10: "CREATE TABLE t (a VARCHAR(9) COLLATE utf8mb4_uca1400_nopad_ai_ci)",
      MY57: "CREATE TABLE t (a VARCHAR(9) COLLATE utf8mb4_unicode_520_ci)"}),
    ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_as_ci",
     {M10: "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_nopad_as_ci",
      MY57: "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
      TIDB: "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin"}),
    # MySQL 5.7 has no collation that counts blanks at the end
    ("CREATE TABLE t (a CHAR(9) COLLATE utf8mb4_nopad_bin, b TEXT COLLATE utf8mb4_general_nopad_ci)",
     {MY57: HELD, **flavours("CREATE TABLE t (a CHAR(9) COLLATE utf8mb4_0900_bin, b TEXT COLLATE utf8mb4_0900_bin)",
                             MY8, TIDB)}),
    ("ALTER TABLE t MODIFY a VARCHAR(9) COLLATE ascii_nopad_bin", flavours(HELD, MY8, MY57, TIDB)),
    ("CREATE DATABASE x COLLATE = 'utf8mb4_de_pb_0900_ai_ci'",
     {M10: "CREATE DATABASE x COLLATE = utf8mb4_uca1400_german2_nopad_ai_ci",
      MY57: "CREATE DATABASE x COLLATE = utf8mb4_german2_ci",
      TIDB: "CREATE DATABASE x COLLATE = utf8mb4_0900_bin"}),
    ("ALTER TABLE t ADD COLUMN c CHAR(9) CHARACTER SET latin1 DEFAULT 'x'",
     flavours("ALTER TABLE t ADD COLUMN c CHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT 'x'", *NOT_TIDB)),
    ("ALTER TABLE t ADD COLUMN c VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_bin",
     flavours("ALTER TABLE t ADD COLUMN c VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", *NOT_TIDB)),
    ("CREATE TABLE t (a NCHAR(3), b VARCHAR(5) ASCII, c NATIONAL VARCHAR(4), d CHAR(2) BINARY)",
     flavours("CREATE TABLE t (a CHAR(3), b VARCHAR(5) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, c VARCHAR(4),"
              " d CHAR(2) BINARY)", *NOT_TIDB)),
    ("ALTER TABLE t ADD COLUMN c INT AS (CAST(a AS CHAR CHARACTER SET latin1))", {}),
    ("CREATE TABLE t (a INT) DEFAULT CHARACTER SET = UTF8MB4 COMMENT 'CHARACTER SET latin1'",
     flavours("CREATE TABLE t (a INT) DEFAULT CHARACTER SET = UTF8MB4 COLLATE utf8mb4_bin"
              " COMMENT 'CHARACTER SET latin1'", *NOT_TIDB)),
    ("ALTER DATABASE x CHARACTER SET latin1",
     flavours("ALTER DATABASE x CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", *NOT_TIDB)),
    ("CREATE TABLE t (a VARCHAR(9) CHARACTER SET gb18030)",
     flavours("CREATE TABLE t (a VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)", M11, M10)
     | {TIDB: "CREATE TABLE t (a VARCHAR(9) CHARACTER SET utf8mb4)"}),
    # indexes and partitions of TiDB's
    ("ALTER TABLE t ADD UNIQUE u ((TIDB_SHARD(b)), b)", flavours("ALTER TABLE t ADD UNIQUE u ( b)", *NOT_TIDB)),
    ("CREATE TABLE t (a INT, UNIQUE u ((tidb_shard(`a`)), `a`))",
     flavours("CREATE TABLE t (a INT, UNIQUE u ( `a`))", *NOT_TIDB)),
    ("CREATE INDEX i ON t ((TIDB_SHARD(a)), a, b)", flavours("CREATE INDEX i ON t ( a, b)", *NOT_TIDB)),
    ("CREATE TABLE t (a INT, b INT, UNIQUE KEY u (b) GLOBAL, KEY k (b) GLOBAL) PARTITION BY HASH(a) PARTITIONS 3",
     flavours("CREATE TABLE t (a INT, b INT, KEY k (b)) PARTITION BY HASH(a) PARTITIONS 3", *NOT_TIDB)),
    ("CREATE TABLE t (a INT, b INT, PRIMARY KEY (b) NONCLUSTERED GLOBAL) PARTITION BY HASH(a) PARTITIONS 3",
     flavours(HELD, *NOT_TIDB)),
    ("CREATE TABLE t (a INT, b INT UNIQUE GLOBAL) PARTITION BY HASH(a) PARTITIONS 3", flavours(HELD, *NOT_TIDB)),
    ("CREATE TABLE t (a INT) PARTITION BY LIST (a) (PARTITION p VALUES IN (1) COMMENT = 'DEFAULT')", {}),
    # views
    ("CREATE ALGORITHM = UNDEFINED DEFINER = `root`@`%` SQL SECURITY INVOKER VIEW `v` AS SELECT 1",
     flavours("CREATE ALGORITHM = UNDEFINED DEFINER = CURRENT_USER SQL SECURITY INVOKER VIEW `v` AS SELECT 1", *ALL)),
    ("CREATE DEFINER = CURRENT_USER SQL SECURITY INVOKER VIEW `v` AS SELECT `DEFINER` FROM t", {}),
    # how, not what
    ("ALTER TABLE t ADD COLUMN c INT, ALGORITHM=INSTANT, LOCK=NONE", flavours("ALTER TABLE t ADD COLUMN c INT", *ALL)),
    ("CREATE INDEX i ON t (a) ALGORITHM = INPLACE LOCK = NONE", flavours("CREATE INDEX i ON t (a)", *ALL)),
    ("CREATE TABLE t (a INT) ENGINE=MyISAM", flavours("CREATE TABLE t (a INT) ENGINE=InnoDB", *NOT_TIDB)),
    ("ALTER TABLE t ENGINE = 'aria'", flavours("ALTER TABLE t ENGINE = InnoDB", *NOT_TIDB)),
    ("CREATE TABLE t (a INT) ENGINE=InnoDB ENCRYPTION='Y'", flavours("CREATE TABLE t (a INT) ENGINE=InnoDB", *MARIADB)),
    ("CREATE TABLE t (a INT) TABLESPACE ts ENGINE=InnoDB PARTITION BY HASH (a) (PARTITION p TABLESPACE = `x`)",
     flavours("CREATE TABLE t (a INT) ENGINE=InnoDB PARTITION BY HASH (a) (PARTITION p)", *ALL)),
    ("ALTER TABLE t TABLESPACE = innodb_system", flavours(NOTHING, *ALL)),
    # what MySQL's log writes in other words than its users
    ("CREATE TABLE t (a INT DEFAULT NULL) START TRANSACTION",
     flavours("CREATE TABLE t (a INT DEFAULT NULL)", *ALL)),
    ("DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `tmp`", flavours(NOTHING, *ALL)),
    ("DROP TABLES IF EXISTS t, x /* generated by server */", {}),
    ("ALTER ALGORITHM=MERGE DEFINER=`a`@`b` VIEW v AS SELECT 1",
     flavours("ALTER ALGORITHM=MERGE DEFINER=CURRENT_USER SQL SECURITY INVOKER VIEW v AS SELECT 1", *ALL)),
    ("CREATE HYBRID INDEX i ON t (a) PARAMETER '{}'", flavours(NOTHING, *NOT_TIDB)),
    # executable comments: the upstream ran them
    ("CREATE TABLE t (a INT /*!80016 CHECK (a>0) NOT ENFORCED */)", flavours("CREATE TABLE t (a INT)", *ALL)),
    ("CREATE TABLE t (a INT)/*!50100 PARTITION BY HASH (a) */",
     flavours("CREATE TABLE t (a INT) PARTITION BY HASH (a)", *ALL)),
    ("CREATE DATABASE x /*!40100 DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_bin */ /*!80016 DEFAULT ENCRYPTION='N' */",
     flavours("CREATE DATABASE x DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_bin", M11, M10, MY57)
     | flavours("CREATE DATABASE x DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_bin DEFAULT ENCRYPTION='N'", MY8, TIDB)),
    ("CREATE DATABASE x COLLATE utf8mb4_bin DEFAULT PLACEMENT POLICY = p",
     flavours("CREATE DATABASE x COLLATE utf8mb4_bin", *NOT_TIDB)),
    # what the random statements of test_parser.py have found
    ("ALTER TABLE t /*T! SHARD_ROW_ID_BITS=2 */, ADD COLUMN c INT, /*T![ttl] TTL_ENABLE='OFF' */, DROP COLUMN b",
     flavours("ALTER TABLE t ADD COLUMN c INT, DROP COLUMN b", *NOT_TIDB)),
    ("ALTER TABLE t /*T! SHARD_ROW_ID_BITS=2 */", flavours(NOTHING, *NOT_TIDB)),
    ("CREATE TABLE t (a INT) AUTO_ID_CACHE = 1 /*T! SHARD_ROW_ID_BITS=2 */ AUTO_RANDOM_BASE=9 COMMENT 'x'",
     flavours("CREATE TABLE t (a INT) COMMENT 'x'", *NOT_TIDB)),
    ("CREATE TABLE t (a INT) PLACEMENT POLICY DEFAULT STATS_BUCKETS=9 PLACEMENT POLICY=DEFAULT",
     flavours("CREATE TABLE t (a INT)", *NOT_TIDB)),
    ("CREATE TABLE t (a INT UNIQUE /*T![global_index] GLOBAL */ CHECK (a > 0))",
     flavours("CREATE TABLE t (a INT UNIQUE)", *NOT_TIDB)
     | {TIDB: "CREATE TABLE t (a INT UNIQUE /*T![global_index] GLOBAL */)"}),
    ("ALTER DATABASE PLACEMENT POLICY p CHARSET utf8mb4 COLLATE utf8mb4_bin",
     flavours("ALTER DATABASE `app` CHARSET utf8mb4 COLLATE utf8mb4_bin", *NOT_TIDB)
     | {TIDB: "ALTER DATABASE `app` PLACEMENT POLICY p CHARSET utf8mb4 COLLATE utf8mb4_bin"}),
    # what is left between options when some go
    ("CREATE TABLE t (a INT) ENGINE=InnoDB, SHARD_ROW_ID_BITS=4, AUTO_ID_CACHE 1, COMMENT='x', TTL_ENABLE='ON'",
     flavours("CREATE TABLE t (a INT) ENGINE=InnoDB, COMMENT='x'", *NOT_TIDB)),
    ("CREATE TABLE t (a INT) SHARD_ROW_ID_BITS=4, COMMENT 'x' AUTO_ID_CACHE=1, PRE_SPLIT_REGIONS=2",
     flavours("CREATE TABLE t (a INT) COMMENT 'x'", *NOT_TIDB)),
    ("CREATE TABLE t (a INT) COMMENT='x', /*T! SHARD_ROW_ID_BITS=4 */ PARTITION BY HASH (a) PARTITIONS 2",
     flavours("CREATE TABLE t (a INT) COMMENT='x' PARTITION BY HASH (a) PARTITIONS 2", *NOT_TIDB)),
    ("CREATE TABLE t (a INT) SHARD_ROW_ID_BITS=4, AUTO_ID_CACHE=1", flavours("CREATE TABLE t (a INT)", *NOT_TIDB)),
    ("ALTER TABLE t ENCRYPTION='N' AUTO_ID_CACHE=3, COMMENT='x'",
     flavours("ALTER TABLE t COMMENT='x'", *MARIADB)
     | flavours("ALTER TABLE t ENCRYPTION='N', COMMENT='x'", MY8, MY57)),
    ("ALTER TABLE t ENCRYPTION='N' AUTO_ID_CACHE=3",
     flavours(NOTHING, *MARIADB) | flavours("ALTER TABLE t ENCRYPTION='N'", MY8, MY57)),
    ("ALTER DATABASE x PLACEMENT POLICY=DEFAULT", flavours(NOTHING, *NOT_TIDB)),
    ("ALTER DATABASE PLACEMENT POLICY p",
     flavours(NOTHING, *NOT_TIDB) | {TIDB: "ALTER DATABASE `app` PLACEMENT POLICY p"}),
    ("ALTER DATABASE x SET TIFLASH REPLICA 1", flavours(NOTHING, *NOT_TIDB)),
    ("ALTER DATABASE x PLACEMENT POLICY=`p` COLLATE utf8mb4_bin",
     flavours("ALTER DATABASE x COLLATE utf8mb4_bin", *NOT_TIDB)),
    # partitions
    ("ALTER TABLE t PARTITION `p` PLACEMENT POLICY=`x`", flavours(NOTHING, *NOT_TIDB)),
    ("ALTER TABLE t PARTITION p ATTRIBUTES DEFAULT", flavours(NOTHING, *NOT_TIDB)),
    ("ALTER TABLE t PARTITION p ATTRIBUTES 'merge_option=deny', COMMENT='x'",
     flavours("ALTER TABLE t COMMENT='x'", *NOT_TIDB)),
    ("CREATE TABLE t (a INT) PARTITION BY RANGE (a) (PARTITION p VALUES LESS THAN (9) PLACEMENT POLICY=`x`)",
     flavours("CREATE TABLE t (a INT) PARTITION BY RANGE (a) (PARTITION p VALUES LESS THAN (9))", *NOT_TIDB)),
    ("ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 2 UPDATE INDEXES (i GLOBAL, `j` LOCAL)",
     flavours("ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 2", *NOT_TIDB)),
    # REFERENCES of a column, which TiDB reads and forgets
    ("CREATE TABLE t (a INT REFERENCES u (id) MATCH FULL ON DELETE SET NULL ON UPDATE NO ACTION COMMENT 'x', b INT)",
     flavours("CREATE TABLE t (a INT COMMENT 'x', b INT)", *ALL)),
    ("ALTER TABLE t ADD COLUMN c TIMESTAMP REFERENCES `app`.`u` (`id`) ON UPDATE CURRENT_TIMESTAMP",
     flavours("ALTER TABLE t ADD COLUMN c TIMESTAMP ON UPDATE CURRENT_TIMESTAMP", *ALL)),
    # how rows are stored
    ("CREATE TABLE t (a INT PRIMARY KEY CLUSTERED COMMENT 'x', b INT UNIQUE KEY GLOBAL, c INT UNIQUE LOCAL)",
     flavours("CREATE TABLE t (a INT PRIMARY KEY COMMENT 'x', b INT UNIQUE KEY, c INT UNIQUE)", *NOT_TIDB)),
    ("ALTER TABLE t ADD UNIQUE INDEX g (a) GLOBAL PRE_SPLIT_REGIONS = (BY (1), (2)) COMMENT 'x'",
     flavours("ALTER TABLE t ADD UNIQUE INDEX g (a) COMMENT 'x'", *NOT_TIDB)),
    ("ALTER TABLE t ADD INDEX g (a) WHERE a IS NOT NULL, ADD COLUMN c INT",
     flavours("ALTER TABLE t ADD COLUMN c INT", *NOT_TIDB)),
    ("CREATE TABLE t (a INT) ENGINE=InnoDB COMPRESSION='NONE'",
     flavours("CREATE TABLE t (a INT) ENGINE=InnoDB", *MARIADB)),
    # how long to wait for a lock, and where files are: the target's own matters
    ("ALTER TABLE t WAIT 10 ADD COLUMN c INT", flavours("ALTER TABLE t ADD COLUMN c INT", *ALL)),
    ("ALTER ONLINE TABLE t NOWAIT DROP INDEX i, ADD c INT",
     flavours("ALTER TABLE t DROP INDEX i, ADD c INT", *ALL)),
    ("ALTER TABLE IF EXISTS t WAIT 1 ADD COLUMN c INT",
     flavours("ALTER TABLE IF EXISTS t ADD COLUMN c INT", *MARIADB)
     | flavours("ALTER TABLE t ADD COLUMN c INT", MY8, MY57, TIDB)),
    ("DROP TABLE `t` WAIT 5", flavours("DROP TABLE `t`", *ALL)),
    ("TRUNCATE TABLE t NOWAIT", flavours("TRUNCATE TABLE t", *ALL)),
    ("TRUNCATE wait", {}),
    ("RENAME TABLE t WAIT 3 TO u, x TO y", flavours("RENAME TABLE t TO u, x TO y", *ALL)),
    ("CREATE INDEX i ON t WAIT 3 (a)", flavours("CREATE INDEX i ON t (a)", *ALL)),
    ("DROP INDEX i ON t NOWAIT", flavours("DROP INDEX i ON t", *ALL)),
    ("CREATE TABLE t (a INT) DATA DIRECTORY='/x', INDEX DIRECTORY '/y', COMMENT='z'",
     flavours("CREATE TABLE t (a INT) COMMENT='z'", *ALL)),
    ("ALTER TABLE t DATA DIRECTORY = '/x'", flavours(NOTHING, *ALL)),
    ("ALTER TABLE t COMMENT='z' INDEX DIRECTORY = '/x'", flavours("ALTER TABLE t COMMENT='z'", *ALL)),
    ("CREATE TABLE t (a INT) PARTITION BY HASH (a) (PARTITION p DATA DIRECTORY = '/x' ENGINE = InnoDB)",
     flavours("CREATE TABLE t (a INT) PARTITION BY HASH (a) (PARTITION p ENGINE = InnoDB)", *ALL)),
    ("CREATE INDEX i ON t (a, b(3)) NOWAIT COMMENT 'x'", flavours("CREATE INDEX i ON t (a, b(3)) COMMENT 'x'", *ALL)),
    ("ALTER TABLE t UPGRADE PARTITIONING", flavours(NOTHING, *ALL)),
    ("CREATE DATABASE x COMMENT 'y' COLLATE utf8mb4_bin",
     flavours("CREATE DATABASE x COLLATE utf8mb4_bin", MY8, MY57, TIDB)),
    ("CREATE TABLE t (a INT) ENGINE=InnoDB SEQUENCE=1",
     flavours("CREATE TABLE t (a INT) ENGINE=InnoDB", MY8, MY57, TIDB)),
    # what InnoDB refuses
    ("CREATE TABLE t (a INT) ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=1024",
     flavours("CREATE TABLE t (a INT) ROW_FORMAT=COMPRESSED", *NOT_TIDB)),
    ("CREATE TABLE t (a INT) ENGINE=InnoDB ROW_FORMAT=FIXED KEY_BLOCK_SIZE=4 COMMENT='x'",
     flavours("CREATE TABLE t (a INT) ENGINE=InnoDB COMMENT='x'", *NOT_TIDB)),
    ("CREATE TABLE t (a INT) ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8", {}),
    ("ALTER TABLE t ROW_FORMAT=DYNAMIC KEY_BLOCK_SIZE=0", {}),
    ("ALTER TABLE t KEY_BLOCK_SIZE 1024, STATS_PERSISTENT=0",
     flavours("ALTER TABLE t STATS_PERSISTENT=0", *NOT_TIDB)),
    ("CREATE TABLE t (a INT) ENGINE=Aria ROW_FORMAT=PAGE",
     flavours("CREATE TABLE t (a INT) ENGINE=InnoDB", *NOT_TIDB)),
    ("ALTER TABLE t ROW_FORMAT=FIXED, ADD COLUMN c INT",
     flavours("ALTER TABLE t ADD COLUMN c INT", *NOT_TIDB)),
    ("CREATE TABLE t (a INT) PARTITION BY RANGE (a) (PARTITION p VALUES LESS THAN (9) ENGINE = MyISAM)",
     flavours("CREATE TABLE t (a INT) PARTITION BY RANGE (a) (PARTITION p VALUES LESS THAN (9) ENGINE = InnoDB)",
              *NOT_TIDB)),
    ("ALTER TABLE t ADD PARTITION (PARTITION q VALUES LESS THAN (99) TABLESPACE = x STORAGE ENGINE MyISAM)",
     flavours("ALTER TABLE t ADD PARTITION (PARTITION q VALUES LESS THAN (99) STORAGE ENGINE InnoDB)", *NOT_TIDB)
     | {TIDB: "ALTER TABLE t ADD PARTITION (PARTITION q VALUES LESS THAN (99) STORAGE ENGINE MyISAM)"}),
    # what MariaDB alone knows
    ("CREATE TABLE t (a INT) /*!100100 `PAGE_COMPRESSED`='ON' */",
     flavours("CREATE TABLE t (a INT) `PAGE_COMPRESSED`='ON'", *MARIADB)
     | flavours("CREATE TABLE t (a INT)", MY8, MY57, TIDB)),
    ("CREATE TABLE t (a TEXT) PAGE_COMPRESSED=1 TRANSACTIONAL=1", flavours("CREATE TABLE t (a TEXT)", MY8, MY57, TIDB)),
    ("ALTER TABLE IF EXISTS t ADD COLUMN IF NOT EXISTS c INT, DROP COLUMN IF EXISTS b",
     flavours("ALTER TABLE t ADD COLUMN c INT, DROP COLUMN b", MY8, MY57)
     | {TIDB: "ALTER TABLE t ADD COLUMN IF NOT EXISTS c INT, DROP COLUMN IF EXISTS b"}),
    ("CREATE INDEX IF NOT EXISTS g ON t (a)", flavours("CREATE INDEX g ON t (a)", MY8, MY57)),
    ("CREATE TABLE t (id INT DEFAULT NEXT VALUE FOR b.s NOT NULL)",
     flavours("CREATE TABLE t (id INT NOT NULL)", *ALL)),
    ("CREATE TABLE t (a INT, persistent INT AS (a) PERSISTENT UNIQUE)",
     flavours("CREATE TABLE t (a INT, persistent INT AS (a) STORED UNIQUE)", MY8, MY57, TIDB)),
    ("CREATE TABLE t (d DATE DEFAULT curdate() NOT NULL, e DATE DEFAULT NOW(), f DATETIME(3) DEFAULT NOW(3),"
     " g TIME DEFAULT CURRENT_TIME, h VARCHAR(36) DEFAULT concat(uuid(), 'x'), i TEXT DEFAULT NULL, j INT DEFAULT 5)",
     {MY8: "CREATE TABLE t (d DATE DEFAULT (curdate()) NOT NULL, e DATE DEFAULT (NOW()), f DATETIME(3) DEFAULT NOW(3),"
           " g TIME DEFAULT (CURRENT_TIME), h VARCHAR(36) DEFAULT (concat(uuid(), 'x')), i TEXT DEFAULT NULL,"
           " j INT DEFAULT 5)",
      MY57: "CREATE TABLE t (d DATE NOT NULL, e DATE, f DATETIME(3) DEFAULT NOW(3), g TIME, h VARCHAR(36),"
            " i TEXT DEFAULT NULL, j INT DEFAULT 5)"}),
    ("CREATE TABLE t (a INT) AUTOEXTEND_SIZE=4M STATS_PERSISTENT=0",
     flavours("CREATE TABLE t (a INT) STATS_PERSISTENT=0", *ALL)),
    ("ALTER TABLE t AUTOEXTEND_SIZE = 8M", flavours(NOTHING, *ALL)),
    # what only looks like something
    ("ALTER TABLE t ADD COLUMN `AUTO_RANDOM` INT COMMENT 'CLUSTERED, VECTOR(3) /*T! x */ -- '' \\\\'", {}),
    ("CREATE TABLE t (`CHARACTER` INT, `SET` INT, `COLLATE` INT) COMMENT='TTL=x'", {}),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "expected"), REWRITES, ids=[statement for statement, _ in REWRITES])
def test_rewrites(statement: str, expected: dict[str, str]) -> None:
    """Each flavour is sent what it knows; each change of words is on record with its reason; a second pass changes
    nothing more."""
    for flavour in ALL:
        said = words(flavour, statement)
        assert spaced(said) == expected.get(flavour, SAME), flavour
        if said in {NOTHING, HELD}:
            continue
        found = on(flavour, statement)
        assert isinstance(found, Rewritten)
        assert bool(found.steps) == (said != SAME)
        assert all(step.why for step in found.steps)
        if said != SAME:
            assert words(flavour, said) == SAME, flavour


def spaced(text: str) -> str:
    """With one blank for many, none before a parenthesis that closes."""
    return re.sub(r" +(?=\))", "", re.sub(r" {2,}", " ", text)).rstrip()


NO_SYNTAX_ERROR = {
    *(1005, 1007, 1025, 1049, 1050, 1051, 1054, 1060, 1061, 1068, 1072, 1089, 1091, 1146, 1176, 1283, 1505, 1507, 1508),
    *(1512, 1826, 3822, 4091, 4092),
}  # fmt: skip
"""What a server says of a text that it understands, where a table or column is missing or another way."""
IS_THERE = {1007, 1050}
"""Of these it says so before it has done anything."""


CHECKS: list[tuple[str, str]] = [
    ("CREATE TABLE t (id INT PRIMARY KEY, a INT CHECK (a > 0) ENFORCED, n INT, CONSTRAINT k CHECK (n > a) ENFORCED)",
     "CREATE TABLE t (id INT PRIMARY KEY, a INT, n INT)"),
    ("CREATE TABLE t (a INT CONSTRAINT c CHECK (a > 0) NOT NULL, b INT CHECK (b > 1) CHECK (b < 5) NOT ENFORCED)",
     "CREATE TABLE t (a INT NOT NULL, b INT)"),
    ("ALTER TABLE t ADD COLUMN z INT CHECK (z > 0), ADD CONSTRAINT k CHECK (z < 9)", "ALTER TABLE t ADD COLUMN z INT"),
    ("ALTER TABLE t ADD COLUMN c INT CONSTRAINT CHECK (c>0) NOT NULL AFTER id, ADD COLUMN (d INT CHECK (d>0))",
     "ALTER TABLE t ADD COLUMN c INT NOT NULL AFTER id, ADD COLUMN (d INT)"),
    ("ALTER TABLE t ADD CHECK (a > 0)", NOTHING),
    ("ALTER TABLE t ALTER CONSTRAINT k NOT ENFORCED", NOTHING),
    ("ALTER TABLE t DROP CHECK k", NOTHING),
    ("ALTER TABLE t DROP CHECK k, ADD b INT", "ALTER TABLE t ADD b INT"),
]  # fmt: skip
UNLIKE = [
    *(("tidb", flavour) for flavour in ALL),
    *(("mysql-8", flavour) for flavour in (M11, MY57, TIDB)),
    *(("mariadb", flavour) for flavour in (MY8, TIDB)),
]


@pytest.mark.parametrize(("source", "flavour"), UNLIKE)
@pytest.mark.parametrize(("statement", "expected"), CHECKS)
def test_checks_between_servers_that_keep_others(source: str, flavour: str, statement: str, expected: str) -> None:
    """The target gets none: the upstream has checked its rows, and each server names and ends checks in its own way."""
    assert words(flavour, statement, source) == expected


@pytest.mark.parametrize(("source", "flavour"), [("mysql-8", MY8), ("mariadb", M11)])
@pytest.mark.parametrize("statement", [statement for statement, _ in CHECKS])
def test_checks_between_servers_of_one_kind(source: str, flavour: str, statement: str) -> None:
    """They hold, as they came."""
    assert words(flavour, statement, source) == SAME


def test_a_check_that_was_left_out_is_known_by_its_name() -> None:
    """So that what drops it is left out as well."""
    found = on(MY8, "ALTER TABLE t ADD CONSTRAINT k CHECK (a > 0)")
    assert isinstance(found, Rewritten)
    assert [(thing.kind, thing.name) for thing in found.left_out] == [("constraint", "k")]


def test_an_index_that_was_left_out_is_known_by_its_name() -> None:
    """Whatever its kind is, so that its DROP is left out as well."""
    for kind in ("HYBRID", "VECTOR", "COLUMNAR"):
        found = on(MY8, f"CREATE {kind} INDEX i_x ON t (a)")
        assert isinstance(found, Rewritten)
        assert [(thing.kind, thing.name) for thing in found.left_out] == [("index", "i_x")]


NOPAD = "utf8mb4_nopad_bin"
OLD_COLLATIONS: list[tuple[str, str, str]] = [
    # statement, what MariaDB gets, what MySQL 8 gets
    ("CREATE DATABASE d", f"CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE {NOPAD}",
     "CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin"),
    ("CREATE DATABASE d CHARACTER SET latin1", f"CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE {NOPAD}",
     "CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin"),
    ("ALTER DATABASE d COLLATE utf8mb4_general_ci", f"ALTER DATABASE d COLLATE {NOPAD}",
     "ALTER DATABASE d COLLATE utf8mb4_0900_bin"),
    ("CREATE TABLE t (a VARCHAR(9) PRIMARY KEY)",
     f"CREATE TABLE t (a VARCHAR(9) PRIMARY KEY) DEFAULT CHARACTER SET utf8mb4 COLLATE {NOPAD}",
     "CREATE TABLE t (a VARCHAR(9) PRIMARY KEY) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin"),
    ("CREATE TABLE t (a CHAR(1)) DEFAULT CHARACTER SET UTF8MB4 DEFAULT COLLATE UTF8MB4_GENERAL_CI",
     f"CREATE TABLE t (a CHAR(1)) DEFAULT CHARACTER SET UTF8MB4 DEFAULT COLLATE {NOPAD}",
     "CREATE TABLE t (a CHAR(1)) DEFAULT CHARACTER SET UTF8MB4 DEFAULT COLLATE utf8mb4_0900_bin"),
    ("CREATE TABLE t (a TEXT COLLATE utf8mb4_bin, b TEXT CHARACTER SET utf8) CHARSET=latin1",
     f"CREATE TABLE t (a TEXT COLLATE {NOPAD}, b TEXT CHARACTER SET utf8 COLLATE utf8_nopad_bin) CHARSET=utf8mb4"
     f" COLLATE {NOPAD}",
     "CREATE TABLE t (a TEXT COLLATE utf8mb4_0900_bin, b TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin)"
     " CHARSET=utf8mb4 COLLATE utf8mb4_0900_bin"),
    ("ALTER TABLE t ADD a CHAR(1) CHARACTER SET ascii, MODIFY b CHAR(1) COLLATE utf8mb4_unicode_ci",
     f"ALTER TABLE t ADD a CHAR(1) CHARACTER SET ascii COLLATE ascii_nopad_bin, MODIFY b CHAR(1) COLLATE {NOPAD}",
     "ALTER TABLE t ADD a CHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin,"
     " MODIFY b CHAR(1) COLLATE utf8mb4_0900_bin"),
    ("ALTER TABLE t CHANGE a b CHAR(1) CHARACTER SET gbk COLLATE gbk_bin, CONVERT TO CHARACTER SET utf8mb4",
     "ALTER TABLE t CHANGE a b CHAR(1) CHARACTER SET gbk COLLATE gbk_nopad_bin,"
     f" CONVERT TO CHARACTER SET utf8mb4 COLLATE {NOPAD}",
     "ALTER TABLE t CHANGE a b CHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin,"
     " CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin"),
    ("ALTER TABLE t ADD a CHAR(1) CHARSET utf8mb4 BINARY, ADD b CHAR(1) BINARY, ADD c CHAR(2) CHARACTER SET binary",
     f"ALTER TABLE t ADD a CHAR(1) CHARSET utf8mb4 COLLATE {NOPAD}, ADD b CHAR(1),"
     " ADD c CHAR(2) CHARACTER SET binary",
     "ALTER TABLE t ADD a CHAR(1) CHARSET utf8mb4 COLLATE utf8mb4_0900_bin, ADD b CHAR(1),"
     " ADD c CHAR(2) CHARACTER SET binary"),
    ("ALTER TABLE t ADD a VARBINARY(9), ADD b BINARY(2), ADD c BLOB", SAME, SAME),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "mariadb", "mysql"), OLD_COLLATIONS)
def test_tables_of_a_tidb_that_compares_bytes(statement: str, mariadb: str, mysql: str) -> None:
    """They get collations that compare bytes and blanks at the end, whatever theirs are called."""
    assert words(M10, statement, source="tidb-old-collations").replace("utf8mb3_", "utf8_") == mariadb
    assert words(MY8, statement, source="tidb-old-collations") == mysql
    is_plain = mysql == SAME
    assert (words(MY57, statement, source="tidb-old-collations") == HELD) is not is_plain
    on_tidb = words(TIDB, statement, source="tidb-old-collations")
    assert on_tidb == SAME if is_plain else "0900_bin" in on_tidb


def test_an_old_tidb_as_the_target_compares_as_the_upstream() -> None:
    """Its collations compare bytes as well, so that nothing is written otherwise."""
    target = named_capabilities("tidb-8.5")
    old = replace(target, collations=KnownCollations(frozenset({"utf8mb4_bin", "latin1_bin", "binary"}), {}))
    rules = CollationRules(SOURCES["tidb-old-collations"])
    statement = "CREATE TABLE t (a VARCHAR(9) PRIMARY KEY) COLLATE utf8mb4_bin"
    found = rewrite(statement, "app", Site(old, rules, "tidb-old-collations"))
    assert isinstance(found, Rewritten)
    assert found.text == statement


@pytest.mark.parametrize("server", ["target", "old_target", "mysql_target", "old_mysql_target"])
def test_servers_take_what_they_are_sent(server: str, request: pytest.FixtureRequest) -> None:
    """Every text of the tables above runs, or fails for the names in it only, and never for its words."""
    with admin(request.getfixturevalue(server)) as session:
        site = Site(probe(session))
        refused, ran, is_as_made = [], 0, False
        for statement in [statement for _, statement in CLASSES] + [statement for statement, _ in REWRITES]:
            try:
                found = rewrite(statement, "app", site)
            except UnsupportedError:
                continue
            assert isinstance(found, Rewritten)
            if not is_as_made:
                session.execute("DROP DATABASE IF EXISTS app")
                session.execute("CREATE DATABASE IF NOT EXISTS x")
                session.execute("CREATE DATABASE app COLLATE utf8mb4_bin")
                session.execute("USE app")
                for made in TABLES:
                    session.execute(made)
            is_as_made = found.text is None
            try:
                session.execute(found.text or "DO 0")
                ran += 1
            except MySQLError as error:
                is_as_made = error_code(error) in IS_THERE
                if error_code(error) not in NO_SYNTAX_ERROR:
                    refused.append((found.text, error.args))
        assert refused == []
        assert ran > 40


BY_SERVERS: list[tuple[str, tuple[str, ...]]] = [
    ("CREATE TABLE p (a INT) PARTITION BY LIST (a) (PARTITION p VALUES IN (1,2), PARTITION q DEFAULT)", (MY8, MY57)),
    ("CREATE TABLE p (a INT) PARTITION BY LIST (a) (PARTITION p VALUES IN (7), PARTITION q VALUES IN (DEFAULT))",
     NOT_TIDB),
    ("CREATE TABLE p (a INT DEFAULT 5) PARTITION BY LIST (a) (PARTITION p VALUES IN (1, DEFAULT))", NOT_TIDB),
    ("CREATE TABLE p (a INT) PARTITION BY RANGE (a) INTERVAL (100) FIRST PARTITION LESS THAN (100)"
     " LAST PARTITION LESS THAN (900)", NOT_TIDB),
    ("CREATE TABLE p (a TEXT, FULLTEXT INDEX f (a) WITH PARSER MULTILINGUAL)", NOT_TIDB),
    ("CREATE TABLE p (a TEXT, FULLTEXT INDEX f (a) WITH PARSER ngram)", MARIADB),
    ("CREATE OR REPLACE TABLE t (a INT)", (MY8, MY57)),
    ("CREATE OR REPLACE DATABASE x", (MY8, MY57)),
    ("CREATE TABLE p (a INT) WITH SYSTEM VERSIONING", (MY8, MY57)),
    ("CREATE TABLE p (a DATE, b DATE, PERIOD FOR p (a, b))", (MY8, MY57)),
    ("ALTER TABLE t ADD SYSTEM VERSIONING", (MY8, MY57)),
    ("ALTER TABLE t ADD INDEX g (a) IGNORED", (MY8, MY57)),
    ("ALTER TABLE t ALTER INDEX i NOT IGNORED", (MY8,)),
    ("CREATE TABLE p (p POINT REF_SYSTEM_ID=4326 NOT NULL)", (MY8, MY57)),
    ("CREATE TABLE p (p POINT NOT NULL SRID 4326)", (*MARIADB, MY57)),
    ("CREATE TABLE p (g GEOMCOLLECTION)", (*MARIADB, MY57)),
    ("CREATE TABLE p (a INT, b INT INVISIBLE)", (MY57,)),
    ("ALTER TABLE t ALTER COLUMN a SET INVISIBLE", (*MARIADB, MY57)),
    ("CREATE TABLE p (a INT COLUMN_FORMAT FIXED)", MARIADB),
    ("CREATE TABLE p (a INT) SECONDARY_ENGINE = rapid", (*MARIADB, MY57)),
    ("ALTER TABLE t SECONDARY_LOAD", NOT_TIDB),
    ("ALTER TABLE t DROP FOREIGN KEY fk_1", NOT_TIDB),
]  # fmt: skip
"""What no rule knows, and which servers refuse it."""
OF_SERVERS = {"target": M11, "old_target": M10, "mysql_target": MY8, "old_mysql_target": MY57}


@pytest.mark.parametrize("server", OF_SERVERS)
def test_what_servers_refuse_themselves(server: str, request: pytest.FixtureRequest) -> None:
    """A statement in the words of another server goes as it came, and the target refuses it before it does anything."""
    flavour = OF_SERVERS[server]
    with admin(request.getfixturevalue(server)) as session:
        site = Site(probe(session))
        ran = []
        for statement in (statement for statement, refusing in BY_SERVERS if flavour in refusing):
            found = rewrite(statement, "app", site)
            assert isinstance(found, Rewritten)
            assert found.text is not None
            session.execute("DROP DATABASE IF EXISTS app")
            session.execute("CREATE DATABASE app COLLATE utf8mb4_bin")
            session.execute("USE app")
            for made in TABLES:
                session.execute(made)
            with contextlib.suppress(MySQLError):
                session.execute(found.text)
                ran.append(found.text)
        assert ran == []


TABLES = [
    "CREATE TABLE u (id INT PRIMARY KEY, b INT UNIQUE)",
    "CREATE TABLE t (id INT NOT NULL, a INT, b INT, v VARCHAR(99), e TEXT, j JSON, KEY i (b),"
    " CONSTRAINT k CHECK (id > 0))",
]


@given(st.text(alphabet=" `'\"/*!T;-#\\abt(),.\n0123456789ALTERDOPCM", max_size=60))
def test_any_text(noise: str) -> None:
    """Whatever text comes, a rewrite touches the tables that the statement touches, or refuses."""
    for head in ("ALTER TABLE t ADD COLUMN a INT ", "CREATE TABLE t (a INT) ", ""):
        statement = head + noise
        before = classify(statement, "app")
        try:
            found = on(M11, statement)
        except UnsupportedError:
            continue
        if isinstance(found, Refused) or found.text is None:
            continue
        after = classify(found.text, "app")
        assert isinstance(before, Classified)
        assert isinstance(after, Classified)
        assert (before.tables, before.database) == (after.tables, after.database)


RESERVED = """
ADD ALL ALTER ANALYZE ASC BINARY BLOB CASCADE CHANGE CHAR CHARACTER CHECK COLLATE COLUMN CONSTRAINT CONVERT CREATE
CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER DATABASE DEFAULT DESC DROP DUAL EXISTS FOR FORCE FOREIGN FROM
FULLTEXT FUNCTION GENERATED GRANT GROUP HAVING IGNORE INDEX JOIN KEY KILL LIKE LIMIT LINEAR LOAD LOCALTIME
LOCALTIMESTAMP LOCK LONG LONGTEXT MATCH MEDIUMTEXT NOT NO_WRITE_TO_BINLOG NULL OPTIMIZE ORDER OUTFILE PARTITION
PRIMARY PROCEDURE PURGE RANGE READ RECURSIVE REFERENCES RELEASE RENAME REPLACE RESTRICT REVOKE ROW SCHEMA SELECT SET
SPATIAL SQL STORED STRAIGHT_JOIN SYSTEM TABLE TINYTEXT TRIGGER TRUE UNDO UNION UNIQUE UNLOCK UPDATE USE USING
UTC_TIMESTAMP VALUES VARCHAR WHERE WITH
"""
"""Words of MySQL 8 that are names only in backquotes."""
REFUSED = frozenset({"DUMPFILE", "LOAD_FILE"})
"""Words that are refused as names, too."""
PLACES_OF_NAMES = (
    ("CREATE TABLE t (", "{} VARCHAR(9) NOT NULL", ")"),
    *(
        ("ALTER TABLE t ", f"{action} AFTER {{}}", "")
        for action in ("ADD z{} TEXT NULL", "MODIFY {} INT", "CHANGE b{} {} INT")
    ),
    *(("ALTER TABLE t ", action, "") for action in ("ALTER {} SET DEFAULT 4", "ADD UNIQUE u{} ({})", "DROP {}")),
)


def words_of_rules() -> set[str]:
    """The words that the code knows, as far as they may be names without backquotes."""
    sources = chain.from_iterable(Path(package.__path__[0]).glob("*.py") for package in (ddl, rules, by_table))
    found = {word for source in sources for word in re.findall(r'"([A-Z][A-Z_]+)"', source.read_text(encoding="utf-8"))}
    return found.difference(RESERVED.split(), REFUSED)


@pytest.mark.parametrize(("source", "flavour"), [("tidb", M11), ("mysql-8", M11), ("mariadb", MY8)])
@pytest.mark.parametrize("place", PLACES_OF_NAMES)
def test_a_name_may_be_a_word(place: tuple[str, str, str], source: str, flavour: str) -> None:
    """A column's name is not taken for the word, wherever it stands."""
    begins, action, ends = place
    actions = [action.replace("{}", word.lower()) for word in sorted(words_of_rules())]
    assert words(flavour, begins + ", ".join(actions) + ends, source) == SAME


def test_unknown_words_pass_unchanged() -> None:
    """What no rule knows is sent byte for byte."""
    statement = "CREATE TABLE  t (\n\ta INT  SERIAL DEFAULT VALUE /* why */, -- x\n b INT)  ROW_FORMAT = NEW /* y */ "
    assert words(M11, statement) == SAME


_COMPRESSED = "CREATE TABLE t (a VARCHAR(9) /*M!100301 COMPRESSED*/ NOT NULL)"
_LONG_TEXTS = (
    "CREATE TABLE t (a TEXT DEFAULT 'x' NOT NULL, b BLOB DEFAULT (1+1), c JSON DEFAULT '{}', d TEXT DEFAULT NULL,"
    " e BLOB DEFAULT x'E4')"
)
_CHECKED = "ALTER TABLE t ADD CHECK (b>0), MODIFY a JSON CHECK (a<>'')"


@pytest.mark.parametrize(
    ("flavour", "statement", "sent"),
    [
        (M11, _COMPRESSED, "CREATE TABLE t (a VARCHAR(9) COMPRESSED NOT NULL)"),
        (MY8, _COMPRESSED, "CREATE TABLE t (a VARCHAR(9) NOT NULL)"),
        (TIDB, _COMPRESSED, "CREATE TABLE t (a VARCHAR(9) NOT NULL)"),
        (M11, _LONG_TEXTS, _LONG_TEXTS),
        (MY8, _LONG_TEXTS, re.sub("(x?'.*?')", r"(\1)", _LONG_TEXTS)),
        (MY57, _LONG_TEXTS, "CREATE TABLE t (a TEXT NOT NULL, b BLOB, c JSON, d TEXT DEFAULT NULL, e BLOB)"),
        (M11, _CHECKED, _CHECKED),
        (MY8, _CHECKED, "ALTER TABLE t MODIFY a JSON"),
        (TIDB, _CHECKED, "ALTER TABLE t MODIFY a JSON"),
    ],
)
def test_what_mariadb_alone_has(flavour: str, statement: str, sent: str) -> None:
    """Comments are opened where the upstream is MariaDB, which has run them.  Its checks are MariaDB's alone."""
    found = on(flavour, statement, source="mariadb")
    assert isinstance(found, Rewritten)
    assert spaced(found.text or "") == sent


@pytest.mark.parametrize(
    "statement",
    ["DROP TABLE t /*M!100000 , u */", "DROP TABLE t /*M! , mysql.user */", "ALTER TABLE t /*M! DROP a, */ ADD b INT"],
)
def test_comments_of_mariadb_that_change_what_is_done(statement: str) -> None:
    """Which of both was done upstream is not told: refused."""
    for source in ("tidb", "mariadb", "mysql-8"):
        assert isinstance(on(M11, statement, source=source), Refused)


@pytest.mark.parametrize(
    ("flavour", "options", "left"),
    [
        (MY8, "ENCRYPTION='Y' COMMENT='x'", "COMMENT='x'"),
        (MY8, "ENCRYPTION='N' COMMENT='x'", "ENCRYPTION='N' COMMENT='x'"),
        (M11, "ENCRYPTED=YES ENCRYPTION_KEY_ID=1 COMMENT='x'", "COMMENT='x'"),
    ],
)
def test_a_target_without_a_key(flavour: str, options: str, left: str) -> None:
    """It is not asked to encrypt tables, which it would refuse."""
    target = replace(named_capabilities(flavour), encrypts=False)
    found = rewrite(f"CREATE TABLE t (a INT) {options}", "app", Site(target))
    assert isinstance(found, Rewritten)
    assert (found.text or "").startswith(f"CREATE TABLE t (a INT) {left}")


def test_edits_that_overlap_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is made, as a part of what is to be removed would stay."""
    made = [Edit(0, 8, "MAKE", "one"), Edit(4, 12, "", "two")]
    monkeypatch.setattr("bridge.ddl.rewrite.RULES", ((lambda *_: iter(made), None),))
    with pytest.raises(UnsupportedError, match="two; one"):
        rewrite("CREATE TABLE t (a INT)", "app", Site(named_capabilities("mariadb-11.4")))


def test_every_rule_has_its_place() -> None:
    """A function of bridge/ddl/rules that is a rule by what it takes and gives stands in RULES, once."""
    modules = [import_module(found.name) for found in pkgutil.iter_modules(rules.__path__, f"{rules.__name__}.")]
    written = {
        one
        for module in modules
        for name, one in inspect.getmembers(module, inspect.isfunction)
        if one.__module__ == module.__name__ and not name.startswith("_")
        if one.__annotations__.get("return") in {"Iterator[Edit]", "None"} and "site" in one.__annotations__
    }
    assert {rule for rule, _ in RULES} == written
    assert len(RULES) == len(written)
