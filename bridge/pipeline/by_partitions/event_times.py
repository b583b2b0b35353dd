"""Event times, by which rows without a commit ts are compared with the beginning of a pipeline."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from bridge.tso import TSO_LOGICAL_BITS

_SECOND_MS: Final = 1000


def last_ms(event_times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Gives the last millisecond that each event time (TSO) may mean: a whole second means all of it, since MySQL's
    binlog has no other times.  So what may lie behind the beginning is applied, not dropped."""
    times = pc.shift_right(event_times, TSO_LOGICAL_BITS)
    seconds = pc.multiply(pc.divide(times, _SECOND_MS), _SECOND_MS)
    return pc.if_else(pc.equal(times, seconds), pc.add(times, _SECOND_MS - 1), times)
