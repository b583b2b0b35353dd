"""Random work on an upstream server: rows, schema changes, and the tools that migrate tables online."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import pymysql

from bridge.errors import BridgeError
from bridge.model import quote_name
from bridge.mysql.connection.target import Target
from tests.support.pipelines import sql

DATABASE: Final = "shop"
NAMES: Final = ("a", "b", "c", "d", "e", "f")
"""Of tables; not all are there at every moment.  Online migrations make others for a while."""
GHOSTS: Final = tuple(name.format(table) for table in NAMES for name in ("_{}_gho", "_{}_del", "_{}_new", "_{}_old"))
SIGNALS: Final = "signals"
"""The table of Debezium's signals, of its incremental snapshots' watermarks too."""
_KEYS: Final = (
    "id INT, PRIMARY KEY (id)",
    "id BIGINT UNSIGNED AUTO_INCREMENT, PRIMARY KEY (id)",
    "id INT, k VARCHAR(8) DEFAULT 'k', PRIMARY KEY (id, k)",
    "k VARCHAR(12), id INT, PRIMARY KEY (k)",
    "id INT",
)
_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "TINYINT": ("-128", "0", "127"),
    "INT": ("-1", "0", "7", "2147483647"),
    "BIGINT UNSIGNED": ("0", "18446744073709551615"),
    "DECIMAL(12,3)": ("-1.5", "0", "123456789.125"),
    "DOUBLE": ("-0.1", "1e100", "0"),
    "FLOAT": ("0.5", "-1.25"),
    "BIT(9)": ("b'1'", "b'100000001'"),
    "VARCHAR(20)": ("''", "'text'", "'grüße'", "'日本'", "'it''s'", "'a\\\\b'"),
    "CHAR(5)": ("''", "'abc'"),
    "TEXT": ("'long'", "''"),
    "BLOB": ("x'00ff'", "x''"),
    "VARBINARY(10)": ("x'00'", "'bytes'"),
    "DATE": ("'2024-02-29'", "'1000-01-01'"),
    "TIME(3)": ("'-12:34:56.789'", "'00:00:00'", "'838:59:59'"),
    "DATETIME": ("'2024-02-29 12:34:56'", "'9999-12-31 23:59:59'"),
    "DATETIME(6)": ("'1000-01-01 00:00:00.000001'",),
    "TIMESTAMP NULL": ("'2024-02-29 12:34:56'", "'1999-01-01 00:00:01'"),
    "TIMESTAMP(3) NULL": ("'2038-01-19 03:14:06.999'",),
    "YEAR": ("1901", "2155"),
    "ENUM('x','y','z')": ("'x'", "'z'"),
    "SET('x','y','z')": ("''", "'x,z'"),
    "JSON": ("'{\"a\": [1, null]}'", "'1'"),
}


class Writer:
    """Statements on the tables of `DATABASE`, drawn one after the other; what the server refuses is nothing.

    A schema change names the database everywhere or nowhere, since its session is in it.

    What senders garble is left out.  Both: CREATE TABLE IF NOT EXISTS ... LIKE of a table that is there, whose columns
    they take for those of the other from then on.  Canal 1.1.7: text that is no UTF-8, on MariaDB a character set in
    CREATE TABLE, whose event in the binlog it cannot read, and a key in the definition of its column.  Debezium: zero
    dates in columns without NULL, which become the column's default, and schema changes of a table that an incremental
    snapshot was asked for, whose rows may get each other's values.  Columns that exchange names, at which one waits
    for a decision and the other ends, are rare.

    for_canal: whether Canal reads it, or else Debezium.
    has_keyless: whether there are tables without a key, whose rows Debezium sends to any partition of their topic.
    says_null: whether CHANGE says NULL; else a connector before 3.5 takes a column that was NOT NULL for one still.
    """

    def __init__(
        self, url: str, seed: int, *, for_canal: bool = False, has_keyless: bool = True, says_null: bool = False
    ) -> None:
        self.url = url
        self.statements: list[str] = []
        self._random = random.Random(seed)
        self._types = list(_TYPES)
        self._columns = 0
        self._asked_for: set[str] = set()
        self._is_qualified = True
        self._for_canal, self._null = for_canal, " NULL" * says_null
        self._keys = _KEYS if has_keyless else _KEYS[:-1]
        self._session = Target(url).connect(autocommit=True)
        self._session.execute("SET SESSION lock_wait_timeout = 3")  # Debezium may keep a table that it has read
        is_mariadb = "MariaDB" in str(self._session.value("SELECT VERSION()"))
        charsets = (" DEFAULT CHARSET=utf8mb4", " DEFAULT CHARSET=latin1")
        self._options = ["", " ENGINE=InnoDB COMMENT='it''s'"]
        self._options += charsets[: not is_mariadb] if for_canal else charsets

    def close(self) -> None:
        """Ends its session."""
        self._session.close()

    def begin(self) -> None:
        """Makes the tables, and the database where it is not there yet."""
        if not self._session.rows("SHOW DATABASES LIKE %s", (DATABASE,)):
            self._run(f"CREATE DATABASE {DATABASE}")
        self._session.execute(f"USE {DATABASE}")
        for name in NAMES[:4]:
            self._run(self._create(name))
        if not self._for_canal:
            self._run(f"CREATE TABLE {SIGNALS} (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32), data VARCHAR(2048))")

    def work(self, transactions: int) -> None:
        """So many transactions of rows, with a schema change now and then."""
        for _ in range(transactions):
            if self._random.random() < 0.08:
                self.schema_change()
            else:
                self.transaction()

    def transaction(self) -> None:
        """Some row changes, which may be rolled back."""
        names = self._names()
        if not names:
            return self._run(self._create(self._random.choice(NAMES)))
        zone = self._random.choice(("+00:00", "+00:00", "+00:00", "-07:30"))
        self._session.execute(f"SET time_zone = '{zone}'")
        self._run("BEGIN")
        for _ in range(self._random.choice((1, 1, 2, 3, 8))):
            self._rows(self._random.choice(names))
        self._run("ROLLBACK" if self._random.random() < 0.05 else "COMMIT")
        self._session.execute("SET time_zone = '+00:00'")
        return None

    def schema_change(self) -> None:
        """One schema change, or an online migration."""
        kinds: list[tuple[float, Callable[[str], Sequence[str]]]] = [
            (6, self._add), (3, self._drop_column), (3, self._modify), (2, self._rename_column), (3, self._truncate),
            (2, self._drop), (3, self._new), (2, self._rename), (1, self._swap), (2, self._index), (1, self._gh_ost),
            (1, self._pt_osc), (1, self._like), (1, self._default), (1, self._recreate), (1, self._harmless),
            (2, self._several), (1, self._move_column), (1, self._values), (1, self._key), (2, self._unique),
            (0.1, self._exchange_names), (1, self._partition), (1, self._generated), (1, self._collation),
            (1, self._select),
            (0 if self._for_canal else 3, self._snapshot),
        ]  # fmt: skip
        weights, functions = zip(*kinds, strict=True)
        names = [name for name in self._names() if name not in self._asked_for] or [NAMES[-1]]
        (function,) = self._random.choices(functions, weights)
        self._is_qualified = self._random.random() < 0.5
        for statement in function(self._random.choice(names)):
            self._run(statement)

    def _run(self, statement: str) -> None:
        self.statements.append(statement)
        with suppress(BridgeError, pymysql.MySQLError):
            self._session.execute(statement)

    def _names(self) -> list[str]:
        with suppress(BridgeError, pymysql.MySQLError):
            found = self._session.rows(
                "SELECT table_name FROM information_schema.tables"
                " WHERE table_schema = %s AND table_type = 'BASE TABLE'",
                (DATABASE,),
            )
            return sorted(name for (name,) in found if name in NAMES)
        return []

    def _columns_of(self, table: str) -> list[tuple[str, str, str]]:
        """Names, types and extras."""
        return [
            (str(name), str(kind), str(extra))
            for name, kind, extra in self._session.rows(
                "SELECT column_name, UPPER(column_type), extra FROM information_schema.columns"
                " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
                (DATABASE, table),
            )
        ]

    def _named(self, table: str) -> str:
        """The table, with its database or without."""
        return f"{DATABASE}.{table}" if self._is_qualified else quote_name(table)

    def _literal(self, kind: str) -> str:
        if self._random.random() < 0.15:
            return "NULL"
        for known, values in _TYPES.items():
            first = known.split("(")[0].split()[0]
            if kind.startswith(first) and (len(known) == len(first) or kind[len(first) :][:1] in "( "):
                return self._random.choice(values)
        return "NULL"

    def _rows(self, table: str) -> None:
        columns = [(name, kind) for name, kind, extra in self._columns_of(table) if "GENERATED" not in extra]
        dice = self._random
        number = dice.randrange(200)
        values = {name: self._literal(kind) for name, kind in columns}
        values |= {"id": str(number)} if "id" in values else {}
        values |= {"k": f"'k{number}'"} if "k" in values else {}
        where = dice.choice((f"id = {number}", f"id % 7 = {number % 7}", f"id BETWEEN {number} AND {number + 3}"))
        others = [name for name in values if name not in {"id", "k"}]
        listed, told = ", ".join(map(quote_name, values)), ", ".join(values.values())
        kind = dice.randrange(20)
        if kind < 9 or not others:
            word = dice.choice(("INSERT IGNORE", "REPLACE", "INSERT IGNORE", "INSERT"))
            upsert = f" ON DUPLICATE KEY UPDATE {', '.join(f'{c} = {values[c]}' for c in others[:2])}" * (
                word == "INSERT"
            )
            self._run(f"{word} INTO {table} ({listed}) VALUES ({told}){upsert}")
        elif kind < 15:
            column = dice.choice(others)
            self._run(f"UPDATE {table} SET {quote_name(column)} = {values[column]} WHERE {where}")
        elif kind < 16:
            moved = dice.choice((f"id + 1000 WHERE {where}", f"id + 1 WHERE {where} ORDER BY id DESC LIMIT 5"))
            self._run(f"UPDATE IGNORE {table} SET id = {moved}")
        elif kind < 17:
            self._run(f"INSERT IGNORE INTO {table} ({listed}) SELECT {listed} FROM {table} WHERE {where}")
        else:
            self._run(f"DELETE FROM {table} WHERE {where} LIMIT {dice.choice((1, 5, 50))}")

    def _create(self, table: str) -> str:
        dice = self._random
        columns = [dice.choice(self._keys), *(self._column() for _ in range(dice.randrange(1, 6)))]
        return f"CREATE TABLE {self._named(table)} ({', '.join(columns)}){dice.choice(self._options)}"

    def _column(self) -> str:
        self._columns += 1
        kind = self._random.choice(self._types)
        if "NULL" not in kind and self._random.random() < 0.3:
            value = _TYPES[kind][0]
            if kind not in {"JSON", "TEXT", "BLOB"} and (self._for_canal or not kind.startswith("DATE")):
                kind += f" NOT NULL DEFAULT {value}"
        return f"c{self._columns} {kind}"

    def _free(self, table: str) -> str | None:
        others = [name for name, _, _ in self._columns_of(table) if name not in {"id", "k"}]
        return self._random.choice(others) if others else None

    def _add(self, table: str) -> list[str]:
        where = self._random.choice(("", " FIRST", " AFTER id"))
        return [f"ALTER TABLE {self._named(table)} ADD COLUMN {self._column()}{where}"]

    def _drop_column(self, table: str) -> list[str]:
        column = self._free(table)
        return [f"ALTER TABLE {self._named(table)} DROP COLUMN {column}"] if column else []

    def _modify(self, table: str) -> list[str]:
        column = self._free(table)
        return [f"ALTER TABLE {self._named(table)} MODIFY {column} VARCHAR(200)"] if column else []

    def _rename_column(self, table: str) -> list[str]:
        column = self._free(table)
        self._columns += 1
        return [f"ALTER TABLE {self._named(table)} CHANGE {column} c{self._columns} TEXT{self._null}"] if column else []

    def _truncate(self, table: str) -> list[str]:
        return [f"TRUNCATE TABLE {self._named(table)}"]

    def _drop(self, table: str) -> list[str]:
        return [f"DROP TABLE {self._named(table)}"]

    def _new(self, table: str) -> list[str]:
        del table
        return [self._create(self._random.choice(NAMES))]

    def _rename(self, table: str) -> list[str]:
        to = self._random.choice(NAMES)
        words = self._random.choice(("RENAME TABLE {} TO {}", "ALTER TABLE {} RENAME TO {}"))
        return [words.format(self._named(table), self._named(to))]

    def _swap(self, table: str) -> list[str]:
        other = self._random.choice([name for name in NAMES if name != table])
        return [f"RENAME TABLE {DATABASE}.{table} TO {DATABASE}._x, {DATABASE}.{other} TO {DATABASE}.{table},"
                f" {DATABASE}._x TO {DATABASE}.{other}"]  # fmt: skip

    def _index(self, table: str) -> list[str]:
        column = self._free(table)
        if column is None:
            return []
        if self._random.random() < 0.4:
            return [f"DROP INDEX i_{column} ON {self._named(table)}"]
        return [f"CREATE INDEX i_{column} ON {self._named(table)} ({column})"]

    def _default(self, table: str) -> list[str]:
        column = self._free(table)
        return [f"ALTER TABLE {self._named(table)} ALTER COLUMN {column} SET DEFAULT NULL"] if column else []

    def _like(self, table: str) -> list[str]:
        to = self._random.choice(NAMES)
        return [f"CREATE TABLE {DATABASE}.{to} LIKE {DATABASE}.{table}"]

    def _recreate(self, table: str) -> list[str]:
        return [f"DROP TABLE IF EXISTS {DATABASE}.{table}", self._create(table)]

    def _harmless(self, table: str) -> list[str]:
        return [self._random.choice((f"ANALYZE TABLE {table}", f"OPTIMIZE TABLE {table}", "FLUSH TABLES"))]

    def _snapshot(self, table: str) -> list[str]:
        """Asks Debezium for an incremental snapshot of the table."""
        self._columns += 1
        self._asked_for.add(table)
        told = f'{{"data-collections": ["{DATABASE}.{table}"], "type": "incremental"}}'
        return [f"INSERT INTO {DATABASE}.{SIGNALS} VALUES ('ask{self._columns}', 'execute-snapshot', '{told}')"]

    def _several(self, table: str) -> list[str]:
        """Clauses that depend on each other's order, or have one name."""
        column = self._free(table)
        if column is None:
            return []
        new = self._column()
        more = self._random.choice((new, f"{column} {new.partition(' ')[2]}"))
        at = self._random.choice(("", " FIRST"))
        return [f"ALTER TABLE {self._named(table)} DROP COLUMN {column}, ADD COLUMN {more}{at}"]

    def _spelled(self, table: str) -> dict[str, str]:
        """The definitions of the columns that are in no key, as the server shows them."""
        with suppress(BridgeError, pymysql.MySQLError):
            [(_, shown)] = self._session.rows(f"SHOW CREATE TABLE {DATABASE}.{table}")
            lines = [line.strip().rstrip(",") for line in str(shown).split("\n")]
            told = [line[1:].split("` ", 1) for line in lines if line.startswith("`")]
            return {name: definition for name, definition in told if name not in {"id", "k"}}
        return {}

    def _move_column(self, table: str) -> list[str]:
        columns = self._spelled(table)
        if not columns:
            return []
        column = self._random.choice(list(columns))
        at = self._random.choice(("FIRST", "AFTER id"))
        return [f"ALTER TABLE {self._named(table)} MODIFY {column} {columns[column]} {at}"]

    def _exchange_names(self, table: str) -> list[str]:
        columns = self._spelled(table)
        if len(columns) < 2:
            return []
        left, right = self._random.sample(list(columns), 2)
        exchanged = f"CHANGE {left} {right} {columns[left]}, CHANGE {right} {left} {columns[right]}"
        return [f"ALTER TABLE {self._named(table)} {exchanged}"]

    def _values(self, table: str) -> list[str]:
        """Moves the values of an ENUM or SET, which senders tell by number."""
        found = {name: told for name, told in self._spelled(table).items() if told.startswith(("enum", "set"))}
        return [
            f"ALTER TABLE {self._named(table)} MODIFY {name} {told.replace(chr(40), '(' + repr('w') + ',', 1)}"
            for name, told in list(found.items())[:1]
        ]

    def _key(self, table: str) -> list[str]:
        """Another primary key, or the first one."""
        column = self._free(table)
        key = self._random.choice(("id", "id, k", f"id, {column}"))
        what = self._random.choice(("DROP PRIMARY KEY, ", ""))
        return [f"ALTER TABLE {self._named(table)} {what}ADD PRIMARY KEY ({key})"]

    def _unique(self, table: str) -> list[str]:
        column = self._free(table)
        if column is None:
            return []
        if self._random.random() < 0.3:
            return [f"ALTER TABLE {self._named(table)} DROP INDEX u_{column}"]
        return [f"ALTER TABLE {self._named(table)} ADD UNIQUE KEY u_{column} ({column})"]

    def _partition(self, table: str) -> list[str]:
        words = self._random.choice(
            ("PARTITION BY HASH (id) PARTITIONS 3", "TRUNCATE PARTITION p1", "REMOVE PARTITIONING")
        )
        return [f"ALTER TABLE {self._named(table)} {words}"]

    def _generated(self, table: str) -> list[str]:
        self._columns += 1
        kind = self._random.choice(("VIRTUAL", "STORED"))
        return [f"ALTER TABLE {self._named(table)} ADD COLUMN c{self._columns} BIGINT AS (id % 5) {kind}"]

    def _collation(self, table: str) -> list[str]:
        collation = self._random.choice(("utf8mb4_bin", "utf8mb4_unicode_ci"))
        return [f"ALTER TABLE {self._named(table)} CONVERT TO CHARACTER SET utf8mb4 COLLATE {collation}"]

    def _select(self, table: str) -> list[str]:
        to, column = self._random.choice(NAMES), self._free(table)
        names = f"id, {column}" if column else "id"
        return [f"CREATE TABLE {self._named(to)} (PRIMARY KEY (id)) SELECT {names} FROM {self._named(table)}"]

    def _gh_ost(self, table: str) -> list[str]:
        """As gh-ost does it: a ghost table, altered, filled, and exchanged in one RENAME."""
        ghost, old = f"_{table}_gho", f"_{table}_del"
        names = ", ".join(quote_name(name) for name, _, extra in self._columns_of(table) if "GENERATED" not in extra)
        at = DATABASE
        return [
            f"create /* gh-ost */ table `{at}`.`{ghost}` like `{at}`.`{table}`",
            f"alter /* gh-ost */ table `{at}`.`{ghost}` ADD COLUMN {self._column()}",
            f"insert /* gh-ost */ ignore into `{at}`.`{ghost}` ({names}) (select {names} from `{at}`.`{table}`)",
            f"UPDATE {table} SET id = id WHERE id < 3",
            f"rename /* gh-ost */ table `{at}`.`{table}` to `{at}`.`{old}`, `{at}`.`{ghost}` to `{at}`.`{table}`",
            f"drop /* gh-ost */ table if exists `{at}`.`{old}`",
            f"drop /* gh-ost */ table if exists `{at}`.`{ghost}`",
        ]

    def _pt_osc(self, table: str) -> list[str]:
        """As pt-online-schema-change does it: triggers write to the new table while it is filled."""
        new, old = f"_{table}_new", f"_{table}_old"
        at = DATABASE
        return [
            f"CREATE TABLE `{at}`.`{new}` LIKE `{at}`.`{table}`",
            f"ALTER TABLE `{at}`.`{new}` ADD COLUMN {self._column()}",
            f"CREATE TRIGGER `pt_osc_{table}_del` AFTER DELETE ON `{at}`.`{table}` FOR EACH ROW"
            f" DELETE IGNORE FROM `{at}`.`{new}` WHERE `{at}`.`{new}`.`id` <=> OLD.`id`",
            f"INSERT LOW_PRIORITY IGNORE INTO `{at}`.`{new}` (`id`) SELECT `id` FROM `{at}`.`{table}`"
            " LOCK IN SHARE MODE",
            f"DELETE FROM {table} WHERE id % 11 = 3",
            f"RENAME TABLE `{at}`.`{table}` TO `{at}`.`{old}`, `{at}`.`{new}` TO `{at}`.`{table}`",
            f"DROP TABLE IF EXISTS `{at}`.`{old}`",
            f"DROP TRIGGER IF EXISTS `{at}`.`pt_osc_{table}_del`",
            f"DROP TABLE IF EXISTS `{at}`.`{new}`",
        ]


def contents(url: str) -> dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]]:
    """Columns and rows of the tables of `DATABASE`; empty where it is not there.  That of signals is left out: Debezium
    sends no row of it that is there when it begins (3.0.8, 3.5.0)."""
    found = {}
    tables = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{DATABASE}'"
    for (name,) in sql(url, f"{tables} AND table_name <> '{SIGNALS}'"):
        columns = tuple(
            column
            for (column,) in sql(
                url,
                "SELECT column_name FROM information_schema.columns"
                f" WHERE table_schema = '{DATABASE}' AND table_name = '{name}' ORDER BY ordinal_position",
            )
        )
        found[name] = (columns, sorted(sql(url, f"SELECT * FROM {DATABASE}.{quote_name(name)}"), key=repr))
    return found
