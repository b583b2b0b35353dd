"""Makes clients of Kafka from the settings, which use librdkafka's names (librdkafka, CONFIGURATION.md).

One of them tells Kafka how far a consumer group is.  Tells, too, which errors of Kafka end a reading.

`OffsetRange` is a range of a partition, and is divided among tasks and parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from bridge.errors import SourceError, UnansweredError, UsageError, meant
from bridge.model import PartitionId


class OffsetRange(NamedTuple):
    """The offsets [start, end) of a partition.  There may be fewer messages than offsets: transaction markers, aborted
    messages and compaction leave gaps."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """The most messages that it can hold."""
        return max(0, self.end - self.start)


def shares(ranges: Iterable[OffsetRange], count: int) -> list[list[OffsetRange]]:
    """Cuts the ranges into at most `count` shares of nearly equal size, none of them empty."""
    ranges = list(ranges)
    quota = -(-sum(r.size for r in ranges) // count) if ranges else 0
    cut: list[list[OffsetRange]] = []
    room = 0
    for whole in ranges:
        rest = whole
        while rest.size:
            if room == 0:
                cut.append([])
                room = quota
            piece = rest._replace(end=min(rest.end, rest.start + room))
            cut[-1].append(piece)
            rest = rest._replace(start=piece.end)
            room -= piece.size
    return cut


NEEDED: Final = frozenset({"READ", "DESCRIBE"})
"""On topics.  In Kafka's own authorizer Read implies Describe."""
NEEDED_ON_GROUP: Final = frozenset({"READ"})
"""On the consumer group to which offsets are committed.  Reading needs none."""
_Client = TypeVar("_Client")

_WITH_USERNAME: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The mechanisms that use sasl.username and sasl.password (librdkafka, CONFIGURATION.md)."""


@dataclass(frozen=True)
class Acls:
    """The ACLs of the bridge's user.

    servers: the brokers.  user: its name where the settings tell it; that of a certificate they do not.
    """

    servers: str = "HOST:PORT"
    user: str = "NAME"

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Acls:
        """Takes them from the properties of a Kafka client."""
        return cls(properties.get("bootstrap.servers", cls.servers), properties.get("sasl.username", cls.user))

    def grant(self, operations: Iterable[str], kind: str, name: str) -> str:
        """Gives the command that allows these operations.  kind: topic or group."""
        allowed = " ".join(f"--operation {operation.title()}" for operation in sorted(operations))
        return (
            f"kafka-acls --bootstrap-server {self.servers} --command-config ADMIN.properties --add"
            f" --allow-principal User:{self.user} {allowed} --{kind} {name}"
        )


def may_not(operations: Collection[str], topic: str, acls: Acls) -> SourceError:
    """Makes the error of operations that are not allowed on a topic."""
    return SourceError(
        f"the Kafka user may not {' and '.join(sorted(operations)).lower()} the topic {topic}",
        where=acls.servers,
        fix=acls.grant(operations, "topic", topic),
    )


def lacking(allowed: Collection[str], needed: frozenset[str]) -> list[str]:
    """Gives what is needed and not allowed; nothing where the broker does not say what is allowed."""
    return [] if not allowed or "ALL" in allowed else sorted(needed.difference(allowed))


AWAY: Final = frozenset(
    {
        *(KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT),
        *(KafkaError._WAIT_COORD, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION),
        *(KafkaError.BROKER_NOT_AVAILABLE, KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION),
        *(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR),
        *(KafkaError.KAFKA_STORAGE_ERROR, KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH),
        *(KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.PREFERRED_LEADER_NOT_AVAILABLE),
    }
)
"""Brokers that are gone, names that are not known, leaders that change, coordinators that load: Kafka is away, and may
answer later."""
UNKNOWN_TOPIC: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
HARMLESS: Final = frozenset({KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED, *AWAY})
"""Errors after which reading continues: the end of a partition, what the client itself waits for, and that it may not
use the consumer group that it has to name, which it does not use."""

_DROPPED: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


def silence_error(part: OffsetRange, next_offset: int, seconds: float) -> UnansweredError:
    return UnansweredError(
        f"no message came for {seconds:g} s",
        where=f"{part.topic}/{part.partition}/{next_offset}",
        fix="check that Kafka answers and that the partition has a leader; then start the bridge again",
    )


def dropped_error(partition: PartitionId, offset: int, held: str = "") -> SourceError:
    """Makes the error of messages that are still needed, and that Kafka has dropped.  held: what it holds, in words."""
    topic, number = partition
    return SourceError(
        f"Kafka no longer holds the messages from offset {offset} on{held}",
        where=f"{topic}/{number}",
        fix="the missing changes are lost, or the topic was created again: copy the upstream's tables to the"
        " target, `bridge reset`, and start with --from the moment of the copy",
    )


def unknown_topic_error(topic: str, topics: Iterable[str]) -> SourceError:
    """Makes the error of a topic that does not exist.  topics: those that do, as far as the user may see them."""
    return SourceError(
        f"Kafka has no topic {topic!r}",
        fix=f"{meant(topic, topics)}check --topic, and that it is this Kafka; a topic has to be made before the bridge"
        " starts",
    )


def refusal_error(part: OffsetRange, next_offset: int, error: Any, acls: Acls) -> SourceError:
    if error.code() in _DROPPED:
        return dropped_error((part.topic, part.partition), next_offset)
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return may_not(("READ",), part.topic, acls)
    return SourceError(
        f"Kafka refused the read: {error.str()}",
        where=f"{part.topic}/{part.partition}/{next_offset}",
        fix="check that Kafka still holds the messages and that its user may read them; then start the bridge again",
    )


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
    except (KafkaException, TypeError, ValueError, AttributeError) as error:
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
    part = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    try:
        answers = committer.commit(offsets=part, asynchronous=False)
    except KafkaException as error:
        message = committer.poll(0)  # tells why the group's coordinator is not known, not only that it is waited for
        why = message.error() if message is not None else None
        raise _not_taken(group, why or error.args[0], acls) from error
    for answer in answers or ():
        if answer.error is not None:
            raise _not_taken(group, answer.error, acls)


def _not_taken(group: str, error: KafkaError, acls: Acls) -> SourceError:
    is_refused = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    return SourceError(
        f"Kafka does not take the offsets of the consumer group {group!r}: {error.str()}",
        fix=acls.grant(NEEDED_ON_GROUP, "group", group) if is_refused else "let nobody consume in that group",
    )
