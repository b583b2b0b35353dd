"""Chunks take about the time they are given."""

from __future__ import annotations

from bridge.verify.compare.chunk_size import Pace


def test_chunks_grow_and_shrink_to_their_time() -> None:
    """By a factor of 4 at most, since one slow query says little."""
    pace = Pace(0.5, 10_000)
    pace.took(0.001)
    assert pace.rows == 40_000
    pace.took(0.4)
    assert pace.rows == 50_000
    pace.took(60)
    assert pace.rows == 12_500


def test_a_steady_server_is_met_exactly() -> None:
    """At 100,000 rows/s half a second is 50,000 rows."""
    pace = Pace(0.5, 1_000)
    for _ in range(10):
        pace.took(pace.rows / 100_000)
    assert pace.rows == 50_000
