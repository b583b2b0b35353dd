"""Sums of keys are the same in every process, whether or not it has compiled functions."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest

from bridge.rows.keys import key_steps as module
from bridge.rows.keys.key_steps import key_sums
from bridge.rows.literal_offsets import TEXT

MANY = 3_000
"""Enough for the compiled function."""


@pytest.mark.parametrize("kind", [pa.string(), TEXT])
@pytest.mark.parametrize("start", [0, 1, 0xFFFFFFFF, zlib.crc32(b"m\0t")])
def test_both_ways_give_the_sums_of_zlib(kind: pa.DataType, start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(start)
    keys = ["é\0" * int(rng.integers(40)) + str(number) * int(rng.integers(2)) for number in range(MANY)]
    wanted = [zlib.crc32(key.encode(), start) for key in keys]
    for pays in (False, True):
        monkeypatch.setattr(module._readiness, "pays", lambda _, pays=pays: pays)
        assert key_sums(pa.array(["", *keys], kind)[1:], start).tolist() == wanted
        assert key_sums(pa.array([], kind), start).tolist() == []
