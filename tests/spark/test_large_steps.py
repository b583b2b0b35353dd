"""Who writes large steps."""

from __future__ import annotations

import pytest

from bridge.spark.kept_rows.large_steps import DRIVER_WRITES, LargeSteps


@pytest.mark.parametrize(
    ("rule", "slots", "writers"),
    [
        (DRIVER_WRITES, 64, 0),
        (LargeSteps(2), 64, 0),
        (LargeSteps(64), 2, 0),
        (LargeSteps(64), 0, 0),
        (LargeSteps(8), 64, 8),
        (LargeSteps(64), 16, 16),
    ],
)
def test_executors_write_where_many_can(rule: LargeSteps, slots: int, writers: int) -> None:
    """Few are slower than the driver, which has nothing to divide."""
    assert rule.writers(slots) == writers
