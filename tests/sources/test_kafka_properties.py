"""One set of Kafka properties serves both clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.errors import UsageError
from bridge.sources.kafka_properties import for_java

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("given", "java"),
    [
        ({}, {}),
        ({"client.id": "b"}, {"client.id": "b"}),
        ({"socket.timeout.ms": "30000"}, {"request.timeout.ms": "30000"}),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": 'p"\\'},
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
             "sasl.jaas.config": f'{PLAIN} required username="u" password="p\\"\\\\";'},
        ),
        (
            {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "p"},
            {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": f'{SCRAM} required username="u" password="p";'},
        ),
        (
            {"ssl.ca.location": "/ca.pem", "ssl.endpoint.identification.algorithm": "none"},
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem",
             "ssl.endpoint.identification.algorithm": ""},
        ),
    ],
)  # fmt: skip
def test_properties_of_the_java_client(given: dict[str, str], java: dict[str, str]) -> None:
    """What Java's client calls otherwise is translated, the rest passes."""
    assert for_java(given) == java


def test_certificates_are_handed_over_as_they_are(tmp_path: Path) -> None:
    """Java takes a key and its certificates as texts."""
    (tmp_path / "c.pem").write_text("C")
    (tmp_path / "k.pem").write_text("K")
    given = {"ssl.certificate.location": str(tmp_path / "c.pem"), "ssl.key.location": str(tmp_path / "k.pem")}
    java = {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "C", "ssl.keystore.key": "K"}
    assert for_java(given) == java


@pytest.mark.parametrize(
    "given", [{"sasl.username": "u"}, {"ssl.certificate.location": "/nowhere", "ssl.key.location": "/nowhere"}]
)
def test_what_cannot_be_translated_is_an_error(given: dict[str, str]) -> None:
    """Before anything is read."""
    with pytest.raises(UsageError):
        for_java(given)
