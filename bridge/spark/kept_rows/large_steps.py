"""Tells who writes large steps with `parallel` consistency: the driver, or the executors that decoded them."""

from __future__ import annotations

from typing import Final, NamedTuple

from bridge.rows.amount import Amount

ENOUGH: Final = 8
"""From so many connections and task slots on, executors write.  They do two thirds more work than the driver
does for the same rows, but the driver renders and sends with one thread, which eight cores outrun (measured on two
cores, with a target that takes rows for nothing; `bridge help performance`)."""
LARGE: Final = Amount(50_000, 64 << 20)
"""A step with less, by both counts, is the driver's: a Spark job costs more than it saves."""


class LargeSteps(NamedTuple):
    """The rule.  connections: how many may write at once; 0 when only one transaction may."""

    connections: int = 0

    def writers(self, slots: int) -> int:
        """Returns how many of so many task slots write a large step at once; 0 when the driver does."""
        writers = min(self.connections, slots)
        return writers if writers >= ENOUGH else 0


DRIVER_WRITES: Final = LargeSteps()
"""The driver writes all steps that it can hold."""
