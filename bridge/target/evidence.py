"""What the server shows of everything a schema change touches: it tells whether an interrupted one ran."""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

from pymysql.err import MySQLError

from bridge.target.capabilities import Capabilities, Flavour, Version
from bridge.target.catalog import TableName
from bridge.target.ddl_text import Classified
from bridge.target.session import Session, error_code, quote_name

_NO_SUCH: Final = frozenset({1049, 1146})
_ACCESS_DENIED: Final = frozenset({1044, 1045, 1109, 1142, 1227})


class Evidence(NamedTuple):
    """The state of what a statement touches.

    fingerprint: hash of definitions and, where they can be seen, of table ids.
    sees_ids: the table ids could be read; without them a swap of contents leaves no trace.
    """

    fingerprint: str
    sees_ids: bool


class _TableIds(NamedTuple):
    """From `since` on, ids of a table and its partitions, which change when contents are swapped or truncated.

    args: "path" and "partitions" as InnoDB names files, or "schema" and "table".
    """

    flavour: Flavour
    since: Version
    query: str
    args: tuple[str, ...]
    source: str


_INNODB: Final = "SELECT name, table_id FROM information_schema.{} WHERE name = %s OR name LIKE %s ORDER BY name"
_TABLE_IDS: Final = (
    _TableIds(Flavour.MARIADB, (), _INNODB.format("innodb_sys_tables"), ("path", "partitions"),
              "mariadb.com/kb/en/information-schema-innodb_sys_tables-table"),
    _TableIds(Flavour.MYSQL, (8, 0, 3), _INNODB.format("innodb_tables"), ("path", "partitions"),
              "dev.mysql.com/doc/refman/8.0/en/information-schema-innodb-tables-table.html"),
    _TableIds(Flavour.MYSQL, (), _INNODB.format("innodb_sys_tables"), ("path", "partitions"),
              "dev.mysql.com/doc/refman/5.7/en/information-schema-innodb-sys-tables-table.html"),
    _TableIds(
        Flavour.TIDB, (),
        "SELECT table_name, tidb_table_id FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
        " UNION ALL SELECT partition_name, tidb_partition_id FROM information_schema.partitions"
        " WHERE table_schema = %s AND table_name = %s ORDER BY 1",
        ("schema", "table", "schema", "table"),
        "docs.pingcap.com/tidb/stable/information-schema-partitions",
    ),
)  # fmt: skip


def evidence(session: Session, target: Capabilities, classified: Classified) -> Evidence:
    """The state of everything that `classified` touches, as the server shows it now."""
    parts = [_database(session, classified.database)] if classified.database else []
    sees_ids = True
    for name in classified.tables:
        ids = _table_ids(session, target, name)
        shape = definition(session, name)
        sees_ids = sees_ids and (bool(ids) or shape is None)
        parts.append(f"{shape}\0{ids}")
    digest = hashlib.sha1("\0\0".join(parts).encode("utf-8", "surrogateescape"), usedforsecurity=False)
    return Evidence(digest.hexdigest(), sees_ids)


def definition(session: Session, name: TableName) -> str | None:
    """SHOW CREATE without the object's own name and counter; None when it does not exist."""
    try:
        text = session.raw_rows(f"SHOW CREATE TABLE {quote_name(*name)}")[0][1].decode("utf-8", "surrogateescape")
    except MySQLError as error:
        if error_code(error) in _NO_SUCH:
            return None
        raise
    qualifier = re.escape(quote_name(name.schema)) + r"\."
    text = re.sub(rf"(?:{qualifier})?{re.escape(quote_name(name.table))}", "``", text, count=1)
    return re.sub(r" AUTO_INCREMENT=\d+", "", text)


def _database(session: Session, name: str) -> str:
    try:
        return str(session.rows(f"SHOW CREATE DATABASE {quote_name(name)}")[0][1])
    except MySQLError as error:
        if error_code(error) in _NO_SUCH:
            return "absent"
        raise


def _table_ids(session: Session, target: Capabilities, name: TableName) -> list[tuple[object, ...]]:
    """Empty when the target does not show them (PROCESS privilege)."""
    row = next(row for row in _TABLE_IDS if row.flavour is target.flavour and target.version >= row.since)
    path = f"{_file_name(name.schema)}/{_file_name(name.table)}"
    pattern = re.sub(r"([\\%_])", r"\\\1", path) + "#P#%"
    values = {"path": path, "partitions": pattern, "schema": name.schema, "table": name.table}
    try:
        return session.rows(row.query, [values[arg] for arg in row.args])
    except MySQLError as error:
        if error_code(error) in _ACCESS_DENIED:
            return []
        raise


def _file_name(name: str) -> str:
    """A name as InnoDB spells it: anything but letters, digits and _ as @ and four hex digits."""
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else f"@{ord(c):04x}" for c in name)
