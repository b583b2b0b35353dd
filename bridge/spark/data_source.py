"""The data source `bridge` of Spark: decoded change events of any supported protocol as rows, for other Spark jobs.

It reads and decodes in Spark's tasks.  Its offsets are Kafka's, so Spark's progress and listeners show what is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bridge.config import Settings, SourceSection
from bridge.errors import SettingsError, UsageError
from bridge.events import EVENT_SCHEMA, SEP, Kind
from bridge.protocols import DecodeOptions, Decoder, make_decoder, recognise
from bridge.protocols.batch_decode import Messages, decode_messages
from bridge.protocols.values.row_image import split_forms
from bridge.registry import SchemaRegistry
from bridge.secret_settings import refuse_secrets, resolve
from bridge.settings.load import Place, problem
from bridge.sources.capture_files import CaptureSource
from bridge.sources.kafka.client import OffsetRange
from bridge.sources.kafka.offset_planner import planned
from bridge.sources.kafka.range_reader import process_reader
from bridge.sources.kafka.source import KafkaSource
from bridge.sources.source import plain_sample
from bridge.spark.chunk_source import Offsets, flat, nested

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
_ROWS: Final = pa.schema(
    [(name, EVENT_SCHEMA.field(name).type) for name in ("topic", "partition", "offset", "index")]
    + [("kind", pa.string())]
    + [(name, EVENT_SCHEMA.field(name).type) for name in ("commit_ts", "schema", "table")]
    + [("before", _MAP), ("after", _MAP)]
    + [(name, EVENT_SCHEMA.field(name).type) for name in ("text", "by_time")]
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


def event_rows(events: pa.Table) -> pa.Table:
    """Makes rows of events (EVENT_SCHEMA), in the order of their places.  Events that are none of the kinds that are
    shown are left out."""
    events = events.filter(pc.is_in(events["kind"], pa.array(list(map(int, _KINDS)), pa.int8())))
    events = events.sort_by([(name, "ascending") for name in ("topic", "partition", "offset", "index")])
    return pa.Table.from_pylist(list(map(_row_of, events.to_pylist())), _ROWS)


def _row_of(event: dict[str, Any]) -> dict[str, Any]:
    kind = Kind(event["kind"])
    columns = event["columns"] if kind <= Kind.DELETE else None
    images = {image: _by_column(columns, event[image]) for image in ("before", "after")}
    text = event["text"] if kind in {Kind.SCHEMA_CHANGE, Kind.BAD} else None
    return {**event, **images, "kind": _KINDS[kind], "text": text}


def _by_column(columns: str | None, image: str | None) -> list[tuple[str, str | None]] | None:
    """Gives the image of a row as texts by column; None where there is none."""
    if columns is None or image is None:
        return None
    return list(zip(split_forms(columns)[0].split(SEP), map(text_of, image.split(SEP)), strict=True))


def text_of(literal: str) -> str | None:
    """Gives the text of an SQL literal (`protocols.values.literals`): NULL becomes None, quotation marks and escapes
    go, bytes stay hexadecimal, and numbers lose the exponent that only tells that they are floating-point numbers."""
    if literal == "NULL":
        return None
    if literal.startswith("x'"):
        return f"0x{literal[2:-1]}"
    if literal.startswith("'"):
        return _ESCAPE.sub(lambda escape: "\0" if escape[1] == "0" else escape[1], literal[1:-1])
    return literal.removesuffix("e0")


NAME: Final = "bridge"
_KAFKA: Final = "source.kafka."
_REGISTRY: Final = "source.registry."
_SAMPLE: Final = 200
_UNLIMITED: Final = 1 << 62
_EARLIEST, _LATEST = "earliest", "latest"
_SETTINGS: Final = ("bootstrap_servers", "topic", "input", "protocol", "timezone")


@dataclass(frozen=True)
class SourceOptions:
    """The options of the data source.

    texts: those that are settings, too.  Secret ones are references (`env:NAME`, `file:PATH`), since Spark shows
        options in plans, event logs and its UI; they are read where the settings are asked for.
    most: the most messages of a micro-batch, None for no limit.
    """

    texts: Mapping[str, str]
    starting_offsets: str
    most: int | None

    @classmethod
    def read(cls, options: Mapping[str, str]) -> SourceOptions:
        """Reads and checks options, as Spark gives them; UsageError for one that is missing, unknown or secret."""
        texts = {name: value for name, value in options.items() if name != "path"}
        starting_offsets = texts.pop("starting_offsets", _EARLIEST)
        own = cls(texts, starting_offsets, _count(texts.pop("max_messages_per_batch", None)))
        if unknown := [name for name in texts if name not in _SETTINGS and not name.startswith((_KAFKA, _REGISTRY))]:
            raise UsageError(
                f"the data source has no option {', '.join(unknown)}",
                fix=f"known are {', '.join(_SETTINGS)}, starting_offsets, max_messages_per_batch, {_KAFKA}* and"
                f" {_REGISTRY}*",
            )
        properties = {"source": {"kafka": own._below(_KAFKA)}, "spark": own._below(_REGISTRY)}
        refuse_secrets(properties, "an option of the data source")
        if starting_offsets not in {_EARLIEST, _LATEST}:
            raise UsageError(f"starting_offsets is {starting_offsets!r}", fix=f"give {_EARLIEST} or {_LATEST}")
        source = own.settings.source
        source.registry.registry()
        if bool(source.input) == bool(source.bootstrap_servers and source.topics):
            raise UsageError(
                "the data source needs something to read", fix="give bootstrap_servers and topic, or input (files)"
            )
        return own

    def _below(self, section: str) -> dict[str, str]:
        return {name.removeprefix(section): text for name, text in self.texts.items() if name.startswith(section)}

    @property
    def settings(self) -> Settings:
        """The settings that the options are, with the secrets that they refer to; UsageError for what is wrong."""
        source = {
            "bootstrap_servers": self.texts.get("bootstrap_servers", ""),
            "topics": tuple(filter(None, map(str.strip, self.texts.get("topic", "").split(",")))),
            "input": self.texts.get("input", ""),
            "kafka": self._below(_KAFKA),
            "registry": resolve(dict(self._below(_REGISTRY)), "source.registry"),
        }
        meaning = {name: self.texts[name] for name in ("protocol", "timezone") if name in self.texts}
        try:
            return Settings.model_validate({"source": source, **meaning})
        except ValidationError as error:
            origins: Mapping[Place, str] = {(name,): "an option of the data source" for name in ("source", *meaning)}
            raise SettingsError(problem(details, origins) for details in error.errors(include_url=False)) from None

    def kafka(self) -> KafkaSource:
        """Makes the source of messages, which must be Kafka."""
        source = self.settings.source
        if source.input:
            raise UsageError(
                "capture files are read as a whole, not as a stream", fix="use spark.read, or give bootstrap_servers"
            )
        return KafkaSource(source.bootstrap_servers, source.topics, source.client_properties)

    def protocol_of(self, source: KafkaSource | CaptureSource) -> str:
        """Gives the protocol of the messages; UsageError where a sample does not tell it."""
        settings = self.settings
        if settings.protocol != "auto":
            return settings.protocol
        return recognise(plain_sample(source, _SAMPLE, settings.source.registry.registry()))[0]


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise UsageError(f"max_messages_per_batch is {text!r}", fix="give a number of messages")
    return int(text)


class _Task(InputPartition):
    """What one task reads: a range of offsets, or all capture files (None)."""

    def __init__(self, protocol: str, part: OffsetRange | None) -> None:
        super().__init__(part)
        self.protocol, self.part = protocol, part


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


class _Reading:
    """What both readers do."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Gives the events of a task, message by message, in the order of the partition.  Where nothing was planned,
        Spark runs one task without a plan."""
        if not isinstance(partition, _Task):
            return
        settings = self._options.settings
        decoder = _decoder(partition.protocol, settings.timezone, settings.source.registry.registry())
        for messages in _messages(settings.source, partition.part):
            yield from event_rows(decode_messages(decoder, messages)).to_batches()


class EventReader(_Reading, DataSourceReader):
    """Reads everything that the partitions, or the files, hold when the job is planned."""

    def partitions(self) -> Sequence[_Task]:
        """Plans a task for each partition that holds messages; one for all files."""
        if path := self._options.settings.source.input:
            return [_Task(self._options.protocol_of(CaptureSource(path)), None)]
        source = self._options.kafka()
        ranges = [OffsetRange(*where, extent.low, extent.high) for where, extent in source.extents().items()]
        ranges = [part for part in ranges if part.size]
        return [_Task(self._options.protocol_of(source), part) for part in ranges] if ranges else []


class EventStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes, micro-batch by micro-batch; its offsets are Kafka's."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
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
        ranges = [part for part in ranges if part.size]
        if ranges and not self._protocol:
            self._protocol = self._options.protocol_of(self._kafka())
        return [_Task(self._protocol, part) for part in ranges]

    def _kafka(self) -> KafkaSource:
        if self._source is None:
            self._source = self._options.kafka()
        return self._source

    def __getstate__(self) -> dict[str, Any]:
        """Gives what tasks need: clients of Kafka stay where they are."""
        return {**vars(self), "_source": None}


def _messages(source: SourceSection, part: OffsetRange | None) -> Iterable[Messages]:
    if part is None:
        return chain.from_iterable(read() for read in CaptureSource(source.input).everything({}).reads(1))
    properties = {**source.client_properties, "bootstrap.servers": source.bootstrap_servers}
    return process_reader(tuple(sorted(properties.items()))).read([part])


@cache
def _decoder(protocol: str, timezone: str | None, schemas: SchemaRegistry | None) -> Decoder:
    """Gives this process's decoder: Spark's Python workers outlive their tasks."""
    return make_decoder(protocol, DecodeOptions(timezone, schemas=schemas))
