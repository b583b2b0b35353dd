"""The target hashes its rows while executors compute what they should be."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from hashlib import md5
from random import Random
from types import SimpleNamespace
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from bridge.errors import StoppedError
from bridge.verify.compare.checksums import Fingerprint
from bridge.verify.log.literal_hashes import text_hashes
from bridge.verify.log.loaded_comparison import HashComparison, HashedRange, Recomputed
from bridge.verify.log.log_tables import WHOLE, KeyNumbers, LoggedTable
from bridge.verify.snapshots import SnapshotReader, Throttle
from tests.support.fenced_buffers import fenced_texts

SECONDS = 60
"""Longer than any step of these tests takes, so that none of them hangs."""
EXPECTED = {0: [Fingerprint(5, 5, 5)] * 3}
Compute = Callable[[], Mapping[int, Sequence[Fingerprint]]]


def a_range(numbers: KeyNumbers, place: int, recomputed: Recomputed, *, is_whole: bool = True) -> HashedRange:
    """A range of a table with one key column."""
    table = SimpleNamespace(number=0, key=("id",), is_whole=is_whole)
    return HashedRange(cast(LoggedTable, table), numbers, place, recomputed)


def compared(
    monkeypatch: pytest.MonkeyPatch, ranges: Sequence[HashedRange], compute: Compute, on_range: Callable[[], None]
) -> list[KeyNumbers]:
    """The ranges in the order in which two workers have begun them.  on_range: is called before the worker waits for
    what the range should hold."""
    begun: list[KeyNumbers] = []

    def compare_range(_: HashComparison, one: HashedRange, __: SnapshotReader) -> None:
        begun.append(one.numbers)
        on_range()
        one.recomputed.exception(SECONDS)  # waits, but not for ever
        assert one.expected == Fingerprint(5, 5, 5)

    monkeypatch.setattr(HashComparison, "compare_range", compare_range)
    comparison = HashComparison(Throttle({}, {}, print), lambda *_: None)
    readers = [cast(SnapshotReader, None)] * 2
    comparison.compare(ranges, readers, ranges[0].recomputed, compute)
    assert len(begun) == len(ranges)
    return begun


def test_the_target_hashes_while_executors_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of tables that the log holds wholly come first, as no count of their rows has to be known."""
    recomputed, hashing = Recomputed(), threading.Event()

    def compute() -> dict[int, list[Fingerprint]]:
        assert hashing.wait(SECONDS), "nothing is hashed meanwhile"
        return EXPECTED

    ranges = [
        a_range(WHOLE, 0, recomputed, is_whole=False),
        a_range((1, 9), 1, recomputed, is_whole=False),
        a_range((1, 2), 2, recomputed),
    ]
    begun = compared(monkeypatch, ranges, compute, hashing.set)
    assert begun[0] == (1, 2)


@pytest.mark.parametrize("error", [StoppedError("Spark has failed"), KeyboardInterrupt()])
def test_what_ends_the_computation_ends_all(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Workers that wait for it would wait for ever."""
    recomputed, waiting = Recomputed(), threading.Event()

    def compute() -> dict[int, list[Fingerprint]]:
        assert waiting.wait(SECONDS)
        raise error

    with pytest.raises(type(error)) as raised:
        compared(monkeypatch, [a_range((1, 2), n, recomputed) for n in range(3)], compute, waiting.set)
    assert raised.value is error


def test_a_server_that_fails_meanwhile_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the server's words, once the computation has ended."""
    recomputed, failed = Recomputed(), threading.Event()

    def fail() -> None:
        failed.set()
        raise StoppedError("the server was lost")

    def compute() -> dict[int, list[Fingerprint]]:
        assert failed.wait(SECONDS)
        return EXPECTED

    with pytest.raises(StoppedError, match="the server was lost"):
        compared(monkeypatch, [a_range((1, 2), n, recomputed) for n in range(3)], compute, fail)


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
