"""Processor time to decode one row change to Arrow, beside `orjson.loads` alone on the same messages, for every
protocol: `python -m tests.bench.decoding`.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable

import orjson

from bridge.demo.encode import Message
from bridge.protocols import DecodeOptions, make_decoder
from bridge.protocols.batch_decode import Messages, decode_messages
from bridge.spark.process_memory import keep_freed_memory
from tests.bench.encoders import ENCODERS
from tests.bench.workload import PARTITIONS, WORKLOADS, Upstream

ROWS = 10_000
"""As many as the stream reads at a time."""
ROUNDS = 15
LENGTH = 8
"""Bytes before the JSON of each event in Open Protocol's values."""


def rows_of(protocol: str, workload: str, rows: int = ROWS) -> list[Message]:
    """Messages of at least so many row changes."""
    encoder, upstream = ENCODERS[protocol](PARTITIONS), Upstream(WORKLOADS[workload])
    return [message for transaction in upstream.transactions(rows) for message in encoder.transaction(transaction)]


def documents_of(protocol: str, value: bytes) -> list[bytes]:
    """The JSON in a message's value."""
    if protocol != "open-protocol":
        return [value]
    documents, at = [], 0
    while at < len(value):
        end = at + LENGTH + int.from_bytes(value[at : at + LENGTH])
        documents.append(value[at + LENGTH : end])
        at = end
    return documents


def best(work: Callable[[], object], rows: int) -> float:
    """Microseconds of processor time for one row change, in the fastest of the rounds."""
    taken = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken) / rows * 1e6


def measured(protocol: str, workload: str) -> dict[str, float]:
    """What one row change costs, and the ratio."""
    rows = rows_of(protocol, workload)
    count = len(rows)
    messages = Messages(
        ["t"] * count, [0] * count, list(range(count)), [row.key for row in rows], [row.value for row in rows]
    )
    decoder = make_decoder(protocol, DecodeOptions("UTC", ckafka_binary="base64"))
    documents = [document for value in messages.value for document in documents_of(protocol, value or b"")]

    def decode() -> None:
        decode_messages(decoder, messages)

    def load() -> None:
        for document in documents:
            orjson.loads(document)

    decoding, loading = best(decode, len(documents)), best(load, len(documents))
    return {"decode_us": round(decoding, 2), "orjson_us": round(loading, 2), "ratio": round(decoding / loading, 2)}


if __name__ == "__main__":
    gc.disable()
    keep_freed_memory()
    found = {workload: {protocol: measured(protocol, workload) for protocol in ENCODERS} for workload in WORKLOADS}
    print(json.dumps(found, indent=2))
