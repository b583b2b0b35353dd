"""Judgements over facts that no server of the tests can be brought to have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bridge
from bridge.commands.check import Finding, Level, kafka, server, tables, upstream
from bridge.commands.check.grants import OWN, REPLICATED, GrantFacts, allow, judge, read_grants
from bridge.commands.check.kafka import SourceFacts
from bridge.commands.check.protocol import Decoded
from bridge.commands.check.server import Encryption, ServerFacts
from bridge.commands.check.tables import TableFacts
from bridge.commands.check.upstream import UpstreamFacts
from bridge.config import Settings
from bridge.events import Boundary, Event, Kind, RowChange
from bridge.model import Column, PartitionStart, Table, TableName
from bridge.mysql.probe import Reach
from bridge.mysql.state.progress import Progress
from bridge.sources.source import Extent
from bridge.tso import ms_tso

SETTINGS = Settings()
T = TableName("s", "t")
NOW = 1_790_000_000_000


@pytest.mark.parametrize(
    ("said", "level"),
    [
        *(("11.4.5-MariaDB", Level.OK), ("10.11.6-MariaDB-0+deb12u1", Level.OK), ("10.6.18-MariaDB", Level.OK)),
        *(("10.1.48-MariaDB", Level.FAIL), ("8.0.36", Level.OK), ("8.4.3", Level.OK), ("5.7.44-log", Level.OK)),
        *(("5.6.51", Level.FAIL), ("8.0.11-TiDB-v8.5.1", Level.OK), ("8.0.11-TiDB-v7.5.0", Level.OK)),
        ("5.7.25-TiDB-v5.4.0", Level.FAIL),
    ],
)
def test_versions(said: str, level: Level) -> None:
    """Known to work, or too old."""
    assert server.judge_version(said, "there").level is level


def said(found: Sequence[Finding], level: Level) -> list[str]:
    return [finding.check for finding in found if finding.level is level]


def a_server(version: str = "8.0.36", limits: tuple[Reach, ...] = (), **more: str) -> ServerFacts:
    usual = {"log_bin": "ON"}
    grants = GrantFacts("", ())
    return ServerFacts(version, Encryption("TLS", True), True, usual | more, limits, True, grants)


@pytest.mark.parametrize(("source", "warning"), [("tidb", []), ("mysql-8", ["names"]), ("mariadb", ["names"])])
def test_a_target_that_does_not_tell_names_apart(source: str, warning: list[str]) -> None:
    """Neither does TiDB as a source, nor as a target, which cannot do otherwise."""
    settings = Settings.model_validate({"ddl": {"source": source}})
    for version, told, expected in (
        *(("8.0.36", "1", warning), ("11.4.5-MariaDB", "2", warning), ("8.0.36", "0", [])),
        ("8.0.11-TiDB-v8.5.1", "2", []),
    ):
        found = server.judge(a_server(version, lower_case_table_names=told), "there", settings)
        assert [one for one in said(list(found), Level.WARN) if one == "names"] == expected


@pytest.mark.parametrize(
    ("facts", "failing", "warning"),
    [
        (a_server(binlog_format="ROW"), [], []),
        (a_server(binlog_format="STATEMENT"), ["binlog"], []),
        (a_server(binlog_format="STATEMENT", log_bin="OFF"), [], []),
        (a_server(limits=(Reach(True, "a balancer", "do not"),)), ["reach"], []),
        (a_server(limits=(Reach(False, "Galera", "one node"),)), [], ["reach"]),
    ],
)
def test_servers(facts: ServerFacts, failing: list[str], warning: list[str]) -> None:
    """Binlog formats that InnoDB refuses, balancers and clusters."""
    found = [one for one in server.judge(facts, "there", SETTINGS) if one.check != "encryption"]
    assert (said(found, Level.FAIL), said(found, Level.WARN)) == (failing, warning)


def a_topic(partitions: int, *heads: int, **more: Any) -> SourceFacts:
    messages = {("t", number): [(None, b"{}")] for number in heads}
    operations = {"t": frozenset({"READ", "DESCRIBE"})}
    facts: dict[str, Any] = {"operations": operations, "heads": messages, "tails": messages, "now_ms": NOW} | more
    return SourceFacts("Kafka", True, {"t": partitions}, **facts)


@pytest.mark.parametrize(("begin", "low", "warning"), [(0, 0, []), (0, 7, ["beginning"]), (ms_tso(NOW), 7, [])])
def test_the_beginning_of_a_topic(begin: int, low: int, warning: list[str]) -> None:
    """A new pipeline from the earliest would lack, in silence, what the removed messages changed."""
    facts = a_topic(2, 0, 1, extents={("t", 0): Extent(low, 9), ("t", 1): Extent(0, 9)})
    assert said(list(kafka.judge_beginning(facts, begin)), Level.WARN) == warning


@pytest.mark.parametrize(("offset", "failing"), [(2, ["topics"]), (3, []), (9, []), (10, ["topics"])])
def test_what_a_pipeline_has_to_read(offset: int, failing: list[str]) -> None:
    """Where Kafka no longer holds it, or never did, a start would stop at once."""
    positions = {("t", 0): PartitionStart(offset, 0, offset), ("elsewhere", 0): PartitionStart(1, 0, 1)}
    facts = a_topic(1, 0, extents={("t", 0): Extent(3, 9)})
    progress = Progress("bridge", 1, 5, 0, positions, ())
    assert said(list(kafka.judge_topics(facts, progress)), Level.FAIL) == failing


def boundary(seconds_ago: float) -> Any:
    return Boundary(ms_tso(NOW - round(seconds_ago * 1000)))


ROW = RowChange(Kind.INSERT, ms_tso(NOW), 0, "", "", "", "", None, None)


@pytest.mark.parametrize(
    ("facts", "tails", "failing", "warning"),
    [
        (a_topic(2, 0, 1), {0: [boundary(1)], 1: [boundary(2)]}, [], []),
        (a_topic(2, 0, 1), {0: [boundary(1)], 1: [ROW]}, [], ["boundaries"]),
        (a_topic(3, 0, 1), {0: [boundary(1)], 1: [boundary(2)]}, ["boundaries"], []),
    ],
)
def test_boundaries(
    facts: SourceFacts, tails: Mapping[int, list[Event]], failing: list[str], warning: list[str]
) -> None:
    """One in each partition: the partition that lacks one holds everything back."""
    found = list(kafka.judge_boundaries(facts, {("t", number): events for number, events in tails.items()}))
    assert (said(found, Level.FAIL), said(found, Level.WARN)) == (failing, warning)


@pytest.mark.parametrize(
    ("allowed", "failing"), [({"DESCRIBE"}, ["kafka-rights"]), ({"READ", "DESCRIBE"}, []), ({"ALL"}, []), (set(), [])]
)
def test_rights_in_kafka(allowed: set[str], failing: list[str]) -> None:
    """The ACL that is missing is named; a broker that does not tell is believed."""
    found = list(kafka.judge(a_topic(1, 0, operations={"t": frozenset(allowed)})))
    assert said(found, Level.FAIL) == failing
    assert all("--operation Read --topic t" in one.fix for one in found if one.level is Level.FAIL)


@pytest.mark.parametrize(
    ("table", "is_named"),
    [
        (Table(T, {}, (("id",),), (("id",),)), False),
        (Table(T, {}, (("id",),), (("id",),), counts=True), True),
        (Table(T, {}, (("id",),), (("id",), ("mail", ""))), True),
        (Table(T, {}), True),
    ],
)
def test_keys_of_merged_tables(table: Table, is_named: bool) -> None:
    """Keys that are likely to meet are warned of, where a route merges."""
    rows = [RowChange(Kind.INSERT, 1, 0, schema, "t", "", "", None, None) for schema in ("s2", "s1", "other", "s2")]
    decoded = Decoded("canal-json", {("cdc", 0): rows}, {}, is_mysql_born=False)
    for route, expected in (("s?.t => s.t", is_named), ("s1.t -> s.t", False)):
        found = list(tables.judge(TableFacts({T: table}, [], True), decoded, Settings(route=(route,))))
        assert (said(found, Level.WARN) == ["shards"]) is expected


def an_upstream(**variables: str) -> UpstreamFacts:
    return UpstreamFacts("8.0.36", False, Encryption("TLS", True), {"log_bin": "ON"} | variables)


CUT = RowChange(Kind.INSERT, 1, 0, "", "", "", "", None, None, cut="cut")


@pytest.mark.parametrize(
    ("facts", "rows", "failing", "warning"),
    [
        (an_upstream(binlog_format="ROW", binlog_row_image="FULL"), [ROW], [], []),
        (an_upstream(binlog_format="MIXED"), [ROW], ["upstream-binlog"], []),
        (an_upstream(binlog_format="MIXED", log_bin="OFF"), [ROW], [], []),
        (an_upstream(binlog_format="ROW", binlog_row_image="MINIMAL"), [ROW], [], ["upstream-binlog"]),
        (an_upstream(binlog_transaction_compression="ON", log_bin_compress="OFF"), [ROW], [], ["upstream-binlog"]),
        (an_upstream(binlog_row_value_options="PARTIAL_JSON"), [ROW], [], ["upstream-binlog"]),
        (an_upstream(log_bin_compress="ON"), [ROW], [], ["upstream-binlog"]),
        (an_upstream(binlog_row_value_options="", log_bin_compress="0"), [ROW], [], []),
        (an_upstream(collation_server="utf8mb4_bin"), [ROW], [], ["upstream-defaults"]),
        (an_upstream(character_set_collations="utf8mb4=utf8mb4_uca1400_ai_ci"), [ROW], [], ["upstream-defaults"]),
        (an_upstream(collation_server="utf8mb4_0900_ai_ci", character_set_collations=""), [ROW], [], []),
        (an_upstream(binlog_format="ROW"), [ROW, CUT], ["upstream-history"], []),
        (replace(an_upstream(), is_tidb=True), [CUT], [], []),
    ],
)
def test_what_an_upstream_logs(facts: UpstreamFacts, rows: list[Event], failing: list[str], warning: list[str]) -> None:
    """A binlog of statements lacks rows; only TiDB gives back the rows that were cut to their key."""
    decoded = Decoded("canal-json", {("t", 0): rows}, {}, is_mysql_born=True)
    settings = Settings.model_validate({"ddl": {"source": "mysql-8"}})
    found = list(upstream.judge_messages(facts, decoded, settings))
    assert (said(found, Level.FAIL), said(found, Level.WARN)) == (failing, warning)


@pytest.mark.parametrize(("source", "warning"), [("tidb", []), ("mysql-8", ["upstream-defaults"])])
def test_no_defaults_are_advised_that_would_be_refused(source: str, warning: list[str]) -> None:
    """While `ddl.source` says TiDB of a binlog's messages, that is what has to be set first."""
    decoded = Decoded("canal-json", {("t", 0): [ROW]}, {}, is_mysql_born=True)
    settings = Settings.model_validate({"ddl": {"source": source}})
    found = list(upstream.judge_messages(an_upstream(collation_server="utf8mb4_general_ci"), decoded, settings))
    assert said(found, Level.WARN) == warning


def test_every_line_that_can_fail_is_in_a_test() -> None:
    """By the name of its check, in a test of this folder; that of the version has a test without names."""
    lines, tests = (
        "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))
        for folder in (Path(kafka.__file__).parent, Path(__file__).parent)
    )
    failing = set(re.findall(r"\bfail(?:ed)?\(\s*\"([a-z-]+)\"", lines)) - {"version"}
    assert len(failing) >= 19
    assert [name for name in sorted(failing) if f'"{name}"' not in tests] == []


def test_names_that_debezium_changed() -> None:
    """Are the target's own: no column is lacking there."""
    table = Table(T, {name: Column(name, "int", None, False) for name in ("id", "a-b")})
    facts = TableFacts({T: table}, [], True)
    found = tables._judge_tables(facts, {T: {"id", "a_b"}})
    assert [one.what for one in found if one.check == "columns"] == []


NEEDED, OWNED = ", ".join(REPLICATED), ", ".join(OWN)
EXACTLY = (
    "GRANT USAGE ON *.* TO `bridge`@`%` IDENTIFIED BY PASSWORD '*E56A114692FE0DE073F9A1DD68A00EEB9703F3F1'",
    f"GRANT {NEEDED} ON `shop`.* TO `bridge`@`%`",
    rf"GRANT {OWNED} ON `\_bridge`.* TO `bridge`@`%`",
)


def test_the_manual_lists_exactly_these() -> None:
    """No right more, and none less, in either place."""
    page = (Path(bridge.__file__).parent / "manual" / "deployment.md").read_text(encoding="utf-8")
    listed: dict[str, set[str]] = {}
    for where, rights in re.findall(r"^\| target, (.+?) \| (.+?) \|", page, re.MULTILINE):
        listed.setdefault(where, set()).update(re.split("[,;] ", rights))
    needed = {"each replicated database": REPLICATED, "`_bridge`": OWN}
    assert listed == {where: set(needs) for where, needs in needed.items()}


@pytest.mark.parametrize(
    ("line", "database", "has"),
    [
        ("GRANT ALL PRIVILEGES ON *.* TO 'root'@'localhost' WITH GRANT OPTION", "shop", True),
        ("GRANT SELECT, INSERT ON *.* TO `a`@`%`", "shop", True),
        ("GRANT INSERT ON `shop`.* TO `a`@`%`", "shop", True),
        ("GRANT INSERT ON `shop`.* TO `a`@`%`", "shops", False),
        ('GRANT INSERT ON "shop".* TO "a"@"%"', "shop", True),
        ("GRANT INSERT ON `shop%`.* TO `a`@`%`", "shop_1", True),
        (r"GRANT INSERT ON `shop\_1`.* TO `a`@`%`", "shop_1", True),
        (r"GRANT INSERT ON `shop\_1`.* TO `a`@`%`", "shop11", False),
        ("GRANT INSERT ON `shop_1`.* TO `a`@`%`", "shop_1", True),
        ("GRANT INSERT ON `a``b`.* TO `a`@`%`", "a`b", True),
        ("GRANT INSERT ON `shop`.`orders` TO `a`@`%`", "shop", False),
        ("GRANT SELECT (id), INSERT (id, v) ON `shop`.* TO `a`@`%`", "shop", False),
        ("GRANT SELECT, EXECUTE ON `shop`.* TO `a`@`%`", "shop", False),
        ("GRANT `writers`@`%` TO `a`@`%`", "shop", False),
        ("GRANT PROXY ON ''@'%' TO 'root'@'localhost' WITH GRANT OPTION", "shop", False),
        ("GRANT USAGE ON *.* TO `a`@`%`", "shop", False),
    ],
)
def test_a_line_of_show_grants(line: str, database: str, has: bool) -> None:
    """What counts is on all of a database, by its name or a pattern."""
    assert allow(read_grants([line]), "INSERT", database) == has


def test_a_name_hides_a_pattern() -> None:
    """The server takes the closest of the grants on databases, and no other."""
    held = read_grants(["GRANT INSERT ON `shop%`.* TO `a`@`%`", "GRANT SELECT ON `shop`.* TO `a`@`%`"])
    assert (allow(held, "INSERT", "shop"), allow(held, "INSERT", "shops")) == (False, True)


def test_a_partial_revoke() -> None:
    """MySQL 8 can take away for one database what an account has on all."""
    held = read_grants(["GRANT INSERT ON *.* TO `a`@`%`", "REVOKE INSERT ON `shop`.* FROM `a`@`%`"])
    assert (allow(held, "INSERT", "shop"), allow(held, "INSERT", "other")) == (False, True)


def test_exactly_what_is_needed_is_enough() -> None:
    """Two lines, all well."""
    found = list(judge(GrantFacts("'bridge'@'%'", EXACTLY), "_bridge", ["shop"]))
    assert [finding.level for finding in found] == [Level.OK] * 2


@pytest.mark.parametrize(
    "need", [(n, "_bridge") for n in OWN.items()] + [(n, "shop") for n in REPLICATED.items()], ids=str
)
def test_each_missing_one_is_named(need: tuple[tuple[str, str], str]) -> None:
    """With the GRANT that gives it; what a pipeline can do without is a warning."""
    (privilege, without), database = need
    lines = [line.replace(rf"{privilege}, ", "", 1).replace(f", {privilege} ON", " ON") if database in line else line
             for line in EXACTLY]  # fmt: skip
    found = list(judge(GrantFacts("'bridge'@'%'", tuple(lines)), "_bridge", ["shop"]))
    [said] = [finding for finding in found if finding.level is not Level.OK]
    assert said.level is (Level.WARN if without else Level.FAIL)
    assert (without or privilege) in said.what
    assert said.fix == f"GRANT {privilege} ON `{database}`.* TO 'bridge'@'%'"
