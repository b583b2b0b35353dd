"""Sources: streams whose micro-batches can be read here or on the executors.

`kafka` reads Kafka topics, `capture_files` capture files.

Finds out, before a source is read, whether it holds boundaries (resolved ts), or whether only the order within each
partition is known; and in which topic Debezium's connector tells of transactions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from bridge.errors import SourceError, UsageError
from bridge.events import Boundary, DdlStatement, Event, Position, RowChange, TransactionPart, Undecodable
from bridge.model import PartitionId, Positions
from bridge.protocols import PROTOCOLS, DecodeOptions, decode_message, in_json, make_decoder
from bridge.protocols.batch_decode import Messages
from bridge.protocols.decoder import SchemaLookup
from bridge.rows.gathering import Amount
from bridge.tso import tso_ms

if TYPE_CHECKING:
    from bridge.ends import End


SUFFIXES: Final = ("_schema_id", ".contentId", ".globalId")
"""How the names of headers end that hold a schema's id (Apicurio, `apicurio.registry.headers.enabled`,
DefaultHeadersHandler: 8 bytes; Confluent 8.0, HeaderSchemaIdSerializer: what else is the prefix)."""


@dataclass(frozen=True)
class Extent:
    """The offsets [low, high) that a partition holds now."""

    low: int
    high: int


class TopicNow(NamedTuple):
    """A topic as Kafka describes it.

    id: the id that Kafka gave the topic when it was created; "" from brokers before 2.8.
    partitions: how many partitions the topic has.
    """

    id: str
    partitions: int


KeyAndValue = tuple[bytes | None, bytes | None]

_SAMPLE_BYTES: Final = 16 << 20


def within_sample_bytes(messages: Iterable[KeyAndValue]) -> Iterator[KeyAndValue]:
    """Yields the first messages until they hold 16 MiB; at least one."""
    size = 0
    for key, value in messages:
        yield key, value
        size += len(key or b"") + len(value or b"")
        if size >= _SAMPLE_BYTES:
            return


class Pacing(NamedTuple):
    """How a stream is divided into micro-batches.

    messages: the most messages of one.  seconds: the time between two looks for messages.
    once: the stream ends at the present end of the input.
    """

    messages: int
    seconds: float
    once: bool


class Message(NamedTuple):
    """A message and its position.  timestamp: Kafka's, in milliseconds since 1970; 0 where it is not told."""

    position: Position
    key: bytes | None
    value: bytes | None
    timestamp: int = 0


_T = TypeVar("_T")
Export = Callable[[Iterable[pa.Table]], Iterator[_T]]
"""Makes values of decoded events (EVENT_SCHEMA), in a task."""
Read = Callable[[], Iterable[Messages]]
"""Reads messages, in a task; it is pickled."""


class MicroBatch(Protocol):
    """The messages of one trigger of a stream."""

    @property
    def messages(self) -> int | None:
        """The most messages that it can hold; None when only reading tells."""

    @property
    def is_cut(self) -> bool:
        """Whether there were more messages when it was planned."""

    @property
    def starts(self) -> Mapping[PartitionId, int]:
        """The first offset of each partition, as far as they are known."""

    @property
    def ends(self) -> Mapping[PartitionId, int]:
        """The offset after the last one of each partition, as far as they are known."""

    @property
    def is_divisible(self) -> bool:
        """Whether `split` can divide it."""

    def split(self, size: int) -> tuple[MicroBatch, MicroBatch | None]:
        """Returns the first part, of about `size` messages if they can be counted, and the rest if there is any."""

    def reads(self, count: int) -> list[Read]:
        """Gives what about `count` tasks read, each a part."""


Wait = Callable[[float], bool]
"""Waits for so many seconds; returns at once, and true, when nobody waits for the stream any more."""

READING: Final = "reading"
"""What a stream does with its source."""


class Guard(Protocol):
    """Watches the topics of a stream."""

    @property
    def end(self) -> End:
        """The source as an end, which says how long Kafka may fail to answer."""

    def partitions(self, stop_waiting: Callable[[], bool]) -> set[PartitionId] | None:
        """Returns the present partitions; None when `stop_waiting` returned true before Kafka answered.  SourceError
        when a topic was deleted or created again."""


class Planner(Protocol):
    """Plans the micro-batches of a stream, one after the other."""

    @property
    def ends(self) -> Mapping[PartitionId, int]:
        """Where the partitions ended when they were last looked at."""

    def next(self, wait: Wait, most: Callable[[], int]) -> MicroBatch | None:
        """Waits for messages, and plans a micro-batch of them; None at the end of the stream.

        most: tells about the most messages of it.
        """


class Source(Protocol):
    """Where messages come from."""

    is_kafka: bool
    place: str
    """Where it is: the brokers, or the path."""

    def extents(self) -> dict[PartitionId, Extent]:
        """Looks up every partition, and the offsets that it holds now."""

    def topics(self) -> Mapping[str, TopicNow]:
        """Looks up the topics as Kafka describes them now; none for a source without Kafka."""
        return {}

    def compacted(self) -> list[str]:
        """Looks up the topics that Kafka compacts, as far as it tells."""
        return []

    def ends(self, partitions: Iterable[PartitionId]) -> Mapping[PartitionId, int]:
        """Asks where these partitions end now; nothing for a source without Kafka.  UnansweredError when Kafka does not
        answer."""
        del partitions
        return {}

    def commit(self, group: str, offsets: Mapping[PartitionId, int]) -> None:
        """Tells Kafka the offsets of a consumer group, for those who watch it; nothing reads them.  SourceError when
        Kafka does not take them."""
        del group, offsets

    def planner(self, starts: Positions, guard: Guard, pacing: Pacing) -> Planner:
        """Makes the planner of a stream that begins at `starts`."""

    def largest(self, most: Amount) -> Amount:
        """Tells how much a micro-batch, or a part of a divisible one, holds at most: about `most`, if it can."""

    def everything(self, extents: Mapping[PartitionId, Extent]) -> MicroBatch:
        """Makes one micro-batch of all messages at these offsets."""

    def sample(self, count: int) -> list[KeyAndValue]:
        """Reads up to `count` (key, value) pairs from the beginning; fewer when they are large."""

    def heads(self, count: int) -> Iterator[tuple[PartitionId, Iterable[KeyAndValue]]]:
        """Reads the first `count` (key, value) pairs of each partition that holds any, in order.  Each must be consumed
        before the next is taken."""

    def tails(self, count: int) -> Iterator[tuple[PartitionId, Iterable[KeyAndValue]]]:
        """Reads the last `count` (key, value) pairs of each partition in the same way."""

    def messages(self, partition: int | None, offset: int | None) -> Iterator[Message]:
        """Reads the messages that are there now, partition by partition.

        partition: read only this partition, if it is given.  offset: begin at this offset, if it is given.
        """


def plain_sample(source: Source, count: int, schemas: SchemaLookup | None) -> list[KeyAndValue]:
    """Gives up to `count` messages, those in Avro as JSON with their schemas.  Raises SourceError, which names the
    message, where it or its schema cannot be read."""
    messages = source.sample(count)
    try:
        return in_json(messages, schemas)
    except SourceError as error:
        error.where = error.where or _first_without_schema(source, count, schemas)
        raise


def _first_without_schema(source: Source, count: int, schemas: SchemaLookup | None) -> str:
    for message in islice(source.messages(None, None), count):
        try:
            in_json([(message.key, message.value)], schemas)
        except SourceError:
            return str(message.position)
    return f"the first messages of {source}"


def have_ids(received: list[Any]) -> bool:
    """Tells whether messages that were received together may have ids in their headers: the first or the last has any
    header.  A converter writes them into each message."""
    return bool(received and (received[0].headers() or received[-1].headers()))


def key_and_value(message: Any) -> KeyAndValue:
    """Gives the key and value of a message."""
    return with_ids(message.key(), message.value(), dict(message.headers() or ()))


def with_ids(key: bytes | None, value: bytes | None, headers: Mapping[str, bytes | None]) -> KeyAndValue:
    """Puts the ids that headers hold before a key and a value."""
    if not headers or (value and value.startswith(b"{")):  # JSON, with or without a schema
        return key, value
    return _prefixed(key, headers, "key"), _prefixed(value, headers, "value")


def _prefixed(content: bytes | None, headers: Mapping[str, bytes | None], part: str) -> bytes | None:
    if content is None:
        return None
    if prefix := headers.get(f"__{part}_schema_id"):
        return prefix + content
    if id_ := headers.get(f"apicurio.{part}.contentId"):
        return b"\0" + id_[-4:] + content
    if id_ := headers.get(f"apicurio.{part}.globalId"):
        return b"\0" + id_ + content
    return content


HEAD_MESSAGES: Final = 100
TAIL_MESSAGES: Final = 500
"""How many of the last messages of each partition are read.  TiCDC sends a boundary to every partition about once a
second."""
SILENCE_MS: Final = 10_000
"""When changes come for so many milliseconds without a boundary, the sender sends none."""
_SUFFIX = ".transaction"


class BoundaryProbe(NamedTuple):
    """What the messages of a source tell about its order.

    by_partition: True when only the order within each partition is known, False when there are boundaries, None when
        the messages do not tell yet.
    why: the reason, as a clause that begins with "it" or "its" for the source.
    """

    by_partition: bool | None
    why: str


WITHOUT_BOUNDARIES: Final = BoundaryProbe(True, "the setting debezium.without_boundaries says so")


def probe_boundaries(
    source: Source, protocol: str, options: DecodeOptions, *, without_boundaries: bool = False
) -> BoundaryProbe:
    """Reads the first messages of a source and, if its protocol may lack boundaries, the last ones of each partition.

    without_boundaries: the operator says that no boundaries come any more; only used for protocols that may lack them.
    """
    if without_boundaries and PROTOCOLS[protocol].may_lack_boundaries:
        return WITHOUT_BOUNDARIES
    decoder = make_decoder(protocol, options)

    def decoded(messages: Iterable[KeyAndValue]) -> list[Event]:
        events = (event for key, value in messages for event in decode_message(decoder, key, value))
        good = (event for event in events if not isinstance(event, Undecodable))
        return [e._replace(before=None, after=None) if isinstance(e, RowChange) else e for e in good]

    heads = decoded(source.sample(HEAD_MESSAGES))
    tails = source.tails(TAIL_MESSAGES) if PROTOCOLS[protocol].may_lack_boundaries else ()
    return judge_events(heads, [decoded(messages) for _, messages in tails], round(time.time() * 1000))


def judge_events(heads: Sequence[Event], tails: Sequence[Sequence[Event]], now_ms: int) -> BoundaryProbe:
    """Tells the order from the events of a source.

    heads: the first events.
    tails: the last events of each partition; empty when the protocol cannot lack boundaries.
    now_ms: milliseconds since 1970.
    """
    changes = [[event for event in part if isinstance(event, RowChange | DdlStatement)] for part in (*tails, heads)]
    if any(change.by_time for part in changes for change in part):
        return BoundaryProbe(True, "its messages have no commit ts")
    if any(isinstance(event, Boundary) for part in (*tails, heads) for event in part):
        return BoundaryProbe(False, "it has boundaries")
    times = [[tso_ms(change.commit_ts) for change in tail] for tail in changes[: len(tails)]]
    spans = [(min(of_tail), max(of_tail)) for of_tail in times if of_tail]
    if not spans:
        return BoundaryProbe(None, "it shows no boundary so far")
    if (
        max(last for _, last in spans) <= now_ms - SILENCE_MS
        or max(last - first for first, last in spans) >= SILENCE_MS
    ):
        return BoundaryProbe(True, "the last messages of its partitions hold changes and no boundary")
    return BoundaryProbe(None, "its last messages hold no boundary, which may still come")


def transaction_topic(
    protocol: str,
    options: DecodeOptions,
    partitions: Collection[PartitionId],
    heads: Callable[[], Iterable[tuple[PartitionId, Iterable[KeyAndValue]]]],
) -> PartitionId | None:
    """Gives the partition of the topic of transactions, by its first message, or by its name while it is empty; None
    where none is read.  A table may be called `transaction` too.

    options: those with `transactions`.  heads: gives the first messages of each partition that holds any; called where
        a topic may be the one.
    Raises UsageError for more than one such topic, and for one with several partitions.
    """
    topics = {topic for topic, _ in partitions}
    named = {topic for topic in topics if topic.endswith(_SUFFIX)}
    if protocol != "debezium" or not named:
        return None
    decoder, tells = make_decoder(protocol, options), dict[str, bool]()
    for (topic, _), messages in heads():
        for key, value in messages if topic in named else ():
            events = decode_message(decoder, key, value)
            tells[topic] = any(isinstance(event, TransactionPart) and event.text for event in events)
            break
    candidates = sorted(topic for topic in named if tells.get(topic, is_named_so(topic, topics - {topic})))
    if not candidates:
        return None
    numbers = [where for where in partitions if where[0] == candidates[0]]
    if len(candidates) > 1 or len(numbers) > 1:
        several = f"{len(candidates)} topics of transactions"
        what = several if len(candidates) > 1 else f"{len(numbers)} partitions"
        raise UsageError(
            f"the order of transactions needs one topic with one partition, and there are {what}",
            where=", ".join(candidates),
            fix="give the topics of one connector only, and make its topic of transactions with one partition; without"
            " that topic, changes are applied in the order of their partitions",
        )
    return numbers[0]


def is_named_so(topic: str, others: Collection[str]) -> bool:
    """Tells whether a topic is named as the connector names its topic of transactions: PREFIX.transaction, beside
    PREFIX.database.table and PREFIX."""
    prefix = topic.removesuffix(_SUFFIX)
    return bool(others) and all(
        other == prefix or (other.startswith(f"{prefix}.") and "." in other[len(prefix) + 1 :]) for other in others
    )
