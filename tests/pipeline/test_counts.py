"""What a pipeline counts."""

from __future__ import annotations

from bridge.pipeline.watching.counts import Counts


def test_rows_that_were_applied_before_spark_was_there_are_not_of_the_stream() -> None:
    """Reading may begin again while Spark is there: what was applied until then is of the stream."""
    counts = Counts()
    counts.note_applied(5, {}, ())
    assert counts.stream_rows == 5
    counts.spark_is_there()
    counts.note_applied(3, {}, ())
    counts.spark_is_there()
    assert (counts.rows, counts.stream_rows) == (8, 3)
