"""Makes clients of Kafka from the settings, which use librdkafka's names (librdkafka, CONFIGURATION.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException

from bridge.errors import UsageError

_Client = TypeVar("_Client")

_WITH_USERNAME: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The mechanisms that use sasl.username and sasl.password (librdkafka, CONFIGURATION.md)."""


def check_login(properties: Mapping[str, str]) -> None:
    """Raises UsageError for a user name that the client would not use, and of which it says nothing."""
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", ""))
    if "sasl.username" in properties and mechanism not in _WITH_USERNAME:
        raise UsageError(
            f"sasl.username cannot be used with the sasl.mechanism {mechanism!r}",
            where="[source.kafka]",
            fix=f"set sasl.mechanism to one of {', '.join(_WITH_USERNAME)}",
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
