"""Finds spellings: different literals that the server takes for one key, such as 'Alice' and 'ALICE' under a _ci
collation, 'b' and 'b ' under PAD SPACE, and texts that differ only after a key's prefix.

Only the server can tell which literals these are, and it is asked seldom.  One key can have two spellings only if the
row under the first one was deleted, or if rows that are gone upstream may stay (`Table.keeps_gone`), and most literals
cannot be equal by rules that all servers share.  Keys that a server takes for one have equal `signatures`, so that it
is only asked about keys with equal signatures:

* numbers, dates, bytes and ENUM or SET values: equal when they have the same value;
* texts of a _bin collation: equal apart from blanks at the end;
* texts of collations without rules of a language: printable ASCII, apart from its case and blanks at the end;
  a text with any other character may equal anything, as ss equals ß, e equals é, and some characters are ignored;
* all other texts, and keys that hold only the beginnings of columns: anything may equal anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from string import ascii_uppercase
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP
from bridge.model import Column, Table, TableName
from bridge.rows.arrow_images import TEXT, joined, parts_of
from bridge.rows.grouping import Bools, Longs
from bridge.rows.literal_offsets import to_numpy

Spellings = Mapping[str, str]
"""Maps keys (literals joined by SEP) to the one spelling that represents all that the server takes for one key.  Keys
with only one spelling are missing."""
SameKeys = Callable[[Table, tuple[str, ...], pa.Array], Spellings]
"""Asks the server which keys of a table it takes for one."""

_EXACT_TYPES: Final = frozenset(
    (
        *("tinyint", "smallint", "mediumint", "int", "bigint", "bit", "year", "enum", "set"),
        *("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
    )
)
_TEXT_TYPES: Final = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"))
_NUMBERS: Final = frozenset(("decimal", "float", "double"))
_MOMENTS: Final = frozenset(("date", "datetime", "timestamp", "time"))
_PLAIN: Final = re.compile(
    r"(?:ascii|latin1|utf8|utf8mb3|utf8mb4)_general_(?:nopad_)?(?:ci|cs)|latin1_swedish_(?:nopad_)?ci"
    r"|(?:utf8|utf8mb3|utf8mb4)_unicode_(?:520_)?(?:nopad_)?ci|utf8mb4_0900_(?:ai_ci|as_ci|as_cs)"
    r"|(?:utf8mb3|utf8mb4)_uca1400_(?:nopad_)?(?:ai|as)_(?:ci|cs)"
)
"""Collations without rules of a language: to them, texts of printable ASCII are equal only if they differ in case and
blanks alone.  (To gbk_chinese_ci, Y and ~ are equal, by an error in its table.)"""
_ODD: Final = r"[^ -~]|\\0|^x'"
"""Finds, in the literal of a text, a character beyond printable ASCII, or bytes."""
_QUOTE: Final = ord("'")
_BEFORE_A_QUOTE: Final = np.frombuffer(b" x", np.uint8)
"""The bytes before a quote where a text ends with a blank, or where bytes begin."""
_HAS_CASE: Final = np.ones(256, np.bool_)
"""Characters that a signature changes or cannot take as they are."""
_HAS_CASE[[ord(SEP), *(code for code in range(ord(" "), 127) if chr(code) not in "\\" + ascii_uppercase)]] = False
_MOMENT_END: Final = r"(?: 00:00:00)?(?:\.0*)?'$"
_ANYTHING: Final = ""


class _Equality(Enum):
    """Tells which literals are equal in one column of a key."""

    SAME = auto()
    BLANKS = auto()
    CASE = auto()
    NUMBER = auto()
    MOMENT = auto()
    NOTHING = auto()


def asks_nobody(table: Table, key: tuple[str, ...], literals: pa.Array) -> Spellings:
    """Answers that every key has one spelling."""
    del table, key, literals
    return {}


class KnownSpellings:
    """Repeats answers that the server gave before; it may be sent to another process."""

    def __init__(self, answers: Mapping[TableName, Spellings]) -> None:
        self._answers = answers

    def __call__(self, table: Table, key: tuple[str, ...], literals: pa.Array) -> Spellings:
        """Answers as `SameKeys` does."""
        del key, literals
        return self.of(table)

    def of(self, table: Table) -> Spellings:
        """Gives the answer for one table."""
        return self._answers.get(table.name, {})


def respelled(keys: pa.Array, same: Spellings) -> pa.Array:
    """Gives the keys, each in the spelling that represents it."""
    if not same:
        return keys
    known = keys.dictionary_encode()
    return pa.array([same.get(key, key) for key in known.dictionary.to_pylist()], keys.type).take(known.indices)


def is_exact(table: Table, key: tuple[str, ...]) -> bool:
    """Tells whether equal keys always have equal literals."""
    return all(one is _Equality.SAME for one in _equalities(table, key))


def is_nearly_exact(table: Table, key: tuple[str, ...]) -> bool:
    """Tells whether equal keys have equal literals, apart from differences that can be found without the server."""
    return all(one in {_Equality.SAME, _Equality.BLANKS} for one in _equalities(table, key))


def is_alone(table: Table) -> bool:
    """Tells whether rows of different keys have nothing to do with each other: no unique value moves from one to
    another, and equal keys have equal literals."""
    return len(table.uniques) <= 1 and not table.writes_anew and all(is_exact(table, key) for key in table.keys)


def spellings(table: Table, key: tuple[str, ...], literals: pa.Array, goes: Bools, same_keys: SameKeys) -> Spellings:
    """Finds the keys that the server takes for one.  literals: keys, with repetitions.  goes: whether the key's row
    goes away."""
    goes = goes | table.keeps_gone
    if not goes.any() or is_exact(table, key) or _are_plain(_equalities(table, key), literals):
        return {}
    known = literals.dictionary_encode()
    went = np.zeros(len(known.dictionary), np.bool_)
    went[known.indices.to_numpy()[goes]] = True
    suspects = known.dictionary.filter(pa.array(_suspected(signatures(table, key, known.dictionary), went)))
    return same_keys(table, key, suspects) if len(suspects) > 1 else {}


def _are_plain(equalities: Sequence[_Equality], literals: pa.Array) -> bool:
    """Tells whether the signatures of such keys are the literals themselves; in rare cases it says no although they
    are."""
    if not set(equalities) <= {_Equality.SAME, _Equality.BLANKS, _Equality.CASE}:
        return False
    offsets = np.frombuffer(literals.buffers()[1], np.int64)[literals.offset : literals.offset + len(literals) + 1]
    characters = np.frombuffer(literals.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    quotes = np.flatnonzero(characters[1:] == _QUOTE)
    if np.isin(characters[quotes], _BEFORE_A_QUOTE).any():
        return False
    return _Equality.CASE not in equalities or not _HAS_CASE[characters].any()


def _suspected(found: pa.Array, went: Bools) -> Bools:
    """Tells which keys share a signature with another key, where the row of one of them went away.  `_ANYTHING` equals
    every signature."""
    codes: Longs = found.dictionary_encode().indices.to_numpy()
    counts, goings = np.bincount(codes), np.bincount(codes, weights=went)
    suspected: Bools = (counts[codes] > 1) & (goings[codes] > 0)
    odd = to_numpy(pc.equal(found, _ANYTHING))
    if odd.any():
        suspected |= odd | went
        if (odd & went).any():
            suspected[:] = True
    return suspected


def signatures(table: Table, key: tuple[str, ...], literals: pa.Array) -> pa.Array:
    """Gives texts that are equal for keys that a server may take for one; "" for a key that may equal any other."""
    equalities = _equalities(table, key)
    parts = [literals] if len(key) == 1 else parts_of(literals, range(len(key)))
    found = [_signature(equality, part) for equality, part in zip(equalities, parts, strict=True)]
    is_odd = pc.equal(found[0], _ANYTHING)
    for one in found[1:]:
        is_odd = pc.or_(is_odd, pc.equal(one, _ANYTHING))
    return pc.if_else(is_odd, pa.scalar(_ANYTHING, TEXT), joined(found))


def _signature(equality: _Equality, literals: pa.Array) -> pa.Array:
    if equality is _Equality.NOTHING:
        return pa.repeat(pa.scalar(_ANYTHING, TEXT), len(literals))
    if equality is _Equality.NUMBER:
        return _numbers(literals)
    if equality is _Equality.MOMENT:
        return pc.replace_substring_regex(literals, _MOMENT_END, "'")
    if equality is _Equality.SAME:
        return literals
    plain = pc.replace_substring_regex(literals, " +'$", "'")
    if equality is _Equality.BLANKS:
        return pc.if_else(pc.starts_with(literals, "x'"), pa.scalar(_ANYTHING, TEXT), plain)
    is_odd = pc.match_substring_regex(literals, _ODD)
    return pc.if_else(is_odd, pa.scalar(_ANYTHING, TEXT), pc.ascii_lower(plain))


def _numbers(literals: pa.Array) -> pa.Array:
    """Reads numbers as 64-bit floats: equal numbers stay equal, and others may become equal."""
    is_number = pc.match_substring_regex(literals, r"^-?[0-9.]+(?:e[-+]?[0-9]+)?$")
    values = pc.cast(pc.if_else(is_number, literals, None), pa.float64())
    same = pc.cast(pc.add(values, 0.0), TEXT)  # 0, not -0
    return pc.coalesce(same, pa.scalar(_ANYTHING, TEXT))


def _equalities(table: Table, key: tuple[str, ...]) -> list[_Equality]:
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
        return _Equality.NOTHING
    if word in _EXACT_TYPES:
        return _Equality.SAME
    if word in _NUMBERS:
        return _Equality.NUMBER
    if word in _MOMENTS:
        return _Equality.MOMENT
    if not is_text(column):
        return _Equality.NOTHING
    collation = (column.collation or "").lower()
    if collation.endswith("_bin"):
        return _Equality.BLANKS
    return _Equality.CASE if _PLAIN.fullmatch(collation) else _Equality.NOTHING
