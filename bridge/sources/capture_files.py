"""Capture files as a source."""

from __future__ import annotations

import base64
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import orjson
import pyarrow as pa
from pyspark import RDD
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from bridge.errors import UsageError
from bridge.events import Position
from bridge.model import NO_ENDS, PartitionId, Positions
from bridge.protocols.batch_decode import EventDecoder, Messages, pack_each, unpacked
from bridge.sources.message_chunks import joined_chunks, latest_ms
from bridge.sources.source import (
    Export,
    Extent,
    Guard,
    KeyAndValue,
    Message,
    MicroBatch,
    Pace,
    Pacing,
    Session,
    Stamped,
    Taken,
    TopicNow,
    within_sample_bytes,
)
from bridge.spark.event_transfer import transfer_folder
from bridge.spark.kept_rows.keeping import export_kept, keep

DEFAULT_CAPTURE_TOPIC = "capture"
_CAPTURE_SCHEMA = "topic string, partition int, offset long, key string, value string, timestamp string, broken string"
_FIELDS = ("topic", "partition", "offset", "key", "value", "timestamp")
_T = TypeVar("_T")
_SHOWN = 200
"""So many characters of a line that is no message are shown."""
_BROKEN = ("columnNameOfCorruptRecord", "broken")


class CaptureSource:
    """Reads capture files, one file or a folder of `*.jsonl`, as one micro-batch.

    When several messages have the same topic, partition and offset, one of them is read.
    """

    is_kafka = False

    def __init__(self, path: str) -> None:
        self._path, self.place = Path(path), str(path)
        self._messages = 0
        if not self._path.exists():
            raise UsageError(f"there is no capture file {path}", fix="check --input")
        if not self._paths():
            raise UsageError(f"the folder {path} holds no *.jsonl file", fix="check --input")
        for file in self._paths():
            _require_file(file)
        for name in (file.name for file in self._paths()):
            if name[0] in "_." or ":" in str(self._path.absolute() / name):
                raise UsageError(
                    f"Spark cannot read the capture file {name}: its name begins with _ or ., or its path has a colon",
                    fix="rename or move it",
                )

    def __str__(self) -> str:
        return f"capture files {self._path}"

    def extents(self, spark: Session) -> dict[PartitionId, Extent]:
        """Looks up every partition in the files, and its offsets; UsageError for a line that cannot be read."""
        lines = spark().read.schema(_CAPTURE_SCHEMA).option(*_BROKEN).json(self._files())
        wrong = F.coalesce("broken", *(_if_not_base64(name) for name in ("key", "value"))).alias("wrong")
        found = (
            lines.select(_topic(), "partition", "offset", wrong)
            .groupBy("topic", "partition")
            .agg(F.min("offset"), F.max("offset"), F.count("*"), F.count("offset"), F.max("wrong"))
        )
        extents: dict[PartitionId, Extent] = {}
        for topic, partition, low, high, rows, offsets, broken in found.collect():
            if partition is None or rows != offsets or broken:
                raise self._not_a_message((broken or "partition or offset is missing")[:_SHOWN])
            if min(partition, low) < 0:
                raise self._not_below_zero(partition, low)
            extents[topic, partition] = Extent(low, high + 1)
            self._messages += rows
        return extents

    def ends(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, int]:  # noqa: ARG002
        """Returns nothing, since there is no Kafka."""
        return {}

    def since(self, partitions: Iterable[PartitionId], ms: int) -> dict[PartitionId, int]:  # noqa: ARG002
        """Returns the beginnings: the files are read as a whole."""
        return dict.fromkeys(partitions, 0)

    def stamped(self, starts: Mapping[PartitionId, int], count: int) -> list[Stamped]:  # noqa: ARG002
        """Returns no messages: nothing is found by their timestamps."""
        return []

    def commit(self, group: str, offsets: Mapping[PartitionId, int]) -> None:
        """Does nothing, since there is no Kafka."""

    def topics(self) -> dict[str, TopicNow]:
        """Returns no topics, since there is no Kafka."""
        return {}

    def compacted(self) -> list[str]:
        """Returns no topics, since there is no Kafka."""
        return []

    def stream(self, spark: Session, starts: Positions, guard: Guard, pacing: Pacing) -> CaptureStream:  # noqa: ARG002
        """Makes a stream that reads all files as one micro-batch, so that no boundary is read before the changes below
        it."""
        return CaptureStream(self, starts)

    def streamed(self, spark: SparkSession, starts: Positions) -> DataFrame:
        """Returns the lines from `starts` on, as a stream."""
        lines = self._select(spark.readStream.schema(_CAPTURE_SCHEMA).option(*_BROKEN).json(self._files()))
        if not starts:
            return lines.select(*_FIELDS)
        lows = F.create_map(
            *(F.lit(x) for where, start in starts.items() for x in (f"{where[0]}/{where[1]}", start.offset))
        )
        low = lows[F.concat_ws("/", "topic", F.col("partition").cast("string"))]
        return lines.where(F.col("offset") >= low).select(*_FIELDS)

    def batch_size(self, messages_per_batch: int) -> int:  # noqa: ARG002
        """Returns the number of all messages: there is only one micro-batch."""
        return self._messages

    def batch_bytes(self, most_bytes: int) -> int:  # noqa: ARG002
        """Estimates the bytes of all events by those of the files: base64 makes messages larger, and events repeat the
        names of columns."""
        return sum(path.stat().st_size for path in self._paths())

    def everything(self, spark: SparkSession, extents: Mapping[PartitionId, Extent]) -> MicroBatch:  # noqa: ARG002
        """Makes one micro-batch of all lines, without copies of a message."""
        lines = self._select(spark.read.schema(_CAPTURE_SCHEMA).option(*_BROKEN).json(self._files()))
        return CaptureBatch(lines.select(*_FIELDS).dropDuplicates(["topic", "partition", "offset"]))

    def sample(self, count: int) -> list[KeyAndValue]:
        """Reads the messages of the first lines of the files."""
        return list(
            within_sample_bytes((message.key, message.value) for message in islice(self.messages(None, None), count))
        )

    def heads(self, count: int) -> Iterator[tuple[PartitionId, Iterable[KeyAndValue]]]:
        """Reads all files, and returns the first messages of each partition."""
        heads: dict[PartitionId, list[KeyAndValue]] = {}
        for (topic, partition, _), key, value in self.messages(None, None):
            if len(head := heads.setdefault((topic, partition), [])) < count:
                head.append((key, value))
        return iter(heads.items())

    def tails(self, count: int) -> Iterator[tuple[PartitionId, Iterable[KeyAndValue]]]:
        """Reads all files, and returns the last messages of each partition."""
        tails: dict[PartitionId, deque[KeyAndValue]] = {}
        for (topic, partition, _), key, value in self.messages(None, None):
            tails.setdefault((topic, partition), deque(maxlen=count)).append((key, value))
        return iter(tails.items())

    def messages(self, partition: int | None, offset: int | None) -> Iterator[Message]:
        """Reads the lines of the files, in the order in which they stand."""
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
            message = Message(position, _decode_base64(fields.get("key")), _decode_base64(fields.get("value")))
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise self._not_a_message(line.decode(errors="replace").strip()[:_SHOWN]) from error
        if min(position.partition, position.offset) < 0:
            raise self._not_below_zero(position.partition, position.offset)
        return message

    def _not_below_zero(self, partition: int, offset: int) -> UsageError:
        return self._not_a_message(f"partition {partition} or offset {offset} is below 0")

    def _not_a_message(self, what: str) -> UsageError:
        return UsageError(
            f"a line of {self._path} is not a captured message: {what}",
            fix='each line is {"partition":0,"offset":12,"key":"<base64>"|null,"value":"<base64>"|null}',
        )

    def _paths(self) -> list[Path]:
        return sorted(self._path.glob("*.jsonl")) if self._path.is_dir() else [self._path]

    def _files(self) -> str:
        """Returns the files as a glob: Spark's file stream accepts folders and globs, but not the name of one file."""
        escaped = re.sub(r"([\\*?{}\[\]])", r"\\\1", str(self._path.absolute()))
        return f"{escaped}/*.jsonl" if self._path.is_dir() else f"{escaped[:-1]}[{escaped[-1]}]"

    def _select(self, lines: DataFrame) -> DataFrame:
        return lines.select(
            _topic(),
            "partition",
            "offset",
            F.unbase64("key").alias("key"),
            F.unbase64("value").alias("value"),
            F.expr("coalesce(try_cast(timestamp AS bigint), 0)").alias("timestamp"),
        )


def _require_file(path: Path) -> None:
    """Raises UsageError for what cannot be read, or is no file: lines are read more than once, which a pipe cannot."""
    why = "" if path.is_file() else "it is no file"
    try:
        if not why:
            path.open("rb").close()
    except OSError as error:
        why = error.strerror or str(error)
    if why:
        raise UsageError(f"the capture file {path} cannot be read: {why}", fix="check --input")


class CaptureStream:
    """The lines of all capture files."""

    trigger: ClassVar[Mapping[str, Any]] = {"availableNow": True}

    def __init__(self, source: CaptureSource, starts: Positions) -> None:
        self._source, self._starts = source, starts
        self._folder: str | None = None
        self._pace: Pace | None = None

    @contextmanager
    def frame(self, spark: SparkSession, folder: str, pace: Pace) -> Iterator[DataFrame]:
        """Gives the lines from the beginning of the stream on."""
        self._folder, self._pace = transfer_folder(spark, folder), pace
        yield self._source.streamed(spark, self._starts)

    def taken(self, batch: DataFrame) -> Taken:
        """Decodes the lines, without copies of a message (topic, partition and offset)."""
        assert self._pace is not None
        lines = CaptureBatch(batch.dropDuplicates(["topic", "partition", "offset"]), self._folder)
        if self._pace.stays(None):
            exported = lines.decoded(self._pace.decode, partial(export_kept, folder=self._folder))
            return Taken(lines, kept=keep(exported, self._folder))
        return Taken(lines, lines.collected(self._pace.decode, self._pace.most_bytes))


@dataclass(frozen=True)
class CaptureBatch:
    """Lines of capture files.

    folder: the folder in which executors on this machine leave files for the driver; None elsewhere.
    """

    lines: DataFrame
    folder: str | None = None
    messages: None = None
    is_cut: ClassVar[bool] = False

    @property
    def starts(self) -> Mapping[PartitionId, int]:
        """Returns no offsets: they are only known after reading."""
        return NO_ENDS

    @property
    def ends(self) -> Mapping[PartitionId, int]:
        """Returns no offsets: they are only known after reading."""
        return NO_ENDS

    def split(self, size: int) -> tuple[CaptureBatch, None]:  # noqa: ARG002
        """Returns the whole batch: no boundary may be read before the changes below it."""
        return self, None

    def read(self) -> Iterator[Messages]:
        """Collects the messages in this process."""
        return _messages(self.lines.collect())

    def collected(self, decode: EventDecoder, most_bytes: float) -> pa.Table:  # noqa: ARG002
        """Decodes on the executors, in Spark's partitions of the files, and collects the events.  `most_bytes` is not
        used, since the batch cannot be divided."""
        return unpacked(self.decoded(decode, pack_each).collect())

    def decoded(self, decode: EventDecoder, export: Export[_T]) -> RDD[_T]:
        """Reads and decodes in Spark's partitions of the files."""
        return self.lines.rdd.mapPartitions(lambda rows: export(decode(_messages(rows))))


def _messages(rows: Iterable[tuple[str, int, int, bytearray | None, bytearray | None, int]]) -> Iterator[Messages]:
    """Reads messages from the rows of a stream's DataFrame."""
    return joined_chunks(
        Messages([topic], [partition], [offset], [_bytes(key)], [_bytes(value)], [latest_ms(timestamp)])
        for topic, partition, offset, key, value, timestamp in rows
    )


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def _decode_base64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode("".join(text.split()), validate=True)


def _topic() -> Column:
    return F.coalesce("topic", F.lit(DEFAULT_CAPTURE_TOPIC)).alias("topic")


def _if_not_base64(name: str) -> Column:
    """Returns a column's text where it is not base64; `unbase64` would leave out what it does not know, in silence."""
    return F.when(F.col(name).isNotNull() & F.try_to_binary(name, F.lit("base64")).isNull(), F.col(name))
