"""An upstream that sends a bank's steps to Kafka as badly as an at-least-once producer may.

Every message comes twice, the copy now and then far later, below boundaries that were sent meanwhile.  Each partition
lags by an amount of its own, which changes.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable

from bridge.demo.bank import Bank
from bridge.demo.encode import ENCODERS, EncodedMessage, Encoder
from bridge.demo.model import BankSchemaChange, Transaction
from tests.support.producers import SurvivingProducer

BEAT_SECONDS = 0.1
PATIENCE_SECONDS = 60.0
"""For anything that Kafka may take long for."""
PRODUCED_SECONDS = 300.0
"""For the last messages to arrive, also when a producer has to be replaced."""
COPY_BEATS = (0, 0, 0, 1, 3, 20, 100)
LAG_BEATS = (0, 0, 1, 2, 5, 15)
LAG_CHANGES = 0.1
"""Probability per beat and partition."""


class Feed:
    """Sends on a thread of its own from `start` to `finish`.

    silent: partitions that get no boundary.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        protocol: str = "canal-json",
        partitions: int = 4,
        seed: int = 1,
        per_beat: int = 3,
        copies: bool = True,
        lags: bool = False,
        accounts: int = 60,
        encoder: Callable[[int], Encoder] | None = None,
        expect: Callable[[Transaction], None] = lambda _: None,
    ) -> None:
        self.bank = Bank(seed, accounts=accounts)
        self.sent = 0
        self.schema_changes = 0
        self.boundary = 0
        self.silent: set[int] = set()
        self._topic, self._partitions = topic, partitions
        self._per_beat, self._copies, self._lags = per_beat, copies, copies or lags
        self._make_encoder = encoder or ENCODERS[protocol]
        self._encoder = self._make_encoder(partitions)
        self._expect = expect
        self._random = random.Random(seed)
        self._beat_number = 0
        self._later: list[tuple[int, int, EncodedMessage]] = []
        self._lanes: defaultdict[int, deque[tuple[int, EncodedMessage]]] = defaultdict(deque)
        self._lag: defaultdict[int, int] = defaultdict(int)
        self._order = itertools.count()
        self._asked: list[Callable[[], BankSchemaChange]] = []
        self._end = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="feed", daemon=True)
        self._producer = SurvivingProducer(bootstrap_servers)

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._wait()

    def _wait(self) -> None:
        if self._thread.is_alive():
            self._thread.join(PATIENCE_SECONDS)
            assert not self._thread.is_alive(), "the feed does not come to its end"

    def open_bank(self) -> None:
        """Sends the schema."""
        for change in self.bank.schema():
            self._schema_change(change)
        self._boundaries()

    def start(self) -> None:
        """Begins to send transactions."""
        self._thread.start()

    def schedule(self, make: Callable[[], BankSchemaChange]) -> None:
        """Has a schema change sent between two transactions."""
        self._asked.append(make)

    @property
    def has_sent_what_was_asked(self) -> bool:
        """Whether the schema changes asked for are sent."""
        return not self._asked

    def beat(self) -> None:
        """Some transactions, the schema changes asked for, and the boundaries that are due."""
        self._beat_number += 1
        self.bank.advance_to(round(time.time() * 1000))
        for _ in range(self._per_beat):
            transaction = self.bank.transfer()
            self._expect(transaction)
            self._send(self._encoder.transaction(transaction))
            self.sent += 1
        while self._asked:
            self._schema_change(self._asked[0]())
            del self._asked[0]
        self._boundaries()
        self._due(self._beat_number)
        self._producer.poll()

    def add_partition(self) -> None:
        """Uses one partition more from the next beat on; what is sent to it comes late at first."""
        self._lag[self._partitions] = max(LAG_BEATS)
        self._partitions += 1
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._producer.count_partitions(self._topic) < self._partitions:
            assert time.monotonic() < deadline, "Kafka does not show the partition"
            time.sleep(BEAT_SECONDS)
        self._encoder = self._make_encoder(self._partitions)

    def check(self) -> None:
        """Raises what ended the thread, if anything did."""
        if self._failure is not None:
            raise self._failure

    def finish(self) -> int:
        """Stops, sends what is still to come; gives the last boundary (TSO), above everything."""
        self._end.set()
        self._wait()
        self.check()
        self._due(math.inf)
        self.silent.clear()
        self.boundary = self.bank.boundary()
        for message in self._encoder.boundary(self.boundary):
            self._produce(message)
        assert self._producer.flush(PRODUCED_SECONDS) == 0
        return self.boundary

    def go_on(self, *, beats: int) -> int:
        """So many beats at once, without the thread, then `finish`."""
        for _ in range(beats):
            self.beat()
        return self.finish()

    def _work(self) -> None:
        try:
            while not self._end.wait(BEAT_SECONDS):
                self.beat()
        except BaseException as error:  # noqa: BLE001  # raised again by finish
            self._failure = error

    def _schema_change(self, change: BankSchemaChange) -> None:
        self._send(self._encoder.schema_change(change))
        self.schema_changes += 1

    def _boundaries(self) -> None:
        self._send(self._encoder.boundary(self.bank.boundary()))

    def _send(self, messages: list[EncodedMessage]) -> None:
        """In each partition in order, when its lag is over; copies later still."""
        for message in messages:
            self._lanes[message.partition].append((self._beat_number + self._lag[message.partition], message))

    def _due(self, beat: float) -> None:
        """Produces what is to be sent until a beat."""
        for partition, lane in self._lanes.items():
            while lane and lane[0][0] <= beat:
                message = lane.popleft()[1]
                self._produce(message)
                if self._copies:
                    at = self._beat_number + self._random.choice(COPY_BEATS)
                    heapq.heappush(self._later, (at, next(self._order), message))
            if self._lags and self._random.random() < LAG_CHANGES:
                self._lag[partition] = self._random.choice(LAG_BEATS)
        while self._later and self._later[0][0] <= beat:
            self._produce(heapq.heappop(self._later)[2])

    def _is_boundary(self, message: EncodedMessage) -> bool:
        return b"TIDB_WATERMARK" in message.value or len(message.value) == 8

    def _produce(self, message: EncodedMessage) -> None:
        partition, key, value = message
        if partition in self.silent and self._is_boundary(message):
            return
        self._producer.produce(self._topic, value, key, partition)
