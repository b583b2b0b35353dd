"""The target hashes its rows while executors compute what they should be."""

from __future__ import annotations

import threading
from collections.abc import Callable
from hashlib import md5
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from bridge.errors import StoppedError
from bridge.verify.log import loaded_comparison
from bridge.verify.log.loaded_comparison import hash_ranges
from bridge.verify.log.log_tables import KeyNumbers, LoggedTable
from bridge.verify.log.recompute import text_hashes
from bridge.verify.snapshots import SnapshotReader, Throttle
from tests.support.fenced_buffers import fenced_texts

SECONDS = 60
"""Longer than any step of these tests takes, so that none of them hangs."""


def hashing(
    monkeypatch: pytest.MonkeyPatch, compute: Callable[[], object], on_range: Callable[[], object]
) -> list[KeyNumbers]:
    """The ranges that two workers have hashed.  on_range: is called for each."""
    begun = list[KeyNumbers]()

    def side(_: object, __: object, ranges: list[KeyNumbers]) -> Any:
        begun.extend(ranges)
        on_range()
        return SimpleNamespace(source=str)

    monkeypatch.setattr(loaded_comparison, "actual_side", side)
    monkeypatch.setattr(loaded_comparison, "literals_of", lambda _: [])
    reader = cast(SnapshotReader, SimpleNamespace(rows=lambda _: [(0, 0)]))
    ranges = [(cast(LoggedTable, None), n, (n, n + 1)) for n in range(3)]
    hash_ranges(ranges, [reader] * 2, Throttle({}, {}, print), compute)
    return begun


def test_the_target_hashes_while_executors_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the ranges."""
    begun = threading.Event()

    def compute() -> None:
        assert begun.wait(SECONDS), "nothing is hashed meanwhile"

    assert sorted(hashing(monkeypatch, compute, begun.set)) == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("error", [StoppedError("Spark has failed"), KeyboardInterrupt()])
def test_what_ends_the_computation_ends_all(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Workers begin no other range."""
    begun, ended = threading.Event(), threading.Event()

    def compute() -> None:
        assert begun.wait(SECONDS)
        threading.Timer(0.1, ended.set).start()
        raise error

    def on_range() -> None:
        begun.set()
        assert ended.wait(SECONDS)

    with pytest.raises(type(error)) as raised:
        hashing(monkeypatch, compute, on_range)
    assert raised.value is error


def test_a_server_that_fails_meanwhile_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the server's words, once the computation has ended."""
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise StoppedError("the server was lost")

    with pytest.raises(StoppedError, match="the server was lost"):
        hashing(monkeypatch, lambda: failed.wait(SECONDS), fail)


LONGEST_OF_ONE_BLOCK, LONGEST_OF_TWO = 55, 119


def _texts(sizes: list[int]) -> list[str]:
    made = Random(7)
    return ["".join(made.choices("aä'\\\x00", k=size)) for size in sizes]


def _expected(texts: list[str]) -> list[int]:
    return [int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:8], "big") for text in texts]


@pytest.mark.parametrize("count", [1, 700])
@pytest.mark.parametrize("first", [0, 1, 3])
def test_hash_is_the_first_half_of_md5(count: int, first: int) -> None:
    """Whatever the sizes of the texts, and where they begin."""
    texts = _texts([*range(count), LONGEST_OF_ONE_BLOCK, LONGEST_OF_TWO, 0])

    hashes = text_hashes(pa.array(["'" * first, *texts], pa.large_string()).slice(1))

    assert hashes.tolist() == _expected(texts)


def test_nulls_between_texts_change_nothing() -> None:
    """A row that is gone has no image."""
    texts = [text if number % 3 else None for number, text in enumerate(_texts(list(range(700))))]

    hashes = text_hashes(pa.array(texts, pa.large_string()))

    is_text = np.array([text is not None for text in texts])
    assert hashes[is_text].tolist() == _expected([text for text in texts if text is not None])


@pytest.mark.parametrize("size", [0, 1, 7, 8, 55, 56, 63, 64, 65, 119, 120, 128])
def test_no_byte_behind_the_last_text_is_read(size: int) -> None:
    """Buffers of files that are mapped may end with their page."""
    texts = [*_texts([3] * 600), "x" * size]

    assert text_hashes(fenced_texts([*texts, None]).slice(1))[:-1].tolist() == _expected(texts[1:])
