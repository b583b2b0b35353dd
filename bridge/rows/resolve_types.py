"""Turns raw values of row changes into literals, by the target's catalog of the segment.

`typed` comes before all code that looks into a row change: only its result has the names, keys and literals that the
rest of `rows` and `mysql` expect.  Compiled functions convert the usual values, which are most of them; of the others,
and of all where there are few, each distinct value of a kind is converted once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.errors import RefusedRowsError
from bridge.events import RAW, SEP, Code
from bridge.model import Table, TableName
from bridge.protocols.canal.types import REPLACED, REPLACEMENT, UTF8_FORM
from bridge.protocols.decoder import FAILURES, DecodeError, explain
from bridge.protocols.fast.compiled.codes import NOT_READ, READY
from bridge.protocols.fast.readiness import Readiness
from bridge.protocols.fast.texts import room
from bridge.protocols.values.column_types import ColumnType, column_type
from bridge.protocols.values.row_image import declared_types, raw_converter, split_forms, usual_values
from bridge.rows.gathering import Longs, distinct, first_and_last, position_of, with_column
from bridge.rows.literal_offsets import (
    TEXT,
    Cells,
    Literals,
    buffers_of,
    images_of,
    parts_of,
    replaced,
    slices,
    to_numpy,
    whole,
)
from bridge.rows.type_check import CheckedTypes, check_types, true_names

_SLACK: Final = 64
"""Bytes behind the literals, since eight are written at a time."""
_LONGEST_OF_NUMBER: Final = len("'2024-02-29 12:34:56.123456'")
"""No number becomes a longer literal than a DATETIME."""


class ValueKind(NamedTuple):
    """A kind of raw values that are converted alike: their form, and the type of the target's column."""

    form: str
    column: ColumnType


class RawImages(NamedTuple):
    """Row images (large strings), and those of their raw literals that are still to be converted.

    The `place` of a literal is the number of its raw column, of all shapes.
    """

    images: pa.Array
    literals: Literals


Kinds = Mapping[int, ValueKind]
"""The kinds of the raw values of a shape, by the positions of their columns, which ascend."""


def all_raw(images: pa.Array, shape_of: Longs, widths: Sequence[int], kinds: Sequence[Kinds]) -> RawImages:
    """Finds all raw literals.

    shape_of: the number of each image's shape.  widths, kinds: for each shape, how many literals its images have, and
    which are raw.
    Raises ValueError when an image has another number of literals.
    """
    return RawImages(images, Cells(images, shape_of, widths).literals([list(shape) for shape in kinds]))


def unusual_raw(images: pa.Array, shape_of: Longs, widths: Sequence[int], kinds: Sequence[Kinds]) -> RawImages:
    """Converts the usual raw literals with a compiled function, in one pass over the bytes of all tables, and finds the
    others as `all_raw` does (measured with Debezium's rows of 12 to 40 columns: 1.7 us a row instead of 4.1 with
    Arrow)."""
    from bridge.protocols.fast.compiled.functions import convert_images

    rules = np.array(list(chain.from_iterable(map(_rules, widths, kinds))), np.int32)
    firsts = np.cumsum([0, *widths])
    offsets, data = buffers_of(images)
    is_image = to_numpy(images.is_valid())
    raw_count = int(np.array([len(shape) for shape in kinds])[shape_of[is_image]].sum())
    size = int(offsets[-1] - offsets[0])
    # Bytes in base64 become at most twice as long; a number may become a DATETIME, or a DECIMAL with zeros behind it.
    out = room(2 * size + raw_count * _LONGEST_OF_NUMBER + _SLACK)
    scratch = room(size + _SLACK)
    starts, unready = np.zeros(len(images) + 1, np.int64), np.empty((raw_count, 4), np.int64)
    count, _ = convert_images(
        np.frombuffer(data, np.uint8), offsets, is_image.view(np.uint8), len(images), shape_of, firsts, rules, scratch,
        out, starts[1:], unready,
    )  # fmt: skip
    if count == NOT_READ:
        raise ValueError("row images do not hold a literal for each of their columns")
    image, rule, begins, ends = np.ascontiguousarray(unready[:count].T)
    place = (np.cumsum(rules[:, 0] != READY) - 1)[rule]
    text = pa.py_buffer(out[: starts[-1]])
    return RawImages(
        images_of(starts, text, is_image), Literals(image, place, begins, ends, slices(text, begins, ends))
    )


def _rules(width: int, kinds: Kinds) -> Iterator[tuple[int, int, bool]]:
    """Gives for each column of a shape what its usual literals are, an argument, and whether NULL is ready."""
    for position in range(width):
        kind = kinds.get(position)
        yield (READY, 0, True) if kind is None else (*usual_values(*kind), kind.column.nullable)


_FIX: Final = "send the table as Canal-JSON or by the Open Protocol, which carry such values exactly"
_UTF8_FIX: Final = "make the column utf8mb4 upstream, then copy the table anew; nothing to do where it is"
_KEY: Final = "; the column is part of a key: rows whose keys are told apart only there become one row"
_IMAGES: Final = ("before", "after")
_PADDED: Final = "binary"
_MOST_BYTES: Final = 1 << 30
"""The most bytes of images in one piece of a column, whose offsets have 32 bits."""
_readiness: Final = Readiness()
_logged_columns: set[tuple[str, str]] = set()
"""The tables and columns whose losses were logged: each column is logged once, not each value."""


class _RawColumn(NamedTuple):
    """A column whose raw values must be converted.  at: its position in the images of its shape."""

    table: Table
    name: str
    at: int
    kind: ValueKind


def typed(catalog: Mapping[TableName, Table], changes: pa.Table, checked: CheckedTypes) -> pa.Table:
    """Gives row changes (EVENT_SCHEMA) ready literals and plain names; the same object when they have them already.

    checked: column lists that need no comparison with the target's types; those that are found to fit are added.
    Raises ApplyError for a column that stores values otherwise than the upstream's, RefusedRowsError for a value that
    its column cannot hold.  Logs once per column what the format has lost.
    """
    shapes, shape_of = distinct(changes, ("schema", "table", "columns"))
    tables = [(catalog[TableName(schema, table)], columns) for schema, table, columns in shapes]
    return shapes_typed(tables, shape_of, changes, checked)


def shapes_typed(
    shapes: Sequence[tuple[Table, str]], shape_of: Longs, changes: pa.Table, checked: CheckedTypes
) -> pa.Table:
    """Does what `typed` does for row changes of known shapes, all together.

    shapes: tables, and columns of their images; shape_of: for each row change the number of its shape.
    """
    if not any(RAW in columns for _, columns in shapes):
        return changes
    shapes, changes = _with_true_names(shapes, shape_of, changes)
    unchecked = [number for number, shape in enumerate(shapes) if (shape[0].name, shape[1]) not in checked]
    firsts = pa.array(first_and_last(shape_of)[0][unchecked])
    moments = (changes[name].take(firsts).to_pylist() for name in ("commit_ts", "by_time"))
    for number, commit_ts, by_time in zip(unchecked, *moments, strict=True):
        table, columns = shapes[number]
        types = declared_types(columns)
        if _PADDED in types:
            rows = changes.filter(pa.array(shape_of == number))
            types = [_padded_length(rows, at) if name == _PADDED else name for at, name in enumerate(types)]
        check_types(table, split_forms(columns)[0].split(SEP), types, commit_ts, by_time=by_time)
        if _PADDED not in types:
            checked.add((table.name, columns))
    names = [split_forms(columns)[0] for _, columns in shapes]
    all_columns = [list(_places(*shape)) for shape in shapes]
    _say_replacements(all_columns, shape_of, changes)
    places = [[place for place in shape if _is_converted(place.kind)] for shape in all_columns]
    if any(places):
        widths = [joined.count(SEP) + 1 for joined in names]
        kinds = [{place.at: place.kind for place in shape} for shape in places]
        find = unusual_raw if _readiness.pays(changes.num_rows) else all_raw
        raw_images = [find(whole(changes[image]), shape_of, widths, kinds) for image in _IMAGES]
        for image, ready in zip(_IMAGES, _ready_images(raw_images, places, changes), strict=True):
            changes = with_column(changes, image, ready)
    return with_column(changes, "columns", pa.array(names, pa.string()).take(pa.array(shape_of)))


def _with_true_names(
    shapes: Sequence[tuple[Table, str]], shape_of: Longs, changes: pa.Table
) -> tuple[Sequence[tuple[Table, str]], pa.Table]:
    """Gives shapes, and keys of row changes, the names of the tables' columns where Debezium has changed them."""
    renamed, of_keys = list(shapes), dict[int, dict[str, str]]()
    for number, (table, columns) in enumerate(shapes):
        joined, forms = split_forms(columns)
        if "avro" not in forms or table.columns.keys() >= set(joined.lower().split(SEP)):
            continue
        message_names = joined.split(SEP)
        names = true_names(table, message_names)
        renamed[number] = table, SEP.join(names) + columns[len(joined) :]
        of_keys[number] = dict(zip(message_names, names, strict=True))
    if not of_keys:
        return shapes, changes
    keys = [
        key and SEP.join(of_keys.get(shape, {}).get(name, name) for name in key.split(SEP))
        for key, shape in zip(changes["key"].to_pylist(), shape_of.tolist(), strict=True)
    ]
    return renamed, with_column(changes, "key", pa.array(keys, pa.string()))


def _padded_length(changes: pa.Table, at: int) -> str:
    """Finds the length of a BINARY, which TiCDC does not name, from the values of rows of one shape: all of them have
    it.  It stays unknown while all are NULL."""
    for image in _IMAGES:
        [literals] = parts_of(whole(changes[image]), [at])
        values = literals.filter(pc.fill_null(pc.starts_with(literals, "x'"), False))
        if len(values):
            digits = len(values[0].as_py()) - len("x''")
            return f"{_PADDED}({digits // 2})"
    return _PADDED


def _places(table: Table, columns: str) -> Iterator[_RawColumn]:
    names, forms = split_forms(columns)
    for at, (name, form) in enumerate(zip(names.split(SEP), forms, strict=True)):
        column = table.columns.get(name.lower())
        if column is None or not form:  # `type_check` reports a column that the target lacks
            continue
        kind = ValueKind(form, column_type(column.type, nullable=column.nullable, charset=column.charset))
        yield _RawColumn(table, name, at, kind)


def _say_replacements(places: Sequence[Sequence[_RawColumn]], shape_of: Longs, changes: pa.Table) -> None:
    """Logs the columns whose texts show that official Canal could not read the upstream's bytes; the target can."""
    texts = [
        [place for place in shape if place.kind.form == UTF8_FORM and not _is_converted(place.kind)] for shape in places
    ]
    for images in map(changes.column, _IMAGES if any(texts) else ()):
        has_replacement = pc.fill_null(pc.match_substring(images, REPLACEMENT), False).to_numpy()
        for number in np.unique(shape_of[has_replacement]).tolist() if has_replacement.any() else ():
            images_of_shape = images.filter(pa.array(has_replacement & (shape_of == number)))
            for place in texts[number]:
                if pc.any(pc.match_substring(parts_of(whole(images_of_shape), [place.at])[0], REPLACEMENT)).as_py():
                    _say_once(place, REPLACED, _UTF8_FIX)


@lru_cache(maxsize=10_000)
def _is_converted(kind: ValueKind) -> bool:
    return raw_converter(*kind, lambda _: None) is not None


def _ready_images(
    raw_images: Sequence[RawImages], places: Sequence[Sequence[_RawColumn]], changes: pa.Table
) -> Iterator[pa.ChunkedArray]:
    """Gives both images of all row changes."""
    columns = [column for shape in places for column in shape]
    by_kind = {kind: _Converter(kind) for kind in {column.kind for column in columns}}
    converters = [by_kind[column.kind] for column in columns]
    ready, losses = list[pa.Array](), dict[tuple[int, str], None]()
    first_failure: tuple[int, int, Exception] | None = None
    for _, literals in raw_images:
        texts = literals.texts.to_pylist()
        raw = zip(literals.image.tolist(), literals.place.tolist(), texts, strict=True)
        for number, (row, place, text) in enumerate(raw):
            texts[number], loss, failure = converters[place].converted(text)
            if loss:
                losses[place, loss] = None
            if failure and (first_failure is None or row < first_failure[0]):
                first_failure = row, place, failure
        ready.append(pa.array(texts, TEXT))
    if first_failure is not None:
        row, place, failure = first_failure
        raise _refused(columns[place], failure, changes, row)
    for place, reason in losses:
        _say_once(columns[place], reason)
    for (images, literals), new in zip(raw_images, ready, strict=True):
        yield _narrow(replaced(images, literals, new) if len(new) else images)


class _Converter:
    """Converts raw literals of one kind, each distinct one once."""

    def __init__(self, kind: ValueKind) -> None:
        self._losses: list[str] = []
        self._convert = raw_converter(*kind, self._losses.append)
        self._results: dict[str, tuple[str, str, Exception | None]] = {}

    def converted(self, raw: str) -> tuple[str, str, Exception | None]:
        """Gives the literal, what the format has cut of it ("" for nothing), and why the column cannot hold it."""
        result = self._results.get(raw)
        if result is None:
            assert self._convert is not None
            literal, failure = raw, None
            try:
                literal = self._convert(raw)
            except (*FAILURES, DecodeError) as error:
                failure = error
            result = self._results[raw] = literal, self._losses.pop() if self._losses else "", failure
        return result


def _narrow(images: pa.Array) -> pa.ChunkedArray:
    """Casts images to their type in EVENT_SCHEMA."""
    ends = np.cumsum(pc.fill_null(pc.binary_length(images), 0).to_numpy())
    cuts = np.searchsorted(ends, np.arange(_MOST_BYTES, images.nbytes + _MOST_BYTES, _MOST_BYTES)).tolist()
    pieces = [
        images.slice(start, end - start).cast(pa.string()) for start, end in pairwise([0, *cuts[:-1], len(images)])
    ]
    return pa.chunked_array(pieces, pa.string())


def _refused(place: _RawColumn, failure: Exception, changes: pa.Table, row: int) -> RefusedRowsError:
    table = place.table
    return RefusedRowsError(
        f"a value of {table.name} cannot be what its column holds: column {place.name}: {explain(failure)}",
        table=table.name,
        code=Code.BAD_VALUE,
        where=f"{position_of(changes, row)}, commit ts {changes['commit_ts'][row]}",
        fix="check that the column's type on the target is the upstream's, and that the settings of the format"
        " (--timezone, [debezium], [ckafka]) are the sender's",
        is_exact=True,
    )


def _say_once(place: _RawColumn, reason: str, fix: str = _FIX) -> None:
    table, column = str(place.table.name), place.name
    if (table, column) not in _logged_columns:
        from structlog import get_logger  # late: executors do without

        _logged_columns.add((table, column))
        is_key = any(column.lower() in unique for unique in place.table.uniques)
        reason = reason + _KEY if is_key else reason
        get_logger().error("values_inexact", table=table, column=column, why=reason, fix=fix)
