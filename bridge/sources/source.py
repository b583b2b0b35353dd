"""Sources: streams whose micro-batches can be read here or on the executors.

`kafka` reads Kafka topics, `capture_files` capture files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from bridge.events import Position
from bridge.model import PartitionId, Positions
from bridge.protocols.batch_decode import EventDecoder, Messages


@dataclass(frozen=True)
class Extent:
    """What a partition holds now: offsets [low, high)."""

    low: int
    high: int


class TopicNow(NamedTuple):
    """A topic as Kafka describes it.

    id: Kafka gave it when the topic was created; "" from brokers before 2.8.
    partitions: how many the topic has.
    """

    id: str
    partitions: int


KeyAndValue = tuple[bytes | None, bytes | None]

_LOOKED_AT_BYTES: Final = 16 << 20


def little(messages: Iterable[KeyAndValue]) -> Iterator[KeyAndValue]:
    """The first messages, of about so many bytes as a sample may have; at least one."""
    size = 0
    for key, value in messages:
        yield key, value
        size += len(key or b"") + len(value or b"")
        if size >= _LOOKED_AT_BYTES:
            return


class Message(NamedTuple):
    """A message and its position."""

    position: Position
    key: bytes | None
    value: bytes | None


class MicroBatch(Protocol):
    """The messages of one trigger of the stream."""

    @property
    def messages(self) -> int | None:
        """How many there are at most; None where only reading them tells."""

    @property
    def starts(self) -> Mapping[PartitionId, int]:
        """The offsets from which it reads, where they are known."""

    @property
    def ends(self) -> Mapping[PartitionId, int]:
        """The offsets up to which it reads, where they are known."""

    def split(self, size: int) -> tuple[MicroBatch, MicroBatch | None]:
        """The first part, of about `size` messages at most where that can be told, and the rest if there is any."""

    def read(self) -> Iterator[Messages]:
        """The messages, read here."""

    def collected(self, decode: EventDecoder, most_bytes: float) -> pa.Table:
        """The events (EVENT_SCHEMA), read and decoded on the executors and brought here.  Raises
        `event_transfer.TooLargeError` when they have many more bytes than that and `split` can divide them."""

    def decoded(self, decode: EventDecoder) -> DataFrame:
        """The events (EVENT_SCHEMA), read and decoded on the executors and left there."""

    def packed(self, decode: EventDecoder) -> RDD[bytes]:
        """The events, read and decoded on the executors and left there as Arrow IPC streams."""


MicroBatches = Callable[[DataFrame, int], MicroBatch]
"""Turns what foreachBatch is given, the batch and its id, into a micro-batch."""


class Source(Protocol):
    """A place that messages come from."""

    is_kafka: bool
    planning: Mapping[str, str]
    """Properties of the session in which Spark plans the micro-batches."""

    def extents(self, spark: SparkSession) -> dict[PartitionId, Extent]:
        """Every partition, and what it holds now."""

    def topics(self) -> Mapping[str, TopicNow]:
        """The topics as Kafka describes them now; none where there is no Kafka."""

    def read_stream(self, spark: SparkSession, starts: Positions, messages_per_batch: int) -> DataFrame:
        """A stream that begins at `starts`; `micro_batches` turns its batches into messages."""

    def batch_size(self, messages_per_batch: int) -> int:
        """The most messages that a micro-batch can hold."""

    def batch_bytes(self, most_bytes: int) -> int:
        """About how many bytes the events of a micro-batch have, or of one of its parts where it can be divided."""

    def micro_batches(self, spark: SparkSession, folder: str, starts: Positions) -> MicroBatches:
        """The micro-batches of a query of `read_stream`; folder: the query's checkpoint."""

    def everything(self, spark: SparkSession, extents: Mapping[PartitionId, Extent]) -> MicroBatch:
        """All messages of these offsets, as one micro-batch."""

    def sample(self, count: int) -> list[KeyAndValue]:
        """The first few (key, value) that can be read, to look at; fewer where they are large."""

    def tails(self, count: int) -> Iterator[Iterable[KeyAndValue]]:
        """The last few (key, value) of each partition that holds any, in order; to be read one after the other."""

    def messages(self, partition: int | None, offset: int | None) -> Iterator[Message]:
        """The messages that are there now, partition by partition, to be shown; of one partition only, or from an
        offset on, where they are given."""
