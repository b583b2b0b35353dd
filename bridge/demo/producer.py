"""Takes transactions from the bank, and sends them to Kafka at a steady rate."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, Producer

from bridge.demo.bank import Bank
from bridge.demo.encode import EncodedMessage, Encoder
from bridge.demo.model import BankSchemaChange, Transaction
from bridge.errors import SourceError

BEAT_SECONDS: Final = 0.2
"""The time between two boundaries."""
FLUSH_SECONDS: Final = 30.0


@dataclass
class Sent:
    """What has been sent.  Only the producer's thread writes it.

    boundary: the last boundary (TSO), 0 before the first.
    seconds: the time spent sending, without pauses.
    """

    transactions: int = 0
    rows: int = 0
    schema_changes: int = 0
    boundary: int = 0
    seconds: float = 0.0


@dataclass
class BankProducer:
    """Sends a bank's steps; `start` and `pause` may alternate.

    per_beat: transactions between two boundaries.
    on_transaction: called with each transaction before it is sent.
    """

    bank: Bank
    encoder: Encoder
    bootstrap_servers: str
    topic: str
    per_beat: int
    on_transaction: Callable[[Transaction], None]
    sent: Sent = field(default_factory=Sent)

    def __post_init__(self) -> None:
        self._producer: Any = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "enable.idempotence": True,  # keeps the order of a partition
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._scheduled: queue.SimpleQueue[Callable[[], BankSchemaChange]] = queue.SimpleQueue()
        self._pause = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def __enter__(self) -> BankProducer:
        for change in self.bank.schema():
            self._send_schema_change(change)
        self._send_boundary()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def start(self) -> None:
        """Starts to send, or continues after a pause."""
        self._pause.clear()
        self._thread = threading.Thread(target=self._work, name="upstream", daemon=True)
        self._thread.start()

    def schedule(self, make: Callable[[], BankSchemaChange]) -> None:
        """Lets `make` make a schema change, and sends it between two transactions."""
        self._scheduled.put(make)

    def pause(self) -> int:
        """Stops sending; returns a boundary (TSO) above everything that was sent, which Kafka has received."""
        self._end()
        self.check()
        self._send_boundary()
        self._flush()
        return self.sent.boundary

    def check(self) -> None:
        """Raises the error that ended the thread, if there is one."""
        if self._failure is not None:
            raise self._failure

    def _end(self) -> None:
        self._pause.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        began, next_beat = time.monotonic(), time.monotonic()
        try:
            while not self._pause.wait(max(0.0, next_beat - time.monotonic())):
                next_beat += BEAT_SECONDS
                self._beat()
        except BaseException as error:  # noqa: BLE001  # raised again by check, in the main thread
            self._failure = error
        self.sent.seconds += time.monotonic() - began

    def _beat(self) -> None:
        self.bank.advance_to(round(time.time() * 1000))
        for _ in range(self.per_beat):
            transaction = self.bank.transfer()
            self.on_transaction(transaction)
            self._send(self.encoder.transaction(transaction))
            self.sent.transactions += 1
            self.sent.rows += len(transaction.changes)
        while not self._scheduled.empty():
            self._send_schema_change(self._scheduled.get()())
        self._send_boundary()
        self._producer.poll(0)

    def _send_schema_change(self, change: BankSchemaChange) -> None:
        self._send(self.encoder.schema_change(change))
        self.sent.schema_changes += 1

    def _send_boundary(self) -> None:
        self.sent.boundary = self.bank.boundary()
        self._send(self.encoder.boundary(self.sent.boundary))

    def _send(self, messages: list[EncodedMessage]) -> None:
        for partition, key, value in messages:
            self._producer.produce(self.topic, value, key, partition, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None and self._failure is None:
            self._failure = SourceError(f"Kafka did not accept a message: {error}", where=self.topic)

    def _flush(self) -> None:
        left = self._producer.flush(FLUSH_SECONDS)
        self.check()
        if left:
            raise SourceError(f"Kafka did not accept {left} messages within {FLUSH_SECONDS:.0f} s", where=self.topic)
