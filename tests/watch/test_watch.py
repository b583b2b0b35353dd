"""The port: what each path answers, to whom, and that manual and live metrics name the same."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridge.errors import UsageError
from bridge.phases import Phase
from bridge.watch.document import MOST_TABLES, OTHER
from bridge.watch.server import Address, write_address
from bridge.watch.watch import Watch
from tests.support.command import bridge
from tests.support.shown_output import MANUAL, ROOT
from tests.support.watched import MadeSampler, watching


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    """A port of a pipeline that reads; the tests only look."""
    with watching(MadeSampler()) as watch:
        yield watch


def asked(watch: Watch, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    """The answer and its body."""
    connection = HTTPConnection(watch.address.host, watch.address.port, timeout=20)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def document(watch: Watch, path: str = "/status") -> dict[str, Any]:
    """A JSON document."""
    found: dict[str, Any] = orjson.loads(asked(watch, path)[1])
    return found


def live(watch: Watch) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """The samples of `/metrics` by name and labels."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(asked(watch, "/metrics")[1].decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def documented() -> set[str]:
    """The metrics that the manual lists."""
    table = (
        (MANUAL / "watching.md")
        .read_text(encoding="utf-8")
        .partition("## The metrics")[2]
        .partition("What to alert")[0]
    )
    cells = re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_manual_and_metrics_name_the_same(watch: Watch) -> None:
    """Each metric is in the manual, and each of the manual is served; the same for labels and phases."""
    assert set(live(watch)) == documented()
    text = (MANUAL / "watching.md").read_text(encoding="utf-8")
    for name, samples in live(watch).items():
        line = next(line for line in text.splitlines() if line.startswith("| ") and f"`{name}`" in line)
        assert all(f"`{label}`" in line for labels in samples for label, _ in labels), name
    assert all(f"`{phase}`" in text for phase in Phase)


def test_nobody_names_a_metric_that_is_not_there() -> None:
    """Neither the dashboard nor a rule; and each metric of the bridge but three is on the dashboard or in a rule."""
    used: set[str] = set()
    files = [*(path for path in (ROOT / "conf" / "deploy").glob("**/*") if path.suffix in {".json", ".yml", ".yaml"})]
    for path in files:
        named = set(
            re.findall(r"\bbridge_\w+_(?:total|seconds|bytes|rows|info|behind)\b|\bbridge_ready\b", path.read_text())
        )
        assert named <= documented(), path
        used |= named
    moments = {"bridge_applied_timestamp_seconds", "bridge_resolved_timestamp_seconds"}
    shown_elsewhere = {"bridge_build_info", *moments}
    assert {name for name in documented() if name.startswith("bridge_")} == used | shown_elsewhere


def test_metrics_tell_what_the_pipeline_tells(watch: Watch) -> None:
    """By table and operation, partition, phase, end and reason."""
    found = live(watch)
    assert found["bridge_ready"][()] == 1
    assert found["bridge_build_info"].keys() == {(("pipeline", "shop"), ("version", document(watch)["version"]))}
    assert found["bridge_rows_total"][("operation", "delete"), ("table", "shop.orders")] > 0
    assert found["bridge_partition_offsets_behind"][("partition", "3"), ("topic", "shop-changes")] == 2518
    ages = found["bridge_partition_boundary_age_seconds"]
    assert max(ages, key=lambda labels: ages[labels]) == (("partition", "7"), ("topic", "shop-changes"))
    assert found["bridge_retries_total"][("end", "target"), ("reason", "does not answer")] == 3
    assert found["bridge_backlog_bytes"][()] == 41 << 20


def test_a_thousand_tables_have_no_thousand_series() -> None:
    """The first ones keep their names, and the others are counted together."""
    tables = tuple(("m", f"t{number}") for number in range(1000))
    with watching(MadeSampler(tables)) as watch:
        rows = live(watch)["bridge_rows_total"]
        found = document(watch)
    assert len(rows) == 3 * (MOST_TABLES + 1)
    assert rows[("operation", "insert"), ("table", OTHER)] > 0
    assert (len(found["tables"]), found["table_count"]) == (MOST_TABLES, 1000)


def test_the_status_holds_what_the_page_shows(watch: Watch) -> None:
    """Who holds the resolved ts back comes first, then the busiest table and the last schema change."""
    found = document(watch)
    assert (found["pipeline"], found["ready"], found["reason"]) == ("shop", True, "")
    assert (found["partitions"][0]["partition"], found["partitions"][0]["holds_back"]) == (7, True)
    assert not any(one["holds_back"] for one in found["partitions"][1:])
    assert found["tables"][0]["name"] == "shop.order_lines"
    assert found["schema_changes"]["last"][0]["state"] == "held"
    assert found["quarantined_by_code"] == {"bad-value": 1, "target-refused": 1}
    assert document(watch, "/history")["source_lag"][0] > 0


def test_a_pipeline_that_starts_is_healthy_and_not_ready() -> None:
    """With the reason as the text, so that a probe's log tells it."""
    with watching() as watch:
        assert asked(watch, "/healthz")[0].status == 200
        answer, body = asked(watch, "/readyz")
        assert (answer.status, body) == (503, b"the bridge is starting\n")
        assert set(live(watch)) <= documented()
        assert live(watch)["bridge_ready"][()] == 0
        assert document(watch)["reason"] == "the bridge is starting"


def test_a_held_schema_change_is_the_reason() -> None:
    """A bridge that waits for the operator is not ready."""
    with watching(MadeSampler(held="DROP TABLE is held; bridge ddl approve")) as watch:
        answer, body = asked(watch, "/readyz")
    assert (answer.status, body) == (503, b"DROP TABLE is held; bridge ddl approve\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_can_be_changed(watch: Watch, method: str) -> None:
    """GET and HEAD are all."""
    answer, _ = asked(watch, "/status", method)
    assert (answer.status, answer.getheader("Allow")) == (405, "GET, HEAD")


def test_head_has_no_body(watch: Watch) -> None:
    """But the headers of GET."""
    answer, body = asked(watch, "/", "HEAD")
    assert (answer.status, body) == (200, b"")
    assert int(answer.getheader("Content-Length") or 0) > 500


@pytest.mark.parametrize("path", ["/nothing", "/page/../watch.py", "/%2e%2e/watch.py", "/static/../../config.py"])
def test_other_paths_are_not_there(watch: Watch, path: str) -> None:
    """Only what is listed is served: no file is looked up by a path."""
    assert asked(watch, path)[0].status == 404


def test_a_name_from_elsewhere_is_not_answered(watch: Watch) -> None:
    """DNS rebinding: nothing of the pipeline is told."""
    answer, body = asked(watch, "/status", Host="evil.example")
    assert answer.status == 421
    assert b"shop" not in body
    assert asked(watch, "/status", Host="localhost:1")[0].status == 200


def test_nothing_is_loaded_from_elsewhere(watch: Watch) -> None:
    """The policy forbids it, and the page does not ask for it."""
    policy = asked(watch, "/")[0].getheader("Content-Security-Policy") or ""
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    pages = [asked(watch, path)[1].decode() for path in ("/", "/page.css", "/page.js")]
    assert not any(re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import|innerHTML", page) for page in pages)


def test_clients_that_are_silent_are_bounded(watch: Watch) -> None:
    """All are taken at once, beyond 32 connections nobody is waited for, and the port answers again when they have
    gone."""
    silent = [socket.create_connection((watch.address.host, watch.address.port), timeout=0.9) for _ in range(40)]
    try:
        silent[-1].settimeout(20)
        assert silent[-1].recv(1) == b""
    finally:
        for one in silent:
            one.close()
    for _ in range(200):
        with suppress(OSError):  # until the threads have noticed
            if asked(watch, "/healthz")[0].status == 200:
                return
    pytest.fail("the port does not answer again")


def test_its_end_is_clean() -> None:
    """No thread is left, and the port is free."""
    before = set(threading.enumerate())
    with watching(MadeSampler()) as watch:
        address = watch.address
        assert asked(watch, "/healthz")[0].status == 200
    for thread in set(threading.enumerate()) - before:  # that of the request, which nobody waited for
        thread.join(timeout=20)
    assert set(threading.enumerate()) <= before
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((address.host, address.port), timeout=5)


def test_a_port_in_use_is_said_before_anything_is_touched(watch: Watch) -> None:
    """Exit code 2; neither Kafka nor the target, which are not there, are asked."""
    kafka = ("--bootstrap-servers", "127.0.0.1:1", "--topic", "t", "--protocol", "canal-json")
    ended = bridge("run", *kafka, "--target", "mysql://u@127.0.0.1:1/", "--listen", str(watch.address.port))
    assert ended.code == 2
    assert f"cannot listen on {watch.address}: Address already in use" in ended.last_line


def test_an_address_of_another_machine_is_refused() -> None:
    """TEST-NET-1 is nobody's."""
    with pytest.raises(UsageError, match=r"cannot listen on 192\.0\.2\.1:0"), watching(listen="192.0.2.1:0"):
        pass


def health(address: Address | None, folder: Path) -> int:
    """The exit code of the image's health check; None: the bridge has written no address."""
    path = folder / "address"
    if address is not None:
        write_address(path, address)
    environment = {"BRIDGE_WATCH_ADDRESS_FILE": str(path)}
    script = ["bash", str(ROOT / "conf" / "deploy" / "healthcheck.sh")]
    return subprocess.run(script, env=environment, capture_output=True, check=False, timeout=60).returncode


def test_the_health_check_of_the_image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It asks where the bridge listens, whatever the settings say: 0 while that is healthy, 1 when it is stuck, gone,
    or not there yet."""
    assert health(None, tmp_path) == 1
    for listen in ("0", "0.0.0.0:0", "[::1]:0"):
        with watching(MadeSampler(), listen=listen) as watch:
            assert health(watch.address, tmp_path) == 0, listen
            monkeypatch.setattr(watch, "_looked_at", -1e9)
            assert health(watch.address, tmp_path) == 1, listen
    assert health(watch.address, tmp_path) == 1


def test_an_address_file_that_cannot_be_written(watch: Watch, tmp_path: Path) -> None:
    """It is named."""
    path = tmp_path / "none" / "address"
    with pytest.raises(UsageError, match=f"the file {path} cannot be written: No such file or directory"):
        write_address(path, watch.address)
