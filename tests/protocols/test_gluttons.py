"""Time and memory that one message can take."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bridge.protocols import DECODERS
from tests.support.gluttons import gluttons

SECONDS = 1.0
MEGABYTES = 200.0


@pytest.mark.parametrize("protocol", sorted(DECODERS))
def test_one_megabyte_takes_neither_long_nor_much(protocol: str) -> None:
    """No megabyte of any bytes takes more than a second of the processor or 200 MB."""
    command = [sys.executable, "-m", "tests.support.gluttons", protocol]
    ended = subprocess.run(command, capture_output=True, check=True, timeout=300)
    taken = json.loads(ended.stdout)
    assert len(taken) > 30
    assert {name: cost for name, cost in taken.items() if cost[0] > SECONDS or cost[1] > MEGABYTES} == {}


@pytest.mark.parametrize("protocol", sorted(DECODERS))
def test_they_are_of_about_a_megabyte(protocol: str) -> None:
    """The measure means something only for messages of that size."""
    for name, (key, value) in gluttons(protocol):
        assert len(key or b"") < 1_400_000, name
        assert len(value) < 1_400_000, name
