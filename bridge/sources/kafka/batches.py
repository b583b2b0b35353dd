"""The micro-batches of Kafka topics, which are read where they are decoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from bridge.model import PartitionId
from bridge.protocols.batch_decode import Messages
from bridge.sources.kafka.offset_ranges import OffsetRange, shares, split_ranges
from bridge.sources.kafka.range_reader import process_reader
from bridge.sources.source import Read

Properties = tuple[tuple[str, str], ...]
"""Properties of a Kafka client, sorted."""


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
        return sum(wanted.size for wanted in self.ranges)

    @property
    def starts(self) -> dict[PartitionId, int]:
        """The first offset of each range."""
        return {(wanted.topic, wanted.partition): wanted.start for wanted in self.ranges}

    @property
    def ends(self) -> dict[PartitionId, int]:
        """The end (exclusive) of each range."""
        return {(wanted.topic, wanted.partition): wanted.end for wanted in self.ranges}

    @property
    def is_divisible(self) -> bool:
        """Whether it holds more than one message."""
        return self.messages > 1

    def split(self, size: int) -> tuple[KafkaBatch, KafkaBatch | None]:
        """Cuts the range of each partition in the same proportion, so that boundaries of all partitions arrive
        together.  When `size` is less than the number of partitions, the first part reads only some of them."""
        wanted, others = self.ranges[:size], self.ranges[size:]
        first, rest = split_ranges(wanted, max(1, -(-sum(one.size for one in wanted) // size)))
        rest = [*others, *rest]
        return replace(self, ranges=first), replace(self, ranges=rest) if rest else None

    def reads(self, count: int) -> list[Read]:
        """Divides it among `count` tasks, whatever the number of partitions."""
        return [partial(_messages, self.properties, share) for share in shares(self.ranges, count)]


def _messages(properties: Properties, ranges: list[OffsetRange]) -> Iterator[Messages]:
    return process_reader(properties).read(ranges)
