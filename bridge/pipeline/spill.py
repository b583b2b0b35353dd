"""Row changes that wait beyond what the driver's memory is to hold."""

from __future__ import annotations

import tempfile
from typing import Final

import pyarrow as pa

from bridge.rows.amount import Amount

MOST_IN_MEMORY: Final = Amount(500_000, 512 << 20)
"""About how many row changes, and bytes, wait in the driver's memory."""


def mapped(table: pa.Table) -> pa.Table:
    """Moves a table to an unlinked file that is mapped into memory, whose pages the kernel drops and reloads."""
    with tempfile.NamedTemporaryFile(suffix=".arrow") as file:
        with pa.ipc.new_file(file.name, table.schema) as writer:
            writer.write_table(table)
        return pa.ipc.open_file(pa.memory_map(file.name)).read_all()
