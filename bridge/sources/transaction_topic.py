"""Finds the topic in which Debezium's connector tells of transactions, among those that are read."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bridge.errors import UsageError
from bridge.events import Kind
from bridge.model import PartitionId
from bridge.protocols import DecodeError, DecodeOptions, make_decoder
from bridge.sources.source import Extent, Source

_SUFFIX = ".transaction"


def transaction_topic(
    source: Source, protocol: str, options: DecodeOptions, extents: Mapping[PartitionId, Extent]
) -> PartitionId | None:
    """Gives the partition of the topic of transactions, by its first message, or by its name while it is empty; None
    where none is read.  A table may be called `transaction` too.

    options: those with `transactions`.
    Raises UsageError for more than one such topic, and for one with several partitions.
    """
    topics = {topic for topic, _ in extents}
    named = {topic for topic in topics if topic.endswith(_SUFFIX)}
    if protocol != "debezium" or not named:
        return None
    decoder, tells = make_decoder(protocol, options), dict[str, bool]()
    for (topic, _), messages in source.heads(1):
        for key, value in messages:
            if topic in named:
                try:
                    events = decoder.decode(key, value)
                except DecodeError:
                    events = []
                tells[topic] = any(event.kind is Kind.TRANSACTION and event.text for event in events)
    found = sorted(topic for topic in named if tells.get(topic, is_named_so(topic, topics - {topic})))
    if not found:
        return None
    partitions = [where for where in extents if where[0] == found[0]]
    if len(found) > 1 or len(partitions) > 1:
        what = f"{len(found)} topics of transactions" if len(found) > 1 else f"{len(partitions)} partitions"
        raise UsageError(
            f"the order of transactions needs one topic with one partition, and there are {what}",
            where=", ".join(found),
            fix="give the topics of one connector only, and make its topic of transactions with one partition; without"
            " that topic, changes are applied in the order of their partitions",
        )
    return partitions[0]


def is_named_so(topic: str, others: Collection[str]) -> bool:
    """Tells whether a topic is named as the connector names its topic of transactions: PREFIX.transaction, beside
    PREFIX.database.table and PREFIX."""
    prefix = topic.removesuffix(_SUFFIX)
    return bool(others) and all(
        other == prefix or (other.startswith(f"{prefix}.") and "." in other[len(prefix) + 1 :]) for other in others
    )
