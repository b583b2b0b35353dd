"""Finds the topic in which Debezium's connector tells of transactions, among those that are read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from bridge.errors import UsageError
from bridge.events import Kind
from bridge.model import PartitionId
from bridge.protocols import DecodeOptions, decode_message, make_decoder
from bridge.sources.source import KeyAndValue

_SUFFIX = ".transaction"


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
            tells[topic] = any(event.kind is Kind.TRANSACTION and event.text for event in events)
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
