"""Joins the messages that are read to lots that are worth decoding."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from bridge.protocols.batch_decode import Messages

READ_AT_ONCE: Final = 10_000
LOT_BYTES: Final = 8 << 20
"""Messages whose values have so many bytes are passed on without waiting for more."""


def latest_ms(kafka_ms: int) -> int:
    """Returns the latest moment that messages read now can be of, in milliseconds since 1970: now, or Kafka's timestamp
    where the clock of this machine is behind.  kafka_ms: that of the last message, not above 0 without one."""
    return max(kafka_ms, round(time.time() * 1000))


def joined_lots(
    messages_read: Iterable[Messages], on_size: Callable[[int, int], None] = lambda *_: None
) -> Iterator[Messages]:
    """Joins messages to larger lots, as long as they take little memory: decoding few messages costs nearly as much
    as decoding many.

    on_size: is called with the number of messages in the present lot, and the bytes of their values.
    """
    held: list[Messages] = []
    count = size = 0
    for messages in messages_read:
        held.append(messages)
        count, size = count + len(messages.value), size + sum(map(len, filter(None, messages.value)))
        on_size(count, size)
        if count >= READ_AT_ONCE // 2 or size >= LOT_BYTES:
            yield _join(held)
            held, count, size = [], 0, 0
    if held:
        yield _join(held)


def _join(lots: list[Messages]) -> Messages:
    if len(lots) == 1:
        return lots[0]
    return Messages(*(list(chain.from_iterable(columns)) for columns in zip(*lots, strict=True)))
