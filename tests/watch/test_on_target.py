"""What the port tells of a real applier and a real target."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from urllib.request import urlopen

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridge.ends import End, Ends
from bridge.errors import UsageError
from bridge.model import PartitionId, RowCounts, TableName
from bridge.pipeline.heartbeat import StatusReporter
from bridge.pipeline.status import Status
from bridge.sources.source import Source
from bridge.watch.document import History, Lookups, Recent
from bridge.watch.server import Address, may_ask, parse_address
from bridge.watch.watch import Watch
from tests.support.pipelines import Pipeline, admin, opened
from tests.support.scenarios import T, t_row
from tests.support.upstreams import TOPIC, boundary, in_one_partition, row_change, schema_change
from tests.support.watched import MadeSampler

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


def sample(*, lag: float | None = 1.0, rows: int = 0) -> Status:
    """A status with this source lag and these rows of one table."""
    return replace(
        MadeSampler().status(),
        source_lag=lag,
        apply_lag=lag,
        rows=rows,
        tables={TableName("m", "t"): RowCounts(rows, 0, 0)},
        phases_in_all={"server": rows / 100},
    )


def test_ten_seconds_are_one_point_with_the_highest_lag() -> None:
    """So that a peak between two points is not lost; an unknown lag leaves a gap."""
    history = History()
    for at, lag in ((100.0, 1.0), (103.0, 7.0), (109.9, 2.0), (110.0, None), (120.0, 3.0)):
        history.add(at, sample(lag=lag))
    assert [(point.at, point.source_lag) for point in history.points()] == [(100, 7.0), (110, None), (120, 3.0)]


def test_a_clock_that_is_set_back_adds_to_the_last_point() -> None:
    """The chart never runs backwards."""
    history = History()
    for at, lag in ((100.0, 1.0), (50.0, 4.0), (111.0, 1.0)):
        history.add(at, sample(lag=lag))
    assert [(point.at, point.source_lag) for point in history.points()] == [(100, 4.0), (110, 1.0)]


def test_an_hour_is_kept() -> None:
    """And no more, however long the bridge runs."""
    history = History()
    made = sample()
    for second in range(0, 7200, 10):
        history.add(float(second), made)
    assert [history.points()[0].at, history.points()[-1].at] == [3600, 7190]


def test_rates_are_those_of_the_last_seconds() -> None:
    """What came long before does not count."""
    recent = Recent()
    assert (recent.rate(), recent.table_rates(), recent.phases()) == (0.0, {}, {})
    for second in range(100):
        recent.add(float(second), sample(rows=1000 * second if second < 50 else 50_000 + 10 * (second - 50)))
    assert recent.rate() == 10
    assert recent.table_rates() == {TableName("m", "t"): 10}
    assert round(recent.phases()["server"], 6) == 1.5


@pytest.mark.parametrize(
    ("text", "host", "port", "is_loopback"),
    [
        *(("9464", "127.0.0.1", 9464, True), ("0", "127.0.0.1", 0, True), ("localhost:9464", "localhost", 9464, True)),
        *(("127.0.0.9:1", "127.0.0.9", 1, True), ("[::1]:9464", "::1", 9464, True)),
        *(("0.0.0.0:9464", "0.0.0.0", 9464, False), ("[::]:9464", "::", 9464, False)),
        ("10.0.0.5:65535", "10.0.0.5", 65535, False),
        ("db-1.example:9464", "db-1.example", 9464, False),
    ],
)
def test_a_port_alone_is_for_this_machine(text: str, host: str, port: int, is_loopback: bool) -> None:
    """Anything else than the loopback has to be written."""
    address = parse_address(text)
    assert (address.host, address.port, address.is_loopback) == (host, port, is_loopback)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", ":9464", "host:", "host", "::1:9464", "[::1", "[x]:1", "65536", "-1", "٣", "1:2:3"]
)
def test_no_address(text: str) -> None:
    """`:9464` is every address elsewhere, and would be open by mistake."""
    with pytest.raises(UsageError, match="no address"):
        parse_address(text)


@pytest.mark.parametrize(
    ("host", "loopback", "everywhere"),
    [
        *(("localhost:9464", True, True), ("LOCALHOST", True, True), ("127.0.0.1:9464", True, True)),
        *(("[::1]:9464", True, True), ("evil.example:9464", False, True), ("localhost.evil.example", False, True)),
        *(("127.0.0.1.evil.example:9464", False, True), ("", False, True), (None, True, True)),
    ],
)
def test_a_name_that_somebody_else_gives_away_is_not_answered(
    host: str | None, loopback: bool, everywhere: bool
) -> None:
    """Against DNS rebinding: a browser asks under the name of the page that it shows."""
    assert may_ask(Address("127.0.0.1", 9464), host) == loopback
    assert may_ask(Address("0.0.0.0", 9464), host) == everywhere
