"""Numbers rows by the values of some columns, and divides them by numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bridge.model import PartitionId
from bridge.rows.gathering import PIECE_BYTES, taken, whole_texts

Bools = npt.NDArray[np.bool_]
Longs = npt.NDArray[np.int64]


def distinct(rows: pa.Table, names: Sequence[str]) -> tuple[list[tuple[Any, ...]], Longs]:
    """Gives the distinct combinations of values of these columns (strings), in the order in which they come, and for
    each row the number of its combination."""
    columns = [whole_texts(rows[name]) for name in names]
    codes = np.zeros(rows.num_rows, np.int64)
    for column in columns:
        if not _is_repeated(column):
            codes = combined(codes, column.dictionary_encode(null_encoding="encode"))
    first = ends(codes)[0]
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    rows_of = pa.array(first[order])
    return list(zip(*(column.take(rows_of).to_pylist() for column in columns), strict=True)), rank[codes]


def partitions_of(rows: pa.Table) -> tuple[list[PartitionId], Longs]:
    """Gives the partitions of rows in the order of topic and number, and for each row the number of its own."""
    topics, of_topic = distinct(rows, ("topic",))
    numbers = rows["partition"].to_numpy().astype(np.int64)
    width = int(numbers.max(initial=0)) + 1
    names = sorted(topics)
    place = {name: number for number, name in enumerate(names)}
    places = np.array([place[topic] for topic in topics], np.int64)
    codes = places[of_topic] * width + numbers
    found = np.flatnonzero(np.bincount(codes))
    rank = np.zeros(found.max(initial=-1) + 1, np.int64)
    rank[found] = np.arange(len(found))
    return [(names[one // width][0], one % width) for one in found.tolist()], rank[codes]


def divided(rows: pa.Table, numbers: npt.NDArray[Any]) -> Iterator[tuple[int, pa.Table]]:
    """Divides rows by numbers, which ascend then; those of one number stay in order."""
    if (numbers[1:] < numbers[:-1]).any():
        order = np.argsort(numbers, kind="stable")
        # of short texts Arrow's `take` needs half of the time (measured)
        rows = rows.take(pa.array(order)) if rows.nbytes <= PIECE_BYTES else taken(rows, order)
        numbers = numbers[order]
    bounds = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), rows.num_rows]
    for start, end in pairwise(bounds if rows.num_rows else ()):
        yield int(numbers[start]), rows.slice(start, end - start)


def _is_repeated(texts: pa.StringArray | pa.LargeStringArray) -> bool:
    """Tells whether all texts are the same; in rare cases it says no although they are."""
    size = len(texts)
    if size == 0 or texts.null_count or pa.types.is_large_string(texts.type):
        return False
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + size + 1]
    length = int(offsets[1] - offsets[0])
    if not np.array_equal(np.diff(offsets), np.broadcast_to(np.int32(length), size)):
        return False
    if length == 0:
        return True
    characters = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].reshape(size, length)
    return np.array_equal(characters[-1], characters[0]) and np.array_equal(characters[1:], characters[:-1])


def combined(codes: Longs, values: pa.DictionaryArray) -> Longs:
    """Numbers the combinations of codes and values from 0, without a gap and in no order: Arrow promises none for
    dictionaries."""
    indices: Longs = values.indices.to_numpy().astype(np.int64)
    return numbered(codes * len(values.dictionary) + indices) if codes.any() else indices


def numbered(codes: Longs) -> Longs:
    """Numbers equal codes from 0, without a gap and in no order: Arrow promises none for dictionaries."""
    numbers: Longs = pa.array(codes).dictionary_encode().indices.to_numpy().astype(np.int64)
    return numbers


def ends(codes: Longs) -> tuple[Longs, Longs]:
    """Gives the first and the last row of each number from 0."""
    rows = np.arange(len(codes))
    first = np.empty(codes.max(initial=-1) + 1, np.int64)
    last = np.empty_like(first)
    last[codes] = rows  # where an index is repeated, the last value stays (NumPy, Assigning values to indexed arrays)
    first[codes[::-1]] = rows[::-1]
    return first, last
