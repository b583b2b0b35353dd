"""The compiled functions, as Python calls them."""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bridge.protocols.fast.compiled.codes import PLACE_NUMBERS
from bridge.protocols.fast.compiled.native_code import loaded_functions


class _Takes(NamedTuple):
    """What an argument is: an array of such items, with so many columns; one column is one dimension."""

    item: npt.DTypeLike
    columns: int = 1


_BYTES: Final = _Takes(np.uint8)
_NUMBERS: Final = _Takes(np.int64)
_ROW: Final = _Takes(np.int32)


def _rows(columns: int) -> _Takes:
    return _Takes(np.int32, columns)


def _table(columns: int) -> _Takes:
    return _Takes(np.int64, columns)


class _Function:
    """A compiled function.

    It takes arrays, of which it gets the addresses, and numbers (None in `takes`).  Other threads go on while it runs.
    """

    def __init__(self, name: str, *takes: _Takes | None) -> None:
        self._name = name
        self._takes = takes

    def __call__(self, *arguments: Any) -> tuple[int, int]:
        """Gives two numbers; a function that has only one gives 0 as the second.

        Raises TypeError for an array of another kind, since compiled functions check nothing.
        """
        given = (ctypes.c_int64 * 2)()
        error = ctypes.c_void_p()
        words = [self._word(takes, one) for takes, one in zip(self._takes, arguments, strict=True)]
        if self._call(given, ctypes.byref(error), *words):
            raise RuntimeError(f"the compiled function {self._name} failed")
        return given[0], given[1]

    @cached_property
    def _call(self) -> Any:
        address = loaded_functions().get_function_address(self._name)
        words = [ctypes.c_int64] * len(self._takes)
        return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *words)(address)

    def _word(self, takes: _Takes | None, argument: Any) -> int:
        if takes is None:
            return int(argument)
        shape = argument.shape[1:] if takes.columns > 1 else (takes.columns,)
        is_such = argument.ndim == min(takes.columns, 2) and shape == (takes.columns,)
        if argument.dtype != takes.item or not is_such or not argument.flags.c_contiguous:
            raise TypeError(f"an argument of {self._name} is {argument.dtype}{argument.shape}, not {takes}")
        return int(argument.ctypes.data)


split: Final = _Function("split", _BYTES, _NUMBERS, _NUMBERS, None, _table(4), _NUMBERS)
fill_slots: Final = _Function("fill_slots", _BYTES, _rows(2), None, None, _ROW, None)
walk: Final = _Function(
    "walk", _BYTES, _NUMBERS, _NUMBERS, _NUMBERS, None, _ROW, _rows(5), _rows(2), _rows(4), _BYTES, _rows(2), _ROW,
    _NUMBERS, _rows(3), _NUMBERS, _rows(2), _table(2), _table(PLACE_NUMBERS),
)  # fmt: skip
write_images: Final = _Function(
    "write_images", None, _BYTES, None, _ROW, _rows(5), _rows(2), _rows(4), _rows(3), _NUMBERS, _ROW, _NUMBERS, _BYTES,
    _BYTES, _BYTES, _ROW,
)  # fmt: skip
convert_images: Final = _Function(
    "convert_images", _BYTES, _NUMBERS, _BYTES, None, _NUMBERS, _NUMBERS, _rows(3), _BYTES, _BYTES, _NUMBERS, _table(4)
)
fit_images: Final = _Function(
    "fit_images", _BYTES, _NUMBERS, _NUMBERS, _NUMBERS, _BYTES, None, _NUMBERS, _NUMBERS, _rows(2), _NUMBERS
)
sum_texts: Final = _Function("sum_texts", _BYTES, _NUMBERS, None, None, _NUMBERS)
copy_texts: Final = _Function("copy_texts", _NUMBERS, _NUMBERS, None, None, _BYTES)
find_zeros: Final = _Function("find_zeros", _BYTES, None, None, None, _NUMBERS)
sum_kinds: Final = _Function("sum_kinds", _BYTES, _NUMBERS, _NUMBERS, None, _NUMBERS, _NUMBERS, None, _NUMBERS)
write_places: Final = _Function("write_places", _ROW, None, _ROW, _rows(3), _BYTES, _table(PLACE_NUMBERS), _BYTES, _ROW)
count_spaced: Final = _Function("count_spaced", _BYTES, _NUMBERS, None)
compact_texts: Final = _Function("compact_texts", _BYTES, _NUMBERS, None, _BYTES, _NUMBERS)
write_json: Final = _Function(
    "write_json", _BYTES, _NUMBERS, _NUMBERS, _NUMBERS, None, _ROW, _rows(3), _BYTES, _BYTES, _NUMBERS
)
