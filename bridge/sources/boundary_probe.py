"""Finds out, before a source is read, whether it holds boundaries (resolved ts), or whether only the order within each
partition is known; and in which topic Debezium's connector tells of transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

from bridge.errors import UsageError
from bridge.events import Boundary, DdlStatement, Event, RowChange, TransactionPart, Undecodable
from bridge.model import PartitionId
from bridge.protocols import PROTOCOLS, DecodeOptions, decode_message, make_decoder
from bridge.sources.source import KeyAndValue, Source
from bridge.tso import tso_ms

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
