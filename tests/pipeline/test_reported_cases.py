"""Public bug reports as captures (tests/cases): what the target holds at the end, on MariaDB and on MySQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bridge.config import Settings
from bridge.errors import BridgeError
from bridge.filters.table_filter import TableFilter
from bridge.protocols.debezium.recognition import DebeziumModes
from tests.support.pipelines import decoded, run_all, sql

CASES = Path(__file__).parent.parent / "cases"
SERVERS = ("target", "mysql_target")
IDLE_SECONDS = 10
"""As by default, for a protocol that may lack boundaries."""

Rows = Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """A capture and what is right for it.

    report: where it was reported, or seen.
    source: the setting `ddl.source`.
    ignored: the classes of schema changes in `ddl.ignore`.
    tables: the rules of the table filter.
    before: what is on the target already.
    right: queries, and the rows that they give at the end, in any order.
    kept: the same, where a clear stop is right as well: they hold whether it stopped or not.  None where it must not
        stop.
    """

    name: str
    report: str
    protocol: str
    right: Mapping[str, Rows]
    source: str = "tidb"
    ignored: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    kept: Mapping[str, Rows] | None = None


MYSQL = "mysql-8"
CASES_OF_REPORTS = (
    Case(
        "f1_many_partitions",
        "found with twelve table topics of a real Debezium",
        "canal-json",
        {"SELECT id, v FROM shop.t": [(1, 3), (100, 0), (101, 0), (102, 0), (104, 0)]},
        MYSQL,
        before=("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)"),
    ),
    Case(
        "c10_rename",
        "canal#3557",
        "canal-json",
        {
            "SELECT id FROM archive.orders": [(99,)],
            "SELECT id FROM archive.orders_2024": [(1,)],
            "SELECT id FROM shop.orders": [(5,)],
        },
        MYSQL,
        kept={"SELECT id FROM archive.orders": [(99,)], "SELECT id FROM shop.orders": [(1,)]},
    ),
    Case(
        "c11_drop",
        "maxwell#625, maxwell#223",
        "canal-json",
        {
            "SELECT table_schema, table_name FROM information_schema.tables"
            " WHERE table_schema IN ('shop', 'archive')": [("archive", "b"), ("shop", "a")]
        },
        MYSQL,
        kept={"SELECT id FROM archive.b": [(1,)], "SELECT id FROM shop.a": [(1,)]},
    ),
    Case(
        "c77b_rename_unqualified_other_there",
        "tiflow#11963",
        "canal-json",
        {"SELECT id, v FROM d2.t1": [(77, 77)], "SELECT id, v FROM d2.t2": [(1, 2), (3, 3)]},
        kept={"SELECT id, v FROM d2.t1": [(77, 77)], "SELECT id, v FROM test.t1": [(1, 2)]},
    ),
    Case(
        "c62_view_join",
        "ticdc#5026, ticdc#2013",
        "canal-json",
        {"SELECT id FROM e.v": [(1,)]},
        kept={"SELECT table_name FROM information_schema.views WHERE table_schema = 'e'": []},
    ),
    Case(
        "c01a_oldcoll_ci",
        "tiflow#11371, tidb#25368",
        "canal-json",
        {"SELECT BINARY name, v FROM d.u": [(b"a", 1), (b"A", 2)]},
        kept={"SELECT BINARY name, v FROM d.u WHERE v = 2": []},
    ),
    Case("c49_truncate_dbz_noext", "tiflow#12595, ticdc#4051", "debezium", {"SELECT id FROM d.t": [(3,), (9,)]}),
    Case(
        "c52_exchange_canal_noext",
        "tiflow#12595, ticdc#4051",
        "canal-json",
        {"SELECT id, v FROM d.x": [(1, 1)], "SELECT id, v FROM d.p": [(2, 2), (500, 5), (600, 6), (700, 7)]},
    ),
    Case(
        "c48_dropcol_canal_noext",
        "tiflow#12595, ticdc#4051",
        "canal-json",
        {"SELECT * FROM d.t": [(1, 1), (2, 2), (3, 3), (9, 9)]},
    ),
    Case("d17", "debezium#879", "debezium", {"SELECT * FROM shop.t": [(1,), (2,), (3,)]}, MYSQL),
    Case("d03_mariadb", "debezium#7646, maxwell#1043", "debezium", {"SELECT id FROM shop.t": [(3,)]}, "mariadb"),
    Case("d19a", "debezium#2853, debezium#1128", "debezium", {"SELECT id FROM shop.t": [(2,), (9,)]}, MYSQL),
    Case(
        "c08_late_truncate",
        "canal#2158, canal#2842",
        "canal-json",
        {"SELECT id FROM shop.t": [(3,)]},
        MYSQL,
        kept={"SELECT COUNT(*) FROM shop.t WHERE id = 3": [(0,)]},
    ),
    Case(
        "c05_same_second",
        "canal#2158, canal#1731",
        "canal-json",
        {"SELECT id, note FROM shop.t": [(1, None), (2, "new"), (3, "later")]},
        MYSQL,
    ),
    Case("c09_late_drop", "canal#2158", "canal-json", {"SELECT * FROM shop.t": [(1, 1), (2, 2), (3, 3)]}, MYSQL),
    Case(
        "c11d_drop_pk_sent",
        "tiflow#10890, tiflow#599",
        "canal-json",
        {"SELECT id, name FROM d.t1": [(1, "Bob"), (1, "Cid")]},
        ignored=("drop primary key",),
        kept={"SELECT id, name FROM d.t1": [(1, "Ann")]},
    ),
    Case(
        "c60_drop_unique",
        "kin of tiflow#10890",
        "canal-json",
        {"SELECT id, mail FROM d.u": [(1, "a"), (2, "a")]},
        ignored=("drop index",),
        kept={"SELECT id, mail FROM d.u": [(1, "a")]},
    ),
    Case("c12b_float8", "maxwell#860", "canal-json", {"SELECT id, v FROM shop.t": [(1, 0.1), (2, 1234567.891)]}, MYSQL),
    Case("c12_nvarchar", "antlr#1377", "canal-json", {"SELECT id, v FROM shop.t": [(1, "ä")]}, MYSQL),
    Case(
        "c01_geometry",
        "canal#4673, canal#3101",
        "canal-json",
        {
            "SELECT id, ST_AsText(at), ST_AsText(area), n FROM shop.places": [
                (1, "POINT(116.5 39.25)", "POINT(116.5 39.25)", "x")
            ]
        },
        MYSQL,
    ),
    Case(
        "c02_json_zero",
        "canal#532, go-mysql#266",
        "canal-json",
        {"SELECT id, n, CAST(j AS CHAR) FROM shop.t": [(1, 2, "null"), (2, 2, '{"a": 1}')]},
        MYSQL,
    ),
    Case(
        "c04_enum_zero",
        "debezium#201, olake#876, tidb#20741",
        "canal-json",
        {"SELECT id, e + 0, e, s + 0 FROM shop.t": [(1, 1.0, "new", 3.0), (2, 0.0, "", 0.0), (3, None, None, None)]},
        MYSQL,
    ),
    Case(
        "d05",
        "flink-cdc#3876, flink-cdc#4064",
        "debezium",
        {"SELECT table_name FROM information_schema.tables WHERE table_schema = 'shop'": [("after",)]},
        MYSQL,
    ),
    Case("d09", "airbyte#14745", "debezium", {"SELECT id, c FROM shop.t": [(1, "x")]}, "mariadb"),
    Case("c14_statements", "DBZ-253, DBZ-9186, otter#162", "canal-json", {"SELECT id FROM shop.t": [(1,)]}, MYSQL),
    Case("c13_check", "tidb#6765, tidb#41711", "canal-json", {"SELECT id FROM d.c": [(1,), (2,), (3,)]}),
    Case("c19_shard_index", "docs#8721", "canal-json", {"SELECT id, a, b FROM d.s": [(1, 1, 1)]}),
    Case("c61_hybrid_drop", "tidb PR 35429", "canal-json", {"SELECT * FROM d.t2": []}),
    Case(
        "c91_0_partly",
        "kin of tidb PR 35429",
        "canal-json",
        {
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'd' AND table_name = 't'": [
                ("id",),
                ("b",),
                ("a",),
            ]
        },
    ),
    Case(
        "f8_create_if_not_exists",
        "seen with a real Canal and a real Debezium",
        "canal-json",
        {
            "SELECT id, v FROM ra.t": [(1, "x"), (2, "y")],
            "SELECT column_type FROM information_schema.columns WHERE table_schema = 'ra' AND column_name = 'v'": [
                ("varchar(20)",)
            ],
        },
        MYSQL,
    ),
    Case(
        "f10_create_select",
        "genuine messages of Canal 1.1.7: MySQL 8.0 writes CREATE TABLE ... SELECT and its rows in one transaction",
        "canal-json",
        {"SELECT id, s FROM shop.n": [(1, 1), (2, 2), (9, 2)]},
        MYSQL,
    ),
    Case(
        "f9_debezium_361_partitioned",
        "seen with a real Debezium 3.6.1, which sends no TRUNCATE by default",
        "debezium",
        {
            "SELECT id, v FROM tr.t": [(1, 1), (2, 2), (3, 3)],
            "SELECT token FROM tr.zz_mark": [("snapshot",), ("theend",)],
            "SELECT COUNT(*) FROM information_schema.partitions"
            " WHERE table_schema = 'tr' AND table_name = 'p' AND partition_method = 'HASH'": [(2,)],
        },
        MYSQL,
    ),
    Case(
        "g01_ghost_tables",
        "flink-cdc#3668, gh-ost#544",
        "canal-json",
        {"SELECT id, n, c FROM shop.orders": [(1, 10, None), (2, 2, None), (3, 3, 7)]},
        MYSQL,
        tables=("shop.orders",),
        kept={"SELECT id, n FROM shop.orders": [(1, 10), (2, 2)]},
    ),
    Case(
        "debezium_3.3.0_defaults",
        "debezium#3794, debezium#6461: genuine messages, whose sender left out a TRUNCATE",
        "debezium",
        {
            "SELECT id FROM shop.t": [(1,), (2,), (3,), (4,), (5,), (6,)],
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'archive'": [
                ("r",),
                ("moved_2024",),
            ],
        },
        MYSQL,
        kept={"SELECT id FROM shop.t": [(1,), (2,), (3,), (4,), (6,)], "SELECT id FROM shop.moved": []},
    ),
)


def test_every_capture_has_its_right_end() -> None:
    """No capture is left out."""
    assert {case.name for case in CASES_OF_REPORTS} == {path.stem for path in CASES.glob("*.jsonl")}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("case", CASES_OF_REPORTS, ids=lambda case: case.name)
def test_the_target_ends_as_the_upstream_or_stops(case: Case, server: str, request: pytest.FixtureRequest) -> None:
    """The target holds what the upstream held at the end; where a stop is right as well, no wrong row."""
    url = request.getfixturevalue(server)
    stop = stop_of(case, url, events_of(case))
    if stop is not None and case.kept is not None:
        assert rows_of(url, case.kept) == in_any_order(case.kept)
    else:
        assert stop is None
        assert rows_of(url, case.right) == in_any_order(case.right)


def settings_of(case: Case) -> Settings:
    """The settings of its pipeline."""
    ddl = {"source": case.source, "ignore": case.ignored}
    return Settings.model_validate({"timezone": "UTC", "filter": case.tables, "ddl": ddl})


def events_of(case: Case) -> pa.Table:
    """The events of its capture."""
    wanted = TableFilter(case.tables) if case.tables else None
    modes = DebeziumModes(time="adaptive_time_microseconds")  # a TIME(3) of a second may be of another one
    return decoded(CASES / f"{case.name}.jsonl", case.protocol, accepts=wanted, tells_unwanted=True, debezium=modes)


def stop_of(case: Case, url: str, events: pa.Table) -> BridgeError | None:
    """Applies its events to what is on the target before; gives what stopped it."""
    if case.before:
        sql(url, *case.before)
    rules, tables = settings_of(case).ddl_rules(), TableFilter(case.tables)
    try:
        run_all(url, events, protocol=case.protocol, ddl=rules, tables=tables, boundary_seconds=IDLE_SECONDS)
    except BridgeError as error:
        return error
    return None


def rows_of(url: str, queries: Mapping[str, Rows]) -> dict[str, list[tuple[Any, ...]]]:
    """What the target holds."""
    return {query: sorted(sql(url, query), key=repr) for query in queries}


def in_any_order(right: Mapping[str, Rows]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each query, as `rows_of` gives them."""
    return {query: sorted(rows, key=repr) for query, rows in right.items()}
