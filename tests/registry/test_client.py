"""The client of schema registries, against servers over HTTP."""

from __future__ import annotations

import json
import pickle
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge import registry as client
from bridge.config import RegistrySection
from bridge.errors import RegistryAwayError, SourceError, UsageError
from bridge.protocols.decoder import DecodeError, SchemaId
from bridge.registry import SchemaRegistry
from bridge.settings.load import load_settings
from tests.support.registry import Registry, serving

SCHEMA = json.dumps({"type": "record", "name": "r", "fields": []})
ID = SchemaId("contentIds", 7)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving({7: SCHEMA, 8: "other"}) as one:
        yield one


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(client, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def of_another_process(registry: Registry, *urls: str) -> SchemaRegistry:
    """A client that remembers nothing."""
    client._memory.clear()
    return SchemaRegistry((*urls, registry.url), timeout_seconds=5)


def test_each_schema_is_asked_for_once(registry: Registry) -> None:
    """By all decoders of a process, and by all processes of a machine; also when the registry is gone."""
    one = of_another_process(registry)
    assert [one.text(ID), one.text(ID), SchemaRegistry((registry.url,)).text(ID)] == [SCHEMA] * 3
    registry.status = 404
    assert of_another_process(registry).text(ID) == SCHEMA
    assert len(registry.asked) == 1


def test_workers_ask_at_once(registry: Registry) -> None:
    """Threads stand for the processes of a machine: one of them asks, the others wait for it."""
    one = of_another_process(registry)
    threads = [threading.Thread(target=one._from_cache, args=(ID,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(registry.asked) == 1


def test_a_registry_is_sent_to_executors(registry: Registry) -> None:
    """With its secrets, which no text of it shows."""
    one = SchemaRegistry((registry.url,), "ann", "hunter2", "t0ken")
    assert pickle.loads(pickle.dumps(one)) == one
    assert not {"hunter2", "t0ken"} & set(repr(one).replace("'", " ").split())


@pytest.mark.parametrize(
    ("given", "login"),
    [(("ann", "a:b"), "Basic " + b64encode(b"ann:a:b").decode()), (("", "", "t0ken"), "Bearer t0ken")],
)
def test_logging_in(registry: Registry, given: tuple[str, ...], login: str) -> None:
    """By HTTP Basic or with a bearer token."""
    registry.login = login
    one = SchemaRegistry((registry.url,), *given)  # type: ignore[arg-type]  # the first three
    assert one.ask(ID) == SCHEMA


@pytest.mark.parametrize(
    ("path", "schema_id", "asked"),
    [
        ("", ID, "/schemas/ids/7"),
        ("/apis/ccompat/v7/", ID, "/apis/ccompat/v7/schemas/ids/7"),
        ("/apis/registry/v2", SchemaId("globalIds", 7), "/apis/registry/v2/ids/globalIds/7"),
        ("/apis/registry/v3", ID, "/apis/registry/v3/ids/contentIds/7"),
    ],
)
def test_the_interfaces_of_registries(registry: Registry, path: str, schema_id: SchemaId, asked: str) -> None:
    """Confluent's, and Apicurio's own, which tells two kinds of ids apart."""
    assert SchemaRegistry((registry.url + path,)).ask(schema_id) == SCHEMA
    assert registry.asked[0].endswith(asked)


def test_ids_that_only_apicurios_own_interface_knows(registry: Registry) -> None:
    """Eight bytes are a globalId, and the other interface may have another schema of the same table by that number:
    both may read a DECIMAL, and of two scales."""
    with pytest.raises(SourceError, match="/apis/registry/v2 or v3"):
        SchemaRegistry((registry.url + "/apis/ccompat/v7",)).ask(SchemaId("globalIds", 7))
    assert registry.asked == []


def test_what_was_kept_long_ago(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is compared with what the registry gives, if it answers: another one may have its URL now."""
    text = of_another_process(registry).text(ID)
    monkeypatch.setattr(client, "_FRESH_SECONDS", -1.0)
    for status in (200, 404, 503, 401):
        registry.status = status
        assert of_another_process(registry).text(ID) == text
    assert len(registry.asked) == 5
    registry.status, registry.schemas[7] = 200, "another"
    with pytest.raises(SourceError, match="ids were given anew"):
        of_another_process(registry).text(ID)


@pytest.mark.parametrize("status", [401, 403, 301, 400])
def test_a_refusal_is_final(registry: Registry, status: int) -> None:
    """It names the schema and the status, and is no reason to wait."""
    registry.status = status
    with pytest.raises(SourceError, match=f"7: HTTP {status}") as caught:
        of_another_process(registry).text(ID)
    assert not isinstance(caught.value, RegistryAwayError)


def test_a_schema_that_the_registry_lacks(registry: Registry) -> None:
    """Is a fault of the message, and is not asked for again with each of them."""
    one = of_another_process(registry)
    for _ in range(3):
        with pytest.raises(DecodeError, match="lacks the schema 9 "):
            one.text(SchemaId("contentIds", 9))
    assert len(registry.asked) == 1


@pytest.mark.parametrize("kind", ["PROTOBUF", "JSON"])
def test_a_schema_of_another_kind(registry: Registry, kind: str) -> None:
    """The message is named as what it is."""
    registry.kind = kind
    with pytest.raises(DecodeError, match="Protobuf" if kind == "PROTOBUF" else "JSON Schema"):
        of_another_process(registry).text(ID)


def test_an_answer_that_is_no_schema(registry: Registry) -> None:
    """Such as a page for people: the URL is wrong."""
    with pytest.raises(SourceError, match="answers no schema"):
        SchemaRegistry((registry.url + "/apis/registry/v2",)).ask(SchemaId("contentIds", 8))


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_registry_that_is_away(registry: Registry, status: int) -> None:
    """It may answer later."""
    registry.status = status
    with pytest.raises(RegistryAwayError, match=f"HTTP {status}"):
        of_another_process(registry).text(ID)


def test_a_registry_that_is_slow_or_not_there() -> None:
    """Takes no longer than its time, and is away."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(RegistryAwayError, match="timed out"):
            SchemaRegistry((url,), timeout_seconds=0.2).text(ID)
        assert time.monotonic() - began < 30
    with pytest.raises(RegistryAwayError, match="refused"):
        SchemaRegistry((url,)).text(ID)


def test_several_servers_are_asked_in_turn(registry: Registry) -> None:
    """The first that has the schema answers."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        away = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with serving({}) as behind:
        assert of_another_process(registry, away, behind.url).text(ID) == SCHEMA


def test_it_is_asked_again_for_some_seconds(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that restarts breaks nothing off."""
    monkeypatch.setattr(client, "_PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(client, "_PAUSE_SECONDS", 0.0)
    registry.status = 503
    registry.before = lambda: setattr(registry, "status", 503 if len(registry.asked) < 2 else 200)
    assert of_another_process(registry).text(ID) == SCHEMA


def test_a_schema_that_is_another_one_now(registry: Registry) -> None:
    """Is told, with the folder that holds the old one."""
    one = of_another_process(registry)
    assert one.text(ID) == SCHEMA
    assert one.changed(ID) == ""
    registry.schemas[7] = "another"
    assert "ids were given anew" in one.changed(ID)
    assert str(one.folder(ID)) in one.changed(ID)


def test_a_folder_that_cannot_be_written_to(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps nothing, and stops nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc")
    assert of_another_process(registry).text(ID) == SCHEMA


@pytest.mark.parametrize("url", ["registry:8081", "ftp://r", "http:///x", "http://ann:x@r:1", "http://r:port"])
def test_urls_that_are_none(url: str) -> None:
    """Are refused, and not repeated: they may hold a password."""
    with pytest.raises(UsageError) as caught:
        client.check_urls((url,))
    assert url not in str(caught.value)


def test_the_settings_of_a_registry(tmp_path: Path) -> None:
    """By flag, variable and file; passwords by file or variable only."""
    (tmp_path / "password").write_text("hunter2\n")
    made = RegistrySection(url=("http://r",), user="ann", password_file=str(tmp_path / "password")).registry()
    assert made == SchemaRegistry(("http://r",), "ann", "hunter2", tls=made.tls if made else None)  # type: ignore[arg-type]
    given = load_settings(None, {"BRIDGE_REGISTRY_PASSWORD": "hunter3"}, {"registry": ["http://a", "http://b"]}, [])
    registry = given.decode_options().schemas
    assert isinstance(registry, SchemaRegistry)
    assert (registry.urls, registry.password) == (("http://a", "http://b"), "hunter3")
    assert "hunter3" not in repr(given)
    with pytest.raises(UsageError, match="holds a password"):
        load_settings(None, {}, {}, ["source.registry.password=x"])
    assert load_settings(None, {}, {}, ["source.registry.user=ann"]).source.registry.user == "ann"
