"""How many messages of a micro-batch are decoded and applied at a time, and how those that are read are
joined to lots that are worth decoding."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from bridge.protocols.batch_decode import Messages
from bridge.rows.gathering import Amount

FEW: Final = 2_000
"""So many messages are one task: a task costs more than it saves for fewer."""
SECONDS_AT_ONCE: Final = 2.0
"""A part has as many messages as were lately decoded, and accepted by the applier, in so many seconds."""
LEAST_AT_ONCE: Final = 10_000
MOST_AT_ONCE: Final = 100_000
"""The most messages of a part whose row changes the driver writes."""
OF_A_TABLE: Final = 50
"""A part has so many messages for each of its tables at least, as every table of a transaction costs the target some
statements.  With 1,000 tables and a slow target, parts of 50,000 took 25 % less of MariaDB's processor time, and 15 %
less of the driver's, than parts of 10,000 (measured)."""
FIRST_AT_ONCE: Final = 20_000
"""The first part is small: until it is decoded, the target has nothing to do."""
_NO_LIMIT: Final = 1 << 40
_FILLED: Final = 0.75
_GROWTH: Final = 4
READ_AT_ONCE: Final = 10_000
LOT_BYTES: Final = 8 << 20
"""Messages whose values have so many bytes are passed on without waiting for more."""


class PartSize:
    """Decides how many messages a part has, from the rate at which they are applied, their tables and their size.

    most: the most messages of a part.
    most_bytes: about the most bytes that a part takes in one process once it is decoded.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self.by_rate = most, min(most, FIRST_AT_ONCE)
        self._most_bytes, self.by_memory = most_bytes, _NO_LIMIT
        self.by_tables = 0

    def note(self, messages: int, seconds: float) -> None:
        """Notes that the applier has accepted `messages` after `seconds`.  Few messages tell nothing about the rate."""
        if messages > FEW:
            rate = messages / max(seconds, 1e-3)
            self.by_rate = min(self._most, max(LEAST_AT_ONCE, round(rate * SECONDS_AT_ONCE)))

    def had_tables(self, tables: int) -> None:
        """Notes that the messages of a part were of so many tables."""
        self.by_tables = min(self._most, OF_A_TABLE * tables)

    def next_size(self, most: int = MOST_AT_ONCE, *, processes: int = 1, least: int = 0) -> int:
        """Returns how many messages a part should have, `most` at most, when its row changes are divided among so many
        processes.  least: even where the applier is slow."""
        return min(most, max(self.by_rate, self.by_tables, least), processes * self.by_memory)

    def fitted(self, messages: int, size: int) -> None:
        """Notes that `messages` took `size` bytes.  A quarter of the room stays free for larger ones, and the limit
        grows slowly, since larger messages may follow a few small ones."""
        messages_that_fit = _FILLED * self._most_bytes * messages // max(1, size)
        self.by_memory = max(1, min(int(messages_that_fit), _GROWTH * max(self.by_memory, messages)))

    def did_not_fit(self, messages: int, decoded: Amount) -> None:
        """Notes that `messages` took too many bytes.  decoded: the rows and bytes that were decoded until then."""
        self.by_memory = max(1, min(messages // 2, int(_FILLED * self._most_bytes * decoded.rows // decoded.bytes)))


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
