"""A decoder lives on in its process, from task to task."""

from __future__ import annotations

from typing import Any

from pyspark import cloudpickle

from bridge.protocols import DecodeOptions
from bridge.protocols.batch_decode import EventDecoder, Messages
from bridge.spark import worker_decoder
from bridge.spark.worker_decoder import event_decoder


def _as_sent(decoder: EventDecoder) -> EventDecoder:
    received: Any = cloudpickle.loads(cloudpickle.dumps(decoder))
    assert isinstance(received, type(decoder))
    return received


def test_tasks_share_a_decoder() -> None:
    """Each task unpickles the function anew, and must find what the last one learnt."""
    sent = event_decoder("canal-json", DecodeOptions("UTC"))
    messages = Messages(["t"], [0], [0], [b""], [b"{}"])
    kept = []
    for received in (_as_sent(sent), _as_sent(sent)):
        assert [batch.num_rows for batch in received([messages, messages])] == [1, 1]
        kept.append(next(iter(worker_decoder._decoders.values())))
    assert kept[0] is kept[1]


def test_another_stream_has_another_decoder() -> None:
    """Its options may differ; two may even take turns."""
    messages = Messages(["t"], [0], [0], [b""], [b"{}"])
    one, two = (iter(event_decoder(name, DecodeOptions("UTC"))([messages] * 2)) for name in ("canal-json", "debezium"))
    reasons = [next(stream).column("text")[0].as_py() for stream in (one, two, one, two)]
    assert reasons[0] == reasons[2] != reasons[1] == reasons[3]
