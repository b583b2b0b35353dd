"""Genuine messages of Debezium's connector in Avro, with a schema registry, through the whole bridge."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridge.local import Kafka
from bridge.registry import client
from tests.support.captures import read_lines
from tests.support.command import Ended, bridge
from tests.support.golden import Expected, differences_from, tables_of
from tests.support.producers import ordered_producer
from tests.support.registry import Registry, schemas_of, serving

pytestmark = pytest.mark.usefixtures("spark")

SCRIPTS: dict[str, tuple[str, ...]] = {
    "bank": (),
    "keys": ("--filter", "!ks.child"),  # whose rows a foreign key cascades to
    # VARCHAR of the character set binary comes as text, and a comma in an ENUM with a backslash, as in JSON
    "my_types": ("--filter", "!mt.odd"),  # whose columns have names that Avro does not take
}
"""The captures, and what they need."""


def right(folder: Path, script: str) -> list[Expected]:
    """The tables of the end state that are replicated; in `mt.defs2` the converter wrote defaults for NULL."""
    tables = tables_of(folder / "debezium-avro" / f"{script}.expected.json")
    return [one for one in tables if f"!{one.schema}.{one.table}" not in SCRIPTS[script] and one.table != "defs2"]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("server", ["target", "mysql_target"])
def test_a_replay_ends_at_the_upstreams_state(
    avro_captures: Path, server: str, script: str, request: pytest.FixtureRequest
) -> None:
    """Tables and rows are the upstream's at its end, and each schema was asked for once."""
    url, folder = request.getfixturevalue(server), avro_captures / "debezium-avro"
    with serving(schemas_of(folder / f"{script}.schemas.json")) as registry:
        ended = bridge(
            *("replay", "--input", str(folder / f"{script}.jsonl"), "--target", url, "--registry", registry.url),
            *("--set", "ddl.source=mysql-8", *SCRIPTS[script]),
        )
    assert ended.code == 0, ended.err
    assert "in Avro" in ended.err + ended.out
    assert differences_from(right(avro_captures, script), url) == []
    assert len(registry.asked) == len(set(registry.asked))


def replayed(folder: Path, url: str, registry: Registry, *flags: str) -> Ended:
    """How the replay of the bank ended."""
    client._memory.clear()
    return bridge(
        *("replay", "--input", str(folder / "debezium-avro" / "bank.jsonl"), "--target", url),
        *("--registry", registry.url, "--set", "ddl.source=mysql-8", *flags),
    )


@pytest.fixture
def registry(avro_captures: Path) -> Iterator[Registry]:
    with serving(schemas_of(avro_captures / "debezium-avro" / "bank.schemas.json")) as one:
        yield one


def ends_right(folder: Path, url: str) -> bool:
    return differences_from(right(folder, "bank"), url) == []


def number_of(registry: Registry, name: str) -> int:
    """The id of the schema with these words."""
    return next(number for number, text in registry.schemas.items() if name in text)


@pytest.mark.parametrize("flags", [(), pytest.param(("--protocol", "debezium"), marks=pytest.mark.soak)])
def test_a_registry_that_is_away_at_the_start(
    avro_captures: Path, target: str, registry: Registry, flags: tuple[str, ...]
) -> None:
    """Is waited for as the source is, and named when that was long enough; later the same command goes on."""
    registry.status = 503
    ended = replayed(avro_captures, target, registry, "--set", "source.retry_seconds=1", *flags)
    assert ended.code == 3
    assert "the schema registry does not answer" in ended.last_line
    assert "HTTP 503" in ended.last_line
    registry.status = 200
    assert replayed(avro_captures, target, registry).code == 0
    assert ends_right(avro_captures, target)


def test_a_registry_that_goes_away_for_a_while(avro_captures: Path, target: str, registry: Registry) -> None:
    """In the middle, for longer than a question is asked again: the bridge waits, and ends right."""
    asked: list[float] = []

    def before() -> None:
        asked.append(time.monotonic())
        is_away = len(asked) > 4 and asked[-1] - asked[4] < 2 * client._PATIENCE_SECONDS
        registry.status = 503 if is_away else 200

    registry.before = before
    ended = replayed(avro_captures, target, registry)
    assert ended.code == 0, ended.err
    assert "the schema registry does not answer" in ended.err
    assert ends_right(avro_captures, target)


def test_a_registry_that_refuses(avro_captures: Path, target: str, registry: Registry) -> None:
    """Ends the bridge at once, with the schema's id and what to check."""
    registry.login = "Bearer x"
    ended = replayed(avro_captures, target, registry)
    assert ended.code == 3
    assert "HTTP 401" in ended.last_line
    assert "[source.registry]" in ended.last_line


def test_a_schema_that_was_deleted(avro_captures: Path, target: str, registry: Registry, tmp_path: Path) -> None:
    """Stops the bridge at the first message of it, with its position; or the rows wait in the quarantine, and can be
    decoded when the schema is there again.  Not in whole transactions, of which no row may lack."""
    whole = avro_captures / "debezium-avro" / "bank.jsonl"
    (tmp_path / "debezium-avro").mkdir()
    lines = [line for line in whole.read_text().splitlines(keepends=True) if '.transaction"' not in line]
    (tmp_path / "debezium-avro" / "bank.jsonl").write_text("".join(lines))
    number = number_of(registry, "acc_b.Envelope")
    deleted = registry.schemas.pop(number)
    ended = replayed(tmp_path, target, registry)
    assert ended.code == 3
    assert f"lacks the schema {number}" in ended.last_line
    assert "acc_b/0/0" in ended.last_line
    ended = replayed(tmp_path, target, registry, "--on-bad-message", "quarantine")
    assert ended.code == 4, ended.err
    registry.schemas[number] = deleted
    client._memory.clear()
    retried = bridge("quarantine", "retry", "--all", "--target", target, "--registry", registry.url)
    assert "0/0" in retried.out
    assert "decoded" not in retried.out


def test_ids_that_were_given_anew(avro_captures: Path, target: str, registry: Registry) -> None:
    """Two tables' schemas change places: the first row is refused, and nothing is garbage."""
    one, other = (number_of(registry, f"{name}.Envelope") for name in ("acc_a", "acc_b"))
    registry.schemas[one], registry.schemas[other] = registry.schemas[other], registry.schemas[one]
    ended = replayed(avro_captures, target, registry)
    assert ended.code == 3
    assert "but its schema is" in ended.last_line


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
            *("--registry", registry.url, "--set", "ddl.source=mysql-8", *SCRIPTS["my_types"]),
        )
    assert ended.code == 0, ended.err
    assert differences_from(right(avro_captures, "my_types"), target) == []
    assert len(registry.asked) == len(set(registry.asked))
