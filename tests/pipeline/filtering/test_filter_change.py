"""Where a pipeline reads again when its filters change."""

from __future__ import annotations

import orjson
import pytest

from bridge.model import PartitionStart
from bridge.pipeline.filtering.filter_change import behind_ms, sent_since, set_back
from bridge.protocols import DecodeOptions, make_decoder
from bridge.sources.source import Stamped
from bridge.tso import ms_tso
from tests.pipeline.test_bad_messages import watermark

NOON = 1_700_000_000_000


def test_the_moment_of_the_messages() -> None:
    """Ten minutes before the applied ts; never before 1970."""
    assert sent_since(ms_tso(NOON) + 7) == NOON - 600_000
    assert sent_since(0) == sent_since(7) == 0


def test_partitions_are_set_back() -> None:
    """Those alone that stand behind the moment; their boundary says no more than that it came before the moment, and
    what was read still counts as read."""
    late, early = PartitionStart(70, ms_tso(NOON), 90, None, 5), PartitionStart(20, ms_tso(NOON), 90)
    new = PartitionStart(30, 0, 30)
    positions = {("a", 0): late, ("a", 1): early, ("b", 0): new, ("b", 1): late}
    offsets = {("a", 0): 50, ("a", 1): 60, ("b", 0): 10}
    assert set_back(positions, NOON - 1, offsets) == {
        ("a", 0): PartitionStart(50, ms_tso(NOON - 1), 90, None, 5),
        ("a", 1): early,
        ("b", 0): PartitionStart(10, 0, 30),
        ("b", 1): late,
    }


@pytest.mark.parametrize(
    ("stamps", "behind"),
    [([0], 0), ([5], 0), ([-5_000], 5_000), ([5, -7_000, -3_000], 7_000), ([-NOON], 0), ([-NOON - 1], 0)],
)
def test_by_how_much_timestamps_are_behind(stamps: list[int], behind: int) -> None:
    """A message that tells of a later moment than its own stamp shows it; one without a stamp shows nothing."""
    value = orjson.dumps(watermark(ms_tso(NOON)))
    decoder = make_decoder("canal-json", DecodeOptions("UTC"))
    messages = [Stamped(NOON + stamp, None, value) for stamp in stamps]
    assert behind_ms(decoder, [*messages, Stamped(1, None, b"{"), Stamped(1, None, None)]) == behind
    assert sent_since(ms_tso(NOON), behind) == NOON - 600_000 - behind


def test_a_boundary_from_the_future_does_not_show_that_timestamps_are_behind() -> None:
    """It is in the quarantine; by it, everything would be read again, for a clock that is right."""
    decoder = make_decoder("canal-json", DecodeOptions("UTC"))
    values = [orjson.dumps(watermark(ts)) for ts in (ms_tso(NOON), ms_tso(4 * NOON))]
    assert behind_ms(decoder, [Stamped(NOON - 5, None, value) for value in values]) == 5
