"""Processor time to decode one row change to Arrow, beside `orjson.loads` alone on the same messages, for every
protocol, in large lots and in small ones, of one table and of a thousand: `python -m tests.bench.decoding`.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable

import orjson

import bridge.protocols.fast.loading  # noqa: F401
from bridge.demo.encode import EncodedMessage
from bridge.protocols import DecodeOptions, make_decoder
from bridge.protocols.batch_decode import Messages, decode_messages
from bridge.spark.process_memory import keep_freed_memory
from tests.bench.encoders import MEASURED, protocol_of, schemas_in_avro
from tests.bench.workload import PARTITIONS, WORKLOADS, Upstream, Workload
from tests.support.avro_wire import Schemas

ROWS = 10_000
"""As many as the stream reads at a time."""
SMALL = 100
"""As many as come together while a pipeline keeps up with its upstream."""
CASES = {
    **{name: (workload, ROWS) for name, workload in WORKLOADS.items()},
    f"lots of {SMALL}": (WORKLOADS["sysbench"], SMALL),
    "1,000 tables": (Workload("tables1000", tables=1000), ROWS),
    f"1,000 tables, lots of {SMALL}": (Workload("tables1000", tables=1000), SMALL),
}
"""The workloads, and how many messages are decoded together."""
ROUNDS = 15
LENGTH = 8
"""Bytes before the JSON of each event in Open Protocol's values."""


def rows_of(protocol: str, workload: Workload, rows: int = ROWS) -> list[EncodedMessage]:
    """Messages of at least so many row changes."""
    encoder, upstream = MEASURED[protocol](PARTITIONS), Upstream(workload)
    return [message for transaction in upstream.transactions(rows) for message in encoder.transaction(transaction)]


def documents_of(protocol: str, value: bytes) -> list[bytes]:
    """The JSON in a message's value."""
    if protocol == "debezium-avro":
        return [b"{}"]
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


def lots_of(rows: list[EncodedMessage], size: int) -> list[Messages]:
    """The messages in lots of a size."""
    return [
        Messages(["t"] * len(lot), [0] * len(lot), [*range(len(lot))], [m.key for m in lot], [m.value for m in lot])
        for lot in (rows[at : at + size] for at in range(0, len(rows), size))
    ]


def measured(protocol: str, workload: Workload, size: int) -> dict[str, float]:
    """What one row change costs in lots of a size, and the ratio."""
    rows = rows_of(protocol, workload)
    lots = lots_of(rows, size)
    held = Schemas(schemas_in_avro(workload.shapes)) if protocol == "debezium-avro" else None
    decoder = make_decoder(protocol_of(protocol), DecodeOptions("UTC", ckafka_binary="base64", schemas=held))
    documents = [document for row in rows for document in documents_of(protocol, row.value or b"")]

    def decode() -> None:
        for lot in lots:
            decode_messages(decoder, lot)

    def load() -> None:
        for document in documents:
            orjson.loads(document)

    decoding, loading = best(decode, len(documents)), best(load, len(documents))
    return {"decode_us": round(decoding, 2), "orjson_us": round(loading, 2), "ratio": round(decoding / loading, 2)}


if __name__ == "__main__":
    gc.disable()
    keep_freed_memory()
    found = {name: {protocol: measured(protocol, *case) for protocol in MEASURED} for name, case in CASES.items()}
    print(json.dumps(found, indent=2))
