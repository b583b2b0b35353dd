"""Genuine changes in CKafka's official format 1, whose values only the target's columns make exact, through the real
command into a MariaDB."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from tests.support.captures import read_lines, with_value, write_lines
from tests.support.command import bridge
from tests.support.golden import ZONES, capture, differences
from tests.support.wire import as_ckafka

SCRIPTS = ["all_types", "keys", "bank"]
MORE_SCRIPTS = [pytest.param(script, marks=pytest.mark.soak) for script in ("bank", "all_types_tz8", "keys_tabledisp")]
CASCADE = b" ON DELETE CASCADE ON UPDATE CASCADE"
"""Refused where the sender is MySQL (tests/system/test_side_effects.py).  TiCDC has sent the cascaded rows as well."""

pytestmark = pytest.mark.usefixtures("spark")


def as_ckafka_capture(golden: Path, script: str, folder: Path) -> Path:
    """A capture of Canal-JSON without the extension, which holds all that ckafka does, as ckafka.

    In one partition: TIME is whole seconds, so that of a schema change and rows of its second in several partitions
    nothing tells which came first, and each of these scripts ran within a second.
    """
    zone = ZONES.get(script, "UTC")
    lines = [line for line in read_lines(capture(golden, "canal", script)) if not _of_vecs(line["value"])]
    return write_lines(
        folder / f"{script}.jsonl",
        (
            {**with_value(line, _row_or_statement(line["value"], zone)), "partition": 0, "offset": offset}
            for offset, line in enumerate(lines)
        ),
    )


def _row_or_statement(value: str, zone: str) -> bytes:
    return as_ckafka(base64.b64decode(value), zone).replace(CASCADE, b"")


def _of_vecs(value: str) -> bool:
    """MariaDB 11.4 has no VECTOR."""
    return bool(json.loads(base64.b64decode(value))["table"] == "vecs")


@pytest.mark.parametrize("script", ["all_types", "keys", *MORE_SCRIPTS])
def test_a_replay_ends_at_the_upstreams_state(target: str, golden: Path, tmp_path: Path, script: str) -> None:
    """Every type ends with exactly the value that it had upstream, and every kind of key is found; the protocol is
    recognised."""
    path = as_ckafka_capture(golden, script, tmp_path)
    arguments = ("--input", str(path), "--target", target, "--timezone", ZONES.get(script, "UTC"))
    ended = bridge("replay", *arguments, "--set", "ckafka.binary=latin1", "--set", "ddl.source=mysql-8")
    assert ended.code == 0, ended.err
    assert differences(target, golden, script, "canal") == []
