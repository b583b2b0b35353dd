"""Whose messages the target's positions speak of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from bridge.ends import End
from bridge.errors import SourceError, UnansweredError
from bridge.model import PartitionStart
from bridge.mysql.state.progress import Progress
from bridge.sources.capture_files import CaptureSource
from bridge.sources.kafka.topic_guard import TopicGuard, topics_to_keep
from bridge.sources.source import TopicNow

READ = PartitionStart(5, 0, 5)
BY_PARTITION = PartitionStart(5, 0, 5, 1)


def progress(topics: Mapping[str, str], *read: str, start: PartitionStart = READ) -> Progress:
    return Progress("bridge", 1, 9, 0, {(topic, 0): start for topic in read}, (), topics=topics)


@pytest.mark.parametrize(
    ("known", "now", "kept"),
    [
        (progress({}), {"a": "1"}, {"a": "1"}),
        (progress({"a": "1"}, "a"), {"a": "1", "b": "2"}, {"a": "1", "b": "2"}),  # one more topic
        (progress({"a": "1", "b": "2"}, "a", "b"), {"a": "1"}, {"a": "1", "b": "2"}),  # one less, which may come back
        (progress({}, "a"), {"a": "1"}, {"a": "1"}),  # read by an earlier version of the bridge
        (progress({"a": "1"}), {"a": "2"}, {"a": "2"}),  # created again before anything of it was read
        (progress({"a": "1"}, "a"), {}, {"a": "1"}),  # a broker that gives no ids
    ],
)
def test_what_is_kept(known: Progress, now: dict[str, str], kept: dict[str, str]) -> None:
    """The ids of all topics that positions speak of, and of those to be read."""
    assert topics_to_keep(known, now) == kept


@pytest.mark.parametrize("start", [READ, BY_PARTITION])
def test_created_again(start: PartitionStart) -> None:
    """Refused; where applied_ts only counts, no commit ts is recommended to begin at."""
    with pytest.raises(SourceError, match="topic a, whose id was 1 and is now 2") as refused:
        topics_to_keep(progress({"a": "1"}, "a", start=start), {"a": "2"})
    assert ("start with --from that commit ts" in refused.value.fix) == (start is READ)
    assert "bridge reset" in refused.value.fix


class Answers(CaptureSource):
    """A source whose ids are told one after the other."""

    def __init__(self, *answers: str | Exception) -> None:
        self._answers: Iterator[str | Exception] = iter(answers)

    def topics(self) -> dict[str, TopicNow]:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return {"a": TopicNow(answer, 2)}


SILENT = UnansweredError("no answer")


def guard(answers: Answers, ids: Mapping[str, str], seconds: float = 60) -> TopicGuard:
    return TopicGuard(answers, End("source", "kafka:9092", retry_seconds=seconds), ids, by_partition=False)


def test_a_silent_kafka_is_waited_for() -> None:
    """Until it answers, the bridge is to stop, or it was away for as long as it may be."""
    waiting = guard(Answers(SILENT, SILENT, "1"), {"a": "1"})
    assert waiting.partitions(lambda: False) == {("a", 0), ("a", 1)}
    assert waiting.end.retries == 2
    assert waiting.end.waiting_for == ""
    given_up = guard(Answers(SILENT), {"a": "1"})
    assert given_up.partitions(lambda: True) is None
    assert given_up.end.waiting_for == "source kafka:9092 does not answer for 0 s"
    with pytest.raises(UnansweredError):
        guard(Answers(*[SILENT] * 1000), {"a": "1"}, 0.001).partitions(lambda: False)


def test_a_topic_without_id() -> None:
    """Of a broker that gives none: nothing tells whether it was created again, its partitions are told all the same."""
    assert guard(Answers(""), {}).partitions(lambda: False) == {("a", 0), ("a", 1)}
