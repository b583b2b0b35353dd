"""Loads all decoders and compiled functions, for a process that will read many messages, or whose children will."""

from __future__ import annotations

import bridge.protocols.batch_decode
import bridge.protocols.fast.reader  # noqa: F401
from bridge.protocols import PROTOCOLS, DecodeOptions, make_decoder
from bridge.protocols.fast.compiled.native_code import loaded_functions

for protocol in PROTOCOLS:
    make_decoder(protocol, DecodeOptions(None))
loaded_functions()
