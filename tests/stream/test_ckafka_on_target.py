"""Genuine changes in CKafka's official format 1, whose values only the target's columns make exact, into a MariaDB."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.protocols.wire import as_ckafka
from tests.stream.pipelines import decoded, run_all
from tests.system.captures import read_lines, write_lines
from tests.system.golden import ZONES, capture, differences

SCRIPTS = ["all_types", "all_types_tz8", "keys", "keys_tabledisp", "bank"]


def ckafka_events(golden: Path, script: str, folder: Path) -> pa.Table:
    """The events of a capture of Canal-JSON without the extension, which holds all that ckafka does, as ckafka.

    In one partition: TIME is whole seconds, so that of a schema change and rows of its second in several partitions
    nothing tells which came first, and each of these scripts ran within a second.
    """
    zone = ZONES.get(script, "UTC")
    lines = read_lines(capture(golden, "canal", script))
    for offset, line in enumerate(lines):
        line["partition"], line["offset"] = 0, offset
        line["value"] = base64.b64encode(as_ckafka(base64.b64decode(line["value"]), zone)).decode()
    path = write_lines(folder / f"{script}.jsonl", (line for line in lines if not _of_vecs(line["value"])))
    return decoded(path, "ckafka", zone, ckafka_binary="latin1")


def _of_vecs(value: str) -> bool:
    """MariaDB 11.4 has no VECTOR."""
    message = json.loads(base64.b64decode(value))
    return "vecs" in {message.get("TABLE"), message.get("table")}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_replay_ends_at_the_upstreams_state(target: str, golden: Path, tmp_path: Path, script: str) -> None:
    """Every type ends with exactly the value that it had upstream, and every kind of key is found."""
    run_all(target, ckafka_events(golden, script, tmp_path))
    assert differences(target, golden, script, "canal") == []
