"""Debezium's own connector between a MySQL and the bridge: its snapshot, and changes while both run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from confluent_kafka.admin import AdminClient

from bridge.local import Kafka, LocalError, MySQL
from tests.support.bridges import running
from tests.support.command import SECONDS, Process, bridge
from tests.support.debezium_connector import OLD, DebeziumConnector, apicurio_jars
from tests.support.pipelines import admin, sql
from tests.support.registry import serving
from tests.support.senders import example_settings
from tests.support.waiting import wait_for

CREATE = (
    "CREATE TABLE `t` (`id` bigint unsigned NOT NULL, `b1` bit(1), `b9` bit(9), `i8` tinyint, `d` decimal(10,2),"
    " `d0` decimal(20,0), `f` float, `r` double, `v` varchar(20), `bin` varbinary(9), `day` date NOT NULL,"
    " `t3` time(3), `t6` time(6), `dt` datetime, `dt6` datetime(6), `ts` timestamp(3) NULL, `y` year,"
    " `e` enum('a','b'), `s` set('x','y'), `j` json, `p` point, PRIMARY KEY (`id`)) DEFAULT CHARSET=utf8mb4"
)
ROWS = {
    1: "18446744073709551615, b'1', b'100000000', -128, 123.45, 12345678901234567890, 0.1, 1e-10, 'it''s', x'00ff',"
    " '2024-02-29', '-00:00:01.500', '-838:59:58.999999', '2024-02-29 12:34:56', '2024-02-29 12:34:56.789012',"
    " '2024-02-29 12:34:56.789', 2024, 'b', 'x,y', '{\"a\": 1}', ST_GeomFromText('POINT(1 2)')",
    2: "2, b'0', b'1', 127, -0.01, -1, 16777216, 1e21, '', '', '1000-01-01', '00:00:00', '23:59:59.000001',"
    " '9999-12-31 23:59:59', '1000-01-01 00:00:00.000001', '2038-01-19 03:14:07.999', 1901, 'a', '', 'null', NULL",
    3: "3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '1969-12-31', NULL, NULL, NULL, NULL, NULL, NULL,"
    " NULL, NULL, NULL, NULL",
}

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

IN_BINLOG = ("--log-bin=binlog", "--server-id=1", "--binlog-format=ROW", "--binlog-row-image=FULL")
OTHERS = (
    "CREATE TABLE shop.pairs (a INT, b VARCHAR(10), n INT, PRIMARY KEY (a, b))",
    "CREATE TABLE shop.keyless (a INT, t VARCHAR(20))",
    "CREATE TABLE shop.made (a INT PRIMARY KEY)",
    "INSERT INTO shop.made VALUES (1)",
    "CREATE TABLE shop.waited (a INT PRIMARY KEY)",
    "INSERT INTO shop.waited VALUES (0)",
)
TABLES = ("t", "pairs", "keyless", "made", "waited")


@pytest.fixture
def upstream() -> Iterator[MySQL]:
    """A MySQL with a binlog, and rows."""
    with MySQL(options=list(IN_BINLOG)) as server:
        sql(server.url, "CREATE DATABASE shop", CREATE.replace("`t`", "shop.t", 1), *OTHERS, "SELECT 1")
        for row in ROWS.values():  # of FLOAT the snapshot has six digits
            sql(server.url, f"INSERT INTO shop.t VALUES ({row.replace('16777216', '0.5')})", "SELECT 1")
        write(server.url, range(20))
        yield server


def write(url: str, numbers: range) -> None:
    """Changes of each kind, in tables with a key of two columns and without one."""
    for n in numbers:
        sql(
            url,
            f"INSERT INTO shop.pairs (a, b, n) VALUES ({n}, 'k', {n})",
            f"INSERT INTO shop.keyless VALUES ({n % 5}, 'x')",
            f"UPDATE shop.pairs SET n = n + 1 WHERE a = {n // 2}",
            f"UPDATE shop.pairs SET b = 'moved' WHERE a = {n - 3}",
            f"UPDATE shop.keyless SET t = 'y' WHERE a = {n % 3} LIMIT 2",
            f"DELETE FROM shop.pairs WHERE a = {n // 3} AND n > 4",
            f"DELETE FROM shop.keyless WHERE a = {n % 7} LIMIT 1",
            "SELECT 1",
        )


def within_a_second(url: str) -> None:
    """Rows before and behind schema changes, all of which the binlog dates alike."""
    sql(
        url,
        "INSERT INTO shop.keyless VALUES (1, 'before')",
        "TRUNCATE TABLE shop.keyless",
        "INSERT INTO shop.keyless VALUES (2, 'behind')",
        "DROP TABLE shop.made",
        "CREATE TABLE shop.made (a INT PRIMARY KEY, again INT)",
        "INSERT INTO shop.made VALUES (1, 1)",
        "SELECT 1",
    )


def while_it_waits_for_its_lock(url: str, process: Process) -> None:
    """A TRUNCATE that the binlog dates earlier than the row before it: a transaction holds the table meanwhile."""
    with admin(url) as writer:
        writer.execute("BEGIN")
        writer.execute("INSERT INTO shop.waited VALUES (1)")
        truncate = Thread(target=sql, args=(url, "TRUNCATE TABLE shop.waited", "SELECT 1"))
        truncate.start()
        waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table metadata%'"
        process.wait_for(lambda: sql(url, waiting)[0][0] == 1, "the TRUNCATE to wait for its lock")
        (began,) = sql(url, "SELECT UNIX_TIMESTAMP()")[0]
        process.wait_for(lambda: sql(url, "SELECT UNIX_TIMESTAMP()")[0][0] > began + 1, "the next second")
        writer.execute("INSERT INTO shop.waited VALUES (2)")
        writer.execute("COMMIT")
        truncate.join(SECONDS)
    sql(url, "INSERT INTO shop.waited VALUES (3)", "SELECT 1")


def wait_for_topics(topics: set[str], servers: str) -> None:
    """Until the snapshot has made all topics."""
    client = AdminClient({"bootstrap.servers": servers})
    wait_for(lambda: set(client.list_topics(timeout=30).topics) >= topics, "the connector has made no topics", SECONDS)


@pytest.mark.parametrize("form", ["schemas", "bare", "avro"])
def test_snapshot_and_changes_end_equal(upstream: MySQL, target: str, kafka: Kafka, tmp_path: Path, form: str) -> None:
    """As the manual says: an empty target, all topics of the connector, its topic of schema changes too; in Avro by
    Apicurio's own converter."""
    try:
        OLD.jars()
        if form == "avro":
            apicurio_jars()
    except LocalError as error:
        pytest.skip(str(error))
    with serving({}) as registry:
        registry.url += "/apis/registry/v2"
        end_equal(upstream, target, kafka, tmp_path, form, registry.url if form == "avro" else "")
        assert (form == "avro") == any("/ids/globalIds/" in path for path in registry.asked)


def end_equal(upstream: MySQL, target: str, kafka: Kafka, folder: Path, form: str, registry: str) -> None:
    """Rows and schema changes while the bridge runs, and a comparison at the end."""
    servers, prefix = kafka.bootstrap_servers, f"up{form}"
    data = [f"{prefix}.shop.{table}" for table in TABLES]
    with DebeziumConnector(
        servers, upstream.port, "shop", prefix, schemas=form == "schemas", registry=registry
    ) as connector:
        wait_for_topics({prefix, *data}, servers)
        more = [
            *(part for topic in data for part in ("--topic", topic)),
            *("--protocol", "debezium", "--set", "ddl.source=mysql-8"),
            *("--set", "debezium.time_precision_mode=adaptive_time_microseconds"),
            *(("--registry", registry) if registry else ()),
        ]
        with running(folder / "bridge", servers, prefix, target, *more) as process:
            write(upstream.url, range(20, 60))
            sql(upstream.url, "ALTER TABLE shop.pairs ADD COLUMN e VARCHAR(9) DEFAULT 'new'", "SELECT 1")
            write(upstream.url, range(60, 80))
            within_a_second(upstream.url)
            while_it_waits_for_its_lock(upstream.url, process)
            sql(upstream.url, "INSERT INTO shop.pairs VALUES (1000, 'end', 0, 'end')", "SELECT 1")
            found = "SELECT COUNT(*) FROM information_schema.columns WHERE table_name = 'pairs' AND column_name = 'e'"
            process.wait_for(lambda: sql(target, found)[0][0] == 1, "the new column")
            process.wait_for(lambda: bool(sql(target, "SELECT 1 FROM shop.pairs WHERE a = 1000")), "the last row")
        assert connector.status()["connector"]["state"] == "RUNNING"
    ended = bridge("verify", "--against", "upstream", "--upstream", upstream.url, "--target", target)
    assert ended.code == 0, ended.out


OF_THE_EXAMPLE = (
    "CREATE TABLE shop.orders (id INT PRIMARY KEY, total DECIMAL(9,2) DEFAULT 1.50, at TIMESTAMP(3) NULL, span TIME)",
    "CREATE TABLE shop.customers (id BIGINT PRIMARY KEY, name VARCHAR(20) DEFAULT 'nobody', photo BLOB)",
    "INSERT INTO shop.orders VALUES (1, NULL, '2026-03-01 10:00:00.125', '-10:00:00'), (2, 9.99, NULL, '25:00:00')",
    "INSERT INTO shop.customers VALUES (1, NULL, x'00FF'), (2, 'Ada', NULL)",
)


def test_the_example_of_settings_is_right_for_the_connector(
    upstream: MySQL, target: str, kafka: Kafka, tmp_path: Path
) -> None:
    """`bridge config example debezium-connector`: the connector's properties that it names, and the bridge's own."""
    try:
        OLD.jars()
    except LocalError as error:
        pytest.skip(str(error))
    servers = kafka.bootstrap_servers
    settings, text = example_settings("debezium-connector", tmp_path, servers, target, upstream.url)
    options = dict(re.findall(r'^#   "(.*?)": "(.*?)",?$', text, re.MULTILINE))
    sql(upstream.url, *OF_THE_EXAMPLE, "SELECT 1")
    with DebeziumConnector(servers, upstream.port, "shop", options["topic.prefix"], schemas=True, more=options):
        wait_for_topics({"shop", "shop.shop.orders", "shop.shop.customers"}, servers)
        with Process(tmp_path, "run", "--config", str(settings)) as process:
            sql(
                upstream.url,
                "TRUNCATE TABLE shop.customers",
                "INSERT INTO shop.customers VALUES (3, NULL, x'01')",
                "UPDATE shop.orders SET total = NULL WHERE id = 2",
                "SELECT 1",
            )
            there = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'shop'"
            process.wait_for(lambda: sql(target, there) == [(2,)], "the tables")
            process.wait_for(lambda: sql(target, "SELECT id FROM shop.customers") == [(3,)], "the rows")
            process.wait_for(lambda: sql(target, "SELECT id FROM shop.orders WHERE total IS NOT NULL") == [], "the end")
    ended = bridge("verify", "--against", "upstream", "--config", str(settings))
    assert ended.code == 0, ended.out + ended.err
