"""The data source `bridge` of Spark: decoded change events of any supported protocol as rows, for other Spark jobs.

It reads and decodes in Spark's tasks.  Its offsets are Kafka's, so Spark's progress and listeners show what is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bridge.config import RegistrySection
from bridge.errors import UsageError
from bridge.events import SEP, Kind
from bridge.protocols import DecodeOptions, Decoder, in_json, make_decoder, recognise, require_protocol
from bridge.protocols.batch_decode import Messages, decode_messages
from bridge.protocols.values.untyped import split_forms
from bridge.registry.client import SchemaRegistry
from bridge.rows.grouping import distinct
from bridge.secret_settings import refuse_secrets, resolve
from bridge.sources.capture_files import CaptureSource
from bridge.sources.kafka.offset_planner import planned
from bridge.sources.kafka.offset_ranges import OffsetRange
from bridge.sources.kafka.range_reader import process_reader
from bridge.sources.kafka.source import KafkaSource
from bridge.sources.message_lots import joined_lots, latest_ms
from bridge.sources.source import Message
from bridge.spark.source.plans import Offsets, flat, nested

EVENT_ROWS: Final = (
    "topic string, partition int, offset long, index int, kind string, commit_ts long, schema string, table string,"
    " before map<string,string>, after map<string,string>, text string, by_time boolean"
)
"""The columns, as Spark writes them.

topic, partition, offset, index: the place of the event: of its message in Kafka, and in the message.
kind: insert, update, delete, schema-change, boundary or bad.
commit_ts: TSO; where `by_time`, the message tells only the time of the event, and this is its TSO.
schema, table: as the upstream calls them; empty where they do not apply.
before, after: the row's values as texts (binary values as 0x and hexadecimal digits), NULL as null.
text: the statement of a schema-change, the reason why a message is bad.
"""

_KINDS: Final = {
    kind: kind.name.lower().replace("_", "-")
    for kind in (Kind.INSERT, Kind.UPDATE, Kind.DELETE, Kind.SCHEMA_CHANGE, Kind.BOUNDARY, Kind.BAD)
}
_MAP: Final = pa.map_(pa.string(), pa.string())
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ZERO: Final = "0"


def event_rows(events: pa.Table) -> pa.Table:
    """Makes rows of events (EVENT_SCHEMA), in the order of their places.  Events that are none of the kinds that are
    shown are left out."""
    events = events.filter(pc.is_in(events["kind"], pa.array(list(map(int, _KINDS)), pa.int8())))
    events = events.sort_by([(name, "ascending") for name in ("topic", "partition", "offset", "index")])
    events = events.combine_chunks()
    kinds = pa.array([_KINDS.get(Kind(number), "") for number in range(1, 1 + max(Kind))])
    is_row = pc.less_equal(events["kind"], int(Kind.DELETE))
    is_told = pc.is_in(events["kind"], pa.array([int(Kind.SCHEMA_CHANGE), int(Kind.BAD)], pa.int8()))
    named = [(name, events[name]) for name in ("topic", "partition", "offset", "index")]
    named += [("kind", kinds.take(pc.subtract(events["kind"].cast(pa.int64()), 1)))]
    named += [(name, events[name]) for name in ("commit_ts", "schema", "table")]
    named += [(name, _maps(events, name, is_row)) for name in ("before", "after")]
    named += [("text", pc.if_else(is_told, events["text"], None)), ("by_time", events["by_time"])]
    return pa.table(dict(named))


def _maps(events: pa.Table, image: str, is_row: pa.ChunkedArray) -> pa.Array:
    """Gives the images of rows as maps from column names to texts; null where there is none."""
    images = pc.if_else(is_row, events[image], None).combine_chunks()
    has_image = pc.is_valid(images).to_numpy(zero_copy_only=False)
    kinds, kind_of = distinct(events.select(["columns"]).filter(pa.array(has_image)), ("columns",))
    names = [split_forms(columns)[0].split(SEP) for (columns,) in kinds]
    counts = np.zeros(len(images) + 1, np.int32)
    counts[1:][has_image] = np.array([len(one) for one in names], np.int32)[kind_of] if names else 0
    keys = pa.array(names, pa.list_(pa.string())).take(pa.array(kind_of)).flatten()
    values = pc.split_pattern(images.drop_null(), SEP).flatten()
    mask = pa.array(np.append(~has_image, False))
    offsets = pa.array(np.cumsum(counts, dtype=np.int32), mask=mask.to_numpy(zero_copy_only=False))
    return pa.MapArray.from_arrays(offsets, keys, texts(values)).cast(_MAP)


def texts(literals: pa.Array) -> pa.Array:
    """Gives the texts of SQL literals (`protocols.values.literals`): NULL becomes null, quotation marks and escapes go,
    bytes stay hexadecimal, and numbers lose the exponent that only tells that they are floating-point numbers."""
    is_text = pc.starts_with(literals, "'")
    is_binary = pc.starts_with(literals, "x'")
    inner = pc.utf8_slice_codeunits(literals, 1, -1)
    if pc.any(has_escape := pc.and_(is_text, pc.match_substring(inner, "\\"))).as_py():
        unescaped = [_ESCAPE.sub(_unescaped, text) for text in inner.filter(has_escape).to_pylist()]
        inner = pc.replace_with_mask(inner, has_escape, pa.array(unescaped, pa.string()))
    binary = pc.binary_join_element_wise("0x", pc.utf8_slice_codeunits(literals, 2, -1), "")
    number = pc.replace_substring_regex(literals, r"e0$", "")
    plain = pc.if_else(pc.equal(literals, "NULL"), pa.scalar(None, pa.string()), number)
    return pc.if_else(is_text, inner, pc.if_else(is_binary, binary, plain))


def _unescaped(escape: re.Match[str]) -> str:
    return "\0" if escape[1] == _ZERO else escape[1]


NAME: Final = "bridge"
_KAFKA: Final = "source.kafka."
_REGISTRY: Final = "source.registry."
_SAMPLE: Final = 200
_UNLIMITED: Final = 1 << 62
_EARLIEST, _LATEST = "earliest", "latest"


@dataclass(frozen=True)
class SourceOptions:
    """The options of the data source.

    kafka, registry: properties of the Kafka client, and settings of the schema registry; secret ones as references
        (`env:NAME`, `file:PATH`), since Spark shows options in plans, event logs and its UI.
    most: the most messages of a micro-batch, None for no limit.
    """

    bootstrap_servers: str = ""
    topics: tuple[str, ...] = ()
    input: str = ""
    protocol: str = "auto"
    timezone: str | None = None
    starting_offsets: str = _EARLIEST
    most: int | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)
    registry: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, options: Mapping[str, str]) -> SourceOptions:
        """Reads and checks options, as Spark gives them; UsageError for one that is missing, unknown or secret."""
        given = {name: value for name, value in options.items() if not name.startswith((_KAFKA, _REGISTRY))}
        kafka, registry = (
            {name.removeprefix(start): value for name, value in options.items() if name.startswith(start)}
            for start in (_KAFKA, _REGISTRY)
        )
        refuse_secrets({"source": {"kafka": kafka}, "spark": registry}, "an option of the data source")
        given.pop("path", None)
        read = cls(
            given.pop("bootstrap_servers", ""),
            tuple(filter(None, map(str.strip, given.pop("topic", "").split(",")))),
            given.pop("input", ""),
            given.pop("protocol", "auto"),
            given.pop("timezone", None),
            given.pop("starting_offsets", _EARLIEST),
            _count(given.pop("max_messages_per_batch", None)),
            kafka,
            registry,
        )
        if given:
            known = "bootstrap_servers, topic, input, protocol, timezone, starting_offsets, max_messages_per_batch"
            raise UsageError(
                f"the data source has no option {', '.join(given)}",
                fix=f"known are {known}, {_KAFKA}* and {_REGISTRY}*",
            )
        if bool(read.input) == bool(read.bootstrap_servers and read.topics):
            raise UsageError(
                "the data source needs something to read", fix="give bootstrap_servers and topic, or input (files)"
            )
        if read.starting_offsets not in {_EARLIEST, _LATEST}:
            raise UsageError(f"starting_offsets is {read.starting_offsets!r}", fix=f"give {_EARLIEST} or {_LATEST}")
        require_protocol(read.protocol)
        read.schemas()
        return read

    def schemas(self) -> SchemaRegistry | None:
        """Makes the schema registry; None without one.  Raises UsageError for settings that are wrong."""
        given: dict[str, Any] = resolve(dict(self.registry), "source.registry")
        try:
            return RegistrySection(**given).registry()
        except ValidationError as error:
            wrong = ", ".join(_REGISTRY + str(one["loc"][0]) for one in error.errors())
            raise UsageError(f"the data source cannot use {wrong}", fix="see [source.registry]") from None

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the Kafka client, with the secrets that they refer to."""
        return resolve(dict(self.kafka), "source.kafka")

    def source(self) -> KafkaSource | CaptureSource:
        """Makes the source of messages."""
        if self.input:
            return CaptureSource(self.input)
        return KafkaSource(self.bootstrap_servers, self.topics, self.properties)

    def kafka_source(self) -> KafkaSource:
        """Makes the source of messages, which must be Kafka."""
        source = self.source()
        if not isinstance(source, KafkaSource):
            raise UsageError(
                "capture files are read as a whole, not as a stream", fix="use spark.read, or give bootstrap_servers"
            )
        return source

    def protocol_of(self, source: KafkaSource | CaptureSource) -> str:
        """Gives the protocol of the messages; UsageError where a sample does not tell it."""
        if self.protocol != "auto":
            return self.protocol
        return recognise(in_json(source.sample(_SAMPLE), self.schemas()))[0]


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise UsageError(f"max_messages_per_batch is {text!r}", fix="give a number of messages")
    return int(text)


class _Task(InputPartition):
    """What one task reads: a range of offsets, or all capture files (None)."""

    def __init__(self, protocol: str, wanted: OffsetRange | None) -> None:
        super().__init__(wanted)
        self.protocol, self.wanted = protocol, wanted


class EventSource(DataSource):
    """Makes readers of change events."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)  # type: ignore[arg-type]  # Spark only reads them
        self._read = SourceOptions.read(options)

    @classmethod
    def name(cls) -> str:
        """The name for `spark.read.format(...)`."""
        return NAME

    def schema(self) -> str:
        """The columns of an event (`event_rows`)."""
        return EVENT_ROWS

    def reader(self, schema: StructType) -> EventReader:  # noqa: ARG002
        """Makes the reader of everything that is there now."""
        return EventReader(self._read)

    def streamReader(self, schema: StructType) -> EventStreamReader:  # noqa: ARG002, N802
        """Makes the reader of what comes."""
        return EventStreamReader(self._read)


class EventReader(DataSourceReader):
    """Reads everything that the partitions, or the files, hold when the job is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[_Task]:
        """Plans a task for each partition that holds messages; one for all files."""
        source = self._options.source()
        if isinstance(source, CaptureSource):
            return [_Task(self._options.protocol_of(source), None)]
        ranges = [OffsetRange(*where, extent.low, extent.high) for where, extent in source.extents().items()]
        ranges = [wanted for wanted in ranges if wanted.size]
        return [_Task(self._options.protocol_of(source), wanted) for wanted in ranges] if ranges else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads and decodes in a task."""
        return _events(self._options, partition)


class EventStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes, micro-batch by micro-batch; its offsets are Kafka's."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._source: KafkaSource | None = None
        self._protocol = ""
        self._last: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802
        """Gives where a new stream begins: `starting_offsets`."""
        extents = self._kafka().extents()
        is_latest = self._options.starting_offsets == _LATEST
        return nested({where: one.high if is_latest else one.low for where, one in extents.items()})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Gives the limit of a micro-batch: `max_messages_per_batch`."""
        return ReadAllAvailable() if self._options.most is None else ReadMaxRows(self._options.most)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Plans the end of the next micro-batch: where the partitions end now, or as far as the limit lets it go."""
        begins = flat(start)
        ends = flat(self.reportLatestOffset() if self._last is None else self._last)
        begins = {**dict.fromkeys(ends, 0), **begins}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else _UNLIMITED
        reached = {(one.topic, one.partition): one.end for one in planned(begins, ends, most)[0]}
        return nested({**begins, **reached})

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        """Asks Kafka where the partitions end now."""
        topics = self._kafka().topics()
        wheres = [(topic, number) for topic, now in topics.items() for number in range(now.partitions)]
        return nested(self._kafka().ends(wheres))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Ends the stream where the partitions end now."""
        self._last = self.reportLatestOffset()

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[_Task]:
        """Plans a task for each partition that has messages between these offsets."""
        begins = flat(start)
        ranges = [OffsetRange(*where, begins.get(where, 0), at) for where, at in flat(end).items()]
        ranges = [wanted for wanted in ranges if wanted.size]
        if ranges and not self._protocol:
            self._protocol = self._options.protocol_of(self._kafka())
        return [_Task(self._protocol, wanted) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads and decodes in a task."""
        return _events(self._options, partition)

    def _kafka(self) -> KafkaSource:
        if self._source is None:
            self._source = self._options.kafka_source()
        return self._source

    def __getstate__(self) -> dict[str, Any]:
        """Gives what tasks need: clients of Kafka stay where they are."""
        return {**vars(self), "_source": None}


def _events(options: SourceOptions, task: InputPartition) -> Iterator[pa.RecordBatch]:
    """Gives the events of a task, message by message, in the order of the partition.  Where nothing was planned, Spark
    runs one task without a plan."""
    if not isinstance(task, _Task):
        return
    decoder = _decoder(task.protocol, options.timezone, options.schemas())
    for messages in _messages(options, task.wanted):
        yield from event_rows(decode_messages(decoder, messages)).to_batches()


def _messages(options: SourceOptions, wanted: OffsetRange | None) -> Iterable[Messages]:
    if wanted is None:
        return joined_lots(map(_one, CaptureSource(options.input).messages(None, None)))
    properties = {**options.properties, "bootstrap.servers": options.bootstrap_servers}
    return process_reader(tuple(sorted(properties.items()))).read([wanted])


def _one(message: Message) -> Messages:
    (topic, partition, offset), key, value = message
    return Messages([topic], [partition], [offset], [key], [value], [latest_ms(0)])


@cache
def _decoder(protocol: str, timezone: str | None, schemas: SchemaRegistry | None) -> Decoder:
    """Gives this process's decoder: Spark's Python workers outlive their tasks."""
    return make_decoder(protocol, DecodeOptions(timezone, schemas=schemas))
