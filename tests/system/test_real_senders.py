"""Real senders between a server and the bridge: Canal on MySQL, Debezium's newest connectors on MySQL and MariaDB."""

from __future__ import annotations

import os
import pprint
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pymysql
import pytest
from confluent_kafka.admin import AdminClient

from bridge.config import Settings
from bridge.local import Kafka, LocalError, MariaDB, MySQL
from bridge.local.sql_server import SqlServer
from tests.support.canal_server import CanalServer
from tests.support.captures import Line, write_lines
from tests.support.command import Process, bridge
from tests.support.debezium_connector import MYSQL as DEBEZIUM
from tests.support.debezium_connector import OLD, DebeziumConnector
from tests.support.error_messages import entries
from tests.support.pipelines import admin, decoded, drop_all, run_all, sql
from tests.support.senders import (
    KINDS,
    LAST_WORDS,
    READS,
    Round,
    SenderError,
    example_settings,
    messages_until,
    say_last_words,
    sending,
)
from tests.support.upstream_writers import DATABASE, SIGNALS, Writer, contents
from tests.support.waiting import wait_for

CHAINS: Final = {"Canal, MySQL": "mysql_target", "Debezium, MySQL": "mysql_target", "Debezium, MariaDB": "target"}
"""The chains of the suite, each with a target of the upstream's kind."""
BEFORE: Final = (
    "CREATE DATABASE shop",
    "USE shop",
    "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(20), t TIMESTAMP(3) NULL)",
    "CREATE TABLE b (a INT, k VARCHAR(8), n DECIMAL(8,2), PRIMARY KEY (a, k))",
    "CREATE TABLE c (id INT, e ENUM('x','y'))",
    "CREATE TABLE d (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, j JSON)",
    "INSERT INTO a VALUES (1, 'one', NOW(3)), (2, 'zwei', NULL)",
)
CHAIN: Final = (
    "USE shop",
    "INSERT INTO a SELECT id + 10, CONCAT(v, '日本'), t FROM a",
    "INSERT INTO b VALUES (1, 'k', 1.5), (2, 'k', -1.5), (3, 'l', NULL)",
    "INSERT INTO c VALUES (1, 'x'), (1, 'x'), (2, NULL)",
    "ALTER TABLE a ADD COLUMN n INT DEFAULT 7",
    "UPDATE a SET n = id, v = 'moved' WHERE id > 10",
    *("UPDATE b SET k = 'm' WHERE a = 2", "DELETE FROM c WHERE id = 1 LIMIT 1", "TRUNCATE TABLE shop.b"),
    *("INSERT INTO b VALUES (9, 'k', 9)", "RENAME TABLE shop.c TO shop.e", "INSERT INTO e VALUES (5, 'y')"),
    *("ALTER TABLE shop.a DROP COLUMN t", "DELETE FROM a WHERE id = 2"),
    "INSERT INTO d (j) VALUES ('{\"a\": [1, null]}'), ('1')",
    *("CREATE TABLE shop.f LIKE shop.d", "INSERT INTO f SELECT * FROM d", "ALTER TABLE f MODIFY j VARCHAR(20)"),
    *("INSERT INTO f (j) VALUES ('no JSON')", "DROP TABLE shop.d"),
    "CREATE TABLE shop.d (id INT PRIMARY KEY, w VARCHAR(9))",
    "INSERT INTO d VALUES (1, 'again')",
    "CREATE TABLE shop.c (PRIMARY KEY (id)) SELECT id, v FROM shop.a",
    "UPDATE c SET v = 'c' WHERE id = 1",
)
Table = tuple[tuple[str, ...], list[tuple[Any, ...]]]
"""Columns and rows."""
Chain = tuple[dict[str, Any], list[Line]]
"""What the upstream holds at the end, and the messages."""
MINUTES: Final = float(os.environ.get("SENDERS_MINUTES", "30"))
ROUND_SECONDS: Final = 60.0
BOUNDARY_SECONDS: Final = 10
"""As by default."""
PATIENCE_SECONDS, HELD_SECONDS = 300.0, 60.0
"""For a bridge that has been killed to start, and after each line that it logs since, but those of its status: beside
other work it may take minutes.  A schema change that is held is asked for sooner."""
STATUS: Final = "[info     ] status "
LOGGED: Final = 3
"""Lines of a bridge that has begun to bring changes."""


@pytest.fixture
def upstream(request: pytest.FixtureRequest) -> Iterator[SqlServer]:
    """The server of a kind of sender, whose jars are there."""
    kind = KINDS[request.param]
    try:
        kind.fetch()
    except LocalError as error:
        pytest.skip(str(error))
    with kind.server as server:
        yield server


def work(url: str, statements: tuple[str, ...]) -> None:
    """Runs them in one session, in the database that it uses."""
    with admin(url) as session:
        for statement in statements:
            session.execute(statement)


@pytest.fixture(scope="module")
def chains(kafka: Kafka) -> dict[str, Chain | LocalError]:
    """What each sender has written of `BEFORE` and `CHAIN`, or why its jars cannot be had.

    The senders of one kind of server read the same one at once; servers and senders start side by side.
    """
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        ways = [
            pool.submit(chains_of, kafka, stack, [name for name in CHAINS if KINDS[name].source == source])
            for source in ("mysql-8", "mariadb")
        ]
        return {name: end for way in ways for name, end in way.result().items()}


def chains_of(kafka: Kafka, stack: ExitStack, names: Sequence[str]) -> dict[str, Chain | LocalError]:
    """What senders of one server, the first of which may be Canal, have written."""
    ends: dict[str, Any] = {}
    upstream: SqlServer | None = None
    has_begun = False
    for name in names:
        kind = KINDS[name]
        try:
            kind.fetch()
        except LocalError as error:
            ends[name] = error
            continue
        upstream = upstream or stack.enter_context(kind.server)
        if kind.release and not has_begun:  # its snapshot has rows
            work(upstream.url, BEFORE)
            has_begun = True
        topic = re.sub(r"\W+", "-", name).lower()
        partitions = 1 if kind.release else 3  # Debezium's rows without a key stop the bridge in several
        ends[name] = stack.enter_context(sending(kind, kafka, upstream, topic, partitions=partitions))
    if upstream is None:
        return ends
    work(upstream.url, CHAIN if has_begun else BEFORE + CHAIN)
    say_last_words(upstream)
    right = contents(upstream.url)
    return {name: end if isinstance(end, LocalError) else (right, end.messages()) for name, end in ends.items()}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "server"), CHAINS.items(), ids=list(CHAINS))
def test_what_a_real_sender_wrote_ends_equal(
    chains: dict[str, Chain | LocalError], name: str, server: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Rows and schema changes of a second, in several partitions and topics: the target is the upstream's equal."""
    target = request.getfixturevalue(server)
    chain = chains[name]
    if isinstance(chain, LocalError):
        pytest.skip(str(chain))
    (right, lines), protocol = chain, KINDS[name].protocol
    events = decoded(write_lines(tmp_path / "capture.jsonl", lines), protocol)
    rules = Settings.model_validate({"timezone": "UTC", "ddl": {"source": KINDS[name].source}}).ddl_rules()
    run_all(target, events, protocol=protocol, ddl=rules, boundary_seconds=BOUNDARY_SECONDS, cascades_are_lost=True)
    assert contents(target) == right


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("upstream", ["Canal, MySQL"], indirect=True)
def test_the_example_of_settings_is_right_for_canal(
    upstream: SqlServer, target: str, kafka: Kafka, tmp_path: Path
) -> None:
    """`bridge config example canal-to-mariadb`: the properties of Canal that it names, and the bridge's own; but the
    zone is that of Canal's process here."""
    servers = kafka.bootstrap_servers
    settings, text = example_settings("canal-to-mariadb", tmp_path, servers, target, upstream.url)
    settings.write_text(text.replace("+08:00", "UTC"), encoding="utf-8")
    properties = dict(re.findall(r"^#   (canal\.\S+) = (\S+)", text, re.MULTILINE))
    partitions = int(properties["canal.mq.partitionsNum"])
    kafka.create_topic("shop", partitions)
    sql(upstream.url, "CREATE DATABASE other", "SELECT 1")
    gtids = sql(upstream.url, "SELECT @@global.gtid_executed")[0][0]
    of_sender = {name: value.replace("\\\\", "\\") for name, value in properties.items()}
    with CanalServer(servers, upstream.port, of_sender, gtids=gtids) as canal:
        wait_for(lambda: READS in (canal.folder / "server.log").read_text(errors="replace"), "it reads nothing", 120)
        work(upstream.url, (*BEFORE, *CHAIN, "DROP DATABASE other"))
        say_last_words(upstream)
        messages = messages_until(servers, ["shop"], LAST_WORDS)
    assert {line["partition"] for line in messages} == set(range(partitions))
    ended = bridge("replay", "--config", str(settings))
    assert ended.code == 0, ended.err
    assert contents(target) == contents(upstream.url)
    ended = bridge("verify", "--against", "upstream", "--config", str(settings))
    assert ended.code == 0, ended.out + ended.err


OF_THE_EXAMPLE: Final = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.orders (id INT PRIMARY KEY, total DECIMAL(9,2) DEFAULT 1.50, at TIMESTAMP(3) NULL, span TIME)",
    "CREATE TABLE shop.customers (id BIGINT PRIMARY KEY, name VARCHAR(20) DEFAULT 'nobody', photo BLOB)",
    "INSERT INTO shop.orders VALUES (1, NULL, '2026-03-01 10:00:00.125', '-10:00:00'), (2, 9.99, NULL, '25:00:00')",
    "INSERT INTO shop.customers VALUES (1, NULL, x'00FF'), (2, 'Ada', NULL)",
)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("upstream", ["Debezium, MySQL"], indirect=True)
def test_the_example_of_settings_is_right_for_the_connector(
    upstream: SqlServer, target: str, kafka: Kafka, tmp_path: Path
) -> None:
    """`bridge config example debezium-connector`: the connector's properties that it names, and the bridge's own."""
    servers = kafka.bootstrap_servers
    settings, text = example_settings("debezium-connector", tmp_path, servers, target, upstream.url)
    options = dict(re.findall(r'^#   "(.*?)": "(.*?)",?$', text, re.MULTILINE))
    work(upstream.url, OF_THE_EXAMPLE)
    client, topics = AdminClient({"bootstrap.servers": servers}), {"shop", "shop.shop.orders", "shop.shop.customers"}
    with DebeziumConnector(
        *(servers, upstream.port, "shop", options["topic.prefix"]), schemas=True, release=DEBEZIUM, more=options
    ):
        wait_for(lambda: set(client.list_topics(timeout=30).topics) >= topics, "the connector has made no topics", 120)
        with Process(tmp_path, "run", "--config", str(settings)) as process:
            work(
                upstream.url,
                (
                    "TRUNCATE TABLE shop.customers",
                    "INSERT INTO shop.customers VALUES (3, NULL, x'01')",
                    "UPDATE shop.orders SET total = NULL WHERE id = 2",
                ),
            )
            there = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'shop'"
            process.wait_for(lambda: sql(target, there) == [(2,)], "the tables")
            process.wait_for(lambda: sql(target, "SELECT id FROM shop.customers") == [(3,)], "the rows")
            process.wait_for(lambda: sql(target, "SELECT id FROM shop.orders WHERE total IS NOT NULL") == [], "the end")
    ended = bridge("verify", "--against", "upstream", "--config", str(settings))
    assert ended.code == 0, ended.out + ended.err


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 + 2400)
@pytest.mark.parametrize("upstream", KINDS, indirect=True)
def test_rounds_of_random_work(upstream: SqlServer, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Random rows, schema changes and online migrations, while the sender and the bridge are killed again and again:
    each round ends with the upstream's rows, which verify calls equal, or with a stop that the manual names, or a
    schema change that is held."""
    kind = KINDS[request.node.callspec.id]
    seed = int(os.environ.get("SENDERS_SEED", str(random.randrange(1 << 30))))
    print(f"{request.node.callspec.id}, {MINUTES:g} minutes, seed {seed}")
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka())
        target = stack.enter_context(MariaDB() if kind.source == "mariadb" else MySQL())
        until = time.monotonic() + MINUTES * 60
        while time.monotonic() < until:
            folder = tmp_path / str(seed)
            folder.mkdir()
            for server in (target, upstream):
                with admin(server.url) as session:
                    drop_all(session)
            sql(upstream.url, "RESET MASTER", "SELECT 1")
            try:
                end = one_round(request.node.callspec.id, seed, kafka, upstream, target, folder)
            except SenderError as error:  # in its first snapshot
                end = f"the sender ended: {error}"
            print(f"seed {seed}: {end[:600]}", flush=True)
            ends[end.partition(":")[0]] += 1
            wrong += [f"{folder}: {end}"] if end.startswith("wrong") else []
            seed += 1
    print(dict(ends))
    assert not wrong
    assert ends["equal"], ends


def one_round(kind: str, seed: int, kafka: Kafka, upstream: SqlServer, target: SqlServer, folder: Path) -> str:
    """One round; how it ended.  The upstream's statements and the messages are in the folder then."""
    dice = random.Random(seed)
    partitions, by_key = dice.choice((1, 1, 2, 3, 5)), dice.random() < 0.5
    is_canal = KINDS[kind].release is None
    writer = Writer(
        upstream.url,
        seed,
        for_canal=is_canal,
        has_keyless=is_canal or partitions == 1,
        says_null=KINDS[kind].release is OLD,
    )
    if is_canal:  # which does not tell the default of the upstream's server; the database has that of no server
        for server in (upstream, target):
            sql(server.url, f"CREATE DATABASE {DATABASE} COLLATE utf8mb4_unicode_ci", "SELECT 1")
    else:
        writer.begin()
        writer.work(20)
        sql(upstream.url, f"DELETE FROM {DATABASE}.{SIGNALS}", "SELECT 1")  # a snapshot leaves these rows out
    how: dict[str, Any] = {"partitions": partitions, "by_key": by_key, "apart": bool(seed % 2)}
    with sending(KINDS[kind], kafka, upstream, f"round{seed}", **how) as round:
        if is_canal:
            writer.begin()
        process = started(round, target, folder)
        try:
            until = time.monotonic() + ROUND_SECONDS
            while time.monotonic() < until:
                writer.work(20)
                if dice.random() < 0.05:
                    round.sender.kill()
                    writer.work(20)
                    round.sender.restart()
                elif dice.random() < 0.05 and process.code is None and len(process.lines) > LOGGED:
                    process.signal_group(signal.SIGKILL)
                    process.wait()
                    process = started(round, target, folder)
            writer.close()
            (folder / "statements.sql").write_text(";\n".join(writer.statements))
            try:
                lines = finished(round)
            except SenderError as error:  # a statement that it cannot read ends a sender
                (folder / "sender.log").write_text((round.sender.folder / "server.log").read_text(errors="replace"))
                return f"the sender ended: {error}"
            write_lines(folder / "capture.jsonl", lines)
            (folder / "upstream.txt").write_text(pprint.pformat(contents(upstream.url), width=200))
            end = ended(process, upstream, target, folder)
            end = verified(round, upstream, target) if end == "equal" else end
            (folder / "target.txt").write_text(pprint.pformat(contents(target.url), width=200))
            return end
        finally:
            process.kill()


def finished(round: Round) -> list[Line]:
    """The round's messages; a sender that has ended is started once more, as its operator would do."""
    try:
        return round.finish()
    except SenderError:
        round.sender.kill()
        round.sender.restart()
        return round.messages()


def started(round: Round, target: SqlServer, folder: Path) -> Process:
    """A bridge that runs, or goes on."""
    arguments = round.arguments("run", target.url)
    return Process(folder, *arguments, "--set", "stream.idle_seconds=5")


def ended(process: Process, upstream: SqlServer, target: SqlServer, folder: Path) -> str:
    """How it ended: equal, a named stop, a schema change that is held, what the log tells, or wrong."""
    wanted = contents(upstream.url)
    since, told, held = time.monotonic(), "", ""
    while process.code is None and not held and time.monotonic() < since + PATIENCE_SECONDS:
        with suppress(pymysql.MySQLError):  # a table that is dropped while it is read
            if contents(target.url) == wanted:
                return "equal"
        last = next((line for line in reversed(process.lines) if STATUS not in line), "")
        if last != told:
            since, told = time.monotonic(), last
        elif time.monotonic() > since + HELD_SECONDS:
            held = held_by(target)
        time.sleep(1)
    if contents(target.url) == wanted:
        return "equal"
    if process.code is not None:
        last = process.lines[-1] if process.lines else ""
        names = any(re.search(".+".join(map(re.escape, entry.split("..."))), last) for entry in entries())
        return f"stopped: {last}" if process.code in (3, 4) and names else f"wrong: exit {process.code}, {last}"
    if held:
        return f"held: {held[-300:]}"
    got = contents(target.url)
    differ = sorted(name for name in wanted | got if wanted.get(name) != got.get(name))
    logs = "".join(log.read_text(errors="replace") for log in folder.glob("bridge-*.log"))
    if "snapshot_again" in logs:
        return f"told: a second snapshot; {differ} differ"
    if "rows_may_be_twice" in logs and all(only_more(wanted.get(name), got.get(name)) for name in differ):
        return f"told: rows may be twice; {differ} differ"
    return f"wrong: {differ} differ"


def only_more(wanted: Table | None, got: Table | None) -> bool:
    """Tells whether a table has every row that it should have, and others beside them."""
    return bool(wanted and got and wanted[0] == got[0] and not Counter(wanted[1]) - Counter(got[1]))


def verified(round: Round, upstream: SqlServer, target: SqlServer) -> str:
    """What `bridge verify` says of an equal target, against the messages and against the upstream."""
    for against in (("log",), ("upstream", "--upstream", upstream.url)):
        said = bridge(*round.arguments("verify", target.url), "--against", *against)
        if said.code != 0:
            return f"wrong: verify --against {against[0]} ends with {said.code}: {(said.out + said.err)[-400:]}"
    return "equal"


def held_by(target: SqlServer) -> str:
    """What `bridge ddl list` shows, where a schema change is held."""
    shown = bridge("ddl", "list", "--open", "--target", target.url).out.strip()
    return shown if "held" in shown else ""
