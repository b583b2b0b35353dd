"""A look at a source before it is read: does it vouch for its changes by boundaries, or does it only keep order?"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from bridge.events import Event, Kind
from bridge.protocols import MAY_LACK_BOUNDARIES, DecodeOptions, decode_message, make_decoder
from bridge.sources.source import KeyAndValue, Source
from bridge.tso import tso_ms

HEAD_MESSAGES: Final = 100
TAIL_MESSAGES: Final = 500
"""Of each partition.  TiCDC sends a boundary to every partition about once a second."""
SILENCE_MS: Final = 10_000
"""No boundary for so long, while changes came, means that none are sent."""


class BoundaryProbe(NamedTuple):
    """by_partition: the order of the partitions is all there is; None when the messages do not tell yet."""

    by_partition: bool | None
    why: str


def probe_boundaries(
    source: Source, protocol: str, options: DecodeOptions, *, without_boundaries: bool = False
) -> BoundaryProbe:
    """Looks at the first messages, and where the protocol leaves it open at the last of each partition.

    without_boundaries: the operator knows that none come any more, where the protocol leaves it open.
    """
    if without_boundaries and protocol in MAY_LACK_BOUNDARIES:
        return BoundaryProbe(True, "the setting debezium.without_boundaries says so")
    decoder = make_decoder(protocol, options)

    def decoded(messages: Iterable[KeyAndValue]) -> list[Event]:
        found = (event for key, value in messages for event in decode_message(decoder, key, value))
        return [event._replace(before=None, after=None) for event in found]

    heads = decoded(source.sample(HEAD_MESSAGES))
    tails = map(decoded, source.tails(TAIL_MESSAGES)) if protocol in MAY_LACK_BOUNDARIES else ()
    return judge_events(heads, list(tails), round(time.time() * 1000))


def judge_events(heads: Sequence[Event], tails: Sequence[Sequence[Event]], now_ms: int) -> BoundaryProbe:
    """What the events tell.

    tails: of each partition, where the protocol may lack boundaries; now_ms: milliseconds since 1970.
    """
    if any(event.by_time for tail in (*tails, heads) for event in tail):
        return BoundaryProbe(True, "its messages have no commit ts")
    if any(event.kind is Kind.BOUNDARY for tail in (*tails, heads) for event in tail):
        return BoundaryProbe(False, "it has boundaries")
    spans = [_span(tail) for tail in tails if any(map(_is_change, tail))]
    if not spans:
        return BoundaryProbe(None, "it shows no boundary so far")
    if (
        max(last for _, last in spans) <= now_ms - SILENCE_MS
        or max(last - first for first, last in spans) >= SILENCE_MS
    ):
        return BoundaryProbe(True, "the last messages of its partitions hold changes and no boundary")
    return BoundaryProbe(None, "its last messages hold no boundary, which may still come")


def _is_change(event: Event) -> bool:
    return event.kind <= Kind.SCHEMA_CHANGE


def _span(tail: Sequence[Event]) -> tuple[int, int]:
    times = [tso_ms(event.commit_ts) for event in tail if _is_change(event)]
    return min(times), max(times)
