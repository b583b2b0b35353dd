"""Asks Kafka for a consumer group, and tells it how far the group is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from bridge.errors import SourceError, UnansweredError
from bridge.model import PartitionId
from bridge.sources.kafka.acls import NEEDED_ON_GROUP, Acls, lacking
from bridge.sources.kafka.client import client

_TIMEOUT_SECONDS: Final = 10.0
_MOVING: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
_SESSION_MS: Final = 6000
"""A coordinator that is away is waited for as long as this (librdkafka, session.timeout.ms)."""


class GroupNow(NamedTuple):
    """A consumer group.  members: how many consume in it; Kafka takes no offsets from others then."""

    may_commit: bool
    members: int = 0


def read_group(admin: AdminClient, group: str) -> GroupNow:
    """Asks Kafka for a consumer group, and what its user may do with it; UnansweredError when Kafka does not answer.

    For a question that is asked once only: see `group_client`.
    """
    moving = retry_if_exception(_is_moving)
    attempts = Retrying(retry=moving, stop=stop_after_delay(_TIMEOUT_SECONDS), wait=wait_fixed(0.2), reraise=True)
    try:
        found = attempts(_described, admin, group)
    except KafkaException as error:
        said: KafkaError = error.args[0]
        if said.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return GroupNow(may_commit=False)
        raise UnansweredError(
            f"Kafka does not describe the consumer group {group!r}: {said.str()} ({said.name()})"
        ) from error
    allowed = {operation.name for operation in found.authorized_operations or ()}
    return GroupNow(not lacking(allowed, NEEDED_ON_GROUP), len(found.members))


def _described(admin: AdminClient, group: str) -> Any:
    asked = admin.describe_consumer_groups(
        [group], include_authorized_operations=True, request_timeout=_TIMEOUT_SECONDS
    )
    return asked[group].result()


def _is_moving(error: BaseException) -> bool:
    """Tells whether the coordinator of the group begins, or has just moved: the next answer may be right."""
    return isinstance(error, KafkaException) and error.args[0].code() in _MOVING


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
        taken = committer.commit(offsets=wanted, asynchronous=False)
    except KafkaException as error:
        raise _not_taken(group, _complaint(committer) or error.args[0], acls) from error
    for where in taken or ():
        if where.error is not None:
            raise _not_taken(group, where.error, acls)


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
