"""What a check says of the schema registry, which it asks for one schema of the sample."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.commands.check import protocol
from bridge.commands.check.finding import Level
from bridge.commands.check.kafka import SourceFacts
from bridge.errors import RegistryAwayError
from bridge.registry import client
from bridge.registry.client import SchemaRegistry
from tests.protocols.test_debezium_avro import genuine
from tests.support.registry import Registry, serving


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
