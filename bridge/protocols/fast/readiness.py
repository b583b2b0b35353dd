"""Tells when the compiled functions pay."""

from __future__ import annotations

import sys
from functools import cache
from threading import Thread
from typing import Final

_MANY: Final = 512
"""From this many messages or rows on, to handle them together costs less than one by one."""
_WORTH_LOADING, _WORTH_COMPILING = 8_000, 500_000
"""After so many, to have loaded the compiled functions, or to have compiled them, would have cost less than to do
without them did."""
_FUNCTIONS: Final = "bridge.protocols.fast.compiled.functions"


class Readiness:
    """Counts what could have been handled by compiled functions."""

    def __init__(self) -> None:
        self._count = 0

    def pays(self, size: int) -> bool:
        """Tells whether so many messages or rows should be handled by compiled functions: these are loaded, or should
        be now."""
        if size < _MANY:
            return False
        self._count += size
        if _FUNCTIONS in sys.modules:
            return True
        if self._count <= _WORTH_LOADING:
            return False
        from bridge.protocols.fast.compiled.native_code import are_compiled

        return are_compiled() or (self._count > _WORTH_COMPILING and not _compiling().is_alive())


@cache
def _compiling() -> Thread:
    """Compiles the functions beside what goes on without them: it takes 12 s, and minutes on a busy machine."""
    from bridge.protocols.fast.compiled.native_code import loaded_functions

    thread = Thread(target=loaded_functions, name="compiling", daemon=True)
    thread.start()
    return thread
