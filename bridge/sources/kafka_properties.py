"""Kafka client properties for the two clients in use: librdkafka, which reads, and Java's, with which Spark plans.

Settings use librdkafka's names (librdkafka, CONFIGURATION.md).  Properties that Java's client names differently are
translated here (Apache Kafka, Consumer Configs; PEM files: KIP-651).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException

from bridge.errors import UsageError

_Client = TypeVar("_Client")

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_RENAMED: Final = {"sasl.mechanisms": "sasl.mechanism", "socket.timeout.ms": "request.timeout.ms"}
_TRANSLATED: Final = frozenset(
    {
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.endpoint.identification.algorithm",
    }
)


def client(make: Callable[[dict[str, Any]], _Client], configuration: dict[str, Any]) -> _Client:
    """Makes a client of librdkafka; UsageError for a property or a value that it does not accept."""
    try:
        return make(configuration)
    except (KafkaException, TypeError, ValueError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else error
        raise UsageError(
            f"the Kafka client does not accept its settings: {reason}",
            where="[source.kafka] or --bootstrap-servers",
            fix="librdkafka's CONFIGURATION.md lists the properties and their values",
        ) from None  # the original error may hold a secret value


def for_java(properties: Mapping[str, str]) -> dict[str, str]:
    """Translates the properties to those of the Java client; UsageError for one that cannot be translated."""
    java = {_RENAMED.get(name, name): value for name, value in properties.items() if name not in _TRANSLATED}
    if "sasl.username" in properties:
        java["sasl.jaas.config"] = _login(java.get("sasl.mechanism", ""), properties)
    if "ssl.ca.location" in properties:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": properties["ssl.ca.location"]}
    if "ssl.certificate.location" in properties:
        java["ssl.keystore.type"] = "PEM"
        java["ssl.keystore.certificate.chain"] = _content(properties["ssl.certificate.location"])
        java["ssl.keystore.key"] = _content(properties.get("ssl.key.location", ""))
    if "ssl.endpoint.identification.algorithm" in properties:
        algorithm = properties["ssl.endpoint.identification.algorithm"]
        java["ssl.endpoint.identification.algorithm"] = "" if algorithm == "none" else algorithm
    return java


def _login(mechanism: str, properties: Mapping[str, str]) -> str:
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        raise UsageError(
            f"sasl.username cannot be used with the sasl.mechanism {mechanism!r}",
            where="[source.kafka]",
            fix=f"set sasl.mechanism to one of {', '.join(_LOGIN_MODULES)}",
        )
    username, password = properties["sasl.username"], properties.get("sasl.password", "")
    return f"{module} required username={_quoted(username)} password={_quoted(password)};"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _content(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the file {path!r} cannot be read: {error}",
            where="[source.kafka]",
            fix="ssl.certificate.location and ssl.key.location name PEM files",
        ) from error
