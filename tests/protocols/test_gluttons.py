"""Time and memory that one message can take."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bridge.protocols import PROTOCOLS

BYTES = 1_400_000
TIMES = 20
"""What is slow takes 8; what is quadratic takes thousands."""
MEGABYTES = 200.0


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_one_megabyte_takes_neither_long_nor_much(protocol: str) -> None:
    """No megabyte of any bytes takes more than 20 times what plain Python takes to parse and join a megabyte of rows,
    about a second of the processor, or 200 MB; and no message is larger, for which the measure would mean nothing."""
    command = [sys.executable, "-m", "tests.support.gluttons", protocol]
    ended = subprocess.run(command, capture_output=True, check=True, timeout=300)
    taken = json.loads(ended.stdout)
    assert len(taken) > 30
    assert {name: size for name, (size, _, _) in taken.items() if size >= BYTES} == {}
    assert {n: cost for n, (_, *cost) in taken.items() if cost[0] > TIMES or cost[1] > MEGABYTES} == {}
