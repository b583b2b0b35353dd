"""Hashes rows by the literals of their values, on executors and on the target alike.  Pure.

The target writes each of its values as the literal that decoders make of it, so that the hash of a message's row image
can be compared with that of the target's row, and nothing has to be loaded.  What is equal there is equal: a literal
means one value, and holds no SEP.  What is not may be equal all the same, since a value may have several literals
(1.0 and 1.00); only a comparison by value tells.

Keys are integers in their only spelling.  Another key may have several spellings.  When the log inserts a row by one
of them and deletes it by another, only the target can tell that the row is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import md5
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP
from bridge.mysql.table_definition import ColumnInfo, ValueClass
from bridge.rows.literal_offsets import buffers_of, to_numpy, whole
from bridge.verify.compare.checksums import LOSSLESS, UNICODE, Fingerprint, canonical, fingerprint_query
from bridge.verify.log.log_tables import ACTUAL, LoggedTable, numbers_of
from bridge.verify.log.logged_rows import STEP_SCHEMA, by_table

_SEPARATOR: Final = f"x'{SEP.encode().hex()}'"
_KEY: Final = r"^(0|-?[1-9][0-9]*)(\x00(0|-?[1-9][0-9]*))*$"
"""Integers as the target writes them, joined by SEP."""
_UNTOLD: Final = Fingerprint(1, 0, 0)
"""The fingerprint of a row that has no hash."""
_KEPT: Final = ("table_number", "key", "commit_ts", "by_time", "topic", "partition", "offset", "index")
"""What decides which step of a key is the last one."""
HASHED_SCHEMA: Final = pa.schema([*(STEP_SCHEMA.field(name) for name in _KEPT), pa.field("image", pa.uint64())])


def literal(column: ColumnInfo, alias: str) -> str | None:
    """Writes the SQL expression of a value as a literal; None for types of which a literal may stand for another value,
    or a value is seldom written as its message has it."""
    value = canonical(column, alias)
    match column.value_class:
        case ValueClass.INTEGER | ValueClass.DECIMAL | ValueClass.NUMBER:
            return f"IFNULL({value},'NULL')"
        case ValueClass.FLOAT | ValueClass.DOUBLE:
            return f"IFNULL(CONCAT({value},IF(INSTR({value},'.'),'e0','.0e0')),'NULL')"
        case ValueClass.TEMPORAL:
            return f"QUOTE({value})"
        case ValueClass.TEXT if column.charset in UNICODE | LOSSLESS:
            # Bytes, which are UTF-8 here: MariaDB quotes them in 0.3 us of 190, characters in 0.5 (measured).
            return f"QUOTE(CAST({value} AS BINARY))"
        case ValueClass.BINARY:
            return f"IF(LENGTH({value})=0,QUOTE(''),IFNULL(CONCAT('x''',LOWER(HEX({value})),''''),'NULL'))"
        case _:
            return None


def literals_of(table: LoggedTable) -> list[str]:
    """Writes the SQL of a row's values as the literals of its image, in their order; [] where hashes of literals do not
    tell whether rows are equal."""
    columns = table.definition.columns
    if {columns[name].value_class for name in table.key} != {ValueClass.INTEGER} or table.missing:
        return []
    written = [literal(columns[name], ACTUAL) for name in table.columns]
    return [one for one in written if one is not None] if None not in written else []


def literals_query(literals: Sequence[str], rows: str) -> str:
    """Writes the query of the target's fingerprint.  rows: its FROM and WHERE."""
    return fingerprint_query(literals, rows, separator=_SEPARATOR)


def fingerprints(rows: pa.Table, cuts: Mapping[int, Sequence[int]]) -> Iterator[tuple[int, list[Fingerprint]]]:
    """Gives the fingerprints of the parts of tables from their folded steps (HASHED_SCHEMA), by the tables' numbers; of
    tables without steps, none.  cuts: by number, values of the first key column up to which each part but the last
    reaches.  A key in another spelling makes every part of its table differ.
    """
    for number, of_table in by_table(rows):
        there, table_cuts = of_table.filter(pc.is_valid(of_table["image"])), cuts[number]
        if not pc.all(pc.match_substring_regex(of_table["key"], _KEY)).as_py():
            yield number, [_UNTOLD] * (len(table_cuts) + 1)
        elif not table_cuts:
            yield number, [_fingerprint(there["image"].to_numpy())]
        else:
            yield number, _of_parts(there, there["image"].to_numpy(), table_cuts)


def _of_parts(rows: pa.Table, hashes: np.ndarray, cuts: Sequence[int]) -> list[Fingerprint]:
    numbers, is_anywhere = numbers_of(rows)
    if is_anywhere.any():
        return [_UNTOLD] * (len(cuts) + 1)
    places = np.searchsorted(np.array(cuts, np.int64), numbers, "left")
    order = np.argsort(places, kind="stable")
    bounds = np.searchsorted(places[order], np.arange(len(cuts) + 2)).tolist()
    return [_fingerprint(hashes[order[start:end]]) for start, end in pairwise(bounds)]


def _fingerprint(hashes: np.ndarray) -> Fingerprint:
    high, low = (hashes >> np.uint64(32)).sum(), (hashes & np.uint64(0xFFFFFFFF)).sum()
    return Fingerprint(len(hashes), len(hashes), (int(high) << 32) + int(low))


def hashed(steps: pa.Table) -> pa.Table:
    """Gives steps (STEP_SCHEMA) of rows with a key the hashes of their images (HASHED_SCHEMA), null when the row
    goes: to move and sort images takes longer than to hash them."""
    images = whole(steps["image"])
    hashes = pa.array(text_hashes(images), mask=~to_numpy(images.is_valid()))
    return pa.Table.from_arrays([*(steps[name] for name in _KEPT), hashes], schema=HASHED_SCHEMA)


def text_hashes(texts: pa.Array) -> npt.NDArray[np.uint64]:
    """Gives the first 64 bits of the MD5 of each text (large strings); of nulls nothing that means something."""
    offsets, data = buffers_of(texts)
    view = memoryview(data)
    digests = [md5(view[at:end], usedforsecurity=False).digest() for at, end in pairwise(offsets.tolist())]
    return np.frombuffer(b"".join(digests), ">u8")[::2].astype(np.uint64)
