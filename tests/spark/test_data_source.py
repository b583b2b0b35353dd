"""The data source `bridge`, as other Spark jobs use it."""

from __future__ import annotations

import contextlib
import re
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

import bridge
from bridge.errors import UsageError
from bridge.events import SEP, RowChange
from bridge.local import Kafka
from bridge.protocols import DecodeOptions, decode_message, make_decoder
from bridge.protocols.batch_decode import event_columns
from bridge.protocols.values.row_image import split_forms
from bridge.spark.data_source import EventStreamReader, SourceOptions
from tests.support.captures import read_lines
from tests.support.producers import ordered_producer
from tests.support.registry import schemas_of, serving
from tests.support.shown_output import MANUAL

Image = dict[str, str | None] | None
CAPTURES = (
    ("canal-ext", "all_types", "canal-json"),
    ("open", "keys", "open-protocol"),
    ("debezium-noschema", "all_types", "debezium"),
    ("debezium-ext", "bank", "debezium"),
)


def as_text(literal: str) -> str | None:
    """What a literal of the decoders says."""
    if literal == "NULL":
        return None
    if literal.startswith("x'"):
        return "0x" + literal[2:-1]
    if literal.startswith("'"):
        return re.sub(r"\\(.)", lambda found: "\0" if found[1] == "0" else found[1], literal[1:-1], flags=re.DOTALL)
    return literal.removesuffix("e0")


def image_of(columns: str | None, image: str | None) -> Image:
    """An image by column."""
    if columns is None or image is None:
        return None
    names, literals = split_forms(columns)[0].split(SEP), image.split(SEP)
    return dict(zip(names, map(as_text, literals), strict=True))


def expected(lines: list[dict[str, Any]], protocol: str) -> list[tuple[Any, ...]]:
    """The rows of a capture, decoded one message at a time."""
    decoder = make_decoder(protocol, DecodeOptions("UTC"))
    rows = []
    for line in lines:
        key, value = (None if line[name] is None else b64decode(line[name]) for name in ("key", "value"))
        for event in decode_message(decoder, key, value):
            row = event if isinstance(event, RowChange) else None
            images = [image_of(row.columns, one) for one in (row.before, row.after)] if row else [None, None]
            place = (line.get("topic") or "capture", line["partition"], line["offset"], event_columns(event)[2])
            kind = event.kind.name.lower().replace("_", "-")
            *told, text, by_time, _ = event_columns(event)
            rows.append((*place, kind, told[1], *told[3:5], *images, None if row else text, by_time))
    return sorted(rows, key=lambda row: row[:4])


def in_order(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, rows), key=lambda row: row[:4])


@pytest.mark.parametrize(("variant", "script", "protocol"), CAPTURES)
def test_it_gives_every_event_of_a_capture(
    spark: SparkSession, golden: Path, variant: str, script: str, protocol: str
) -> None:
    """Rows, schema changes and boundaries, each with its place, and each value as the text that the message means."""
    bridge.register(spark)
    path = golden / variant / f"{script}.jsonl"
    read = spark.read.format("bridge").option("input", str(path)).option("timezone", "UTC").load()
    assert in_order(read.collect()) == expected(list(read_lines(path)), protocol)


def test_messages_in_avro(spark: SparkSession, avro_captures: Path, tmp_path: Path) -> None:
    """With a schema registry, whose password is a reference."""
    (tmp_path / "password").write_text("hunter2", encoding="utf-8")
    bridge.register(spark)
    folder = avro_captures / "debezium-avro-wire"
    name = "my_types.apicurio-headers"
    with serving(schemas_of(folder / f"{name}.schemas.json")) as registry:
        registry.login = "Basic " + b64encode(b"ann:hunter2").decode()
        of_registry = {"url": registry.url, "user": "ann", "password": f"file:{tmp_path / 'password'}"}
        options = {"input": str(folder / f"{name}.jsonl")} | {f"source.registry.{k}": v for k, v in of_registry.items()}
        found = spark.read.format("bridge").options(**options).load().collect()
    kinds = Counter(row["kind"] for row in found)
    assert kinds["bad"] == 0
    assert kinds["insert"] > 10


def send(kafka: Kafka, topic: str, values: list[bytes], partitions: int) -> None:
    producer = ordered_producer(kafka.bootstrap_servers)
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(60) == 0


def messages(first: int, count: int) -> list[bytes]:
    """Changes of shop.orders in Canal-JSON."""
    return [
        b'{"id":0,"database":"shop","table":"orders","pkNames":["id"],"isDdl":false,"type":"INSERT","es":1790000000000,'
        b'"ts":1,"sql":"","sqlType":{"id":4},"mysqlType":{"id":"int"},"old":null,"data":[{"id":"%d"}],'
        b'"_tidb":{"commitTs":470611864893521920}}' % number
        for number in range(first, first + count)
    ]


def test_a_stream_reads_kafka_and_shows_its_offsets(
    spark: SparkSession, kafka: Kafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Each message once, over several micro-batches and a restart; Spark's progress has Kafka's offsets, and how many
    rows were read of which.  Bad messages are rows of their own."""
    bridge.register(spark)
    name = topic(3)
    send(kafka, name, messages(0, 50), 3)

    def run() -> list[Any]:
        stream = (
            spark.readStream.format("bridge")
            .option("bootstrap_servers", kafka.bootstrap_servers)
            .option("topic", name)
            .option("max_messages_per_batch", "20")
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "progress"))
            .trigger(availableNow=True)
            .start()
        )
        assert stream.awaitTermination(120)
        return [progress.sources[0] for progress in stream.recentProgress]

    first = run()
    assert len([batch for batch in first if batch.numInputRows]) >= 3
    assert max(batch.numInputRows for batch in first) <= 20 + 3
    assert orjson.loads(first[-1].endOffset) == {name: {"0": 17, "1": 17, "2": 16}}
    send(kafka, name, [*messages(50, 3), b"{"], 3)
    second = run()
    assert sum(batch.numInputRows for batch in second) == 4
    rows = spark.read.parquet(str(tmp_path / "out"))
    ids = sorted(int(row.after["id"]) for row in rows.where("kind = 'insert'").collect())
    assert ids == list(range(53))
    assert [row.offset for row in rows.where("kind = 'bad'").collect()] == [18]


def test_a_batch_reads_what_kafka_holds_now(spark: SparkSession, kafka: Kafka, topic: Callable[..., str]) -> None:
    """Of all partitions, and nothing of an empty topic."""
    bridge.register(spark)
    name, empty = topic(2), topic(1)
    send(kafka, name, messages(0, 5), 2)
    read = spark.read.format("bridge").option("bootstrap_servers", kafka.bootstrap_servers)
    assert read.option("topic", f"{name},{empty}").load().count() == 5
    assert read.option("topic", empty).load().count() == 0


REFUSED: list[tuple[dict[str, str], str]] = [
    ({"input": "x", "protcol": "debezium"}, "has no option protcol"),
    ({}, "needs something to read"),
    ({"bootstrap_servers": "k:1"}, "needs something to read"),
    ({"input": "x", "bootstrap_servers": "k:1", "topic": "t"}, "needs something to read"),
    ({"input": "x", "protocol": "canal"}, "unknown protocol 'canal'"),
    ({"input": "x", "starting_offsets": "7"}, "starting_offsets is '7'"),
    ({"input": "x", "max_messages_per_batch": "0"}, "max_messages_per_batch is '0'"),
    ({"bootstrap_servers": "k:1", "topic": "t", "source.kafka.sasl.password": "hunter2"}, "holds a password"),
    ({"input": "x", "source.registry.password": "hunter2"}, "holds a password"),
    ({"input": "x", "source.registry.url": "hunter2"}, "source.registry.url"),
    ({"input": "x", "source.registry.timeout_seconds": "soon"}, "source.registry.timeout_seconds"),
    ({"input": "x", "source.registry.urls": "http://r"}, "source.registry.urls"),
]


@pytest.mark.parametrize(("options", "complaint"), REFUSED)
def test_options_that_mean_nothing_are_refused(options: dict[str, str], complaint: str) -> None:
    """Before anything is read; a secret is never an option, since Spark shows options."""
    with pytest.raises(UsageError, match=re.escape(complaint)) as refused:
        SourceOptions.read(options)
    assert "hunter2" not in str(refused.value)


def test_a_stream_of_capture_files_is_refused() -> None:
    """They are read as a whole."""
    reader = EventStreamReader(SourceOptions.read({"input": __file__}))
    with pytest.raises(UsageError, match="not as a stream"):
        reader.initialOffset()


def test_secrets_are_in_no_plan(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read where they are used: neither the plan nor the error of a job that fails has them."""
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", "hunter2")
    bridge.register(spark)
    options = {
        "bootstrap_servers": "127.0.0.1:1",
        "topic": "t",
        "source.kafka.sasl.password": "env:TEST_KAFKA_PASSWORD",
        "source.kafka.sasl.username": "me",
        "source.kafka.sasl.mechanism": "PLAIN",
        "source.kafka.security.protocol": "SASL_PLAINTEXT",
    }
    shown = ""
    with contextlib.suppress(PySparkException):
        read = spark.read.format("bridge").options(**options).load()
        shown = read._jdf.queryExecution().toString()
        read.collect()
    assert "hunter2" not in shown


def test_the_manuals_example_runs(
    spark: SparkSession, kafka: Kafka, topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it stands there, but for the addresses."""
    name = topic(1)
    send(kafka, name, messages(0, 7), 1)
    page = (MANUAL / "other-jobs.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    code = code.replace("kafka:9092", kafka.bootstrap_servers).replace('"topic", "changes"', f'"topic", "{name}"')
    monkeypatch.chdir(tmp_path)
    code = code.replace('"orders"', f'"{tmp_path}/orders"').replace('"orders-progress"', f'"{tmp_path}/progress"')
    exec(code, {})
    assert sorted(row.id for row in spark.read.parquet(f"{tmp_path}/orders").collect()) == [str(n) for n in range(7)]
