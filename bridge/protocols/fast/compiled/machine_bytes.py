"""Compiles functions over raw bytes with Numba, and gives them eight bytes at a time.

To pass an array from one compiled function to another costs more than the loops in them, so these functions take
`Bytes`, the address of the first byte (measured: the walk takes half the time).  Nothing checks their bounds: a caller
must own some bytes (`texts.BEHIND`) behind the last one that a function may look at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import config
from numba.extending import intrinsic

from bridge.protocols.fast.code_cache import code_folder

ADDRESS, NUMBER, NUMBERS, TABLE, ROW, ROWS = (
    "uint64",
    "int64",
    "int64[::1]",
    "int64[:, ::1]",
    "int32[::1]",
    "int32[:, ::1]",
)
"""Types of arguments: the address of bytes; a number; arrays of numbers of 64 and of 32 bits."""
Bytes = Any
"""The address of bytes in a compiled function: `text[at]` is one of them."""
Function = TypeVar("Function", bound=Callable[..., Any])
_POINTER: Final[Any] = numba.types.CPointer(numba.types.uint8)  # type: ignore[no-untyped-call]
_U64: Final = np.uint64
_LOWS: Final = _U64(0x0101010101010101)
_HIGHS: Final = _U64(0x8080808080808080)
_NUMBERS: Final = _U64(0x0001020304050607)


def _prepare_cache() -> bool:
    """Tells whether what is compiled can be kept."""
    try:
        code_folder().mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # a read-only disk, or nobody's home
        return False
    config.CACHE_DIR = str(code_folder())  # type: ignore[attr-defined]
    return True


_IS_KEPT: Final = _prepare_cache()


def inner(function: Function) -> Function:
    """Compiles a function that only compiled functions call."""
    made: Any = numba.njit(function)
    return cast(Function, made)


def entry(*takes: str) -> Callable[[Function], Function]:
    """Compiles a function that Python calls, at once; other threads go on while it runs.

    takes: the types of its arguments.  It gives one number, or two.
    """

    def compiled(function: Function) -> Function:
        made: Any = numba.njit([f"({', '.join(takes)})"], cache=_IS_KEPT, nogil=True)(function)
        return cast(Function, made)

    return compiled


def _intrinsic(generator: Any) -> Any:
    return intrinsic(generator)


def address_of(array: np.ndarray[Any, Any]) -> np.uint64:
    """Gives the address of an array's first byte, which is valid as long as the array lives."""
    return np.uint64(array.ctypes.data)


def _make_pointer(typing_context: Any, address: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(signature.return_type))

    return _POINTER(numba.types.uint64), generate


def _read_word(typing_context: Any, text: Any, at: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        loaded = builder.load(_place_of_word(builder, *values))
        loaded.align = 1
        return loaded

    return numba.types.uint64(_POINTER, numba.types.int64), generate


def _write_word(typing_context: Any, text: Any, at: Any, value: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        builder.store(values[2], _place_of_word(builder, *values[:2])).align = 1
        return context.get_dummy_value()

    return numba.types.void(_POINTER, numba.types.int64, numba.types.uint64), generate


def _place_of_word(builder: Any, text: Any, at: Any) -> Any:
    return builder.bitcast(builder.gep(text, [at]), ir.IntType(64).as_pointer())


bytes_at: Final[Callable[[Any], Bytes]] = _intrinsic(_make_pointer)
"""Makes Bytes of an address."""
word: Final[Callable[[Bytes, Any], Any]] = _intrinsic(_read_word)
"""Reads the eight bytes at a place."""
put_word: Final[Callable[[Bytes, Any, Any], None]] = _intrinsic(_write_word)
"""Writes eight bytes to a place."""


def in_all(character: bytes) -> np.uint64:
    """Gives a word of eight times the same character."""
    return np.uint64(int.from_bytes(character * 8, "little"))


@inner
def marked(eight: Any, in_all_bytes: Any) -> Any:
    """Sets the highest bit of those of eight bytes that are a character, given as `in_all`.  Bits behind the first one
    may be wrong (Hacker's Delight, Find First 0-Byte)."""
    other = eight ^ in_all_bytes
    return (other - _LOWS) & ~other & _HIGHS


@inner
def marked_below(eight: Any, in_all_bytes: Any) -> Any:
    """Does the same for bytes below a character, and for those that are not ASCII."""
    return ((eight - in_all_bytes) | eight) & _HIGHS


@inner
def first_of(marks: Any) -> Any:
    """Gives the number of the first byte that is marked."""
    lowest = marks & (~marks + _U64(1))
    return np.int64(((lowest >> _U64(7)) * _NUMBERS) >> _U64(56))


@inner
def first_bytes(eight: Any, size: Any) -> Any:
    """Keeps the first of eight bytes, fewer than eight."""
    return eight & ((_U64(1) << _U64(8 * size)) - _U64(1))


@inner
def same(text: Bytes, at: Any, other: Bytes, start: Any, size: Any) -> Any:
    """Tells whether so many bytes are the same in two texts."""
    while size >= 8:
        if word(text, at) != word(other, start):
            return False
        at, start, size = at + 8, start + 8, size - 8
    return first_bytes(word(text, at) ^ word(other, start), size) == _U64(0)


@inner
def copied(text: Bytes, at: Any, end: Any, out: Bytes, to: Any) -> Any:
    """Copies bytes, and up to seven more behind them; gives where the copy ends."""
    behind = to + end - at
    while to < behind:
        put_word(out, to, word(text, at))
        at, to = at + 8, to + 8
    return behind
