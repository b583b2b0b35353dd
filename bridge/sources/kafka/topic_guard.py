"""Detects topics that were deleted and created again, and partitions that were added to a topic.

A topic that was created again under the same name is another topic, even if its offsets fit.  Kafka gives each topic an
id when it is created (KIP-516); the bridge stores the ids with its progress in the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource

from bridge.ends import Abandoned, End
from bridge.errors import SourceError, UnansweredError, UsageError
from bridge.model import PartitionId, Positions, goes_by_partition, topic_begins
from bridge.mysql.state.progress import Progress
from bridge.sources.kafka.client import NEEDED, UNKNOWN_TOPIC, Acls, dropped_error, may_not, unknown_topic_error
from bridge.sources.source import Extent, Source, TopicNow
from bridge.tso import tso_time

T = TypeVar("T")
_TIMEOUT_SECONDS: Final = 10.0
COMPACTION_FIX: Final = (
    "set cleanup.policy=delete for the topic, and a retention that is longer than any pause of the bridge; if it was"
    " compacted already, bridge verify --against upstream"
)
_NO_ID: Final = "A" * 22
"""The id that brokers before 2.8 give: 16 zero bytes in base64."""


def read_topics(admin: AdminClient, topics: list[str], acls: Acls) -> dict[str, TopicNow]:
    """Asks Kafka for the ids and partitions of the topics.

    Raises SourceError for a topic that does not exist or may not be described, UnansweredError when Kafka does not
    answer.
    """
    described = _described(admin, topics, acls)
    return {
        topic: TopicNow(str(now.topic_id).replace(_NO_ID, ""), len(now.partitions)) for topic, now in described.items()
    }


def read_compacted(admin: AdminClient, topics: list[str]) -> list[str]:
    """Asks Kafka which topics it compacts: of messages with one key it keeps only the last.  A topic whose settings the
    user may not see, or does not get, counts as one that is not compacted."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
    compacted = []
    for resource, answer in admin.describe_configs(resources, request_timeout=_TIMEOUT_SECONDS).items():
        with suppress(KafkaException):
            if "compact" in answer.result()["cleanup.policy"].value:
                compacted.append(resource.name)
    return sorted(compacted)


def read_operations(admin: AdminClient, topics: list[str], acls: Acls) -> dict[str, frozenset[str]]:
    """Asks Kafka what the user may do with each topic (KIP-430); raises the same errors.

    A broker that knows no such question (before 2.3) gives no operation.
    """
    described = _described(admin, topics, acls, include_authorized_operations=True)
    return {topic: frozenset(one.name for one in now.authorized_operations or ()) for topic, now in described.items()}


def _described(admin: AdminClient, topics: list[str], acls: Acls, **options: bool) -> dict[str, Any]:
    futures = admin.describe_topics(TopicCollection(topics), request_timeout=_TIMEOUT_SECONDS, **options)
    return {topic: _description(admin, topic, future, acls) for topic, future in futures.items()}


def _description(admin: AdminClient, topic: str, answer: Any, acls: Acls) -> Any:
    try:
        return answer.result()
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise may_not(NEEDED, topic, acls) from error
        if code in UNKNOWN_TOPIC:
            raise unknown_topic_error(topic, admin.list_topics(timeout=_TIMEOUT_SECONDS).topics) from error
        kind = SourceError if code == KafkaError.CLUSTER_AUTHORIZATION_FAILED else UnansweredError
        raise kind(
            f"Kafka does not answer: {error.args[0].str()}",
            where=acls.servers,
            fix="check --bootstrap-servers, that Kafka runs and its user may describe the topics, and that"
            " security.protocol in [source.kafka] is the one of that port",
        ) from error


def ids_of(topics: Mapping[str, TopicNow]) -> dict[str, str]:
    """Returns the ids of the topics that have one."""
    return {topic: now.id for topic, now in topics.items() if now.id}


def topics_to_keep(progress: Progress, now: Mapping[str, str]) -> dict[str, str]:
    """Returns the ids to store with the progress: those that it knows, replaced by the present ones.

    now: the present ids.  Raises SourceError when one of the topics of the progress was created again.
    """
    ids = _ids_of_progress(progress)
    _refuse_other_ids(ids, now, by_partition=goes_by_partition(progress.positions))
    return {**ids, **now}


def refuse_comparison(progress: Progress, now: Mapping[str, str]) -> None:
    """Raises SourceError when a topic of the progress was created again: its messages do not tell what the target
    should hold.  now: the present ids."""
    for topic, id_ in _ids_of_progress(progress).items():
        if now.get(topic, id_) != id_:
            raise SourceError(
                "the topic was deleted and created again: its messages are not those that the target was made of",
                where=f"topic {topic}, whose id was {id_} and is now {now[topic]}",
                fix="compare the target with the upstream: --against upstream --upstream URL",
            )


def _ids_of_progress(progress: Progress) -> dict[str, str]:
    topics = {topic for topic, _ in progress.positions}
    return {topic: id_ for topic, id_ in progress.topics.items() if topic in topics}


def begins_of(progress: Progress, topic_starts: Mapping[str, int | None]) -> dict[str, int]:
    """Returns where each topic begins (TSO); everything below it counts as in the target.  0 for a topic that begins
    with the pipeline.

    topic_starts: the topics to be read, each with the beginning that the operator names, None without one.
    Raises UsageError when the pipeline reads other topics, or began them elsewhere.  Without this check, a topic's rows
    below applied_ts would be dropped as late ones, or a topic would silently no longer be read.
    """
    begins, by_partition = topic_begins(progress.positions), goes_by_partition(progress.positions)
    is_new = not begins and progress.applied_ts == progress.start_ts
    for topic, begin in topic_starts.items():
        if topic in begins:
            if begin not in {None, begins[topic]}:
                raise _other_beginning_error(progress, topic, begins[topic], begin)
        elif begin is None and not is_new:
            raise _added_topic_error(
                progress, f"the topic {topic!r} is new to the pipeline", topic, by_partition=by_partition
            )
        elif begin is not None and begin < progress.applied_ts and not by_partition:
            what = f"the topic {topic!r} cannot begin at {begin}, which is below the applied ts"
            raise _added_topic_error(progress, what, topic, by_partition=False)
    if missing := sorted(begins.keys() - topic_starts.keys()):
        raise UsageError(
            f"the pipeline reads the topic {missing[0]!r}, which is not given",
            where=f"pipeline {progress.name}",
            fix=f"give it with --topic as well, or remove it for good: bridge reset --topic {missing[0]}",
        )
    return {topic: begins.get(topic, begin or 0) for topic, begin in topic_starts.items()}


def _added_topic_error(progress: Progress, what: str, topic: str, *, by_partition: bool) -> UsageError:
    applied = progress.applied_ts
    fix = (
        f"say where it begins: --topic {topic}@TSO or @TIME if the target already holds all its changes below that"
        f" moment, --topic {topic}@earliest if it holds none"
        if by_partition
        else f"either copy its tables to the target, as of a moment at or above {applied} ({tso_time(applied)}), and"
        f" give --topic {topic}@MOMENT; or apply its changes below {applied} first: bridge replay --name NEW"
        f" --topic {topic} --until {applied}, then give --topic {topic}@{applied}"
    )
    return UsageError(what, where=f"pipeline {progress.name}, applied ts {applied}", fix=fix)


def _other_beginning_error(progress: Progress, topic: str, begin: int, moment: int | None) -> UsageError:
    began = f"at {begin}" if begin else "with the pipeline"
    return UsageError(
        f"the topic {topic!r} began {began}, not at {moment}",
        where=f"pipeline {progress.name}",
        fix=f"leave @{moment} out, or give the moment where it began; to begin it elsewhere, bridge reset --topic"
        f" {topic} and add it again",
    )


def ask_kafka(end: End, work: str, ask: Callable[[], T], abandoned: Callable[[], bool] = lambda: False) -> T:
    """Asks Kafka until it answers.  Raises the last UnansweredError when it was away for too long, Abandoned when
    nobody waits any more."""
    return end.retried(ask, work, (UnansweredError,), lambda error: last_error(error).trouble, last_error, abandoned)


def last_error(error: BaseException) -> UnansweredError:
    """The last error, when the source was away for too long."""
    assert isinstance(error, UnansweredError)
    return error


@dataclass(frozen=True)
class TopicGuard:
    """Makes sure that messages come from the same topics as at the start of the bridge.

    end: the source as an end, which says how long Kafka may fail to answer.
    ids: the ids of the topics at the start.
    by_partition: whether progress follows the order of the partitions instead of commit ts.
    """

    source: Source
    end: End
    ids: Mapping[str, str]
    by_partition: bool

    def partitions(self, stop_waiting: Callable[[], bool]) -> set[PartitionId] | None:
        """Returns the present partitions of the topics; None when `stop_waiting` returned true before Kafka answered.

        Call it after reading and before applying: a new partition may hold a row below a boundary that was read.
        Raises SourceError when a topic was created again or deleted, or when Kafka does not answer for 60 s.
        """
        try:
            topics = ask_kafka(self.end, "topics", self.source.topics, stop_waiting)
        except Abandoned:
            return None
        _refuse_other_ids(self.ids, ids_of(topics), by_partition=self.by_partition)
        return {(topic, partition) for topic, now in topics.items() for partition in range(now.partitions)}


def _refuse_other_ids(ids: Mapping[str, str], now: Mapping[str, str], *, by_partition: bool) -> None:
    for topic, id_ in ids.items():
        if topic in now and now[topic] != id_:
            raise _created_again_error(topic, id_, now[topic], by_partition=by_partition)


def _created_again_error(topic: str, id_: str, now: str, *, by_partition: bool) -> SourceError:
    copy = "copy the upstream's tables to the target, `bridge reset`, and start with --from the moment of the copy"
    go_on = (
        "if the new topic holds every change at or above the applied ts (`bridge status`; of a schema change still"
        " to run, if there is one, at or above its commit ts), `bridge reset` and start with --from that commit ts;"
        " otherwise "
    )
    return SourceError(
        "the topic was deleted and created again: its messages do not continue what is in the target",
        where=f"topic {topic}, whose id was {id_} and is now {now}",
        fix=copy if by_partition else go_on + copy,
    )


def check_retained(starts: Positions, extents: Mapping[PartitionId, Extent]) -> None:
    """Raises SourceError where a partition no longer holds what has to be read, or does not reach where that begins."""
    for (topic, partition), start in starts.items():
        low, high = extents[topic, partition].low, extents[topic, partition].high
        if start.offset > high:
            raise SourceError(
                f"the partition ends at offset {high}, but the bridge has to read from offset {start.offset}",
                where=f"{topic}/{partition}",
                fix="if a producer's transaction is open there (isolation.level was read_uncommitted), start the"
                " bridge again when it has ended; otherwise the topic was truncated or created again: copy the"
                " upstream's tables to the target, `bridge reset`, and start with --from the moment of the copy",
            )
        if start.offset < low:
            raise dropped_error((topic, partition), start.offset, f", only {low} to {high}")
