"""Genuine messages of Debezium's connector in Avro, with a schema registry, through the whole bridge."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path

import pytest

from bridge import registry as client
from bridge.filters.table_filter import TableFilter
from bridge.local import Kafka
from tests.support.captures import read_lines, write_lines
from tests.support.command import Ended, bridge
from tests.support.golden import Expected, Reader, comparable, differences_from, tables_of
from tests.support.pipelines import sql
from tests.support.producers import ordered_producer
from tests.support.registry import Registry, schemas_of, serving

pytestmark = pytest.mark.usefixtures("spark")

SCRIPTS: dict[str, tuple[str, ...]] = {
    "bank": (),
    "keys": ("!ks.child",),  # whose rows a foreign key cascades to
    "my_types": (),
    # VARCHAR of the character set binary comes as text, a comma in an ENUM with a backslash, and REAL as a FLOAT
    "all_types": ("!types.cs", "!types.enums", "!types.floats"),
    "ddl": (),
}
"""The captures, and the tables of each that the bridge refuses."""
REPLACED = {"RENAME TABLE t2s TO app2.moved": "RENAME TABLE app.t2s TO app2.moved"}
"""Statements that are held, since no message tells the database of the session, and what the operator runs instead."""
LOOSE = ("decs", "ints", "jsons", "gen", "times")
"""Tables whose end state was read with the zeros of ZEROFILL, and documents as MySQL writes them."""
LOST = {"times": lambda row: row[0] == "5"}
"""Rows that were lost before the messages were made, by table: the connector has no zero dates."""


def flags(script: str) -> list[str]:
    """What a replay of a script needs."""
    return [*("--set", "ddl.source=mysql-8"), *(part for rule in SCRIPTS[script] for part in ("--filter", rule))]


def right(folder: Path, script: str) -> list[Expected]:
    """The tables of the end state that are replicated."""
    tables = tables_of(folder / "debezium-avro" / f"{script}.expected.json")
    accepts = TableFilter(tuple(SCRIPTS[script]))
    return [one for one in tables if accepts(one.schema, one.table) and one.table != "defs2"]


@pytest.mark.parametrize(
    ("server", "script"),
    [
        ("target", "bank"),
        pytest.param("target", "my_types", marks=pytest.mark.soak),  # the tests below end with it
        ("mysql_target", "all_types"),
        *(pytest.param("target", script, marks=pytest.mark.soak) for script in ("keys", "all_types", "ddl")),
        *(pytest.param("mysql_target", script, marks=pytest.mark.soak) for script in SCRIPTS if script != "all_types"),
    ],
)
def test_a_replay_ends_at_the_upstreams_state(
    avro_captures: Path, server: str, script: str, request: pytest.FixtureRequest
) -> None:
    """Tables and rows are the upstream's at its end, and each schema was asked for once."""
    url, folder = request.getfixturevalue(server), avro_captures / "debezium-avro"
    with serving(schemas_of(folder / f"{script}.schemas.json")) as registry:
        given = ["replay", "--input", str(folder / f"{script}.jsonl"), "--target", url, "--registry", registry.url]
        ended = bridge(*given, *flags(script))
        for _, instead in REPLACED.items() if script == "ddl" else ():
            assert ended.code == 4, ended.err
            held = "SELECT commit_ts, statement_hash FROM _bridge.schema_changes WHERE state = 'held'"
            [(ts, digest)] = sql(url, held)
            change = f"{ts}-{digest[:8]}"
            assert bridge("ddl", "replace", change, instead, "--target", url).code == 0
            ended = bridge(*given, *flags(script))
    assert ended.code == 0, ended.err
    assert "in Avro" in ended.err + ended.out
    assert unequal(right(avro_captures, script), url) == []
    assert len(registry.asked) == len(set(registry.asked))


def unequal(tables: list[Expected], url: str) -> list[str]:
    """What of these tables the target has otherwise; cells of LOOSE tables are compared by what they mean."""
    found = differences_from([one for one in tables if one.table not in LOOSE], url)
    reader = Reader(url)
    for table in (one for one in tables if one.table in LOOSE):
        is_lost = LOST.get(table.table, lambda _: False)
        wanted, there = (
            sorted(([meaning(cell) for cell in row] for row in some if not is_lost(row)), key=repr)
            for some in (comparable(table, table.rows), reader.rows(table))
        )
        found += [f"{table.table}: {has} instead of {row}" for row, has in zip_longest(wanted, there) if row != has]
    reader.close()
    return found


def meaning(cell: object) -> object:
    """A number without the zeros of ZEROFILL, a document without its blanks; other cells as they are."""
    if isinstance(cell, str):
        with suppress(ArithmeticError):
            return Decimal(cell).normalize()
        with suppress(ValueError):
            return json.dumps(json.loads(cell), sort_keys=True)
    return cell


def replayed(folder: Path, url: str, registry: Registry, *more: str) -> Ended:
    """How the replay of the types ended, by a bridge that remembers no schema."""
    client._memory.clear()
    return bridge(
        *("replay", "--input", str(folder / "debezium-avro" / "my_types.jsonl"), "--target", url),
        *("--registry", registry.url),
        *flags("my_types"),
        *more,
    )


@pytest.fixture
def registry(avro_captures: Path) -> Iterator[Registry]:
    with serving(schemas_of(avro_captures / "debezium-avro" / "my_types.schemas.json")) as one:
        yield one


def test_a_registry_in_trouble(
    avro_captures: Path, target: str, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is away at the start, and that refuses, ends the bridge with the reason and the place; the same command
    goes on when it is mended, waits where it goes away for a while, and ends right."""
    monkeypatch.setattr(client, "_PATIENCE_SECONDS", 1)
    registry.status = 503
    ended = replayed(avro_captures, target, registry, "--set", "source.retry_seconds=1")
    assert ended.code == 3
    assert "the schema registry does not answer" in ended.last_line
    assert "HTTP 503" in ended.last_line
    registry.status, registry.login = 200, "Bearer x"
    ended = replayed(avro_captures, target, registry)
    assert ended.code == 3
    assert "HTTP 401" in ended.last_line
    assert re.search(r"at my-types-avro-\d+/0/0;", ended.last_line), ended.last_line
    assert "[source.registry]" in ended.last_line

    registry.login, asked = "", list[float]()

    def before() -> None:
        asked.append(time.monotonic())
        is_away = len(asked) > 4 and asked[-1] - asked[4] < 1.2 * client._PATIENCE_SECONDS
        registry.status = 503 if is_away else 200

    registry.before = before
    ended = replayed(avro_captures, target, registry)
    assert ended.code == 0, ended.err
    assert "the schema registry does not answer" in ended.err
    assert unequal(right(avro_captures, "my_types"), target) == []


def test_rows_of_a_deleted_schema_in_quarantine(
    avro_captures: Path, target: str, registry: Registry, tmp_path: Path
) -> None:
    """They are decoded when the schema is there again; others that cannot be decoded keep their schemas.  Not in whole
    transactions, of which no row may lack."""
    whole = avro_captures / "debezium-avro" / "my_types.jsonl"
    (tmp_path / "debezium-avro").mkdir()
    lines = [line for line in read_lines(whole) if not line["topic"].endswith(".transaction")]
    cut = next(line for line in lines if line["topic"].endswith("mt.defs") and line["value"])
    cut["value"] = base64.b64encode(base64.b64decode(cut["value"])[:-1]).decode()
    write_lines(tmp_path / "debezium-avro" / "my_types.jsonl", lines)
    number = next(number for number, text in registry.schemas.items() if "mt.strs.Envelope" in text)
    deleted = registry.schemas.pop(number)
    ended = replayed(tmp_path, target, registry, "--on-bad-message", "quarantine")
    assert ended.code == 4, ended.err
    kept = sql(target, "SELECT topic, row_change FROM _bridge.quarantine WHERE topic LIKE '%mt.%'")
    assert {topic.rpartition(".")[2] for topic, _ in kept} == {"strs", "defs"}
    for topic, schemas in kept:
        assert len(json.loads(schemas)) == (2 if topic.endswith("defs") else 1)
    registry.schemas[number] = deleted
    client._memory.clear()
    retried = bridge("quarantine", "retry", "--all", "--target", target, "--registry", registry.url)
    assert "mt.strs/0/" in retried.out
    assert retried.out.count("bytes are left") + retried.out.count("ends too early") == 1


def test_ids_in_kafkas_headers(
    avro_captures: Path, target: str, kafka: Kafka, topic: Callable[[int], str], spark: object
) -> None:
    """Apicurio's converter may write them there; read from Kafka, by Spark's workers, the end is the same."""
    del spark
    folder = avro_captures / "debezium-avro-wire"
    lines = read_lines(folder / "my_types.apicurio-headers.jsonl")
    topics = {name: topic(1) for name in dict.fromkeys(line["topic"] for line in lines)}
    producer = ordered_producer(kafka.bootstrap_servers)
    for line in lines:
        key, value, *headers = (
            None if text is None else base64.b64decode(text)
            for text in (line["key"], line["value"], *line["headers"].values())
        )
        named: list[tuple[str, str | bytes | None]] = list(zip(line["headers"], headers, strict=True))
        producer.produce(topics[line["topic"]], value, key, headers=named, timestamp=line["timestamp"])
    assert producer.flush(60) == 0
    with serving(schemas_of(folder / "my_types.apicurio-headers.schemas.json")) as registry:
        ended = bridge(
            *("replay", "--bootstrap-servers", kafka.bootstrap_servers, "--target", target),
            *(part for name in topics.values() for part in ("--topic", name)),
            *("--registry", registry.url, *flags("my_types")),
        )
    assert ended.code == 0, ended.err
    assert unequal(right(avro_captures, "my_types"), target) == []
    assert len(registry.asked) == len(set(registry.asked))
