"""Compiles functions over raw bytes with Numba, and gives them eight bytes at a time.

To pass an array from one compiled function to another costs more than the loops in them, so these functions take
`Bytes`, the address of the first byte (measured: the walk takes half the time).  Nothing checks their bounds: a caller
must own some bytes (`texts.BEHIND`) behind the last one that a function may look at.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

Bytes = Any
"""The address of bytes in a compiled function: `text[at]` is one of them."""
Function = TypeVar("Function", bound=Callable[..., Any])
_njit: Final[Any] = numba.njit
_intrinsic: Final[Any] = intrinsic
_make_array: Final[Any] = make_array
_populate_array: Final[Any] = populate_array
_raw_memcpy: Final[Any] = cgutils.raw_memcpy
_BARE: Final[dict[str, Any]] = {"_nrt": False, "error_model": "numpy"}
"""Functions allocate nothing and raise nothing, so that they can do without Numba when they run."""
_NUMBER: Final = numba.types.int64
_POINTER, _ROW, _NUMBERS_POINTER = (
    numba.types.CPointer(of)  # type: ignore[no-untyped-call]
    for of in (numba.types.uint8, numba.types.int32, numba.types.int64)
)
_U64: Final = np.uint64
_LOWS: Final = _U64(0x0101010101010101)
_HIGHS: Final = _U64(0x8080808080808080)
_NUMBERS: Final = _U64(0x0001020304050607)
_LOWER_BITS: Final = _U64(0x7F7F7F7F7F7F7F7F)


def inner(function: Function) -> Function:
    """Compiles a function that only compiled functions call."""
    made: Any = _njit(**_BARE)(function)
    return cast(Function, made)


def entry(function: Function) -> Function:
    """Marks a function that Python calls, with numbers and addresses (`functions`), and that gives one or two numbers.
    It is compiled by `module_of`."""
    made: Any = _njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_BARE)(function)
    return cast(Function, made)


def module_of(entry_function: Any) -> str:
    """Compiles a function that Python calls, and gives its module of LLVM."""
    takes = (_NUMBER,) * len(signature(entry_function.py_func).parameters)
    entry_function.compile(takes)
    return str(entry_function.inspect_llvm(takes))


def _pointer_at(pointer: Any) -> Any:
    def make_pointer(typing_context: Any, address: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.inttoptr(values[0], context.get_value_type(signature.return_type))

        return pointer(_NUMBER), generate

    return _intrinsic(make_pointer)


def _array_at(item: Any) -> Any:
    array = numba.types.Array(item, 2, "C")

    def make_table(typing_context: Any, address: Any, width: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
            made: Any = _make_array(array)(context, builder)
            kind = context.get_data_type(item)
            size, one = (context.get_constant(numba.types.intp, n) for n in (context.get_abi_sizeof(kind), 1))
            _populate_array(
                made,
                data=builder.inttoptr(values[0], kind.as_pointer()),
                shape=[one, values[1]],
                strides=[builder.mul(values[1], size), size],
                itemsize=size,
                meminfo=None,
            )
            return made._getvalue()

        return array(_NUMBER, _NUMBER), generate

    return _intrinsic(make_table)


def _read_word(typing_context: Any, text: Any, at: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        loaded = builder.load(_place_of_word(builder, *values))
        loaded.align = 1
        return loaded

    return numba.types.uint64(_POINTER, _NUMBER), generate


def _write_word(typing_context: Any, text: Any, at: Any, value: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        builder.store(values[2], _place_of_word(builder, *values[:2])).align = 1
        return context.get_dummy_value()

    return numba.types.void(_POINTER, _NUMBER, numba.types.uint64), generate


def _copy_bytes(typing_context: Any, text: Any, at: Any, size: Any, out: Any, to: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        text, at, size, out, to = values
        _raw_memcpy(builder, builder.gep(out, [to]), builder.gep(text, [at]), size, 1)
        return context.get_dummy_value()

    return numba.types.void(_POINTER, _NUMBER, _NUMBER, _POINTER, _NUMBER), generate


def _place_of_word(builder: Any, text: Any, at: Any) -> Any:
    return builder.bitcast(builder.gep(text, [at]), ir.IntType(64).as_pointer())


bytes_at: Final[Callable[[Any], Bytes]] = _pointer_at(_POINTER)
"""Makes Bytes of an address."""
row_at: Final[Callable[[Any], Any]] = _pointer_at(_ROW)
"""Makes a row of numbers of 32 bits of an address: `row[at]` is one of them."""
numbers_at: Final[Callable[[Any], Any]] = _pointer_at(_NUMBERS_POINTER)
"""Makes numbers of 64 bits of an address."""
rows_at: Final[Callable[[Any, Any], Any]] = _array_at(numba.types.int32)
"""Makes a table of numbers of 32 bits of an address and the number of its columns."""
long_rows_at: Final[Callable[[Any, Any], Any]] = _array_at(numba.types.int64)
"""Does the same for numbers of 64 bits."""
word: Final[Callable[[Bytes, Any], Any]] = _intrinsic(_read_word)
"""Reads the eight bytes at a place."""
put_word: Final[Callable[[Bytes, Any, Any], None]] = _intrinsic(_write_word)
"""Writes eight bytes to a place."""

copy_bytes: Final[Callable[[Bytes, Any, Any, Bytes, Any], None]] = _intrinsic(_copy_bytes)
"""Copies so many bytes of one text to a place of another one, and no byte more."""


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
def marked_zeros(eight: Any) -> Any:
    """Sets the highest bit of those of eight bytes that are 0, and no other bit."""
    return ~(((eight & _LOWER_BITS) + _LOWER_BITS) | eight | _LOWER_BITS)


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
