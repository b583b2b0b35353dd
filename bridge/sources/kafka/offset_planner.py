"""Plans which offsets the micro-batches of a stream of Kafka topics hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Final

from bridge.ends import Abandoned
from bridge.errors import SourceError
from bridge.model import PartitionId
from bridge.protocols.batch_decode import Messages
from bridge.sources.kafka.client import OffsetRange, shares
from bridge.sources.kafka.range_reader import process_reader
from bridge.sources.kafka.topic_guard import ask_kafka
from bridge.sources.source import READING, Guard, Read, Wait

Properties = tuple[tuple[str, str], ...]
"""Properties of a Kafka client, sorted."""
_LOOK_SECONDS: Final = 1.0
"""How often the planner looks for partitions that were added."""
_LEAST_PACE: Final = 0.01
"""The least seconds between two plans: Kafka must not be asked without a pause."""
_WHILE_THEY_COME: Final = 0.7
"""While messages come, the planner looks for the next ones after this part of the pace.  With 0.3 of it, micro-batches
followed each other without a pause, ten a second: 0.68 of a core and a median latency of 0.28 s instead of 0.55 and
0.29 s (measured, 200 transactions a second).  Half of it meets boundaries each 200 ms always at the same distance."""
_BEHIND_SECONDS: Final = 15.0
"""A partition may end before what was read for so long: a leader that was just elected may not know its end yet."""

Ends = Callable[[Iterable[PartitionId]], Mapping[PartitionId, int]]
"""Asks Kafka where partitions end now; raises UnansweredError when it does not answer."""


@dataclass(frozen=True)
class KafkaBatch:
    """The messages of some offset ranges.

    properties: of the Kafka client that reads them.
    is_cut: see MicroBatch.
    """

    ranges: list[OffsetRange]
    properties: Properties
    is_cut: bool = False

    @property
    def messages(self) -> int:
        """The most messages that the ranges can hold."""
        return sum(part.size for part in self.ranges)

    @property
    def starts(self) -> dict[PartitionId, int]:
        """The first offset of each range."""
        return {(part.topic, part.partition): part.start for part in self.ranges}

    @property
    def ends(self) -> dict[PartitionId, int]:
        """The end (exclusive) of each range."""
        return {(part.topic, part.partition): part.end for part in self.ranges}

    @property
    def is_divisible(self) -> bool:
        """Whether it holds more than one message."""
        return self.messages > 1

    def split(self, size: int) -> tuple[KafkaBatch, KafkaBatch | None]:
        """Cuts the range of each partition in the same proportion, so that boundaries of all partitions arrive
        together.  When `size` is less than the number of partitions, the first part reads only some of them."""
        head = replace(self, ranges=self.ranges[:size])
        first, _ = planned(head.starts, head.ends, size)
        ends = {part[:2]: part.end for part in first}
        remaining = [part._replace(start=ends.get(part[:2], part.start)) for part in self.ranges]
        rest = [part for part in remaining if part.size]
        return replace(self, ranges=first), replace(self, ranges=rest) if rest else None

    def reads(self, count: int) -> list[Read]:
        """Divides it among `count` tasks, whatever the number of partitions."""
        return [partial(_messages, self.properties, share) for share in shares(self.ranges, count)]


def _messages(properties: Properties, ranges: list[OffsetRange]) -> Iterator[Messages]:
    return process_reader(properties).read(ranges)


class OffsetPlanner:
    """Plans the micro-batches of a stream, one after the other, without a gap.

    ends_of: asks where partitions end.
    guard: knows the partitions that there are, and waits for a Kafka that is away.
    starts: where the stream begins.  A partition that is added later begins at 0: if its first messages are gone
        already, reading them has to fail.
    limit: about the most messages of a micro-batch.
    pace: the seconds between two looks for new messages, of which the last found none; less while they come.
        There is no pause while there are more than a micro-batch may hold.
    properties: of the Kafka client that reads.
    once: the stream ends where the partitions end when the first micro-batch is planned.
    """

    def __init__(
        self,
        ends_of: Ends,
        guard: Guard,
        starts: Mapping[PartitionId, int],
        limit: int,
        pace: float,
        properties: Properties = (),
        *,
        once: bool,
    ) -> None:
        self._ends_of, self._guard, self._next = ends_of, guard, dict(starts)
        self._limit, self._pace, self._once = limit, max(_LEAST_PACE / _WHILE_THEY_COME, pace), once
        self._properties = properties
        self._last: Mapping[PartitionId, int] | None = None
        self._ends_seen: Mapping[PartitionId, int] = {}
        self._plan_at = self._look_at = time.monotonic()
        self._behind_since: float | None = None

    @property
    def ends(self) -> Mapping[PartitionId, int]:
        """Where the partitions ended when they were last looked at."""
        return self._ends_seen

    def next(self, wait: Wait, most: Callable[[], int]) -> KafkaBatch | None:
        """Waits until there are messages, and plans the next micro-batch.

        wait: see Wait.  most: tells about the most messages of this one, if that is less than the limit.
        Returns None when the stream has come to its end, or when `wait` says that nobody waits.  Raises SourceError
        when a topic was deleted or created again, or has lost messages that were read; UnansweredError when Kafka was
        away for too long.
        """
        while not wait(max(0.0, self._plan_at - time.monotonic())):
            looked_at = time.monotonic()
            self._plan_at = looked_at + self._pace
            try:
                ends = self._ends(lambda: wait(0.0))
            except Abandoned:
                return None
            self._ends_seen = ends
            ranges, is_cut = planned(self._next, ends, min(most(), self._limit))
            batch = KafkaBatch(ranges, self._properties, is_cut)
            self._next.update(batch.ends)
            if ranges:
                self._plan_at = looked_at + (_LEAST_PACE if is_cut else self._pace * _WHILE_THEY_COME)
                return batch
            if self._last is not None:
                return None
        return None

    def _ends(self, abandoned: Callable[[], bool]) -> Mapping[PartitionId, int]:
        """Returns where the partitions end, for this plan; none when `abandoned` said so."""
        if self._last is not None:
            return self._last
        if time.monotonic() >= self._look_at:
            for partition in self._guard.partitions(abandoned) or ():  # some may have been added
                self._next.setdefault(partition, 0)
            self._look_at = time.monotonic() + _LOOK_SECONDS
        failures = count()

        def ask() -> Mapping[PartitionId, int]:
            if next(failures):
                self._guard.partitions(abandoned)  # a topic that was deleted has an error of its own
            return self._ends_of(self._next)

        ends = ask_kafka(self._guard.end, READING, ask, abandoned)
        self._check(ends, abandoned)
        if self._once and self._behind_since is None:
            self._last = ends
        return ends

    def _check(self, ends: Mapping[PartitionId, int], abandoned: Callable[[], bool]) -> None:
        """Raises SourceError when a partition ends before what was read of it, and does so for 15 s."""
        behind = [where for where, end in ends.items() if end < self._next[where]]
        if not behind:
            self._behind_since = None
            return
        self._guard.partitions(abandoned)  # a topic that was created again has an error of its own
        self._behind_since = self._behind_since or time.monotonic()
        if time.monotonic() - self._behind_since > _BEHIND_SECONDS:
            raise _lost_error(behind[0], self._next[behind[0]], ends[behind[0]])


def planned(
    starts: Mapping[PartitionId, int], ends: Mapping[PartitionId, int], limit: int
) -> tuple[list[OffsetRange], bool]:
    """Plans what lies between `starts` and `ends`: gives ranges, none of them empty, and whether they are cut.  If they
    hold more than `limit` messages, each is cut in the same proportion, so that the boundaries of all partitions arrive
    together; none is cut to nothing, so there may be as many messages as partitions though `limit` is less."""
    whole = [OffsetRange(*where, starts[where], end) for where, end in sorted(ends.items())]
    ranges = [part for part in whole if part.size]
    total = sum(part.size for part in ranges)
    if total > limit:
        room, rest = max(0, limit - len(ranges)), max(1, total - len(ranges))
        ranges = [part._replace(end=part.start + 1 + (part.size - 1) * room // rest) for part in ranges]
    return ranges, sum(part.size for part in ranges) < total


def _lost_error(where: PartitionId, read: int, end: int) -> SourceError:
    topic, partition = where
    return SourceError(
        f"the partition ends at offset {end}, but was read up to offset {read} before",
        where=f"{topic}/{partition}",
        fix="Kafka has lost messages, as after an unclean leader election: `bridge verify --against upstream`; if it"
        " differs, copy the upstream's tables to the target, `bridge reset`, and start with --from the moment of the"
        " copy",
    )
