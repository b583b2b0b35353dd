"""Memory that is given again."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from bridge.protocols.fast import texts as module
from bridge.protocols.fast.texts import room

MIB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets what other tests have left."""
    monkeypatch.setattr(module, "_free", deque())


def _address(found: np.ndarray) -> int:
    return int(found.ctypes.data)


def test_what_nobody_uses_is_given_again() -> None:
    first = room(10 * MIB)
    address = _address(first)
    del first
    assert _address(room(9 * MIB)) == address


def test_what_is_used_is_not_given_again() -> None:
    """A slice, a buffer of Arrow, and an array over that buffer use it."""
    for use in (
        lambda found: found[3:5_000_000],
        lambda found: pa.py_buffer(found[:5_000_000]),
        lambda found: np.frombuffer(pa.py_buffer(found), np.uint8)[7:],
        lambda found: found[:800].view(np.int64),
        lambda found: found.reshape(-1, 2)[:, 1],
    ):
        found = room(6 * MIB)
        found[:] = 7
        kept = use(found)
        del found
        gc.collect()
        others = [room(6 * MIB) for _ in range(40)]
        for other in others:
            other[:] = 9
        assert set(np.unique(np.frombuffer(bytes(kept), np.uint8)).tolist()) == {7}


def test_a_block_is_not_given_for_a_few_of_its_bytes() -> None:
    address = _address(room(60 * MIB))
    assert _address(room(2 * MIB)) != address


@pytest.mark.parametrize("size", [MIB, 3 * MIB // 2, 5 * MIB, 20 * MIB])
def test_what_is_given_holds_at_most_twice_its_bytes(size: int) -> None:
    """Rows that wait for long are in it: blocks of four times their bytes were kept for them."""
    used = [room(size // 2 * times) for times in (2, 3, 5, 8)]
    addresses = {_address(one): len(one) for one in used}
    used.clear()
    kept = [room(size) for _ in range(4)]
    taken = [addresses[_address(one)] for one in kept if _address(one) in addresses]
    assert taken
    assert max(taken) <= 2 * size


def test_another_thread_may_be_quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others took all blocks between the look at them and the removal of one."""

    class Emptied(deque[np.ndarray]):
        def __iter__(self) -> Iterator[np.ndarray]:
            while self:
                yield self.popleft()

    monkeypatch.setattr(module, "_free", Emptied())
    monkeypatch.setattr(module, "_MOST", 0)
    module._keep(np.empty(MIB, np.uint8))


def test_little_is_the_c_library_s() -> None:
    assert room(0).size == 0
    assert room(100).base is None
