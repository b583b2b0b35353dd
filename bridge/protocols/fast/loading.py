"""Loads all compiled functions, for a process that will read many messages, or whose children will."""

from __future__ import annotations

import bridge.protocols.fast.open_protocol_frames
import bridge.protocols.fast.reader  # noqa: F401
from bridge.protocols.fast.compiled.native_code import loaded_functions

loaded_functions()
