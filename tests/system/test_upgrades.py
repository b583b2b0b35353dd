"""Topics whose changefeed was changed in mid-stream: each variant goes on where another ended."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from bridge.protocols import DecodeOptions, decode_message, make_decoder
from bridge.protocols.batch_decode import event_columns
from tests.support.captures import Line, read_lines, write_lines
from tests.support.command import bridge
from tests.support.golden import PROTOCOLS, capture, differences

pytestmark = pytest.mark.usefixtures("spark")

UPGRADES = [
    ("debezium", "debezium-ext"),
    ("debezium-noschema", "debezium-noschema-ext"),
    *(("debezium-ext", "debezium-noschema-ext"), ("debezium-noschema", "debezium"), ("open-updated-only", "open-lz4")),
    ("canal-compat", "canal-delete-handle"),
]


def timed(golden: Path, variant: str, script: str) -> list[tuple[int, Line]]:
    """The lines of a capture, each with the commit ts of its last event."""
    decoder = make_decoder(PROTOCOLS[variant], DecodeOptions("UTC"))
    return [
        (max(event_columns(event)[1] for event in decode_message(decoder, *_key_and_value(line))), line)
        for line in read_lines(capture(golden, variant, script))
    ]


def _key_and_value(line: Line) -> tuple[bytes | None, bytes | None]:
    key, value = (None if line[name] is None else base64.b64decode(line[name]) for name in ("key", "value"))
    return key, value


def spliced(golden: Path, first: str, second: str, script: str) -> list[Line]:
    """A script as captured in one variant, and from the middle on in another."""
    before, after = timed(golden, first, script), timed(golden, second, script)
    times = sorted(ts for ts, _ in before)
    middle = times[len(times) // 2]
    return numbered([line for ts, line in before if ts < middle] + [line for ts, line in after if ts >= middle])


def numbered(lines: Iterable[Line]) -> list[Line]:
    """The lines with offsets in their order."""
    offsets = Counter[int]()
    found = []
    for line in lines:
        found.append({**line, "offset": offsets[line["partition"]]})
        offsets[line["partition"]] += 1
    return found


@pytest.mark.parametrize(
    ("first", "second"), [UPGRADES[0], *(pytest.param(*pair, marks=pytest.mark.soak) for pair in UPGRADES[1:])]
)
def test_a_topic_goes_on(target: str, golden: Path, tmp_path: Path, first: str, second: str) -> None:
    """Schemas, boundaries, compression and what rows hold may come and go; the protocol is recognised, and the end is
    the upstream's."""
    path = write_lines(tmp_path / "spliced.jsonl", spliced(golden, first, second, "all_types"))
    ended = bridge("replay", "--input", str(path), "--target", target, "--timezone", "UTC", "--filter", "!*.vecs")
    assert ended.code == 0, ended.err
    assert differences(target, golden, "all_types", first) == []


def test_boundaries_that_will_not_come_again(target: str, golden: Path, tmp_path: Path) -> None:
    """Debezium's changes have a commit ts either way, so boundaries that end are waited for until the operator says
    that they are off for good; then everything is applied."""
    path = write_lines(tmp_path / "spliced.jsonl", spliced(golden, "debezium-ext", "debezium", "all_types"))
    arguments = ("replay", "--input", str(path), "--target", target, "--timezone", "UTC", "--filter", "!*.vecs")
    ended = bridge(*arguments, "--json")
    assert (ended.code, json.loads(ended.out)["rest"] > 0) == (0, True), ended.err
    ended = bridge(*arguments, "--set", "debezium.without_boundaries=true")
    assert ended.code == 0, ended.err
    assert "without_boundaries says so" in ended.err
    assert differences(target, golden, "all_types", "debezium") == []
    assert re.search(r"order +the order of each partition", bridge("status", "--target", target).out)
