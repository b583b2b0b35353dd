"""Asks Kafka where partitions end, and where their messages of some moment begin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bridge.errors import UnansweredError
from bridge.model import PartitionId

_TIMEOUT_SECONDS: Final = 10.0
_NONE: Final = -1
"""What Kafka answers for a moment after the last message."""


def end_offsets(admin: AdminClient, partitions: Iterable[PartitionId], isolation: str) -> dict[PartitionId, int]:
    """Gives the offset after the last message that can be read, of each partition; UnansweredError when Kafka does not
    answer.

    isolation: Kafka's isolation level; with `read_committed`, a partition ends before its first open transaction.
    """
    committed = isolation == "read_committed"
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    return _offsets(admin, partitions, OffsetSpec.latest(), level)  # type: ignore[no-untyped-call]


def _offsets(
    admin: AdminClient,
    partitions: Iterable[PartitionId],
    spec: OffsetSpec,
    level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[PartitionId, int]:
    asked = {TopicPartition(topic, partition): spec for topic, partition in partitions}
    if not asked:
        return {}
    try:
        futures = admin.list_offsets(asked, isolation_level=level, request_timeout=_TIMEOUT_SECONDS)
        return {(where.topic, where.partition): found.result().offset for where, found in futures.items()}
    except KafkaException as error:
        raise UnansweredError(f"Kafka does not tell the offsets of partitions: {error.args[0].str()}") from error
