"""What the port tells of a real applier and a real target."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast
from urllib.request import urlopen

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridge.ends.end import End, Ends
from bridge.model import PartitionId
from bridge.pipeline.watching.status_reporter import StatusReporter
from bridge.sources.source import Source
from bridge.watch.lookups import Lookups
from bridge.watch.server import parse_address
from bridge.watch.watch import Watch
from tests.support.pipelines import Pipeline, admin, opened
from tests.support.scenarios import T, t_row
from tests.support.upstreams import TOPIC, boundary, in_one_partition, row_change, schema_change

WHERE: PartitionId = (TOPIC, 0)


@pytest.fixture
def pipeline(target: str) -> Iterator[Pipeline]:
    """A pipeline on a target with one table."""
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute(T)
    with opened(target, [WHERE]) as pipeline:
        yield pipeline


def watch_of(pipeline: Pipeline, ends: Mapping[PartitionId, int]) -> Watch:
    """The port of a pipeline, beside a Kafka that tells these ends."""
    kafka = cast("Source", SimpleNamespace(ends=lambda _: ends))
    watched = Ends(pipeline.writer.end, End("source", "kafka:9092", retry_seconds=0))
    watch = Watch(parse_address("0"), "bridge", watched, Lookups(kafka, pipeline.target, pipeline.table))
    watch.report_on(StatusReporter(pipeline.applier, pipeline.writer, watched, 0))
    return watch


def test_rows_transactions_and_schema_changes_are_those_of_the_target(pipeline: Pipeline) -> None:
    """Counted by table and kind; the schema change comes from the target's journal, with what was rewritten."""
    rows = [t_row(10, 1, 1), t_row(10, 2, 1), row_change(11, "t", ["id", "v"], ["id"], before=[1, 1], after=[1, 2])]
    more = [
        row_change(12, "t", ["id", "v"], ["id"], before=[2, 1]),
        schema_change(13, "ALTER TABLE t ADD COLUMN c INT"),
    ]
    pipeline.take(in_one_partition([*rows, *more, boundary(20)]))
    watch = watch_of(pipeline, {WHERE: 9})
    try:
        watch.look()
        metrics = text_string_to_metric_families(ask(watch, "metrics").decode())
        found = {
            (one.name, *(value for _, value in sorted(one.labels.items()))): one.value
            for family in metrics
            for one in family.samples
        }
        kinds = {key[1:]: value for key, value in found.items() if key[0] == "bridge_rows_total"}
        assert kinds == {("insert", "m.t"): 2, ("update", "m.t"): 1, ("delete", "m.t"): 1}
        assert found["bridge_transactions_total",] == pipeline.writer.counts.transactions
        assert found["bridge_schema_changes_total",] == 1
        assert found["bridge_messages_total",] == 6
        assert sum(value for key, value in found.items() if key[0] == "bridge_phase_seconds_total") > 0
        document = wait_for_changes(watch)
    finally:
        watch.close()
    assert document["schema_changes"]["by_state"] == {"done": 1}
    assert document["schema_changes"]["last"][0]["statement"] == "ALTER TABLE t ADD COLUMN c INT"
    assert document["partitions"][0]["behind"] == 3
    assert document["partitions"][0]["read"] == 6


def ask(watch: Watch, path: str) -> bytes:
    """What a path answers."""
    with urlopen(f"http://{watch.address}/{path}", timeout=30) as answer:
        found: bytes = answer.read()
        return found


def wait_for_changes(watch: Watch) -> dict[str, Any]:
    """The status, once Kafka and the target have been asked."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        document: dict[str, Any] = orjson.loads(ask(watch, "status"))
        if document["schema_changes"]["last"] and document["partitions"][0]["behind"] is not None:
            return document
        time.sleep(0.05)
    pytest.fail("the target was not asked")
