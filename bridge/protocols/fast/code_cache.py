"""Tells where compiled functions are kept, and whether all are there.

To load them takes half a second, and to compile them six, once for each user and version.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

from bridge.cache.folders import cache_folder, mark_used, remove_unused

_PREFIX: Final = "compiled-"
_UNUSED_SECONDS: Final = 30 * 86_400
"""After this, what is kept is of another version."""
_COMPLETE: Final = "complete"


@cache
def code_folder() -> Path:
    """Gives the folder: another one for every version of the functions, since Numba does not see when a function that
    another one calls has changed.  Raises RuntimeError for a user without a home."""
    files = sorted(Path(__file__).with_name("compiled").glob("*.py"))
    code = blake2b(b"".join(file.read_bytes() for file in files), digest_size=8)
    return cache_folder() / f"{_PREFIX}{code.hexdigest()}"


def are_compiled() -> bool:
    """Tells whether all functions are compiled."""
    with suppress(OSError, RuntimeError):
        return (code_folder() / _COMPLETE).exists()
    return False


def note_compiled() -> None:
    """Notes that all functions are compiled, and removes what no bridge has used for 30 days; a disk that takes nothing
    makes no difference."""
    with suppress(OSError, RuntimeError):
        (code_folder() / _COMPLETE).touch()
        mark_used(code_folder().name)
        remove_unused(_PREFIX, _UNUSED_SECONDS)
