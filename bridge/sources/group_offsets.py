"""Asks Kafka where partitions end, and tells it how far a consumer group is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bridge.errors import SourceError, UnansweredError
from bridge.model import PartitionId
from bridge.sources.kafka_properties import client

_TIMEOUT_SECONDS: Final = 10.0
_SESSION_MS: Final = 6000
"""A coordinator that is away is waited for as long as this (librdkafka, session.timeout.ms)."""


def end_offsets(admin: AdminClient, partitions: Iterable[PartitionId], isolation: str) -> dict[PartitionId, int]:
    """Gives the offset after the last message that can be read, of each partition; UnansweredError when Kafka does not
    answer.

    isolation: Kafka's isolation level; with `read_committed`, a partition ends before its first open transaction.
    """
    committed = isolation == "read_committed"
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(topic, partition): latest for topic, partition in partitions}
    if not asked:
        return {}
    try:
        futures = admin.list_offsets(asked, isolation_level=level, request_timeout=_TIMEOUT_SECONDS)
        return {(where.topic, where.partition): found.result().offset for where, found in futures.items()}
    except KafkaException as error:
        raise UnansweredError(f"Kafka does not tell where partitions end: {error.args[0].str()}") from error


def group_client(properties: Mapping[str, str], group: str) -> Consumer:
    """Makes a client that sets offsets of a consumer group without joining it; it reads nothing.

    It is no AdminClient, since that ends the whole process when the connection to the group's coordinator is lost
    while it asks (librdkafka, issues 3663 and 4605).
    """
    settings = {"group.id": group, "enable.auto.commit": False, "session.timeout.ms": _SESSION_MS, "log_level": 0}
    return client(Consumer, {**properties, **settings})


def commit_offsets(committer: Consumer, group: str, offsets: Mapping[PartitionId, int]) -> None:
    """Sets the offsets of a consumer group that has no members; SourceError when Kafka does not take them."""
    wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    try:
        taken = committer.commit(offsets=wanted, asynchronous=False)
    except KafkaException as error:
        raise _not_taken(group, error.args[0].str()) from error
    for where in taken or ():
        if where.error is not None:
            raise _not_taken(group, where.error.str())


def _not_taken(group: str, words: str) -> SourceError:
    return SourceError(
        f"Kafka does not take the offsets of the consumer group {group!r}: {words}",
        fix="give the Kafka user READ on the group, and let nobody consume in it",
    )
