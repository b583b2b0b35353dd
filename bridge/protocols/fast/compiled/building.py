"""Compiles the functions with Numba, and makes object code of them, which needs no Numba any more."""

from __future__ import annotations

from typing import Any, Final

import llvmlite.binding as llvm

from bridge.protocols.fast.compiled.avro import write_json
from bridge.protocols.fast.compiled.converting import convert_images, fit_images
from bridge.protocols.fast.compiled.json_text import compact_texts, count_spaced
from bridge.protocols.fast.compiled.machine_bytes import module_of
from bridge.protocols.fast.compiled.searching import find_zeros, split, sum_kinds, sum_texts
from bridge.protocols.fast.compiled.walk import fill_slots, walk
from bridge.protocols.fast.compiled.writing import copy_texts, write_images, write_places

_ENTRIES: Final[tuple[Any, ...]] = (
    *(split, fill_slots, walk, write_images, convert_images, fit_images, sum_texts, copy_texts, find_zeros, sum_kinds),
    *(write_places, count_spaced, compact_texts, write_json),
)


def object_code(machine: Any) -> bytes:
    """Gives the object code of all functions for a machine, in which each has its own name.

    A function takes the address of room for two numbers, that of room for a pointer, and its arguments, of 64 bits
    each.  It writes what it gives to the first, and gives 0 (Numba, notes on its calling convention).
    Raises RuntimeError for a function that needs something of Numba when it runs.
    """
    whole = llvm.parse_assembly("")
    for entry in _ENTRIES:
        name, module = entry.py_func.__name__, llvm.parse_assembly(module_of(entry))
        (function,) = (
            one for one in module.functions if one.linkage == llvm.Linkage.external and not one.is_declaration
        )
        function.name = name
        needed = [one.name for one in module.functions if one.is_declaration and not one.name.startswith("llvm.")]
        if needed:
            raise RuntimeError(f"the compiled function {name} needs {', '.join(needed)}")
        whole.link_in(module)
    return bytes(machine.emit_object(whole))
