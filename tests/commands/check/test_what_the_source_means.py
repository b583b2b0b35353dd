"""What `bridge check` says of the source: whose defaults statements mean, and how it compares texts."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bridge import registry as client
from bridge.commands.check import Finding, Level, kafka, protocol, tables, upstream
from bridge.commands.check.kafka import SourceFacts
from bridge.commands.check.protocol import Decoded
from bridge.commands.check.server import Encryption
from bridge.commands.check.tables import TableFacts
from bridge.commands.check.upstream import UpstreamFacts
from bridge.config import Settings
from bridge.errors import RegistryAwayError
from bridge.model import Column, Table, TableName
from bridge.mysql.connection.target import Target
from bridge.registry import SchemaRegistry
from bridge.sources.capture_files import CaptureSource
from tests.protocols.test_debezium_avro import genuine
from tests.support.pipelines import sql
from tests.support.registry import Registry, serving


def said(findings: Sequence[Finding]) -> list[tuple[str, Level]]:
    return [(one.check, one.level) for one in findings]


def settings(**ddl: Any) -> Settings:
    return Settings.model_validate({"ddl": ddl})


@pytest.mark.parametrize(
    ("born", "binlog_of", "source", "right"),
    [
        *((False, "", "tidb", []), (False, "", "tidb-old-collations", []), (False, "", "mysql-8", [Level.WARN])),
        *((True, "", "mysql-8", []), (True, "mysql", "mysql-8", []), (True, "mysql", "tidb", [Level.WARN])),
        (True, "mysql", "tidb-old-collations", [Level.WARN]),
        (True, "mariadb", "tidb", []),
        (True, "mariadb", "mariadb", []),
    ],
)
def test_whose_defaults_statements_mean(born: bool, binlog_of: str, source: str, right: list[Level]) -> None:
    """Messages from a binlog never mean TiDB's defaults, nor TiCDC's those of others."""
    found = list(protocol.judge_source(Decoded("debezium", {}, {}, born, binlog_of), source))
    assert [one.level for one in found] == right


def facts(new_collations: bool | None, **variables: str) -> UpstreamFacts:
    return UpstreamFacts("8.0.11-TiDB-v8.5.1", True, Encryption("none", False), variables, new_collations)


@pytest.mark.parametrize(
    ("new", "source", "level"),
    [
        *((True, "tidb", Level.OK), (False, "tidb-old-collations", Level.OK), (False, "tidb", Level.FAIL)),
        *((True, "tidb-old-collations", Level.FAIL), (None, "tidb", Level.WARN)),
    ],
)
def test_how_the_upstream_compares(new: bool | None, source: str, level: Level) -> None:
    """A cluster that compares bytes needs its setting, and no other may have it."""
    found = {one.check: one for one in upstream.judge(facts(new), "here", settings(source=source))}
    assert found["upstream-collations"].level is level
    assert level is Level.OK or found["upstream-collations"].fix


def test_keys_that_compare_otherwise_than_the_source() -> None:
    """With a source that compares bytes, keys of the target that do not are named."""
    name = TableName("d", "t")

    def judged(collation: str, source: str) -> list[tuple[str, Level]]:
        columns = {"k": Column("k", "varchar(9)", "utf8mb4", False, False, collation)}
        table = Table(name, columns, (("k",),), (("k",),))
        looked = TableFacts({name: table}, [], True)
        found = tables.judge(looked, Decoded("canal-json", {}, {}, False), settings(source=source))
        return [one for one in said(list(found)) if one[0] == "collations"]

    assert judged("utf8mb4_bin", "tidb-old-collations") == [("collations", Level.FAIL)]
    assert not judged("utf8mb4_0900_bin", "tidb-old-collations")
    assert not judged("utf8mb4_general_ci", "tidb")


def test_a_tidb_is_asked(tidb_target: str) -> None:
    """mysql.tidb says how the cluster compares."""
    assert upstream.gather(Target(tidb_target)).new_collations is True
    change = "UPDATE mysql.tidb SET variable_value = '{}' WHERE variable_name = 'new_collation_enabled'"
    try:
        sql(tidb_target, change.format("False"))
        assert upstream.gather(Target(tidb_target)).new_collations is False
    finally:
        sql(tidb_target, change.format("True"))


@pytest.mark.parametrize("sender", ["canal-1.1.7/server.jsonl", "debezium-3.6.1/topics.jsonl", "ckafka"])
def test_advice_is_for_the_sender_at_hand(real_senders: Path, tmp_path: Path, sender: str) -> None:
    """Whoever has no TiCDC is told of none of its options."""
    path = tmp_path / "sender.jsonl"
    if sender == "ckafka":
        path.write_text(
            json.dumps({"partition": 0, "offset": 0, "value": b64encode(CKAFKA).decode()}), encoding="utf-8"
        )
    else:
        path = real_senders / sender
    found = kafka.gather(CaptureSource(str(path)))
    name = protocol.guess(found)[0]
    advice = [
        f"{one.what} -> {one.fix}"
        for one in protocol.judge(found, protocol.decode(found, Settings(), name), Settings())
    ]
    assert any("sends no boundaries" in one for one in advice)
    assert not [one for one in advice if "TiCDC" in one or "changefeed" in one]


CKAFKA = (
    b'{"BINLOG_NAME":"f.1","BINLOG_POS":4,"DATABASE":"d","TABLE":"t","GLOBAL_ID":null,"TYPE":"I","NEW_VALUES":'
    b'{"id":"1"},"OLD_VALUES":null,"TIME":"20160611015029"}'
)


@pytest.fixture
def registry(avro_captures: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Registry]:
    monkeypatch.setattr(client, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with serving(genuine(avro_captures, "my_types")[1]) as one:
        yield one


def facts_of(folder: Path) -> SourceFacts:
    """A sample of genuine messages."""
    pairs = {("t", 0): genuine(folder, "my_types")[0]}
    return SourceFacts("files", False, {}, {}, pairs, pairs, 0)


def test_a_registry_that_has_the_schemas(avro_captures: Path, registry: Registry) -> None:
    """Then the messages are recognised as what they are."""
    facts, asked = facts_of(avro_captures), SchemaRegistry((registry.url,))
    [finding] = protocol.judge_registry(facts, asked)
    assert (finding.level, finding.check) == (Level.OK, "registry")
    name, reason = protocol.guess(protocol.in_plain_json(facts, asked))
    assert (name, "in Avro" in reason) == ("debezium", True)


def test_a_registry_that_lacks_or_changed_a_schema(avro_captures: Path, registry: Registry) -> None:
    """Fails, also where this machine has kept the schema."""
    facts, asked = facts_of(avro_captures), SchemaRegistry((registry.url,))
    list(protocol.judge_registry(facts, asked))
    first = min(registry.schemas.keys() - {1})
    for schemas, words in (({}, "lacks the schema"), ({first: registry.schemas[1]}, "ids were given anew")):
        registry.schemas = schemas
        [finding] = protocol.judge_registry(facts, asked)
        assert finding.level is Level.FAIL
        assert words in finding.what


def test_a_registry_that_is_away(avro_captures: Path, registry: Registry) -> None:
    """Is an error, of which `bridge check` makes one line."""
    registry.status = 503
    with pytest.raises(RegistryAwayError):
        list(protocol.judge_registry(facts_of(avro_captures), SchemaRegistry((registry.url,))))


def test_messages_that_name_no_schema(registry: Registry) -> None:
    """Leave the registry unasked."""
    facts = SourceFacts("files", False, {}, {}, {("t", 0): [(None, b"{}")]}, {}, 0)
    [finding] = protocol.judge_registry(facts, SchemaRegistry((registry.url,)))
    assert finding.ok
    assert registry.asked == []
