"""Sources: Kafka topics and capture files, as streams whose micro-batches can be read here or on the executors."""

from __future__ import annotations

import base64
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import orjson
import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from bridge.errors import SourceError, UsageError
from bridge.events import EVENT_SCHEMA, Position
from bridge.stream.backlog import NO_ENDS
from bridge.stream.decode import EventDecoder, Messages, messages_of, packed
from bridge.stream.frontier import PartitionId
from bridge.stream.ranges import OffsetRange, RangeLog, in_step, process_reader, shares
from bridge.target.progress import Positions

_TIMEOUT_SECONDS = 15
_LOOKED_AT_AT_ONCE = 1000
DEFAULT_CAPTURE_TOPIC = "capture"
_CAPTURE_SCHEMA = "topic string, partition int, offset long, key string, value string, broken string"
_PACKED_SCHEMA = pa.schema([pa.field("events", pa.binary(), nullable=False)])
_BROKEN = ("columnNameOfCorruptRecord", "broken")


@dataclass(frozen=True)
class Extent:
    """What a partition holds now: offsets [low, high)."""

    low: int
    high: int


KeyAndValue = tuple[bytes | None, bytes | None]


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
    def ends(self) -> Mapping[PartitionId, int]:
        """The offsets up to which it reads, where they are known."""

    def parts(self, size: int) -> Sequence[MicroBatch]:
        """The same as several, of at most about `size` messages where that can be told, to be taken in this order."""

    def read(self) -> Iterator[Messages]:
        """The messages, read here."""

    def collected(self, decode: EventDecoder) -> Iterable[bytes]:
        """Their events, read and decoded on the executors and brought here packed."""

    def decoded(self, decode: EventDecoder) -> DataFrame:
        """Their events (EVENT_SCHEMA), read and decoded on the executors and left there."""

    def packed(self, decode: EventDecoder) -> RDD[bytes]:
        """Their events, read and decoded on the executors and left there packed."""


Batches = Iterator[pa.RecordBatch]
MicroBatches = Callable[[DataFrame, int], MicroBatch]
"""What foreachBatch is given, the batch and its id, to its messages."""


class Source(Protocol):
    """A place that messages come from."""

    is_kafka: bool

    def extents(self, spark: SparkSession) -> dict[PartitionId, Extent]:
        """Every partition, and what it holds now."""

    def read_stream(self, spark: SparkSession, starts: Positions, messages_per_batch: int) -> DataFrame:
        """A stream of messages (the fields of `Messages`) from `starts` on."""

    def batch_size(self, messages_per_batch: int) -> int:
        """The most messages that a micro-batch can hold."""

    def micro_batches(self, folder: str, starts: Positions) -> MicroBatches:
        """The micro-batches of a query of `read_stream`; folder: the query's checkpoint."""

    def everything(self, spark: SparkSession, extents: Mapping[PartitionId, Extent]) -> MicroBatch:
        """All messages of these offsets, as one micro-batch."""

    def sample(self, count: int) -> list[KeyAndValue]:
        """The first few (key, value) that can be read, to look at."""

    def tails(self, count: int) -> list[list[KeyAndValue]]:
        """The last few (key, value) of each partition that holds any, in order."""

    def messages(self, partition: int | None, offset: int | None) -> Iterator[Message]:
        """What is there now, partition by partition, of one partition only and from an offset on where they are given;
        to look at."""


class KafkaSource:
    """Kafka topics, read by Spark; metadata comes by confluent-kafka.

    properties: Kafka client properties, without the prefix `kafka.`.
    """

    is_kafka = True

    def __init__(self, bootstrap_servers: str, topics: Sequence[str], properties: Mapping[str, str]) -> None:
        self._servers, self._topics, self._properties = bootstrap_servers, tuple(topics), dict(properties)

    def __str__(self) -> str:
        return f"Kafka {self._servers}, topic {', '.join(self._topics)}"

    def extents(self, spark: SparkSession | None = None) -> dict[PartitionId, Extent]:
        """Every partition of the topics, and its offsets now; SourceError when Kafka does not answer."""
        del spark
        consumer = self._consumer()
        try:
            return {
                (topic, partition): Extent(*self._offsets(consumer, topic, partition))
                for topic in self._topics
                for partition in self._partitions(consumer, topic)
            }
        except KafkaException as error:
            raise self._unreachable(str(error)) from error
        finally:
            consumer.close()

    def read_stream(self, spark: SparkSession, starts: Positions, messages_per_batch: int) -> DataFrame:
        """A stream that begins at the given offsets; Spark fails it when Kafka has lost messages."""
        offsets: dict[str, dict[str, int]] = {}
        for (topic, partition), start in starts.items():
            offsets.setdefault(topic, {})[str(partition)] = start.offset
        reader = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self._servers)
            .option("subscribe", ",".join(self._topics))
            .option("startingOffsets", orjson.dumps(offsets).decode())
            .option("maxOffsetsPerTrigger", str(messages_per_batch))
            .option("failOnDataLoss", "true")
        )
        for name, value in self._properties.items():
            reader = reader.option(f"kafka.{name}", value)
        return reader.load().select(*Messages._fields)

    def batch_size(self, messages_per_batch: int) -> int:
        """As many as are asked for."""
        return messages_per_batch

    def micro_batches(self, folder: str, starts: Positions) -> MicroBatches:
        """Spark plans the ranges of offsets; the messages are read where they are decoded (`ranges`)."""
        log = RangeLog(folder, {partition: start.offset for partition, start in starts.items()})
        properties = self._client_properties()
        return lambda batch, batch_id: KafkaBatch(batch.sparkSession, log.ranges(batch_id), properties)

    def everything(self, spark: SparkSession, extents: Mapping[PartitionId, Extent]) -> MicroBatch:
        """All messages of these offsets."""
        ranges = [OffsetRange(*where, extent.low, extent.high) for where, extent in extents.items()]
        return KafkaBatch(spark, ranges, self._client_properties())

    def sample(self, count: int) -> list[KeyAndValue]:
        """Up to `count` messages from the beginning of the partitions."""
        consumer = self._consumer()
        try:
            ends = [
                TopicPartition(topic, partition, low)
                for (topic, partition), (low, high) in (
                    ((t, p), self._offsets(consumer, t, p)) for t in self._topics for p in self._partitions(consumer, t)
                )
                if high > low
            ]
            if not ends:
                return []
            consumer.assign(ends)
            messages = consumer.consume(count, timeout=5)
            return [(message.key(), message.value()) for message in messages if message.error() is None]
        except KafkaException as error:
            raise self._unreachable(str(error)) from error
        finally:
            consumer.close()

    def tails(self, count: int) -> list[list[KeyAndValue]]:
        """Read by the client that also decodes."""
        reader = process_reader(self._client_properties())
        ranges = [
            OffsetRange(topic, partition, max(extent.low, extent.high - count), extent.high)
            for (topic, partition), extent in self.extents().items()
        ]
        return [
            [pair for some in reader.read([wanted]) for pair in zip(some.key, some.value, strict=True)]
            for wanted in ranges
            if wanted.size
        ]

    def messages(self, partition: int | None, offset: int | None) -> Iterator[Message]:
        """What the partitions hold as seen at the start, of one only and from an offset on where they are given."""
        extents = self.extents()
        if partition is not None and all(number != partition for _, number in extents):
            raise UsageError(f"there is no partition {partition}", mend=f"{self} has {len(extents)}, counted from 0")
        ranges = [
            OffsetRange(topic, number, max(extent.low, offset or 0), extent.high)
            for (topic, number), extent in extents.items()
            if partition in {None, number}
        ]
        for wanted in ranges:
            for start in range(wanted.start, wanted.end, _LOOKED_AT_AT_ONCE):
                part = wanted._replace(start=start, end=min(wanted.end, start + _LOOKED_AT_AT_ONCE))
                for came in process_reader(self._client_properties()).read([part]):
                    for name, number, at, key, value in zip(*came, strict=True):
                        yield Message(Position(name, number, at), key, value)

    def _client_properties(self) -> tuple[tuple[str, str], ...]:
        return (*sorted(self._properties.items()), ("bootstrap.servers", self._servers))

    def _consumer(self) -> Any:
        return Consumer(
            {
                **self._properties,
                "bootstrap.servers": self._servers,
                "group.id": "bridge-metadata",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )

    def _partitions(self, consumer: Any, topic: str) -> list[int]:
        metadata = consumer.list_topics(topic, timeout=_TIMEOUT_SECONDS).topics[topic]
        if metadata.error is not None or not metadata.partitions:
            raise SourceError(
                f"the topic {topic!r} cannot be read: {metadata.error}",
                where=self._servers,
                mend="check --topic and the rights of the Kafka user",
            )
        return sorted(metadata.partitions)

    def _offsets(self, consumer: Any, topic: str, partition: int) -> tuple[int, int]:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_SECONDS)
        return low, high

    def _unreachable(self, words: str) -> SourceError:
        return SourceError(
            f"Kafka does not answer: {words}", where=self._servers, mend="check --bootstrap-servers and that it runs"
        )


@dataclass(frozen=True)
class KafkaBatch:
    """Ranges of offsets.  properties: of the client that reads them."""

    spark: SparkSession
    ranges: list[OffsetRange]
    properties: tuple[tuple[str, str], ...]

    @property
    def messages(self) -> int:
        """How many the ranges may hold."""
        return sum(wanted.size for wanted in self.ranges)

    @property
    def ends(self) -> dict[PartitionId, int]:
        """Of all ranges."""
        return {(wanted.topic, wanted.partition): wanted.end for wanted in self.ranges}

    def parts(self, size: int) -> Sequence[KafkaBatch]:
        """Each partition's range is cut in the same way, so that boundaries come evenly."""
        return [replace(self, ranges=ranges) for ranges in in_step(self.ranges, -(-self.messages // size))]

    def read(self) -> Iterator[Messages]:
        """The messages, read here."""
        return process_reader(self.properties).read(self.ranges)

    def collected(self, decode: EventDecoder) -> Iterable[bytes]:
        """Read and decoded by one task for each core, whatever the number of partitions.

        An RDD hands the values over as they are; through a DataFrame's rows they cost the JVM three times as much.
        """
        return self.packed(decode).collect()

    def packed(self, decode: EventDecoder) -> RDD[bytes]:
        """The same, left on the executors."""
        plan, read = self._plan(), self._reader(decode)
        tasks = self.spark.sparkContext.parallelize(range(len(plan)), max(1, len(plan)))
        return tasks.mapPartitions(lambda numbers: map(packed, read(plan, numbers)))

    def decoded(self, decode: EventDecoder) -> DataFrame:
        """Read and decoded by one task for each core, whatever the number of partitions."""
        plan, read = self._plan(), self._reader(decode)

        def decoded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return read(plan, (number for batch in batches for number in batch.column(0).to_pylist()))

        return self.spark.range(0, len(plan), 1, max(1, len(plan))).mapInArrow(decoded, from_arrow_schema(EVENT_SCHEMA))

    def _plan(self) -> list[list[OffsetRange]]:
        return shares(self.ranges, self.spark.sparkContext.defaultParallelism)

    def _reader(self, decode: EventDecoder) -> Callable[[list[list[OffsetRange]], Iterable[int]], Batches]:
        properties = self.properties

        def read(plan: list[list[OffsetRange]], numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
            for number in numbers:
                yield from decode(process_reader(properties).read(plan[number]))

        return read


@dataclass(frozen=True)
class CaptureBatch:
    """Lines of capture files."""

    lines: DataFrame
    messages: None = None

    @property
    def ends(self) -> Mapping[PartitionId, int]:
        """Only the messages tell."""
        return NO_ENDS

    def parts(self, size: int) -> Sequence[CaptureBatch]:  # noqa: ARG002
        """Itself: no boundary may be seen before what it vouches for."""
        return [self]

    def read(self) -> Iterator[Messages]:
        """The messages, brought here."""
        return map(messages_of, self.lines.toArrow().to_batches())

    def collected(self, decode: EventDecoder) -> Iterable[bytes]:
        """Decoded as Spark cuts the files."""
        return (value.as_buffer() for value in self._packed(decode).toArrow().column(0))

    def packed(self, decode: EventDecoder) -> RDD[bytes]:
        """The same, left on the executors."""
        return self._packed(decode).rdd.map(lambda row: bytes(row[0]))

    def _packed(self, decode: EventDecoder) -> DataFrame:
        return self.lines.mapInArrow(
            lambda batches: map(_one_value, map(packed, decode(map(messages_of, batches)))),
            from_arrow_schema(_PACKED_SCHEMA),
        )

    def decoded(self, decode: EventDecoder) -> DataFrame:
        """Decoded as Spark cuts the files."""
        return self.lines.mapInArrow(lambda batches: decode(map(messages_of, batches)), from_arrow_schema(EVENT_SCHEMA))


def _one_value(value: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([value], pa.binary())], schema=_PACKED_SCHEMA)


class CaptureSource:
    """Capture files: a file, or a folder of `*.jsonl`, read as one micro-batch; copies of an offset fold."""

    is_kafka = False

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._messages = 0
        if not self._path.exists():
            raise UsageError(f"there is no capture file {path}", mend="check --input")
        if not self._paths():
            raise UsageError(f"the folder {path} holds no *.jsonl", mend="check --input")
        for name in (file.name for file in self._paths()):
            if name[0] in "_." or ":" in str(self._path.absolute() / name):
                raise UsageError(
                    f"Spark cannot read the capture file {name}: its name begins with _ or . or a : stands in its path",
                    mend="give it another name",
                )

    def __str__(self) -> str:
        return f"capture files {self._path}"

    def extents(self, spark: SparkSession) -> dict[PartitionId, Extent]:
        """Every partition named in any of the files, and its offsets; UsageError for a line that cannot be read."""
        lines = self._select(spark.read.schema(_CAPTURE_SCHEMA).option(*_BROKEN).json(self._files()))
        found = lines.groupBy("topic", "partition").agg(
            F.min("offset"), F.max("offset"), F.count("*"), F.count("offset"), F.max("broken")
        )
        extents: dict[PartitionId, Extent] = {}
        for topic, partition, low, high, rows, offsets, broken in found.collect():
            if partition is None or rows != offsets or broken:
                raise self._not_a_message(broken or "partition or offset is missing")
            extents[topic, partition] = Extent(low, high + 1)
            self._messages += rows
        return extents

    def read_stream(self, spark: SparkSession, starts: Positions, messages_per_batch: int) -> DataFrame:
        """A stream of all files as one micro-batch, so that no boundary is seen before what it vouches for."""
        del messages_per_batch
        lines = self._select(spark.readStream.schema(_CAPTURE_SCHEMA).option(*_BROKEN).json(self._files()))
        if not starts:
            return lines.select(*Messages._fields)
        lows = F.create_map(
            *(F.lit(x) for where, start in starts.items() for x in (f"{where[0]}/{where[1]}", start.offset))
        )
        low = lows[F.concat_ws("/", "topic", F.col("partition").cast("string"))]
        return lines.where(F.col("offset") >= low).select(*Messages._fields)

    def batch_size(self, messages_per_batch: int) -> int:  # noqa: ARG002
        """All there are."""
        return self._messages

    def micro_batches(self, folder: str, starts: Positions) -> MicroBatches:  # noqa: ARG002
        """Copies of a message fold by (topic, partition, offset)."""
        return lambda batch, _: CaptureBatch(batch.dropDuplicates(["topic", "partition", "offset"]))

    def everything(self, spark: SparkSession, extents: Mapping[PartitionId, Extent]) -> MicroBatch:  # noqa: ARG002
        """All lines; copies fold."""
        lines = self._select(spark.read.schema(_CAPTURE_SCHEMA).option(*_BROKEN).json(self._files()))
        return CaptureBatch(lines.select(*Messages._fields).dropDuplicates(["topic", "partition", "offset"]))

    def sample(self, count: int) -> list[KeyAndValue]:
        """The first lines of the files."""
        return [(message.key, message.value) for message in islice(self.messages(None, None), count)]

    def tails(self, count: int) -> list[list[KeyAndValue]]:
        """Of all files together."""
        tails: dict[PartitionId, deque[KeyAndValue]] = {}
        for (topic, partition, _), key, value in self.messages(None, None):
            tails.setdefault((topic, partition), deque(maxlen=count)).append((key, value))
        return [list(tail) for tail in tails.values()]

    def messages(self, partition: int | None, offset: int | None) -> Iterator[Message]:
        """The lines of the files, of one partition only and from an offset on where they are given."""
        for path in self._paths():
            with path.open("rb") as lines:
                for line in filter(bytes.strip, lines):
                    message = self._message(line)
                    where = message.position
                    if partition in {None, where.partition} and where.offset >= (offset or 0):
                        yield message

    def _message(self, line: bytes) -> Message:
        try:
            fields = orjson.loads(line)
            topic = fields.get("topic") or DEFAULT_CAPTURE_TOPIC
            position = Position(str(topic), int(fields["partition"]), int(fields["offset"]))
            return Message(position, _unbase64(fields.get("key")), _unbase64(fields.get("value")))
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise self._not_a_message(line.decode(errors="replace").strip()[:200]) from error

    def _not_a_message(self, what: str) -> UsageError:
        return UsageError(
            f"a line of {self._path} is not a captured message: {what}",
            mend='each line is {"partition":0,"offset":12,"key":"<base64>"|null,"value":"<base64>"|null}',
        )

    def _paths(self) -> list[Path]:
        return sorted(self._path.glob("*.jsonl")) if self._path.is_dir() else [self._path]

    def _files(self) -> str:
        """A glob: Spark's file stream takes folders and globs, not the name of one file."""
        escaped = re.sub(r"([\\*?{}\[\]])", r"\\\1", str(self._path.absolute()))
        return f"{escaped}/*.jsonl" if self._path.is_dir() else f"{escaped[:-1]}[{escaped[-1]}]"

    def _select(self, lines: DataFrame) -> DataFrame:
        return lines.select(
            F.coalesce("topic", F.lit(DEFAULT_CAPTURE_TOPIC)).alias("topic"),
            "partition",
            "offset",
            F.unbase64("key").alias("key"),
            F.unbase64("value").alias("value"),
            "broken",
        )


def _unbase64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
