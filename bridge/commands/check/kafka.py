"""Checks of the source: that it answers, what its user may do, its partitions and the boundaries in them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bridge.commands.check import Finding, fail, failed, ok, warn
from bridge.errors import SourceError, counted, few
from bridge.events import Boundary, Event
from bridge.model import PartitionId
from bridge.mysql.state.progress import Progress
from bridge.sources.kafka.client import NEEDED, Acls, lacking
from bridge.sources.kafka.topic_guard import COMPACTION_FIX, check_retained, ids_of, topics_to_keep
from bridge.sources.source import TAIL_MESSAGES, Extent, KeyAndValue, within_sample_bytes

HEAD_MESSAGES: Final = 100
"""How many of the first messages of each partition are read."""

Messages = Mapping[PartitionId, Sequence[KeyAndValue]]


@dataclass(frozen=True)
class SourceFacts:
    """The source.

    partitions: how many each topic has; empty for capture files.
    operations: what the user may do with each topic; empty where nobody can tell.
    acls: of the user.
    compacted: the topics that Kafka compacts, as far as it tells.
    ids: of the topics that have one.
    extents: the offsets that each partition holds; empty for capture files.
    heads, tails: the first and the last messages of each partition that holds any.
    now_ms: when they were read, in milliseconds since 1970.
    """

    name: str
    is_kafka: bool
    partitions: Mapping[str, int]
    operations: Mapping[str, frozenset[str]]
    heads: Messages
    tails: Messages
    now_ms: int
    acls: Acls = field(default_factory=Acls)
    compacted: Sequence[str] = ()
    ids: Mapping[str, str] = field(default_factory=dict)
    extents: Mapping[PartitionId, Extent] = field(default_factory=dict)

    @property
    def sample(self) -> list[KeyAndValue]:
        """The first messages of all partitions."""
        return [pair for head in self.heads.values() for pair in head]

    @property
    def empty(self) -> list[PartitionId]:
        """The partitions that hold no message."""
        everywhere = [(topic, number) for topic, count in self.partitions.items() for number in range(count)]
        return [where for where in everywhere if where not in self.heads]


def gather(source: Any) -> SourceFacts:
    """Reads from the source, and from Kafka what its user may do."""
    topics = source.topics()  # finds out whether Kafka answers at all
    operations = source.operations() if source.is_kafka else {}
    readable = not any(map(_lacks, operations.values()))
    heads = source.heads(HEAD_MESSAGES) if readable else ()
    tails = source.tails(TAIL_MESSAGES) if readable else ()
    return SourceFacts(
        str(source),
        source.is_kafka,
        {topic: now.partitions for topic, now in topics.items()} if source.is_kafka else {},
        operations,
        {where: tuple(within_sample_bytes(messages)) for where, messages in heads},
        {where: tuple(messages) for where, messages in tails},
        round(time.time() * 1000),
        source.acls if source.is_kafka else Acls(),
        source.compacted(),
        ids_of(topics),
        source.extents() if source.is_kafka else {},
    )


def judge(facts: SourceFacts) -> Iterator[Finding]:
    """Judges whether the source can be read."""
    if facts.is_kafka:
        yield _judge_rights(facts)
        for topic in facts.compacted:
            what = (
                f"Kafka compacts the topic {topic}: of messages with one key it keeps only the last, so that deletes"
                " and schema changes that the bridge has not read yet are lost in silence"
            )
            yield warn("kafka-compaction", what, COMPACTION_FIX)
    if any(map(_lacks, facts.operations.values())):
        return
    if facts.heads:
        counts = f"{counted(len(facts.sample), 'message')} of {counted(len(facts.heads), 'partition')}"
        yield ok("source", f"{facts.name} can be read: {counts} were sampled")
    else:
        yield warn("source", f"{facts.name} holds no message yet", "check --topic if there should be some")


def judge_topics(facts: SourceFacts, progress: Progress) -> Iterator[Finding]:
    """Judges whether the topics are still those that the pipeline has read, and hold what it has to read."""
    starts = {where: start for where, start in progress.positions.items() if where in facts.extents}
    try:
        topics_to_keep(progress, facts.ids)
        check_retained(starts, facts.extents)
    except SourceError as refusal:
        yield failed("topics", refusal)


def judge_beginning(facts: SourceFacts, begin: int) -> Iterator[Finding]:
    """Judges whether the topics still have their beginning, where a new pipeline would begin there.

    begin: the TSO where it begins, 0 for the earliest.
    """
    truncated = [where for where, extent in facts.extents.items() if extent.low > 0]
    if truncated and not begin:
        yield warn(
            "beginning",
            f"Kafka has removed the first messages of {_named(truncated)}, and the pipeline would begin behind them",
            "where they changed something, copy the upstream's tables first and begin at the copy's moment (--from)",
        )


def _judge_rights(facts: SourceFacts) -> Finding:
    for topic, operations in facts.operations.items():
        if missing := _lacks(operations):
            return fail(
                "kafka-rights",
                f"the Kafka user may not {' and '.join(missing).lower()} the topic {topic}",
                facts.acls.grant(missing, "topic", topic),
            )
    return ok("kafka-rights", f"the Kafka user may read and describe {', '.join(sorted(facts.partitions))}")


def _lacks(operations: Collection[str]) -> list[str]:
    return lacking(operations, NEEDED)


def judge_boundaries(facts: SourceFacts, tails: Mapping[PartitionId, Sequence[Event]]) -> Iterator[Finding]:
    """Judges whether each partition has boundaries.  tails: the decoded events; at least one is a boundary."""
    without = [where for where, events in tails.items() if not any(isinstance(event, Boundary) for event in events)]
    if facts.empty:
        yield fail(
            "boundaries",
            f"no message, so no boundary, is in {_named(facts.empty)}, while other partitions have some: nothing is"
            " applied until one comes there",
            "see whether the sender knows these partitions: a changefeed that is older than they are must be made anew;"
            " where partition-num of its sink-uri is less, name the others in source.unused_partitions",
        )
    if without:
        yield warn(
            "boundaries",
            f"the last {TAIL_MESSAGES} messages of {_named(without)} hold no boundary, and nothing is applied until one"
            " comes",
            "see whether the sender is behind, or writes to some of the partitions only",
        )


def _named(partitions: Sequence[PartitionId]) -> str:
    return few(f"{topic}/{number}" for topic, number in partitions)
