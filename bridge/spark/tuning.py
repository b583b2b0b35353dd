"""The switch of what makes the bridge's processes faster without changing what they do (`stream.tuning_off`)."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # Spark's Python workers do without the settings
    from bridge.config import Tuning

VARIABLE: Final = "BRIDGE_STREAM_TUNING_OFF"
"""Tells the processes that this one starts; the same variable that the settings are read from."""


def switch_off(names: Collection[Tuning]) -> None:
    """Does without these, in this process and those that it starts from now on."""
    os.environ[VARIABLE] = ",".join(names)


def is_on(name: Tuning) -> bool:
    """Whether it is used."""
    return name not in os.environ.get(VARIABLE, "").split(",")
