"""`bridge verify` against the log on generated workloads of every protocol: no false alarm, and damage is found."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from tests.bench.encoders import ENCODERS
from tests.bench.workload import PARTITIONS, WORKLOADS, Upstream, messages
from tests.support.captures import Line, write_lines
from tests.support.command import bridge
from tests.support.verify_servers import execute
from tests.system.test_native_debezium import VARIANTS, Connector, history
from tests.system.test_verify import found

EVENTS = 600
PROTOCOLS = {"canal": "canal-json"} | {name: name for name in ENCODERS}
"""What is sent, and the protocol it is; `canal` is official Canal, which has neither a commit ts nor boundaries."""

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(autouse=True)
def _own_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def lines(upstream: Upstream, protocol: str) -> Iterator[Line]:
    """The messages of a generated upstream."""
    offsets = Counter[int]()
    for partition, key, value in messages(upstream, ENCODERS[PROTOCOLS[protocol]](PARTITIONS), EVENTS):
        sent = _official(value) if protocol == "canal" else value
        if sent is None:
            continue
        encoded = [None if part is None else base64.b64encode(part).decode() for part in (key, sent)]
        line = {"partition": partition, "offset": offsets[partition], "timestamp": 1}
        yield line | {"key": encoded[0], "value": encoded[1]}
        offsets[partition] += 1


def _official(value: bytes) -> bytes | None:
    """What Canal itself sends of a change of TiCDC's; None for a watermark, which it does not know."""
    message = orjson.loads(value)
    del message["_tidb"]
    return None if message["type"] == "TIDB_WATERMARK" else orjson.dumps(message)


CASES = [(protocol, workload) for protocol in PROTOCOLS for workload in WORKLOADS]


@pytest.mark.parametrize(
    ("protocol", "workload"),
    [pytest.param(*case, marks=pytest.mark.soak) for case in CASES],
)
def test_generated_workloads(target: str, tmp_path: Path, protocol: str, workload: str) -> None:
    """Rows that come, change, go and come again, over four partitions: what the bridge wrote is equal; one that is
    changed, lost, or back after its delete is named, one that the log never mentioned is not covered, and the fix SQL
    makes it equal."""
    upstream = Upstream(WORKLOADS[workload])
    execute(target, ";".join(upstream.workload.statements))
    capture = write_lines(tmp_path / "log.jsonl", lines(upstream, protocol))
    arguments = ["--protocol", PROTOCOLS[protocol], "--input", str(capture), "--target", target, "--timezone", "UTC"]
    assert bridge("replay", *arguments).code == 0
    ended = bridge("verify", *arguments, "--json")
    assert (ended.code, found(ended)) == (0, set()), ended.err
    assert sum(table["rows"] for table in orjson.loads(ended.out)["tables"]) == len(upstream.numbers)

    changed, lost = sorted(upstream.numbers)[:2]
    [table] = (f"{shape.schema}.{shape.name}" for shape in upstream.workload.shapes)
    column = upstream.workload.shapes[0].columns[1].name
    gone = next(key for key in range(1, EVENTS) if key not in upstream.numbers)
    execute(target, f"UPDATE {table} SET {column} = -1 WHERE id = {changed}; DELETE FROM {table} WHERE id = {lost};"
                    f"INSERT INTO {table} (id) VALUES ({gone}), (99999999)".replace(
                        "INSERT", "SET sql_mode = ''; INSERT"))  # fmt: skip
    ended = bridge("verify", *arguments, "--json", "--fix-sql", str(tmp_path / "fix.sql"))
    assert found(ended) == {
        (table, "different", str(changed), column), (table, "missing", str(lost)), (table, "extra", str(gone)),
    }  # fmt: skip
    assert [t["not_covered"] for t in orjson.loads(ended.out)["tables"]] == [1]
    execute(target, (tmp_path / "fix.sql").read_text(encoding="utf-8"))
    assert bridge("verify", *arguments).code == 0


@pytest.mark.parametrize(
    "name", [n if n == "schemas, default modes" else pytest.param(n, marks=pytest.mark.soak) for n in VARIANTS]
)
def test_the_native_connector(target: str, tmp_path: Path, name: str) -> None:
    """Every type in every mode, through a snapshot, a truncation and tombstones."""
    connector = Connector(VARIANTS[name])
    history(connector)
    capture = write_lines(tmp_path / "shop.jsonl", connector.lines)
    settings = [part for setting in VARIANTS[name].settings for part in ("--set", f"debezium.{setting}")]
    arguments = ["--protocol", "debezium", "--input", str(capture), "--target", target, *settings]
    assert bridge("replay", *arguments, "--set", "ddl.source=mysql-8").code == 0
    ended = bridge("verify", *arguments, "--json")
    assert (ended.code, found(ended)) == (0, set()), ended.err
    execute(target, "UPDATE shop.t SET f = 0.2 WHERE id = 2; DELETE FROM shop.t WHERE id = 3")
    assert found(bridge("verify", *arguments, "--json")) == {
        ("shop.t", "different", "2", "f"), ("shop.t", "missing", "3"),
    }  # fmt: skip
