"""A Kafka behind TLS and SASL: both clients get in, or it is said why not, and no password is seen anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bridges import assert_equal
from tests.support.command import bridge
from tests.support.feeds import Feed
from tests.support.pipelines import sql
from tests.support.secured import PASSWORD, USER, Certificates, SecuredKafka

TOPIC = "changes"
WAYS = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")
Configured = Callable[..., list[str]]

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(certificates: Certificates) -> Iterator[tuple[SecuredKafka, Feed]]:
    """The broker, and what was sent to its topic."""
    with SecuredKafka(certificates) as kafka:
        kafka.add_scram_user()
        kafka.create_topic(TOPIC, 2)
        with Feed(kafka.bootstrap_servers, TOPIC, partitions=2, copies=False) as feed:
            feed.open_bank()
            for _ in range(10):
                feed.beat()
            feed.finish()
        yield kafka, feed


@pytest.fixture
def configured(
    secured: tuple[SecuredKafka, Feed], certificates: Certificates, target: str, tmp_path: Path
) -> Configured:
    """Flags with a settings file for one of the ways in; `left_out` names a property that is missing."""
    login: dict[str, Any] = {"sasl.username": USER}
    ca = {"ssl.ca.location": certificates.ca}
    pair = {"ssl.certificate.location": certificates.client, "ssl.key.location": certificates.client_key}
    ways: dict[str, dict[str, Any]] = {
        "SASL_PLAINTEXT": {"sasl.mechanism": "PLAIN", **login},
        "SASL_SSL": {"sasl.mechanism": "SCRAM-SHA-512", **login, **ca},
        "SSL": {**ca, **pair},
    }

    def flags(way: str, *left_out: str) -> list[str]:
        properties = {"security.protocol": way, **ways[way]}
        lines = [f'"{name}" = {json.dumps(str(value))}' for name, value in properties.items() if name not in left_out]
        path = tmp_path / "bridge.toml"
        path.write_text("\n".join(["[source.kafka]", *lines]))
        source = ("--bootstrap-servers", secured[0].address(way), "--topic", TOPIC, "--protocol", "canal-json")
        return ["--config", str(path), *source, "--target", target]

    return flags


@pytest.mark.parametrize(
    "way", [way if way == "SASL_SSL" else pytest.param(way, marks=pytest.mark.soak) for way in WAYS]
)
def test_every_way_in(
    target: str,
    secured: tuple[SecuredKafka, Feed],
    configured: Configured,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    """PLAIN without TLS, SCRAM with it, and a client's certificate; `check` and a catch-up."""
    if way != "SSL":
        monkeypatch.setenv("BRIDGE_KAFKA_PASSWORD", PASSWORD)
    checked = bridge("check", *configured(way))
    assert checked.code == 0, checked.out + checked.err
    caught_up = bridge("replay", *configured(way))
    assert caught_up.code == 0, caught_up.err
    assert_equal(target, secured[1].bank)
    status = bridge("status", "--target", target, "--json")
    told = (checked.out, checked.err, caught_up.out, caught_up.err, status.out, str(all_rows(target)))
    assert not any(spelled in text for text in told for spelled in (PASSWORD, json.dumps(PASSWORD)[1:-1]))


def all_rows(target: str) -> list[object]:
    """Everything in the bridge's own database."""
    return [sql(target, f"SELECT * FROM _bridge.{table}") for table in ("progress", "owner", "schema_changes")]


@pytest.mark.parametrize("way", [pytest.param("SASL_PLAINTEXT", marks=pytest.mark.soak), "SASL_SSL"])
def test_a_wrong_password(target: str, configured: Configured, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """One line that says what was refused and what to look at; `check` ends with 2, `replay` with 3."""
    monkeypatch.setenv("BRIDGE_KAFKA_PASSWORD", "not-the-secret")
    for command, code in (("check", 2), ("replay", 3)):
        ended = bridge(command, *configured(way))
        said = ended.out + ended.err
        assert ended.code == code, said
        assert "Kafka refuses the connection" in said
        assert "uthentication failed" in said
        assert "BRIDGE_KAFKA_PASSWORD" in said
        assert "not-the-secret" not in said
        assert "Traceback" not in said
    assert sql(target, "SELECT positions FROM _bridge.progress") == [("{}",)]


@pytest.mark.parametrize(
    ("way", "left_out"), [("SASL_SSL", ["ssl.ca.location"]), ("SSL", ["ssl.certificate.location", "ssl.key.location"])]
)
def test_a_missing_certificate(
    configured: Configured, monkeypatch: pytest.MonkeyPatch, way: str, left_out: list[str]
) -> None:
    """The authority's, or the client's own: the fix names the properties."""
    if way != "SSL":
        monkeypatch.setenv("BRIDGE_KAFKA_PASSWORD", PASSWORD)
    ended = bridge("check", *configured(way, *left_out))
    assert ended.code == 2, ended.out
    assert "Kafka refuses the connection" in ended.out
    assert "ssl.ca.location" in ended.out
