"""Chunks take about the time they are given."""

from __future__ import annotations

from bridge.verify.compare.key_ranges import ChunkSize


def test_chunks_grow_and_shrink_to_their_time() -> None:
    """By a factor of 4 at most, since one slow query says little."""
    size = ChunkSize(0.5)
    size.took(0.001)
    assert size.rows == 40_000
    size.took(0.4)
    assert size.rows == 50_000
    size.took(60)
    assert size.rows == 12_500


def test_a_steady_server_is_met_exactly() -> None:
    """At 100,000 rows/s half a second is 50,000 rows."""
    size = ChunkSize(0.5)
    for _ in range(10):
        size.took(size.rows / 100_000)
    assert size.rows == 50_000
