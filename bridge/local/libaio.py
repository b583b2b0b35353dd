"""Writes an empty libaio: MySQL's server is linked to that library, but calls it only when told to use native I/O.

It is written here because installing Debian's package needs root, and other systems give it other names.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

NAME: Final = "libaio.so.1"
HEADER_BYTES: Final = 64
PROGRAM_BYTES: Final = 56
SYMBOL_BYTES: Final = 24
READ_WRITE: Final = 6


def write_libaio(folder: Path) -> None:
    """Writes a shared library of that name, without any symbol, into `folder`; for Linux on x86-64."""
    (folder / NAME).write_bytes(empty_library(NAME.encode()))


def empty_library(name: bytes) -> bytes:
    """Makes the smallest library that the dynamic linker accepts (elf(5)): ELFCLASS64 with two program headers."""
    hashes = struct.pack("<4I", 1, 1, 0, 0)  # one bucket, one symbol: the first one, which is always undefined
    names = b"\0" + name + b"\0"
    hashes_at = HEADER_BYTES + 2 * PROGRAM_BYTES
    symbols_at = hashes_at + len(hashes)
    names_at = symbols_at + SYMBOL_BYTES
    dynamic_at = -(-(names_at + len(names)) // 8) * 8
    dynamic = _dynamic(hashes_at, symbols_at, names_at, len(names))
    size = dynamic_at + len(dynamic)
    headers = (
        _header(),
        struct.pack("<IIQQQQQQ", 1, READ_WRITE, 0, 0, 0, size, size, 4096),  # PT_LOAD
        struct.pack("<IIQQQQQQ", 2, READ_WRITE, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8),
    )
    return b"".join((*headers, hashes, bytes(SYMBOL_BYTES), names)).ljust(dynamic_at, b"\0") + dynamic


def _header() -> bytes:
    """Makes the file header: ET_DYN for EM_X86_64, the program headers right after it, no sections."""
    identity = b"\x7fELF\x02\x01\x01"
    sizes = (HEADER_BYTES, PROGRAM_BYTES, 2, 0, 0, 0)
    return struct.pack("<16sHHIQQQI6H", identity, 3, 62, 1, 0, HEADER_BYTES, 0, 0, *sizes)


def _dynamic(hashes_at: int, symbols_at: int, names_at: int, names_bytes: int) -> bytes:
    """Makes the dynamic section: DT_SONAME, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_NULL."""
    tags = ((14, 1), (4, hashes_at), (5, names_at), (6, symbols_at), (10, names_bytes), (11, SYMBOL_BYTES), (0, 0))
    return b"".join(struct.pack("<2Q", *tag) for tag in tags)
