"""Topics as Kafka describes them: those that were made anew, and those that have got partitions.

Deleted and created again under its name a topic is another one, whatever its offsets look like.  Kafka gives each topic
an id when it is created (KIP-516); the ids of the topics that the target's positions speak of are kept with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from bridge.errors import SourceError, UsageError
from bridge.model import PartitionId, goes_by_partition, topic_begins
from bridge.mysql.state.progress import Progress
from bridge.sources.source import Source, TopicNow
from bridge.tso import tso_time

PATIENCE_SECONDS: Final = 60.0
"""How long Kafka may not answer while the bridge runs."""
_TIMEOUT_SECONDS: Final = 10.0
_NO_ID: Final = "A" * 22
"""16 bytes of zero: a broker before 2.8."""

log = structlog.get_logger()


class UnansweredError(SourceError):
    """Kafka did not answer; it may later."""


def read_topics(admin: AdminClient, topics: list[str]) -> dict[str, TopicNow]:
    """The topics as they are now.

    Raises SourceError for a topic that there is not, or that may not be read, UnansweredError when Kafka is silent.
    """
    asked = admin.describe_topics(TopicCollection(topics), request_timeout=_TIMEOUT_SECONDS)
    try:
        described = {topic: future.result() for topic, future in asked.items()}
    except KafkaException as error:
        kind = SourceError if error.args[0].code() in _FINAL else UnansweredError
        raise kind(
            f"Kafka does not describe the topics: {error.args[0].str()}",
            where=", ".join(topics),
            fix="see that the topics are there, that Kafka answers, and that its user may describe them",
        ) from error
    return {
        topic: TopicNow(str(now.topic_id).replace(_NO_ID, ""), len(now.partitions)) for topic, now in described.items()
    }


def ids_of(topics: Mapping[str, TopicNow]) -> dict[str, str]:
    """The ids of the topics, without those of brokers that give none."""
    return {topic: now.id for topic, now in topics.items() if now.id}


_PAUSE_SECONDS: Final = 0.2
_FINAL: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._UNKNOWN_TOPIC,
    }
)


def topics_to_keep(progress: Progress, now: Mapping[str, str]) -> dict[str, str]:
    """The ids to be kept with the progress.  Raises SourceError when a topic that it speaks of was made anew."""
    spoken_of = {topic for topic, _ in progress.positions}
    known = {topic: id_ for topic, id_ in progress.topics.items() if topic in spoken_of}
    _refuse_others(known, now, by_partition=goes_by_partition(progress.positions))
    return {**known, **now}


def begins_of(progress: Progress, given: Mapping[str, int | None]) -> dict[str, int]:
    """Where each topic begins (TSO): everything of it below counts as in the target; 0 for with the pipeline.

    given: the topics that are to be read, with the beginning that the operator names, None without.
    Raises UsageError when the pipeline reads others, or began them elsewhere: silently, a topic's rows below applied_ts
    would be taken for late ones, or a topic would be left out for good.
    """
    known, by_partition = topic_begins(progress.positions), goes_by_partition(progress.positions)
    is_new = not known and progress.applied_ts == progress.start_ts
    for topic, begin in given.items():
        if topic in known:
            if begin not in {None, known[topic]}:
                raise _begun_elsewhere(progress, topic, known[topic], begin)
        elif begin is None and not is_new:
            raise _added(progress, f"the topic {topic!r} is new to the pipeline", topic, by_partition=by_partition)
        elif begin is not None and begin < progress.applied_ts and not by_partition:
            what = f"the topic {topic!r} cannot begin at {begin}, below what is in the target"
            raise _added(progress, what, topic, by_partition=False)
    if missing := sorted(known.keys() - given.keys()):
        raise UsageError(
            f"the pipeline reads the topic {missing[0]!r}, which is not given",
            where=f"pipeline {progress.name}",
            fix=f"give it with --topic as well; or take it out for good: bridge reset --topic {missing[0]}",
        )
    return {topic: known.get(topic, begin or 0) for topic, begin in given.items()}


def _added(progress: Progress, what: str, topic: str, *, by_partition: bool) -> UsageError:
    applied = progress.applied_ts
    ways = (
        f"say where it begins, --topic {topic}@TSO or @TIME, when everything of it below is in the target already; or"
        f" --topic {topic}@earliest when nothing is"
        if by_partition
        else f"say where it begins, --topic {topic}@TSO or @TIME, at or above {applied} ({tso_time(applied)}), where"
        " everything of it below is in the target already: copy its tables as they are at that moment; or apply it up"
        f" to there: bridge replay --name NEW --topic {topic} --until {applied}, then --topic {topic}@{applied}"
    )
    return UsageError(what, where=f"pipeline {progress.name}, applied ts {applied}", fix=ways)


def _begun_elsewhere(progress: Progress, topic: str, known: int, given: int | None) -> UsageError:
    began = f"at {known}" if known else "with the pipeline"
    return UsageError(
        f"the topic {topic!r} began {began}, not at {given}",
        where=f"pipeline {progress.name}",
        fix=f"leave @{given} out, or give what it began with; to begin it elsewhere, bridge reset --topic {topic} and"
        " add it anew",
    )


@dataclass(frozen=True)
class TopicGuard:
    """Sees to it that what was read comes from the topics that were there at the start.

    ids: theirs.  by_partition: progress stands in the order of the partitions.
    """

    source: Source
    ids: Mapping[str, str]
    by_partition: bool

    def partitions(self, given_up: Callable[[], bool]) -> set[PartitionId] | None:
        """The partitions that the topics have now; None when `given_up` said so before Kafka answered.

        To be asked between reading and applying: a row that is earlier than a boundary that was read lies in one of
        them.  Raises SourceError when a topic was made anew, is gone, or Kafka stays silent.
        """
        until, is_said = time.monotonic() + PATIENCE_SECONDS, False
        while True:
            try:
                topics = self.source.topics()
            except UnansweredError as error:
                if given_up():
                    return None
                if time.monotonic() > until:
                    raise
                if not is_said:
                    log.warning("Kafka does not answer; the topics are asked for again", error=error.what)
                is_said = True
                time.sleep(_PAUSE_SECONDS)
            else:
                break
        _refuse_others(self.ids, ids_of(topics), by_partition=self.by_partition)
        return {(topic, partition) for topic, now in topics.items() for partition in range(now.partitions)}


def _refuse_others(known: Mapping[str, str], now: Mapping[str, str], *, by_partition: bool) -> None:
    for topic, id_ in known.items():
        if topic in now and now[topic] != id_:
            raise _made_anew(topic, id_, now[topic], by_partition=by_partition)


def _made_anew(topic: str, known: str, now: str, *, by_partition: bool) -> SourceError:
    copy = "copy the upstream's tables to the target, `bridge reset`, and begin at the copy's moment with --from"
    again = (
        "if the new one holds every change from the target's applied ts on (`bridge status`; from that of a schema"
        " change still to run, if there is one), `bridge reset` and start with --from that commit ts; otherwise "
    )
    return SourceError(
        "the topic was deleted and made anew: what it holds does not follow on what is in the target",
        where=f"{topic}, whose id is {now} and was {known}",
        fix=copy if by_partition else again + copy,
    )
