"""Puts rows together, however long their texts are: one piece of a text column holds at most 2 GiB, and Arrow's `take`
makes one piece of a column.

Numbers rows by the values of some columns, and divides them by numbers.

Measures row changes by rows and bytes: how many there are, and how many may be held or written at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import Position
from bridge.model import PartitionId
from bridge.protocols.fast.readiness import Readiness
from bridge.protocols.fast.texts import room

_readiness: Final = Readiness()


def take_texts(texts: pa.ChunkedArray | pa.Array, numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Gives the texts of these numbers (of strings or large strings, perhaps null), in that order, in one piece; those
    of strings have less than 2 GiB."""
    pieces = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    if not pieces or not _readiness.pays(len(numbers)):
        texts_of_numbers = texts.take(pa.array(numbers, pa.int64()))
        return texts_of_numbers.combine_chunks() if isinstance(texts_of_numbers, pa.ChunkedArray) else texts_of_numbers
    places = _Places.of(pieces).take(numbers)
    is_text = _flags(texts)
    if is_text is not None:
        is_text = is_text[numbers]
        places.sizes[~is_text] = 0
    ends = np.zeros(len(numbers) + 1, np.int64)
    np.cumsum(places.sizes, out=ends[1:])
    return _texts(texts.type, ends, places.copy(int(ends[-1])), is_text)


def one_piece(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Gives all texts of a column in one piece, as strings or large strings; strings have less than 2 GiB."""
    pieces = texts.chunks
    if len(pieces) == 1:
        return pieces[0].cast(kind)
    offsets = [offsets_of(piece) for piece in pieces]
    sizes = [int(bounds[-1] - bounds[0]) for bounds in offsets]
    characters, ends = room(sum(sizes)), np.zeros(len(texts) + 1, np.int64)
    to = at = 0
    for piece, bounds, size in zip(pieces, offsets, sizes, strict=True):
        if size:
            characters[to : to + size] = np.frombuffer(piece.buffers()[2], np.uint8, size, int(bounds[0]))
        ends[at + 1 : at + len(bounds)] = bounds[1:] + (to - bounds[0])
        to, at = to + size, at + len(bounds) - 1
    return _texts(kind, ends, pa.py_buffer(characters), _flags(texts))


def lines(texts: pa.Array) -> pa.Buffer:
    """Gives texts (large strings, none of them null) with a line feed behind each."""
    if not _readiness.pays(len(texts)):
        return pc.binary_join_element_wise(texts, pa.scalar("", texts.type), pa.scalar("\n", texts.type)).buffers()[2]
    where = _Places.of([texts])
    return where.copy(int(where.sizes.sum()) + len(texts), are_lines=True)


class _Places(NamedTuple):
    """Where texts are in memory, and how many bytes each has.  Whoever has it must keep the texts."""

    addresses: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]

    @classmethod
    def of(cls, pieces: list[pa.Array]) -> _Places:
        """Finds the texts of these pieces of a column."""
        offsets = [offsets_of(piece) for piece in pieces]
        starts = [bounds[:-1] + _address(piece) for bounds, piece in zip(offsets, pieces, strict=True)]
        return cls(np.concatenate(starts), np.concatenate([np.diff(bounds) for bounds in offsets]))

    def take(self, numbers: npt.NDArray[np.int64]) -> _Places:
        """Chooses texts."""
        return _Places(self.addresses[numbers], self.sizes[numbers])

    def copy(self, size: int, *, are_lines: bool = False) -> pa.Buffer:
        """Copies the texts one behind the other, which has so many bytes."""
        from bridge.protocols.fast.compiled.functions import copy_texts

        copy = room(size)
        copy_texts(self.addresses, self.sizes, len(self.sizes), are_lines, copy)
        return pa.py_buffer(copy)


def _flags(texts: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.bool_] | None:
    """Tells which texts there are; None where none is null."""
    return texts.is_valid().to_numpy(zero_copy_only=False) if texts.null_count else None


def _texts(
    kind: pa.DataType, ends: npt.NDArray[np.int64], characters: pa.Buffer, is_text: npt.NDArray[np.bool_] | None
) -> pa.Array:
    """Makes texts that follow one another.  ends: 0, and where each text ends."""
    offsets = ends if pa.types.is_large_string(kind) else ends.astype(np.int32)
    validity = None if is_text is None else pa.array(is_text).buffers()[1]
    return pa.Array.from_buffers(kind, len(ends) - 1, [validity, pa.py_buffer(offsets), characters])


def offsets_of(texts: pa.Array) -> npt.NDArray[np.int64]:
    """Tells where each text begins, and where the last one ends, in the characters of all."""
    if len(texts) == 0:
        return np.zeros(1, np.int64)
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    offsets = np.frombuffer(texts.buffers()[1], width)[texts.offset : texts.offset + len(texts) + 1]
    return offsets.astype(np.int64, copy=False)


def _address(texts: pa.Array) -> int:
    characters = texts.buffers()[2]
    return characters.address if characters is not None else 0


Longs = npt.NDArray[np.int64]

PIECE_BYTES: Final = 1 << 30
"""The most bytes of rows that are put into one piece."""
_REACH: Final = (1 << 31) - 1
"""The most bytes that offsets of 32 bits reach."""
_ROWS_PER_SLICE: Final = 200
"""Making a slice costs as much as copying so many row changes."""
_ROW_BYTES: Final = 64
"""About how many bytes a row takes besides its texts."""


def take_rows(rows: pa.Table, numbers: Longs) -> pa.Table:
    """Gives the rows of these numbers, in that order; in one piece, or in several where they are large."""
    if rows.nbytes <= PIECE_BYTES:
        return _in_one_piece(rows, numbers)
    sizes = row_bytes(rows)[numbers]
    return pa.concat_tables([rows.slice(0, 0), *(_few_of(rows, numbers[a:b]) for a, b in _runs(sizes))])


def masked(rows: pa.Table, mask: npt.NDArray[np.bool_]) -> pa.Table:
    """Gives the rows that a mask names; copies nothing where they are few runs of many rows: texts are large."""
    if mask.all():
        return rows
    bounds = np.flatnonzero(np.diff(mask, prepend=False, append=False)).reshape(-1, 2)
    if len(bounds) * _ROWS_PER_SLICE > rows.num_rows:
        return rows.filter(pa.array(mask))
    return pa.concat_tables([rows.slice(0, 0), *(rows.slice(start, end - start) for start, end in bounds.tolist())])


def together(tables: Iterable[pa.Table], limit: int) -> Iterator[pa.Table]:
    """Unites tables, up to about so many bytes."""
    batch: list[pa.Table] = []
    for table in tables:
        batch.append(table)
        if sum(part.nbytes for part in batch) >= limit:
            yield pa.concat_tables(batch)
            batch = []
    if batch:
        yield pa.concat_tables(batch)


def with_column(rows: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Gives rows with other values in a column."""
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), values)


def position_of(rows: pa.Table, number: int) -> Position:
    """Gives the position of the message of one of the rows."""
    return Position(*(rows[name][number].as_py() for name in Position._fields))


def whole_texts(column: pa.ChunkedArray) -> pa.Array:
    """Gives a column of texts in one piece, with offsets of 64 bits where those of 32 do not reach."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return one_piece(column, pa.large_string() if column.nbytes > PIECE_BYTES else column.type)


def row_bytes(rows: pa.Table) -> Longs:
    """Estimates the bytes that each row takes."""
    sizes = np.full(rows.num_rows, _ROW_BYTES, np.int64)
    for column in rows.columns:
        if pa.types.is_string(column.type):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
    return sizes


def _few_of(rows: pa.Table, numbers: Longs) -> pa.Table:
    """Takes few rows out of many: it leaves out others first, without a copy where the few are near each other."""
    first = int(numbers.min())
    near = rows.slice(first, int(numbers.max()) + 1 - first)
    if near.nbytes <= _REACH:
        return _in_one_piece(near, numbers - first)
    is_chosen = np.zeros(rows.num_rows, np.bool_)
    is_chosen[numbers] = True
    places = np.cumsum(is_chosen) - 1
    return _in_one_piece(rows.filter(pa.array(is_chosen)), places[numbers])


def _in_one_piece(rows: pa.Table, numbers: Longs) -> pa.Table:
    indices = pa.array(numbers, pa.int64())
    columns = [
        take_texts(column, numbers) if pa.types.is_string(column.type) else column.take(indices).combine_chunks()
        for column in rows.columns
    ]
    return pa.table(columns, rows.schema)


def _runs(sizes: Longs) -> Iterator[tuple[int, int]]:
    """Cuts rows of these sizes into runs of about `PIECE_BYTES` at most."""
    ends = np.cumsum(sizes)
    cuts = [0]
    while cuts[-1] < len(sizes):
        before = ends[cuts[-1] - 1] if cuts[-1] else 0
        cuts.append(max(cuts[-1] + 1, int(np.searchsorted(ends, before + PIECE_BYTES, "right"))))
    return pairwise(cuts)


Bools = npt.NDArray[np.bool_]


def distinct(rows: pa.Table, names: Sequence[str]) -> tuple[list[tuple[Any, ...]], Longs]:
    """Gives the distinct combinations of values of these columns (strings), in the order in which they come, and for
    each row the number of its combination."""
    columns = [whole_texts(rows[name]) for name in names]
    codes = np.zeros(rows.num_rows, np.int64)
    for column in columns:
        if not _is_repeated(column):
            codes = combined(codes, column.dictionary_encode(null_encoding="encode"))
    first = first_and_last(codes)[0]
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
    used_codes = np.flatnonzero(np.bincount(codes))
    rank = np.zeros(used_codes.max(initial=-1) + 1, np.int64)
    rank[used_codes] = np.arange(len(used_codes))
    return [(names[code // width][0], code % width) for code in used_codes.tolist()], rank[codes]


def divided(rows: pa.Table, numbers: npt.NDArray[Any]) -> Iterator[tuple[int, pa.Table]]:
    """Divides rows by numbers, which ascend then; those of one number stay in order."""
    if (numbers[1:] < numbers[:-1]).any():
        order = np.argsort(numbers, kind="stable")
        # of short texts Arrow's `take` needs half of the time (measured)
        rows = rows.take(pa.array(order)) if rows.nbytes <= PIECE_BYTES else take_rows(rows, order)
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
    """Numbers the combinations of codes and values from 0, without a gap and in no order, as `numbered`."""
    indices: Longs = values.indices.to_numpy().astype(np.int64)
    return numbered(codes * len(values.dictionary) + indices) if codes.any() else indices


def numbered(codes: Longs) -> Longs:
    """Numbers equal codes from 0, without a gap and in no order: Arrow promises none for dictionaries."""
    numbers: Longs = pa.array(codes).dictionary_encode().indices.to_numpy().astype(np.int64)
    return numbers


def first_and_last(codes: Longs) -> tuple[Longs, Longs]:
    """Gives the first and the last row of each number from 0."""
    rows = np.arange(len(codes))
    first = np.empty(codes.max(initial=-1) + 1, np.int64)
    last = np.empty_like(first)
    last[codes] = rows  # where an index is repeated, the last value stays (NumPy, Assigning values to indexed arrays)
    first[codes[::-1]] = rows[::-1]
    return first, last


class Amount(NamedTuple):
    """A number of row changes, and the bytes that they take in memory."""

    rows: int
    bytes: int

    @classmethod
    def of(cls, table: pa.Table) -> Amount:
        """Measures decoded row changes."""
        return cls(int(table.num_rows), int(table.nbytes))

    @classmethod
    def total(cls, amounts: Iterable[Amount]) -> Amount:
        """Adds amounts up."""
        addends = list(amounts)
        return cls(sum(amount.rows for amount in addends), sum(amount.bytes for amount in addends))

    def exceeds(self, limit: Amount) -> bool:
        """Tells whether it is more than `limit`, by either count."""
        return self.rows > limit.rows or self.bytes > limit.bytes

    def pieces(self, limit: Amount) -> int:
        """Tells into how many pieces of at most `limit` it divides."""
        return max(-(-self.rows // limit.rows), -(-self.bytes // limit.bytes))


def weights(table: pa.Table, limit: Amount) -> npt.NDArray[np.float64] | None:
    """Gives each row's weight in rows, where `limit.bytes` weigh as much as `limit.rows`.  Gives None when all
    rows together take at most `limit.bytes`: then each row weighs one."""
    if table.nbytes <= limit.bytes:
        return None
    row_weights: npt.NDArray[np.float64] = np.maximum(1.0, row_bytes(table) * (limit.rows / limit.bytes))
    return row_weights
