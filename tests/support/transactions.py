"""Kafka transactions, as a producer of the tests sends them."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable
from typing import Any

from tests.support.captures import Line
from tests.support.producers import ordered_producer

SECONDS = 30.0


class Sender:
    """One transaction after the other, into one topic; at most one stays open."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._producer: Any = ordered_producer(
            bootstrap_servers, transactional_id=uuid.uuid4().hex, transaction_timeout_ms=600_000
        )
        self._producer.init_transactions(SECONDS)

    def open(self, messages: Iterable[dict[str, Any]], partition: int = 0) -> None:
        """A transaction that stays open; its messages have come to Kafka."""
        self._producer.begin_transaction()
        for message in messages:
            self._producer.produce(self._topic, json.dumps(message).encode(), b"", partition)
            self._producer.poll(0)
        assert self._producer.flush(SECONDS) == 0

    def open_lines(self, lines: Iterable[Line]) -> None:
        """The same of the lines of a capture, each in its own topic."""
        self._producer.begin_transaction()
        for line in lines:
            key, value = (None if line[name] is None else base64.b64decode(line[name]) for name in ("key", "value"))
            self._producer.produce(line["topic"], value, key, line["partition"])
            self._producer.poll(0)
        assert self._producer.flush(SECONDS) == 0

    def commit(self) -> None:
        """The open one becomes valid."""
        self._producer.commit_transaction(SECONDS)

    def abort(self) -> None:
        """The open one never was."""
        self._producer.abort_transaction(SECONDS)
