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

    id: what Kafka gave it when it was made; "" from brokers before 2.8.
    partitions: how many it has.
    """

    id: str
    partitions: int


KeyAndValue = tuple[bytes | None, bytes | None]

_LOOKED_AT_BYTES: Final = 16 << 20


def little(messages: Iterable[KeyAndValue]) -> Iterator[KeyAndValue]:
    """The first of them, of about so many bytes as one may look at; at least one."""
    size = 0
    for key, value in messages:
        yield key, value
        size += len(key or b"") + len(value or b"")
        if size >= _LOOKED_AT_BYTES:
            return


class Message(NamedTuple):
    """A message where it lies."""

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
        """The first of it, about `size` messages at most where that can be told, and the rest if there is any."""

    def read(self) -> Iterator[Messages]:
        """The messages, read here."""

    def collected(self, decode: EventDecoder, most_bytes: float) -> pa.Table:
        """Their events (EVENT_SCHEMA), read and decoded on the executors and brought here; `handing_over.TooLargeError`
        when they have much more bytes than that and `split` can part them."""

    def decoded(self, decode: EventDecoder) -> DataFrame:
        """Their events (EVENT_SCHEMA), read and decoded on the executors and left there."""

    def packed(self, decode: EventDecoder) -> RDD[bytes]:
        """Their events, read and decoded on the executors and left there packed."""


MicroBatches = Callable[[DataFrame, int], MicroBatch]
"""What foreachBatch is given, the batch and its id, to its messages."""


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
        """A stream that begins at `starts`, of which `micro_batches` makes messages."""

    def batch_size(self, messages_per_batch: int) -> int:
        """The most messages that a micro-batch can hold."""

    def batch_bytes(self, most_bytes: int) -> int:
        """About how many bytes of events come of a micro-batch, by parts of at most so many where it can be parted."""

    def micro_batches(self, spark: SparkSession, folder: str, starts: Positions) -> MicroBatches:
        """The micro-batches of a query of `read_stream`; folder: the query's checkpoint."""

    def everything(self, spark: SparkSession, extents: Mapping[PartitionId, Extent]) -> MicroBatch:
        """All messages of these offsets, as one micro-batch."""

    def sample(self, count: int) -> list[KeyAndValue]:
        """The first few (key, value) that can be read, to look at; fewer where they are large."""

    def tails(self, count: int) -> Iterator[Iterable[KeyAndValue]]:
        """The last few (key, value) of each partition that holds any, in order; to be read one after the other."""

    def messages(self, partition: int | None, offset: int | None) -> Iterator[Message]:
        """What is there now, partition by partition, of one partition only and from an offset on where they are given;
        to look at."""
