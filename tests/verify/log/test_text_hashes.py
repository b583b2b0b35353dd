"""Hashes of texts, by where they lie in their buffer."""

from __future__ import annotations

from hashlib import md5
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from bridge.verify.log.literal_hashes import text_hashes
from tests.support.fenced_buffers import fenced_texts

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
