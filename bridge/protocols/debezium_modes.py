"""How a Debezium connector was told to write values, where its messages do not say it."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Literal

DecimalMode = Literal["precise", "string", "double"]
TimeMode = Literal["adaptive_time_microseconds", "adaptive", "connect", "microseconds", "nanoseconds", "isostring"]
BinaryMode = Literal["bytes", "base64", "base64-url-safe", "hex"]


@dataclass(frozen=True)
class DebeziumModes:
    """The connector's properties decimal.handling.mode, time.precision.mode and binary.handling.mode, with its own
    defaults.  A Connect schema in the message says more than these; a JSON number or string may."""

    decimal: DecimalMode = "precise"
    time: TimeMode = "adaptive_time_microseconds"
    binary: BinaryMode = "bytes"

    @classmethod
    def read(cls, text: str) -> DebeziumModes:
        """The reverse of `str`."""
        return cls(*text.split(","))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return ",".join(astuple(self))


TICDC_MODES = DebeziumModes("double", "adaptive_time_microseconds", "base64")
"""What TiCDC does, whose messages name it as the connector."""
