"""Capture files as a source."""

from __future__ import annotations

import base64
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar

import orjson
import pyarrow as pa
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from bridge.errors import UsageError
from bridge.events import EVENT_SCHEMA, Position
from bridge.model import NO_ENDS, PartitionId, Positions
from bridge.protocols.batch_decode import EventDecoder, Messages, messages_of, packed, unpacked
from bridge.sources.source import Extent, KeyAndValue, Message, MicroBatch, MicroBatches, TopicNow, little

DEFAULT_CAPTURE_TOPIC = "capture"
_CAPTURE_SCHEMA = "topic string, partition int, offset long, key string, value string, broken string"
_PACKED_SCHEMA = pa.schema([pa.field("events", pa.binary(), nullable=False)])
_BROKEN = ("columnNameOfCorruptRecord", "broken")


class CaptureSource:
    """Capture files: a file, or a folder of `*.jsonl`, read as one micro-batch; copies of an offset fold."""

    is_kafka = False
    planning: ClassVar[Mapping[str, str]] = {}

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._messages = 0
        if not self._path.exists():
            raise UsageError(f"there is no capture file {path}", fix="check --input")
        if not self._paths():
            raise UsageError(f"the folder {path} holds no *.jsonl", fix="check --input")
        for name in (file.name for file in self._paths()):
            if name[0] in "_." or ":" in str(self._path.absolute() / name):
                raise UsageError(
                    f"Spark cannot read the capture file {name}: its name begins with _ or . or a : stands in its path",
                    fix="give it another name",
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

    def topics(self) -> dict[str, TopicNow]:
        """Files are none of Kafka's."""
        return {}

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

    def batch_bytes(self, most_bytes: int) -> int:  # noqa: ARG002
        """All there are; lines hold them in base64, beside which names of columns come once more."""
        return sum(path.stat().st_size for path in self._paths())

    def micro_batches(self, spark: SparkSession, folder: str, starts: Positions) -> MicroBatches:  # noqa: ARG002
        """Copies of a message fold by (topic, partition, offset)."""
        return lambda batch, _: CaptureBatch(batch.dropDuplicates(["topic", "partition", "offset"]))

    def everything(self, spark: SparkSession, extents: Mapping[PartitionId, Extent]) -> MicroBatch:  # noqa: ARG002
        """All lines; copies fold."""
        lines = self._select(spark.read.schema(_CAPTURE_SCHEMA).option(*_BROKEN).json(self._files()))
        return CaptureBatch(lines.select(*Messages._fields).dropDuplicates(["topic", "partition", "offset"]))

    def sample(self, count: int) -> list[KeyAndValue]:
        """The first lines of the files."""
        return list(little((message.key, message.value) for message in islice(self.messages(None, None), count)))

    def tails(self, count: int) -> Iterator[Iterable[KeyAndValue]]:
        """Of all files together."""
        tails: dict[PartitionId, deque[KeyAndValue]] = {}
        for (topic, partition, _), key, value in self.messages(None, None):
            tails.setdefault((topic, partition), deque(maxlen=count)).append((key, value))
        return iter(tails.values())

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
            fix='each line is {"partition":0,"offset":12,"key":"<base64>"|null,"value":"<base64>"|null}',
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


@dataclass(frozen=True)
class CaptureBatch:
    """Lines of capture files."""

    lines: DataFrame
    messages: None = None

    @property
    def starts(self) -> Mapping[PartitionId, int]:
        """Only the messages tell."""
        return NO_ENDS

    @property
    def ends(self) -> Mapping[PartitionId, int]:
        """The same."""
        return NO_ENDS

    def split(self, size: int) -> tuple[CaptureBatch, None]:  # noqa: ARG002
        """All of it: no boundary may be seen before what it vouches for."""
        return self, None

    def read(self) -> Iterator[Messages]:
        """The messages, brought here."""
        return map(messages_of, self.lines.toArrow().to_batches())

    def collected(self, decode: EventDecoder, most_bytes: float) -> pa.Table:  # noqa: ARG002
        """Decoded as Spark cuts the files; there is no smaller part."""
        return unpacked(value.as_buffer() for value in self._packed(decode).toArrow().column(0))

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
        return self.lines.mapInArrow(
            lambda batches: (part for events in decode(map(messages_of, batches)) for part in events.to_batches()),
            from_arrow_schema(EVENT_SCHEMA),
        )


def _one_value(value: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([value], pa.binary())], schema=_PACKED_SCHEMA)


def _unbase64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
