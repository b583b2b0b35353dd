"""Makes clients of Kafka from the settings, which use librdkafka's names (librdkafka, CONFIGURATION.md).

One of them tells Kafka how far a consumer group is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from bridge.errors import SourceError, UsageError
from bridge.model import PartitionId
from bridge.sources.kafka.read_errors import NEEDED_ON_GROUP, Acls

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


_SESSION_MS: Final = 6000
"""A coordinator that is away is waited for as long as this (librdkafka, session.timeout.ms)."""


def group_client(properties: Mapping[str, str], group: str) -> Consumer:
    """Makes a client that sets offsets of a consumer group without joining it; it reads nothing.

    It is no AdminClient, since that ends the whole process when the connection to the group's coordinator is lost
    while it asks (librdkafka, issues 3663 and 4605).
    """
    settings = {"group.id": group, "enable.auto.commit": False, "session.timeout.ms": _SESSION_MS, "log_level": 0}
    return client(Consumer, {**properties, **settings})


def commit_offsets(committer: Consumer, group: str, offsets: Mapping[PartitionId, int], acls: Acls) -> None:
    """Sets the offsets of a consumer group that has no members; SourceError when Kafka does not take them."""
    wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    try:
        answers = committer.commit(offsets=wanted, asynchronous=False)
    except KafkaException as error:
        raise _not_taken(group, _complaint(committer) or error.args[0], acls) from error
    for answer in answers or ():
        if answer.error is not None:
            raise _not_taken(group, answer.error, acls)


def _complaint(committer: Consumer) -> KafkaError | None:
    """Gives why the group's coordinator is not known: the error of a commit tells only that it is waited for."""
    message = committer.poll(0)
    return message.error() if message is not None else None


def _not_taken(group: str, error: KafkaError, acls: Acls) -> SourceError:
    is_refused = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    return SourceError(
        f"Kafka does not take the offsets of the consumer group {group!r}: {error.str()}",
        fix=acls.grant(NEEDED_ON_GROUP, "group", group) if is_refused else "let nobody consume in that group",
    )
