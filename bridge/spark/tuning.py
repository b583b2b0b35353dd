"""Switches off the speed-ups of the bridge's processes, which do not change what they do (`stream.tuning_off`)."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # not at run time: Spark's Python workers do not load the settings
    from bridge.config import Tuning

VARIABLE: Final = "BRIDGE_STREAM_TUNING_OFF"
"""The environment variable that passes the setting to child processes; users can set it, too."""


def switch_off(names: Collection[Tuning]) -> None:
    """Switches these speed-ups off, in this process and in those that it starts afterwards."""
    os.environ[VARIABLE] = ",".join(names)


def is_on(name: Tuning) -> bool:
    """Tells whether the speed-up is used."""
    return name not in os.environ.get(VARIABLE, "").split(",")
