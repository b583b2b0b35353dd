"""Loads all decoders and compiled functions, for a process that will read many messages, or whose children will."""

from __future__ import annotations

import bridge.protocols.batch_decode
import bridge.protocols.fast.canal
import bridge.protocols.fast.ckafka
import bridge.protocols.fast.debezium
import bridge.protocols.fast.open_protocol
import bridge.protocols.fast.open_protocol_frames
import bridge.protocols.fast.reader  # noqa: F401
from bridge.protocols.fast.compiled.native_code import loaded_functions

loaded_functions()
