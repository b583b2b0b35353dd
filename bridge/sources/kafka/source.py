"""Kafka topics as a source."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from itertools import islice

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bridge.errors import SourceError, UnansweredError, UsageError
from bridge.events import Position
from bridge.model import PartitionId, Positions
from bridge.rows.gathering import Amount
from bridge.sources.kafka.client import Acls, OffsetRange, check_login, client, commit_offsets, group_client
from bridge.sources.kafka.offset_planner import KafkaBatch, OffsetPlanner
from bridge.sources.kafka.range_reader import ISOLATION, RangeReader
from bridge.sources.kafka.topic_guard import read_compacted, read_operations, read_topics
from bridge.sources.source import Extent, Guard, KeyAndValue, Message, MicroBatch, Pacing, TopicNow, within_sample_bytes

_ENDS_SECONDS = 10.0
_MESSAGES_PER_READ = 1000
_COMPLAINTS = 100
_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]


class KafkaSource:
    """Kafka topics, whose messages and metadata confluent-kafka reads.

    properties: properties of the Kafka client (librdkafka).  Unless they set another isolation level, messages of
        aborted and open transactions are not read, and a partition ends before its first open transaction.
    """

    is_kafka = True

    def __init__(self, bootstrap_servers: str, topics: Sequence[str], properties: Mapping[str, str]) -> None:
        self._servers, self._topics = bootstrap_servers, tuple(topics)
        self.place = bootstrap_servers
        self._properties = {"isolation.level": ISOLATION, **properties}
        self.acls = Acls.of({**properties, "bootstrap.servers": bootstrap_servers})
        self._committer: Consumer | None = None
        self._complaints: deque[KafkaError] = deque(maxlen=_COMPLAINTS)
        """What the client has said last, since Kafka answered."""

    def __str__(self) -> str:
        return f"Kafka {self._servers}, topic {', '.join(self._topics)}"

    def check_properties(self) -> None:
        """Raises UsageError for a property that the client does not accept; does not connect to Kafka."""
        check_login(self._properties)
        _ = self._admin

    def extents(self) -> dict[PartitionId, Extent]:
        """Looks up every partition of the topics and its present offsets; raises what `topics` and `ends` raise."""
        wheres = [(topic, number) for topic, now in self.topics().items() for number in range(now.partitions)]
        lows, highs = (self._offsets(wheres, which) for which in (_EARLIEST, _LATEST))
        return {where: Extent(lows[where], highs[where]) for where in wheres}

    def topics(self) -> dict[str, TopicNow]:
        """Asks Kafka to describe the topics, each time again; raises what `topic_guard.read_topics` raises, and
        SourceError where Kafka refuses the login or the TLS handshake."""
        try:
            topics = read_topics(self._admin, list(self._topics), self.acls)
        except SourceError as error:
            self._admin.poll(0)  # calls error_cb, which tells why
            if refusal := self._refusal():
                raise refusal from error
            raise
        self._complaints.clear()
        return topics

    def operations(self) -> dict[str, frozenset[str]]:
        """Asks Kafka what its user may do with each topic, such as READ; raises what `topics` raises."""
        return read_operations(self._admin, list(self._topics), self.acls)

    def compacted(self) -> list[str]:
        """Asks Kafka which topics it compacts (`topic_guard.read_compacted`)."""
        return read_compacted(self._admin, list(self._topics))

    def ends(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """Asks for the offset after the last message that can be read, of each of these partitions; with the isolation
        level `read_committed`, that is before a partition's first open transaction.  UnansweredError when Kafka does
        not answer."""
        return self._offsets(partitions, _LATEST)

    def _offsets(self, partitions: Iterable[PartitionId], which: OffsetSpec) -> dict[PartitionId, int]:
        committed = self._properties["isolation.level"] == "read_committed"
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(*where): which for where in partitions}
        if not asked:
            return {}
        try:
            futures = self._admin.list_offsets(asked, isolation_level=level, request_timeout=_ENDS_SECONDS)
            return {(where.topic, where.partition): end.result().offset for where, end in futures.items()}
        except KafkaException as error:
            raise UnansweredError(f"Kafka does not tell the offsets of partitions: {error.args[0].str()}") from error

    def commit(self, group: str, offsets: Mapping[PartitionId, int]) -> None:
        """Tells Kafka the offsets of a consumer group, the same at each call."""
        if self._committer is None:
            self._committer = group_client(dict(self._client_properties()), group)
        commit_offsets(self._committer, group, offsets, self.acls)

    def planner(self, starts: Positions, guard: Guard, pacing: Pacing) -> OffsetPlanner:
        offsets = {partition: start.offset for partition, start in starts.items()}
        reads = self._client_properties()
        return OffsetPlanner(self.ends, guard, offsets, pacing.messages, pacing.seconds, reads, once=pacing.once)

    def largest(self, most: Amount) -> Amount:
        return most

    def everything(self, extents: Mapping[PartitionId, Extent]) -> MicroBatch:
        ranges = [OffsetRange(*where, extent.low, extent.high) for where, extent in extents.items()]
        return KafkaBatch(ranges, self._client_properties())

    def sample(self, count: int) -> list[KeyAndValue]:
        with closing(self.heads(count)) as heads:
            pairs = (pair for _, messages in heads for pair in messages)
            return list(within_sample_bytes(islice(pairs, count)))

    def heads(self, count: int) -> Generator[tuple[PartitionId, Iterable[KeyAndValue]]]:
        return self._parts(lambda extent: Extent(extent.low, min(extent.low + count, extent.high)))

    def tails(self, count: int) -> Iterator[tuple[PartitionId, Iterable[KeyAndValue]]]:
        return self._parts(lambda extent: Extent(max(extent.low, extent.high - count), extent.high))

    def _parts(self, part: Callable[[Extent], Extent]) -> Generator[tuple[PartitionId, Iterable[KeyAndValue]]]:
        wheres = {where: part(extent) for where, extent in self.extents().items()}
        with closing(RangeReader(dict(self._client_properties()))) as reader:
            for where, extent in wheres.items():
                if extent.high > extent.low:
                    lots = reader.read([OffsetRange(*where, extent.low, extent.high)])
                    yield where, (pair for lot in lots for pair in zip(lot.key, lot.value, strict=True))

    def messages(self, partition: int | None, offset: int | None) -> Iterator[Message]:
        extents = self.extents()
        if partition is not None and all(number != partition for _, number in extents):
            raise UsageError(
                f"there is no partition {partition}", fix=f"{self} has {len(extents)} partitions, counted from 0"
            )
        ranges = [
            OffsetRange(topic, number, max(extent.low, offset or 0), extent.high)
            for (topic, number), extent in extents.items()
            if partition in {None, number}
        ]
        with closing(RangeReader(dict(self._client_properties()))) as reader:
            for whole in ranges:
                for start in range(whole.start, whole.end, _MESSAGES_PER_READ):
                    part = whole._replace(start=start, end=min(whole.end, start + _MESSAGES_PER_READ))
                    for lot in reader.read([part]):
                        columns = lot.topic, lot.partition, lot.offset, lot.key, lot.value
                        for name, number, at, key, value in zip(*columns, strict=True):
                            yield Message(Position(name, number, at), key, value)

    def _client_properties(self) -> tuple[tuple[str, str], ...]:
        return (*sorted(self._properties.items()), ("bootstrap.servers", self._servers))

    @cached_property
    def _admin(self) -> AdminClient:
        settings = {"bootstrap.servers": self._servers, "log_level": 0, "error_cb": self._complaints.append}
        return client(AdminClient, {**self._properties, **settings})

    def _refusal(self) -> SourceError | None:
        """Makes the error of a login or a TLS handshake that failed, if one has: the client tries it for ever."""
        for complaint in self._complaints:
            if fix := _refusal_fix(complaint):
                return SourceError(f"Kafka refuses the connection: {complaint.str()}", where=self._servers, fix=fix)
        return None


def _refusal_fix(complaint: KafkaError) -> str:
    """Returns what fixes a failed login or a failed TLS handshake; "" for other complaints."""
    if complaint.code() == KafkaError._AUTHENTICATION:
        return "check sasl.mechanism and sasl.username in [source.kafka], and BRIDGE_KAFKA_PASSWORD"
    if "SSL" in str(complaint.str()):  # librdkafka reports a TLS alert of the broker as a transport error
        return "check ssl.ca.location, and ssl.certificate.location where Kafka wants a certificate, in [source.kafka]"
    return ""
