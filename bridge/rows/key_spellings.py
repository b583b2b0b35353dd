"""Tells whether equal keys have equal literals on every server, and refuses rows that two spellings make one.

Others are keys that a server takes for one although they are spelled otherwise, such as 'Alice' and 'ALICE' under a _ci
collation, 'b' and 'b ' under PAD SPACE, and texts that differ only after a key's prefix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.ddl.collation_tables import OLD_COLLATIONS
from bridge.errors import ApplyError
from bridge.events import Kind
from bridge.model import Column, Table, TableName
from bridge.rows.gathering import first_and_last
from bridge.rows.key_steps import ShapedRows, Steps
from bridge.rows.literal_offsets import joined, parts_of

_EXACT_TYPES: Final = frozenset(
    (
        *("tinyint", "smallint", "mediumint", "int", "bigint", "bit", "year", "enum", "set"),
        *("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
    )
)
_TEXT_TYPES: Final = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"))
_MOMENTS: Final = frozenset(("date", "datetime", "timestamp", "time"))
_PLAIN: Final = re.compile(
    r"(?:ascii|latin1|utf8|utf8mb3|utf8mb4)_general_(?:nopad_)?(?:ci|cs)|latin1_swedish_(?:nopad_)?ci"
    r"|(?:utf8|utf8mb3|utf8mb4)_unicode_(?:520_)?(?:nopad_)?ci|utf8mb4_0900_(?:ai_ci|as_ci|as_cs)"
    r"|(?:utf8mb3|utf8mb4)_uca1400_(?:nopad_)?(?:ai|as)_(?:ci|cs)"
)
"""Collations without rules of a language: to them, texts of printable ASCII and Han (U+4E00 to U+9FA5) are equal only
if they differ in case and blanks alone.  (To gbk_chinese_ci, Y and ~ are equal, by an error in its table.)"""
_BLANK_AT_THE_END: Final = r" '$|^x'"
"""Finds, in the literal of a text, a blank at the end, or bytes."""
_ODD: Final = r"[^ -~\x{4E00}-\x{9FA5}]|\\0| '$|^x'"
"""Finds the same, or a character beyond printable ASCII and Han: ss equals ß, e equals é, and some are ignored."""


class _Equality(Enum):
    """Tells which literals are equal in one column of a key."""

    SAME = auto()
    BLANKS = auto()
    CASE = auto()
    MOMENT = auto()
    UNKNOWN = auto()


def is_exact(table: Table, key: tuple[str, ...]) -> bool:
    """Tells whether equal keys always have equal literals."""
    return all(equality is _Equality.SAME for equality in _equalities(table, key))


def is_alone(table: Table) -> bool:
    """Tells whether rows of different keys have nothing to do with each other: no unique value moves from one to
    another, and equal keys have equal literals."""
    return len(table.uniques) <= 1 and not table.writes_anew and all(is_exact(table, key) for key in table.keys)


def are_plain(table: Table, key: tuple[str, ...], keys: pa.Array) -> bool:
    """Tells whether no two of these keys (literals joined by SEP) are one to any server, but those that are the same.
    In rare cases it says no although that is so."""
    equalities = _equalities(table, key)
    parts = [keys] if len(key) == 1 else parts_of(keys, range(len(key)))
    return len(keys) == 0 or all(map(_is_plain, equalities, parts))


def _is_plain(equality: _Equality, literals: pa.Array) -> bool:
    match equality:
        case _Equality.SAME:
            return True
        case _Equality.BLANKS:
            return not _any_matches(literals, _BLANK_AT_THE_END)
        case _Equality.CASE:
            folded = pc.ascii_lower(literals)
            are_alone = folded.equals(literals) or pc.count_distinct(literals) == pc.count_distinct(folded)
            return are_alone and not _any_matches(literals, _ODD)
        case _Equality.MOMENT:
            lengths = pc.min_max(pc.binary_length(literals))
            return bool(lengths["min"].as_py() == lengths["max"].as_py())
        case _Equality.UNKNOWN:
            return False


def _any_matches(literals: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(literals, pattern)).as_py())


def folded_keys(table: Table, key: tuple[str, ...], keys: pa.Array) -> pa.Array:
    """Gives the keys so that those which differ only in the case of ASCII letters and in blanks at the end are equal,
    where the key's collations do not tell them apart.  Others that a server takes for one stay different."""
    parts = [keys] if len(key) == 1 else parts_of(keys, range(len(key)))
    return joined([_folded(table.columns[name], part) for name, part in zip(key, parts, strict=True)])


def _folded(column: Column, literals: pa.Array) -> pa.Array:
    collation = (column.collation or "").lower()
    if not is_text(column) or "nopad" in collation or "0900" in collation:
        return literals
    plain = pc.replace_substring_regex(literals, " +'$", "'")
    return pc.ascii_lower(plain) if collation.endswith("_ci") else plain


def _equalities(table: Table, key: tuple[str, ...]) -> Sequence[_Equality]:
    lengths = table.prefixes.get(key, (None,) * len(key))
    return [_equality(table.columns[part], length) for part, length in zip(key, lengths, strict=True)]


def is_text(column: Column) -> bool:
    """Tells whether a column holds texts, which its collation compares."""
    return _word(column) in _TEXT_TYPES


def _word(column: Column) -> str:
    return column.type.split("(")[0].split(" ")[0]


def _equality(column: Column, length: int | None) -> _Equality:
    word = _word(column)
    if length is not None:
        return _Equality.UNKNOWN
    if word in _EXACT_TYPES:
        return _Equality.SAME
    if word in _MOMENTS:
        return _Equality.MOMENT
    if not is_text(column):
        return _Equality.UNKNOWN
    collation = (column.collation or "").lower()
    if collation.endswith("_bin"):
        return _Equality.BLANKS
    return _Equality.CASE if _PLAIN.fullmatch(collation) else _Equality.UNKNOWN


_COMPARES_BYTES: Final = re.compile(r"utf8mb4_0900_bin|.*_nopad_bin|binary")
FIX: Final = f"{OLD_COLLATIONS}give the row on the target the key that the message has, and start again"


def spelled_texts(table: Table, unique: Sequence[str]) -> tuple[str, ...]:
    """Gives the columns of a unique key in which the target may take two spellings for one value."""
    columns = [(name, table.columns[name]) for name in unique if name]
    return tuple(
        name
        for name, column in columns
        if is_text(column) and not _COMPARES_BYTES.fullmatch((column.collation or "").lower())
    )


def is_guarded(table: Table, key: Sequence[str]) -> bool:
    """Tells whether rows of a table may only overwrite rows whose key is spelled the same."""
    return table.guards_spelling and bool(spelled_texts(table, key))


def expected_keys(rows: ShapedRows, steps: Steps) -> Mapping[TableName, pa.Array]:
    """Gives, for guarded tables, the keys that a row of the target must have as they are spelled, if it is there at
    all: those that were not deleted first.  A table is left out if its updates do not tell the old key."""
    shapes = rows.shapes
    guarded = {
        name: numbers
        for name, numbers in rows.by_table.items()
        if (first := shapes[numbers[0]]).key and is_guarded(first.table, first.key)
    }
    if not guarded:
        return {}
    lacks_old_row = (rows.changes["kind"].to_numpy() == Kind.UPDATE) & ~rows.before.is_image
    hidden = {shapes[number].table.name for number in np.unique(rows.shape_of[lacks_old_row])}
    comes, _ = first_and_last(steps.number)
    comes = comes[steps.is_image[comes]]
    shape_of = rows.shape_of[steps.row[comes]]
    return {
        name: steps.key.take(pa.array(comes[np.isin(shape_of, numbers)]))
        for name, numbers in guarded.items()
        if name not in hidden
    }


def other_spelling(table: TableName, description: str, where: str) -> ApplyError:
    """Makes the error of a row that would overwrite one whose key is spelled otherwise.  description: of the rows."""
    return ApplyError(
        f"two rows of {table} are one to the target, as their keys differ only in the case of letters, in accents or in"
        f" blanks at the end: {description}; the upstream seems to compare bytes, as a TiDB does that was first started"
        " before version 6.0, or has sent again what it wrote before the key was spelled otherwise",
        where=where,
        fix=FIX,
    )
