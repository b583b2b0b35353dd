"""Databases that no row change is ever written to, in whatever spelling."""

from __future__ import annotations

from contextlib import suppress

import pytest
from pymysql.err import MySQLError

from bridge.filters.table_filter import DEFAULT_SCHEMA, SYSTEM_SCHEMAS, ReservedSchemas
from bridge.local import MariaDB
from bridge.quoting import quote_name
from tests.support.pipelines import sql

SPELLINGS = [
    *(
        "_bridge",
        "_BRIDGE",
        "_Bridge",
        "_br\u0130dge",
        "_bridge ",
        " _bridge",
        "\u3000_bridge",
        "`_bridge`",
        "_bridge\t",
    ),
    *("#mysql50#_bridge", "#MySQL50#_bridge", "#mysql50##mysql50#_bridge"),
]
OTHERS = [
    "bridge",
    "_bridge2",
    "my_bridge",
    "_bridg\u00e9",
    "_bridge.",
    "mysql_",
    "sysbench",
    "tidb_cdc",
    "",
    "mysql50",
]


@pytest.mark.parametrize("schema", SPELLINGS)
def test_the_bridges_own(schema: str) -> None:
    """Its usual name counts also where another is set: the target may be another pipeline's too."""
    assert ReservedSchemas().why(schema)
    assert ReservedSchemas("_second").why(schema)
    assert ReservedSchemas("Br\u00fccke").why(schema.replace("_bridge", "BR\u00dcCKE"))


@pytest.mark.parametrize("schema", sorted(SYSTEM_SCHEMAS))
def test_the_servers_own(schema: str) -> None:
    """Those that TiDB's tools leave out, too."""
    assert all(ReservedSchemas().why(spelt) for spelt in (schema, schema.upper(), f"`{schema}` ", f"#mysql50#{schema}"))


@pytest.mark.parametrize("schema", OTHERS)
def test_databases_like_any_other(schema: str) -> None:
    """What only looks like one of them is replicated."""
    assert not ReservedSchemas().why(schema)


@pytest.mark.server
def test_what_a_server_takes_for_it_is_one() -> None:
    """No spelling by which a server finds the database is missing; this one keeps names in lower case."""
    found = set()
    with MariaDB(options=["--lower-case-table-names=1"]) as server:
        sql(server.url, f"CREATE DATABASE {DEFAULT_SCHEMA}", "CREATE TABLE _bridge.progress (a INT)")
        for schema in (*SPELLINGS, *OTHERS):
            with suppress(MySQLError):
                sql(server.url, f"SELECT * FROM {quote_name(schema, 'progress')}")
                found.add(schema)
    assert {"_bridge", "_BRIDGE", "_br\u0130dge", "#mysql50#_bridge"} <= found
    assert found <= set(SPELLINGS)
